/**
 * Cursors of the call log: texts by which a client continues a list of calls, or asks for newer ones.
 * call-reader.ts makes and parses them. Pure.
 *
 * Must hold: a cursor is parsed as it was made, and other text is rejected, so that pages neither skip nor
 * repeat a call (test/unit/call-log/call-log.test.ts).
 */

/** How many segments a cursor names: more than there are processes, with some that killed ones have left. */
const SEEN_SEGMENTS_MAX = 100;

/**
 * By which a list of calls is ordered: when a call ended, and for calls that ended at the same time where it
 * is on disk. `at` is the offset of its block in the segment, `call` its index in the block.
 */
export interface SortKey {
  readonly endedMs: number;
  readonly segment: number;
  readonly at: number;
  readonly call: number;
}

/** Compares two calls for `sort`; below 0 if `left` ended later. */
export function newestFirst(left: SortKey, right: SortKey): number {
  return (
    right.endedMs - left.endedMs ||
    right.segment - left.segment ||
    right.at - left.at ||
    right.call - left.call
  );
}

/** How far a client has read in each segment: the cursor for newer calls. */
export interface Seen {
  /** The newest segment at that time: segments with a higher number are new. */
  last: number;
  /** Where to continue in segments that were still growing or not read to their end. */
  readonly segments: Map<number, Position>;
}

export interface Position {
  readonly at: number;
  /** How many calls of the block at `at` were returned. */
  readonly call: number;
}

export const START: Position = { at: 0, call: 0 };

export function cursorOf({ endedMs, segment, at, call }: SortKey): string {
  return `${endedMs}_${segment}_${at}_${call}`;
}

export function sortKeyOf(cursor: string): SortKey | undefined {
  if (!/^\d{1,16}(\.\d{1,6})?(_\d{1,16}){3}$/.test(cursor)) return undefined;
  const [endedMs, segment, at, call] = cursor.split('_').map(Number) as [number, number, number, number];
  return { endedMs, segment, at, call };
}

/** Some 12 characters a process, because a cursor is a part of a URL. Blocks begin at multiples of 8. */
export function cursorOfSeen({ last, segments }: Seen): string {
  const positions = [...segments].slice(-SEEN_SEGMENTS_MAX).map(([number, { at, call }]) => {
    return [last - number, at / 8, call].map((part) => part.toString(36)).join('.');
  });
  return [last.toString(36), ...positions].join('_');
}

export function seenOf(cursor: string): Seen | undefined {
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
