/**
 * Measures a thread's event-loop delay and heap, and writes both into its stripe (metrics-layout.ts).
 * metrics-reader.ts reads them for `/metrics` and the console. Every thread of a gateway creates one
 * ThreadHealth at its start; a counter thread takes a stripe first (counter-stripes.ts).
 *
 * A timer measures the delay: if the event loop is blocked, the timer fires late. Each measurement costs up
 * to 0.1 ms of CPU, so an idle thread measures once a second and a busy thread every 20 ms. A block of 1.5 s
 * in an idle thread may be shown as 0.5 s, because the timer was not due for the first second of the block.
 * Shorter blocks are seen once they have made the thread busy: of blocks of 100 ms, two each second, those of
 * the first second may be missed. Then they are 5 % of the measurements, and so in the 99th percentile.
 *
 * Node's `monitorEventLoopDelay` is not used: its timer always runs at the fine resolution, and its `reset`
 * drops the running delay, so that a thread that blocks just after a reset is shown as never late.
 *
 * Must hold: only the thread that has a stripe writes its words, except THREAD_HOLDER, until the thread has
 * ended.
 */
import { performance } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import { msToNextTick } from '../core/clock.js';
import type { MainWatchdog } from './main-watchdog.js';
import {
  type MetricsBuffers,
  openStripe,
  THREAD_DELAY_MAX_MS,
  THREAD_DELAY_P99_MS,
  THREAD_HEAP_BYTES,
  THREAD_MEASUREMENTS,
  THREAD_STRIPE_WORDS,
} from './metrics-layout.js';

/** The time between two measurements in a busy thread and in an idle one. */
const BUSY_INTERVAL_MS = 20;
const IDLE_INTERVAL_MS = 1_000;
/**
 * A thread is busy if its event loop was active for more than this share of the time. So an idle thread was
 * active for 50 ms of its second at most, and no block was longer. The share is above the 1.5 % that
 * measurements every 20 ms take on a slow machine, so that measuring alone does not keep a thread busy.
 */
const BUSY_SHARE = 0.05;
/** How early a timer of Node may fire. */
const TIMER_EARLY_MS_MAX = 1;
/** The weight of the last measurement in the load of a busy thread. */
const BUSY_WEIGHT = 0.2;
/**
 * The shown delays are those of one period. A period is shorter than usual scrape intervals, so that each
 * scrape sees another one.
 */
const PERIOD_MS = 5_000;

/** What ThreadHealth needs of the event loop. Tests replace it. */
export interface EventLoop {
  /** Monotonic clock. */
  nowMs(): number;
  /** Share of the time since the last `activeShare` in which the loop did not wait for events, 0 to 1. */
  activeShare(): number;
  /** Calls `act` after `waitMs`; returns a function that cancels the call. Does not keep the thread alive. */
  callLater(waitMs: number, act: () => void): () => void;
}

function ownEventLoop(): EventLoop {
  let lastRead = performance.eventLoopUtilization();
  return {
    nowMs: () => performance.now(),
    activeShare: () => {
      const before = lastRead;
      lastRead = performance.eventLoopUtilization();
      return performance.eventLoopUtilization(lastRead, before).utilization;
    },
    callLater: (waitMs, act) => {
      const timer = setTimeout(act, waitMs).unref();
      return () => clearTimeout(timer);
    },
  };
}

export class ThreadHealth {
  readonly #words: Float64Array;
  readonly #loop: EventLoop;
  readonly #watchdog: MainWatchdog | undefined;
  /**
   * The delays of this period: the first `#measuredCount` entries. Each timer may fire up to 1 ms early,
   * because its clock is rounded, and so often in a period. The last measurement comes after its end.
   */
  readonly #delaysMs = new Float64Array(Math.ceil(PERIOD_MS / (BUSY_INTERVAL_MS - TIMER_EARLY_MS_MAX)) + 1);
  #measuredCount = 0;
  #periodEndMs: number;
  /** The sum of the active shares that this period's measurements have read. */
  #activeShares = 0;
  #load = 0;
  /** The time to the next measurement: BUSY_INTERVAL_MS or IDLE_INTERVAL_MS. */
  #intervalMs = BUSY_INTERVAL_MS;
  /** When the timer of the next measurement is due. */
  #dueMs = 0;
  /** Cancels the timer of the next measurement. */
  #cancelTimer: () => void = () => undefined;

