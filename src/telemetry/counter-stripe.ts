/**
 * Which counter thread writes which of the last stripes of the threads: such threads come and go, so each takes the first that is
 * free. Its holder word is Node's id of the thread, and 0 where it has none.
 */
import { COUNTER_THREADS_MAX } from '../core/limits.js';
import {
  THREAD_HOLDER,
  THREAD_STRIPE_WORDS,
  openStripe,
  openStripes,
  type MetricsBuffers,
} from './metrics-layout.js';

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
