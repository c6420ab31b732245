/**
 * The work of a counter thread in one time slice: it parses or translates a large body, or counts the tokens
 * of a call until the slice is over. A body takes one time slice, because its length bounds the cost.
 * gateway/counter-pool.ts calls it through Piscina and counter.worker.cts. Counter thread.
 *
 * Must hold (test/unit/gateway/counter-pool.test.ts): a count gives its thread up after COUNTER_SLICE_MS, or
 * other jobs wait for it. gateway/counter-pool.ts then sends what is left (`count_on`) in a later slice.
 */
import { setPriority } from 'node:os';
import { threadId, workerData } from 'node:worker_threads';
import { move, Piscina } from 'piscina';
import { COUNTER_SLICE_MS } from '../core/limits.js';
import { DOOR_OF } from '../doors/doors.js';
import { takeCounterStripe } from '../telemetry/counter-stripes.js';
import { ThreadHealth } from '../telemetry/thread-health.js';
import { translateLarge } from './large-translation.js';
import { TokenCount } from './token-count.js';
import type { CounterInit, CounterTask, SliceResult } from './worker-messages.js';

/** A third of the weight of listeners and workers, whose niceness is 0: on busy cores streams go on. */
const NICENESS = 5;
/** On Linux `setPriority` of 0 is for the calling thread alone. */
const THIS_THREAD = 0;

// At import, because this module is loaded once in each counter thread and nowhere else.
try {
  setPriority(THIS_THREAD, NICENESS);
} catch {
  // A sandbox may forbid a change of priority. Then all threads have the same.
}

const { metrics } = workerData as CounterInit;
/** The thread's stripe of the metrics, from 0; undefined until `beginHealth` has got one. */
let stripe: number | undefined;

/** Runs one time slice of a job. Returns its result, or what is left of a count. Throws only for a bug. */
export function runCounterTask(task: CounterTask): SliceResult {
  const endMs = performance.now() + COUNTER_SLICE_MS;
  beginHealth();
  if (task.kind === 'parse') {
    const parsed = DOOR_OF[task.door].readPieces(task.pieces);
    const buffers = parsed.ok && parsed.call.largeBody !== undefined ? [parsed.call.largeBody.buffer] : [];
    return transferred({ over: true, result: parsed }, buffers);
  }
  if (task.kind === 'translate') {
    const result = translateLarge(task.large);
    return transferred({ over: true, result }, result.isWritten ? [result.body.buffer] : []);
  }
  const count = task.kind === 'count' ? TokenCount.begin(task.request) : TokenCount.resume(task.rest);
  const usage = count.run(endMs);
  if (usage !== undefined) return { over: true, result: usage };
  const rest = count.rest();
  return transferred({ over: false, rest }, [rest.chars.buffer, rest.lengths.buffer]);
}

/** Piscina's form of a result that transfers some buffers. The casts are because its types lack that form. */
function transferred(result: SliceResult, buffers: readonly ArrayBufferLike[]): SliceResult {
  if (buffers.length === 0) return result;
  return move({
    [Piscina.transferableSymbol]: buffers,
    [Piscina.valueSymbol]: result,
  } as never) as unknown as SliceResult;
}

/** Measures the event loop from the first task on, or from when the last thread of the stripe has ended. */
function beginHealth(): void {
  if (stripe !== undefined) return;
  stripe = takeCounterStripe(metrics, threadId);
  // ThreadHealth measures from now on, by a timer of its own.
  if (stripe !== undefined) new ThreadHealth(metrics, stripe);
}
