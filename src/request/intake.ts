/**
 * The phases of a call before its delivery: authenticate, rate-limit, read-body, admit. listener-server.ts
 * makes one Intake for each call. Listener thread.
 *
 *     reading ──→ (asking) ──→ handed over to `#successor`: Delivery, Replay, or ChargedHit and then Replay
 *        └────────────┴──────→ over: rejected, or the client left
 *
 *     reading   the body is being read
 *     asking    waits for another thread: a large body is parsed, an idempotency lock taken, a lease granted
 *
 * Must hold: `exchange.finish` is called exactly once on every path, or what the call took is lost (the test
 * of chat-exchange.ts). No error about what a body says is sent before its caller has a permit
 * (test/e2e/order-of-checks.test.ts). After each `await` the client may be gone, and then `exchange.res` is
 * freed (test/e2e/leaving-clients.test.ts).
 */
import type { HttpRequest } from 'uWebSockets.js';
import { type PendingQuestion, replyOrElse } from '../core/ask-port.js';
import { OUT_OF_DESCRIPTORS, invariant, type ErrorRecord } from '../core/errors.js';
import { BODY_BYTES_UNCOUNTED, UPLOAD_MS_MAX } from '../core/limits.js';
import type { MonotonicMs } from '../core/units.js';
import type { ChatCall, ChatRequestResult } from '../protocol/chat-call.js';
import { modelInFirstPiece } from '../protocol/request-bytes.js';
import { AdmissionAsk } from './admission-lease.js';
import { admit, beyondBalance } from './admit.js';
import { authenticate } from './authenticate.js';
import type { CallTracer } from './call-trace.js';
import type { ChatExchange } from './chat-exchange.js';
import type { IntakeContext, Swept } from './context.js';
import { Delivery } from './delivery.js';
import { DISCARDED_BYTES_MAX, takeDiscard } from './discard-budget.js';
import {
  bodyDigestOf,
  bodyDigestOfPieces,
  checkIdempotencyKey,
  digestAtDoor,
  KeyedCall,
  type EarlierResponse,
} from './idempotency.js';
import { passRateLimit, setTokenLimit } from './rate-limit.js';
import { outsideOfCallbacks, readBody, type BodyWatcher, type BodyReceiver } from './read-body.js';
import {
  ACCOUNT_BODIES_FULL,
  BODIES_FULL,
  bodyTooLarge,
  CLIENT_GONE,
  compressedBody,
  parseTooLate,
  unknownModel,
  UPLOAD_TOO_SLOW,
  uploadStalled,
} from './rejections.js';
import { ChargedHit, lookUp, Replay } from './replay.js';
import type { RequestHead } from './request-head.js';
import { ENDS_CONNECTION, writeError } from './response.js';
import { UWS_TIMER_RESTART_MS } from './response-writer.js';

/** How a wait for another thread ended: the call is to be made, is rejected, or has an earlier response. */
type WaitResult =
  | { readonly kind: 'call'; readonly call: ChatCall }
  | { readonly kind: 'rejection'; readonly rejection: ErrorRecord }
  | { readonly kind: 'replay'; readonly earlier: EarlierResponse };

export class Intake implements BodyWatcher, BodyReceiver, Swept {
  readonly #exchange: ChatExchange;
  readonly #listener: IntakeContext;
  /** Whether the call neither waits for another thread nor was handed over: the state `reading`. */
  #isReading = true;
  /** Serves the call after Intake, and gets `onClientGone` in place of Intake. */
  #successor: Delivery | ChargedHit | Replay | undefined;
  /** The question to the counter pool, while a counter thread parses the body. */
  #parseQuestion: PendingQuestion<ChatRequestResult> | undefined;
  #leaseAsk: AdmissionAsk | undefined;
  #cacheControl: string | undefined;
  #wasCacheAsked = false;
  /** Whether bytes of the body have come since the last sweep. */
  #hasNewBytes = false;
  /** When the first sweep was. It and the next two are monotonic times, and 0 before the first sweep. */
  #firstSweepMs = 0;
  /** When the last sweep was that saw new bytes. */
  #lastBytesMs = 0;
  #timerRestartedMs = 0;
  /** The header Content-Length, 0 without it. Becomes 0 when nothing more of the body is awaited. */
  #unreadBytes = 0;

