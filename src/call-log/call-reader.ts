/**
 * Finds calls in the segments of all gateway processes of a data directory. A gateway's admin interface uses
 * it, on the main thread, and so does a command that finds no gateway. Searches may overlap. A search reads
 * the extents that the indexes cannot rule out, asynchronously and at most 1 MiB at a time, so that the
 * thread can do other work in between, and checks the time after each MiB.
 *
 * Must hold: a search ends within its time and returns how far it came, which is farther than the page before
 * (test/unit/call-log/search-time.test.ts); pages that continue at a cursor neither skip nor repeat a call,
 * also while processes write (test/unit/call-log/call-log.test.ts).
 */
import { join } from 'node:path';
import type { CallRecord } from '../telemetry/call-record.js';
import { NAMED } from './call-block.js';
import {
  type CallFilter,
  extentTestOf,
  testOf,
  cursorOf,
  cursorOfNewest,
  cursorOfSeen,
  newestFirst,
  type SortKey,
  sortKeyOf,
  type Position,
  seenOf,
  START,
} from './call-query.js';
import type { GrowingSegment } from './call-writer.js';
import { CALLS_FOLDER, segmentFiles } from './segment-files.js';
import { type Extent, mayHaveCall } from './segment-index.js';
import type { ExtentAt } from './segment-summary.js';
import { type BlockAt, Segment } from './segment.js';

/** Memory for indexes that are kept between searches: those of some 2 GiB of calls. */
const INDEX_BYTES_MAX = 48 * 1024 * 1024;
/** After this time a search returns what it has found: with its text, a page takes at most 100 ms. */
const SEARCH_MS = 70;
/** Extents (some 64 KiB) of a batch: one at first, then twice as many each time up to this. */
const BATCH_EXTENTS_MAX = 32;
/** The same if accounts must be looked up: thousands of lookups in one turn would delay other work. */
const BATCH_OF_ACCOUNTS_MAX = 8;
/** Extents that follow each other are read as one range, and several ranges at once by the thread pool. */
const RANGE_EXTENTS_MAX = 8;
const RANGES_AT_ONCE = 4;
const EXTENTS_AT_ONCE = 16;
/** How many segments are open at a time while their summaries are read: there may be thousands. */
const BEGUN_AT_ONCE = 64;
/** How many extents one request for newer calls reads. */
const NEWER_EXTENTS_MAX = 64;

interface Found extends SortKey {
  readonly record: CallRecord;
}

interface Candidate {
  readonly segment: Segment;
  readonly extent: Extent;
}

/** Extents that follow each other in a file. */
interface Range {
  readonly segment: Segment;
  readonly extents: Extent[];
}

export interface CallPage {
  readonly calls: readonly CallRecord[];
  /** The cursor that continues with older calls; null if there are none. */
  readonly next: string | null;
  /** Only calls that ended later than this were searched; null if all were, or `limit` was reached. */
  readonly searchedToMs: number | null;
  /** The cursor with which `after` returns the calls that are written later than this page. */
  readonly newest: string;
}

