/**
 * Answers requests with stored responses. `lookUp` finds one in the response cache. ChargedHit charges it if
 * hits have a price. Replay sends it, or that of an earlier call with the same Idempotency-Key, which
 * KeyedCall.lock finds. intake.ts uses all three. Listener thread.
 *
 *     lookUp → hit: (ChargedHit →) Replay
 *            → miss: the exchange gets a CachedCall, which collects the response
 *
 * Must hold: a hit that has a price is charged once, and with `durability: commit` nothing of the response is
 * sent before the charge is on disk. No call waits for another call's client to read. If the gateway stops
 * before the client has a byte of a hit, the hit costs nothing. Tests: test/e2e/cache.test.ts, and for an
 * Idempotency-Key test/e2e/idempotency.test.ts.
 */
import type { CachedResponse } from '../channel/cache-messages.js';
import { type ErrorRecord, invariant } from '../core/errors.js';
import { FRAME_BYTES_MAX } from '../core/limits.js';
import type { MonotonicMs } from '../core/units.js';
import type { PendingCommit } from '../ledger/pending-commits.js';
import type { ChatCall } from '../protocol/chat-call.js';
import { requestDigestOf } from '../protocol/request-digest.js';
import { ALL_ACCOUNTS, cacheKeyOf, nameOfResponse } from '../registry/stored-response.js';
import { modelSlotOf } from '../telemetry/metrics-layout.js';
import { chooseModel } from './admit.js';
import type { ChatExchange } from './chat-exchange.js';
import type { IntakeContext, Swept } from './context.js';
import type { EarlierResponse } from './idempotency.js';
import { knownFor } from './known-requests.js';
import { NOT_COMMITTED, STOPPED } from './rejections.js';
import { writeChatHead } from './response.js';
import { CachedCall, type Flight, type Requested } from './response-cache.js';
import { ResponseWriter, type ResponseOwner } from './response-writer.js';
import { reverse, settleHit, type Settled } from './settle.js';

const MISS_LINE = '\r\nx-tollgate-cache: miss';
const MS_PER_SECOND = 1_000;

/**
 * Called once for a request. Returns the response of an equal one. Returns undefined if the call is to be
 * made, or if `admit` will reject it. Returns a promise if another thread or call must be waited for. Sets
 * `hit`, or `cached`, which collects the response, and `cacheLine` of the exchange. `cacheControl` is the
 * header's value.
 */
export function lookUp(
  exchange: ChatExchange,
  call: ChatCall,
  cacheControl: string | undefined,
  listener: IntakeContext,
): EarlierResponse | Promise<EarlierResponse | undefined> | undefined {
  const { cache, clock, metrics, limits } = listener;
  // An Idempotency-Key promises the response of the first call with that key. Large bodies are not digested
  // here, because a digest would delay the listener's other calls.
  if (exchange.keyed !== undefined || call.bodyBytes > limits.parseInlineBytesMax) return undefined;
  const chosen = chooseModel(exchange, call, listener);
  if ('code' in chosen) return undefined;
  const { model, modelIndex, outputTokensMax } = chosen;
  const { cache: cacheRule } = model;
  if (cacheRule === undefined || exchange.door.isFree === true || hasDirective(cacheControl, 'no-store'))
    return undefined;
  const { door, betas } = exchange;
  // All that decides on the response, besides the body. `revision` changes with the model's upstreams and
  // cache settings. `outputTokensMax` is the plan's bound for calls without one. `betas`: `anthropic-beta`.
  const facts = `${door.name} ${model.id} ${cacheRule.revision} ${outputTokensMax ?? ''} ${call.includeUsage} ${betas}`;
  const account = cacheRule.isShared ? ALL_ACCOUNTS : exchange.account;
  // If an equal body was a hit before, its entry has the key, and this body is not digested.
  const knownRequest = knownFor(exchange, facts, account);
  const key = knownRequest?.key ?? cacheKeyOf(account, model.id, requestDigestOf(call, facts));
  const recordMiss = (flight?: Flight): void => {
    exchange.cacheLine = MISS_LINE;
    metrics.countCacheMiss(modelSlotOf(modelIndex));
    exchange.cached = new CachedCall(key, cache, listener.collected, clock, flight);
  };
  const recordHit = ({ stream, bytes, endedMs }: CachedResponse): EarlierResponse | undefined => {
    // `beginSending` refuses if slow clients hold too many bytes: then the call is made. It is not called if
    // the exchange is over, because only `finish` calls `endSending`.
    if (!exchange.isOver && !cache.beginSending(bytes)) {
      recordMiss();
      return undefined;
    }
    cache.knownRequests.remember(exchange, call, facts, key);
    const ageMs = Math.max(0, clock.wallMs() - endedMs);
    exchange.cacheLine = `\r\nx-tollgate-cache: hit\r\nage: ${Math.floor(ageMs / MS_PER_SECOND)}`;
    metrics.countCacheHit(modelSlotOf(modelIndex));
    return (exchange.hit = { stream, bytes });
  };
  if (hasDirective(cacheControl, 'no-cache')) {
    recordMiss();
    return undefined;
  }
  const inMemory = cache.find(model.id, knownRequest?.name ?? nameOfResponse(key), cacheRule.ttlMs);
  if (inMemory !== undefined) return recordHit(inMemory);
  return cache.request(key, call.bodyBytes).then((requested: Requested) => {
    if (requested.state === 'found') return recordHit(requested.response);
    recordMiss(requested.state === 'lead' ? requested.flight : undefined);
    return undefined;
  });
}

