/**
 * The listener threads of a gateway: starts them, connects each with every worker, hands them new settings,
 * drains them, and replaces a listener that dies. gateway.ts owns a Listeners, on the main thread of a
 * gateway process; upstream-workers.ts calls `attachWorker` and `detachWorker`.
 *
 * Must hold: a dead listener's journal (`releaseListener` of accounting.ts) and call ring are drained before
 * its successor uses the same memory; otherwise its last charges are lost and its holds stay
 * (test/e2e/books.test.ts). A listener's death, also that of a successor which does not listen yet, ends the
 * process only as DEATHS_MAX says (test/e2e/thread-failure.test.ts). There is no unit test.
 */
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import { setTimeout as delay } from 'node:timers/promises';
import { CUT_CALLS_WAIT_MS_MAX } from '../core/limits.js';
import { createRequestPrefix } from '../request/request-head.js';
import type { FromListener, ListenerInit, ListenerSettings, ToListener } from '../request/messages.js';
import type { CallTableBuffer } from '../channel/call-table.js';
import type { Settings } from '../config/schema.js';
import type { BodyBudgetBuffer } from '../request/body-budget.js';
import type { CallRingBuffer } from '../telemetry/call-ring-layout.js';
import type { ContentsBudgetBuffer } from '../telemetry/contents-budget.js';
import { threadMemory } from './thread-pool.js';
import type { Log } from '../telemetry/log.js';
import type { Accounting } from './accounting.js';
import type { CounterPool } from './counter-pool.js';
import { GroupCommit } from './group-requests.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayStateView } from './gateway-options.js';
import type { ListenerWithWorkerInit } from './listener-with-worker.thread.js';
import { newSettingsReplies, type SettingsReplies, stuckOf } from './reload.js';
import type { UpstreamWorkers, WorkerClients } from './upstream-workers.js';

/** If more listeners die within DEATHS_WINDOW_MS, the process ends, and the supervisor paces its restarts. */
const DEATHS_MAX = 5;
const DEATHS_WINDOW_MS = 60_000;
/** A listener listens after some 0.1 s. A successor that hangs in its start is given up after this time. */
const SUCCESSOR_MS_MAX = 60_000;
/** How long `close` waits for listeners to cut their connections and settle their calls. */
const CLOSE_WAIT_MS_MAX = CUT_CALLS_WAIT_MS_MAX + 1_000;

/** The members of a listener's `workerData` that its successors get too. */
type FixedInit = Omit<
  ListenerInit,
  'parserPort' | 'lockPort' | 'cachePort' | 'leasePort' | 'port' | 'requestPrefix' | 'settings' | 'tracing'
>;

/** What a listener sends once it listens. The start deals with the two other kinds. */
type MessageOfListener = Exclude<FromListener, { readonly kind: 'listening' | 'listen_failed' }>;

interface ListenersOptions {
  /** The settings of the start. */
  readonly settings: Settings;
  /** What listeners work with until `replaceSettings`. */
  readonly listenerSettings: ListenerSettings;
  readonly accounting: Accounting;
  readonly workers: UpstreamWorkers;
  readonly counter: CounterPool;
  readonly calls: CallTableBuffer;
  readonly bodies: BodyBudgetBuffer;
  readonly callRings: readonly CallRingBuffer[];
  /** The memory budget for contents of each listener's calls, by index. */
  readonly contentsBudgets: readonly ContentsBudgetBuffer[];
  readonly logs: GatewayLogs;
  /**
   * What the request ids of each listener begin with, by its index. Each start of the thread sets a new
   * prefix.
   */
  readonly requestPrefixes: Map<number, string>;
  readonly metrics: GatewayMetrics;
  /** Has the traces, if spans are exported; each new listener sends its spans there. */
  readonly state: Pick<GatewayStateView, 'traces'>;
  readonly log: Log;
  /** Called if listeners die again and again, or cannot be replaced: the process must end. */
  readonly onFatal: (reason: string) => void;
}

interface Listener {
  readonly thread: Worker;
  /** The replies to `settings`. */
  readonly replies: SettingsReplies;
  isDrained: boolean;
}

