/**
 * An integrity check of an LMDB file: finds missing and broken pages. `assertStoreFile` (store-file.ts) calls
 * it on the main thread before LMDB opens the file. The layout below is taken from MDB_page, MDB_node, MDB_db
 * and MDB_meta in LMDB's mdb.c.
 *
 * LMDB maps the file and follows page numbers without checking them (tried with lmdb 3.5.6). A missing page
 * ends the process with SIGBUS; a garbage page aborts the process, or reads as an empty page. The supervisor
 * would then restart the gateway forever. The file's length tells neither: LMDB never writes pages at the end
 * that one transaction used and freed, so 39 of 100 sound files were shorter than the last page they name. So
 * this walk visits all pages in use: 0.4 s a GB.
 *
 * Must hold: a sound file is never called damaged, even if another process writes to the file meanwhile
 * (test/unit/store/page-walk.test.ts: sound files pass; a file cut at any length).
 *
 *     page   0 number u64   8 transaction u64   18 kind u16   20 lower u16   22 upper u16   24 node offsets
 *            (u16 each); lower, upper and the node offsets count from byte 24;
 *            of an overflow page, byte 20 is its number of pages u32, and its data follow
 *     node   0 low u16   2 high u16   4 flags u16   6 key bytes u16   8 key, then data;
 *            in a branch, low, high and flags are the child's number;
 *            in a leaf, low and high are the data's length
 *     tree   0 page size u32 (free tree only)   6 depth u16   40 root u64
 *     meta   24 magic   40 map size   48 free tree   96 main tree   144 last page u64   152 transaction u64
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

// Sizes and offsets, in bytes, as they are drawn above.
const PAGE_HEAD_BYTES = 24;
const PAGE_TRANSACTION = 8;
const PAGE_KIND = 18;
const PAGE_LOWER = 20;
const PAGE_UPPER = 22;
const OVERFLOW_PAGES = 20;
const KIND_BRANCH = 0x01;
const KIND_LEAF = 0x02;
const KIND_OVERFLOW = 0x04;
/** LMDB's P_LEAF2: values of one size without nodes. Another program's file may have such pages. */
const KIND_LEAF_PLAIN = 0x20;

const NODE_HEAD_BYTES = 8;
const NODE_HIGH = 2;
const NODE_FLAGS = 4;
const NODE_KEY_BYTES = 6;
/** Flag: the data are the number of an overflow page (u64), its transaction and its pages. */
const NODE_OVERFLOW = 0x01;
const OVERFLOW_REFERENCE_BYTES = 24;
/** Flag: the data are a tree. */
const NODE_TREE = 0x02;

const TREE_BYTES = 48;
const TREE_DEPTH = 6;
const TREE_ROOT = 40;
const NO_ROOT = 0xffff_ffff_ffff_ffffn;
/** A branch has at least two nodes, so 32 levels are more pages than a file can have. */
const DEPTH_MAX = 32;

const META_PAGES = 2;
const META_FREE_TREE = 48;
const META_MAIN_TREE = 96;
const META_LAST_PAGE = 144;
const META_TRANSACTION = 152;
const META_BYTES = 160;

/**
 * How many walks are tried. A walk that finds an error while another process commits starts again, because
 * that process may have reused the page. After WALKS_MAX walks the file is taken for sound, because the other
 * process can read it.
 */
const WALKS_MAX = 5;

export interface PageError {
  readonly page: number;
  /** Offset in the file at which the page is, or would be. */
  readonly byte: number;
  readonly reason: string;
}

interface Tree {
  readonly root: bigint;
  /** 1 if the root is a leaf. */
  readonly depth: number;
}

/** What the newer meta page says: the state that the last transaction left. */
interface Snapshot {
  readonly pageBytes: number;
  readonly lastPage: number;
  readonly transaction: bigint;
  readonly trees: readonly Tree[];
}

/**
 * Returns the first broken page, or undefined if all are sound. The file at `path` must begin with two meta
 * pages, which `assertStoreFile` checks. Reads every page in use and writes nothing. Throws what the file
 * system throws.
 */
export function findPageError(path: string): PageError | undefined {
  const file = openSync(path, 'r');
  try {
    for (let walks = 0; walks < WALKS_MAX; walks++) {
      const snapshot = newestSnapshot(file);
      const pageError = new PageWalk(file, snapshot).run();
      if (pageError === undefined || newestSnapshot(file).transaction === snapshot.transaction)
        return pageError;
    }
    return undefined;
  } finally {
    closeSync(file);
  }
}

