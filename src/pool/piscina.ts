/**
 * Piscina as the gateway uses it, every option given. Main thread.
 */
import { Piscina } from 'piscina';
import { threadMemory } from './thread-memory.js';

/** A pool that does not end when it is told to is left behind after so long. */
const CLOSE_TIMEOUT_MS = 5_000;

export interface PoolShape {
  /** Module whose default export runs a task. CommonJS: Piscina loads others by code from strings, which is off. */
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