export class Listeners implements WorkerClients {
  readonly #options: ListenersOptions;
  readonly #listeners = new Map<number, Listener>();
  /** The settings that the next listener to be started gets. */
  #settings: ListenerSettings;
  readonly #commits: GroupCommit;
  #port = 0;
  #deathTimesMs: number[] = [];
  #isDraining = false;
  /** Ends the wait of `#sendDrain`, which sets the function. */
  #onDrained: () => void = () => undefined;

  constructor(options: ListenersOptions) {
    this.#options = options;
    this.#settings = options.listenerSettings;
    this.#commits = new GroupCommit(
      () => options.accounting.flush.commit(),
      (listenerIndex, ok) => this.#send(listenerIndex, { kind: 'committed', ok }),
    );
  }

  /** Resolves when all listeners listen on `port`. Rejects if one of them cannot. */
  async start(port: number): Promise<void> {
    this.#port = port;
    const { listeners } = this.#options.settings.listen;
    const indices = [...Array(listeners).keys()];
    await Promise.all(indices.map((index) => this.#start(this.#fixedOf(index), 'first')));
  }

  get count(): number {
    return this.#listeners.size;
  }

  // upstream-workers.ts calls these two when a worker has started, and when it has ended.
  attachWorker(workerIndex: number): void {
    for (const [index, { thread }] of this.#listeners) this.#connectWorker(thread, index, workerIndex);
  }

  detachWorker(workerIndex: number): void {
    this.#sendAll({ kind: 'worker_lost', index: workerIndex });
  }

  /**
   * Hands new settings to all listeners, also to listeners that start later. Resolves with the indices of the
   * listeners that did not apply them in time.
   */
  replaceSettings(settings: ListenerSettings): Promise<number[]> {
    this.#settings = settings;
    return stuckOf(this.#listeners, ({ thread }, id) =>
      thread.postMessage({ kind: 'settings', settings, id } satisfies ToListener),
    );
  }

  /** Removes the cached responses of that model, or all, from the listeners' memory. */
  clearCache(modelId: string | undefined): void {
    this.#sendAll({ kind: 'clear_cache', modelId });
  }

  /**
   * Stops accepting; to be called once. Resolves with true when every call has ended, or false after
   * `timeoutMs`. With `keepsIdle` it also waits for idle connections to close.
   */
  drain(timeoutMs: number, { keepsIdle }: { readonly keepsIdle: boolean }): Promise<boolean> {
    this.#isDraining = true;
    return this.#sendDrain({ kind: 'drain', keepsIdle }, timeoutMs);
  }

  /**
   * To be called if `drain` with `keepsIdle` has resolved with false: waits for calls that have begun since,
   * for `timeoutMs` at most. Resolves with true if all these calls have ended. A listener that was drained
   * before has no connection left, so no call can begin there.
   */
  drainLate(timeoutMs: number): Promise<boolean> {
    return this.#sendDrain({ kind: 'drain_late' }, timeoutMs);
  }

  /** Resolves with true when all listeners are drained, or with false after `timeoutMs`. */
  #sendDrain(message: ToListener, timeoutMs: number): Promise<boolean> {
    const allDrained = new Promise<boolean>((resolve) => (this.#onDrained = () => resolve(true)));
    this.#sendAll(message);
    // Needed if all listeners are drained already or have ended: then no message comes any more.
    this.#checkDrained();
    return Promise.race([allDrained, delay(timeoutMs, false, { ref: false })]);
  }

  /**
   * Cuts the remaining calls and ends the threads, which first write their last calls to the journals.
   * Resolves with false, after CLOSE_WAIT_MS_MAX, if a thread has not ended: what it writes then is lost.
   */
  async close(): Promise<boolean> {
    this.#isDraining = true;
    // `once` of node:events would reject if a thread fails while it ends: then there would be no last flush.
    const exits = [...this.#listeners.values()].map(
      ({ thread }) => new Promise<unknown>((resolve) => thread.once('exit', resolve)),
    );
    this.#sendAll({ kind: 'close' });
    const haveEnded = await Promise.race([
      Promise.all(exits).then(() => true),
      delay(CLOSE_WAIT_MS_MAX, false, { ref: false }),
    ]);
    if (!haveEnded)
      this.#options.log.error('listeners did not end in time: charges of their last calls may be lost', {
        listeners: [...this.#listeners.keys()].join(', '),
        waited_ms: CLOSE_WAIT_MS_MAX,
      });
    return haveEnded;
  }

  /** Chooses a listener's memory and call slots by its index, so that a successor gets the same. */
  #fixedOf(index: number): FixedInit {
    const { settings, accounting, calls, bodies, callRings, contentsBudgets, metrics } = this.#options;
    const { buffers, slotsOf } = accounting.base;
    return {
      index,
      host: settings.listen.host,
      slots: slotsOf(index),
      ledger: buffers.ledger,
      journal: buffers.journals[index]!,
      callRing: callRings[index]!,
      contentsBudget: contentsBudgets[index]!,
      keys: buffers.keys,
      groupNames: buffers.groupNames,
      calls,
      bodies,
      metrics: metrics.buffers,
      thread: metrics.threadOfListener(index),
      storedResponseBytesMax: settings.idempotency.answer_bytes,
    };
  }

  /**
   * Starts a listener: the `first` of its index, or a `successor`. Resolves when it listens, and rejects if
   * the port cannot be opened. If the thread ends before it listens, the start of the first rejects; that of
   * a successor resolves, because `#onExit` starts the next successor. The main thread's ends of the
   * listener's message ports close when the thread ends.
   */
  async #start(fixedInit: FixedInit, which: 'first' | 'successor'): Promise<void> {
    const { workers } = this.#options;
    const { init, ports } = this.#connectServices(fixedInit);
    const ownWorker = workers.ownWorkerOf(fixedInit.index);
    const entry =
      ownWorker === undefined
        ? new URL('../request/listener.thread.js', import.meta.url)
        : new URL('../gateway/listener-with-worker.thread.js', import.meta.url);
    const thread = new Worker(entry, {
      workerData: {
        ...init,
        ownWorker: ownWorker && {
          task: ownWorker.task,
          loadMax: this.#options.settings.workers_from_load_percent / 100,
        },
      } satisfies ListenerWithWorkerInit,
      transferList: [...ports, ...(ownWorker?.transferList ?? [])],
      name: `listener-${fixedInit.index}`,
      resourceLimits: threadMemory(),
    });
    thread.on('error', (error) =>
      this.#options.log.error('listener failed', { listener: fixedInit.index, error: error.stack }),
    );
    // Whether the listener gets a successor if it dies. A first start that fails ends the gateway instead.
    let isReplacedOnExit = which === 'successor';
    thread.on('exit', () => this.#onExit(fixedInit, isReplacedOnExit));
    const listener: Listener = { thread, replies: newSettingsReplies(), isDrained: false };
    this.#listeners.set(fixedInit.index, listener);
    for (const workerIndex of workers.indices) this.#connectWorker(thread, fixedInit.index, workerIndex);

    await new Promise<void>((resolve, reject) => {
      thread.once('exit', () => {
        if (which === 'successor') resolve();
        else reject(new Error(`Listener ${fixedInit.index} ended while it started`));
      });
      thread.on('message', (message: FromListener) => {
        if (message.kind === 'listening') {
          isReplacedOnExit = true;
          resolve();
        } else if (message.kind === 'listen_failed')
          reject(new Error(`Listener ${fixedInit.index} cannot listen on ${fixedInit.host}:${this.#port}`));
        else this.#onMessage(fixedInit.index, listener, message);
      });
    });
  }

  /**
   * Connects a new thread with the services that it asks, each by a MessageChannel. Returns the thread's
   * `workerData`, and the ports in it, which must be transferred.
   */
  #connectServices(fixedInit: FixedInit): {
    readonly init: ListenerInit;
    readonly ports: readonly MessagePort[];
  } {
    const { accounting, counter, requestPrefixes, state } = this.#options;
    const { index } = fixedInit;
    const { serveLeases } = accounting.sharing;
    const ports = {
      parserPort: servedPort((port) => counter.serve(port)),
      lockPort: servedPort((port) => accounting.locks.attach(index, port)),
      cachePort: servedPort((port) => accounting.cache.attach(index, port)),
      // Undefined if limits are not shared.
      leasePort: serveLeases && servedPort(serveLeases),
    };
    const tracing = state.traces?.newListenerTracing();
    const requestPrefix = createRequestPrefix();
    requestPrefixes.set(index, requestPrefix);
    const init: ListenerInit = {
      ...fixedInit,
      ...ports,
      settings: this.#settings,
      port: this.#port,
      requestPrefix,
      tracing,
    };
    const allPorts = [...Object.values(ports), tracing?.outlet.port];
    return { init, ports: allPorts.filter((each) => each !== undefined) };
  }

  #onMessage(index: number, listener: Listener, message: MessageOfListener): void {
    switch (message.kind) {
      case 'drained':
        listener.isDrained = true;
        this.#checkDrained();
        return;
      case 'settings_taken':
        listener.replies.reply(message.id, 'applied');
        return;
      case 'contents':
        this.#options.logs.appendContents(message.bytes, index);
        return;
      case 'commit':
        this.#commits.ask(index);
        return;
      case 'journal_half_full':
        this.#options.accounting.flush.drain();
        return;
    }
    message satisfies never;
  }

  /** Gives a listener a new channel to a worker. */
  #connectWorker(thread: Worker, listenerIndex: number, workerIndex: number): void {
    const channel = this.#options.workers.connect(workerIndex, listenerIndex);
    thread.postMessage({ kind: 'worker', index: workerIndex, channel } satisfies ToListener, [channel.port]);
  }

  /** Frees what the listener had. Starts a successor unless the gateway drains or too many listeners die. */
  #onExit(fixedInit: FixedInit, isReplacedOnExit: boolean): void {
    const { logs, workers, accounting } = this.#options;
    // The successor starts with the new settings.
    this.#listeners.get(fixedInit.index)?.replies.replyToAll('applied');
    this.#listeners.delete(fixedInit.index);
    // All four come before the successor uses the same rings, memory budget and call slots.
    logs.drain();
    logs.onListenerEnd(fixedInit.index);
    workers.onListenerEnd(fixedInit.index);
    accounting.releaseListener(fixedInit.index);
    if (this.#isDraining) {
      this.#checkDrained();
      return;
    }
    if (!isReplacedOnExit) return;
    const nowMs = performance.now();
    this.#deathTimesMs = [...this.#deathTimesMs.filter((atMs) => nowMs - atMs < DEATHS_WINDOW_MS), nowMs];
    if (this.#deathTimesMs.length > DEATHS_MAX) {
      this.#options.onFatal(`listeners died ${this.#deathTimesMs.length} times within a minute`);
      return;
    }
    this.#options.log.warn('listener is being replaced', { listener: fixedInit.index });
    // A gateway that stops needs no successor.
    const giveUp = (reason: string): void => {
      if (!this.#isDraining) this.#options.onFatal(reason);
    };
    const lateTimer = setTimeout(
      () => giveUp(`listener ${fixedInit.index} did not listen within ${SUCCESSOR_MS_MAX} ms`),
      SUCCESSOR_MS_MAX,
    ).unref();
    this.#start(fixedInit, 'successor')
      .catch((error: unknown) => giveUp(String(error)))
      .finally(() => clearTimeout(lateTimer));
  }

  #send(listenerIndex: number, message: ToListener): void {
    this.#listeners.get(listenerIndex)?.thread.postMessage(message);
  }

  #sendAll(message: ToListener): void {
    for (const { thread } of this.#listeners.values()) thread.postMessage(message);
  }

  /** Ends the wait of `#sendDrain` if all listeners that run are drained. */
  #checkDrained(): void {
    if (this.#isDraining && [...this.#listeners.values()].every(({ isDrained }) => isDrained))
      this.#onDrained();
  }
}

/** Makes a channel, hands one port to its service on this thread, and returns the other. */
function servedPort(serve: (port: MessagePort) => void): MessagePort {
  const { port1, port2 } = new MessageChannel();
  serve(port1);
  return port2;
}
