/**
 * Histograms in shared words: one count for each bucket, one for what lies above the last bound, and the sum. Any thread.
 *
 *     word 0 … n-1   values ≤ bounds[i] and above the bound before it
 *          n         values above the last bound
 *          n+1       sum of all values
 */
import type { Clock } from '../core/clock.js';

/** Upper bounds, ascending, and what stands between two of them is counted at the upper one. */
export type HistogramBounds = readonly number[];

/** What a histogram holds, not cumulative: `counts` has one more entry than `bounds`, for what lies above the last. */
export interface HistogramSnapshot {
  readonly bounds: HistogramBounds;
  readonly counts: number[];
  sum: number;
}

export function histogramWords(bounds: HistogramBounds): number {
  return bounds.length + 2;
}

/** Counts `value` in the histogram that begins at word `at`. Its only writer; some 5 ns, no allocation. */
export function observe(words: Float64Array, at: number, bounds: HistogramBounds, value: number): void {
  let bucket = 0;
  while (bucket < bounds.length && value > bounds[bucket]!) bucket += 1;
  words[at + bucket]! += 1;
  words[at + bounds.length + 1]! += value;
}

/** Nothing yet. */
export function emptyHistogram(bounds: HistogramBounds): HistogramSnapshot {
  return { bounds, counts: new Array<number>(bounds.length + 1).fill(0), sum: 0 };
}

/** Adds the histogram that begins at word `at` to `reading`, which has the same bounds. */
export function addHistogram(snapshot: HistogramSnapshot, words: Float64Array, at: number): void {
  const { bounds, counts } = snapshot;
  for (let bucket = 0; bucket <= bounds.length; bucket += 1) counts[bucket]! += words[at + bucket]!;
  snapshot.sum += words[at + bounds.length + 1]!;
}

export function countOf({ counts }: HistogramSnapshot): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/*
 * How the books get to the disk: how long writes take, how far behind they are, how often they fail. Main thread.
 */

/** From a transaction of a few rows on a fast disk to one that blocks the main thread for seconds. */
export const FLUSH_BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500];

export interface FlushSnapshot {
  readonly durations: HistogramSnapshot;
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

  read(): FlushSnapshot {
    return {
      durations: this.#durations,
      errors: this.#errors,
      lagMs: this.#clock.monotonicMs() - this.#wholeAtMs,
    };
  }
}
