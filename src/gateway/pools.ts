/**
 * The Piscina pool of upstream workers, with one long-lived task each. Main thread.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { setTimeout as delay } from 'node:timers/promises';
import type { Piscina } from 'piscina';
import { PendingReplies } from '../core/ask-port.js';
import { SETTINGS_WAIT_MS_MAX } from '../core/limits.js';
import type { CallTableBuffer } from '../channel/call-table.js';
import { createFrameChannel, type FrameChannel } from '../channel/frame-port.js';
import { createPool } from './thread-pool.js';
import type { Log } from '../telemetry/log.js';
import type { ModelRoute } from '../upstream/target.js';
import type { FromUpstreamWorker, ToUpstreamWorker, UpstreamTask } from '../upstream/worker-messages.js';
import type { CounterPool } from './counter-pool.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayState } from './gateway-options.js';

/** A worker that died is replaced after so long, so that one that dies at once does not take a core. */
const WORKER_PAUSE_MS = 100;

/** What a worker gets to abort its calls and close its sockets. */
const WORKER_CLOSE_MS = 2_000;

export interface UpstreamWorkersOptions {
  /** How many. */
  readonly workers: number;
  readonly routes: readonly ModelRoute[];
  readonly calls: CallTableBuffer;
  readonly metrics: Pick<GatewayMetrics, 'buffers' | 'firstWorkerThread'>;
  readonly counter: CounterPool;
  /** A new worker leaves its spans there, if they are exported. */
  readonly state: Pick<GatewayState, 'traces'>;
  readonly log: Log;
}

/** Who calls workers: the listeners. */
export interface WorkerClients {
  /** A worker has been started, or started again: every listener must be given a port to it. */
  attachWorker(workerIndex: number): void;
  /** A worker has died with its calls. */
  detachWorker(workerIndex: number): void;
}

interface WorkerControl {
  readonly port: MessagePort;
  /** Whether the worker has taken new routes. */
  readonly taken: PendingReplies<boolean>;
}

/** Upstream workers, each kept alive: its task is started again whenever its thread has died. */
export class UpstreamWorkers {
  readonly #options: UpstreamWorkersOptions;
  #pool: Piscina | undefined;
  readonly #controls = new Map<number, WorkerControl>();
  /** What a worker that is started now gets. */
  #routes: readonly ModelRoute[];
  readonly #tasks: Promise<void>[] = [];
  #closing = false;

  constructor(options: UpstreamWorkersOptions) {
    this.#options = options;
    this.#routes = options.routes;
  }

  /** Starts the threads, under the V8 flags of this moment. */
  start(clients: WorkerClients): void {
    const { workers, log } = this.#options;
    this.#pool = createPool({
      entry: new URL('../upstream/upstream.worker.cjs', import.meta.url),
      threadsMin: workers,
      threadsMax: workers,
      queueMax: workers,
      idleTimeoutMs: Infinity,
    });
    this.#pool.on('error', (error: Error) => log.warn('upstream worker failed', { error: error.message }));
    for (let index = 0; index < workers; index += 1)
      this.#tasks.push(this.#keepAlive(index, this.#pool, clients));
  }

  get indices(): number[] {
    return [...this.#controls.keys()];
  }

  /**
   * A new link to the worker for the listener; the worker takes it in the place of the listener's earlier
   * one.
   */
  connect(workerIndex: number, listenerIndex: number): FrameChannel {
    const [ours, theirs] = createFrameChannel();
    const message: ToUpstreamWorker = { kind: 'listener', index: listenerIndex, channel: theirs };
    this.#controls.get(workerIndex)?.port.postMessage(message, [theirs.port]);
    return ours;
  }

  /**
   * Calls go here from now on, also in workers that are started later. Resolves when every worker has taken
   * the routes, with the indices of those that have not in time.
   */
  async replaceRoutes(routes: readonly ModelRoute[]): Promise<number[]> {
    this.#routes = routes;
    const controls = [...this.#controls];
    const taken = await Promise.all(
      controls.map(([, { port, taken }]) =>
        taken.ask((turn) => port.postMessage({ kind: 'routes', routes, turn } satisfies ToUpstreamWorker)),
      ),
    );
    return controls.flatMap(([index], at) => (taken[at] ? [] : [index]));
  }

  /**
   * Upstreams of that model, or of all, are called again at once. A worker that is started later knows
   * nothing bad of them.
   */
  resetUpstreams(model: string | undefined): void {
    for (const { port } of this.#controls.values())
      port.postMessage({ kind: 'reset', model } satisfies ToUpstreamWorker);
  }

  /** Ends all tasks, then the threads. */
  async close(): Promise<void> {
    this.#closing = true;
    for (const { port } of this.#controls.values())
      port.postMessage({ kind: 'close' } satisfies ToUpstreamWorker);
    await Promise.race([Promise.all(this.#tasks), delay(WORKER_CLOSE_MS, undefined, { ref: false })]);
    await this.#pool?.destroy();
  }

  async #keepAlive(index: number, pool: Piscina, clients: WorkerClients): Promise<void> {
    for (;;) {
      const ended = this.#run(index, pool);
      clients.attachWorker(index);
      const fault = await ended;
      // The worker that follows starts with what is new.
      this.#controls.get(index)?.taken.replyToAll(true);
      this.#controls.delete(index);
      if (this.#isClosing()) return;
      this.#options.log.error('upstream worker died and is being replaced; its calls were not billed', {
        worker: index,
        error: fault,
      });
      clients.detachWorker(index);
      await delay(WORKER_PAUSE_MS);
      if (this.#isClosing()) return;
    }
  }

  /** Read anew after each wait: `close` may have been called meanwhile. */
  #isClosing(): boolean {
    return this.#closing;
  }

  /** Why the task ended. */
  async #run(index: number, pool: Piscina): Promise<string> {
    const control = new MessageChannel();
    const counter = new MessageChannel();
    this.#options.counter.serve(counter.port1);
    const taken = new PendingReplies({ waitMsMax: SETTINGS_WAIT_MS_MAX, onTimeout: () => false });
    this.#controls.set(index, { port: control.port1, taken });
    control.port1.on('message', ({ turn }: FromUpstreamWorker) => taken.reply(turn, true));
    const { calls, metrics, state } = this.#options;
    const spans = state.traces?.newOutlet();
    const task: UpstreamTask = {
      index,
      routes: this.#routes,
      calls,
      metrics: metrics.buffers,
      thread: metrics.firstWorkerThread + index,
      controlPort: control.port2,
      counterPort: counter.port2,
      spans,
    };
    try {
      const spanPorts = spans === undefined ? [] : [spans.port];
      await pool.run(task, { transferList: [control.port2, counter.port2, ...spanPorts] });
      return 'the task returned';
    } catch (error) {
      return error instanceof Error ? (error.stack ?? error.message) : String(error);
    } finally {
      control.port1.close();
      counter.port1.close();
    }
  }
}
