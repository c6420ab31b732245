/**
 * The response cache on the main thread: it keeps responses on disk, and lets one listener at a time make a
 * call that several callers wait for (single flight). accounting.ts creates it. Listeners ask it over their
 * ports (channel/cache-messages.ts), and cache responses in their own memory too.
 *
 *     no response → in progress (at a listener) → waits for the disk → stored → none (expired, or the oldest)
 *                       └→ no response (failed, not to be kept, or the listener died)
 *
 * A cached response can be made again. So it is written in a transaction of its own after the flush, and
 * dropped if the disk is full; the accounting never waits for the cache. Its record has a digest of response
 * and key, because LMDB has no checksums: a damaged or misplaced record matches no key.
 *
 * Must hold (test/unit/request/response-cache.test.ts, both sides of the port;
 * test/fuzz/stored-responses.test.ts):
 * - A listener that waits for another listener's call gets a reply however that call ends, or its caller
 *   hangs.
 * - What was cleared is served no more, and is removed from the disk as soon as the disk allows it: the next
 *   process would serve it.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { MessagePort } from 'node:worker_threads';
import type { AskReply, Question, Withdrawal } from '../core/ask-port.js';
import { isWithin } from '../core/retention.js';
import type { Clock } from '../core/clock.js';
import type { CacheMessage, CacheReply, CachedResponse } from '../channel/cache-messages.js';
import { asWallMs } from '../core/units.js';
import {
  CACHED_ROW_BYTES,
  modelOfCacheKey,
  nameOfResponse,
  type ResponseKey,
  type ResponseRecord,
} from '../registry/stored-response.js';
import { type CacheRule, cacheRulesOf, type Catalog } from '../registry/catalog.js';
import { isRowError } from '../store/record-codec.js';
import { EXPIRY_PAUSE_MS, type ResponseBounds, type ResponseTable } from '../store/response-table.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';

/** Bytes that may wait for the disk, whose commit takes some 50 ms. Beyond them responses are not stored. */
const UNWRITTEN_BYTES_MAX = 16 * 1024 * 1024;
/** Free bytes that a disk needs besides those of responses, for the pages that a commit copies. */
const FREE_BYTES_MIN = 1024 * 1024;
/** How many keys are read in one event-loop turn when the responses of one model are removed: some ms. */
const CLEARED_KEYS_A_TURN = 1_000;
/** How often expired responses are removed, and cleared ones that could not be removed before. */
const SWEEP_PERIOD_MS = 60_000;

interface CacheServiceOptions {
  readonly store: Pick<Store, 'commit' | 'freeBytes'> & { readonly cached: ResponseTable };
  readonly clock: Clock;
  readonly log: Log;
}

/** A call that a listener makes, and the questions of other listeners that wait for its response. */
interface CallInProgress {
  readonly key: ResponseKey;
  readonly listener: number;
  /** The id of that listener's question, which got `lead`. */
  readonly id: number;
  /** Usually one question of each other listener, in which the other requests wait for its reply. */
  readonly waiting: { readonly port: MessagePort; readonly id: number }[];
}

type StoreAccess = 'read' | 'write';
type ListenerMessage = Question<ResponseKey> | Withdrawal | CacheMessage;
type KeepMessage = Extract<CacheMessage, { readonly kind: 'keep' }>;

export class CacheService {
  readonly #options: CacheServiceOptions;
  /** This thread's ends of the listeners' ports, by the listener's index. */
  readonly #ports = new Map<number, MessagePort>();
  /** Calls in progress, by the names of their responses (`nameOfResponse`). */
  readonly #inProgress = new Map<string, CallInProgress>();
  /** Responses that are not on disk yet, by their names. */
  readonly #unwritten = new Map<string, ResponseRecord>();
  #unwrittenBytes = 0;
  /** When all responses were cleared. Responses that ended before are not served. */
  #clearedMs = -Infinity;
  /** When the responses of a model were cleared, by its id. */
  readonly #clearedModels = new Map<string, number>();
  /** The models whose cleared responses could not be removed from the disk; undefined: all models. */
  readonly #unremoved = new Set<string | undefined>();
  /** How many removals run that take several event-loop turns. Their models are not in `#unremoved`. */
  #removals = 0;
  /** When the removal of `#unremoved` was last tried; monotonic. */
  #removalTriedMs = -Infinity;
  /** By the id of each model with a cache. */
  #rules: ReadonlyMap<string, CacheRule> = new Map();
  /** How many bytes all responses may take on disk. */
  #bytesMax = 0;
  /** When the last removal of expired responses began; monotonic. */
  #sweptMs: number;
  #isClosed = false;
  /** Whether reads fail now, and whether writes do: each is logged once, until the same succeeds. */
  readonly #failing = new Set<StoreAccess>();

