/**
 * One chat-completion request on its socket, from its body to the last byte of its response. Listener thread.
 *
 *     reading → asking (other threads) → waiting (for the worker's first frame) → answering → held → leaving → done
 *                                                    └→ withdrawn (the gateway ends, and the client has had nothing) → done
 *
 * Asked is about large bodies, an Idempotency-Key, and leases where limits are shared. A repeat of a call with an Idempotency-Key goes from asking to leaving: it gets the response of the first.
 *
 * With `durability: commit` the last bytes of a response are held until its charge is on disk.
 *
 * Back-pressure: what the client's socket does not take waits in the AnswerWriter, and no credit goes back to the worker
 * for it; both sides together hold one window. A response whose bill is settled and whose client is slow is `leaving`. Held
 * and leaving answers keep their call slot, so that they are bounded like calls.
 */
import type { HttpResponse } from 'uWebSockets.js';
import { OUT_OF_DESCRIPTORS, invariant, type ErrorRecord } from '../core/errors.js';
import type { AccountIndex } from '../core/units.js';
import { UPLOAD_MS_MAX } from '../core/limits.js';
import { errorEvent } from '../protocol/sse.js';
import type { ChatCall } from '../protocol/chat-call.js';
import { modelInFirstPiece } from '../protocol/first-model.js';
import { readChatBytes } from '../protocol/request-bytes.js';
import type { Usage } from '../protocol/usage.js';
import { admit, beyondBalance, isAllowed, unknownModel } from './admit.js';
import type { Caller, CallContext } from './context.js';
import type { PendingCommit } from './pending-commits.js';
import { checkIdempotencyKey, KeyedCall, type EarlierResponse } from './idempotency.js';
import { AdmissionAsk } from './lease-wait.js';
import { release, reverse, settle, type Settled } from './settle.js';
import type { BodyBudget } from './body-budget.js';
import type { CallReceiver } from '../channel/listener-channel.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import { arrivalOfKeyed, arrivalOfLarge, LargeParse, type Arrival, type Keyed } from './chat-arrival.js';
import { writeChatHead, writeError } from './response.js';
import { ResponseWriter, TOUCH_MS, type ResponseOwner } from './response-writer.js';
import type { BodyHold, BodyReceiver } from './read-body.js';
import { CallMeter } from './call-meter.js';
import { OUTPUT_TOKENS_UNASKED } from '../channel/messages.js';
import type { ListenerLimits } from './messages.js';
import { Replay } from './replay.js';
import type { ListenerServer } from './listener-server.js';

type Phase = 'reading' | 'asking' | 'waiting' | 'withdrawn' | 'answering' | 'held' | 'leaving' | 'done';

const NO_WORKER: ErrorRecord = {
  code: 'overloaded',
  detail: 'no_worker',
  message: 'The gateway is replacing its workers. Retry after 1 second.',
  retryAfterSeconds: 1,
};

const BODIES_FULL: ErrorRecord = {
  code: 'overloaded',
  detail: 'bodies_in_work',
  message: 'The gateway has as many bytes of requests in work as it may. Retry after 1 second.',
  retryAfterSeconds: 1,
};
const ACCOUNT_BODIES_FULL: ErrorRecord = {
  code: 'overloaded',
  detail: 'account_bodies_in_work',
  message: 'The account has as many bytes of requests in work as one account may. Retry after 1 second.',
  retryAfterSeconds: 1,
};

const STOPPED: ErrorRecord = {
  code: 'internal_error',
  message: 'The gateway has stopped before the call was answered. The call was not billed; try it again.',
};

const NOT_IN_ACCOUNTING: ErrorRecord = {
  code: 'internal_error',
  message:
    'The gateway could not write the charge of this call to its books and has withheld the answer. The call was not billed; try it again.',
};

const TOO_SLOW: ErrorRecord = {
  code: 'request_timeout',
  message: `The body was not whole after ${UPLOAD_MS_MAX / 60_000} minutes.`,
};

const standsStill = (idleMs: number): ErrorRecord => ({
  code: 'request_timeout',
  message: `Nothing of the body came for ${idleMs} ms. Send it without long pauses.`,
});

