/**
 * What a store's file says of itself in its two meta pages: the state that the last transaction left. Main thread.
 */
import { readSync } from 'node:fs';
import {
  META_BYTES,
  META_FREE_TREE,
  META_LAST_PAGE,
  META_MAIN_TREE,
  META_TRANSACTION,
  TREE_DEPTH,
  TREE_ROOT,
} from './page-layout.js';

/** By its root; `depth` is 1 where that is a leaf. */
export interface Tree {
  readonly root: bigint;
  readonly depth: number;
}

/** What the newer meta page says. */
export interface Snapshot {
  readonly pageBytes: number;
  readonly lastPage: number;
  readonly transaction: bigint;
  readonly trees: readonly Tree[];
}

/** `file` is a descriptor. */
export function newestSnapshot(file: number): Snapshot {
  const first = snapshotAt(file, 0);
  const second = snapshotAt(file, first.pageBytes);
  return first.transaction >= second.transaction ? first : second;
}

function snapshotAt(file: number, position: number): Snapshot {
  const meta = Buffer.alloc(META_BYTES);
  readSync(file, meta, 0, META_BYTES, position);
  return {
    pageBytes: meta.readUInt32LE(META_FREE_TREE),
    lastPage: Number(meta.readBigUInt64LE(META_LAST_PAGE)),
    transaction: meta.readBigUInt64LE(META_TRANSACTION),
    trees: [treeAt(meta, META_FREE_TREE), treeAt(meta, META_MAIN_TREE)],
  };
}

/** What stands at `offset` of a page. */
export function treeAt(bytes: Buffer, offset: number): Tree {
  return {
    root: bytes.readBigUInt64LE(offset + TREE_ROOT),
    depth: bytes.readUInt16LE(offset + TREE_DEPTH),
  };
}
