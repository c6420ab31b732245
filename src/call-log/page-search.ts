/**
 * The search for one page of calls: those that pass a filter, from the newest back in time. call-reader.ts
 * creates a PageSearch for each page, on a main thread or in a command.
 *
 * A search reads the extents that the indexes cannot rule out, in batches, until the page is full, all is
 * read or its time is over. It reads asynchronously and some 1 MiB at a time (EXTENTS_AT_ONCE), so that the
 * thread can do other work in between, and checks the time after each MiB.
 *
 * Must hold:
 * - A search ends within its time, but for the MiB that it reads (test/unit/call-log/search-time.test.ts).
 * - A page that ends early says how far the search came, and each page comes farther than the one before.
 * - Pages list each call that passes once, in the order of `newestFirst`, also calls that ended in the same
 *   millisecond and searches without time (test/unit/call-log/call-log.test.ts). Missing are only calls of
 *   segments that `unread` names.
 */
import type { CallRecord } from '../telemetry/call-record.js';
import {
  type CallFilter,
  cursorAfter,
  newestCursorOf,
  extentTestOf,
  newestFirst,
  type SortKey,
  callTestOf,
} from './call-query.js';
import type { FailedReads } from './failed-reads.js';
import type { Extent } from './segment-index.js';
import type { BlockAt, Segment } from './segment.js';

/**
 * How many extents (blocks in a row, some 64 KiB in all) a batch has at most. The first batch has one: enough
 * for most pages without a filter. Each further batch has twice as many as the one before.
 */
const BATCH_EXTENTS_MAX = 32;
/** The same if accounts must be looked up: fewer, because thousands of lookups at once delay other work. */
const BATCH_OF_ACCOUNTS_MAX = 8;
/** Extents that follow each other in a file are read as one range, up to so many. */
const RANGE_EXTENTS_MAX = 8;
/** How much is read between two checks of the time: so many ranges, by the thread pool, or some 1 MiB. */
const RANGES_AT_ONCE = 4;
const EXTENTS_AT_ONCE = 16;

export interface CallPage {
  readonly calls: readonly CallRecord[];
  /** The cursor that continues with older calls; null if there are none. */
  readonly next: string | null;
  /** Only calls that ended after this time were searched; null if all were, or if the page is full. */
  readonly searchedToMs: number | null;
  /** The cursor with which `CallReader.newerCalls` returns calls that are written after this search began. */
  readonly newest: string;
  /** The segments that could not be read (`texts` of FailedReads): their calls may be missing. */
  readonly unread: readonly string[];
}

type Match = SortKey & BlockAt;

interface FoundCall extends SortKey {
  readonly record: CallRecord;
}

/** An extent that may have calls of the page. */
interface Candidate {
  readonly segment: Segment;
  readonly extent: Extent;
}

/** Extents that follow each other in a file. */
interface Range {
  readonly segment: Segment;
  readonly extents: Extent[];
}

interface PageSearchOptions {
  /** All segments, oldest first. `refreshTimes` of each has resolved, so their times are known. */
  readonly segments: readonly Segment[];
  readonly filter: CallFilter;
  /** The most calls of the page. */
  readonly limit: number;
  /** The last call of the page before; undefined for the first page. Only older calls are found. */
  readonly before: SortKey | undefined;
  /** When the search must end, by `performance.now()`. */
  readonly endMs: number;
  /** Returns the extents of the segment, oldest first. */
  readonly extentsOf: (segment: Segment) => Promise<readonly Extent[]>;
  /** Has the segments that could not be refreshed, and gets those that cannot be read. */
  readonly failures: FailedReads;
}