  /**
   * Begins to measure. `thread` is the index in `threadNames`. Listeners give `watchdog`, so that each
   * measurement also checks whether the main thread is stuck. If a thread replaces a dead one, the stripe has
   * the dead thread's delays until the first period is over. A counter thread begins without delays.
   */
  constructor(
    buffers: MetricsBuffers,
    thread: number,
    { watchdog, loop = ownEventLoop() }: { watchdog?: MainWatchdog; loop?: EventLoop } = {},
  ) {
    this.#words = openStripe(buffers.threads, thread, THREAD_STRIPE_WORDS);
    this.#loop = loop;
    this.#watchdog = watchdog;
    this.#words[THREAD_HEAP_BYTES] = getHeapStatistics().used_heap_size;
    this.#periodEndMs = loop.nowMs() + PERIOD_MS;
    this.#measureLater(loop.nowMs());
  }

  /**
   * The share of its time in which the event loop was active of late, 0 to 1: of the last second in an idle
   * thread, of some 100 ms in a busy one.
   */
  get load(): number {
    return this.#load;
  }

  /** Ends the measurements. A thread that ends need not call it, because the timer does not keep it alive. */
  stop(): void {
    this.#cancelTimer();
  }

  #measureLater(nowMs: number): void {
    // An idle thread measures at whole seconds of its clock. All its timers that use msToNextTick fire then,
    // so the thread wakes once for all of its timers.
    const isIdle = this.#intervalMs === IDLE_INTERVAL_MS;
    const waitMs = isIdle ? msToNextTick(IDLE_INTERVAL_MS, nowMs) : this.#intervalMs;
    this.#dueMs = nowMs + waitMs;
    this.#cancelTimer = this.#loop.callLater(waitMs, () => this.#measure());
  }

  #measure(): void {
    const nowMs = this.#loop.nowMs();
    const delayMs = Math.max(0, nowMs - this.#dueMs);
    this.#words[THREAD_MEASUREMENTS]! += 1;
    this.#watchdog?.check(nowMs);
    this.#delaysMs[this.#measuredCount++] = delayMs;
    // Written at once, so that a long block can be read before the end of the period. Until then the word
    // also covers the period before.
    this.#words[THREAD_DELAY_MAX_MS] = Math.max(this.#words[THREAD_DELAY_MAX_MS]!, delayMs);
    const activeShare = this.#loop.activeShare();
    this.#activeShares += activeShare;
    const isIdle = this.#intervalMs === IDLE_INTERVAL_MS;
    this.#load += (activeShare - this.#load) * (isIdle ? 1 : BUSY_WEIGHT);
    const isPeriodOver = nowMs >= this.#periodEndMs;
    // A busy thread stays at the fine resolution for the rest of the period.
    if (isPeriodOver || isIdle) {
      const periodShare = isIdle ? activeShare : this.#activeShares / this.#measuredCount;
      this.#intervalMs = periodShare > BUSY_SHARE ? BUSY_INTERVAL_MS : IDLE_INTERVAL_MS;
    }
    if (isPeriodOver) this.#publish(nowMs);
    this.#measureLater(nowMs);
  }

  /** Ends the period, writes its delays and begins the next one. A period has one delay at least. */
  #publish(nowMs: number): void {
    const delaysMs = this.#delaysMs.subarray(0, this.#measuredCount).sort();
    this.#words[THREAD_DELAY_P99_MS] = delaysMs[Math.ceil(delaysMs.length * 0.99) - 1]!;
    this.#words[THREAD_DELAY_MAX_MS] = delaysMs.at(-1)!;
    this.#words[THREAD_HEAP_BYTES] = getHeapStatistics().used_heap_size;
    this.#measuredCount = 0;
    this.#activeShares = 0;
    this.#periodEndMs = nowMs + PERIOD_MS;
  }
}