  constructor(exchange: ChatExchange, listener: IntakeContext) {
    this.#exchange = exchange;
    this.#listener = listener;
    exchange.res.onAborted(() => this.#onClientGone());
  }

  /** Runs the phases before the body, then reads the body. `head` and `req` are valid until this returns. */
  begin(req: HttpRequest, head: RequestHead, tracer: CallTracer): void {
    const exchange = this.#exchange;
    const listener = this.#listener;
    const length = (this.#unreadBytes = Number(head.contentLength ?? 0));
    const rejection = authenticate(exchange, head.authorization, listener);
    if (rejection !== undefined) {
      this.reject(rejection);
      return;
    }
    const caller = exchange.knownCaller;
    exchange.betas = head.betas;
    this.#cacheControl = head.cacheControl;
    // After authentication, so that nobody without a key causes an export of spans.
    exchange.trace = tracer.begin(req, head.traceParent, caller);
    const compressed = compressedBody(head.contentEncoding);
    const receiver = passRateLimit(this, exchange, head.idempotencyKey, compressed, listener);
    if (receiver === undefined) return;
    const { bodyBytesMax } = caller.plan;
    if (length > bodyBytesMax + DISCARDED_BYTES_MAX) {
      receiver.onTooLarge('unread');
      return;
    }
    // A body above `bodyBytesMax` takes no memory: readBody reads it only to discard it.
    if (length > BODY_BYTES_UNCOUNTED && length <= bodyBytesMax && !this.takeBody(length, length)) return;
    const bodyReceiver = exchange.isLastRequest ? outsideOfCallbacks(receiver, exchange) : receiver;
    const lengths = { length, bodyBytesMax, onePieceBytesMax: listener.limits.parseInlineBytesMax };
    readBody(exchange.res, lengths, this, bodyReceiver);
    if (!exchange.isOver) exchange.startSweep(this);
  }

  get isOver(): boolean {
    return this.#exchange.isOver;
  }

  /** `key` is the header Idempotency-Key. Returns the rejection if the key is malformed. */
  takeIdempotencyKey(key: string | undefined): ErrorRecord | undefined {
    if (key === undefined) return undefined;
    const { locks, collected } = this.#listener;
    this.#exchange.keyed = new KeyedCall(key, locks, collected);
    return checkIdempotencyKey(key);
  }

  // read-body.ts describes the methods of BodyWatcher and BodyReceiver, from here to `onTooLarge`.

  takeBody(bytes: number, certainBytes: number): boolean {
    const exchange = this.#exchange;
    const { limits, bodies } = this.#listener;
    const { knownCaller: caller, door, keyed } = exchange;
    const { parseInlineBytesMax, bodiesInWorkBytesMax } = limits;
    // A call with an Idempotency-Key may be a replay, which costs nothing. Only its whole body shows that.
    const mustPay = bytes > parseInlineBytesMax && door.isFree !== true && keyed === undefined;
    const rejection = mustPay ? beyondBalance(caller, certainBytes, door.name, this.#listener) : undefined;
    if (rejection !== undefined) return this.#rejectEarly(rejection, bytes);
    const { bodyBytesMax } = caller.plan;
    const bounds = { bytesMax: bodiesInWorkBytesMax, bodyBytesMax, parseInlineBytesMax };
    const budgetState = bodies.take(caller.account, exchange.bodyBytes, bytes, bounds);
    if (budgetState !== 'taken')
      return this.#rejectEarly(budgetState === 'full' ? BODIES_FULL : ACCOUNT_BODIES_FULL, bytes);
    exchange.bodyBytes = bytes;
    return true;
  }

  takeFirstPiece(piece: Uint8Array): boolean {
    const { knownCaller: caller, bodyBytes, hasPermit, keyed } = this.#exchange;
    const model = hasPermit && keyed === undefined ? modelInFirstPiece(piece) : undefined;
    if (model === undefined || this.#listener.access.indexOf(model, caller.planIndex) !== undefined)
      return true;
    return this.#rejectEarly(unknownModel(model), bodyBytes);
  }

  onBodyProgress(bytes: number): void {
    this.#hasNewBytes = true;
    this.#listener.bodyTurns.onBytes(this.#exchange.res, bytes);
  }

  /** Nothing more of the body is awaited. Idempotent. */
  stopReading(): void {
    this.#unreadBytes = 0;
    this.#exchange.stopSweep();
    this.#listener.bodyTurns.leave(this.#exchange.res, this.#exchange.clientGone);
  }

  onBody(bytes: Uint8Array): void {
    const exchange = this.#exchange;
    this.stopReading();
    exchange.bodyRead();
    if (this.#listener.contents.isOn) this.#gatherContents([bytes]);
    const read = this.#listener.cache.knownRequests.read(exchange, bytes);
    if (read.ok) exchange.isStream = read.call.stream;
    if (!read.ok) this.reject(read.error);
    else if (exchange.keyed === undefined) this.#admit(read.call);
    else void this.#awaitThread(this.#lock(exchange.keyed, bodyDigestOf(bytes), read.call));
  }

  onLargeBody(pieces: Uint8Array[]): void {
    this.stopReading();
    this.#exchange.bodyRead();
    if (this.#listener.contents.isOn) this.#gatherContents(pieces);
    void this.#awaitThread(this.#parseLarge(pieces));
  }

  onTooLarge(rest: 'read' | 'unread'): void {
    const { knownCaller: caller, door, endsConnection } = this.#exchange;
    this.reject(bodyTooLarge(caller.plan.bodyBytesMax, door.name), rest === 'unread' || endsConnection);
  }

  #gatherContents(pieces: readonly Uint8Array[]): void {
    const exchange = this.#exchange;
    const contents = (exchange.contents = this.#listener.contents.begin(exchange.knownCaller.key));
    if (contents !== undefined) for (const piece of pieces) contents.addRequest(piece);
  }

  /** Rejects before the whole body has come. About `bytes` of the body are still to come. Returns false. */
  #rejectEarly(error: ErrorRecord, bytes: number): false {
    const { connections, discards, bodyTurns } = this.#listener;
    const reject = (): void => this.reject(error, connections.endsConnections || !discards.take(bytes));
    bodyTurns.reject(this.#exchange.res, reject);
    return false;
  }

  /** Responds with an error and finishes the call, which has nothing or has given all back. */
  reject(error: ErrorRecord, endsConnection = this.#exchange.endsConnection || !this.#discardsBody()): void {
    const exchange = this.#exchange;
    if (!exchange.isLastRequest || !this.#isReading) {
      this.#rejectNow(error, endsConnection);
      return;
    }
    // Outside of µWS's callbacks, for the reason that read-body.ts gives at `outsideOfCallbacks`.
    setImmediate(() => {
      if (!exchange.isOver) this.#rejectNow(error, ENDS_CONNECTION);
    });
  }

  /** Takes of a budget: see `takeDiscard`. */
  #discardsBody(): boolean {
    return takeDiscard(this.#unreadBytes, this.#exchange.caller?.plan.bodyBytesMax, this.#listener);
  }

  #rejectNow(error: ErrorRecord, endsConnection: boolean): void {
    const exchange = this.#exchange;
    this.stopReading();
    exchange.storable?.giveUp();
    if (!exchange.clientGone) {
      exchange.sentError = error;
      // An unknown caller has no limits. If a limit of tokens rejected the call, `admit` has set the header.
      if (exchange.rateLimit !== undefined && exchange.tokenLimit === undefined)
        setTokenLimit(exchange, this.#listener);
      this.#listener.metrics.countRejection(error.detail ?? error.code);
      exchange.res.cork(() => writeError(exchange.res, error, exchange, endsConnection));
    }
    exchange.finish(exchange.clientGone ? 'client_gone' : error.code);
  }

  /** Waits for another thread, then continues the call. Never rejects. */
  async #awaitThread(wait: Promise<WaitResult>): Promise<void> {
    this.#isReading = false;
    const result = await replyOrElse(wait, rejectionOf);
    this.#parseQuestion = undefined;
    if (this.#exchange.clientGone) this.#exchange.finish('client_gone');
    else if (result.kind === 'rejection') this.reject(result.rejection);
    else if (result.kind === 'replay') this.#replay(result.earlier);
    else this.#admit(result.call);
  }

  /** Transfers the memory of `pieces`. Rejects with AskRejected if the counter pool is full or too slow. */
  async #parseLarge(pieces: Uint8Array[]): Promise<WaitResult> {
    const { keyed, account, door } = this.#exchange;
    const { parser, limits } = this.#listener;
    const bodyDigest = keyed === undefined ? '' : await bodyDigestOfPieces(pieces);
    if (this.#exchange.clientGone) return { kind: 'rejection', rejection: CLIENT_GONE };
    this.#parseQuestion = parser.askWithin(
      limits.parseWaitMs,
      parseTooLate(limits.parseWaitMs),
      { account, task: { kind: 'parse', door: door.name, pieces } },
      pieces.map(({ buffer }) => buffer as ArrayBuffer),
    );
    const read = await this.#parseQuestion.reply;
    if (!read.ok) return { kind: 'rejection', rejection: read.error };
    this.#exchange.isStream = read.call.stream;
    return keyed === undefined ? { kind: 'call', call: read.call } : this.#lock(keyed, bodyDigest, read.call);
  }

  async #lock(keyed: KeyedCall, bodyDigest: string, call: ChatCall): Promise<WaitResult> {
    const { account, door } = this.#exchange;
    const { rejection, earlier } = await keyed.lock(account, digestAtDoor(bodyDigest, door.path));
    if (rejection !== undefined) return { kind: 'rejection', rejection };
    return earlier === undefined ? { kind: 'call', call } : { kind: 'replay', earlier };
  }

  /**
   * Looks the response up in the cache, only once a request: `#admit` may run again after a wait. Returns
   * undefined if the call is to be made, a promise if another thread or call must be waited for.
   */
  #lookUp(call: ChatCall): EarlierResponse | Promise<WaitResult> | undefined {
    if (this.#wasCacheAsked) return undefined;
    this.#wasCacheAsked = true;
    const hit = lookUp(this.#exchange, call, this.#cacheControl, this.#listener);
    if (!(hit instanceof Promise)) return hit;
    return hit.then((earlier) =>
      earlier !== undefined && this.#isHitFree ? { kind: 'replay', earlier } : { kind: 'call', call },
    );
  }

  /** Whether a hit costs nothing. A hit that has a price is admitted, as calls are, and then charged. */
  get #isHitFree(): boolean {
    const [chosen] = this.#exchange.models;
    invariant(chosen !== undefined, 'a request that was looked up has a model');
    return chosen.model.price.cachedResponsePicoUnits === 0n;
  }

  /** Charges a hit that has a price, and then replays it. */
  #chargeHit(hit: EarlierResponse): void {
    this.#isReading = false;
    this.#successor = new ChargedHit(this.#exchange, this.#listener, (rejection) => {
      if (this.#exchange.clientGone) this.#exchange.finish('client_gone');
      else if (rejection === undefined) this.#replay(hit);
      else this.reject(rejection);
    });
    this.#successor.start();
  }

  #replay(earlier: EarlierResponse): void {
    this.#exchange.giveBackBody();
    setTokenLimit(this.#exchange, this.#listener);
    this.#successor = new Replay(this.#exchange, earlier, this.#listener);
    this.#successor.start();
  }

  #admit(call: ChatCall): void {
    const found = this.#listener.cache.isOn ? this.#lookUp(call) : undefined;
    if (found instanceof Promise) {
      void this.#awaitThread(found);
      return;
    }
    if (found !== undefined && this.#isHitFree) {
      this.#replay(found);
      return;
    }
    const rejection = this.#listener.connections.isOutOfDescriptors
      ? OUT_OF_DESCRIPTORS
      : admit(this.#exchange, call, this.#listener);
    if (rejection === undefined) {
      const { hit } = this.#exchange;
      if (hit === undefined) this.#dispatch();
      else this.#chargeHit(hit);
      return;
    }
    // If descriptors are short, no lease helps, and `asksLease` is out of date: `admit` was not called.
    const leaseWait = rejection === OUT_OF_DESCRIPTORS ? undefined : this.#askForLease(call);
    if (leaseWait === undefined) this.reject(rejection);
    else void this.#awaitThread(leaseWait);
  }

  /** Asks for a lease, after which `admit` is called again. Returns undefined if the call may not ask. */
  #askForLease(call: ChatCall): Promise<WaitResult> | undefined {
    const { leases } = this.#listener;
    if (leases === undefined) return undefined;
    this.#leaseAsk ??= new AdmissionAsk(this.#exchange, this.#listener, leases);
    return this.#leaseAsk
      .askAgain(call)
      ?.then((rejection) => (rejection === undefined ? { kind: 'call', call } : rejectionOf(rejection)));
  }

  #dispatch(): void {
    const exchange = this.#exchange;
    this.#isReading = false;
    // The output was lowered to this account's balance: callers who can pay more must not get the response.
    if (exchange.isOutputLowered && exchange.cached !== undefined) {
      exchange.cached.giveUp();
      exchange.cached = undefined;
    }
    this.#successor = new Delivery(exchange, this.#listener);
    this.#successor.dispatch();
  }

