/**
 * Histograms in shared words: one count for each bucket, one for what lies above the last bound, and the sum. Any thread.
 *
 *     word 0 … n-1   values ≤ bounds[i] and above the bound before it
 *          n         values above the last bound
 *          n+1       sum of all values
 */
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import type { Clock } from '../core/clock.js';
import { COUNTER_THREADS_MAX } from '../core/limits.js';
import {
  type MetricsBuffers,
  openStripe,
  openStripes,
  THREAD_DELAY_MAX_MS,
  THREAD_DELAY_P99_MS,
  THREAD_HEAP_BYTES,
  THREAD_HOLDER,
  THREAD_STRIPE_WORDS,
} from './metrics-layout.js';

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
 * Which counter thread writes which of the last stripes of the threads: such threads come and go, so each takes the first that is
 * free. Its holder word is Node's id of the thread, and 0 where it has none.
 */

const NOBODY = 0;

/** Index of the stripe that is now this thread's; undefined while those that hold them all have not ended. Counter thread. */
export function takeCounterStripe(buffers: MetricsBuffers, threadId: number): number | undefined {
  return counterStripes(buffers).find(
    (stripe) => Atomics.compareExchange(holderOf(buffers, stripe), 0, NOBODY, threadId) === NOBODY,
  );
}

/** To be said when the thread has ended; nothing where it had none. Main thread. */
export function giveBackCounterStripe(buffers: MetricsBuffers, threadId: number): void {
  const stripe = counterStripes(buffers).find(
    (candidate) => Atomics.load(holderOf(buffers, candidate), 0) === threadId,
  );
  if (stripe === undefined) return;
  // The holder's word last: from then on another thread writes.
  openStripe(buffers.threads, stripe, THREAD_STRIPE_WORDS).fill(0, 0, THREAD_HOLDER);
  Atomics.store(holderOf(buffers, stripe), 0, NOBODY);
}

function counterStripes({ threads }: MetricsBuffers): number[] {
  return [...openStripes(threads, THREAD_STRIPE_WORDS).keys()].slice(-COUNTER_THREADS_MAX);
}

function holderOf({ threads }: MetricsBuffers, stripe: number): Int32Array {
  const { byteOffset } = openStripe(threads, stripe, THREAD_STRIPE_WORDS).subarray(THREAD_HOLDER);
  return new Int32Array(threads, byteOffset, 1);
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

/*
 * How late a thread's event loop comes, and how much heap it uses, once a period into its stripe: see metrics-layout.ts.
 * Every thread that has an event loop of JavaScript, each for itself.
 */

/** The sampling timer costs a thread 0.1 % of a core at 20 ms, 0.2 % at 10 ms (measured, idle). */
const RESOLUTION_MS = 20;
/** Below the usual scrape intervals of 10 s and more, so that every scrape sees another period. */
const PERIOD_MS = 5_000;
const NANOSECONDS_PER_MS = 1e6;

export class ThreadHealth {
  readonly #words: Float64Array;
  readonly #delay: IntervalHistogram;
  readonly #timer: NodeJS.Timeout;

  /** Begins to measure; `thread` is the index in `threadNames`. */
  constructor(buffers: MetricsBuffers, thread: number) {
    this.#words = openStripe(buffers.threads, thread, THREAD_STRIPE_WORDS);
    this.#delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
    this.#delay.enable();
    this.#words[THREAD_HEAP_BYTES] = getHeapStatistics().used_heap_size;
    this.#timer = setInterval(() => this.#publish(), PERIOD_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#delay.disable();
  }

  #publish(): void {
    this.#words[THREAD_DELAY_P99_MS] = delayMs(this.#delay.percentile(99));
    this.#words[THREAD_DELAY_MAX_MS] = delayMs(this.#delay.max);
    this.#words[THREAD_HEAP_BYTES] = getHeapStatistics().used_heap_size;
    this.#delay.reset();
  }
}

/** What is sampled is the time between two turns of a timer: its period is no delay. */
function delayMs(nanoseconds: number): number {
  return Math.max(0, nanoseconds / NANOSECONDS_PER_MS - RESOLUTION_MS);
}
