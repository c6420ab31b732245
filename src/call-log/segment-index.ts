/**
 * The index of a segment: for each extent of blocks, some 64 KiB, its offset, the times between which its
 * calls ended, and a Bloom filter of their keys. segment-writer.ts builds it block by block and writes it at
 * the segment's end. If a segment has none, because it still grows or its writer was killed, segment.ts
 * builds it in the same way.
 *
 * Keys are the request ids, all names, and the texts of `statusKeys`. With 16 bits and 7 probes a key, one
 * extent of 1,500 is a false positive: several of the 16,000 of 1 GiB. For a request id the lowest and the
 * highest request number of the extent rule out most of those, because numbers rise with time. For failed
 * calls there are also keys of account and failure together, because most extents have each account, and some
 * failed call. The index takes 3 to 6 percent of the calls' bytes.
 *
 * After the extents a summary (segment-summary.ts) tells which calls the whole segment may have.
 *
 * Must hold: filters and ranges may give false positives but never false negatives, else a search misses
 * calls (test/unit/call-log/call-log.test.ts, test/unit/call-log/segment-index.test.ts).
 */
import { crc32 } from 'node:zlib';
import { BLOCK_BYTES, NAMED, NONE, STATUS, type Block } from './call-block.js';
import { SegmentSummary } from './segment-summary.js';

export interface Extent {
  readonly at: number;
  readonly bytes: number;
  readonly count: number;
  /** When its first and last call ended. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** Lowest and highest request number of all listeners; 0 and Infinity in an earlier version's index. */
  readonly firstRequest: number;
  readonly lastRequest: number;
  /** Whether the filter has the keys of `pairHash`. */
  readonly hasPairs: boolean;
  /** Undefined while more may be added. */
  readonly filter: Int32Array | undefined;
}

const MAGIC = 0x58494754;
const HEAD_BYTES = 16;
const EXTENT_BYTES = 40;
/** Offsets of 32-bit words. The second has the last number + 1, or 0 if that is unknown or has more bits. */
const FIRST_REQUEST = 32;
const LAST_REQUEST = 36;
const WORD_MAX = 2 ** 32 - 1;
/** The bit of `hasPairs` in the word of the count, which earlier versions do not read. */
const PAIRS_BIT = 2 ** 31;
/** The most pairs of an extent. With more it has none, so that an outage makes no index too long. */
const PAIRS_MAX = 1_024;
/** Statuses from here on are those of calls that failed. */
const FAILED_STATUS = 400;
export const TAIL_BYTES = 8;
const KEY_BITS = 16;
const PROBES = 7;
/** The initial capacity for keys of an extent. */
const KEYS_FIRST = 4_096;
/** The key of failed calls. No name begins with `=`. */
export const FAILED_KEY = '=failed';

type OpenExtent = { -readonly [Field in keyof Extent]: Extent[Field] };

export class SegmentIndex {
  readonly extents: Extent[] = [];
  #open: OpenExtent | undefined;
  /** The keys of the open extent, some of them twice. */
  #keys = new Int32Array(KEYS_FIRST);
  #keyCount = 0;
  readonly #statuses = new Set<number>();
  /** The pair keys of the open extent. */
  readonly #pairs = new Set<number>();
  readonly #summary = new SegmentSummary();

  /** Returns how many bytes extents take in memory. */
  static bytesOf(extents: readonly Extent[]): number {
    return extents.reduce((sum, { filter }) => sum + 100 + (filter?.length ?? 0) * 4, 0);
  }

