/**
 * The index of a segment: for each extent of blocks, some 64 KiB, where it is, from when to when its calls
 * ended, and a Bloom filter of what is in it. segment-writer.ts makes it block by block and puts it at the
 * segment's end; of a segment that has none, because it still grows or its writer was killed, segment.ts
 * makes it in the same way.
 *
 * In the filter are the request ids, all names, and the texts that `statusKeys` makes. With 16 bits and 7
 * probes a key, one extent of 1,500 is read in vain: several of the 16,000 of 1 GiB. For a request id most of
 * those are ruled out by the lowest and the highest request number in the extent, since numbers rise with
 * time. Of calls that failed it also has who and how in one key, since most extents have each account that is
 * looked for, and some call that failed. It takes 3 to 6 percent of the calls' bytes.
 *
 * Behind the extents a summary (segment-summary.ts) says which calls the whole segment may have.
 *
 * Must hold: a filter and a range may say yes in vain and never no in vain, or a search misses calls
 * (test/unit/call-log/call-log.test.ts, segment-index.test.ts).
 */
import { crc32 } from 'node:zlib';
import { BLOCK_BYTES, NAMED, NONE, STATUS, type Block } from './call-block.js';
import { SegmentSummary } from './segment-summary.js';

export interface Extent {
  readonly at: number;
  readonly bytes: number;
  readonly count: number;
  /** Of calls' ends. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** Request numbers, of all listeners; 0 and Infinity if an earlier version wrote the index. */
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
/** 32 bits each; the second is one more than the last number, and 0 if that is not known or has more bits. */
const FIRST_REQUEST = 32;
const LAST_REQUEST = 36;
const WORD_MAX = 2 ** 32 - 1;
/** In the word of the count: see `hasPairs`. Earlier versions do not read the count. */
const PAIRS_BIT = 2 ** 31;
/** Of one extent. One with more failures has none of them, so that an outage makes no index too long. */
const PAIRS_MAX = 1_024;
/** Statuses from here on are those of calls that failed. */
const FAILED_STATUS = 400;
export const TAIL_BYTES = 8;
const KEY_BITS = 16;
const PROBES = 7;
/** Of an extent, at first. */
const KEYS_FIRST = 4_096;
/** That of a call that did not go well. No name begins with `=`. */
export const FAILED_KEY = '=failed';

type OpenExtent = { -readonly [Field in keyof Extent]: Extent[Field] };

export class SegmentIndex {
  readonly extents: Extent[] = [];
  #open: OpenExtent | undefined;
  /** Of the open extent, some of them twice. */
  #keys = new Int32Array(KEYS_FIRST);
  #keyCount = 0;
  readonly #statuses = new Set<number>();
  /** Of the open extent. */
  readonly #pairs = new Set<number>();
  readonly #summary = new SegmentSummary();

  /** What extents take in memory. */
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
    this.#summary.begin(names);
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

