/**
 * The Piscina pool of counter threads: short tasks that would stall a listener or a worker. Main thread.
 */
import type { MessagePort } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import type { ErrorRecord } from '../core/errors.js';
import { COUNTER_THREADS_MAX } from '../core/limits.js';
import { answerQuestions } from '../pool/ask-port.js';
import { createPool } from '../pool/piscina.js';
import type { ChatRequestResult } from '../protocol/chat-request.js';
import { giveBackCounterStripe } from '../telemetry/counter-stripe.js';
import type { Log } from '../telemetry/log.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { CountRequest } from '../upstream/token-count.js';
import type { CounterInit, CounterTask } from '../upstream/worker-messages.js';

/** Tasks that wait for a counter thread: at 10 MB a body this is 640 MB, and a minute of work. */
const COUNTER_QUEUE_MAX = 64;
/** A tokenizer's table is 60 MB: a thread that nobody needed for so long gives it back. */
const COUNTER_IDLE_MS = 300_000;
/** A thousand clients that leave at once are a thousand refusals: one line a second says as much. */
const REFUSALS_LOG_PERIOD_MS = 1_000;

const COUNTER_BUSY: ErrorRecord = {
  code: 'overloaded',
  detail: 'large_bodies',
  message: 'The gateway has as many large requests in work as it may. Retry after 5 seconds.',
  retryAfterSeconds: 5,
};

/** Short tasks: large bodies are parsed here and tokens counted. Starts no thread before the first task. */
export class CounterPool {
  readonly #pool: Piscina;
  readonly #log: Log;
  /** Since they were last logged. */
  #refusals = 0;
  #loggedAtMs = -Infinity;

  constructor(metrics: MetricsBuffers, log: Log) {
    this.#log = log;
    this.#pool = createPool({
      entry: new URL('../upstream/counter.worker.cjs', import.meta.url),
      threadsMin: 0,
      threadsMax: COUNTER_THREADS_MAX,
      queueMax: COUNTER_QUEUE_MAX,
      idleTimeoutMs: COUNTER_IDLE_MS,
      workerData: { metrics } satisfies CounterInit,
    });
    this.#pool.on('workerCreate', ({ id }: { readonly id: number }) => {
      const thread = this.#pool.threads.find(({ threadId }) => threadId === id);
      // Not before: until then it may write.
      thread?.once('exit', () => giveBackCounterStripe(metrics, id));
    });
    this.#pool.on('error', (error: Error) => log.warn('counter thread failed', { error: error.message }));
  }

  /** Answers a listener's questions: bodies to parse. */
  serveListener(port: MessagePort): void {
    answerQuestions(
      port,
      (ask) => {
        const pieces = ask as Uint8Array[];
        const transferList = pieces.map(({ buffer }) => buffer as ArrayBuffer);
        return this.#pool.run({ kind: 'parse', pieces } satisfies CounterTask, {
          transferList,
        }) as Promise<unknown>;
      },
      (error) => this.#refusal(error),
      (answer) => {
        const read = answer as ChatRequestResult;
        const largeBody = read.ok ? read.call.largeBody : undefined;
        return largeBody === undefined ? [] : [largeBody.buffer as ArrayBuffer];
      },
    );
  }

  /** Answers an upstream worker's questions: tokens to count. */
  serveWorker(port: MessagePort): void {
    answerQuestions(
      port,
      (ask) =>
        this.#pool.run({
          kind: 'count',
          request: ask as CountRequest,
        } satisfies CounterTask) as Promise<unknown>,
      (error) => this.#refusal(error),
    );
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }

  #refusal(error: unknown): ErrorRecord {
    this.#refusals += 1;
    const nowMs = performance.now();
    if (nowMs - this.#loggedAtMs >= REFUSALS_LOG_PERIOD_MS) {
      this.#log.warn('counter tasks refused or failed', { tasks: this.#refusals, error: String(error) });
      this.#loggedAtMs = nowMs;
      this.#refusals = 0;
    }
    return COUNTER_BUSY;
  }
}
