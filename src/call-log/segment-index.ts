/**
 * The index of a segment: for each extent of blocks, some 64 KiB, its offset, the times between which its
 * calls ended, and a Bloom filter. call-writer.ts builds an index block by block, and segment-writer.ts
 * writes it at the segment's end. If a segment has none, because it still grows or its writer was killed,
 * segment.ts builds one in the same way, and writes it nowhere. segment.ts reads indexes too; call-query.ts
 * and call-reader.ts ask the filters. Main threads, and commands.
 *
 *     byte  index (begins where the blocks end, at a multiple of 8; its length is a multiple of 8)
 *        0  MAGIC, count of extents, CRC-32 of all that follows the head but for the tail, and the count with
 *           all bits inverted, because the CRC-32 does not cover it (32 bits each). An earlier version wrote
 *           0 in place of the inverted count
 *       16  the extents, oldest first
 *           0 or 4 zero bytes; the summary (segment-summary.ts), by which segment.ts chooses extents
 *           without reading the index
 *           the tail, the last TAIL_BYTES of the file: where the index begins in the file, MAGIC (32 bits
 *           each)
 *
 *     byte  bits  an extent
 *        0    32  at            offset in the file at which its first block begins
 *        4    32  bytes         up to the end of its last block
 *        8    32  count         of its calls; the highest bit is `hasPairs`
 *       12    32  words         how many words of 32 bits its filter has
 *       16    64  firstMs       (float)
 *       24    64  lastMs        (float)
 *       32    32  firstRequest  or 2^32 - 1 if it is greater
 *       36    32  lastRequest   plus one; 0 if it is 2^32 - 1 or greater. An earlier version wrote 0 at 32
 *                               and here
 *       40        the filter
 *
 * Numbers are little-endian, as the machine must be, and without sign but for the inverted count.
 *
 * A request id is a prefix, which names the run of a listener, and a request number, which counts that
 * listener's requests. What a filter can be asked for is a _filter key_, given as a hash of 32 bits: each
 * request id and each name of the extent, the texts of `statusKeys` of each status, FAILED_KEY if a call has
 * a code, and pairs. A pair is an account or key together with how one of its calls failed. Most extents have
 * calls of each account, and failed calls; only the pair tells whether the account's calls failed.
 *
 * With 16 bits and 7 probes for each filter key, one extent in 1,500 is a false positive: some ten of the
 * 16,000 in 1 GiB. For a request id the range of request numbers rules out most of these, because numbers
 * rise with time. The index takes 3 to 6 percent of the calls' bytes.
 *
 * Must hold (test/unit/call-log/segment-index.test.ts, test/unit/call-log/call-log.test.ts):
 * - Filters and ranges may give false positives but never false negatives, else a search misses calls.
 * - Later versions read these files. Without another MAGIC no hash and no field changes, but for words where
 *   earlier versions wrote 0. The first of these tests has bytes that were written once.
 * - A damaged index is not used.
 */
import { crc32 } from 'node:zlib';
import { BLOCK_BYTES, NAMED, NONE, REQUEST, STATUS, type Block } from './call-block.js';
import { SegmentSummary } from './segment-summary.js';

/** Some blocks in a row, as the index describes them. The layout above says what its fields are. */
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
  /** Whether the filter has the pairs: false in an earlier version's index, and beyond PAIRS_MAX. */
  readonly hasPairs: boolean;
  /** Undefined while the extent is open: more blocks may be added. */
  readonly filter: Int32Array | undefined;
}

const MAGIC = 0x58494754;
/** Offsets in the head. MAGIC is at 0. */
const EXTENTS = 4;
const CHECKSUM = 8;
const INVERTED_EXTENTS = 12;
const HEAD_BYTES = 16;
/** Offsets in an extent. */
const AT = 0;
const BYTES = 4;
const COUNT = 8;
const FILTER_WORDS = 12;
const FIRST_MS = 16;
const LAST_MS = 24;
const FIRST_REQUEST = 32;
const LAST_REQUEST = 36;
/** Length of an extent without its filter. */
const EXTENT_BYTES = 40;
/** Offsets in the tail. */
const INDEX_AT = 0;
const TAIL_MAGIC = 4;
export const TAIL_BYTES = 8;
const WORD_MAX = 2 ** 32 - 1;
/** The bit of `hasPairs` in the word of the count. Earlier versions do not use that word. */
const PAIRS_BIT = 2 ** 31;
/** The most pairs of an extent. An extent with more gets none, so that an outage makes no index too long. */
const PAIRS_MAX = 1_024;
/** A call with this status or a higher one has pairs, even without a code. */
export const FAILED_STATUS = 400;
/** For each filter key: how many bits the filter has, and how many of these are set or tested. */
const BITS_A_KEY = 16;
const PROBES = 7;
/** For how many hashes of the open extent there is space at first. */
const HASHES_FIRST = 4_096;
/** What an extent's object takes in memory, roughly. */
const OBJECT_BYTES = 100;
/** The filter key of failed calls: those with a code. No name begins with `=`. */
export const FAILED_KEY = '=failed';

