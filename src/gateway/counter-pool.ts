/**
 * The pool of counter threads (Piscina). They parse and translate large bodies and count tokens, which would
 * stall a listener or a worker. gateway.ts owns the pool, on the main thread of a gateway process. For each
 * listener and worker, listeners.ts and upstream-workers.ts hand it the port by which that thread asks.
 *
 *     question → queue (FairQueue) → one time slice on a thread → reply, or back to the queue for the next
 *     slice
 *
 * A _job_ is the work on one question. A task of Piscina is one time slice of a job, COUNTER_SLICE_MS of
 * work. Between slices the job waits in the queue. So accounts get the threads in turn, and any thread can
 * continue any job.
 *
 * Must hold (the unit test has a test for each):
 * - Each question gets one reply, unless its port closes.
 * - A withdrawn job leaves the queue, or ends with its current slice.
 * - A thread whose slice exceeds `stuckMs` is replaced, or one body would stop all.
 * - A thread that has ended leaves its stripe of the metrics to a later one, or no later one is measured.
 */
import type { MessagePort } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import type { ErrorRecord } from '../core/errors.js';
import { FairQueue } from '../core/fair-queue.js';
import {
  COUNTER_ACCOUNT_BYTES_MAX,
  COUNTER_JOB_BYTES_MIN,
  COUNTER_QUEUE_BYTES_MAX,
  COUNTER_STUCK_MS,
  COUNTER_THREADS_MAX,
} from '../core/limits.js';
import type { AccountIndex } from '../core/units.js';
import type { AskReply, Question, Withdrawal } from '../core/ask-port.js';
import { createPool } from './thread-pool.js';
import { COUNTER_BUSY } from '../upstream/error-mapping.js';
import { giveBackCounterStripe } from '../telemetry/counter-stripes.js';
import type { Log } from '../telemetry/log.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { CounterAsk, CounterInit, CounterTask, SliceResult } from '../upstream/worker-messages.js';

/** A thread that was idle for this long ends, because a thread takes 10 MB, and a tokenizer's table 7 MB. */
const COUNTER_IDLE_MS = 300_000;
/** A thousand clients that leave at once cause a thousand rejections; one log line a second says enough. */
const REJECTIONS_LOG_PERIOD_MS = 1_000;

interface Job {
  readonly account: AccountIndex;
  /** Bytes of memory, by which the queue is bounded. */
  readonly weight: number;
  /** Called once, with the last slice or a rejection. */
  readonly onReply: (reply: SliceResult | ErrorRecord) => void;
  /** The task of the next slice. A slice transfers its buffers to the thread, so no slice can be repeated. */
  task: CounterTask;
  /** Whether nobody awaits the result any more. */
  isWithdrawn: boolean;
}

interface CounterPoolOptions {
  readonly metrics: MetricsBuffers;
  readonly log: Log;
  /** Only tests set these two: the module of the threads, and when a time slice counts as stuck. */
  readonly entry?: URL;
  readonly stuckMs?: number;
}