export class PageSearch {
  readonly #options: PageSearchOptions;
  readonly #mayPass: (extent: Extent) => boolean;
  readonly #batchMax: number;
  /** No call of the page ended before `#fromMs`, or after `#toMs`. */
  readonly #fromMs: number;
  readonly #toMs: number;
  /**
   * Where the search begins: at `#toMs`, or at the newest call of the searched segments if that is older. A
   * page makes progress if it comes to calls before this.
   */
  readonly #startMs: number;
  /**
   * The ends of the segments that grow, by their number, as the search began. A segment of another process
   * may have grown when its extents are read: its later blocks are left for `newerCalls` of CallReader.
   */
  readonly #ends: ReadonlyMap<number, number>;
  /** `newest` of the page. */
  readonly #newest: string;
  /** Segments whose extents are not among the candidates yet, newest first. */
  readonly #unreadSegments: Segment[];
  /** Extents to be read, newest first. */
  readonly #candidates: Candidate[] = [];
  /** Newest first, at most `limit` calls and one more, which tells whether there is another page. */
  #foundCalls: FoundCall[] = [];

  constructor(options: PageSearchOptions) {
    this.#options = options;
    const { segments, filter, before, failures } = options;
    // Whether a segment that could not be read still grows is not known: it may.
    const known = segments.map((segment) => {
      const { number, end, isGrowing } = segment;
      return { number, end, isGrowing: isGrowing || failures.has(segment) };
    });
    this.#newest = newestCursorOf(known);
    const growing = segments.filter(({ isGrowing }) => isGrowing);
    this.#ends = new Map(growing.map(({ number, end }) => [number, end]));
    this.#mayPass = extentTestOf(filter);
    this.#batchMax = filter.accounts === undefined ? BATCH_EXTENTS_MAX : BATCH_OF_ACCOUNTS_MAX;
    this.#toMs = Math.min(before?.endedMs ?? Infinity, filter.toMs ?? Infinity);
    this.#fromMs = filter.fromMs ?? -Infinity;
    this.#unreadSegments = segments
      .filter(({ firstMs, lastMs }) => firstMs <= this.#toMs && lastMs >= this.#fromMs)
      .sort((left, right) => right.lastMs - left.lastMs);
    this.#startMs = Math.min(this.#toMs, this.#unreadSegments[0]?.lastMs ?? this.#toMs);
  }

  /** Searches, and returns the page. Call it once. */
  async run(): Promise<CallPage> {
    for (let batchExtents = 1; ; batchExtents = Math.min(batchExtents * 2, this.#batchMax)) {
      await this.#addCandidates(batchExtents);
      await this.#read(this.#candidates.splice(0, batchExtents));
      const page = this.#page();
      if (page !== undefined) return page;
    }
  }

  get #isTimeOver(): boolean {
    return performance.now() > this.#options.endMs;
  }

  /**
   * Adds the extents of unread segments until there are `count` candidates and the first is the newest of all
   * extents. The others may be older than a segment that is unread: `#page` looks at those too.
   */
  async #addCandidates(count: number): Promise<void> {
    const unreadSegments = this.#unreadSegments;
    const candidates = this.#candidates;
    while (
      unreadSegments.length > 0 &&
      (candidates.length < count || unreadSegments[0]!.lastMs >= candidates[0]!.extent.lastMs)
    ) {
      const segment = unreadSegments.shift()!;
      const { extentsOf, failures } = this.#options;
      for (const extent of await failures.orElse(segment, [], () => extentsOf(segment))) {
        const { firstMs, lastMs } = extent;
        if (firstMs <= this.#toMs && lastMs >= this.#fromMs && this.#mayPass(extent))
          candidates.push({ segment, extent });
      }
      candidates.sort(newestExtentFirst);
      if (this.#isTimeOver) break;
    }
  }

  /**
   * Reads at least one range of the batch, newest first, and adds the calls that pass to `#foundCalls`.
   * Extents that are not read because the time is over become candidates again.
   */
  async #read(batch: readonly Candidate[]): Promise<void> {
    const { filter, before, limit, failures } = this.#options;
    const matches: Match[] = [];
    const ranges = rangesOf(batch);
    for (let isFirst = true; ranges.length > 0 && (isFirst || !this.#isTimeOver); isFirst = false) {
      const reads = takeRanges(ranges).map(({ segment, extents }) =>
        failures.orElse(segment, [], async () => {
          const end = this.#ends.get(segment.number) ?? Infinity;
          const blocks = await segment.blocks(extents);
          return blocks.flatMap((block) =>
            block.at < end ? matchesIn(block, segment.number, filter, before) : [],
          );
        }),
      );
      for (const matchesOfRange of await Promise.all(reads)) matches.push(...matchesOfRange);
    }
    const found = this.#decodeNewest(matches);
    this.#foundCalls = [...this.#foundCalls, ...found].sort(newestFirst).slice(0, limit + 1);
    const unread = ranges.flatMap(({ segment, extents }) => extents.map((extent) => ({ segment, extent })));
    this.#candidates.unshift(...unread.sort(newestExtentFirst));
  }

  /** Decodes the newest matches: as many as a page has, and one more. Leaves out calls that are damaged. */
  #decodeNewest(matches: Match[]): FoundCall[] {
    const { limit, segments, failures } = this.#options;
    const found: FoundCall[] = [];
    for (const { endedMs, segment, at, call, block } of matches.sort(newestFirst)) {
      if (found.length > limit) break;
      try {
        found.push({ endedMs, segment, at, call, record: block.recordOf(call) });
      } catch (error) {
        // `!`: the block was read from one of the segments.
        failures.add(
          segments.find(({ number }) => number === segment)!,
          error,
        );
      }
    }
    return found;
  }

  /** Returns the page if it is full, all is read, or the time is over; else undefined. */
  #page(): CallPage | undefined {
    const { limit, failures } = this.#options;
    const found = this.#foundCalls;
    const newest = this.#newest;
    // When the newest call that was not read may have ended; -Infinity if all were read.
    const unreadMs = Math.max(
      this.#candidates[0]?.extent.lastMs ?? -Infinity,
      this.#unreadSegments[0]?.lastMs ?? -Infinity,
    );
    if (unreadMs === -Infinity || (found.length > limit && found[limit]!.endedMs > unreadMs)) {
      const calls = found.slice(0, limit).map(({ record }) => record);
      const next = found.length > limit ? cursorAfter(found[limit - 1]!) : null;
      return { calls, next, searchedToMs: null, newest, unread: failures.texts };
    }
    // A page that is not full ends only after some progress, else the client would get the same cursor again.
    if (!this.#isTimeOver || unreadMs >= this.#startMs) return undefined;
    // Found calls up to `unreadMs` are left for the next page, because newer calls may be unread.
    const listed = found.filter(({ endedMs }) => endedMs > unreadMs).slice(0, limit);
    const isFull = listed.length === limit;
    // No segment has so high a number, and of calls of one millisecond `newestFirst` puts the highest segment
    // first. So all calls that ended at `unreadMs` come after this key.
    const nextKey = { endedMs: unreadMs, segment: Number.MAX_SAFE_INTEGER, at: 0, call: 0 };
    return {
      calls: listed.map(({ record }) => record),
      next: cursorAfter(isFull ? listed.at(-1)! : nextKey),
      searchedToMs: isFull ? null : unreadMs,
      newest,
      unread: failures.texts,
    };
  }
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

/** Takes out the first ranges, as many as are read between two checks of the time. */
function takeRanges(ranges: Range[]): Range[] {
  let rangeCount = 0;
  for (let extentCount = 0; rangeCount < ranges.length && rangeCount < RANGES_AT_ONCE; rangeCount++) {
    extentCount += ranges[rangeCount]!.extents.length;
    if (rangeCount > 0 && extentCount > EXTENTS_AT_ONCE) break;
  }
  return ranges.splice(0, rangeCount);
}

/** Returns the block's calls that pass the filter and come after `before` in the order of `newestFirst`. */
function matchesIn(
  { at, block }: BlockAt,
  segment: number,
  filter: CallFilter,
  before: SortKey | undefined,
): Match[] {
  const passes = callTestOf(filter, block);
  const matches: Match[] = [];
  if (passes === undefined) return matches;
  for (let call = 0; call < block.count; call++) {
    if (!passes(call)) continue;
    // The first word of a call is its `endedMs`.
    const match = { endedMs: block.floats[block.first64Of(call)]!, segment, at, call };
    if (before === undefined || newestFirst(before, match) < 0) matches.push({ ...match, block });
  }
  return matches;
}

function newestExtentFirst(left: Candidate, right: Candidate): number {
  return right.extent.lastMs - left.extent.lastMs;
}
