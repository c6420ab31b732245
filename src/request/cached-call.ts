/**
 * A call of a model with a response cache: looks its response up, charges a hit, and collects the response of
 * a miss. Used by Intake and Delivery; listener thread.
 *
 *     lookUp → hit: the response goes out as a Replay, charged before by ChargedHit if hits have a price
 *            → miss: CachedCall collects the response, and publishes or abandons it
 *
 * Must hold: these responses are not kept: an error, a cut response, that of a fallback (it would outlive the
 * outage), that of a call whose output was lowered to what its account can pay, one that is too long, and
 * with `durability: commit` one whose charge is not on disk. A call that leads a single flight ends it
 * exactly once, or equal calls wait until their time is over. No call waits for another call's client to read
 * (test/e2e/cache.test.ts).
 */
import type { CachedResponse } from '../channel/cache-channel.js';
import type { IdempotencyChannel } from '../channel/idempotency-channel.js';
import type { Clock } from '../core/clock.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import type { ChatCall } from '../protocol/chat-call.js';
import { requestDigestOf } from '../protocol/request-digest.js';
import { ALL_ACCOUNTS, cacheKeyOf, nameOfResponse, type ResponseKey } from '../registry/stored-response.js';
import { modelSlotOf } from '../telemetry/metrics-layout.js';
import { choose } from './admit.js';
import type { ChatExchange } from './chat-exchange.js';
import type { Admission, ListenerContext } from './context.js';
import { CollectedPieces, type EarlierResponse, type StorableCall } from './idempotency.js';
import { knownFor } from './known-requests.js';
import type { ListenerLimits } from './messages.js';
import { NOT_COMMITTED } from './rejections.js';
import { CACHED_BYTES_MAX, type Flight, type Requested, type ResponseCache } from './response-cache.js';
import { reverse, settleHit, type PendingCommit, type Settled } from './settle.js';

const MISS_LINE = '\r\nx-tollgate-cache: miss';
const MS_PER_SECOND = 1_000;

/** The listener, as `lookUp` needs it. */
export interface CacheContext extends ListenerContext {
  readonly cache: ResponseCache;
  readonly locks: IdempotencyChannel;
  readonly limits: Pick<ListenerLimits, 'parseInlineBytesMax'>;
}

/** What decides on the response beside the body. It is part of the cache key. */
interface RequestFacts {
  readonly door: string;
  readonly modelId: string;
  /** Changes with the model's upstreams and cache settings: see CacheRule. */
  readonly revision: string;
  /** The plan's bound of the output, if the call has none. */
  readonly outputTokensMax: number | undefined;
  readonly includeUsage: boolean;
  /** The header `anthropic-beta`. */
  readonly betas: string;
}

function textOf({ door, modelId, revision, outputTokensMax, includeUsage, betas }: RequestFacts): string {
  return `${door} ${modelId} ${revision} ${outputTokensMax ?? ''} ${includeUsage} ${betas}`;
}

/**
 * Returns the response of an equal request; undefined if the call is to be made, or if `admit` will reject
 * it; a promise if another thread or call must be waited for. `cacheControl` is the header's value.
 */