  /** Adds the block that begins at `at` in the file. `names` are the block's. */
  add(at: number, block: Block, names: readonly string[]): void {
    const open = (this.#open ??= this.#begin(at));
    const { floats, shorts, count } = block;
    const hashes = names.map(hashOf);
    for (const hash of hashes) this.#push(hash);
    this.#statuses.clear();
    this.#summary.begin(names, open.at, at + block.bytes);
    let hasFailed = false;
    let lastStatus = -1;
    for (let call = 0; call < count; call++) {
      const at64 = block.at64(call);
      const at16 = at64 * 4;
      const endedMs = floats[at64]!;
      const request = floats[at64 + 1]!;
      if (endedMs < open.firstMs) open.firstMs = endedMs;
      if (endedMs > open.lastMs) open.lastMs = endedMs;
      if (request < open.firstRequest) open.firstRequest = request;
      if (request > open.lastRequest) open.lastRequest = request;
      const prefix = shorts[at16 + NAMED.prefix]!;
      this.#summary.add(prefix, request, endedMs);
      this.#push(requestHash(hashes[prefix]!, request));
      const status = shorts[at16 + STATUS]!;
      if (status !== lastStatus) this.#statuses.add(status);
      lastStatus = status;
      const code = shorts[at16 + NAMED.code]!;
      if (code !== NONE) hasFailed = true;
      if (code === NONE && status < FAILED_STATUS) continue;
      this.#addPairs(hashes[shorts[at16 + NAMED.account]!], hashes[code], status);
      this.#addPairs(hashes[shorts[at16 + NAMED.key]!], hashes[code], status);
    }
    if (hasFailed) this.#push(hashOf(FAILED_KEY));
    for (const status of this.#statuses) for (const key of statusKeys(status)) this.#push(hashOf(key));
    open.bytes = at + block.bytes - open.at;
    open.count += count;
    if (open.bytes >= BLOCK_BYTES) this.seal();
  }

  /** Ends the open extent; further blocks are in another one. */
  seal(): void {
    if (this.#open === undefined) return;
    this.#open.hasPairs = this.#pairs.size <= PAIRS_MAX;
    if (this.#open.hasPairs) for (const pair of this.#pairs) this.#push(pair);
    this.#pairs.clear();
    this.#open.filter = filterOf(this.#keys.subarray(0, this.#keyCount));
    this.#keyCount = 0;
    this.#open = undefined;
  }

  /** Returns the bytes of the index, to be written at `at`, the end of the segment. */
  toBytes(at: number): Buffer {
    this.seal();
    const summary = this.#summary.toBytes();
    const bytes =
      HEAD_BYTES +
      summary.length +
      TAIL_BYTES +
      this.extents.reduce((sum, extent) => sum + EXTENT_BYTES + extent.filter!.length * 4, 0);
    const result = Buffer.alloc((bytes + 7) & ~7);
    let offset = HEAD_BYTES;
    for (const extent of this.extents) {
      const filter = extent.filter!;
      result.writeUInt32LE(extent.at, offset);
      result.writeUInt32LE(extent.bytes, offset + 4);
      result.writeUInt32LE(extent.count + (extent.hasPairs ? PAIRS_BIT : 0), offset + 8);
      result.writeUInt32LE(filter.length, offset + 12);
      result.writeDoubleLE(extent.firstMs, offset + 16);
      result.writeDoubleLE(extent.lastMs, offset + 24);
      result.writeUInt32LE(Math.min(extent.firstRequest, WORD_MAX), offset + FIRST_REQUEST);
      result.writeUInt32LE(extent.lastRequest < WORD_MAX ? extent.lastRequest + 1 : 0, offset + LAST_REQUEST);
      new Int32Array(result.buffer, result.byteOffset + offset + EXTENT_BYTES, filter.length).set(filter);
      offset += EXTENT_BYTES + filter.length * 4;
    }
    summary.copy(result, result.length - TAIL_BYTES - summary.length);
    result.writeUInt32LE(MAGIC, 0);
    result.writeUInt32LE(this.extents.length, 4);
    result.writeUInt32LE(crc32(result.subarray(HEAD_BYTES, result.length - TAIL_BYTES)), 8);
    result.writeInt32LE(~this.extents.length, 12);
    result.writeUInt32LE(at, result.length - TAIL_BYTES);
    result.writeUInt32LE(MAGIC, result.length - TAIL_BYTES + 4);
    return result;
  }

  /** `who` and `code` are hashes of names; undefined if the call has none. */
  #addPairs(who: number | undefined, code: number | undefined, status: number): void {
    if (who === undefined || this.#pairs.size > PAIRS_MAX) return;
    if (code !== undefined) this.#pairs.add(pairHash(who, FAILED_HASH)).add(pairHash(who, code));
    for (const hash of statusHashes(status)) this.#pairs.add(pairHash(who, hash));
  }

  #push(key: number): void {
    if (this.#keyCount === this.#keys.length) {
      const keys = new Int32Array(this.#keyCount * 2);
      keys.set(this.#keys);
      this.#keys = keys;
    }
    this.#keys[this.#keyCount++] = key;
  }

  #begin(at: number): OpenExtent {
    const extent = {
      at,
      bytes: 0,
      count: 0,
      firstMs: Infinity,
      lastMs: -Infinity,
      firstRequest: Infinity,
      lastRequest: -Infinity,
      hasPairs: false,
      filter: undefined,
    };
    this.extents.push(extent);
    return extent;
  }
}

/** Returns the index's offset, from the last TAIL_BYTES of a segment; undefined if it has no index. */
export function indexStart(tail: Buffer): number | undefined {
  return tail.length === TAIL_BYTES && tail.readUInt32LE(4) === MAGIC ? tail.readUInt32LE(0) : undefined;
}

/**
 * Returns the extents, or undefined if the bytes, from the index's start to the file's end, are damaged. The
 * filters are views of the bytes, which begin at a multiple of 4 in their memory.
 */
export function extentsOf(bytes: Buffer): Extent[] | undefined {
  if (bytes.length < HEAD_BYTES + TAIL_BYTES || bytes.readUInt32LE(0) !== MAGIC) return undefined;
  if (bytes.readUInt32LE(8) !== crc32(bytes.subarray(HEAD_BYTES, bytes.length - TAIL_BYTES)))
    return undefined;
  const count = bytes.readUInt32LE(4);
  // The checksum does not have the count. An index of an earlier version has 0 here.
  const inverted = bytes.readInt32LE(12);
  if (inverted !== 0 && inverted !== ~count) return undefined;
  let offset = HEAD_BYTES;
  return Array.from({ length: count }, () => {
    const at = offset;
    const words = bytes.readUInt32LE(at + 12);
    const afterLast = bytes.readUInt32LE(at + LAST_REQUEST);
    offset += EXTENT_BYTES + words * 4;
    return {
      at: bytes.readUInt32LE(at),
      bytes: bytes.readUInt32LE(at + 4),
      count: bytes.readUInt32LE(at + 8) % PAIRS_BIT,
      hasPairs: bytes.readUInt32LE(at + 8) >= PAIRS_BIT,
      firstMs: bytes.readDoubleLE(at + 16),
      lastMs: bytes.readDoubleLE(at + 24),
      firstRequest: bytes.readUInt32LE(at + FIRST_REQUEST),
      lastRequest: afterLast === 0 ? Infinity : afterLast - 1,
      filter: new Int32Array(bytes.buffer, bytes.byteOffset + at + EXTENT_BYTES, words),
    };
  });
}

/** Returns whether the extent may have the call of that id. */
export function mayHaveCall(extent: Extent, prefix: string, request: number): boolean {
  if (!mayHaveRequest(extent, request)) return false;
  const prefixHash = hashOf(prefix);
  return mayHave(extent, [requestHash(prefixHash, request), prefixHash]);
}

/** Returns whether the extent may have a call with that request number, of any listener. */
export function mayHaveRequest({ firstRequest, lastRequest }: Extent, request: number): boolean {
  return request >= firstRequest && request <= lastRequest;
}

/** Returns whether all keys may be in the extent; always true if it is open. */
export function mayHave({ filter }: Extent, hashes: readonly number[]): boolean {
  if (filter === undefined) return true;
  const scale = scaleOf(filter);
  for (const hash of hashes) {
    const step = stepOf(hash);
    for (let probe = 0, at = hash; probe < PROBES; probe++, at = (at + step) | 0) {
      const bit = ((at >>> 0) * scale) | 0;
      if ((filter[bit >>> 5]! & (1 << (bit & 31))) === 0) return false;
    }
  }
  return true;
}

function filterOf(keys: Int32Array): Int32Array {
  const filter = new Int32Array(Math.ceil((keys.length * KEY_BITS) / 32) + 1);
  const scale = scaleOf(filter);
  for (const hash of keys) {
    const step = stepOf(hash);
    for (let probe = 0, at = hash; probe < PROBES; probe++, at = (at + step) | 0) {
      const bit = ((at >>> 0) * scale) | 0;
      filter[bit >>> 5]! |= 1 << (bit & 31);
    }
  }
  return filter;
}

/** Returns the keys of a status: itself, and its class such as `5xx`. */
export function statusKeys(status: number): string[] {
  return [`=${status}`, `=${Math.floor(status / 100)}xx`];
}

const hashesOfStatuses = new Map<number, readonly number[]>();

function statusHashes(status: number): readonly number[] {
  let hashes = hashesOfStatuses.get(status);
  if (hashes === undefined) hashesOfStatuses.set(status, (hashes = statusKeys(status).map(hashOf)));
  return hashes;
}

/** FNV-1a over the characters, then mixed. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return mixed(hash);
}

export function requestHash(prefixHash: number, request: number): number {
  return mixed(prefixHash ^ Math.imul(request | 0, 0x9e3779b1));
}

/** Returns the key of calls with both: an account or key, and a code, status, class or FAILED_KEY. */
export function pairHash(who: number, how: number): number {
  return mixed(who ^ Math.imul(how, 0x85ebca77));
}

/** The finaliser of MurmurHash3. */
function mixed(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

const FAILED_HASH = hashOf(FAILED_KEY);

function stepOf(hash: number): number {
  return Math.imul(hash, 0x9e3779b1) | 1;
}

/** The factor from a 32-bit hash to a bit of the filter. A remainder took four times as long. */
function scaleOf(filter: Int32Array): number {
  return (filter.length * 32) / 2 ** 32;
}
