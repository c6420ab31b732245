/**
 * Time comes in through a Clock, so that tests can hold it still. Any thread.
 */
import { asMonotonicMs, asWallMs, type MonotonicMs, type WallMs } from './units.js';

export interface Clock {
  /** Never steps; the same base in all threads and processes of one host; has fractions. */
  monotonicMs(): MonotonicMs;
  /** The calendar's time; may step. */
  wallMs(): WallMs;
}

/**
 * The host's clocks. `performance.now()` starts at zero in every thread, so its offset to CLOCK_MONOTONIC (which
 * `process.hrtime` reads, and which all threads share) is taken once; a reading then costs 30 ns and allocates nothing.
 */
export class SystemClock implements Clock {
  readonly #offsetMs: number;

  constructor() {
    const [seconds, nanoseconds] = process.hrtime();
    this.#offsetMs = seconds * 1_000 + nanoseconds / 1e6 - performance.now();
  }

  monotonicMs(): MonotonicMs {
    return asMonotonicMs(performance.now() + this.#offsetMs);
  }

  wallMs(): WallMs {
    return asWallMs(Date.now());
  }
}