  /** Ends the open extent: what follows is in another one. */
  seal(): void {
    if (this.#open === undefined) return;
    this.#open.hasPairs = this.#pairs.size <= PAIRS_MAX;
    if (this.#open.hasPairs) for (const pair of this.#pairs) this.#push(pair);
    this.#pairs.clear();
    this.#open.filter = filterOf(this.#keys.subarray(0, this.#keyCount));
    this.#keyCount = 0;
    this.#open = undefined;
  }

  /** What is written at `at`, the end of a segment. */
  toBytes(at: number): Buffer {
    this.seal();
    const summary = this.#summary.toBytes();
    const bytes =
      HEAD_BYTES +
      summary.length +
      TAIL_BYTES +
      this.extents.reduce((sum, extent) => sum + EXTENT_BYTES + extent.filter!.length * 4, 0);
    const result = Buffer.alloc((bytes + 7) & ~7);
    let place = HEAD_BYTES;
    for (const extent of this.extents) {
      const filter = extent.filter!;
      result.writeUInt32LE(extent.at, place);
      result.writeUInt32LE(extent.bytes, place + 4);
      result.writeUInt32LE(extent.count + (extent.hasPairs ? PAIRS_BIT : 0), place + 8);
      result.writeUInt32LE(filter.length, place + 12);
      result.writeDoubleLE(extent.firstMs, place + 16);
      result.writeDoubleLE(extent.lastMs, place + 24);
      result.writeUInt32LE(Math.min(extent.firstRequest, WORD_MAX), place + FIRST_REQUEST);
      result.writeUInt32LE(extent.lastRequest < WORD_MAX ? extent.lastRequest + 1 : 0, place + LAST_REQUEST);
      new Int32Array(result.buffer, result.byteOffset + place + EXTENT_BYTES, filter.length).set(filter);
      place += EXTENT_BYTES + filter.length * 4;
    }
    summary.copy(result, result.length - TAIL_BYTES - summary.length);
    result.writeUInt32LE(MAGIC, 0);
    result.writeUInt32LE(this.extents.length, 4);
    result.writeUInt32LE(crc32(result.subarray(HEAD_BYTES, result.length - TAIL_BYTES)), 8);
    result.writeUInt32LE(at, result.length - TAIL_BYTES);
    result.writeUInt32LE(MAGIC, result.length - TAIL_BYTES + 4);
    return result;
  }

  /** `who` and `code` are hashes of names, undefined if there are none. */
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

/** Where the index begins, by the last TAIL_BYTES of a segment; undefined if it has none. */
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
  let place = HEAD_BYTES;
  return Array.from({ length: bytes.readUInt32LE(4) }, () => {
    const extent = extentAt(bytes, place);
    place += EXTENT_BYTES + extent.filter.length * 4;
    return extent;
  });
}

/**
 * Returns the extents, the newest first, that may have the call of that number and those keys, without
 * their filters. A damaged index may hide one: `extentsOf` tells whether it is damaged.
 */
export function extentsWith(bytes: Buffer, request: number, hashes: readonly number[]): Extent[] {
  const extents: Extent[] = [];
  const end = bytes.length - TAIL_BYTES - EXTENT_BYTES;
  if (bytes.length < HEAD_BYTES + TAIL_BYTES || bytes.readUInt32LE(0) !== MAGIC) return extents;
  let place = HEAD_BYTES;
  for (let left = bytes.readUInt32LE(4); left > 0 && place <= end; left--) {
    const words = bytes.readUInt32LE(place + 12);
    const afterLast = bytes.readUInt32LE(place + LAST_REQUEST);
    const mayBe =
      request >= bytes.readUInt32LE(place + FIRST_REQUEST) && (afterLast === 0 || request < afterLast);
    if (mayBe && place + words * 4 <= end) {
      const extent = extentAt(bytes, place);
      if (mayHave(extent, hashes)) extents.unshift({ ...extent, filter: undefined });
    }
    place += EXTENT_BYTES + words * 4;
  }
  return extents;
}

function extentAt(bytes: Buffer, place: number): Extent & { readonly filter: Int32Array } {
  const words = bytes.readUInt32LE(place + 12);
  const afterLast = bytes.readUInt32LE(place + LAST_REQUEST);
  return {
    at: bytes.readUInt32LE(place),
    bytes: bytes.readUInt32LE(place + 4),
    count: bytes.readUInt32LE(place + 8) % PAIRS_BIT,
    hasPairs: bytes.readUInt32LE(place + 8) >= PAIRS_BIT,
    firstMs: bytes.readDoubleLE(place + 16),
    lastMs: bytes.readDoubleLE(place + 24),
    firstRequest: bytes.readUInt32LE(place + FIRST_REQUEST),
    lastRequest: afterLast === 0 ? Infinity : afterLast - 1,
    filter: new Int32Array(bytes.buffer, bytes.byteOffset + place + EXTENT_BYTES, words),
  };
}

/** Whether the number may be that of a call in the extent, whichever listener had it. */
export function mayHaveRequest({ firstRequest, lastRequest }: Extent, request: number): boolean {
  return request >= firstRequest && request <= lastRequest;
}

/** Whether all keys may be in the extent: surely so if it is open. */
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

/** Keys of a status: itself, and its class such as `5xx`. */
export function statusKeys(status: number): string[] {
  return [`=${status}`, `=${Math.floor(status / 100)}xx`];
}

const hashesOfStatuses = new Map<number, readonly number[]>();

function statusHashes(status: number): readonly number[] {
  let hashes = hashesOfStatuses.get(status);
  if (hashes === undefined) hashesOfStatuses.set(status, (hashes = statusKeys(status).map(hashOf)));
  return hashes;
}

/** FNV-1a over the characters, and mixed. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return mixed(hash);
}

export function requestHash(prefixHash: number, request: number): number {
  return mixed(prefixHash ^ Math.imul(request | 0, 0x9e3779b1));
}

/** The key of a call that has both: an account or a key, and a code, a status, a class or FAILED_KEY. */
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

/** Takes 32 bits to a bit of the filter, without a division: that took four times as long. */
function scaleOf(filter: Int32Array): number {
  return (filter.length * 32) / 2 ** 32;
}