type OpenExtent = { -readonly [Field in keyof Extent]: Extent[Field] };

export class SegmentIndex {
  /** Oldest first. The last one may still be open. */
  readonly extents: Extent[] = [];
  /** The extent that the next block is added to; undefined if that block begins another. */
  #openExtent: OpenExtent | undefined;
  /** The hashes of the open extent's filter keys, some of them twice. */
  #hashes = new Int32Array(HASHES_FIRST);
  #hashCount = 0;
  /** The hashes of the open extent's pairs. */
  readonly #pairs = new Set<number>();
  readonly #summary = new SegmentSummary();

  /** Returns how many bytes extents take in memory. */
  static bytesOf(extents: readonly Extent[]): number {
    return extents.reduce((sum, { filter }) => sum + OBJECT_BYTES + (filter?.length ?? 0) * 4, 0);
  }

  /**
   * Adds the block that begins at `at` in the file. Call it for the blocks in the order in which they stand
   * in the file; no block is empty. An extent also spans damaged bytes between two of its blocks.
   */
  add(at: number, block: Block): void {
    const extent = (this.#openExtent ??= this.#begin(at));
    const { floats, shorts, count, names } = block;
    const hashes = names.map(hashOf);
    for (const hash of hashes) this.#addHash(hash);
    this.#summary.begin(names, extent.at, at + block.bytes);
    let hasFailed = false;
    const hashesByStatus = new Map<number, readonly number[]>();
    let statusHashes: readonly number[] = [];
    let lastStatus = -1;
    for (let call = 0; call < count; call++) {
      const at64 = block.first64Of(call);
      const at16 = at64 * 4;
      const endedMs = floats[at64]!;
      const request = floats[at64 + REQUEST]!;
      if (endedMs < extent.firstMs) extent.firstMs = endedMs;
      if (endedMs > extent.lastMs) extent.lastMs = endedMs;
      if (request < extent.firstRequest) extent.firstRequest = request;
      if (request > extent.lastRequest) extent.lastRequest = request;
      const prefixPosition = shorts[at16 + NAMED.prefix]!;
      this.#summary.add(prefixPosition, request, endedMs);
      this.#addHash(requestHash(hashes[prefixPosition]!, request));
      const status = shorts[at16 + STATUS]!;
      // Most calls have the status of the call before, which costs no look at the map.
      if (status !== lastStatus) {
        statusHashes = hashesByStatus.get(status) ?? statusKeys(status).map(hashOf);
        hashesByStatus.set(status, statusHashes);
        lastStatus = status;
      }
      const code = shorts[at16 + NAMED.code]!;
      if (code !== NONE) hasFailed = true;
      if (code === NONE && status < FAILED_STATUS) continue;
      this.#addPairs(hashes[shorts[at16 + NAMED.account]!], hashes[code], statusHashes);
      this.#addPairs(hashes[shorts[at16 + NAMED.key]!], hashes[code], statusHashes);
    }
    if (hasFailed) this.#addHash(FAILED_HASH);
    for (const hash of [...hashesByStatus.values()].flat()) this.#addHash(hash);
    extent.bytes = at + block.bytes - extent.at;
    extent.count += count;
    if (extent.bytes >= BLOCK_BYTES) this.seal();
  }

  /** Ends the open extent and makes its filter. Further blocks are in another extent. */
  seal(): void {
    if (this.#openExtent === undefined) return;
    this.#openExtent.hasPairs = this.#pairs.size <= PAIRS_MAX;
    if (this.#openExtent.hasPairs) for (const pair of this.#pairs) this.#addHash(pair);
    this.#pairs.clear();
    this.#openExtent.filter = filterOf(this.#hashes.subarray(0, this.#hashCount));
    this.#hashCount = 0;
    this.#openExtent = undefined;
  }

  /** Returns the index, to be written at `at`, the end of the segment. */
  toBytes(at: number): Buffer {
    this.seal();
    const summary = this.#summary.toBytes();
    // `!`: `seal` has made the last filter.
    const extentsBytes = this.extents.reduce((sum, { filter }) => sum + EXTENT_BYTES + filter!.length * 4, 0);
    const bytes = HEAD_BYTES + extentsBytes + summary.length + TAIL_BYTES;
    const result = Buffer.alloc((bytes + 7) & ~7);
    let offset = HEAD_BYTES;
    for (const extent of this.extents) {
      const filter = extent.filter!;
      result.writeUInt32LE(extent.at, offset + AT);
      result.writeUInt32LE(extent.bytes, offset + BYTES);
      result.writeUInt32LE(extent.count + (extent.hasPairs ? PAIRS_BIT : 0), offset + COUNT);
      result.writeUInt32LE(filter.length, offset + FILTER_WORDS);
      result.writeDoubleLE(extent.firstMs, offset + FIRST_MS);
      result.writeDoubleLE(extent.lastMs, offset + LAST_MS);
      result.writeUInt32LE(Math.min(extent.firstRequest, WORD_MAX), offset + FIRST_REQUEST);
      result.writeUInt32LE(extent.lastRequest < WORD_MAX ? extent.lastRequest + 1 : 0, offset + LAST_REQUEST);
      new Int32Array(result.buffer, result.byteOffset + offset + EXTENT_BYTES, filter.length).set(filter);
      offset += EXTENT_BYTES + filter.length * 4;
    }
    summary.copy(result, result.length - TAIL_BYTES - summary.length);
    result.writeUInt32LE(MAGIC, 0);
    result.writeUInt32LE(this.extents.length, EXTENTS);
    result.writeUInt32LE(crc32(result.subarray(HEAD_BYTES, result.length - TAIL_BYTES)), CHECKSUM);
    result.writeInt32LE(~this.extents.length, INVERTED_EXTENTS);
    result.writeUInt32LE(at, result.length - TAIL_BYTES + INDEX_AT);
    result.writeUInt32LE(MAGIC, result.length - TAIL_BYTES + TAIL_MAGIC);
    return result;
  }

  /**
   * Adds the pairs of a failed call. `caller` (account or key) and `code` are hashes of names; undefined if
   * the call has no such name. Stops above PAIRS_MAX, because `seal` then leaves out all pairs.
   */
  #addPairs(caller: number | undefined, code: number | undefined, statusHashes: readonly number[]): void {
    if (caller === undefined || this.#pairs.size > PAIRS_MAX) return;
    if (code !== undefined) this.#pairs.add(pairHash(caller, FAILED_HASH)).add(pairHash(caller, code));
    for (const hash of statusHashes) this.#pairs.add(pairHash(caller, hash));
  }

  #addHash(hash: number): void {
    if (this.#hashCount === this.#hashes.length) {
      const longer = new Int32Array(this.#hashCount * 2);
      longer.set(this.#hashes);
      this.#hashes = longer;
    }
    this.#hashes[this.#hashCount++] = hash;
  }

  #begin(at: number): OpenExtent {
    // The ranges are empty: `add` sets them by the calls of the first block.
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

/** Returns the index's offset. `tail`: the last TAIL_BYTES of a segment. Undefined if there is no index. */
export function indexStart(tail: Buffer): number | undefined {
  return tail.length === TAIL_BYTES && tail.readUInt32LE(TAIL_MAGIC) === MAGIC
    ? tail.readUInt32LE(INDEX_AT)
    : undefined;
}

/**
 * Returns the extents. `bytes` are those from the index's start to the file's end, and must begin at a
 * multiple of 4 in their memory, because the filters are views of them. Undefined if the bytes are damaged.
 */
export function extentsOf(bytes: Buffer): Extent[] | undefined {
  if (bytes.length < HEAD_BYTES + TAIL_BYTES || bytes.readUInt32LE(0) !== MAGIC) return undefined;
  if (bytes.readUInt32LE(CHECKSUM) !== crc32(bytes.subarray(HEAD_BYTES, bytes.length - TAIL_BYTES)))
    return undefined;
  const count = bytes.readUInt32LE(EXTENTS);
  const invertedCount = bytes.readInt32LE(INVERTED_EXTENTS);
  if (invertedCount !== 0 && invertedCount !== ~count) return undefined;
  const end = bytes.length - TAIL_BYTES;
  const extents: Extent[] = [];
  let next = HEAD_BYTES;
  while (extents.length < count) {
    const offset = next;
    const words = offset + EXTENT_BYTES <= end ? bytes.readUInt32LE(offset + FILTER_WORDS) : WORD_MAX;
    next += EXTENT_BYTES + words * 4;
    // The count is too high, which nothing else shows in an earlier version's index.
    if (next > end) return undefined;
    const lastPlusOne = bytes.readUInt32LE(offset + LAST_REQUEST);
    extents.push({
      at: bytes.readUInt32LE(offset + AT),
      bytes: bytes.readUInt32LE(offset + BYTES),
      count: bytes.readUInt32LE(offset + COUNT) % PAIRS_BIT,
      hasPairs: bytes.readUInt32LE(offset + COUNT) >= PAIRS_BIT,
      firstMs: bytes.readDoubleLE(offset + FIRST_MS),
      lastMs: bytes.readDoubleLE(offset + LAST_MS),
      firstRequest: bytes.readUInt32LE(offset + FIRST_REQUEST),
      lastRequest: lastPlusOne === 0 ? Infinity : lastPlusOne - 1,
      filter: new Int32Array(bytes.buffer, bytes.byteOffset + offset + EXTENT_BYTES, words),
    });
  }
  // The count is too low, or bytes after the last block are damaged.
  const last = extents.at(-1);
  if (invertedCount === 0 && (last?.at ?? 0) + (last?.bytes ?? 0) !== bytes.readUInt32LE(end + INDEX_AT))
    return undefined;
  return extents;
}

/** Returns whether the extent may have the call whose request id has that prefix and number. */
export function mayHaveCall(extent: Extent, prefix: string, request: number): boolean {
  if (!mayHaveRequest(extent, request)) return false;
  const prefixHash = hashOf(prefix);
  return mayHave(extent, [requestHash(prefixHash, request), prefixHash]);
}

/** Returns whether the extent may have a call with that request number, of any listener. */
export function mayHaveRequest({ firstRequest, lastRequest }: Extent, request: number): boolean {
  return request >= firstRequest && request <= lastRequest;
}

/**
 * Returns whether the extent may have all filter keys with these hashes; true if the extent is open. Ask for
 * pairs only if `hasPairs`. The loop is that of `filterOf`: a change of both needs another MAGIC.
 */
export function mayHave({ filter }: Extent, hashes: readonly number[]): boolean {
  if (filter === undefined) return true;
  const scale = scaleOf(filter);
  for (const hash of hashes) {
    const step = stepOf(hash);
    for (let probe = 0, probeHash = hash; probe < PROBES; probe++, probeHash = (probeHash + step) | 0) {
      const bit = ((probeHash >>> 0) * scale) | 0;
      if ((filter[bit >>> 5]! & (1 << (bit & 31))) === 0) return false;
    }
  }
  return true;
}

/**
 * Returns a Bloom filter of the filter keys with these hashes. Sets PROBES bits for each hash: the first at
 * the hash, each next bit a step further, scaled to the length of the filter.
 */
function filterOf(hashes: Int32Array): Int32Array {
  const filter = new Int32Array(Math.ceil((hashes.length * BITS_A_KEY) / 32) + 1);
  const scale = scaleOf(filter);
  for (const hash of hashes) {
    const step = stepOf(hash);
    for (let probe = 0, probeHash = hash; probe < PROBES; probe++, probeHash = (probeHash + step) | 0) {
      const bit = ((probeHash >>> 0) * scale) | 0;
      filter[bit >>> 5]! |= 1 << (bit & 31);
    }
  }
  return filter;
}

/** Returns the filter keys of a status as texts: of the status itself, then of its class (`=5xx`). */
export function statusKeys(status: number): string[] {
  return [`=${status}`, `=${Math.floor(status / 100)}xx`];
}

/** Returns the hash of a filter key that is a text: FNV-1a over its characters, then mixed. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return mixed(hash);
}

/** Returns the hash of a request id as a filter key, from the hash of its prefix and its request number. */
export function requestHash(prefixHash: number, request: number): number {
  return mixed(prefixHash ^ Math.imul(request | 0, 0x9e3779b1));
}

/** Hashes a pair, from the hashes of an account or key and of a code, a status, a class or FAILED_KEY. */
export function pairHash(caller: number, failure: number): number {
  return mixed(caller ^ Math.imul(failure, 0x85ebca77));
}

/** Spreads the bits of a hash: the finaliser of MurmurHash3. */
function mixed(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

const FAILED_HASH = hashOf(FAILED_KEY);

/** Returns the step between the probes of a hash. The step is odd, so it is never 0. */
function stepOf(hash: number): number {
  return Math.imul(hash, 0x9e3779b1) | 1;
}

/** Returns the factor from a 32-bit hash to a bit of the filter. A remainder takes four times as long. */
function scaleOf(filter: Int32Array): number {
  return (filter.length * 32) / 2 ** 32;
}
