/**
 * Creates pools of threads (Piscina, with every option given) and sets the heap limits of threads.
 * counter-pool.ts and upstream-workers.ts make pools; listeners.ts and traces.ts use the heap limits for
 * single threads. Main thread of a gateway process.
 *
 * The heap limits make threads behave alike on every release of Node. Node 24 gives each thread 192 MiB for
 * new objects and keeps what a burst has taken. And if the whole heap may exceed 2 GiB, V8 lets it grow to
 * four times the live data before a full collection; the buffers and sockets of dead objects stay as long.
 * After seven bursts of 1,000 streams a gateway on Node 24 took 674 MiB. With these limits it takes 394 MiB,
 * as on Node 20.
 *
 * Must hold: every thread with a heap of its own gets `threadMemory()`, and no other file makes a pool
 * (test/unit/gateway/thread-pool.thread-memory.test.ts).
 */
import { getHeapStatistics } from 'node:v8';
import type { ResourceLimits } from 'node:worker_threads';
import { Piscina } from 'piscina';

/** The space for new objects: Node 20's default. */
const YOUNG_MIB = 48;
/**
 * The space for old objects. A call in flight takes some 20 KB of the heap, also with a long response: so
 * there is space for 50,000 calls a thread. Node ends a thread that exceeds the limit.
 */
const OLD_MIB_MAX = 1_536;
const BYTES_PER_MIB = 1024 * 1024;

/** Returns the heap limits for a `Worker` or for a pool. */
export function threadMemory(): ResourceLimits {
  // On a small machine Node's default limit is lower.
  const defaultMib = Math.floor(getHeapStatistics().heap_size_limit / BYTES_PER_MIB);
  return { maxYoungGenerationSizeMb: YOUNG_MIB, maxOldGenerationSizeMb: Math.min(OLD_MIB_MAX, defaultMib) };
}

/** How long `close` of a pool waits for its threads. */
const CLOSE_TIMEOUT_MS = 5_000;

interface PoolOptions {
  /**
   * The module whose default export runs a task. The module is CommonJS, because Piscina loads other modules
   * by code from strings, which is disabled.
   */
  readonly entry: URL;
  readonly threadsMin: number;
  readonly threadsMax: number;
  /** How many tasks may wait for a thread. One more is rejected. */
  readonly queueMax: number;
  /** A thread beyond `threadsMin` ends after this time without a task. */
  readonly idleTimeoutMs: number;
  /** Passed to every thread at its start. */
  readonly workerData?: unknown;
}

/** Creates a pool. It starts `threadsMin` threads at once and the others when tasks need them. */
export function createPool(options: PoolOptions): Piscina {
  return new Piscina({
    filename: options.entry.href,
    minThreads: options.threadsMin,
    maxThreads: options.threadsMax,
    maxQueue: options.queueMax,
    idleTimeout: options.idleTimeoutMs,
    concurrentTasksPerWorker: 1,
    // By default an idle thread waits in Atomics.wait, which stops its event loop and so its sockets.
    atomics: 'disabled',
    workerData: options.workerData,
    resourceLimits: threadMemory(),
    recordTiming: false,
    workerHistogram: false,
    stricterFIFO: false,
    niceIncrement: 0,
    trackUnmanagedFds: false,
    closeTimeout: CLOSE_TIMEOUT_MS,
  });
}
