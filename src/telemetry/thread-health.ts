/**
 * How late a thread's event loop comes, and how much heap it uses, once a period into its stripe: see metrics-layout.ts.
 * Every thread that has an event loop of JavaScript, each for itself.
 */
import { monitorEventLoopDelay, type IntervalHistogram } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import {
  THREAD_DELAY_MAX_MS,
  THREAD_DELAY_P99_MS,
  THREAD_HEAP_BYTES,
  THREAD_STRIPE_WORDS,
  openStripe,
  type MetricsBuffers,
} from './metrics-layout.js';

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
