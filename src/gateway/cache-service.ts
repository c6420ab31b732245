/**
 * The main thread's part of the response cache: it keeps responses on disk, and lets one listener at a time
 * make a call that several callers wait for (single flight). accounting.ts creates it. Listeners ask it over
 * their ports (channel/cache-channel.ts), and cache responses in their own memory too.
 *
 *     no response → in work (of a listener) → waits for the disk → stored → none (expired, or the oldest)
 *                       └→ no response (failed, not to be kept, or the listener died)
 *
 * A cached response can be made again. So it is written in a transaction of its own after the flush, and
 * dropped if the disk is full; the accounting never waits for it. Its record has a digest of the response and
 * of its key, because LMDB has no checksums: a damaged or misplaced record then matches no key.
 *
 * Must hold: a listener that waits for another listener's call gets a reply however that call ends, else its
 * caller hangs (test/unit/request/response-cache.test.ts).
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { MessagePort } from 'node:worker_threads';
import type { AskReply, Question, Withdrawal } from '../core/ask-port.js';
import { type Clock, isWithin } from '../core/clock.js';
import type { CacheMessage, CacheReply, CachedResponse } from '../channel/cache-channel.js';
import { asWallMs } from '../core/units.js';
import {
  CACHED_ROW_BYTES,
  modelOfCacheKey,
  nameOfResponse,
  type ResponseKey,
  type ResponseRecord,
} from '../registry/stored-response.js';
import { type CacheRule, type Catalog, isListed } from '../registry/catalog.js';
import { EXPIRY_PAUSE_MS, type ResponseBounds, type ResponseTable } from '../store/response-table.js';
import type { Store } from '../store/store.js';
import type { Log } from '../telemetry/log.js';

/** Bytes that may wait for the disk. A commit of 16 MiB blocks the thread for some 50 ms. */
const WAITING_BYTES_MAX = 16 * 1024 * 1024;
/** Free bytes that a disk needs besides the responses, for the pages that a commit copies. */
const FREE_BYTES_MIN = 1024 * 1024;
/** How many keys are read in one event-loop turn when the responses of one model are removed: some ms. */
const CLEARED_MAX = 1_000;
const SWEEP_PERIOD_MS = 60_000;

interface CacheServiceOptions {
  readonly store: Pick<Store, 'commit' | 'freeBytes'> & { readonly cached: ResponseTable };
  readonly clock: Clock;
  readonly log: Log;
}

/** A call that a listener makes, and the questions of other listeners that wait for its response. */
interface InWork {
  readonly key: ResponseKey;
  readonly listener: number;
  /** The question of that listener that got `lead`. */
  readonly id: number;
  readonly waiting: { readonly port: MessagePort; readonly id: number }[];
}

type StoreUse = 'read' | 'write';
type FromListener = Question<ResponseKey> | Withdrawal | CacheMessage;

export class CacheService {
  readonly #options: CacheServiceOptions;
  readonly #ports = new Map<number, MessagePort>();
  readonly #inWork = new Map<string, InWork>();
  /** Responses that are not on disk yet. */
  readonly #waiting = new Map<string, ResponseRecord>();
  #waitingBytes = 0;
  /** Responses that ended up to these times are not served: of all models, and by the id of one. */
  #clearedMs = -Infinity;
  readonly #clearedModels = new Map<string, number>();
  /** By the id of each model with a cache. */
  #rules: ReadonlyMap<string, CacheRule> = new Map();
  /** How many bytes all responses may take on disk. */
  #bytesMax = 0;
  #sweptAtMs: number;
  #isClosed = false;
  /** The uses in which the store fails, logged once: a good read does not mean that it takes writes again. */
  readonly #failing = new Set<StoreUse>();

  constructor(options: CacheServiceOptions) {
    this.#options = options;
    this.#sweptAtMs = options.clock.monotonicMs();
  }

