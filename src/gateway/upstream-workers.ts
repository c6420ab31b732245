/**
 * The upstream workers of a gateway: a Piscina pool in which each thread runs one task, a worker, until the
 * thread ends. A worker that dies is replaced; its calls are lost and not charged. In addition each listener
 * may run such a task in its own thread: while it has little to do (`workers_from_load_percent`), or with
 * `workers: 0` for all its calls. This own worker starts and ends with its listener. gateway.ts owns an
 * UpstreamWorkers, on the main thread of a gateway process.
 *
 * Must hold:
 * - Every listener gets a channel to a dead worker's successor, and the calls that the dead worker had in
 *   flight no longer count against limits (test/e2e/thread-failure.test.ts,
 *   test/unit/ledger/upstream-counters.test.ts).
 * - Workers that die at each start are started ever more seldom, and `close` waits for no pause.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { setTimeout as delay } from 'node:timers/promises';
import type { Piscina } from 'piscina';
import type { CallTableBuffer } from '../channel/call-table.js';
import { createFrameChannel, type FrameChannel } from '../channel/frame-port.js';
import { SystemClock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { type RestartPauses, RestartPolicy } from '../core/restart-policy.js';
import { createPool } from './thread-pool.js';
import type { UpstreamBuffers, UpstreamCounters } from '../ledger/upstream-counters.js';
import type { CredentialKeeper } from '../providers/credentials/credential-keeper.js';
import type { CredentialRecord } from '../providers/credentials/credential-spec.js';
import type { Log } from '../telemetry/log.js';
import { type LeftCallTable, releaseLeftCalls } from '../upstream/left-calls.js';
import { releaseBudget, type BudgetRecord } from '../upstream/worker-budget.js';
import type { ModelRoute } from '../upstream/target.js';
import type { FromUpstreamWorker, ToUpstreamWorker, UpstreamTask } from '../upstream/worker-messages.js';
import type { CounterPool } from './counter-pool.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayStateView } from './gateway-options.js';
import { newSettingsReplies, type SettingsReplies, stuckOf } from './reload.js';

/**
 * The pauses before a dead worker is replaced. Callers that retry do not notice the first. A worker that has
 * lived for a second has not died at its start. Those that do take 0.3 s of a core for each try.
 */
const WORKER_PAUSES: RestartPauses = { firstMs: 100, longestMs: 5_000, healthyMs: 1_000 };

/** How long `close` waits for workers to abort their calls and close their sockets. */
const WORKERS_CLOSE_WAIT_MS_MAX = 2_000;

interface UpstreamWorkersOptions {
  /** The number of threads. */
  readonly workers: number;
  /** Whether each listener has a worker of its own. Must be true if there are no threads. */
  readonly inListeners: boolean;
  readonly routes: readonly ModelRoute[];
  readonly calls: CallTableBuffer;
  readonly metrics: Pick<GatewayMetrics, 'buffers' | 'firstWorkerThread'>;
  /** Counts what is used of the upstreams' limits: the memory, and the main thread's access to it. */
  readonly upstreams: { readonly buffers: UpstreamBuffers; readonly counters: UpstreamCounters };
  /** The memory budget of non-streamed responses. */
  readonly responses: BudgetRecord;
  readonly leftCalls: LeftCallTable;
  readonly counter: CounterPool;
  /** Renews credentials. Gets the workers' reports of credentials that a provider rejects. */
  readonly credentials: Pick<CredentialKeeper, 'current' | 'rejected'>;
  /** Undefined if limits are not shared. */
  readonly serveLeases: ((port: MessagePort) => void) | undefined;
  /** `traces` is set if spans are exported: each new worker sends its spans there. */
  readonly state: Pick<GatewayStateView, 'traces'>;
  readonly log: Log;
}

/** The listeners: upstream-workers.ts calls listeners.ts by these methods. */
export interface WorkerClients {
  /** A worker was started. Every listener must be given a channel to it. */
  attachWorker(workerIndex: number): void;
  /** A worker has died, with its calls. */
  detachWorker(workerIndex: number): void;
}

