/**
 * Measures the flushes of the ledger: durations, lag and failures. store/flush.ts makes a FlushMeter and runs
 * each flush in it; gateway-families.ts reads it for `/metrics`. Main thread.
 *
 * Must hold: the lag never hides a charge that is not on disk yet: it counts from the begin of the last flush
 * that wrote everything, and no failed flush ends it.
 */
import type { Clock } from '../core/clock.js';
import { addValue, emptyHistogram, type HistogramSnapshot } from './histogram.js';

/** These bounds reach from a transaction of a few rows to one that blocks the main thread for seconds. */
export const FLUSH_BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500];

export interface FlushSnapshot {
  /** In milliseconds. Not a copy: FlushMeter goes on counting in this object. */
  readonly durations: HistogramSnapshot;
  /** Flushes that did not write everything. */
  readonly errors: number;
  /** Time since the last flush that wrote everything began. */
  readonly lagMs: number;
}

export class FlushMeter {
  readonly #clock: Clock;
  readonly #durations = emptyHistogram(FLUSH_BOUNDS_MS);
  #errors = 0;
  /** When the last flush that wrote everything began. Before the first flush: when this object was made. */
  #completeFlushBeganMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#completeFlushBeganMs = clock.monotonicMs();
  }

  /** Runs `flush` and returns its result: whether everything was written. A throwing flush is not counted. */
  measure(flush: () => boolean): boolean {
    const beganMs = this.#clock.monotonicMs();
    const isComplete = flush();
    const durationMs = this.#clock.monotonicMs() - beganMs;
    addValue(this.#durations, durationMs);
    // The lag counts from the flush's begin: calls that were settled while it ran wait for the next flush.
    if (isComplete) this.#completeFlushBeganMs = beganMs;
    else this.#errors += 1;
    return isComplete;
  }

  read(): FlushSnapshot {
    return {
      durations: this.#durations,
      errors: this.#errors,
      lagMs: this.#clock.monotonicMs() - this.#completeFlushBeganMs,
    };
  }
}
