/**
 * The listener threads of a gateway: started, connected to every worker, replaced when one fails, drained. Main thread.
 */
import { once } from 'node:events';
import { MessageChannel, Worker, type MessagePort } from 'node:worker_threads';
import { setTimeout as delay } from 'node:timers/promises';
import { PendingReplies } from '../core/ask-port.js';
import { CUT_CALLS_WAIT_MS_MAX, SETTINGS_WAIT_MS_MAX } from '../core/limits.js';
import { createRequestPrefix, requestIdOf } from '../request/request-head.js';
import type {
  FromListener,
  ListenerInit,
  ListenerSettings,
  ListenerTracing,
  ToListener,
} from '../request/messages.js';
import type { FrameChannel } from '../channel/frame-port.js';
import { threadMemory } from './thread-pool.js';
import type { Log } from '../telemetry/log.js';

/** More deaths than this within DEATHS_WINDOW_MS are no accident: the process ends, and the supervisor paces its restarts. */
const DEATHS_MAX = 5;
const DEATHS_WINDOW_MS = 60_000;
/** What a listener gets to cut its connections and settle their calls before its thread is given up. */
const CLOSE_MS = CUT_CALLS_WAIT_MS_MAX + 1_000;

export type ListenerShape = Omit<
  ListenerInit,
  'parserPort' | 'claimPort' | 'leasePort' | 'port' | 'requestPrefix' | 'settings' | 'tracing'
>;

export interface ListenersOptions {
  /** One a listener, by index. */
  readonly shapes: readonly ListenerShape[];
  readonly settings: ListenerSettings;
  readonly log: Log;
  /** Workers that are up, for a new listener. */
  readonly workerIndices: () => readonly number[];
  readonly connect: (workerIndex: number, listenerIndex: number) => FrameChannel;
  readonly serveParser: (port: MessagePort) => void;
  /** Where a new listener leaves its spans, if they are exported. */
  readonly newTracing: () => ListenerTracing | undefined;
  readonly serveClaims: (listenerIndex: number, port: MessagePort) => void;
  /** Where limits are shared: answers a listener that waits for leases. */
  readonly serveLeases: ((port: MessagePort) => void) | undefined;
  /** A listener has died; what its calls held must be released before another takes its slots. */
  readonly onLost: (shape: ListenerShape) => void;
  /** Ends of responses wait for what is in the listener's journal; `answerCommit` follows. */
  readonly onCommitAsked: (listenerIndex: number) => void;
  readonly onJournalHalfFull: () => void;
  /** Listeners can't be kept alive. */
  readonly onHopeless: (reason: string) => void;
}

interface Listener {
  readonly thread: Worker;
  /** Whether the listener has taken new settings. */
  readonly taken: PendingReplies<boolean>;
  drained: boolean;
}

export class Listeners {
  readonly #options: ListenersOptions;
  readonly #listeners = new Map<number, Listener>();
  /** By index of the listener, of its present life or its last. */
  readonly #requestPrefixes = new Map<number, string>();
  /** What a listener that is started now gets. */
  #settings: ListenerSettings;
  #port = 0;
  #deathsAtMs: number[] = [];
  #draining = false;
  #onDrained: () => void = () => undefined;

  constructor(options: ListenersOptions) {
    this.#options = options;
    this.#settings = options.settings;
  }

  /** Resolves when all of them listen on `port`; throws where one can't. */
  async start(port: number): Promise<void> {
    this.#port = port;
    await Promise.all(this.#options.shapes.map((shape) => this.#start(shape)));
  }

  get count(): number {
    return this.#listeners.size;
  }

  attachWorker(workerIndex: number): void {
    for (const [index, { thread }] of this.#listeners) this.#attach(thread, index, workerIndex);
  }

  detachWorker(workerIndex: number): void {
    for (const { thread } of this.#listeners.values()) {
      thread.postMessage({ kind: 'worker_lost', index: workerIndex } satisfies ToListener);
    }
  }

  /** Of a request of the listener that has that index, or had it last. */
  requestIdOf(listenerIndex: number, request: number): string {
    return requestIdOf(this.#requestPrefixes.get(listenerIndex) ?? '', request);
  }

  /** What was in the listener's journal is on disk, or the store fails. */
  answerCommit(listenerIndex: number, ok: boolean): void {
    this.#listeners.get(listenerIndex)?.thread.postMessage({ kind: 'committed', ok } satisfies ToListener);
  }

  /**
   * Requests are served by these from now on, also by listeners that are started later. Resolves when every listener has
   * taken them, with the indices of those that have not in time.
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
   * Stops accepting; true when every call has ended, false where `timeoutMs` passed before. With `keepsIdle` connections at
   * rest are waited for too.
   */
  async drain(timeoutMs: number, keepsIdle: boolean): Promise<boolean> {
    this.#draining = true;
    const drained = new Promise<boolean>((resolve) => (this.#onDrained = () => resolve(true)));
    for (const { thread } of this.#listeners.values())
      thread.postMessage({ kind: 'drain', keepsIdle } satisfies ToListener);
    this.#noteDrained();
    return Promise.race([drained, delay(timeoutMs, false, { ref: false })]);
  }

  /** After `drain`: the same for calls alone that have begun since, which have their own time. */
  drainLate(timeoutMs: number): Promise<boolean> {
    const drained = new Promise<boolean>((resolve) => (this.#onDrained = () => resolve(true)));
    for (const { thread } of this.#listeners.values())
      thread.postMessage({ kind: 'drain_late' } satisfies ToListener);
    this.#noteDrained();
    return Promise.race([drained, delay(timeoutMs, false, { ref: false })]);
  }

  /** Cuts what is left, and ends the threads once what was delivered is in their journals. */
  async close(): Promise<void> {
    this.#draining = true;
    const exits = [...this.#listeners.values()].map(({ thread }) => {
      const exit = once(thread, 'exit');
      thread.postMessage({ kind: 'close' } satisfies ToListener);
      return exit;
    });
    await Promise.race([Promise.all(exits), delay(CLOSE_MS, undefined, { ref: false })]);
  }

  async #start(shape: ListenerShape): Promise<void> {
    const parser = new MessageChannel();
    this.#options.serveParser(parser.port1);
    const claims = new MessageChannel();
    this.#options.serveClaims(shape.index, claims.port1);
    const leases = this.#options.serveLeases && new MessageChannel();
    if (leases !== undefined) this.#options.serveLeases?.(leases.port1);
    const requestPrefix = createRequestPrefix();
    this.#requestPrefixes.set(shape.index, requestPrefix);
    const tracing = this.#options.newTracing();
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
    for (const workerIndex of this.#options.workerIndices()) this.#attach(thread, shape.index, workerIndex);

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
            this.#options.onCommitAsked(shape.index);
            return;
          case 'journal_half_full':
            this.#options.onJournalHalfFull();
        }
      });
    });
  }

  #attach(thread: Worker, listenerIndex: number, workerIndex: number): void {
    const channel = this.#options.connect(workerIndex, listenerIndex);
    thread.postMessage({ kind: 'worker', index: workerIndex, channel } satisfies ToListener, [channel.port]);
  }

  #onExit(shape: ListenerShape): void {
    // The listener that follows starts with what is new.
    this.#listeners.get(shape.index)?.taken.replyToAll(true);
    this.#listeners.delete(shape.index);
    this.#options.onLost(shape);
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

  #noteDrained(): void {
    if (this.#draining && [...this.#listeners.values()].every(({ drained }) => drained)) this.#onDrained();
  }
}
