/**
 * Histograms in shared words: one count for each bucket, one for what lies above the last bound, and the sum. Any thread.
 *
 *     word 0 … n-1   values ≤ bounds[i] and above the bound before it
 *          n         values above the last bound
 *          n+1       sum of all values
 */

/** Upper bounds, ascending, and what stands between two of them is counted at the upper one. */
export type HistogramBounds = readonly number[];

/** What a histogram holds, not cumulative: `counts` has one more entry than `bounds`, for what lies above the last. */
export interface HistogramReading {
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
export function emptyHistogram(bounds: HistogramBounds): HistogramReading {
  return { bounds, counts: new Array<number>(bounds.length + 1).fill(0), sum: 0 };
}

/** Adds the histogram that begins at word `at` to `reading`, which has the same bounds. */
export function addHistogram(reading: HistogramReading, words: Float64Array, at: number): void {
  const { bounds, counts } = reading;
  for (let bucket = 0; bucket <= bounds.length; bucket += 1) counts[bucket]! += words[at + bucket]!;
  reading.sum += words[at + bounds.length + 1]!;
}

export function countOf({ counts }: HistogramReading): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
