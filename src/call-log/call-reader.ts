/**
 * Finds calls in the segments of all gateway processes of a data directory. A gateway's admin interface uses
 * it, on the main thread, and so does a command that finds no gateway. Searches may overlap.
 *
 * Must hold: pages that continue at a cursor neither skip nor repeat a call, also while processes write
 * (test/unit/call-log/call-log.test.ts).
 */
import { join } from 'node:path';
import type { CallRecord } from '../telemetry/call-record.js';
import { NAMED, REQUEST } from './call-block.js';
import {
  type CallFilter,
  extentTestOf,
  testOf,
  cursorOfSeen,
  sortKeyOf,
  type Position,
  seenOf,
  START,
} from './call-query.js';
import type { GrowingSegment } from './call-writer.js';
import { type CallPage, PageSearch } from './page-search.js';
import { CALLS_FOLDER, segmentFiles } from './segment-files.js';
import { type Extent, mayHaveCall } from './segment-index.js';
import type { ExtentAt } from './segment-summary.js';
import { type BlockAt, Segment } from './segment.js';

/** Memory for indexes that are kept between searches: those of some 2 GiB of calls. */
const INDEX_BYTES_MAX = 48 * 1024 * 1024;
/** After this time a search returns what it has found: with its text, a page takes at most 100 ms. */
const SEARCH_MS = 70;
/** How many segments are open at a time while their summaries are read: there may be thousands. */
const BEGUN_AT_ONCE = 64;
/** How many extents one request for newer calls reads. */
const NEWER_EXTENTS_MAX = 64;

interface CallReaderOptions {
  /** Returns the segment that a writer in this thread appends to. */
  readonly written?: (() => GrowingSegment | undefined) | undefined;
  /** How long a search may take. */
  readonly searchMs?: number;
}

export class CallReader {
  readonly #folder: string;
  readonly #searchMs: number;
  readonly #written: () => GrowingSegment | undefined;
  #segments = new Map<number, Segment>();

  constructor(folder: string, { written = () => undefined, searchMs = SEARCH_MS }: CallReaderOptions = {}) {
    this.#folder = folder;
    this.#searchMs = searchMs;
    this.#written = written;
  }

  /** Reads the summaries in advance, so that the first search need not. May be left out. */
  async begin(): Promise<void> {
    await this.#begun();
  }