function newestSnapshot(file: number): Snapshot {
  const firstMeta = snapshotAt(file, 0);
  const secondMeta = snapshotAt(file, firstMeta.pageBytes);
  return firstMeta.transaction >= secondMeta.transaction ? firstMeta : secondMeta;
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

function treeAt(bytes: Buffer, offset: number): Tree {
  return {
    root: bytes.readBigUInt64LE(offset + TREE_ROOT),
    depth: bytes.readUInt16LE(offset + TREE_DEPTH),
  };
}

/** Ends the walk at the first broken page; `run` catches it. */
class BrokenPage extends Error {
  readonly pageError: PageError;

  constructor(pageError: PageError) {
    super(pageError.reason);
    this.pageError = pageError;
  }
}

class PageWalk {
  readonly #file: number;
  readonly #fileBytes: number;
  readonly #snapshot: Snapshot;
  /** One bit a page. A second visit is an error, so no circle of pages makes the walk endless. */
  readonly #visited: Uint8Array;
  /** The page that is checked now. `#read` overwrites it, so page numbers in it are copied out first. */
  readonly #buffer: Buffer;

  constructor(file: number, snapshot: Snapshot) {
    this.#file = file;
    this.#fileBytes = fstatSync(file).size;
    this.#snapshot = snapshot;
    const pages = Math.ceil(this.#fileBytes / snapshot.pageBytes);
    this.#visited = new Uint8Array(Math.ceil(pages / 8));
    this.#buffer = Buffer.alloc(snapshot.pageBytes);
  }

  run(): PageError | undefined {
    try {
      for (const tree of this.#snapshot.trees) this.#visitTree(tree, 0);
      return undefined;
    } catch (error) {
      if (error instanceof BrokenPage) return error.pageError;
      throw error;
    }
  }

  /** `parent`: the page that names the tree, for the error; 0 for a meta page. */
  #visitTree({ root, depth }: Tree, parent: number): void {
    if (root === NO_ROOT) return;
    this.#check(depth >= 1 && depth <= DEPTH_MAX, parent, 'it names a tree of impossible depth');
    this.#visit(Number(root), depth);
  }

  /** Visits a page of a tree and all pages below. `depth` is 1 for a leaf. */
  #visit(page: number, depth: number): void {
    this.#read(page);
    const kind = this.#buffer.readUInt16LE(PAGE_KIND) & (KIND_BRANCH | KIND_LEAF | KIND_OVERFLOW);
    this.#check(
      kind === (depth > 1 ? KIND_BRANCH : KIND_LEAF),
      page,
      'it is of another kind than its depth requires',
    );
    // DEPTH_MAX bounds the recursion.
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
    this.#check((this.#buffer.readUInt16LE(PAGE_KIND) & KIND_OVERFLOW) !== 0, page, 'it is no overflow page');
    const endByte = (page + this.#buffer.readUInt32LE(OVERFLOW_PAGES)) * this.#snapshot.pageBytes;
    this.#check(endByte <= this.#fileBytes, page, 'the file ends before the value that begins there');
  }

  /** Reads the page into `#buffer`. Checks that the page can exist, and bears its own number. */
  #read(page: number): void {
    const { pageBytes, lastPage, transaction } = this.#snapshot;
    this.#check(page >= META_PAGES && page <= lastPage, page, 'there can be no page of that number');
    this.#check((page + 1) * pageBytes <= this.#fileBytes, page, 'the file ends before it');
    const bit = 1 << (page & 7);
    this.#check((this.#visited[page >>> 3]! & bit) === 0, page, 'it is used in two places');
    this.#visited[page >>> 3]! |= bit;
    readSync(this.#file, this.#buffer, 0, pageBytes, page * pageBytes);
    this.#check(this.#buffer.readBigUInt64LE(0) === BigInt(page), page, 'it does not bear its number');
    this.#check(
      this.#buffer.readBigUInt64LE(PAGE_TRANSACTION) <= transaction,
      page,
      'it is newer than the file says, as in a copy of a file that was being written',
    );
  }

  #childrenOf(page: number): number[] {
    return this.#nodesOf(page).map(
      (node) => this.#buffer.readUInt32LE(node) + this.#buffer.readUInt16LE(node + NODE_FLAGS) * 2 ** 32,
    );
  }

  #leavesOf(page: number): { readonly trees: Tree[]; readonly overflows: number[] } {
    const trees: Tree[] = [];
    const overflows: number[] = [];
    if ((this.#buffer.readUInt16LE(PAGE_KIND) & KIND_LEAF_PLAIN) !== 0) return { trees, overflows };
    for (const node of this.#nodesOf(page)) {
      const flags = this.#buffer.readUInt16LE(node + NODE_FLAGS);
      const dataBytes =
        this.#buffer.readUInt16LE(node) + this.#buffer.readUInt16LE(node + NODE_HIGH) * 2 ** 16;
      const data = node + NODE_HEAD_BYTES + this.#buffer.readUInt16LE(node + NODE_KEY_BYTES);
      const isOverflow = (flags & NODE_OVERFLOW) !== 0;
      const dataEnd = data + (isOverflow ? OVERFLOW_REFERENCE_BYTES : dataBytes);
      this.#check(dataEnd <= this.#buffer.length, page, 'an entry of it does not end within it');
      if (isOverflow) {
        overflows.push(Number(this.#buffer.readBigUInt64LE(data)));
      } else if ((flags & NODE_TREE) !== 0) {
        this.#check(dataBytes === TREE_BYTES, page, 'it names a tree that is none');
        trees.push(treeAt(this.#buffer, data));
      }
    }
    return { trees, overflows };
  }

  /** Returns where the nodes in `#buffer` begin. `page`: the number of that page. */
  #nodesOf(page: number): number[] {
    const lower = this.#buffer.readUInt16LE(PAGE_LOWER);
    const upper = this.#buffer.readUInt16LE(PAGE_UPPER);
    const dataBytes = this.#buffer.length - PAGE_HEAD_BYTES;
    const isSound = lower % 2 === 0 && lower <= upper && upper <= dataBytes;
    this.#check(isSound, page, 'its table of entries is impossible');
    const nodes: number[] = [];
    for (let offset = 0; offset < lower; offset += 2) {
      const node = this.#buffer.readUInt16LE(PAGE_HEAD_BYTES + offset);
      const isWithin = node >= upper && node + NODE_HEAD_BYTES <= dataBytes;
      this.#check(isWithin, page, 'an entry of it does not begin within it');
      nodes.push(PAGE_HEAD_BYTES + node);
    }
    return nodes;
  }

  #check(isSound: boolean, page: number, reason: string): void {
    if (!isSound) throw new BrokenPage({ page, byte: page * this.#snapshot.pageBytes, reason });
  }
}
