/**
 * The response cache of one listener: responses in memory, of which the oldest is evicted first (FIFO; if a
 * model has a share of its own, the model's oldest). Of equal requests one makes the call, and the others
 * wait for its response (single flight: Flight). For a response that is not in memory the listener asks the
 * main thread (gateway/cache-service.ts), which has more on disk. replay.ts uses the cache, delivery.ts a
 * CachedCall; listener thread.
 *
 *     find      in memory → the response
 *     request   on disk, or in flight, here or at another listener → the response, or `alone`: the request
 *               makes a call of its own
 *               nowhere → `lead`: a CachedCall makes the call, then `publish` or `abandon`
 *
 * Must hold: each flight ends, by `publish`, `abandon` or `clear`, or WAIT_MS_MAX ends the waits for it;
 * otherwise requests wait for ever. A CachedCall that leads a flight ends it exactly once. Memory, waiting
 * requests and hits that are being sent are bounded. Not kept are: errors; cut responses; those of fallbacks,
 * which would outlive the outage; those of calls whose output was lowered to what the account can pay; those
 * of more than CACHED_BYTES_MAX; and with `durability: commit` those whose charge is not on disk
 * (test/e2e/cache.test.ts).
 */
import type { MessagePort } from 'node:worker_threads';
import type { CachedResponse, CacheMessage, CacheReply } from '../channel/cache-messages.js';
import { AskPort, replyOrElse, PendingReplies } from '../core/ask-port.js';
import { isWithin } from '../core/retention.js';
import type { Clock } from '../core/clock.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { CACHED_BYTES_MAX, FRAME_BYTES_MAX } from '../core/limits.js';
import {
  CACHED_ROW_BYTES,
  modelOfCacheKey,
  nameOfResponse,
  type ResponseKey,
} from '../registry/stored-response.js';
import { type CacheRule, cacheRulesOf, type Catalog } from '../registry/catalog.js';
import type { ListenerMetrics } from '../telemetry/metrics-writers.js';
import { CollectedPieces, type CollectBudget, type StorableCall } from './collected-response.js';
import { KnownRequests } from './known-requests.js';

/**
 * How long a request waits for an equal call. Then it makes its own call, as it does beyond WAITING_MAX and
 * WAITING_BYTES_MAX.
 */
const WAIT_MS_MAX = 60_000;
/** KnownRequests may take, in addition, the memory that responses may take, divided by this number. */
const KNOWN_DIVISOR = 16;
/** Bounds of the requests that wait in one listener, and of the bytes of their bodies. */
const WAITING_MAX = 1_000;
const WAITING_BYTES_MAX = 64 * 1024 * 1024;
/**
 * Bytes of the responses that one listener is sending to clients as hits: a slow client keeps a response in
 * memory that the cache may have evicted. Responses up to SENDING_BYTES_UNCOUNTED are not counted, because a
 * response of an upstream takes as much.
 */
const SENDING_BYTES_MAX = 128 * 1024 * 1024;
const SENDING_BYTES_UNCOUNTED = FRAME_BYTES_MAX;

/** What requests that wait for a flight get. */
type EndedReply = Exclude<CacheReply, { readonly state: 'lead' }>;

const ALONE_REPLY: EndedReply = { state: 'alone' };
/** `#askMainThread` puts ALONE_REPLY in place of this error, so no caller gets it. */
const LATE_ERROR: ErrorRecord = { code: 'internal_error', message: 'an equal call took too long' };

/** A call in flight, here or at another listener, and the requests that wait for it. */
export interface Flight {
  readonly key: ResponseKey;
  /** The requests that wait for the call; undefined while there are none. */
  waiting: PendingReplies<EndedReply> | undefined;
}

/** What `request` resolves with. After `lead` the caller must make the call and end the `flight`. */
export type Requested = { readonly state: 'lead'; readonly flight: Flight } | EndedReply;

interface CacheEntry extends CachedResponse {
  readonly name: string;
  /** Grows with each entry, over all models. */
  readonly number: number;
}

/** The responses of one model. */
interface ModelEntries {
  /** By name, oldest first. */
  readonly entries: Map<string, CacheEntry>;
  bytes: number;
}

