/**
 * Measures a thread's event-loop delay and heap, and writes both into its stripe (metrics-layout.ts).
 * metrics-reader.ts reads them for `/metrics` and the console. Every thread with a JavaScript event loop
 * creates one ThreadHealth at its start. Counter threads start and end at any time, so each takes a free
 * stripe first; without one it is not measured.
 *
 * A timer measures the delay: it fires as much later than it was due as the event loop was blocked. Each
 * firing costs up to 0.1 ms of CPU, so an idle thread measures once a second and a busy one every 20 ms. A
 * block of 1.5 s in an idle thread may be shown as 0.5 s, because the timer was not due for its first second.
 *
 * Node's `monitorEventLoopDelay` is not used: its timer always runs at the fine resolution, and its `reset`
 * drops the running delay, so that a thread that blocks just after a reset is shown as never late.
 *
 * Must hold: the stripes of counter threads are the last ones, and THREAD_HOLDER comes after the words that
 * the holder writes (metrics-layout.ts). Tests: test/unit/telemetry/thread-health.test.ts and
 * test/unit/telemetry/thread-health.counter-stripe.test.ts.
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
 * A thread is busy if its event loop was active for this share of the time since the last measurement. Below
 * it no turn of the loop can have taken 50 ms between two measurements a second apart. The share is above the
 * 1.5 % that frequent measurements take on a slow machine, so that these do not make a thread busy.
 */
const BUSY_SHARE = 0.05;
/** Below the usual scrape intervals of 10 s and more, so that every scrape sees another period. */
const PERIOD_MS = 5_000;

/** What ThreadHealth needs of the event loop. Tests replace it. */
export interface EventLoop {
  /** Monotonic clock. */
  nowMs(): number;
  /** Share of the time since the last call in which the loop was not waiting for events, 0 to 1. */
  activeShare(): number;
  /** Calls `act` after `delayMs`; returns a function that cancels it. Does not keep the process alive. */
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
  /** Delays measured in this period, `#looks` of them. */
  readonly #delaysMs = new Float64Array(Math.ceil(PERIOD_MS / LOOK_BUSY_MS) + 1);
  #looks = 0;
  #periodEndMs: number;
  #lookMs = LOOK_BUSY_MS;
  #dueMs = 0;
  #stop: () => void = () => undefined;

  /** Begins to measure; `thread` is the index in `threadNames`. Each measurement also calls `watch.look`. */
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
    const waitMs = this.#lookMs === LOOK_IDLE_MS ? msToNextTick(LOOK_IDLE_MS, nowMs) : this.#lookMs;
    this.#dueMs = nowMs + waitMs;
    this.#stop = this.#loop.later(waitMs, () => this.#look());
  }

  #look(): void {
    const nowMs = this.#loop.nowMs();
    const delayMs = Math.max(0, nowMs - this.#dueMs);
    this.#words[THREAD_LOOKS]! += 1;
    this.#watch?.look(nowMs);
    this.#delaysMs[this.#looks++] = delayMs;
    // Written at once, so that a long block can be read before the end of the period.
    this.#words[THREAD_DELAY_MAX_MS] = Math.max(this.#words[THREAD_DELAY_MAX_MS]!, delayMs);
    const isPeriodOver = nowMs >= this.#periodEndMs;
    if (isPeriodOver) this.#publish(nowMs);
    // A busy thread stays at the fine resolution for the rest of the period.
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

/** The holder's word of a free counter stripe. In a taken stripe it is Node's id of the thread. */
const NO_HOLDER = 0;

/**
 * Takes a free stripe for this counter thread and returns its index, or undefined if other threads hold all.
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
  // The holder's word comes last, because another thread may write the stripe from then on.
  openStripe(buffers.threads, stripe, THREAD_STRIPE_WORDS).fill(0, 0, THREAD_HOLDER);
  Atomics.store(holderOf(buffers, stripe), 0, NO_HOLDER);
}

function counterStripes({ threads }: MetricsBuffers): number[] {
  return [...openStripes(threads, THREAD_STRIPE_WORDS).keys()].slice(-COUNTER_THREADS_MAX);
}

function holderOf({ threads }: MetricsBuffers, stripe: number): Int32Array {
  const { byteOffset } = openStripe(threads, stripe, THREAD_STRIPE_WORDS).subarray(THREAD_HOLDER);
  return new Int32Array(threads, byteOffset, 1);
}