export interface CallReaderOptions {
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
    const newest = cursorOfNewest(segments);
    // Segments of other processes may be read again below: what was written since then is left for `after`.
    const ends = new Map(
      segments.filter(({ isGrowing }) => isGrowing).map(({ number, end }) => [number, end]),
    );
    const mayPass = extentTestOf(filter);
    const batchMax = filter.accounts === undefined ? BATCH_EXTENTS_MAX : BATCH_OF_ACCOUNTS_MAX;
    const toMs = Math.min(before?.endedMs ?? Infinity, filter.toMs ?? Infinity);
    const fromMs = filter.fromMs ?? -Infinity;
    const unread = segments
      .filter(({ firstMs, lastMs }) => firstMs <= toMs && lastMs >= fromMs)
      .sort((left, right) => right.lastMs - left.lastMs);
    const candidates: Candidate[] = [];
    let found: Found[] = [];
    const startMs = Math.min(toMs, unread[0]?.lastMs ?? toMs);
    for (let batch = 1; ; batch = Math.min(batch * 2, batchMax)) {
      // The first candidates are the newest of all only if no unread segment has newer calls.
      while (
        unread.length > 0 &&
        (candidates.length < batch || unread[0]!.lastMs >= candidates[0]!.extent.lastMs)
      ) {
        const segment = unread.shift()!;
        for (const extent of await this.#extentsOf(segment)) {
          if (extent.firstMs > toMs || extent.lastMs < fromMs || !mayPass(extent)) continue;
          candidates.push({ segment, extent });
        }
        candidates.sort(newestExtentFirst);
        if (performance.now() > endMs) break;
      }
      const isOver = (): boolean => performance.now() > endMs;
      const { more, left } = await this.#search(
        candidates.splice(0, batch),
        filter,
        before,
        ends,
        limit + 1,
        isOver,
      );
      candidates.unshift(...left);
      found = [...found, ...more].sort(newestFirst).slice(0, limit + 1);
      const restMs = Math.max(candidates[0]?.extent.lastMs ?? -Infinity, unread[0]?.lastMs ?? -Infinity);
      if (restMs === -Infinity || (found.length > limit && found[limit]!.endedMs > restMs)) {
        const calls = found.slice(0, limit).map(({ record }) => record);
        const next = found.length > limit ? cursorOf(found[limit - 1]!) : null;
        return { calls, next, searchedToMs: null, newest };
      }
      // Found calls older than `restMs` are left for the next page, because newer ones may be unread. But
      // a page ends only after some progress.
      if (performance.now() > endMs && restMs < startMs) {
        const sure = found.filter(({ endedMs }) => endedMs > restMs).slice(0, limit);
        const isFull = sure.length === limit;
        // Before all calls that ended at `restMs`, in the order of `newestFirst`.
        const rest = { endedMs: restMs, segment: Number.MAX_SAFE_INTEGER, at: 0, call: 0 };
        return {
          calls: sure.map(({ record }) => record),
          next: cursorOf(isFull ? sure.at(-1)! : rest),
          searchedToMs: isFull ? null : restMs,
          newest,
        };
      }
    }
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
    /** The newest segment of which something was read, now or before. */
    let read = seen.last;
    for (const segment of segments) {
      const from = seen.segments.get(segment.number) ?? (segment.number > seen.last ? START : undefined);
      if (from === undefined) continue;
      let position = from;
      for (const extent of await this.#extentsOf(segment)) {
        if (extent.at + extent.bytes <= position.at) continue;
        if (calls.length >= limit || extentsLeft === 0) break;
        if (mayPass(extent)) {
          extentsLeft -= 1;
          position = newer(await segment.blocks([extent]), position, filter, calls, limit);
        } else position = { at: extent.at + extent.bytes, call: 0 };
      }
      seen.segments.set(segment.number, position);
      if (position.at > 0 || position.call > 0) read = Math.max(read, segment.number);
    }
    for (const [number, { at }] of seen.segments) {
      const segment = this.#segments.get(number);
      if (segment === undefined || (!segment.isGrowing && at >= segment.end)) seen.segments.delete(number);
    }
    // Segments beyond the last one that was read are new for the next request too. Named, they would push out
    // others: a client that comes back late may have more segments before it than a cursor names.
    seen.last = read;
    for (const number of seen.segments.keys()) if (number > read) seen.segments.delete(number);
    return { calls, next: null, searchedToMs: null, newest: cursorOfSeen(seen) };
  }

  /**
   * Searches at least one range of the batch, newest first. `ends`: where the search ends in some segments,
   * by their number. `left`: extents it did not read, newest first.
   */
  async #search(
    batch: readonly Candidate[],
    filter: CallFilter,
    before: SortKey | undefined,
    ends: ReadonlyMap<number, number>,
    limit: number,
    isOver: () => boolean,
  ): Promise<{ more: Found[]; left: Candidate[] }> {
    const matches: (SortKey & BlockAt)[] = [];
    const ranges = rangesOf(batch);
    for (let first = true; ranges.length > 0 && (first || !isOver()); first = false) {
      const now = rangesToRead(ranges);
      const read = now.map(async ({ segment, extents }) => ({
        segment,
        blocks: await segment.blocks(extents),
      }));
      for (const { segment, blocks } of await Promise.all(read)) {
        const end = ends.get(segment.number) ?? Infinity;
        for (const block of blocks)
          if (block.at < end) matches.push(...matchesIn(block, segment.number, filter, before));
      }
    }
    const found = matches.sort(newestFirst).slice(0, limit);
    return {
      more: found.map(({ endedMs, segment, at, call, block }) => {
        return { endedMs, segment, at, call, record: block.call(call) };
      }),
      left: ranges
        .flatMap(({ segment, extents }) => extents.map((extent) => ({ segment, extent })))
        .sort(newestExtentFirst),
    };
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
        if (block.floats[at64 + 1] !== request) continue;
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
function newer(
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

/** Returns the ranges of the batch, those with the newest calls first. */
function rangesOf(batch: readonly Candidate[]): Range[] {
  const ordered = [...batch].sort(
    (left, right) => left.segment.number - right.segment.number || left.extent.at - right.extent.at,
  );
  const ranges: Range[] = [];
  for (const { segment, extent } of ordered) {
    const range = ranges.at(-1);
    const last = range?.extents.at(-1);
    const follows = range?.segment === segment && last !== undefined && last.at + last.bytes === extent.at;
    if (follows && range.extents.length < RANGE_EXTENTS_MAX) range.extents.push(extent);
    else ranges.push({ segment, extents: [extent] });
  }
  return ranges.sort((left, right) => lastMsOf(right) - lastMsOf(left));
}

function lastMsOf({ extents }: Range): number {
  return extents.reduce((last, { lastMs }) => Math.max(last, lastMs), -Infinity);
}

/** Removes and returns the first ranges, as many as are read between two checks of the time. */
function rangesToRead(ranges: Range[]): Range[] {
  let count = 0;
  for (let extents = 0; count < ranges.length && count < RANGES_AT_ONCE; count++) {
    extents += ranges[count]!.extents.length;
    if (count > 0 && extents > EXTENTS_AT_ONCE) break;
  }
  return ranges.splice(0, count);
}

/** Returns the sort keys of the block's calls that pass the filter and come after `before`. */
function matchesIn(
  { at, block }: BlockAt,
  segment: number,
  filter: CallFilter,
  before: SortKey | undefined,
): (SortKey & BlockAt)[] {
  const test = testOf(filter, block);
  const matches: (SortKey & BlockAt)[] = [];
  if (test === undefined) return matches;
  for (let call = 0; call < block.count; call++) {
    if (!test(call)) continue;
    const match = { endedMs: block.floats[block.at64(call)]!, segment, at, call };
    if (before === undefined || newestFirst(before, match) < 0) matches.push({ ...match, block });
  }
  return matches;
}

function newestExtentFirst(left: Candidate, right: Candidate): number {
  return right.extent.lastMs - left.extent.lastMs;
}