export class ResponseCache {
  readonly #port: AskPort<ResponseKey, CacheReply, CacheMessage>;
  readonly #clock: Clock;
  readonly #metrics: Pick<ListenerMetrics, 'setCache' | 'countCacheEviction'>;
  /** By the id of the model. Models without an entry are left out. */
  readonly #models = new Map<string, ModelEntries>();
  #entryCount = 0;
  #nextNumber = 0;
  /** By the name of the response. Each has an open request of this listener, which bounds the map. */
  readonly #flights = new Map<string, Flight>();
  /** Memory of all entries, by `memoryBytesOf`. */
  #bytes = 0;
  #bytesMax = 0;
  #waitingCount = 0;
  #waitingBytes = 0;
  /** To how many clients each response is being sent. */
  readonly #sendingCounts = new Map<Uint8Array, number>();
  #sendingBytes = 0;
  /** By the id of each model with a cache. */
  #cacheRules: ReadonlyMap<string, CacheRule> = new Map();
  readonly knownRequests = new KnownRequests();
  #clearCount = 0;

  constructor(
    port: MessagePort,
    clock: Clock,
    metrics: Pick<ListenerMetrics, 'setCache' | 'countCacheEviction'>,
  ) {
    this.#port = new AskPort(port);
    this.#clock = clock;
    this.#metrics = metrics;
  }

  /** How often `clear` was called. The response of a call that began before the last time is not kept. */
  get clearCount(): number {
    return this.#clearCount;
  }

  /** Whether any model has a cache. */
  get isOn(): boolean {
    return this.#cacheRules.size > 0;
  }

