/**
 * Whether every page that a store's file needs is there and is what it should be. Main thread, before LMDB opens the file.
 *
 * LMDB maps the file and follows page numbers without a look: a page that is missing ends the process with a bus error, one
 * of garbage aborts it or passes for an empty one (tried with lmdb 3.5.6), and the supervisor would start it again and again.
 * The file's length alone tells nothing: pages at its end that were used and freed by one transaction are never written, so
 * a third of the sound files of a trial were shorter than the last page that they name. Hence all pages are visited from
 * the two roots: 0.4 s a GB.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import {
  PAGE_HEAD_BYTES,
  PAGE_TRANSACTION,
  PAGE_KIND,
  PAGE_LOWER,
  PAGE_UPPER,
  OVERFLOW_PAGES,
  KIND_BRANCH,
  KIND_LEAF,
  KIND_OVERFLOW,
  KIND_LEAF_PLAIN,
  NODE_HEAD_BYTES,
  NODE_HIGH,
  NODE_FLAGS,
  NODE_KEY_BYTES,
  NODE_OVERFLOW,
  OVERFLOW_REFERENCE_BYTES,
  NODE_TREE,
  TREE_BYTES,
  NO_ROOT,
  DEPTH_MAX,
  META_PAGES,
} from './page-layout.js';
import { newestSnapshot, treeAt, type Snapshot, type Tree } from './page-snapshot.js';

/** A writer beside us made new roots and used pages of ours again: begin anew, so often. Then it is alive, and vouches. */
const TRIES_MAX = 5;

export interface PageError {
  readonly page: number;
  /** Where the page is, or would be, in the file. */
  readonly byte: number;
  readonly reason: string;
}

/**
 * The first page that is not what it should be; undefined where all are. `path` begins with two meta pages (assertStoreFile
 * looks at them). Reads all that is in use, and only reads.
 */
export function findPageError(path: string): PageError | undefined {
  const file = openSync(path, 'r');
  try {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const snapshot = newestSnapshot(file);
      const fault = new PageWalk(file, snapshot).run();
      if (fault === undefined || newestSnapshot(file).transaction === snapshot.transaction) return fault;
    }
    return undefined;
  } finally {
    closeSync(file);
  }
}

/** Ends the walk; never leaves this file. */
class BrokenPage extends Error {
  readonly fault: PageError;

  constructor(fault: PageError) {
    super(fault.reason);
    this.fault = fault;
  }
}

class PageWalk {
  readonly #file: number;
  readonly #fileBytes: number;
  readonly #snapshot: Snapshot;
  /** One bit a page: a page has one place, so a second visit is a fault, and the walk is bounded by the file. */
  readonly #visited: Uint8Array;
  /** The page that is looked at; what it refers to is noted before the next is read. */
  readonly #page: Buffer;

  constructor(file: number, snapshot: Snapshot) {
    this.#file = file;
    this.#fileBytes = fstatSync(file).size;
    this.#snapshot = snapshot;
    const pages = Math.ceil(this.#fileBytes / snapshot.pageBytes);
    this.#visited = new Uint8Array(Math.ceil(pages / 8));
    this.#page = Buffer.alloc(snapshot.pageBytes);
  }

  run(): PageError | undefined {
    try {
      for (const tree of this.#snapshot.trees) this.#visitTree(tree, 0);
      return undefined;
    } catch (error) {
      if (error instanceof BrokenPage) return error.fault;
      throw error;
    }
  }

  #visitTree({ root, depth }: Tree, parent: number): void {
    if (root === NO_ROOT) return;
    this.#check(depth >= 1 && depth <= DEPTH_MAX, parent, 'it names a tree of impossible depth');
    this.#visit(Number(root), depth);
  }

  /** `depth` is 1 for a leaf. */
  #visit(page: number, depth: number): void {
    this.#read(page);
    const kind = this.#page.readUInt16LE(PAGE_KIND) & (KIND_BRANCH | KIND_LEAF | KIND_OVERFLOW);
    this.#check(
      kind === (depth > 1 ? KIND_BRANCH : KIND_LEAF),
      page,
      'it is of another kind than its place wants',
    );
    if (depth > 1) {
      for (const child of this.#childrenOf(page)) this.#visit(child, depth - 1);
      return;
    }
    const { trees, overflows } = this.#leavesOf(page);
    for (const overflow of overflows) this.#visitOverflow(overflow);
    for (const tree of trees) this.#visitTree(tree, page);
  }

