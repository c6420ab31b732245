/**
 * Finds calls in the segments of all gateway processes of a data directory. The admin interface of a gateway
 * has a reader, and so has a command that finds no gateway. A search reads the extents that the indexes
 * cannot rule out, some 2 MiB at a time and asynchronously, so that the thread has other turns in between.
 *
 * Must hold: a search ends within its time and says how far it came; and pages that go on at a cursor miss no
 * call and repeat none, also while processes write (test/unit/call-log/call-log.test.ts).
 */
import { join } from 'node:path';
import type { CallRecord } from '../telemetry/call-record.js';
import { NAMED } from './call-block.js';
import { type CallFilter, extentTestOf, testOf } from './call-filter.js';
import { CALLS_FOLDER, segmentFiles } from './segment-files.js';
import { type Extent, hashOf, mayHave, mayHaveRequest, requestHash } from './segment-index.js';
import { type BlockAt, Segment } from './segment.js';

/** Indexes that are kept between searches: those of some 2 GiB of calls. */
const INDEX_BYTES_MAX = 48 * 1024 * 1024;
/** A search that has taken so long gives what it has. */
const SEARCH_MS = 80;
/** Extents of some 64 KiB that are read at once: one at first, then twice as many each time. */
const BATCH_EXTENTS_MAX = 32;
/** If accounts have to be looked up: thousands of lookups in one turn would hold up the thread. */
const BATCH_OF_ACCOUNTS_MAX = 8;
/** More processes than there can be, and what some killed ones have left. */
const SEEN_SEGMENTS_MAX = 100;
/** What one look for newer calls reads. */
const NEWER_EXTENTS_MAX = 64;

/** A place in the order of ends. */
interface Place {
  readonly endedMs: number;
  readonly segment: number;
  readonly at: number;
  readonly call: number;
}

interface Found extends Place {
  readonly record: CallRecord;
}

interface Candidate {
  readonly segment: Segment;
  readonly extent: Extent;
}

export interface CallPage {
  readonly calls: readonly CallRecord[];
  /** The cursor that goes on with older calls; null if there are none. */
  readonly next: string | null;
  /** The calls that ended later than this were searched; null if all were, or `limit` was reached. */
  readonly searchedToMs: number | null;
  /** The cursor for `after`: what comes to the disk later than this page. */
  readonly newest: string;
}

export class CallReader {
  readonly #folder: string;
  readonly #searchMs: number;
  #segments = new Map<number, Segment>();

  /** `searchMs`: how long a search may take. */
  constructor(folder: string, searchMs = SEARCH_MS) {
    this.#folder = folder;
    this.#searchMs = searchMs;
  }

  /** Returns the call of that request id, if it is kept. A call is there a second after its end. */
  async find(requestId: string): Promise<CallRecord | undefined> {
    const [, prefix, number] = /^(.*-)([0-9a-z]{1,11})$/.exec(requestId) ?? [];
    if (prefix === undefined) return undefined;
    const request = parseInt(number!, 36);
    const hashes = [requestHash(hashOf(prefix), request), hashOf(prefix)];
    for (const segment of this.#newestFirst()) {
      const extents = await this.#extentsOf(segment);
      for (let at = extents.length - 1; at >= 0; at--) {
        if (!mayHaveRequest(extents[at]!, request) || !mayHave(extents[at]!, hashes)) continue;
        for (const { block } of await segment.blocks([extents[at]!])) {
          const prefixAt = block.positionOf(prefix);
          if (prefixAt === undefined) continue;
          for (let call = 0; call < block.count; call++) {
            const at64 = block.at64(call);
            if (block.floats[at64 + 1] !== request) continue;
            if (block.shorts[at64 * 4 + NAMED.prefix] === prefixAt) return block.call(call);
          }
        }
      }
    }
    return undefined;
  }

