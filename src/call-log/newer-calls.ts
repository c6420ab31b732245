/**
 * The search for calls that were written after a cursor, segment by segment in the order of their numbers.
 * call-reader.ts calls `newerCalls` for each request, on a main thread or in a command.
 *
 * A segment that the cursor names is read from the position that it gives. A segment with a number above
 * `lastNumber` is new, and read from its start. Any other was read to its end before.
 *
 * Must hold (test/unit/call-log/newer-calls.test.ts, test/unit/call-log/call-log.test.ts):
 * - A client that continues at the cursors gets each call that passes once, also while processes begin, fill
 *   and end segments. For that a new segment of any process has a greater number than all that were listed
 *   before (`createSegment` of segment-files.ts), and a segment to which any process may still append is
 *   growing (`isGrowing` of segment.ts).
 * - A segment that cannot be read stays in the cursor where it was, so that its calls come once it can be
 *   read; `unread` of the page names it (test/unit/call-log/failed-reads.test.ts).
 * - One request has bounded work: once it has `limit` calls or has read NEWER_EXTENTS_MAX extents, it reads
 *   nothing of further segments, not even their indexes. The client asks again.
 */
import type { CallRecord } from '../telemetry/call-record.js';
import {
  type CallFilter,
  callTestOf,
  extentTestOf,
  FIRST_POSITION,
  newerCursorOf,
  type Position,
  type ReadPositions,
} from './call-query.js';
import type { FailedReads } from './failed-reads.js';
import type { CallPage } from './page-search.js';
import type { Extent } from './segment-index.js';
import type { ExtentAt } from './segment-summary.js';
import type { BlockAt, Segment } from './segment.js';

/** How many extents one request reads, some 4 MiB, so that it ends soon. */
const NEWER_EXTENTS_MAX = 64;

interface NewerCallsOptions {
  /** All segments, oldest first. `refreshTimes` of each has resolved, so that `isGrowing` is known. */
  readonly segments: readonly Segment[];
  /** The cursor, parsed. */
  readonly positions: ReadPositions;
  readonly filter: CallFilter;
  /** The most calls of the page, 1 or more. */
  readonly limit: number;
  /** Returns the extents of the segment, oldest first. */
  readonly extentsOf: (segment: Segment) => Promise<readonly Extent[]>;
  /** Has the segments that could not be refreshed, and gets those that cannot be read. */
  readonly failures: FailedReads;
}

/** `newest` of the page is the next cursor; `next` and `searchedToMs` are null. */
export async function newerCalls(options: NewerCallsOptions): Promise<CallPage> {
  const { segments, positions, filter, limit, extentsOf, failures } = options;
  const mayPass = extentTestOf(filter);
  const calls: CallRecord[] = [];
  let extentsLeft = NEWER_EXTENTS_MAX;
  const isFull = (): boolean => calls.length >= limit || extentsLeft === 0;
  /** What the next cursor names: no segment that was removed, and none that is complete and read whole. */
  const nextSegments = new Map<number, Position>();
  /** The number of the newest segment of which a part was read, now or before. */
  let lastRead = positions.lastNumber;
  for (const segment of segments) {
    const isNew = segment.number > positions.lastNumber;
    const start = positions.segments.get(segment.number) ?? (isNew ? FIRST_POSITION : undefined);
    if (start === undefined) continue;
    if (isFull()) {
      // Goes on, so that the next cursor still names what this one names. New segments stay new.
      if (!isNew) nextSegments.set(segment.number, start);
      continue;
    }
    // Asked before the extents are read: a segment that ends meanwhile may have more calls than they have.
    // Whether one that could not be refreshed still grows is not known: it may.
    const isComplete = !segment.isGrowing && !failures.has(segment);
    let position = start;
    const isReadWhole = await failures.orElse(segment, false, async () => {
      const extents = await extentsOf(segment);
      for (const extent of extents) {
        if (endOf(extent) <= position.at) continue;
        if (isFull()) break;
        if (mayPass(extent)) {
          extentsLeft -= 1;
          const newer = newerIn(await segment.blocks([extent]), position, filter, limit - calls.length);
          calls.push(...newer.calls);
          position = newer.position;
        } else position = { at: endOf(extent), call: 0 };
      }
      return isComplete && position.at >= endOf(extents.at(-1));
    });
    if (!isReadWhole) nextSegments.set(segment.number, position);
    if (isNew && position !== FIRST_POSITION) lastRead = segment.number;
  }
  // Segments above `lastRead` are still new for the next cursor, which names a bounded number of segments.
  for (const number of nextSegments.keys()) if (number > lastRead) nextSegments.delete(number);
  const newest = newerCursorOf({ lastNumber: lastRead, segments: nextSegments });
  return { calls, next: null, searchedToMs: null, newest, unread: failures.texts };
}

/** Returns the offset in the segment at which the extent ends; 0 without an extent. */
function endOf(extent: ExtentAt | undefined): number {
  return extent === undefined ? 0 : extent.at + extent.bytes;
}

/**
 * Returns the calls from `position` on that pass the filter, at most `limit`, and the position after the last
 * call that the filter was asked for. Throws if a block is damaged.
 */
function newerIn(
  blocks: readonly BlockAt[],
  position: Position,
  filter: CallFilter,
  limit: number,
): { readonly calls: readonly CallRecord[]; readonly position: Position } {
  const calls: CallRecord[] = [];
  let nextPosition = position;
  for (const { at, block } of blocks) {
    if (at < position.at) continue;
    const passes = callTestOf(filter, block);
    for (let call = at === position.at ? position.call : 0; call < block.count; call++) {
      if (calls.length >= limit) return { calls, position: { at, call } };
      // Without a test, no call of the block passes.
      if (passes?.(call) === true) calls.push(block.recordOf(call));
    }
    nextPosition = { at: at + block.bytes, call: 0 };
  }
  return { calls, position: nextPosition };
}