  /**
   * Called about once a second while the body is read. If a body brings less than 16 KB a second, µWS cuts
   * its connection after 8 to 12 s. So that timer is restarted, and the gateway cuts slow senders itself,
   * with an error response.
   */
  onSweep(nowMs: MonotonicMs): void {
    const { limits } = this.#listener;
    if (this.#firstSweepMs === 0) this.#firstSweepMs = this.#timerRestartedMs = this.#lastBytesMs = nowMs;
    if (this.#hasNewBytes) this.#lastBytesMs = nowMs;
    this.#hasNewBytes = false;
    const idleMsMax = limits.clientIdleTimeoutMs;
    if (nowMs - this.#lastBytesMs >= idleMsMax) this.#rejectNow(uploadStalled(idleMsMax), ENDS_CONNECTION);
    else if (nowMs - this.#firstSweepMs >= UPLOAD_MS_MAX) this.#rejectNow(UPLOAD_TOO_SLOW, ENDS_CONNECTION);
    else if (nowMs - this.#timerRestartedMs >= UWS_TIMER_RESTART_MS) {
      this.#timerRestartedMs = nowMs;
      this.#listener.bodyTurns.restartTimer(this.#exchange.res);
    }
  }

  #onClientGone(): void {
    const exchange = this.#exchange;
    exchange.clientGone = true;
    this.stopReading();
    this.#parseQuestion?.withdraw(CLIENT_GONE);
    if (this.#successor !== undefined) this.#successor.onClientGone();
    else if (this.#isReading && !exchange.isOver) exchange.finish('client_gone');
  }
}

const rejectionOf = (rejection: ErrorRecord): WaitResult => ({ kind: 'rejection', rejection });
