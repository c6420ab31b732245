/**
 * The pages of an LMDB file, as far as they are read here (tried with lmdb 3.5.6). Main thread.
 *
 *     a page    0 number u64   8 transaction u64   18 kind u16   20 lower u16   22 upper u16   24 node offsets u16 …
 *               lower, upper and node offsets count from byte 24
 *               of an overflow, 20 is the number of its pages u32, and its data follow
 *     a node    0 low u16   2 high u16   4 flags u16   6 key bytes u16   8 key, then data
 *               in a branch, low, high and flags are the child's number; in a leaf, low and high are the data's bytes
 *     a tree    0 page size u32 (free tree only)   6 depth u16   40 root u64
 *     a meta    24 magic   40 map size   48 free tree   96 main tree   144 last page u64   152 transaction u64
 */
export const PAGE_HEAD_BYTES = 24;
export const PAGE_TRANSACTION = 8;
export const PAGE_KIND = 18;
export const PAGE_LOWER = 20;
export const PAGE_UPPER = 22;
export const OVERFLOW_PAGES = 20;
export const KIND_BRANCH = 0x01;
export const KIND_LEAF = 0x02;
export const KIND_OVERFLOW = 0x04;
/** Values of one size without nodes. Tollgate has none, but a file of another program may. */
export const KIND_LEAF_PLAIN = 0x20;

export const NODE_HEAD_BYTES = 8;
export const NODE_HIGH = 2;
export const NODE_FLAGS = 4;
export const NODE_KEY_BYTES = 6;
/** The data are the number of an overflow page (u64), its transaction and its pages. */
export const NODE_OVERFLOW = 0x01;
export const OVERFLOW_REFERENCE_BYTES = 24;
/** The data are a tree. */
export const NODE_TREE = 0x02;

export const TREE_BYTES = 48;
export const TREE_DEPTH = 6;
export const TREE_ROOT = 40;
export const NO_ROOT = 0xffff_ffff_ffff_ffffn;
/** Two entries a page at least: 32 levels are more pages than a file can have. */
export const DEPTH_MAX = 32;

export const META_PAGES = 2;
export const META_FREE_TREE = 48;
export const META_MAIN_TREE = 96;
export const META_LAST_PAGE = 144;
export const META_TRANSACTION = 152;
export const META_BYTES = 160;
