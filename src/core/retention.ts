/**
 * Tells by the wall clock, which may step, whether data are old. Data that outlive a start of the host have
 * no other age. call-log/, gateway/ and store/ remove data by a RetentionCalendar; `isWithin` tells whether a
 * response of the cache may still be used. Main thread and listeners.
 *
 * Must hold: what an age removes for good is removed by a RetentionCalendar, so that a clock which steps
 * ahead while the process runs, for less than an hour less the time between two calls of `nowMs`, removes
 * nothing. A clock that was ahead at the start is believed after FIRST_AFTER_MS. Further tests:
 * test/unit/call-log/segment-writer.test.ts, test/unit/gateway/webhook-outbox.test.ts,
 * test/unit/store/stored-responses.test.ts.
 */
import type { Clock } from './clock.js';

/**
 * Whether `thenMs` is less than `ageMsMax` before `nowMs`, both by the wall clock. A `thenMs` after `nowMs`
 * was written while the clock was ahead: its true age is unknown, and counts as too great.
 */
export function isWithin(ageMsMax: number, thenMs: number, nowMs: number): boolean {
  return thenMs > nowMs - ageMsMax && thenMs <= nowMs;
}

/** How long a wall clock that has stepped ahead must stay there before a RetentionCalendar follows it. */
const BELIEVED_AFTER_MS = 3_600_000;
/**
 * For how long after its start a RetentionCalendar says that nothing is old. A clock that is wrong at boot is
 * set right soon, and until then no earlier reading shows that it is wrong.
 */
const FIRST_AFTER_MS = 240_000;

/**
 * The time by which data are removed: the wall clock's, but steps ahead count only after BELIEVED_AFTER_MS.
 * What is removed does not come back when the clock is set right; what stays an hour longer does no harm.
 */
export class RetentionCalendar {
  readonly #clock: Clock;
  readonly #startMs: number;
  /**
   * By how much the wall clock was ahead of the monotonic clock, at the calls of `nowMs` in the last hour. A
   * reading is kept while it is less than all later ones, so the first is the least of the hour.
   */
  #readings: { readonly readAtMs: number; readonly aheadMs: number }[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startMs = clock.monotonicMs();
  }

  /**
   * Unix milliseconds; -Infinity until FIRST_AFTER_MS after the start. Call it some times an hour, also if
   * nothing is to be removed: only a call takes a reading, by which the next calls notice a step ahead.
   */
  nowMs(): number {
    const readAtMs = this.#clock.monotonicMs();
    const aheadMs = this.#clock.wallMs() - readAtMs;
    const earlierReadings = this.#readings.filter(
      (reading) => reading.aheadMs < aheadMs && readAtMs - reading.readAtMs < BELIEVED_AFTER_MS,
    );
    this.#readings = [...earlierReadings, { readAtMs, aheadMs }];
    // The first of `#readings` is there: this call has just added one.
    return readAtMs - this.#startMs < FIRST_AFTER_MS ? -Infinity : readAtMs + this.#readings[0]!.aheadMs;
  }
}
