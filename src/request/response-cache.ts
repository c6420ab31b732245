/**
 * The response cache of one listener: responses in memory, of which the oldest is evicted first (FIFO; if a
 * model has a share of its own, the model's oldest), and single flight: requests that wait for an equal call
 * in flight. For a response that is not here the listener asks the main thread (gateway/cache-service.ts),
 * which has more on disk. Used by replay.ts, and CachedCall by Delivery; listener thread.
 *
 *     find: in memory → a response
 *     request: nowhere → `lead`: the caller makes the call, then `publish` or `abandon`
 *              on disk, or in flight, here or at another listener → the response, or `alone`
 *
 * Must hold: each flight ends, by `publish`, `abandon` or `clear`, or WAIT_MS_MAX ends the waits for it;
 * otherwise requests wait for ever. A CachedCall that leads one ends it exactly once. Memory, waiting
 * requests and hits on their way are bounded (test/unit/request/response-cache.test.ts). These responses are
 * not kept: an error, a cut response, that of a fallback (it would outlive the outage), that of a call whose
 * output was lowered to what its account can pay, one that is too long, and with `durability: commit` one
 * whose charge is not on disk (test/e2e/cache.test.ts).
 */
import type { MessagePort } from 'node:worker_threads';
import type { CachedResponse, CacheMessage, CacheReply } from '../channel/cache-channel.js';
import type { IdempotencyChannel } from '../channel/idempotency-channel.js';
import { AskPort, orRejected, PendingReplies } from '../core/ask-port.js';
import { type Clock, isWithin } from '../core/clock.js';
import type { ErrorRecord } from '../core/errors.js';
import { FRAME_BYTES_MAX } from '../core/limits.js';
import {
  CACHED_ROW_BYTES,
  modelOfCacheKey,
  nameOfResponse,
  type ResponseKey,
} from '../registry/stored-response.js';
import { type CacheRule, type Catalog, isListed } from '../registry/catalog.js';
import type { ListenerMetrics } from '../telemetry/metrics-writers.js';
import { CollectedPieces, type StorableCall } from './idempotency.js';
import { KnownRequests } from './known-requests.js';

/** A longer response is not kept. */
const CACHED_BYTES_MAX = 1024 * 1024;
/**
 * How long a request waits for an equal call. Then it makes its own call, as it does beyond the next bounds.
 */
const WAIT_MS_MAX = 60_000;
/** Requests that were hits may take that part of the memory of responses, beside it. */
const KNOWN_DIVISOR = 16;
/** Bounds of the requests that wait, and of the bytes of their bodies. */
const WAITING_MAX = 1_000;
const WAITING_BYTES_MAX = 64 * 1024 * 1024;
/**
 * Bytes of the responses that are on their way to clients as hits: a slow client keeps one in memory that the
 * cache may have evicted. Shorter ones are not counted, because a live response holds as much.
 */
const SENT_BYTES_MAX = 128 * 1024 * 1024;
const SENT_BYTES_UNCOUNTED = FRAME_BYTES_MAX;

const ALONE: CacheReply = { state: 'alone' };
/** Becomes ALONE: no caller gets it. */
const LATE: ErrorRecord = { code: 'internal_error', message: 'an equal call took too long' };

/** A call in flight, here or at another listener, and the requests that wait for it. */
export interface Flight {
  readonly key: ResponseKey;
  /** The requests that wait for the call; undefined while there are none. */
  waiting: PendingReplies<CacheReply> | undefined;
}

/** What `request` returns. A caller that gets `lead` must end the `flight`. */
export type Requested =
  { readonly state: 'lead'; readonly flight: Flight } | Exclude<CacheReply, { readonly state: 'lead' }>;

interface Entry extends CachedResponse {
  readonly name: string;
  /** Grows with each entry, over all models. */
  readonly number: number;
}

/** The responses of one model. */
interface ModelEntries {
  /** By name, oldest first. */
  readonly entries: Map<string, Entry>;
  bytes: number;
}

export class ResponseCache {
  readonly #port: AskPort<ResponseKey, CacheReply, CacheMessage>;
  readonly #clock: Clock;
  readonly #metrics: Pick<ListenerMetrics, 'setCache' | 'countCacheEviction'>;
  /** By the id of the model. Models without an entry are left out. */
  readonly #models = new Map<string, ModelEntries>();
  #count = 0;
  #nextNumber = 0;
  readonly #flights = new Map<string, Flight>();
  #bytes = 0;
  #bytesMax = 0;
  #waiting = 0;
  #waitingBytes = 0;
  /** How many clients each response is on its way to. */
  readonly #sent = new Map<Uint8Array, number>();
  #sentBytes = 0;
  /** By the id of each model with a cache. */
  #rules: ReadonlyMap<string, CacheRule> = new Map();
  readonly known = new KnownRequests();
  /** Grows with each `clear`. The response of a call that began in an earlier epoch is not kept. */
  epoch = 0;
  /** Whether any model has a cache. */
  isOn = false;