  /** Returns the call of that request id, if it is kept. A call can be found a second after its end. */
  async find(requestId: string): Promise<CallRecord | undefined> {
    const [, prefix, number] = /^(.*-)([0-9a-z]{1,11})$/.exec(requestId) ?? [];
    if (prefix === undefined) return undefined;
    const request = parseInt(number!, 36);
    for (const segment of (await this.#begun()).reverse()) {
      const extents =
        (await segment.extentsWith(prefix, request)) ??
        (await this.#extentsOf(segment)).filter((extent) => mayHaveCall(extent, prefix, request));
      const call = callIn(segment, extents, prefix, request);
      if (call !== undefined) return call;
    }
    return undefined;
  }

  /**
   * Returns the calls that pass the filter, those that ended last first. `cursor` is `next` of the page
   * before: pages neither overlap nor skip a call that was on disk, also while calls are added and the oldest
   * removed. Returns undefined if the cursor is invalid.
   */
  async page(filter: CallFilter, limit: number, cursor?: string): Promise<CallPage | undefined> {
    const before = cursor === undefined ? undefined : sortKeyOf(cursor);
    if (cursor !== undefined && before === undefined) return undefined;
    const endMs = performance.now() + this.#searchMs;
    const segments = await this.#begun();
    const extentsOf = (segment: Segment): Promise<readonly Extent[]> => this.#extentsOf(segment);
    return new PageSearch({ segments, filter, limit, before, endMs, extentsOf }).run();
  }

  /**
   * Returns the calls that were written after `newest` of a page or of the last `after`, in the order of each
   * process, and the next cursor. Returns undefined if the cursor is invalid.
   */
  async after(cursor: string, filter: CallFilter, limit: number): Promise<CallPage | undefined> {
    const seen = seenOf(cursor);
    if (seen === undefined) return undefined;
    const mayPass = extentTestOf(filter);
    const calls: CallRecord[] = [];
    const segments = await this.#begun();
    let extentsLeft = NEWER_EXTENTS_MAX;
    /** The number of the newest segment of which something was read, now or before. */
    let lastRead = seen.lastNumber;
    for (const segment of segments) {
      const from =
        seen.segments.get(segment.number) ?? (segment.number > seen.lastNumber ? START : undefined);
      if (from === undefined) continue;
      let position = from;
      for (const extent of await this.#extentsOf(segment)) {
        if (extent.at + extent.bytes <= position.at) continue;
        if (calls.length >= limit || extentsLeft === 0) break;
        if (mayPass(extent)) {
          extentsLeft -= 1;
          position = appendNewer(await segment.blocks([extent]), position, filter, calls, limit);
        } else position = { at: extent.at + extent.bytes, call: 0 };
      }
      seen.segments.set(segment.number, position);
      if (position.at > 0 || position.call > 0) lastRead = Math.max(lastRead, segment.number);
    }
    for (const [number, { at }] of seen.segments) {
      const segment = this.#segments.get(number);
      if (segment === undefined || (!segment.isGrowing && at >= segment.end)) seen.segments.delete(number);
    }
    // Segments beyond the last one that was read are new for the next request too. The cursor does not name
    // them, because it names a bounded number, and a client that comes back late may have more to read.
    seen.lastNumber = lastRead;
    for (const number of seen.segments.keys()) if (number > lastRead) seen.segments.delete(number);
    return { calls, next: null, searchedToMs: null, newest: cursorOfSeen(seen) };
  }

  /** Returns all segments, oldest first, after the times of their calls were read. */
  async #begun(): Promise<Segment[]> {
    const segments = new Map<number, Segment>();
    for (const { number, path } of segmentFiles(this.#folder, 'calls')) {
      segments.set(number, this.#segments.get(number) ?? this.#segmentOf(number, path));
    }
    this.#segments = segments;
    const all = [...segments.values()];
    for (let at = 0; at < all.length; at += BEGUN_AT_ONCE)
      await Promise.all(all.slice(at, at + BEGUN_AT_ONCE).map((segment) => segment.begin()));
    return all;
  }

  #segmentOf(number: number, path: string): Segment {
    return new Segment(number, path, () => {
      const written = this.#written();
      return written?.number === number ? written : undefined;
    });
  }

  /** Reads the segment's extents, and then frees those of the oldest segments beyond INDEX_BYTES_MAX. */
  async #extentsOf(segment: Segment): Promise<readonly Extent[]> {
    const extents = await segment.extents();
    let bytes = 0;
    for (const other of this.#segments.values()) bytes += other.indexBytes;
    for (const other of this.#segments.values()) {
      if (bytes <= INDEX_BYTES_MAX) break;
      bytes -= other.indexBytes;
      other.forget();
    }
    return extents;
  }
}

/** Returns a reader of the call log of that data directory. */
export function callReaderOf(dataPath: string, options?: CallReaderOptions): CallReader {
  return new CallReader(join(dataPath, CALLS_FOLDER), options);
}

/** The call of that request in one of the extents. */
function callIn(
  segment: Segment,
  extents: readonly ExtentAt[],
  prefix: string,
  request: number,
): CallRecord | undefined {
  for (const extent of extents) {
    for (const { block } of segment.blocksAt(extent)) {
      const prefixAt = block.positionOf(prefix);
      if (prefixAt === undefined) continue;
      for (let call = 0; call < block.count; call++) {
        const at64 = block.at64(call);
        if (block.floats[at64 + REQUEST] !== request) continue;
        if (block.shorts[at64 * 4 + NAMED.prefix] === prefixAt) return block.call(call);
      }
    }
  }
  return undefined;
}

/**
 * Adds the calls from `position` on that pass the filter to `calls`, until that has `limit`. Returns the
 * position after the last one it tested.
 */
function appendNewer(
  blocks: readonly BlockAt[],
  position: Position,
  filter: CallFilter,
  calls: CallRecord[],
  limit: number,
): Position {
  let last = position;
  for (const { at, block } of blocks) {
    if (at < position.at) continue;
    const test = testOf(filter, block);
    for (let call = at === position.at ? position.call : 0; call < block.count; call++) {
      if (calls.length >= limit) return { at, call };
      if (test?.(call) === true) calls.push(block.call(call));
    }
    last = { at: at + block.bytes, call: 0 };
  }
  return last;
}