  /**
   * Returns calls that pass the filter, by their ends, newest first. `cursor` is `next` of the page before:
   * pages do not overlap, and miss nothing that was on disk, also while calls are added and the oldest go.
   * Returns undefined if the cursor is none.
   */
  async page(filter: CallFilter, limit: number, cursor?: string): Promise<CallPage | undefined> {
    const before = cursor === undefined ? undefined : placeOf(cursor);
    if (cursor !== undefined && before === undefined) return undefined;
    const endMs = performance.now() + this.#searchMs;
    const segments = await this.#loaded();
    const newest = newestOf(segments);
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
      // The next candidates are the newest of all when no segment that is left has newer calls.
      while (
        unread.length > 0 &&
        (candidates.length < batch || unread[0]!.lastMs >= candidates[0]!.extent.lastMs)
      ) {
        const segment = unread.shift()!;
        for (const extent of await this.#extentsOf(segment)) {
          if (extent.firstMs > toMs || extent.lastMs < fromMs || !mayPass(extent)) continue;
          candidates.push({ segment, extent });
        }
        candidates.sort((left, right) => right.extent.lastMs - left.extent.lastMs);
        if (performance.now() > endMs) break;
      }
      const more = await this.#search(candidates.splice(0, batch), filter, before, limit + 1);
      found = [...found, ...more].sort(newestFirst).slice(0, limit + 1);
      const restMs = Math.max(candidates[0]?.extent.lastMs ?? -Infinity, unread[0]?.lastMs ?? -Infinity);
      if (restMs === -Infinity || (found.length > limit && found[limit]!.endedMs > restMs)) {
        const calls = found.slice(0, limit).map(({ record }) => record);
        const next = found.length > limit ? cursorOf(found[limit - 1]!) : null;
        return { calls, next, searchedToMs: null, newest };
      }
      // Calls as late as the rest may still follow those that were found. Each page comes some way.
      if (performance.now() > endMs && restMs < startMs) {
        const sure = found.filter(({ endedMs }) => endedMs > restMs).slice(0, limit);
        const isFull = sure.length === limit;
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
   * Returns calls that came to the disk after `newest` of a page, or after the last look, in the order of
   * each process, and the cursor of the next look. Undefined if the cursor is none.
   */
  async after(cursor: string, filter: CallFilter, limit: number): Promise<CallPage | undefined> {
    const seen = seenOf(cursor);
    if (seen === undefined) return undefined;
    const mayPass = extentTestOf(filter);
    const calls: CallRecord[] = [];
    const segments = await this.#loaded();
    let extentsLeft = NEWER_EXTENTS_MAX;
    for (const segment of segments) {
      const from = seen.segments.get(segment.number) ?? (segment.number > seen.last ? START : undefined);
      if (from === undefined) continue;
      let place = from;
      for (const extent of await this.#extentsOf(segment)) {
        if (extent.at + extent.bytes <= place.at) continue;
        if (calls.length >= limit || extentsLeft === 0) break;
        if (mayPass(extent)) {
          extentsLeft -= 1;
          place = newer(await segment.blocks([extent]), place, filter, calls, limit);
        } else place = { at: extent.at + extent.bytes, call: 0 };
      }
      seen.segments.set(segment.number, place);
    }
    for (const [number, { at }] of seen.segments) {
      const segment = this.#segments.get(number);
      if (segment === undefined || (!segment.isGrowing && at >= segment.end)) seen.segments.delete(number);
    }
    seen.last = Math.max(seen.last, segments.at(-1)?.number ?? 0);
    return { calls, next: null, searchedToMs: null, newest: cursorOfSeen(seen) };
  }

  async #search(
    batch: readonly Candidate[],
    filter: CallFilter,
    before: Place | undefined,
    limit: number,
  ): Promise<Found[]> {
    const places: (Place & BlockAt)[] = [];
    for (const { segment, extents } of runsOf(batch)) {
      for (const { at, block } of await segment.blocks(extents)) {
        const test = testOf(filter, block);
        if (test === undefined) continue;
        for (let call = 0; call < block.count; call++) {
          if (!test(call)) continue;
          const place = { endedMs: block.floats[block.at64(call)]!, segment: segment.number, at, call };
          if (before === undefined || newestFirst(before, place) < 0) places.push({ ...place, block });
        }
      }
    }
    return places
      .sort(newestFirst)
      .slice(0, limit)
      .map(({ endedMs, segment, at, call, block }) => ({
        endedMs,
        segment,
        at,
        call,
        record: block.call(call),
      }));
  }

  #newestFirst(): Segment[] {
    const segments = new Map<number, Segment>();
    for (const { number, path } of segmentFiles(this.#folder, 'calls')) {
      segments.set(number, this.#segments.get(number) ?? new Segment(number, path));
    }
    this.#segments = segments;
    return [...segments.values()].reverse();
  }

  /** All segments, oldest first, with the times of their calls. */
  async #loaded(): Promise<Segment[]> {
    const segments = this.#newestFirst().reverse();
    for (const segment of segments) {
      if (segment.isGrowing || segment.lastMs === -Infinity) await this.#extentsOf(segment);
    }
    return segments;
  }

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

/** Returns a reader of what is kept in that data directory. */
export function callReaderOf(dataPath: string): CallReader {
  return new CallReader(join(dataPath, CALLS_FOLDER));
}

interface Seen {
  /** The newest segment of that moment: those with a higher number are new. */
  last: number;
  /** Where to go on, in those that were not read to their end or still grew. */
  readonly segments: Map<number, Position>;
}

interface Position {
  readonly at: number;
  /** Calls of the block that were given. */
  readonly call: number;
}

const START: Position = { at: 0, call: 0 };

/** Adds the calls from `place` on that pass. Returns the place behind the last one that was looked at. */
function newer(
  blocks: readonly BlockAt[],
  place: Position,
  filter: CallFilter,
  calls: CallRecord[],
  limit: number,
): Position {
  let last = place;
  for (const { at, block } of blocks) {
    if (at < place.at) continue;
    const test = testOf(filter, block);
    for (let call = at === place.at ? place.call : 0; call < block.count; call++) {
      if (calls.length >= limit) return { at, call };
      if (test?.(call) === true) calls.push(block.call(call));
    }
    last = { at: at + block.bytes, call: 0 };
  }
  return last;
}

/** Groups that follow each other in a file are read at once. */
function runsOf(batch: readonly Candidate[]): { segment: Segment; extents: Extent[] }[] {
  const ordered = [...batch].sort(
    (left, right) => left.segment.number - right.segment.number || left.extent.at - right.extent.at,
  );
  const runs: { segment: Segment; extents: Extent[] }[] = [];
  for (const { segment, extent } of ordered) {
    const run = runs.at(-1);
    const last = run?.extents.at(-1);
    if (run?.segment === segment && last !== undefined && last.at + last.bytes === extent.at) {
      run.extents.push(extent);
    } else runs.push({ segment, extents: [extent] });
  }
  return runs;
}

function newestFirst(left: Place, right: Place): number {
  return (
    right.endedMs - left.endedMs ||
    right.segment - left.segment ||
    right.at - left.at ||
    right.call - left.call
  );
}

function cursorOf({ endedMs, segment, at, call }: Place): string {
  return `${endedMs}_${segment}_${at}_${call}`;
}

function placeOf(cursor: string): Place | undefined {
  if (!/^\d{1,16}(\.\d{1,6})?(_\d{1,16}){3}$/.test(cursor)) return undefined;
  const [endedMs, segment, at, call] = cursor.split('_').map(Number) as [number, number, number, number];
  return { endedMs, segment, at, call };
}

function newestOf(segments: readonly Segment[]): string {
  const growing = segments.filter(({ isGrowing }) => isGrowing);
  return cursorOfSeen({
    last: segments.at(-1)?.number ?? 0,
    segments: new Map(growing.map(({ number, end }) => [number, { at: end, call: 0 }])),
  });
}

/** Some 12 characters a process: a cursor goes into an address. */
function cursorOfSeen({ last, segments }: Seen): string {
  const positions = [...segments].slice(-SEEN_SEGMENTS_MAX).map(([number, { at, call }]) => {
    return [last - number, at / 8, call].map((part) => part.toString(36)).join('.');
  });
  return [last.toString(36), ...positions].join('_');
}

function seenOf(cursor: string): Seen | undefined {
  if (!/^[0-9a-z]{1,7}(_[0-9a-z]{1,7}\.[0-9a-z]{1,7}\.[0-9a-z]{1,7})*$/.test(cursor)) return undefined;
  const [lastText, ...positions] = cursor.split('_');
  const last = parseInt(lastText!, 36);
  const segments = positions.map((position): [number, Position] => {
    const [back, at, call] = position.split('.').map((part) => parseInt(part, 36)) as [
      number,
      number,
      number,
    ];
    return [last - back, { at: at * 8, call }];
  });
  return { last, segments: new Map(segments) };
}