/** What a thread gets to become a worker. */
interface WorkerStart {
  readonly task: UpstreamTask;
  readonly transferList: readonly MessagePort[];
}

/** What the main thread has of a worker. */
interface WorkerControl {
  readonly port: MessagePort;
  /** The replies to `routes`. */
  readonly replies: SettingsReplies;
  /** Closes the main thread's ends of the worker's ports. */
  close(): void;
}

/**
 * The workers with threads have the indices from 0, the listeners' own workers the indices after them, in the
 * order of the listeners. With `workers: 0`, `start` does nothing.
 */
export class UpstreamWorkers {
  readonly #options: UpstreamWorkersOptions;
  #pool: Piscina | undefined;
  readonly #controls = new Map<number, WorkerControl>();
  /** The routes that the next worker to be started gets. */
  #routes: readonly ModelRoute[];
  /** One promise for each worker with a thread, and its successors; resolves after `close`. */
  readonly #workerLoops: Promise<void>[] = [];
  /** Aborted by `close`: then no worker is started any more. */
  readonly #closing = new AbortController();

  constructor(options: UpstreamWorkersOptions) {
    this.#options = options;
    this.#routes = options.routes;
  }

  /** Starts the threads. gateway-start.ts has set the V8 flags before: a thread takes them at its start. */
  start(clients: WorkerClients): void {
    const { workers, log } = this.#options;
    if (workers === 0) return;
    this.#pool = createPool({
      entry: new URL('../upstream/upstream.worker.cjs', import.meta.url),
      threadsMin: workers,
      threadsMax: workers,
      queueMax: workers,
      idleTimeoutMs: Infinity,
    });
    this.#pool.on('error', (error: Error) => log.warn('upstream worker failed', { error: error.message }));
    for (let index = 0; index < workers; index += 1)
      this.#workerLoops.push(this.#keepAlive(index, this.#pool, clients));
  }

  /** The number of workers that run: those with threads, or with `workers: 0` the listeners' own. */
  get count(): number {
    return this.#options.workers === 0 ? this.#controls.size : this.indices.length;
  }

  /** Makes a listener's own worker, which runs in the listener's thread. Undefined if listeners have none. */
  ownWorkerOf(listenerIndex: number): WorkerStart | undefined {
    const { workers, inListeners } = this.#options;
    return inListeners ? this.#openWorker(workers + listenerIndex) : undefined;
  }

  /** To be called when a listener's thread has ended, and its own worker with the thread. */
  onListenerEnd(listenerIndex: number): void {
    this.#release(this.#options.workers + listenerIndex);
  }

  /** The indices of the workers that every listener must be connected with. A successor keeps the index. */
  get indices(): number[] {
    return [...this.#controls.keys()].filter((index) => index < this.#options.workers);
  }

  /**
   * Connects a running worker (`indices`, `attachWorker`) with a listener, in place of their earlier channel.
   * Returns the listener's end.
   */
  connect(workerIndex: number, listenerIndex: number): FrameChannel<MessagePort> {
    const [listenerEnd, workerEnd] = createFrameChannel();
    const message: ToUpstreamWorker = { kind: 'listener', index: listenerIndex, channel: workerEnd };
    const control = this.#controls.get(workerIndex);
    invariant(control !== undefined, 'a listener is connected with a worker that runs');
    control.port.postMessage(message, [workerEnd.port]);
    return listenerEnd;
  }

  /**
   * Hands new routes to all workers, also to workers that start later. Resolves with the indices of the
   * workers that did not apply them in time.
   */
  replaceRoutes(routes: readonly ModelRoute[]): Promise<number[]> {
    this.#routes = routes;
    return stuckOf(this.#controls, ({ port }, id) =>
      port.postMessage({ kind: 'routes', routes, id } satisfies ToUpstreamWorker),
    );
  }

  /**
   * Closes the breakers of that model's upstreams, or of all upstreams, and ends the pauses that their
   * Retry-After has caused. A worker that starts later begins without open breakers and pauses.
   */
  resetUpstreams(model: string | undefined): void {
    this.#sendAll({ kind: 'reset', model });
  }

  /** Hands renewed credentials to all workers. A worker that starts later gets them in its task. */
  sendCredentials(records: readonly CredentialRecord[]): void {
    this.#sendAll({ kind: 'credentials', records });
  }

  /** Ends the tasks, then the threads. To be called when the listeners have ended. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#sendAll({ kind: 'close' });
    await Promise.race([
      Promise.all(this.#workerLoops),
      delay(WORKERS_CLOSE_WAIT_MS_MAX, undefined, { ref: false }),
    ]);
    await this.#pool?.destroy();
  }

  #sendAll(message: ToUpstreamWorker): void {
    for (const { port } of this.#controls.values()) port.postMessage(message);
  }

  /** Runs a worker and its successors until `close`. */
  async #keepAlive(index: number, pool: Piscina, clients: WorkerClients): Promise<void> {
    const { signal } = this.#closing;
    // A function, so that TypeScript does not assume the value from before an `await`.
    const isClosing = (): boolean => signal.aborted;
    const policy = new RestartPolicy(new SystemClock(), WORKER_PAUSES);
    while (!isClosing()) {
      const taskEnd = this.#run(index, pool);
      policy.onReady();
      clients.attachWorker(index);
      const reason = await taskEnd;
      this.#release(index);
      if (isClosing()) return;
      const pauseMs = policy.pauseAfterExitMs();
      this.#options.log.error('upstream worker died and is being replaced; its calls were not billed', {
        worker: index,
        error: reason,
        pause_ms: pauseMs,
      });
      clients.detachWorker(index);
      // Rejects at `close`, which ends the loop.
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Closes the ports of a worker that has ended, and gives back what its calls had taken. */
  #release(index: number): void {
    const control = this.#controls.get(index);
    if (control === undefined) return;
    // The successor starts with the new routes.
    control.replies.replyToAll('applied');
    control.close();
    this.#controls.delete(index);
    this.#options.upstreams.counters.releaseWorker(index);
    releaseBudget(this.#options.responses, index);
    releaseLeftCalls(this.#options.leftCalls, index);
  }

  /** Runs the worker's task. Resolves with the reason when it has ended. */
  async #run(index: number, pool: Piscina): Promise<string> {
    const { task, transferList } = this.#openWorker(index);
    try {
      await pool.run(task, { transferList });
      return 'the task returned';
    } catch (error) {
      return error instanceof Error ? (error.stack ?? error.message) : String(error);
    }
  }

  /** Makes a worker's task, and the ports through which the main thread reaches it. */
  #openWorker(index: number): WorkerStart {
    const controlChannel = new MessageChannel();
    const counterChannel = new MessageChannel();
    this.#options.counter.serve(counterChannel.port1);
    const { serveLeases } = this.#options;
    const leaseChannel = serveLeases && new MessageChannel();
    if (leaseChannel !== undefined) serveLeases?.(leaseChannel.port1);
    const replies = newSettingsReplies();
    const close = (): void => {
      controlChannel.port1.close();
      counterChannel.port1.close();
      leaseChannel?.port1.close();
    };
    this.#controls.set(index, { port: controlChannel.port1, replies, close });
    const { workers, calls, metrics, upstreams, responses, leftCalls, credentials, state } = this.#options;
    controlChannel.port1.on('message', (message: FromUpstreamWorker) => {
      if (message.kind === 'routes_taken') replies.reply(message.id, 'applied');
      else credentials.rejected(message.position, message.generation);
    });
    const spanOutlet = state.traces?.newOutlet();
    const task: UpstreamTask = {
      index,
      routes: this.#routes,
      credentials: credentials.current,
      calls,
      metrics: metrics.buffers,
      upstreams: upstreams.buffers,
      responses,
      leftCalls,
      thread: index < workers ? metrics.firstWorkerThread + index : undefined,
      controlPort: controlChannel.port2,
      counterPort: counterChannel.port2,
      leasePort: leaseChannel?.port2,
      spanOutlet,
    };
    const ports = [controlChannel.port2, counterChannel.port2, leaseChannel?.port2, spanOutlet?.port];
    return { task, transferList: ports.filter((port) => port !== undefined) };
  }
}
