/**
 * How the books get to the disk: how long writes take, how far behind they are, how often they fail. Main thread.
 */
import type { Clock } from '../core/clock.js';
import { emptyHistogram, type HistogramReading } from './histogram.js';

/** From a transaction of a few rows on a fast disk to one that blocks the main thread for seconds. */
export const FLUSH_BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500];

export interface FlushReading {
  readonly durations: HistogramReading;
  readonly errors: number;
  /** Since the books were last whole on disk. */
  readonly lagMs: number;
}

export class FlushMeter {
  readonly #clock: Clock;
  readonly #durations = emptyHistogram(FLUSH_BOUNDS_MS);
  #errors = 0;
  #wholeAtMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#wholeAtMs = clock.monotonicMs();
  }

  /** Runs `flush`, which tells whether it has written the books, and passes that on. */
  measure(flush: () => boolean): boolean {
    const beganMs = this.#clock.monotonicMs();
    const written = flush();
    const durationMs = this.#clock.monotonicMs() - beganMs;
    const bucket = FLUSH_BOUNDS_MS.findIndex((bound) => durationMs <= bound);
    this.#durations.counts[bucket < 0 ? FLUSH_BOUNDS_MS.length : bucket]! += 1;
    this.#durations.sum += durationMs;
    // What was settled while it ran waits for the next.
    if (written) this.#wholeAtMs = beganMs;
    else this.#errors += 1;
    return written;
  }

  read(): FlushReading {
    return {
      durations: this.#durations,
      errors: this.#errors,
      lagMs: this.#clock.monotonicMs() - this.#wholeAtMs,
    };
  }
}