/** Starts no thread before the first job. core/limits.ts has the bounds of the queue. */
export class CounterPool {
  readonly #pool: Piscina;
  readonly #log: Log;
  readonly #stuckMs: number;
  readonly #waiting = new FairQueue<AccountIndex, Job>({
    weightMax: COUNTER_QUEUE_BYTES_MAX,
    ownerWeightMax: COUNTER_ACCOUNT_BYTES_MAX,
  });
  /** How many time slices run. */
  #running = 0;
  /** Rejections since the last log line. */
  #rejections = 0;
  #loggedMs = -Infinity;

  constructor({ metrics, log, entry, stuckMs = COUNTER_STUCK_MS }: CounterPoolOptions) {
    this.#log = log;
    this.#stuckMs = stuckMs;
    this.#pool = createPool({
      entry: entry ?? new URL('../upstream/counter.worker.cjs', import.meta.url),
      threadsMin: 0,
      threadsMax: COUNTER_THREADS_MAX,
      // Piscina's queue has only tasks whose threads are starting: all others wait in `#waiting`.
      queueMax: COUNTER_THREADS_MAX,
      idleTimeoutMs: COUNTER_IDLE_MS,
      workerData: { metrics } satisfies CounterInit,
    });
    this.#pool.on('workerCreate', ({ id }: { readonly id: number }) => {
      const thread = this.#pool.threads.find(({ threadId }) => threadId === id);
      // The stripe stays the thread's until the exit: until then the thread may write to it. A thread that is
      // not listed has ended before its first task, and takes a stripe only in a task.
      thread?.once('exit', () => giveBackCounterStripe(metrics, id));
    });
    this.#pool.on('error', (error: Error) => log.warn('counter thread failed', { error: error.message }));
  }

  /** How many jobs wait for a time slice. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * Replies to the questions that come by `port`, of one listener or worker. Call it once for each port. When
   * the port closes, its jobs are withdrawn.
   */
  serve(port: MessagePort): void {
    const jobs = new Map<number, Job>();
    port.on('message', (message: Question | Withdrawal) => {
      const { id } = message;
      if ('withdrawn' in message) {
        const job = jobs.get(id);
        // Undefined if the reply was sent already.
        if (job !== undefined) this.#withdraw(job);
        return;
      }
      const { account, task } = message.ask as CounterAsk;
      const job: Job = {
        account,
        weight: Math.max(COUNTER_JOB_BYTES_MIN, queuedBytesOf(task)),
        onReply: (reply) => {
          jobs.delete(id);
          post(port, id, reply);
        },
        task,
        isWithdrawn: false,
      };
      jobs.set(id, job);
      for (const rejected of this.#waiting.offer(account, job, job.weight))
        this.#reject(rejected, 'the queue is full');
      this.#startSlices();
    });
    port.on('close', () => {
      for (const job of [...jobs.values()]) this.#withdraw(job);
    });
  }

  /** Ends the threads. To be called when listeners and workers have ended: nobody gets a reply any more. */
  async close(): Promise<void> {
    await this.#pool.destroy();
  }

  #startSlices(): void {
    while (this.#running < COUNTER_THREADS_MAX) {
      const job = this.#waiting.take();
      if (job === undefined) return;
      this.#running += 1;
      void this.#runSlice(job).finally(() => {
        this.#running -= 1;
        this.#startSlices();
      });
    }
  }

  /** Runs one time slice, then replies or puts the job back into the queue. Never rejects. */
  async #runSlice(job: Job): Promise<void> {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), this.#stuckMs);
    try {
      // Piscina ends the thread of a task that is aborted. A task cannot be stopped otherwise.
      const slice = (await this.#pool.run(job.task, {
        transferList: buffersOf(job.task),
        signal: stop.signal,
      })) as SliceResult;
      if (slice.over || job.isWithdrawn) {
        job.onReply(slice.over ? slice : COUNTER_BUSY);
        return;
      }
      job.task = { kind: 'count_on', rest: slice.rest };
      this.#waiting.putBack(job.account, job, job.weight);
    } catch (error) {
      this.#reject(
        job,
        stop.signal.aborted ? 'a time slice did not end, its thread was replaced' : String(error),
      );
    } finally {
      clearTimeout(timer);
    }
  }

  /** Replies now if the job waits, or at the end of its slice: to stop a time slice would cost the thread. */
  #withdraw(job: Job): void {
    job.isWithdrawn = true;
    if (this.#waiting.remove(job.account, job)) job.onReply(COUNTER_BUSY);
  }

  /** Replies with COUNTER_BUSY. `reason` is for the log alone. */
  #reject(job: Job, reason: string): void {
    job.onReply(COUNTER_BUSY);
    this.#rejections += 1;
    const nowMs = performance.now();
    if (nowMs - this.#loggedMs >= REJECTIONS_LOG_PERIOD_MS) {
      this.#log.warn('counter tasks refused or failed', { tasks: this.#rejections, error: reason });
      this.#loggedMs = nowMs;
      this.#rejections = 0;
    }
  }
}

/**
 * Returns how many bytes a waiting job takes besides those in the memory budget of bodies. A body to parse is
 * in that budget. A body to translate needs no more of it, although it is a copy: its translation replaces
 * the copy, so a call never has more than two copies, as with a short body.
 */
function queuedBytesOf(task: CounterTask): number {
  if (task.kind !== 'count') return 0;
  const { body } = task.request;
  // V8 may take two bytes for a character.
  return typeof body === 'string' ? 2 * body.length : body.length;
}

/** Returns the buffers to transfer to the thread. The casts are safe, because no body is in shared memory. */
function buffersOf(task: CounterTask): ArrayBuffer[] {
  switch (task.kind) {
    case 'parse':
      return task.pieces.map(({ buffer }) => buffer as ArrayBuffer);
    case 'translate':
      return [task.large.body.buffer as ArrayBuffer];
    case 'count':
      return typeof task.request.body === 'string' ? [] : [task.request.body.buffer as ArrayBuffer];
    case 'count_on':
      return [task.rest.chars.buffer as ArrayBuffer, task.rest.lengths.buffer as ArrayBuffer];
  }
}

/** Sends the reply to the asker, as AskPort expects it. A slice that is not over has no reply. */
function post(port: MessagePort, id: number, reply: SliceResult | ErrorRecord): void {
  if ('code' in reply) {
    port.postMessage({ id, ok: false, rejection: reply } satisfies AskReply);
    return;
  }
  if (!reply.over) return;
  const { result } = reply;
  const body = largeBodyOf(result);
  const transfer = body === undefined ? [] : [body.buffer as ArrayBuffer];
  port.postMessage({ id, ok: true, result } satisfies AskReply, transfer);
}

/** The body in a result, whose memory is transferred instead of copied; undefined if there is none. */
function largeBodyOf(result: Extract<SliceResult, { over: true }>['result']): Uint8Array | undefined {
  if ('ok' in result) return result.ok ? result.call.largeBody : undefined;
  return 'isWritten' in result && result.isWritten ? result.body : undefined;
}
