/**
 * The listener threads of a gateway: started, connected to every worker, replaced when one fails, drained.
 * Main thread.
 */
import { once } from 'node:events';
import { MessageChannel, Worker } from 'node:worker_threads';
import { setTimeout as delay } from 'node:timers/promises';
import { PendingReplies } from '../core/ask-port.js';
import { CUT_CALLS_WAIT_MS_MAX, SETTINGS_WAIT_MS_MAX } from '../core/limits.js';
import { createRequestPrefix, requestIdOf } from '../request/request-head.js';
import type { FromListener, ListenerInit, ListenerSettings, ToListener } from '../request/messages.js';
import type { CallTableBuffer } from '../channel/call-table.js';
import type { Settings } from '../config/schema.js';
import type { BodyBudgetBuffer } from '../request/body-budget.js';
import type { AccessBuffer } from '../telemetry/access-ring.js';
import { threadMemory } from './thread-pool.js';
import type { Log } from '../telemetry/log.js';
import type { Accounting } from './accounting.js';
import type { CounterPool } from './counter-pool.js';
import { GroupCommit } from './errands.js';
import type { GatewayLogs } from './gateway-logs.js';
import type { GatewayMetrics } from './gateway-metrics.js';
import type { GatewayState } from './gateway-options.js';
import type { UpstreamWorkers, WorkerClients } from './pools.js';

/**
 * More deaths than this within DEATHS_WINDOW_MS are no accident: the process ends, and the supervisor paces
 * its restarts.
 */
const DEATHS_MAX = 5;
const DEATHS_WINDOW_MS = 60_000;
/** What a listener gets to cut its connections and settle their calls before its thread is given up. */
const CLOSE_MS = CUT_CALLS_WAIT_MS_MAX + 1_000;

/** The same in every life of a listener. */
type ListenerShape = Omit<
  ListenerInit,
  'parserPort' | 'claimPort' | 'leasePort' | 'port' | 'requestPrefix' | 'settings' | 'tracing'
>;

export interface ListenersOptions {
  /** As they were at the start. */
  readonly settings: Settings;
  /** What requests are served by until `replaceSettings`. */
  readonly listenerSettings: ListenerSettings;
  readonly accounting: Accounting;
  readonly workers: UpstreamWorkers;
  readonly counter: CounterPool;
  readonly calls: CallTableBuffer;
  readonly bodies: BodyBudgetBuffer;
  /** One a listener. */
  readonly accessRings: readonly AccessBuffer[];
  readonly logs: GatewayLogs;
  readonly requestIds: RequestIds;
  readonly metrics: GatewayMetrics;
  /** A new listener leaves its spans there, if they are exported. */
  readonly state: Pick<GatewayState, 'traces'>;
  readonly log: Log;
  /** Listeners can't be kept alive. */
  readonly onHopeless: (reason: string) => void;
}

/**
 * What the ids of a listener's requests begin with, by index of the listener, in its present life or its
 * last.
 */
export class RequestIds {
  readonly #prefixes = new Map<number, string>();

  /** A new life of the listener begins. */
  newPrefix(listenerIndex: number): string {
    const prefix = createRequestPrefix();
    this.#prefixes.set(listenerIndex, prefix);
    return prefix;
  }

  readonly idOf = (listenerIndex: number, request: number): string =>
    requestIdOf(this.#prefixes.get(listenerIndex) ?? '', request);
}

interface Listener {
  readonly thread: Worker;
  /** Whether the listener has taken new settings. */
  readonly taken: PendingReplies<boolean>;
  drained: boolean;
}

export class Listeners implements WorkerClients {
  readonly #options: ListenersOptions;
  readonly #listeners = new Map<number, Listener>();
  /** What a listener that is started now gets. */
  #settings: ListenerSettings;
  readonly #commits: GroupCommit;
  #port = 0;
  #deathsAtMs: number[] = [];
  #draining = false;
  #onDrained: () => void = () => undefined;

  constructor(options: ListenersOptions) {
    this.#options = options;
    this.#settings = options.listenerSettings;
    this.#commits = new GroupCommit(
      () => options.accounting.flush.commit(),
      (listenerIndex, ok) => this.#send(listenerIndex, { kind: 'committed', ok }),
    );
  }

