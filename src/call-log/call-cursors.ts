/**
 * Cursors of the call log: texts by which a client continues a list of calls, or asks for newer ones.
 * call-reader.ts makes and parses them. Pure.
 *
 * Must hold: a cursor is parsed as it was made, and other text is rejected, so that pages neither skip nor
 * repeat a call (test/unit/call-log/call-log.test.ts).
 */
/** How many segments a cursor names: more than there are processes, with some that killed ones have left. */
const SEEN_SEGMENTS_MAX = 100;

/** The position of a call in the order of ends. */
export interface Place {
  readonly endedMs: number;
  readonly segment: number;
  readonly at: number;
  readonly call: number;
}

export function newestFirst(left: Place, right: Place): number {
  return (
    right.endedMs - left.endedMs ||
    right.segment - left.segment ||
    right.at - left.at ||
    right.call - left.call
  );
}

/** How far a client has read: the cursor for newer calls. */
export interface Seen {
  /** The newest segment at that time: segments with a higher number are new. */
  last: number;
  /** Where to continue in segments that were still growing or not read to their end. */
  readonly segments: Map<number, Position>;
}

export interface Position {
  readonly at: number;
  /** How many calls of the block were returned. */
  readonly call: number;
}

export const START: Position = { at: 0, call: 0 };

export function cursorOf({ endedMs, segment, at, call }: Place): string {
  return `${endedMs}_${segment}_${at}_${call}`;
}

export function placeOf(cursor: string): Place | undefined {
  if (!/^\d{1,16}(\.\d{1,6})?(_\d{1,16}){3}$/.test(cursor)) return undefined;
  const [endedMs, segment, at, call] = cursor.split('_').map(Number) as [number, number, number, number];
  return { endedMs, segment, at, call };
}

/** Some 12 characters a process, because a cursor is a part of a URL. */
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
