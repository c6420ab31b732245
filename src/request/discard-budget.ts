/**
 * Decides whether the body of a request that already has its response is read, only to be discarded. If not,
 * the response ends the connection. intake.ts asks for calls, listener-server.ts for other requests;
 * listener.thread.ts makes the two budgets of a listener. Listener thread.
 *
 * Must hold: each request takes of a budget once, and a stranger takes only of the budget of strangers; else
 * who has no key makes callers with a key lose their connections (test/hostile/unread-bodies.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { BODY_BYTES_UNCOUNTED } from '../core/limits.js';
import type { MonotonicMs } from '../core/units.js';

/**
 * How many bytes beyond the longest body are read to be discarded. A client that still writes when its
 * connection ends never sees the response. So the response waits for the end of the body, within this bound.
 */
export const DISCARDED_BYTES_MAX = 64 * 1024 * 1024;

/** At the default `body_bytes` some 25 of the longest bodies, which take a tenth of a listener's time. */
const DISCARDED_BYTES_PER_SECOND = 256 * 1024 * 1024;
/** Some six of the longest bodies at the default `body_bytes`: 3 MiB in a turn of the event loop. */
const DISCARDED_BYTES_AT_ONCE = 64 * 1024 * 1024;
const MS_PER_SECOND = 1_000;

/**
 * How many bytes a listener reads only to discard them. µWS reads half a megabyte of each connection before
 * the next one: 200 bodies at once kept a listener's other calls waiting for 0.7 s.
 */
export class DiscardBudget {
  readonly #clock: Clock;
  #bytes = DISCARDED_BYTES_AT_ONCE;
  #filledMs: MonotonicMs;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#filledMs = clock.monotonicMs();
  }

  /** Returns whether `bytes` may be read and discarded. If so, takes them of the budget. */
  take(bytes: number): boolean {
    const nowMs = this.#clock.monotonicMs();
    const filledBytes = this.#bytes + ((nowMs - this.#filledMs) * DISCARDED_BYTES_PER_SECOND) / MS_PER_SECOND;
    this.#bytes = Math.min(DISCARDED_BYTES_AT_ONCE, filledBytes);
    this.#filledMs = nowMs;
    // With a full budget a body is read, however long it is: `takeDiscard` has bounded it.
    if (bytes > this.#bytes && this.#bytes < DISCARDED_BYTES_AT_ONCE) return false;
    this.#bytes -= bytes;
    return true;
  }
}

/** The budgets of one listener. */
export interface DiscardBudgets {
  /** For requests of known callers. */
  readonly discards: DiscardBudget;
  /** For requests without a known caller (_strangers_), so that these do not use up the other budget. */
  readonly strangerDiscards: DiscardBudget;
}

/**
 * Returns whether the body of a request that gets its response before its body is read to be discarded. If
 * so, takes its bytes of a budget. Call it once for a request. `bytes` is the header Content-Length, 0 if it
 * has none; `bodyBytesMax` the longest body that the caller may send, undefined for a stranger. A small body
 * is read in any case, so that clients use their connections again.
 */
export function takeDiscard(
  bytes: number,
  bodyBytesMax: number | undefined,
  { discards, strangerDiscards }: DiscardBudgets,
): boolean {
  if (bytes <= BODY_BYTES_UNCOUNTED) return true;
  if (bytes > DISCARDED_BYTES_MAX + (bodyBytesMax ?? 0)) return false;
  return (bodyBytesMax === undefined ? strangerDiscards : discards).take(bytes);
}