  /** Resolves when all of them listen on `port`; throws if one can't. */
  async start(port: number): Promise<void> {
    this.#port = port;
    const { listeners } = this.#options.settings.listen;
    await Promise.all(Array.from({ length: listeners }, (_, index) => this.#start(this.#shapeOf(index))));
  }

  get count(): number {
    return this.#listeners.size;
  }

  attachWorker(workerIndex: number): void {
    for (const [index, { thread }] of this.#listeners) this.#attach(thread, index, workerIndex);
  }

  detachWorker(workerIndex: number): void {
    this.#sendAll({ kind: 'worker_lost', index: workerIndex });
  }

  /**
   * Requests are served by these from now on, also by listeners that are started later. Resolves when every
   * listener has taken them, with the indices of those that have not in time.
   */
  async replaceSettings(settings: ListenerSettings): Promise<number[]> {
    this.#settings = settings;
    const listeners = [...this.#listeners];
    const taken = await Promise.all(
      listeners.map(([, { thread, taken }]) =>
        taken.ask((turn) => thread.postMessage({ kind: 'settings', settings, turn } satisfies ToListener)),
      ),
    );
    return listeners.flatMap(([index], at) => (taken[at] ? [] : [index]));
  }

  /**
   * Stops accepting; true when every call has ended, false if `timeoutMs` passed before. With `keepsIdle`
   * connections at rest are waited for too.
   */
  async drain(timeoutMs: number, keepsIdle: boolean): Promise<boolean> {
    this.#draining = true;
    const drained = new Promise<boolean>((resolve) => (this.#onDrained = () => resolve(true)));
    this.#sendAll({ kind: 'drain', keepsIdle });
    this.#noteDrained();
    return Promise.race([drained, delay(timeoutMs, false, { ref: false })]);
  }

  /** After `drain`: the same for calls alone that have begun since, which have their own time. */
  drainLate(timeoutMs: number): Promise<boolean> {
    const drained = new Promise<boolean>((resolve) => (this.#onDrained = () => resolve(true)));
    this.#sendAll({ kind: 'drain_late' });
    this.#noteDrained();
    return Promise.race([drained, delay(timeoutMs, false, { ref: false })]);
  }

  /** Cuts what is left, and ends the threads once what was delivered is in their journals. */
  async close(): Promise<void> {
    this.#draining = true;
    const exits = [...this.#listeners.values()].map(({ thread }) => once(thread, 'exit'));
    this.#sendAll({ kind: 'close' });
    await Promise.race([Promise.all(exits), delay(CLOSE_MS, undefined, { ref: false })]);
  }

  #shapeOf(index: number): ListenerShape {
    const { settings, accounting, calls, bodies, accessRings, metrics } = this.#options;
    const { buffers, slotsPerListener } = accounting.base;
    return {
      index,
      host: settings.listen.host,
      slots: { first: index * slotsPerListener, count: slotsPerListener },
      ledger: buffers.ledger,
      journal: buffers.journals[index]!,
      accessLog: accessRings[index]!,
      keys: buffers.keys,
      calls,
      bodies,
      metrics: metrics.buffers,
      thread: metrics.threadOfListener(index),
      storedResponseBytesMax: settings.idempotency.answer_bytes,
    };
  }

  async #start(shape: ListenerShape): Promise<void> {
    const { accounting, counter, requestIds, state, workers } = this.#options;
    const parser = new MessageChannel();
    counter.serve(parser.port1);
    const claims = new MessageChannel();
    accounting.locks.attach(shape.index, claims.port1);
    const { serveLeases } = accounting.sharing;
    const leases = serveLeases && new MessageChannel();
    if (leases !== undefined) serveLeases?.(leases.port1);
    const requestPrefix = requestIds.newPrefix(shape.index);
    const tracing = state.traces?.newListenerTracing();
    const init: ListenerInit = {
      ...shape,
      settings: this.#settings,
      port: this.#port,
      parserPort: parser.port2,
      claimPort: claims.port2,
      leasePort: leases?.port2,
      requestPrefix,
      tracing,
    };
    const thread = new Worker(new URL('../request/listener.thread.js', import.meta.url), {
      workerData: init,
      transferList: [parser.port2, claims.port2, leases?.port2, tracing?.outlet.port].filter(
        (port) => port !== undefined,
      ),
      name: `listener-${shape.index}`,
      resourceLimits: threadMemory(),
    });
    thread.on('error', (error) =>
      this.#options.log.error('listener failed', { listener: shape.index, error: error.stack }),
    );
    thread.on('exit', () => this.#onExit(shape));
    const taken = new PendingReplies({ waitMsMax: SETTINGS_WAIT_MS_MAX, onTimeout: () => false });
    const listener: Listener = { thread, taken, drained: false };
    this.#listeners.set(shape.index, listener);
    for (const workerIndex of workers.indices) this.#attach(thread, shape.index, workerIndex);

    await new Promise<void>((resolve, reject) => {
      thread.once('exit', () => reject(new Error(`Listener ${shape.index} ended while it started`)));
      thread.on('message', (message: FromListener) => {
        switch (message.kind) {
          case 'listening':
            resolve();
            return;
          case 'listen_failed':
            reject(new Error(`Listener ${shape.index} cannot listen on ${shape.host}:${this.#port}`));
            return;
          case 'drained':
            listener.drained = true;
            this.#noteDrained();
            return;
          case 'settings_taken':
            taken.reply(message.turn, true);
            return;
          case 'commit':
            this.#commits.ask(shape.index);
            return;
          case 'journal_half_full':
            accounting.flush.drain();
        }
      });
    });
  }

  #attach(thread: Worker, listenerIndex: number, workerIndex: number): void {
    const channel = this.#options.workers.connect(workerIndex, listenerIndex);
    thread.postMessage({ kind: 'worker', index: workerIndex, channel } satisfies ToListener, [channel.port]);
  }

  #onExit(shape: ListenerShape): void {
    // The listener that follows starts with what is new.
    this.#listeners.get(shape.index)?.taken.replyToAll(true);
    this.#listeners.delete(shape.index);
    // Before another takes its ring and its slots.
    this.#options.logs.drain();
    this.#options.accounting.releaseListener(shape.index);
    if (this.#draining) {
      this.#noteDrained();
      return;
    }
    const now = performance.now();
    this.#deathsAtMs = [...this.#deathsAtMs.filter((at) => now - at < DEATHS_WINDOW_MS), now];
    if (this.#deathsAtMs.length > DEATHS_MAX) {
      this.#options.onHopeless(`listeners died ${this.#deathsAtMs.length} times within a minute`);
      return;
    }
    this.#options.log.warn('listener is being replaced', { listener: shape.index });
    this.#start(shape).catch((error: unknown) => this.#options.onHopeless(String(error)));
  }

  #send(listenerIndex: number, message: ToListener): void {
    this.#listeners.get(listenerIndex)?.thread.postMessage(message);
  }

  #sendAll(message: ToListener): void {
    for (const { thread } of this.#listeners.values()) thread.postMessage(message);
  }

  #noteDrained(): void {
    if (this.#draining && [...this.#listeners.values()].every(({ drained }) => drained)) this.#onDrained();
  }
}