export class ChatExchange implements CallReceiver, ResponseOwner, BodyHold, BodyReceiver, PendingCommit {
  readonly #server: ListenerServer;
  readonly #res: HttpResponse;
  readonly #context: CallContext;
  readonly #meter: CallMeter;
  /** Nothing is read from the connection after this request: see last-on-connection.ts. */
  readonly #isLast: boolean;
  #phase: Phase = 'reading';
  #clientGone = false;
  /** Of a request with an Idempotency-Key. */
  #keyed: Keyed | undefined;
  /** Of a large body. */
  #parse: LargeParse | undefined;
  /** Of a call that has asked those with whom limits are shared. */
  #leaseAsk: AdmissionAsk | undefined;
  /** Of a response that comes in pieces. */
  #writer: ResponseWriter | undefined;
  #held: { readonly settled: Settled; readonly bytes: Uint8Array } | undefined;
  /** Among the server's responses that have begun. */
  #sweepPlace: number | undefined;
  /** Of a response that is leaving. */
  #outcome: Outcome = 'ok';
  /** The worker's last frame was here and the response was not: the slot is given back with the end. */
  #keepsSlot = false;
  /** Length of the body that is counted among those in work, or of what has come of it. */
  #bodyBytes = 0;
  /** Bytes of the body have come since the last sweep. */
  #bodyMoves = false;
  /** Of the sweeps that saw the body begin and last saw it move; 0 before. */
  #bodyBegunMs = 0;
  #bodyMovedMs = 0;
  #touchedMs = 0;