  constructor(options: CacheServiceOptions) {
    this.#options = options;
    this.#sweptMs = options.clock.monotonicMs();
  }

  /**
   * Called at the start and at each reload. Removes the responses of models whose upstreams or cache settings
   * have changed.
   */
  applySettings(catalog: Catalog, bytesMax: number): void {
    const rules = cacheRulesOf(catalog);
    for (const [id, { revision }] of this.#rules)
      if (rules.get(id)?.revision !== revision) void this.clear(id);
    this.#rules = rules;
    this.#bytesMax = bytesMax;
  }

  /** Connects a new listener. */
  attach(listenerIndex: number, port: MessagePort): void {
    this.#ports.set(listenerIndex, port);
    port.on('message', (message: ListenerMessage) => this.#onMessage(listenerIndex, port, message));
  }

  /** To be called when the listener has died: the listeners that waited for its calls make the calls. */
  detach(listenerIndex: number): void {
    this.#ports.get(listenerIndex)?.close();
    this.#ports.delete(listenerIndex);
    for (const { key, listener } of [...this.#inProgress.values()])
      if (listener === listenerIndex) this.#endCall(key);
  }

  /** Bytes on disk; 0 if the store cannot be read. For the metrics. */
  get storedBytes(): number {
    return this.#tryStore('read', () => this.#options.store.cached.bytes) ?? 0;
  }

  /**
   * To be called after each flush: writes the responses that wait. Once a minute removes expired ones, and
   * cleared ones that could not be removed before.
   */
  onFlushed(): void {
    const nowMs = this.#options.clock.monotonicMs();
    if (this.#unremoved.size > 0 && nowMs - this.#removalTriedMs >= SWEEP_PERIOD_MS)
      void this.#removeCleared();
    if (this.#unwritten.size > 0) {
      const kept = [...this.#unwritten.values()];
      const fits = this.#freeBytes() >= 2 * this.#unwrittenBytes + FREE_BYTES_MIN;
      this.#unwritten.clear();
      this.#unwrittenBytes = 0;
      if (fits) this.#writeChanges(kept);
    } else if (nowMs - this.#sweptMs >= SWEEP_PERIOD_MS) void this.#expire();
  }

  /**
   * To be called before the store is closed: nothing more is removed. If cleared responses are still on disk,
   * removes all responses, for the next process would serve them.
   */
  close(): void {
    this.#isClosed = true;
    if ((this.#unremoved.size === 0 && this.#removals === 0) || this.#removeAll()) return;
    this.#options.log.warn(
      'cleared responses are still on disk, and served after the next start: clear them again',
    );
  }

  /** Removes all that has expired, one transaction after the other. Never rejects. */
  async #expire(): Promise<void> {
    const { store, clock } = this.#options;
    while (!this.#isClosed) {
      this.#sweptMs = clock.monotonicMs();
      const oldestMs = this.#tryStore('read', () => store.cached.oldestMs());
      if (oldestMs === undefined || oldestMs > this.#expiredMs) return;
      const expire = (): boolean => store.cached.expire(this.#bounds, (task) => store.commit(task));
      if (this.#tryStore('write', expire) !== true) return;
      await pause(EXPIRY_PAUSE_MS, undefined, { ref: false });
    }
  }

  /**
   * Removes the responses of that model, or all. Resolves when they are no longer on disk, or if the store
   * fails: then they are removed later. Never rejects.
   */
  async clear(modelId: string | undefined): Promise<void> {
    const nowMs = this.#options.clock.wallMs();
    if (modelId === undefined) this.#clearedMs = nowMs;
    else this.#clearedModels.set(modelId, nowMs);
    const isCleared = (key: ResponseKey): boolean =>
      modelId === undefined || modelOfCacheKey(key) === modelId;
    for (const [name, record] of this.#unwritten) if (isCleared(record)) this.#dropUnwritten(name);
    // Calls in progress began before the clearing, so their responses must not be kept.
    for (const { key } of [...this.#inProgress.values()]) if (isCleared(key)) this.#endCall(key);
    this.#unremoved.add(modelId);
    await this.#removeCleared();
  }

  /** Tries to remove what `#unremoved` names from the disk. A second try may remove newer responses too. */
  async #removeCleared(): Promise<void> {
    this.#removalTriedMs = this.#options.clock.monotonicMs();
    for (const modelId of [...this.#unremoved]) {
      // Not after the removal: a clearing that comes meanwhile adds it again, and its own removal may fail.
      this.#unremoved.delete(modelId);
      this.#removals += 1;
      const isRemoved = modelId === undefined ? this.#removeAll() : await this.#removeModel(modelId);
      this.#removals -= 1;
      if (!isRemoved) this.#unremoved.add(modelId);
    }
  }

  /** Removes all responses from the disk. Returns false if the store has failed. */
  #removeAll(): boolean {
    const { store } = this.#options;
    const remove = (): true => {
      store.commit(() => store.cached.clear());
      return true;
    };
    return this.#tryStore('write', remove) === true;
  }

  /**
   * Removes the responses of one model from the disk, some keys in each event-loop turn. Resolves with false
   * if the store has failed.
   */
  async #removeModel(modelId: string): Promise<boolean> {
    const { cached } = this.#options.store;
    let lastKey: ResponseKey | undefined;
    while (!this.#isClosed) {
      const keys = this.#tryStore('read', () => cached.keys(lastKey, CLEARED_KEYS_A_TURN));
      if (keys === undefined) return false;
      const clearedKeys = keys.filter((key) => modelOfCacheKey(key) === modelId);
      if (clearedKeys.length > 0 && !this.#writeChanges([], clearedKeys)) return false;
      lastKey = keys.at(-1);
      if (keys.length < CLEARED_KEYS_A_TURN) return true;
      await new Promise((resolve) => setImmediate(resolve));
    }
    return false;
  }

  #onMessage(listenerIndex: number, port: MessagePort, message: ListenerMessage): void {
    if ('ask' in message) this.#reply(listenerIndex, port, message);
    else if ('withdrawn' in message) this.#withdraw(listenerIndex, port, message.id);
    else if (message.kind === 'abandon') this.#endCall(message.key, listenerIndex);
    else this.#keep(listenerIndex, message);
  }

  /**
   * Replies with a response, or lets the question wait for another listener's call. Otherwise the listener
   * that asks leads. It leads also if its own call is in progress: it has forgotten that call at a `clear`.
   */
  #reply(listenerIndex: number, port: MessagePort, { id, ask: key }: Question<ResponseKey>): void {
    const response = this.#find(key);
    const name = nameOfResponse(key);
    const call = this.#inProgress.get(name);
    if (response !== undefined) send(port, id, { state: 'found', response });
    else if (call !== undefined && call.listener !== listenerIndex) call.waiting.push({ port, id });
    else {
      this.#inProgress.set(name, { key, listener: listenerIndex, id, waiting: call?.waiting ?? [] });
      send(port, id, { state: 'lead' });
    }
  }

  /**
   * A listener withdraws a question that has waited too long. If `lead` was sent to it before, the listener
   * does not lead after all, so the call ends.
   */
  #withdraw(listenerIndex: number, port: MessagePort, id: number): void {
    for (const { key, listener, id: leaderId, waiting } of this.#inProgress.values()) {
      if (listener === listenerIndex && leaderId === id) {
        this.#endCall(key);
        return;
      }
      const position = waiting.findIndex((question) => question.id === id && question.port === port);
      if (position < 0) continue;
      waiting.splice(position, 1);
      send(port, id, { state: 'alone' });
      return;
    }
  }

  /** Returns a response that may be served, or undefined. */
  #find(key: ResponseKey): CachedResponse | undefined {
    const { store, clock } = this.#options;
    const record =
      this.#unwritten.get(nameOfResponse(key)) ?? this.#tryStore('read', () => store.cached.find(key));
    if (record?.bytes === undefined) return undefined;
    const { stream, endedMs, bytes } = record;
    const { ttlMs = 0 } = this.#rules.get(modelOfCacheKey(key)) ?? {};
    if (!isWithin(ttlMs, endedMs, clock.wallMs()) || endedMs <= this.#clearedMsOf(key)) return undefined;
    return { stream, endedMs, bytes };
  }

  /**
   * Returns when responses of that key were cleared last; -Infinity if never. A clock that was ahead may have
   * given a time in the future. Such a time becomes just before now, or no new response would be served.
   */
  #clearedMsOf(key: ResponseKey): number {
    const nowMs = this.#options.clock.wallMs();
    if (this.#clearedMs > nowMs) this.#clearedMs = nowMs - 1;
    const modelId = modelOfCacheKey(key);
    const modelMs = this.#clearedModels.get(modelId);
    if (modelMs === undefined) return this.#clearedMs;
    if (modelMs <= nowMs) return Math.max(this.#clearedMs, modelMs);
    this.#clearedModels.set(modelId, nowMs - 1);
    return nowMs - 1;
  }

  /**
   * Keeps the response of a listener's call for the disk, and sends it to the listeners that wait for it. Not
   * if the call began before a clearing, of which the listener did not know yet.
   */
  #keep(listenerIndex: number, { key, response, beganMs }: KeepMessage): void {
    const { stream, endedMs, bytes } = response;
    const name = nameOfResponse(key);
    this.#dropUnwritten(name);
    if (Math.min(beganMs, endedMs) <= this.#clearedMsOf(key)) {
      this.#endCall(key, listenerIndex);
      return;
    }
    if (this.#unwrittenBytes + bytes.length + CACHED_ROW_BYTES <= UNWRITTEN_BYTES_MAX) {
      // A cache key ends with the digest of the request: `cacheKeyOf`.
      const bodyDigest = key.key.slice(key.key.lastIndexOf('/') + 1);
      this.#unwritten.set(name, { ...key, bodyDigest, endedMs: asWallMs(endedMs), stream, bytes });
      this.#unwrittenBytes += bytes.length + CACHED_ROW_BYTES;
    }
    const call = this.#inProgress.get(name);
    if (call?.listener !== listenerIndex) return;
    this.#inProgress.delete(name);
    for (const { port, id } of call.waiting) send(port, id, { state: 'found', response });
  }

  /**
   * Ends a call in progress without a response, so that the listeners that wait for it make calls of their
   * own. With `ofListener`, only if that listener makes the call.
   */
  #endCall(key: ResponseKey, ofListener?: number): void {
    const name = nameOfResponse(key);
    const call = this.#inProgress.get(name);
    if (call === undefined || (ofListener !== undefined && call.listener !== ofListener)) return;
    this.#inProgress.delete(name);
    for (const { port, id } of call.waiting) send(port, id, { state: 'alone' });
  }

  /** Writes `kept` and removes `forgotten` in one transaction. If the store fails, does neither: false. */
  #writeChanges(kept: readonly ResponseRecord[], forgotten: readonly ResponseKey[] = []): boolean {
    const { store } = this.#options;
    const changes = { kept, forgotten, bounds: this.#bounds };
    const write = (): true => {
      store.commit(() => store.cached.apply(changes));
      return true;
    };
    return this.#tryStore('write', write) === true;
  }

  get #bounds(): ResponseBounds {
    const modelBytesMax = new Map<string, number>();
    for (const [id, { bytesMax }] of this.#rules) if (bytesMax !== undefined) modelBytesMax.set(id, bytesMax);
    return { expiredMs: this.#expiredMs, bytesMax: this.#bytesMax, modelBytesMax };
  }

  /** A response that ended before this time has expired for every model. */
  get #expiredMs(): number {
    const ttls = [...this.#rules.values()].map(({ ttlMs }) => ttlMs);
    return this.#options.clock.wallMs() - Math.max(0, ...ttls);
  }

  /** Returns undefined if the store fails, which only costs hits. Clears the cache if a row is damaged. */
  #tryStore<Result>(access: StoreAccess, task: () => Result): Result | undefined {
    const { store, log } = this.#options;
    try {
      const result = task();
      this.#failing.delete(access);
      return result;
    } catch (error) {
      if (this.#failing.has(access)) return undefined;
      this.#failing.add(access);
      log.warn('cached responses cannot be read or written; calls are made instead', {
        error: String(error),
      });
      if (isRowError(error)) this.#tryStore('write', () => store.commit(() => store.cached.clear()));
      return undefined;
    }
  }

  /** Returns 0 if the system cannot say: then nothing is written. */
  #freeBytes(): number {
    try {
      return this.#options.store.freeBytes();
    } catch {
      return 0;
    }
  }

  #dropUnwritten(name: string): void {
    const record = this.#unwritten.get(name);
    if (record === undefined) return;
    this.#unwritten.delete(name);
    this.#unwrittenBytes -= (record.bytes?.length ?? 0) + CACHED_ROW_BYTES;
  }
}

function send(port: MessagePort, id: number, result: CacheReply): void {
  port.postMessage({ id, ok: true, result } satisfies AskReply<CacheReply>);
}
