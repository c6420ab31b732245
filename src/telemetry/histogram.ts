/**
 * Histograms: in words of the shared metrics (metrics-layout.ts), where one thread counts and the main thread
 * adds up, and as a snapshot. Also the histogram of flushes. Any thread.
 *
 *     word 0 … n-1   values ≤ bounds[i] and above the bound before it
 *          n         values above the last bound
 *          n+1       sum of all values
 *
 * Must hold: writers and readers of one histogram use the same bounds, because buckets are added by their
 * position (test/unit/telemetry/histogram.test.ts).
 */
import type { Clock } from '../core/clock.js';

/** Upper bounds, ascending. A value between two of them is counted at the upper one. */
export type HistogramBounds = readonly number[];

/**
 * A copy of a histogram. Counts are not cumulative; there is one more than bounds, for values above the last.
 */
export interface HistogramSnapshot {
  readonly bounds: HistogramBounds;
  readonly counts: number[];
  sum: number;
}

/** How many 64-bit words a histogram with these bounds takes. */
export function histogramWords(bounds: HistogramBounds): number {
  return bounds.length + 2;
}

/**
 * Counts `value` in the histogram that begins at word `at`. Only one thread may do so. 5 ns, no allocation.
 */
export function observe(words: Float64Array, at: number, bounds: HistogramBounds, value: number): void {
  let bucket = 0;
  while (bucket < bounds.length && value > bounds[bucket]!) bucket += 1;
  words[at + bucket]! += 1;
  words[at + bounds.length + 1]! += value;
}

export function emptyHistogram(bounds: HistogramBounds): HistogramSnapshot {
  return { bounds, counts: new Array<number>(bounds.length + 1).fill(0), sum: 0 };
}

/** Adds the histogram that begins at word `at` to `snapshot`, which has the same bounds. */
export function addHistogram(snapshot: HistogramSnapshot, words: Float64Array, at: number): void {
  const { bounds, counts } = snapshot;
  for (let bucket = 0; bucket <= bounds.length; bucket += 1) counts[bucket]! += words[at + bucket]!;
  snapshot.sum += words[at + bounds.length + 1]!;
}

/** Counts `value` in a snapshot. */
export function addValue(snapshot: HistogramSnapshot, value: number): void {
  const bucket = snapshot.bounds.findIndex((bound) => value <= bound);
  snapshot.counts[bucket < 0 ? snapshot.bounds.length : bucket]! += 1;
  snapshot.sum += value;
}

/** How many values were counted: request-families.ts leaves out empty histograms. */
export function countOf({ counts }: HistogramSnapshot): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** From a transaction of a few rows on a fast disk to one that blocks the main thread for seconds. */
export const FLUSH_BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500];

export interface FlushSnapshot {
  readonly durations: HistogramSnapshot;
  readonly errors: number;
  /** Time since the last run that wrote everything began. */
  readonly lagMs: number;
}

/**
 * Measures the flushes of the ledger (store/flush.ts): durations, lag and failures. Main thread.
 */
export class FlushMeter {
  readonly #clock: Clock;
  readonly #durations = emptyHistogram(FLUSH_BOUNDS_MS);
  #errors = 0;
  #writtenAtMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#writtenAtMs = clock.monotonicMs();
  }

  /**
   * Runs `flush`, which returns whether everything was written, and returns the same. What it throws is not
   * counted.
   */
  measure(flush: () => boolean): boolean {
    const beganMs = this.#clock.monotonicMs();
    const written = flush();
    const durationMs = this.#clock.monotonicMs() - beganMs;
    addValue(this.#durations, durationMs);
    // The lag counts from the flush's begin: calls that were settled while it ran wait for the next one.
    if (written) this.#writtenAtMs = beganMs;
    else this.#errors += 1;
    return written;
  }

  read(): FlushSnapshot {
    return {
      durations: this.#durations,
      errors: this.#errors,
      lagMs: this.#clock.monotonicMs() - this.#writtenAtMs,
    };
  }
}