export function lookUp(
  exchange: ChatExchange,
  call: ChatCall,
  cacheControl: string | undefined,
  listener: CacheContext,
): EarlierResponse | Promise<EarlierResponse | undefined> | undefined {
  const { cache, clock, metrics, limits } = listener;
  // An Idempotency-Key promises the response of its own first call. Large bodies are not digested here,
  // because that would hold up the listener's other calls.
  if (exchange.keyed !== undefined || call.bodyBytes > limits.parseInlineBytesMax) return undefined;
  const chosen = choose(exchange, call, listener);
  if ('code' in chosen) return undefined;
  const { model, modelIndex, outputTokensMax } = chosen;
  const { cache: rule } = model;
  if (rule === undefined || exchange.door.isFree === true || saysDirective(cacheControl, 'no-store'))
    return undefined;
  const facts = textOf({
    door: exchange.door.name,
    modelId: model.id,
    revision: rule.revision,
    outputTokensMax,
    includeUsage: call.includeUsage,
    betas: exchange.betas,
  });
  const account = rule.isShared ? ALL_ACCOUNTS : exchange.account;
  const known = knownFor(exchange, facts, account);
  const key = known?.key ?? cacheKeyOf(account, model.id, requestDigestOf(call, facts));
  const miss = (flight?: Flight): void => {
    exchange.cacheLine = MISS_LINE;
    metrics.countCached(modelSlotOf(modelIndex), false);
    exchange.cached = new CachedCall(key, cache, listener.locks, clock, flight);
  };
  const hit = ({ stream, bytes, endedMs }: CachedResponse): EarlierResponse | undefined => {
    // Its end gives back what it holds; after that nothing would.
    if (!exchange.isOver && !cache.hold(bytes.length)) {
      miss();
      return undefined;
    }
    cache.known.remember(exchange, call, facts, key);
    const ageMs = Math.max(0, clock.wallMs() - endedMs);
    exchange.cacheLine = `\r\nx-tollgate-cache: hit\r\nage: ${Math.floor(ageMs / MS_PER_SECOND)}`;
    metrics.countCached(modelSlotOf(modelIndex), true);
    return (exchange.hit = { stream, bytes, ageMs });
  };
  if (saysDirective(cacheControl, 'no-cache')) {
    miss();
    return undefined;
  }
  const found = cache.find(model.id, known?.name ?? nameOfResponse(key), rule.ttlMs);
  if (found !== undefined) return hit(found);
  return cache.request(key, call.bodyBytes).then((requested: Requested) => {
    if (requested.state === 'found') return hit(requested.response);
    miss(requested.state === 'lead' ? requested.flight : undefined);
    return undefined;
  });
}

/** Whether the header Cache-Control has `directive`. */
function saysDirective(cacheControl: string | undefined, directive: string): boolean {
  const given = cacheControl?.toLowerCase().split(',') ?? [];
  return given.some((one) => one.trim() === directive);
}

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

type ChargeContext = Pick<
  ListenerContext,
  'ledger' | 'journal' | 'clock' | 'durability' | 'cachedInput' | 'pendingCommits' | 'channel'
>;

/**
 * Charges an admitted hit. With `durability: commit` nothing is sent before the charge is on disk.
 */
export class ChargedHit implements PendingCommit {
  readonly #exchange: ChatExchange;
  readonly #admission: Admission;
  readonly #listener: ChargeContext;
  readonly #onCharged: (rejection: ErrorRecord | undefined) => void;
  #settled: Settled | undefined;

  /** `onCharged` is called once, with a rejection if the charge could not be written and was taken back. */
  constructor(
    exchange: ChatExchange,
    admission: Admission,
    listener: ChargeContext,
    onCharged: (rejection: ErrorRecord | undefined) => void,
  ) {
    this.#exchange = exchange;
    this.#admission = admission;
    this.#listener = listener;
    this.#onCharged = onCharged;
  }

  start(): void {
    const { durability, pendingCommits } = this.#listener;
    this.#settled = settleHit(this.#exchange, this.#listener);
    this.#exchange.charged(this.#settled, 0);
    if (durability === 'commit') pendingCommits.hold(this.#settled.position, this);
    else this.onCommitted();
  }

  onCommitted(): void {
    this.#listener.channel.release(this.#admission.slot);
    this.#onCharged(undefined);
  }

  onUncommitted(): void {
    invariant(this.#settled !== undefined, 'what is taken back was charged');
    reverse(this.#exchange, this.#settled, this.#listener);
    this.#exchange.reversed();
    this.#listener.channel.release(this.#admission.slot);
    this.#onCharged(NOT_COMMITTED);
  }
}
