/**
 * The stripes of counter threads in the shared metrics (metrics-layout.ts). Counter threads start and end at
 * any time, so each takes a free stripe (upstream/counter-task.ts), in which thread-health.ts measures it. If
 * no stripe is free, the counter thread is not measured. The main thread frees the stripe when the counter
 * thread has ended (gateway/counter-pool.ts).
 *
 * Must hold:
 * - A stripe has one holder until its thread has ended, however many threads ask at once.
 * - The stripes of counter threads are the last ones, and THREAD_HOLDER comes after the words that the holder
 *   writes (metrics-layout.ts).
 */
import { COUNTER_THREADS_MAX } from '../core/limits.js';
import {
  type MetricsBuffers,
  openStripe,
  openStripes,
  THREAD_HOLDER,
  THREAD_STRIPE_WORDS,
} from './metrics-layout.js';

/** THREAD_HOLDER of a free counter stripe. In a taken stripe THREAD_HOLDER is Node's id of the thread. */
const NO_HOLDER = 0;

/**
 * Takes a free stripe for this counter thread and returns its index, or undefined if other threads hold all.
 * `threadId` is Node's, never 0.
 */
export function takeCounterStripe(buffers: MetricsBuffers, threadId: number): number | undefined {
  return counterStripes(buffers).find(
    (stripe) => Atomics.compareExchange(holderOf(buffers, stripe), 0, NO_HOLDER, threadId) === NO_HOLDER,
  );
}

/** Frees the stripe of a counter thread that has ended, if it had one. Main thread. */
export function giveBackCounterStripe(buffers: MetricsBuffers, threadId: number): void {
  const stripe = counterStripes(buffers).find(
    (candidate) => Atomics.load(holderOf(buffers, candidate), 0) === threadId,
  );
  if (stripe === undefined) return;
  // The holder's word is cleared last, because another thread may write to the stripe from then on.
  openStripe(buffers.threads, stripe, THREAD_STRIPE_WORDS).fill(0, 0, THREAD_HOLDER);
  Atomics.store(holderOf(buffers, stripe), 0, NO_HOLDER);
}

/** The indexes of counter threads' stripes, the last ones in `threadNames` of metrics-layout.ts. */
function counterStripes({ threads }: MetricsBuffers): number[] {
  return [...openStripes(threads, THREAD_STRIPE_WORDS).keys()].slice(-COUNTER_THREADS_MAX);
}

/** The first half of the word THREAD_HOLDER, as an integer: Atomics do not work on the stripe's floats. */
function holderOf({ threads }: MetricsBuffers, stripe: number): Int32Array {
  const { byteOffset } = openStripe(threads, stripe, THREAD_STRIPE_WORDS).subarray(THREAD_HOLDER);
  return new Int32Array(threads, byteOffset, 1);
}
