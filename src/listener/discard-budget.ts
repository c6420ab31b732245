/**
 * How many bytes of refused bodies a listener reads to throw them away. Listener thread.
 *
 * Who still writes its body when its connection ends may never see its answer, so the body of a refused call is read to its end. But µWS
 * reads half a megabyte of each connection that has some before it looks at the next: 200 bodies at once kept a listener's other calls
 * waiting for 0.7 s. Beyond the budget a refusal ends its connection.
 */
import type { Clock } from '../core/clock.js';
import type { MonotonicMs } from '../core/units.js';

/** Some 25 of the longest bodies by default: a tenth of a second of a listener's time. */
const BYTES_PER_SECOND = 256 * 1024 * 1024;
const MS_PER_SECOND = 1_000;

export class DiscardBudget {
  readonly #clock: Clock;
  #bytes = BYTES_PER_SECOND;
  #filledMs: MonotonicMs;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#filledMs = clock.monotonicMs();
  }

  /** Whether `bytes` may be read and thrown away; they are taken then. */
  take(bytes: number): boolean {
    const nowMs = this.#clock.monotonicMs();
    const filled = this.#bytes + ((nowMs - this.#filledMs) * BYTES_PER_SECOND) / MS_PER_SECOND;
    this.#bytes = Math.min(BYTES_PER_SECOND, filled);
    this.#filledMs = nowMs;
    if (bytes > this.#bytes) return false;
    this.#bytes -= bytes;
    return true;
  }
}
