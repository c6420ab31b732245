/** How many calls were admitted within a span, as far as their client can know. */

/** A call that was answered. It was admitted somewhere between the two. */
export interface Call {
  readonly sentMs: number;
  readonly answeredMs: number;
}

/**
 * The most that were surely admitted within one span: sent after its beginning and answered before its end.
 * However late a busy machine shows a response, it accuses nobody wrongly.
 */
export function mostSurelyWithin(calls: readonly Call[], spanMs: number): number {
  const ordered = (times: number[]): number[] => times.sort((one, other) => one - other);
  const sentMs = ordered(calls.map((call) => call.sentMs));
  const answeredMs = ordered(calls.map((call) => call.answeredMs));
  let answered = 0;
  return sentMs.reduce((most, beginMs, sentBefore) => {
    while (answered < answeredMs.length && answeredMs[answered]! < beginMs + spanMs) answered += 1;
    return Math.max(most, answered - sentBefore);
  }, 0);
}