  /** Called at the start and at each reload; `bytesMax` bounds the memory of the entries. */
  applySettings(catalog: Catalog, bytesMax: number): void {
    const rules = cacheRulesOf(catalog);
    for (const [id, { revision }] of this.#cacheRules)
      if (rules.get(id)?.revision !== revision) this.clear(id);
    this.#cacheRules = rules;
    this.#bytesMax = bytesMax;
    this.knownRequests.setBytesMax(this.isOn ? bytesMax / KNOWN_DIVISOR : 0);
    for (const [id, model] of this.#models) this.#evictOf(id, model);
    this.#evict();
    this.#report();
  }

  /** Returns the response of that name and model, if it is in memory. Removes one older than `ttlMs`. */
  find(modelId: string, name: string, ttlMs: number): CachedResponse | undefined {
    const model = this.#models.get(modelId);
    const entry = model?.entries.get(name);
    if (entry === undefined || isWithin(ttlMs, entry.endedMs, this.#clock.wallMs())) return entry;
    this.#removeEntry(modelId, model!, entry);
    this.#report();
    return undefined;
  }

  /** Call it if `find` returns undefined. Never rejects. The waiting request keeps `bodyBytes` in memory. */
  request(key: ResponseKey, bodyBytes: number): Promise<Requested> {
    const flight = this.#flights.get(nameOfResponse(key));
    return flight === undefined ? this.#askMainThread(key) : this.#join(flight, bodyBytes);
  }

  /**
   * Whether a hit with these bytes may go to its client. If so, the bytes count toward SENDING_BYTES_MAX
   * until `endSending`, once for all clients that get them. If not, the call is made: a slow client then
   * makes an upstream wait, and takes no memory here. `bytes` must be the very array of the entry.
   */
  beginSending(bytes: Uint8Array): boolean {
    if (bytes.length <= SENDING_BYTES_UNCOUNTED) return true;
    const clients = this.#sendingCounts.get(bytes) ?? 0;
    if (clients === 0 && this.#sendingBytes + bytes.length > SENDING_BYTES_MAX) return false;
    if (clients === 0) this.#sendingBytes += bytes.length;
    this.#sendingCounts.set(bytes, clients + 1);
    return true;
  }

  /** Called once for each `beginSending` that returned true, when the client has the response or has left. */
  endSending(bytes: Uint8Array): void {
    if (bytes.length <= SENDING_BYTES_UNCOUNTED) return;
    const clients = this.#sendingCounts.get(bytes);
    invariant(clients !== undefined, 'a hit whose sending ends has begun it');
    if (clients > 1) {
      this.#sendingCounts.set(bytes, clients - 1);
    } else {
      this.#sendingCounts.delete(bytes);
      this.#sendingBytes -= bytes.length;
    }
  }

  /**
   * Keeps the response, and gives it to the requests that wait for the flight. `beganMs`: when its call
   * began, by the wall clock. Since then no `clear` may have come (`clearCount`).
   */
  publish(key: ResponseKey, response: CachedResponse, flight: Flight | undefined, beganMs: number): void {
    this.#addEntry(key, response);
    this.#port.send({ kind: 'keep', key, response, beganMs });
    if (flight !== undefined) this.#endFlight(flight, { state: 'found', response });
  }

  /** The flight's call failed, or its response cannot be kept: waiting requests make calls of their own. */
  abandon(flight: Flight): void {
    this.#port.send({ kind: 'abandon', key: flight.key });
    this.#endFlight(flight, ALONE_REPLY);
  }

  /** Forgets the responses of that model, or all. */
  clear(modelId: string | undefined): void {
    const isCleared = (id: string): boolean => modelId === undefined || id === modelId;
    this.#clearCount += 1;
    for (const [id, model] of this.#models)
      if (isCleared(id)) for (const entry of model.entries.values()) this.#removeEntry(id, model, entry);
    for (const flight of [...this.#flights.values()])
      if (isCleared(modelOfCacheKey(flight.key))) this.#endFlight(flight, ALONE_REPLY);
    this.#report();
  }

  /** Begins a flight, and asks the main thread for the response, or whether this call leads. */
  async #askMainThread(key: ResponseKey): Promise<Requested> {
    const flight: Flight = { key, waiting: undefined };
    this.#flights.set(nameOfResponse(key), flight);
    // A reply that was sent before a `clear` may come after it: its response must not come back.
    const clearCount = this.#clearCount;
    const reply = await replyOrElse(
      this.#port.askWithin(WAIT_MS_MAX, LATE_ERROR, key).reply,
      () => ALONE_REPLY,
    );
    if (reply.state === 'lead') return { state: 'lead', flight };
    if (reply.state === 'found' && clearCount === this.#clearCount) this.#addEntry(key, reply.response);
    this.#endFlight(flight, reply);
    return reply;
  }

  /** Waits for a flight of this listener, within the bounds. */
  async #join(flight: Flight, bodyBytes: number): Promise<Requested> {
    if (this.#waitingCount >= WAITING_MAX || this.#waitingBytes + bodyBytes > WAITING_BYTES_MAX)
      return { state: 'alone' };
    this.#waitingCount += 1;
    this.#waitingBytes += bodyBytes;
    flight.waiting ??= new PendingReplies({ waitMsMax: WAIT_MS_MAX, onTimeout: () => ALONE_REPLY });
    const reply = await flight.waiting.ask(() => undefined);
    this.#waitingCount -= 1;
    this.#waitingBytes -= bodyBytes;
    return reply;
  }

  #endFlight(flight: Flight, reply: EndedReply): void {
    const name = nameOfResponse(flight.key);
    if (this.#flights.get(name) === flight) this.#flights.delete(name);
    flight.waiting?.replyToAll(reply);
  }

  /** Adds an entry, in place of an earlier one of that name, and evicts others if there are too many. */
  #addEntry(key: ResponseKey, { stream, endedMs, bytes }: CachedResponse): void {
    const id = modelOfCacheKey(key);
    const name = nameOfResponse(key);
    const formerModel = this.#models.get(id);
    const replaced = formerModel?.entries.get(name);
    if (replaced !== undefined) this.#removeEntry(id, formerModel!, replaced);
    const entry: CacheEntry = { name, number: this.#nextNumber++, stream, endedMs, bytes };
    const model = this.#models.get(id) ?? { entries: new Map<string, CacheEntry>(), bytes: 0 };
    this.#models.set(id, model);
    model.entries.set(name, entry);
    model.bytes += memoryBytesOf(entry);
    this.#bytes += memoryBytesOf(entry);
    this.#entryCount += 1;
    this.#evictOf(id, model);
    this.#evict();
    this.#report();
  }

  /** Evicts a model's oldest entries while the model has more than its share of the memory. */
  #evictOf(id: string, model: ModelEntries): void {
    const { memoryShare = 1 } = this.#cacheRules.get(id) ?? {};
    for (const entry of model.entries.values()) {
      if (model.bytes <= memoryShare * this.#bytesMax) return;
      this.#removeEntry(id, model, entry);
      this.#metrics.countCacheEviction();
    }
  }

  /** Evicts the oldest entries of all models: the first entry of each model is its oldest. */
  #evict(): void {
    while (this.#bytes > this.#bytesMax) {
      let oldest:
        | { readonly id: string; readonly model: ModelEntries; readonly entry: CacheEntry }
        | undefined;
      for (const [id, model] of this.#models) {
        const [entry] = model.entries.values();
        if (entry !== undefined && !(entry.number > (oldest?.entry.number ?? Infinity)))
          oldest = { id, model, entry };
      }
      if (oldest === undefined) return;
      this.#removeEntry(oldest.id, oldest.model, oldest.entry);
      this.#metrics.countCacheEviction();
    }
  }

  #removeEntry(id: string, model: ModelEntries, entry: CacheEntry): void {
    model.entries.delete(entry.name);
    if (model.entries.size === 0) this.#models.delete(id);
    model.bytes -= memoryBytesOf(entry);
    this.#bytes -= memoryBytesOf(entry);
    this.#entryCount -= 1;
  }

  #report(): void {
    this.#metrics.setCache(this.#entryCount, this.#bytes);
  }
}

/** Each entry counts CACHED_ROW_BYTES besides its bytes, which bounds the number of short responses. */
function memoryBytesOf({ bytes }: CachedResponse): number {
  return bytes.length + CACHED_ROW_BYTES;
}

/** A call whose response the cache lacks: collects the response, and publishes or abandons it. */
export class CachedCall implements StorableCall {
  readonly #key: ResponseKey;
  readonly #cache: ResponseCache;
  readonly #clock: Clock;
  /** `clearCount` of the cache, and the wall clock, when the call began. */
  readonly #clearCount: number;
  readonly #beganMs: number;
  readonly #pieces: CollectedPieces;
  /** The flight that this call leads. Undefined once the flight has ended, or if this call leads none. */
  #flight: Flight | undefined;
  /** The whole response, from `keep` to `publish`; undefined if it must not be kept. */
  #whole: { readonly stream: boolean; readonly bytes: Uint8Array } | undefined;

  constructor(
    key: ResponseKey,
    cache: ResponseCache,
    budget: CollectBudget,
    clock: Clock,
    flight: Flight | undefined,
  ) {
    this.#key = key;
    this.#cache = cache;
    this.#clock = clock;
    this.#clearCount = cache.clearCount;
    this.#beganMs = clock.wallMs();
    this.#pieces = new CollectedPieces(budget, CACHED_BYTES_MAX);
    this.#flight = flight;
  }

  collect(bytes: Uint8Array): void {
    this.#pieces.add(bytes);
    if (this.#pieces.isEmpty) this.endFlight();
  }

  /**
   * Ends the flight, so that the requests that wait make calls of their own. This response is too long to be
   * kept, or its client does not read it. In the second case it is still kept once it is whole.
   */
  endFlight(): void {
    const flight = this.#flight;
    this.#flight = undefined;
    if (flight !== undefined) this.#cache.abandon(flight);
  }

  keep(last: Uint8Array, stream: boolean, _position: number, fallback?: string): void {
    this.collect(last);
    const bytes = this.#pieces.take();
    if (bytes !== undefined && fallback === undefined) this.#whole = { stream, bytes };
  }

  publish(): void {
    const flight = this.#flight;
    if (this.#whole === undefined || this.#clearCount !== this.#cache.clearCount) {
      this.giveUp();
      return;
    }
    this.#flight = undefined;
    const response = { ...this.#whole, endedMs: this.#clock.wallMs() };
    this.#cache.publish(this.#key, response, flight, this.#beganMs);
    this.#whole = undefined;
  }

  forget(): void {
    this.giveUp();
  }

  giveUp(): void {
    this.#pieces.drop();
    this.#whole = undefined;
    this.endFlight();
  }
}
