/**
 * Pools of threads (Piscina, every option given) and the bounds of a thread's heap, the same on every release
 * of Node. Main thread.
 *
 * The bounds are less against a leak than against V8's generosity. Node 24 gives each thread 192 MiB for new
 * objects and keeps what a burst has taken; and if the whole heap may pass 2 GiB, V8 lets it grow to four
 * times what is alive before it collects in earnest, and the buffers and sockets that hang on it wait with
 * it. After seven bursts of 1,000 streams a gateway on Node 24 held 674 MiB; it holds 394 with these bounds,
 * as on Node 20.
 */
import { getHeapStatistics } from 'node:v8';
import type { ResourceLimits } from 'node:worker_threads';
import { Piscina } from 'piscina';

/** Node 20's own. */
const YOUNG_MIB = 48;
/**
 * A call in flight takes some 20 KB of it, long responses none: 50,000 calls a thread. A thread that wants
 * more is ended.
 */
const OLD_MIB_MAX = 1_536;
const BYTES_PER_MIB = 1024 * 1024;

/** For a `Worker`, and for a pool of them. */
export function threadMemory(): ResourceLimits {
  // On a small machine Node takes less by itself.
  const ownMib = Math.floor(getHeapStatistics().heap_size_limit / BYTES_PER_MIB);
  return { maxYoungGenerationSizeMb: YOUNG_MIB, maxOldGenerationSizeMb: Math.min(OLD_MIB_MAX, ownMib) };
}

/** A pool that does not end when it is told to is left behind after so long. */
const CLOSE_TIMEOUT_MS = 5_000;

export interface PoolShape {
  /**
   * Module whose default export runs a task. CommonJS: Piscina loads others by code from strings, which is
   * off.
   */
  readonly entry: URL;
  readonly threadsMin: number;
  readonly threadsMax: number;
  /** Tasks that wait for a thread; one more is refused. */
  readonly queueMax: number;
  /** A thread above `threadsMin` that had no task for so long ends. */
  readonly idleTimeoutMs: number;
  /** What every thread is given when it starts. */
  readonly workerData?: unknown;
}

/** A pool that starts its threads when a task first needs them, or `threadsMin` of them at once. */
export function createPool(shape: PoolShape): Piscina {
  return new Piscina({
    filename: shape.entry.href,
    minThreads: shape.threadsMin,
    maxThreads: shape.threadsMax,
    maxQueue: shape.queueMax,
    idleTimeout: shape.idleTimeoutMs,
    concurrentTasksPerWorker: 1,
    // The default parks an idle worker in Atomics.wait, which stops its event loop and with it its sockets.
    atomics: 'disabled',
    workerData: shape.workerData,
    resourceLimits: threadMemory(),
    recordTiming: false,
    workerHistogram: false,
    stricterFIFO: false,
    niceIncrement: 0,
    trackUnmanagedFds: false,
    closeTimeout: CLOSE_TIMEOUT_MS,
  });
}