  #visitOverflow(page: number): void {
    this.#read(page);
    this.#check((this.#page.readUInt16LE(PAGE_KIND) & KIND_OVERFLOW) !== 0, page, 'it is no overflow page');
    const endByte = (page + this.#page.readUInt32LE(OVERFLOW_PAGES)) * this.#snapshot.pageBytes;
    this.#check(endByte <= this.#fileBytes, page, 'the file ends before the value that begins there');
  }

  /** Puts the page in `#page`, if it can be there and says of itself that it is. */
  #read(page: number): void {
    const { pageBytes, lastPage, transaction } = this.#snapshot;
    this.#check(page >= META_PAGES && page <= lastPage, page, 'there can be no page of that number');
    this.#check((page + 1) * pageBytes <= this.#fileBytes, page, 'the file ends before it');
    const bit = 1 << (page & 7);
    this.#check((this.#visited[page >>> 3]! & bit) === 0, page, 'it is used in two places');
    this.#visited[page >>> 3]! |= bit;
    readSync(this.#file, this.#page, 0, pageBytes, page * pageBytes);
    this.#check(this.#page.readBigUInt64LE(0) === BigInt(page), page, 'it does not bear its number');
    this.#check(
      this.#page.readBigUInt64LE(PAGE_TRANSACTION) <= transaction,
      page,
      'it is newer than the file says, as in a copy of a file that was being written',
    );
  }

  #childrenOf(page: number): number[] {
    const children: number[] = [];
    for (const node of this.#nodesOf(page)) {
      const low = this.#page.readUInt32LE(node);
      children.push(low + this.#page.readUInt16LE(node + NODE_FLAGS) * 2 ** 32);
    }
    return children;
  }

  #leavesOf(page: number): { readonly trees: Tree[]; readonly overflows: number[] } {
    const trees: Tree[] = [];
    const overflows: number[] = [];
    if ((this.#page.readUInt16LE(PAGE_KIND) & KIND_LEAF_PLAIN) !== 0) return { trees, overflows };
    for (const node of this.#nodesOf(page)) {
      const flags = this.#page.readUInt16LE(node + NODE_FLAGS);
      const dataBytes = this.#page.readUInt16LE(node) + this.#page.readUInt16LE(node + NODE_HIGH) * 2 ** 16;
      const data = node + NODE_HEAD_BYTES + this.#page.readUInt16LE(node + NODE_KEY_BYTES);
      const isOverflow = (flags & NODE_OVERFLOW) !== 0;
      const dataEnd = data + (isOverflow ? OVERFLOW_REFERENCE_BYTES : dataBytes);
      this.#check(dataEnd <= this.#page.length, page, 'an entry of it does not end within it');
      if (isOverflow) {
        overflows.push(Number(this.#page.readBigUInt64LE(data)));
      } else if ((flags & NODE_TREE) !== 0) {
        this.#check(dataBytes === TREE_BYTES, page, 'it names a tree that is none');
        trees.push(treeAt(this.#page, data));
      }
    }
    return { trees, overflows };
  }

  /** Where the nodes of the page begin. */
  #nodesOf(page: number): number[] {
    const lower = this.#page.readUInt16LE(PAGE_LOWER);
    const upper = this.#page.readUInt16LE(PAGE_UPPER);
    const dataBytes = this.#page.length - PAGE_HEAD_BYTES;
    const sound = lower % 2 === 0 && lower <= upper && upper <= dataBytes;
    this.#check(sound, page, 'its table of entries is impossible');
    const nodes: number[] = [];
    for (let at = 0; at < lower; at += 2) {
      const node = this.#page.readUInt16LE(PAGE_HEAD_BYTES + at);
      const within = node >= upper && node + NODE_HEAD_BYTES <= dataBytes;
      this.#check(within, page, 'an entry of it does not begin within it');
      nodes.push(PAGE_HEAD_BYTES + node);
    }
    return nodes;
  }

  #check(holds: boolean, page: number, reason: string): void {
    if (!holds) throw new BrokenPage({ page, byte: page * this.#snapshot.pageBytes, reason });
  }
}