  /**
   * At the start and at each reload. Removes the responses of models whose upstreams or cache have changed.
   */
  applySettings(catalog: Catalog, bytesMax: number): void {
    const rules = new Map(
      catalog.models.flatMap((model) =>
        isListed(model) && model.cache !== undefined ? [[model.id, model.cache]] : [],
      ),
    );
    for (const [id, { revision }] of this.#rules)
      if (rules.get(id)?.revision !== revision) void this.clear(id);
    this.#rules = rules;
    this.#bytesMax = bytesMax;
  }

  /** Connects a new listener. */
  attach(index: number, port: MessagePort): void {
    this.#ports.set(index, port);
    port.on('message', (message: FromListener) => this.#onMessage(index, port, message));
  }

  /** To be called when the listener has died: those that waited for its calls make them themselves. */
  detach(index: number): void {
    this.#ports.get(index)?.close();
    this.#ports.delete(index);
    for (const { key, listener } of [...this.#inWork.values()]) if (listener === index) this.#end(key);
  }

  /** Bytes on disk; 0 if the store can't be read. For the metrics. */
  get storedBytes(): number {
    return this.#tried('read', () => this.#options.store.cached.bytes) ?? 0;
  }

  /** To be called after each flush: writes what waits, and once a minute begins to remove the expired. */
  onFlushed(): void {
    if (this.#waiting.size > 0) {
      const kept = [...this.#waiting.values()];
      const fits = this.#freeBytes() >= 2 * this.#waitingBytes + FREE_BYTES_MIN;
      this.#waiting.clear();
      this.#waitingBytes = 0;
      if (fits) this.#apply(kept);
    } else if (this.#options.clock.monotonicMs() - this.#sweptAtMs >= SWEEP_PERIOD_MS) void this.#expire();
  }

  /** To be called before the store is closed: nothing more is removed. */
  close(): void {
    this.#isClosed = true;
  }

  /** Removes all that has expired, one transaction after the other. Never rejects. */
  async #expire(): Promise<void> {
    const { store, clock } = this.#options;
    while (!this.#isClosed) {
      this.#sweptAtMs = clock.monotonicMs();
      const oldestMs = this.#tried('read', () => store.cached.oldestMs());
      if (oldestMs === undefined || oldestMs > this.#expiredMs) return;
      const expire = (): boolean => store.cached.expire(this.#bounds, (work) => store.commit(work));
      if (this.#tried('write', expire) !== true) return;
      await pause(EXPIRY_PAUSE_MS, undefined, { ref: false });
    }
  }

  /** Removes the responses of that model, or all. Resolves when they are no longer on disk. */
  async clear(modelId: string | undefined): Promise<void> {
    const { store, clock } = this.#options;
    const nowMs = clock.wallMs();
    if (modelId === undefined) this.#clearedMs = nowMs;
    else this.#clearedModels.set(modelId, nowMs);
    const isCleared = (key: ResponseKey): boolean =>
      modelId === undefined || modelOfCacheKey(key) === modelId;
    for (const [name, record] of this.#waiting) if (isCleared(record)) this.#dropOne(name);
    // Calls in work began before the clearing, so their responses must not be kept.
    for (const { key } of [...this.#inWork.values()]) if (isCleared(key)) this.#end(key);
    if (modelId === undefined) this.#tried('write', () => store.commit(() => store.cached.clear()));
    else await this.#removeModel(isCleared);
  }

  async #removeModel(isCleared: (key: ResponseKey) => boolean): Promise<void> {
    const { cached } = this.#options.store;
    let last: ResponseKey | undefined;
    while (!this.#isClosed) {
      const keys = this.#tried('read', () => cached.keys(last, CLEARED_MAX)) ?? [];
      const forgotten = keys.filter(isCleared);
      if (forgotten.length > 0) this.#apply([], forgotten);
      last = keys.at(-1);
      if (keys.length < CLEARED_MAX) return;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  #onMessage(index: number, port: MessagePort, message: FromListener): void {
    if ('ask' in message) this.#reply(index, port, message);
    else if ('withdrawn' in message) this.#withdraw(index, port, message.id);
    else if (message.kind === 'abandon') this.#end(message.key, index);
    else this.#keep(index, message.key, message.response);
  }

  #reply(index: number, port: MessagePort, { id, ask: key }: Question<ResponseKey>): void {
    const response = this.#find(key);
    const name = nameOfResponse(key);
    const inWork = this.#inWork.get(name);
    if (response !== undefined) send(port, id, { state: 'found', response });
    else if (inWork !== undefined && inWork.listener !== index) inWork.waiting.push({ port, id });
    else {
      this.#inWork.set(name, { key, listener: index, id, waiting: inWork?.waiting ?? [] });
      send(port, id, { state: 'lead' });
    }
  }

  /** A question that got `lead` may be withdrawn before that comes: then nobody leads, and the wait ends. */
  #withdraw(index: number, port: MessagePort, id: number): void {
    for (const { key, listener, id: leaderId, waiting } of this.#inWork.values()) {
      if (listener === index && leaderId === id) {
        this.#end(key);
        return;
      }
      const position = waiting.findIndex((question) => question.id === id && question.port === port);
      if (position < 0) continue;
      waiting.splice(position, 1);
      send(port, id, { state: 'alone' });
      return;
    }
  }

  #find(key: ResponseKey): CachedResponse | undefined {
    const { store, clock } = this.#options;
    const record =
      this.#waiting.get(nameOfResponse(key)) ?? this.#tried('read', () => store.cached.find(key));
    if (record?.bytes === undefined) return undefined;
    const { stream, endedMs, bytes } = record;
    const { ttlMs = 0 } = this.#rules.get(modelOfCacheKey(key)) ?? {};
    if (!isWithin(ttlMs, endedMs, clock.wallMs()) || endedMs <= this.#clearedMsOf(key)) return undefined;
    return { stream, endedMs, bytes };
  }

  /**
   * Returns until when responses of that key have ended that are not served. A clearing while the clock was
   * ahead has left a time in the future: it becomes one just past.
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

  #keep(index: number, key: ResponseKey, response: CachedResponse): void {
    const { stream, endedMs, bytes } = response;
    const name = nameOfResponse(key);
    this.#dropOne(name);
    if (endedMs <= this.#clearedMsOf(key)) {
      this.#end(key, index);
      return;
    }
    if (this.#waitingBytes + bytes.length + CACHED_ROW_BYTES <= WAITING_BYTES_MAX) {
      const bodyDigest = key.key.slice(key.key.lastIndexOf('/') + 1);
      this.#waiting.set(name, { ...key, bodyDigest, endedMs: asWallMs(endedMs), stream, bytes });
      this.#waitingBytes += bytes.length + CACHED_ROW_BYTES;
    }
    const inWork = this.#inWork.get(name);
    if (inWork?.listener !== index) return;
    this.#inWork.delete(name);
    for (const { port, id } of inWork.waiting) send(port, id, { state: 'found', response });
  }

  /**
   * Ends a call in work: listeners that wait make it themselves. With `index`, only if that listener made it.
   */
  #end(key: ResponseKey, index?: number): void {
    const name = nameOfResponse(key);
    const inWork = this.#inWork.get(name);
    if (inWork === undefined || (index !== undefined && inWork.listener !== index)) return;
    this.#inWork.delete(name);
    for (const { port, id } of inWork.waiting) send(port, id, { state: 'alone' });
  }

  /** If the store fails, which is logged, nothing is kept or removed. */
  #apply(kept: readonly ResponseRecord[], forgotten: readonly ResponseKey[] = []): void {
    const { store } = this.#options;
    const changes = { kept, forgotten, bounds: this.#bounds };
    this.#tried('write', () => store.commit(() => store.cached.apply(changes)));
  }

  get #bounds(): ResponseBounds {
    const modelBytesMax = new Map<string, number>();
    for (const [id, { bytesMax }] of this.#rules) if (bytesMax !== undefined) modelBytesMax.set(id, bytesMax);
    return { expiredMs: this.#expiredMs, bytesMax: this.#bytesMax, modelBytesMax };
  }

  get #expiredMs(): number {
    const ttls = [...this.#rules.values()].map(({ ttlMs }) => ttlMs);
    return this.#options.clock.wallMs() - Math.max(0, ...ttls);
  }

  /** Returns undefined if the store fails: that costs hits only. Empties the tables if a row is damaged. */
  #tried<Result>(use: StoreUse, work: () => Result): Result | undefined {
    const { store, log } = this.#options;
    try {
      const result = work();
      this.#failing.delete(use);
      return result;
    } catch (error) {
      if (this.#failing.has(use)) return undefined;
      this.#failing.add(use);
      log.warn('cached responses cannot be read or written; calls are made instead', {
        error: String(error),
      });
      if (error instanceof Error && 'code' in error && error.code === 'damaged')
        this.#tried('write', () => store.commit(() => store.cached.clear()));
      return undefined;
    }
  }

  /** 0 if the disk does not tell. */
  #freeBytes(): number {
    try {
      return this.#options.store.freeBytes();
    } catch {
      return 0;
    }
  }

  #dropOne(name: string): void {
    const record = this.#waiting.get(name);
    if (record === undefined) return;
    this.#waiting.delete(name);
    this.#waitingBytes -= (record.bytes?.length ?? 0) + CACHED_ROW_BYTES;
  }
}

function send(port: MessagePort, id: number, result: CacheReply): void {
  port.postMessage({ id, ok: true, result } satisfies AskReply<CacheReply>);
}