  constructor(server: ListenerServer, res: HttpResponse, context: CallContext, isLast: boolean) {
    this.#server = server;
    this.#isLast = isLast;
    this.#res = res;
    this.#context = context;
    this.#meter = new CallMeter(server.parts);
    res.onAborted(() => this.#onClientGone());
    server.opened();
  }

  /** `key` is the text of the header Idempotency-Key, undefined where there is none; a refusal where it is no key. */
  takeKey(key: string | undefined): ErrorRecord | undefined {
    if (key === undefined) return undefined;
    const { caller } = this.#context;
    invariant(caller !== undefined, 'keys are of a known caller');
    this.#keyed = { keyed: new KeyedCall(key, this.#server.locks), account: caller.account };
    return checkIdempotencyKey(key);
  }

  /**
   * The body will be `bytes` long, and is `certainBytes` long at least. False where the call was refused instead, because there is no memory for it or
   * because it is large and is certain to be refused later; what is still to come of the body is then thrown away.
   */
  takeBody(bytes: number, certainBytes: number): boolean {
    const { parts, limits, bodies } = this.#server;
    const { caller } = this.#context;
    invariant(caller !== undefined, 'a body is read for a known caller');
    const isLarge = bytes > limits.parseInlineBytesMax;
    const refusal =
      (isLarge ? beyondBalance(caller, certainBytes, parts) : undefined) ??
      this.#hold(caller, bytes, bodies, limits);
    if (refusal !== undefined) this.#refuseEarly(refusal, bytes);
    return refusal === undefined;
  }

  /** The first piece of a large body is here; false as `takeBody`. */
  takeFirstPiece(piece: Uint8Array): boolean {
    const { caller } = this.#context;
    invariant(caller !== undefined, 'a body is read for a known caller');
    const model = modelInFirstPiece(piece);
    if (model === undefined || isAllowed(caller, model, this.#server.parts)) return true;
    this.#refuseEarly(unknownModel(model), this.#bodyBytes);
    return false;
  }

  /** Refuses before the body is whole, of which about `bytes` are to come. */
  #refuseEarly(error: ErrorRecord, bytes: number): void {
    this.refuse(error, this.#server.endsConnections || !this.#server.discards.take(bytes));
  }

  #hold(caller: Caller, bytes: number, bodies: BodyBudget, limits: ListenerLimits): ErrorRecord | undefined {
    const { parseInlineBytesMax, bodiesInWorkBytesMax: bytesMax } = limits;
    const { bodyBytesMax } = caller.plan;
    const bounds = { bytesMax, bodyBytesMax, parseInlineBytesMax };
    const taken = bodies.take(caller.account, this.#bodyBytes, bytes, bounds);
    if (taken !== 'taken') return taken === 'full' ? BODIES_FULL : ACCOUNT_BODIES_FULL;
    this.#bodyBytes = bytes;
    return undefined;
  }

  /** Once nobody in the gateway holds the body any more; a second time does nothing. */
  #giveBackBody(): void {
    const { caller } = this.#context;
    if (this.#bodyBytes === 0 || caller === undefined) return;
    this.#server.bodies.giveBack(caller.account, this.#bodyBytes);
    this.#bodyBytes = 0;
  }

  /** From now on the body is waited for: a slow one is kept from the timeout of µWS, and one that stands still is refused. */
  awaitBody(): void {
    if (this.#phase === 'reading') this.#sweepPlace = this.#server.streaming.add(this);
  }

  onBodyProgress(): void {
    this.#bodyMoves = true;
  }

  /** The body is whole; `bytes` are valid during the call only. */
  onBody(bytes: Uint8Array): void {
    this.#leaveSweep();
    this.#meter.bodyRead();
    const read = readChatBytes(bytes);
    if (!read.ok) this.refuse(read.error);
    else if (this.#keyed === undefined) this.#start(read.call);
    else void this.#await(arrivalOfKeyed(this.#keyed, bytes, read.call));
  }

  /** The body is whole and too large to be parsed here. */
  onLargeBody(pieces: Uint8Array[]): void {
    this.#leaveSweep();
    this.#meter.bodyRead();
    const { parser, limits } = this.#server;
    this.#parse = new LargeParse(parser, this.#account, limits.parseWaitMs);
    void this.#await(arrivalOfLarge(pieces, this.#parse, this.#keyed));
  }

  /** `more` of the body is still to come and will not be read. */
  onTooLarge(more: boolean): void {
    const { caller } = this.#context;
    invariant(caller !== undefined, 'a body is read for a known caller');
    this.refuse(
      {
        code: 'request_too_large',
        message: `The body is longer than the ${caller.plan.bodyBytesMax} bytes that are accepted. Shorten the messages.`,
      },
      more || this.endsConnection,
    );
  }

  get #account(): AccountIndex {
    const { caller } = this.#context;
    invariant(caller !== undefined, 'a call is of a known caller');
    return caller.account;
  }

  /** Responses with an error before anything was admitted. */
  refuse(error: ErrorRecord, close = this.endsConnection): void {
    if (!this.#isLast || this.#phase !== 'reading') {
      this.#refuse(error, close);
      return;
    }
    setImmediate(() => {
      if (!this.isOver) this.#refuse(error, true);
    });
  }

  #refuse(error: ErrorRecord, close: boolean): void {
    this.#leaveSweep();
    this.#keyed?.keyed.giveUp();
    if (!this.#clientGone) {
      this.#server.parts.metrics.countRefusal(error.detail ?? error.code);
      this.#res.cork(() => writeError(this.#res, error, this.#context, { close }));
    }
    this.#finish(this.#clientGone ? 'client_gone' : error.code);
  }

  /** Goes on with what other threads have been asked for. */
  async #await(arrival: Promise<Arrival>): Promise<void> {
    this.#phase = 'asking';
    const arrived = await arrival;
    if (this.#clientGone) this.#finish('client_gone');
    else if (arrived.kind === 'refusal') this.refuse(arrived.refusal);
    else if (arrived.kind === 'repeat') this.#replay(arrived.earlier);
    else this.#start(arrived.call);
  }

  #replay(earlier: EarlierResponse): void {
    const { parts, streaming } = this.#server;
    const endsConnections = this.endsConnection;
    this.#phase = 'leaving';
    this.#giveBackBody();
    const replay = new Replay(this.#res, this.#context, earlier, endsConnections, () => this.onLeft());
    if (replay.isShort) {
      replay.sendWhole();
      return;
    }
    this.#writer = new ResponseWriter(this.#res, parts.clock, replay);
    this.#sweepPlace = streaming.add(this);
    replay.sendBy(this.#writer);
  }

  #start(call: ChatCall): void {
    const { parts } = this.#server;
    const refusal = this.#server.descriptors.isShort ? OUT_OF_DESCRIPTORS : admit(this.#context, call, parts);
    if (refusal !== undefined) {
      const asked = this.#askLease(refusal, call);
      if (asked === undefined) this.refuse(refusal);
      else void this.#await(asked);
      return;
    }
    const { admission } = this.#context;
    invariant(admission !== undefined, 'admit sets the admission or refuses');
    this.#phase = 'waiting';
    const dispatched = parts.channel.dispatch(
      admission.slot,
      {
        requestId: this.#context.requestId,
        modelIndex: admission.modelIndex,
        stream: admission.call.stream,
        includeUsage: admission.call.includeUsage,
        modelStart: admission.call.modelStart,
        modelEnd: admission.call.modelEnd,
        body: admission.call.body,
        bodyIsAscii: admission.call.bodyIsAscii,
        largeBody: admission.call.largeBody,
        trace: this.#context.trace?.carried,
        account: this.#account,
        outputTokensMax: Math.min(admission.call.outputTokensMax ?? Infinity, OUTPUT_TOKENS_UNASKED),
        choices: Math.min(admission.call.choices, OUTPUT_TOKENS_UNASKED),
      },
      this,
    );
    if (dispatched) {
      parts.metrics.callBegun();
      return;
    }
    release(this.#context, NO_WORKER, parts);
    parts.channel.release(admission.slot);
    this.refuse(NO_WORKER);
  }

  /** Where limits are shared: the call arrives again when those who share them were asked; undefined where that is over. */
  #askLease(refusal: ErrorRecord, call: ChatCall): Promise<Arrival> | undefined {
    const { parts } = this.#server;
    if (parts.leases === undefined) return undefined;
    this.#leaseAsk ??= new AdmissionAsk(this.#context, parts, parts.leases);
    const asked = this.#leaseAsk.again(refusal, call);
    return asked?.then((last) =>
      last === undefined ? { kind: 'call', call } : { kind: 'refusal', refusal: last },
    );
  }

  onData(bytes: Uint8Array, more: boolean): void {
    if (this.#clientGone) return;
    if (this.#writer === undefined) {
      this.#phase = 'answering';
      this.#meter.responseBegun();
      this.#writer = new ResponseWriter(this.#res, this.#server.parts.clock, this);
      this.#sweepPlace = this.#server.streaming.add(this);
    }
    this.#keyed?.keyed.collect(bytes);
    this.#writer.write(bytes, more);
  }

  onEnd(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): boolean {
    if (this.#phase === 'withdrawn') return this.onFail(STOPPED);
    const { parts } = this.#server;
    // The worker has let go of it; a slow client may take long over the response.
    this.#giveBackBody();
    if (!this.#clientGone) this.#keyed?.keyed.keep(bytes, this.isStream, parts.journal.nextPosition);
    const settled = settle(this.#context, usage, parts);
    parts.metrics.callEnded();
    this.#meter.charged(settled, upstreamWaitMs);
    if (parts.durability === 'commit' && !this.#clientGone) {
      this.#phase = 'held';
      // The memory they came in is soon used again.
      this.#held = { settled, bytes: bytes.slice() };
      this.#writer?.flush();
      parts.held.hold(settled.position, this);
    } else {
      this.#end(bytes);
    }
    return this.#isSlotFree();
  }

  /** Its client gets what has come so far and pays for it, as if it had left then: a cut connection, not an error, is what it sees. */
  onCut(usage: Usage, upstreamWaitMs: number): boolean {
    if (this.#phase === 'withdrawn') return this.onFail(STOPPED);
    const { parts } = this.#server;
    this.#keyed?.keyed.giveUp();
    this.#meter.charged(settle(this.#context, usage, parts), upstreamWaitMs);
    parts.metrics.callEnded();
    if (this.#clientGone) {
      this.#finish('client_gone');
    } else {
      invariant(this.#writer !== undefined, 'what is cut has begun');
      this.#outcome = 'client_gone';
      this.#writer.cut();
      if (!this.isOver) this.#phase = 'leaving';
    }
    return this.#isSlotFree();
  }

  onFail(error: ErrorRecord): boolean {
    this.#giveBackBody();
    // A worker got no descriptor for its connection: from now on connections must end.
    if (error.code === 'overloaded') this.#server.descriptors.look();
    this.#keyed?.keyed.giveUp();
    release(this.#context, error, this.#server.parts);
    this.#server.parts.metrics.callEnded();
    this.#fail(error);
    return this.#isSlotFree();
  }

  onCommitted(): void {
    invariant(this.#held !== undefined, 'what is let go was held');
    this.#end(this.#held.bytes);
  }

  /** Who has left has had what was relayed and pays for it: that charge waits in memory like any other. */
  onUncommitted(): void {
    invariant(this.#held !== undefined, 'what is given up was held');
    if (!this.#clientGone) {
      this.#keyed?.keyed.forget(this.#server.parts.journal.nextPosition);
      reverse(this.#context, this.#held.settled, this.#server.parts);
      this.#meter.reversed();
    }
    this.#fail(NOT_IN_ACCOUNTING);
  }

  /** After the worker's last frame: a slot whose answer is still here is kept, and given back by `#finish`. */
  #isSlotFree(): boolean {
    this.#keepsSlot = this.#phase !== 'done';
    return !this.#keepsSlot;
  }

  #end(bytes: Uint8Array): void {
    if (this.#clientGone) {
      this.#finish('client_gone');
    } else if (this.#writer !== undefined) {
      this.#leave(this.#writer, bytes, 'ok');
    } else {
      this.#res.cork(() => {
        this.writeHead(false);
        this.#res.end(bytes, this.endsConnection);
      });
      this.#finish('ok');
    }
  }

  #fail(error: ErrorRecord): void {
    if (this.#clientGone) {
      this.#finish('client_gone');
    } else if (this.#writer === undefined) {
      this.#res.cork(() => writeError(this.#res, error, this.#context, { close: this.endsConnection }));
      this.#finish(error.code);
    } else if (this.isStream) {
      this.#leave(this.#writer, Buffer.from(errorEvent(error)), error.code);
    } else {
      // Half of a whole response is out and its length was not promised: only a cut tells that it is not whole.
      this.#res.close();
      this.#finish(error.code);
    }
  }

  /** Writes the last bytes; where the client is slow the response leaves by and by. */
  #leave(writer: ResponseWriter, bytes: Uint8Array, outcome: Outcome): void {
    this.#outcome = outcome;
    writer.end(bytes);
    if (!this.isOver) this.#phase = 'leaving';
  }

  /** Also read anew after `end`, within which `onLeft` may have been called. */
  get isOver(): boolean {
    return this.#phase === 'done';
  }

  /** Called about once a second while the body is read and while a response is being written. */
  onSweep(nowMs: number, keepAliveMs: number): void {
    if (this.#phase === 'reading') {
      this.#sweepBody(nowMs);
      return;
    }
    const alive = this.#writer?.onSweep(nowMs, keepAliveMs, this.#server.limits.clientIdleTimeoutMs) ?? true;
    if (!alive) this.#res.close();
  }

  /**
   * µWS cuts a connection that brings less than 16 KB a second of a body for 8 to 12 s; `pause` and `resume`, one right after the other,
   * start that time anew. So who cuts a sender is the gateway, and says so.
   */
  #sweepBody(nowMs: number): void {
    if (this.#bodyBegunMs === 0) this.#bodyBegunMs = this.#touchedMs = this.#bodyMovedMs = nowMs;
    if (this.#bodyMoves) this.#bodyMovedMs = nowMs;
    this.#bodyMoves = false;
    const idleMsMax = this.#server.limits.clientIdleTimeoutMs;
    if (nowMs - this.#bodyMovedMs >= idleMsMax) this.#refuse(standsStill(idleMsMax), true);
    else if (nowMs - this.#bodyBegunMs >= UPLOAD_MS_MAX) this.#refuse(TOO_SLOW, true);
    else if (nowMs - this.#touchedMs >= TOUCH_MS) {
      this.#touchedMs = nowMs;
      this.#res.pause();
      this.#res.resume();
    }
  }

  get isStream(): boolean {
    return this.#context.admission?.call.stream === true;
  }

  get endsConnection(): boolean {
    return this.#isLast || this.#server.endsConnections;
  }

  writeHead(tellsClose: boolean): void {
    writeChatHead(this.#res, this.#context, this.isStream, tellsClose, this.endsConnection);
  }

  onTaken(bytes: number): void {
    const { admission } = this.#context;
    invariant(admission !== undefined, 'only an admitted call has an answer');
    // After the worker's last frame there is nobody to give it to.
    if (this.#phase === 'answering') this.#server.parts.channel.refund(admission.slot, bytes);
  }

  onLeft(): void {
    this.#finish(this.#outcome);
  }

  #onClientGone(): void {
    this.#clientGone = true;
    this.#leaveSweep();
    this.#writer?.onGone();
    this.#writer = undefined;
    this.#parse?.withdraw();
    const { admission } = this.#context;
    if (this.#phase === 'reading' || this.#phase === 'leaving') {
      this.#finish('client_gone');
    } else if (admission !== undefined && (this.#phase === 'waiting' || this.#phase === 'answering')) {
      // Who had nothing yet when the gateway itself cut the connection pays for nothing.
      if (this.#phase === 'waiting' && this.#server.isClosing) this.#phase = 'withdrawn';
      this.#server.parts.channel.cancel(admission.slot);
    }
  }

  #leaveSweep(): void {
    if (this.#sweepPlace === undefined) return;
    this.#server.streaming.remove(this.#sweepPlace);
    this.#sweepPlace = undefined;
  }

  #finish(outcome: Outcome): void {
    invariant(this.#phase !== 'done', 'an exchange ends once');
    this.#phase = 'done';
    this.#giveBackBody();
    this.#keyed?.keyed.giveUp();
    this.#leaveSweep();
    const { admission } = this.#context;
    if (this.#keepsSlot && admission !== undefined) this.#server.parts.channel.release(admission.slot);
    this.#meter.ended(outcome, this.#context);
    this.#server.closed(this.#context.requestNumber);
  }
}
