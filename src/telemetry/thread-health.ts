/**
 * What a thread writes about itself into its stripe (metrics-layout.ts): how late its event loop runs, and
 * the size of its heap. metrics-reader.ts reads it for `/metrics` and the console. Every thread with a
 * JavaScript event loop makes one ThreadHealth at its start. Counter threads, which count tokens
 * (counter-pool.ts), come and go, so each of them first takes a stripe that is free; without one it is not
 * shown.
 *
 * A timer measures the delay: it runs as much later than it was due as the event loop was blocked. Each run
 * wakes the thread and costs up to 0.1 ms of CPU, so a thread that does nothing looks once a second and a
 * thread that works every 20 ms. A block of 1.5 s in a thread at rest may be shown as 0.5 s, because the
 * timer was not due for the first second of it.
 *
 * Node's `monitorEventLoopDelay` is not used: its timer always runs at the fine resolution, and its `reset`
 * forgets the delay that is under way, so a thread that blocked just after a reset was shown as never late.
 *
 * Must hold: the stripes of counter threads are the last ones, and THREAD_HOLDER is behind what a holder
 * writes (metrics-layout.ts). Tests: unit/telemetry/thread-health, thread-health.counter-stripe.
 */
import { performance } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import { msToNextTick } from '../core/clock.js';
import { COUNTER_THREADS_MAX } from '../core/limits.js';
import type { MainWatch } from './main-watch.js';
import {
  type MetricsBuffers,
  openStripe,
  openStripes,
  THREAD_DELAY_MAX_MS,
  THREAD_DELAY_P99_MS,
  THREAD_HEAP_BYTES,
  THREAD_HOLDER,
  THREAD_LOOKS,
  THREAD_STRIPE_WORDS,
} from './metrics-layout.js';

const LOOK_BUSY_MS = 20;
const LOOK_IDLE_MS = 1_000;
/**
 * A thread works if its event loop was active for this share of the time since the last look. Below it no
 * turn of the loop can have taken 50 ms between two looks at rest. Fine looks alone take up to 1.5 % of the
 * time of a slow machine, and must not keep themselves up.
 */
const BUSY_SHARE = 0.05;
/** Below the usual scrape intervals of 10 s and more, so that every scrape sees another period. */
const PERIOD_MS = 5_000;

/** What ThreadHealth needs of the event loop; tests have their own. */
export interface EventLoop {
  /** Monotonic clock. */
  nowMs(): number;
  /** Share of the time since the last call in which the loop was not waiting for events, 0 to 1. */
  activeShare(): number;
  /** Calls `act` after `delayMs`; returns what stops it. Does not keep the process alive. */
  later(delayMs: number, act: () => void): () => void;
}

function ownEventLoop(): EventLoop {
  let last = performance.eventLoopUtilization();
  return {
    nowMs: () => performance.now(),
    activeShare: () => {
      const former = last;
      last = performance.eventLoopUtilization();
      return performance.eventLoopUtilization(last, former).utilization;
    },
    later: (delayMs, act) => {
      const timer = setTimeout(act, delayMs).unref();
      return () => clearTimeout(timer);
    },
  };
}

export class ThreadHealth {
  readonly #words: Float64Array;
  readonly #loop: EventLoop;
  readonly #watch: MainWatch | undefined;
  /** Delays seen in this period, `#looks` of them. */
  readonly #delaysMs = new Float64Array(Math.ceil(PERIOD_MS / LOOK_BUSY_MS) + 1);
  #looks = 0;
  #periodEndMs: number;
  #lookMs = LOOK_BUSY_MS;
  #dueMs = 0;
  #stop: () => void = () => undefined;

  /** Begins to measure; `thread` is the index in `threadNames`. Each look is also one of `watch`. */
  constructor(
    buffers: MetricsBuffers,
    thread: number,
    { watch, loop = ownEventLoop() }: { watch?: MainWatch; loop?: EventLoop } = {},
  ) {
    this.#words = openStripe(buffers.threads, thread, THREAD_STRIPE_WORDS);
    this.#loop = loop;
    this.#watch = watch;
    this.#words[THREAD_HEAP_BYTES] = getHeapStatistics().used_heap_size;
    this.#periodEndMs = loop.nowMs() + PERIOD_MS;
    this.#lookLater(loop.nowMs());
  }

  stop(): void {
    this.#stop();
  }

  #lookLater(nowMs: number): void {
    const waitMs = this.#lookMs === LOOK_IDLE_MS ? msToNextTick(nowMs, LOOK_IDLE_MS) : this.#lookMs;
    this.#dueMs = nowMs + waitMs;
    this.#stop = this.#loop.later(waitMs, () => this.#look());
  }

  #look(): void {
    const nowMs = this.#loop.nowMs();
    const delayMs = Math.max(0, nowMs - this.#dueMs);
    this.#words[THREAD_LOOKS]! += 1;
    this.#watch?.look(nowMs);
    this.#delaysMs[this.#looks++] = delayMs;
    // At once, so that a long block can be read before the end of the period.
    this.#words[THREAD_DELAY_MAX_MS] = Math.max(this.#words[THREAD_DELAY_MAX_MS]!, delayMs);
    const isPeriodOver = nowMs >= this.#periodEndMs;
    if (isPeriodOver) this.#publish(nowMs);
    // A thread that works goes on at the fine resolution for the rest of the period.
    if (isPeriodOver || this.#lookMs === LOOK_IDLE_MS)
      this.#lookMs = this.#loop.activeShare() > BUSY_SHARE ? LOOK_BUSY_MS : LOOK_IDLE_MS;
    this.#lookLater(nowMs);
  }

  #publish(nowMs: number): void {
    const delaysMs = this.#delaysMs.subarray(0, this.#looks).sort();
    this.#words[THREAD_DELAY_P99_MS] = delaysMs[Math.ceil(delaysMs.length * 0.99) - 1]!;
    this.#words[THREAD_DELAY_MAX_MS] = delaysMs.at(-1)!;
    this.#words[THREAD_HEAP_BYTES] = getHeapStatistics().used_heap_size;
    this.#looks = 0;
    this.#periodEndMs = nowMs + PERIOD_MS;
  }
}

/** Holder word of a free counter stripe. Of a taken one it is Node's id of the thread. */
const NOBODY = 0;

/**
 * Takes a free stripe for this counter thread and returns its index; undefined while threads that have not
 * ended hold them all.
 */
export function takeCounterStripe(buffers: MetricsBuffers, threadId: number): number | undefined {
  return counterStripes(buffers).find(
    (stripe) => Atomics.compareExchange(holderOf(buffers, stripe), 0, NOBODY, threadId) === NOBODY,
  );
}

/** Frees the stripe of a counter thread that has ended, if it had one. Main thread. */
export function giveBackCounterStripe(buffers: MetricsBuffers, threadId: number): void {
  const stripe = counterStripes(buffers).find(
    (candidate) => Atomics.load(holderOf(buffers, candidate), 0) === threadId,
  );
  if (stripe === undefined) return;
  // The holder's word is freed after the others are cleared: from then on another thread may write them.
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
