/**
 * Histograms: in words of the shared metrics (metrics-layout.ts), where one thread counts
 * (metrics-writers.ts) and the main thread adds up (metrics-reader.ts), and as a snapshot. Any thread.
 *
 *     word 0 … n-1   values ≤ bounds[word] and above bounds[word - 1]; there are n bounds
 *          n         values above the last bound
 *          n+1       sum of all values
 *
 * Must hold: writers and readers of one histogram use the same bounds, because buckets are added by their
 * position (test/unit/telemetry/histogram.test.ts).
 */
/** Upper bounds, ascending. A value between two bounds is counted in the bucket of the upper bound. */
export type HistogramBounds = readonly number[];

/**
 * A copy of a histogram. Counts are not cumulative. There is one count more than bounds: of the values above
 * the last bound.
 */
export interface HistogramSnapshot {
  readonly bounds: HistogramBounds;
  readonly counts: number[];
  sum: number;
}

/** Returns how many 64-bit words a histogram with these bounds takes. */
export function histogramWords(bounds: HistogramBounds): number {
  return bounds.length + 2;
}

/** Returns the index of the bucket that counts `value`. A loop, because `findIndex` would take a closure. */
function bucketOf(bounds: HistogramBounds, value: number): number {
  let bucket = 0;
  while (bucket < bounds.length && value > bounds[bucket]!) bucket += 1;
  return bucket;
}

/**
 * Counts `value` in the histogram that begins at word `at`. Only the thread that owns the words may call it,
 * because the additions are not atomic. Takes 5 ns and allocates nothing: listeners call it for each call.
 */
export function observe(words: Float64Array, at: number, bounds: HistogramBounds, value: number): void {
  words[at + bucketOf(bounds, value)]! += 1;
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

/** Counts `value` in a snapshot. For histograms that only the main thread has, such as that of flushes. */
export function addValue(snapshot: HistogramSnapshot, value: number): void {
  snapshot.counts[bucketOf(snapshot.bounds, value)]! += 1;
  snapshot.sum += value;
}

/** Returns how many values were counted. request-families.ts leaves out histograms without any. */
export function valueCountOf({ counts }: HistogramSnapshot): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