  constructor(
    port: MessagePort,
    clock: Clock,
    metrics: Pick<ListenerMetrics, 'setCache' | 'countCacheEviction'>,
  ) {
    this.#port = new AskPort(port);
    this.#clock = clock;
    this.#metrics = metrics;
  }

  /** At the start and at each reload; `bytesMax` bounds the memory. */
  applySettings(catalog: Catalog, bytesMax: number): void {
    const rules = new Map(
      catalog.models.flatMap((model) =>
        isListed(model) && model.cache !== undefined ? [[model.id, model.cache]] : [],
      ),
    );
    for (const [id, { revision }] of this.#rules) if (rules.get(id)?.revision !== revision) this.clear(id);
    this.#rules = rules;
    this.isOn = rules.size > 0;
    this.#bytesMax = bytesMax;
    this.known.setBytesMax(this.isOn ? bytesMax / KNOWN_DIVISOR : 0);
    for (const [id, model] of this.#models) this.#evictOf(id, model);
    this.#evict();
    this.#report();
  }

  /** Returns the response of that name and model, if it is in memory and not older than `ttlMs`. */
  find(modelId: string, name: string, ttlMs: number): CachedResponse | undefined {
    const model = this.#models.get(modelId);
    const found = model?.entries.get(name);
    if (found === undefined || isWithin(ttlMs, found.endedMs, this.#clock.wallMs())) return found;
    this.#drop(modelId, model!, found);
    this.#report();
    return undefined;
  }

  /** Call it if `find` returns nothing. Never rejects. `bodyBytes` are held while the request waits. */
  request(key: ResponseKey, bodyBytes: number): Promise<Requested> {
    const flight = this.#flights.get(nameOfResponse(key));
    return flight === undefined ? this.#ask(key) : this.#join(flight, bodyBytes);
  }

  /**
   * Whether a hit with these bytes may go to its client. If so, they count until `letGo`, once for all
   * clients that they are on their way to. If not, the call is made: a live response waits at its upstream
   * for a slow client.
   */
  hold(bytes: Uint8Array): boolean {
    if (bytes.length <= SENT_BYTES_UNCOUNTED) return true;
    const clients = this.#sent.get(bytes) ?? 0;
    if (clients === 0 && this.#sentBytes + bytes.length > SENT_BYTES_MAX) return false;
    if (clients === 0) this.#sentBytes += bytes.length;
    this.#sent.set(bytes, clients + 1);
    return true;
  }

  /** Called once for each `hold` that returned true, when the client has the response or has left. */
  letGo(bytes: Uint8Array): void {
    if (bytes.length <= SENT_BYTES_UNCOUNTED) return;
    const clients = this.#sent.get(bytes)!;
    if (clients > 1) {
      this.#sent.set(bytes, clients - 1);
    } else {
      this.#sent.delete(bytes);
      this.#sentBytes -= bytes.length;
    }
  }

  /** Keeps the response, and gives it to the requests that wait for the flight. */
  publish(key: ResponseKey, response: CachedResponse, flight: Flight | undefined): void {
    this.#put(key, response);
    this.#port.send({ kind: 'keep', key, response });
    if (flight !== undefined) this.#end(flight, { state: 'found', response });
  }

  /** The call of that flight has failed, or its response cannot be kept: waiting requests make their own. */
  abandon(flight: Flight): void {
    this.#port.send({ kind: 'abandon', key: flight.key });
    this.#end(flight, ALONE);
  }

  /** Forgets the responses of that model, or all. */
  clear(modelId: string | undefined): void {
    const isCleared = (id: string): boolean => modelId === undefined || id === modelId;
    this.epoch += 1;
    for (const [id, model] of this.#models)
      if (isCleared(id)) for (const entry of model.entries.values()) this.#drop(id, model, entry);
    for (const flight of [...this.#flights.values()])
      if (isCleared(modelOfCacheKey(flight.key))) this.#end(flight, ALONE);
    this.#report();
  }

  async #ask(key: ResponseKey): Promise<Requested> {
    const flight: Flight = { key, waiting: undefined };
    this.#flights.set(nameOfResponse(key), flight);
    const { epoch } = this;
    const reply = await orRejected(this.#port.askFor(WAIT_MS_MAX, LATE, key).reply, () => ALONE);
    if (reply.state === 'lead') return { state: 'lead', flight };
    if (reply.state === 'found' && epoch === this.epoch) this.#put(key, reply.response);
    this.#end(flight, reply);
    return reply;
  }

  async #join(flight: Flight, bodyBytes: number): Promise<Requested> {
    if (this.#waiting >= WAITING_MAX || this.#waitingBytes + bodyBytes > WAITING_BYTES_MAX)
      return { state: 'alone' };
    this.#waiting += 1;
    this.#waitingBytes += bodyBytes;
    flight.waiting ??= new PendingReplies({ waitMsMax: WAIT_MS_MAX, onTimeout: () => ALONE });
    const reply = await flight.waiting.ask(() => undefined);
    this.#waiting -= 1;
    this.#waitingBytes -= bodyBytes;
    return reply as Requested;
  }

  #end(flight: Flight, reply: CacheReply): void {
    const name = nameOfResponse(flight.key);
    if (this.#flights.get(name) === flight) this.#flights.delete(name);
    flight.waiting?.replyToAll(reply);
  }

  #put(key: ResponseKey, { stream, endedMs, bytes }: CachedResponse): void {
    const id = modelOfCacheKey(key);
    const name = nameOfResponse(key);
    const former = this.#models.get(id);
    const replaced = former?.entries.get(name);
    if (replaced !== undefined) this.#drop(id, former!, replaced);
    const entry: Entry = { name, number: this.#nextNumber++, stream, endedMs, bytes };
    const model = this.#models.get(id) ?? { entries: new Map<string, Entry>(), bytes: 0 };
    this.#models.set(id, model);
    model.entries.set(name, entry);
    model.bytes += bytesOf(entry);
    this.#bytes += bytesOf(entry);
    this.#count += 1;
    this.#evictOf(id, model);
    this.#evict();
    this.#report();
  }

  /** Evicts a model's oldest entries while it has more than its share. */
  #evictOf(id: string, model: ModelEntries): void {
    const { memoryShare = 1 } = this.#rules.get(id) ?? {};
    for (const entry of model.entries.values()) {
      if (model.bytes <= memoryShare * this.#bytesMax) return;
      this.#drop(id, model, entry);
      this.#metrics.countCacheEviction();
    }
  }

  /** Evicts the oldest entries of all models: the first entry of each model is its oldest. */
  #evict(): void {
    while (this.#bytes > this.#bytesMax) {
      let oldest: { readonly id: string; readonly model: ModelEntries; readonly entry: Entry } | undefined;
      for (const [id, model] of this.#models) {
        const [entry] = model.entries.values();
        if (entry !== undefined && !(entry.number > (oldest?.entry.number ?? Infinity)))
          oldest = { id, model, entry };
      }
      if (oldest === undefined) return;
      this.#drop(oldest.id, oldest.model, oldest.entry);
      this.#metrics.countCacheEviction();
    }
  }

  #drop(id: string, model: ModelEntries, entry: Entry): void {
    model.entries.delete(entry.name);
    if (model.entries.size === 0) this.#models.delete(id);
    model.bytes -= bytesOf(entry);
    this.#bytes -= bytesOf(entry);
    this.#count -= 1;
  }

  #report(): void {
    this.#metrics.setCache(this.#count, this.#bytes);
  }
}

/** Each entry counts CACHED_ROW_BYTES beside its bytes, which bounds the number of short ones. */
function bytesOf({ bytes }: CachedResponse): number {
  return bytes.length + CACHED_ROW_BYTES;
}

/** A call that the cache lacked: collects its response, and publishes or abandons it. */
export class CachedCall implements StorableCall {
  readonly #key: ResponseKey;
  readonly #cache: ResponseCache;
  readonly #clock: Clock;
  readonly #epoch: number;
  readonly #pieces: CollectedPieces;
  /** Equal calls may wait for this one. Undefined once that has ended, or if another call leads. */
  #flight: Flight | undefined;
  /** From `keep` to `publish`. */
  #kept: { readonly stream: boolean; readonly bytes: Uint8Array } | undefined;

  constructor(
    key: ResponseKey,
    cache: ResponseCache,
    budget: Pick<IdempotencyChannel, 'take' | 'giveBack'>,
    clock: Clock,
    flight: Flight | undefined,
  ) {
    this.#key = key;
    this.#cache = cache;
    this.#clock = clock;
    this.#epoch = cache.epoch;
    this.#pieces = new CollectedPieces(budget, CACHED_BYTES_MAX);
    this.#flight = flight;
  }

  collect(bytes: Uint8Array): void {
    this.#pieces.add(bytes);
    if (this.#pieces.areDropped) this.letOthersGo();
  }

  /**
   * Calls that wait for this one are made alone, because the response is too long to be kept, or because the
   * client does not read it. It is still kept if it comes to its end.
   */
  letOthersGo(): void {
    const flight = this.#flight;
    this.#flight = undefined;
    if (flight !== undefined) this.#cache.abandon(flight);
  }

  keep(last: Uint8Array, stream: boolean, _position: number, fallback?: string): void {
    this.collect(last);
    const bytes = this.#pieces.take();
    if (bytes !== undefined && fallback === undefined) this.#kept = { stream, bytes };
  }

  publish(): void {
    const flight = this.#flight;
    if (this.#kept === undefined || this.#epoch !== this.#cache.epoch) {
      this.giveUp();
      return;
    }
    this.#flight = undefined;
    this.#cache.publish(this.#key, { ...this.#kept, endedMs: this.#clock.wallMs() }, flight);
    this.#kept = undefined;
  }

  forget(): void {
    this.giveUp();
  }

  giveUp(): void {
    this.#pieces.drop();
    this.#kept = undefined;
    this.letOthersGo();
  }
}
