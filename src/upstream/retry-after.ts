/**
 * How long an upstream asks to wait. error-mapping.ts reads the header `Retry-After` and the waits that
 * providers report elsewhere; chat-session.ts keeps the shortest of a call. Pure; upstream worker.
 *
 * Must hold: a wait is a whole number of seconds within 1..RETRY_AFTER_SECONDS_MAX, whatever was sent:
 * callers get it, and an upstream is parked for it.
 */
import type { WallMs } from '../core/units.js';

/** The longest Retry-After that callers get. */
const RETRY_AFTER_SECONDS_MAX = 3_600;

/** Date.parse takes other texts with a number, such as `-1`, for a day of 2001. */
const DATE = /^\d{4}-\d\d-\d\d|\d:\d\d/;

/**
 * Seconds of a `Retry-After` (RFC 9110, 10.2.3: a whole number or a date), within 1..3600; undefined if the
 * header is neither. A fraction is rounded up. Dates in other forms than HTTP's are read too.
 */
export function retryAfterSeconds(header: string | undefined, nowMs: WallMs): number | undefined {
  if (header === undefined) return undefined;
  const text = header.trim();
  if (/^\d+(\.\d+)?$/.test(text)) return boundedSeconds(Number(text));
  const seconds = DATE.test(text) ? Math.ceil((Date.parse(text) - nowMs) / 1_000) : NaN;
  return Number.isNaN(seconds) ? undefined : boundedSeconds(seconds);
}

/** `seconds` that an upstream asks to wait, as whole seconds within 1..3600; 1 for NaN. */
export function boundedSeconds(seconds: number): number {
  const wholeSeconds = Math.ceil(seconds);
  return wholeSeconds > 1 ? Math.min(RETRY_AFTER_SECONDS_MAX, wholeSeconds) : 1;
}

/** The shorter of two waits that upstreams asked for, in seconds; undefined if neither asked. */
export function shorterWait(first: number | undefined, second: number | undefined): number | undefined {
  return first === undefined || second === undefined ? (first ?? second) : Math.min(first, second);
}
