/**
 * Where pages of calls and looks for newer ones go on: texts that a caller hands back. call-reader.ts makes
 * and reads them. Pure.
 *
 * Must hold: a text that is none is told apart, and what is read of one is what was put in
 * (test/unit/call-log/call-log.test.ts, by pages that miss and repeat nothing).
 */
/** More processes than there can be, and what some killed ones have left. */
const SEEN_SEGMENTS_MAX = 100;

/** A place in the order of ends. */
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

export interface Seen {
  /** The newest segment of that moment: those with a higher number are new. */
  last: number;
  /** Where to go on, in those that were not read to their end or still grew. */
  readonly segments: Map<number, Position>;
}

export interface Position {
  readonly at: number;
  /** Calls of the block that were given. */
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

/** Some 12 characters a process: a cursor goes into an address. */
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