function hasDirective(cacheControl: string | undefined, directive: string): boolean {
  const directives = cacheControl?.toLowerCase().split(',') ?? [];
  return directives.some((name) => name.trim() === directive);
}

/** Charges an admitted hit. With `durability: commit` nothing is sent before the charge is on disk. */
export class ChargedHit implements PendingCommit {
  readonly #exchange: ChatExchange;
  readonly #listener: IntakeContext;
  readonly #onCharged: (rejection: ErrorRecord | undefined) => void;
  #settled: Settled | undefined;
  /** Whether the gateway has cut the connection before the charge was on disk: then nobody pays. */
  #isCutByGateway = false;

  /** `onCharged` is called once, with undefined if the hit is charged, or why the charge was taken back. */
  constructor(
    exchange: ChatExchange,
    listener: IntakeContext,
    onCharged: (rejection: ErrorRecord | undefined) => void,
  ) {
    this.#exchange = exchange;
    this.#listener = listener;
    this.#onCharged = onCharged;
  }

  /** Call it once. It calls `onCharged` before it returns, unless the charge must wait for the disk. */
  start(): void {
    this.#settled = settleHit(this.#exchange, this.#listener);
    // A hit has waited for no upstream.
    this.#exchange.charged(this.#settled, 0);
    // `taken` is set if the charge can be taken back, so that the response must wait for the disk.
    if (this.#settled.taken !== undefined) this.#listener.pendingCommits.add(this.#settled.position, this);
    else this.onCommitted();
  }

  onCommitted(): void {
    if (this.#isCutByGateway) {
      this.#takeBack(STOPPED);
      return;
    }
    this.#listener.channel.release(this.#exchange.admitted.slot);
    this.#onCharged(undefined);
  }

  onUncommitted(): void {
    this.#takeBack(NOT_COMMITTED);
  }

  /** The charge stays if the client has left by itself. */
  onClientGone(): void {
    this.#isCutByGateway = this.#listener.connections.isClosing;
  }

  #takeBack(error: ErrorRecord): void {
    invariant(this.#settled !== undefined, 'what is taken back was charged');
    reverse(this.#exchange, this.#settled, this.#listener);
    this.#exchange.reversed();
    this.#listener.channel.release(this.#exchange.admitted.slot);
    this.#onCharged(error);
  }
}

/** Sends a stored response as its first client got it, a stream as a stream; by a ResponseWriter if long. */
export class Replay implements ResponseOwner, Swept {
  readonly isStream: boolean;
  readonly #exchange: ChatExchange;
  readonly #earlier: EarlierResponse;
  readonly #listener: IntakeContext;
  #writer: ResponseWriter | undefined;

  constructor(exchange: ChatExchange, earlier: EarlierResponse, listener: IntakeContext) {
    this.#exchange = exchange;
    this.#earlier = earlier;
    this.isStream = earlier.stream;
    this.#listener = listener;
  }

  start(): void {
    const exchange = this.#exchange;
    const { bytes } = this.#earlier;
    exchange.contents?.addResponse(bytes);
    // In one write, with a Content-Length, as an upstream's response that comes in one frame.
    if (!this.isStream && bytes.length <= FRAME_BYTES_MAX) {
      exchange.res.cork(() => {
        // `end` itself writes `connection: close` if the connection ends.
        const sendsClose = false;
        this.writeHead(sendsClose);
        exchange.res.end(bytes, exchange.endsConnection);
      });
      this.onDelivered();
      return;
    }
    exchange.responseBegun();
    this.#writer = new ResponseWriter(exchange.res, this.#listener.clock, this);
    exchange.startSweep(this);
    const isStable = true;
    this.#writer.end(bytes, isStable);
  }

  onSweep(nowMs: MonotonicMs): void {
    const isMoving = this.#writer?.onSweep(nowMs, this.#listener.limits.clientIdleTimeoutMs) ?? true;
    if (!isMoving) this.#exchange.res.close();
  }

  onClientGone(): void {
    // `onGone` may call `onDelivered`, which finishes the exchange.
    this.#writer?.onGone();
    if (!this.#exchange.isOver) this.#exchange.finish('client_gone');
  }

  get endsConnection(): boolean {
    return this.#exchange.endsConnection;
  }

  writeHead(sendsClose: boolean): void {
    writeChatHead(this.#exchange, this.isStream, sendsClose, this.#earlier.fallback);
    if (this.#exchange.hit === undefined) this.#exchange.res.writeHeader('idempotent-replayed', 'true');
  }

  onTaken(): void {
    // No worker waits for credits.
  }

  onDelivered(): void {
    this.#exchange.finish('ok');
  }
}
