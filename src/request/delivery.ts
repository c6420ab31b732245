/**
 * Sends an admitted call to a worker (`dispatch`), and delivers its response: from the worker's first frame
 * to the settlement and the last byte on the client's socket. Intake makes a Delivery and dispatches it; the
 * channel calls it with the worker's frames. Listener thread.
 *
 *     waiting ──→ responding ──→ committing ──→ sending ──→ over
 *        │            └──────────────┼────────────────────────↗
 *        └─→ withdrawn ←─────────────┘
 *                └────────────────────────────────────────────↗
 *
 *     waiting      the worker has sent nothing yet
 *     responding   a response that comes in pieces is being relayed
 *     committing   `durability: commit` only: the last bytes wait until the charge is on disk
 *     sending      the call is settled, and the client may not have all bytes yet
 *     withdrawn    the gateway stops before the client has a byte: the call is not charged. A charge that
 *                  waits for the disk is taken back, unless an Idempotency-Key keeps the response
 *
 * Back-pressure: bytes that the client's socket does not take wait in the ResponseWriter, and the worker gets
 * no credit for them. So both sides together keep at most `limits.stream_buffer_bytes` of a response.
 *
 * Must hold: the call is settled or released exactly once, whoever ends it, and before its last byte is
 * written. The call keeps its slot until it is over, so the bound of calls in flight bounds `committing` and
 * `sending` responses too (also test/e2e/money.test.ts, test/e2e/leaving-clients.test.ts). The channel calls
 * `onEnd`, `onCut` or `onFail` once, last.
 */
import { invariant, type ErrorRecord } from '../core/errors.js';
import type { MonotonicMs } from '../core/units.js';
import type { CallReceiver } from '../channel/listener-channel.js';
import { OUTPUT_TOKENS_UNLIMITED, type TriedAttempt } from '../channel/messages.js';
import { DOOR_INDEX } from '../core/door-names.js';
import type { Usage } from '../core/token-counts.js';
import { NOWHERE } from '../protocol/chat-call.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { PendingCommit } from '../ledger/pending-commits.js';
import type { ChatExchange } from './chat-exchange.js';
import type { Admission, IntakeContext } from './context.js';
import type { CandidateModel } from './model-access.js';
import { NO_WORKER, NOT_COMMITTED, STOPPED } from './rejections.js';
import { writeChatHead, writeError } from './response.js';
import { ResponseWriter, type ResponseOwner } from './response-writer.js';
import { release, reverse, settle, type Settled } from './settle.js';

type State = 'waiting' | 'withdrawn' | 'responding' | 'committing' | 'sending' | 'over';

export class Delivery implements CallReceiver, ResponseOwner, PendingCommit {
  readonly isStream: boolean;
  readonly #exchange: ChatExchange;
  readonly #admission: Admission;
  readonly #listener: IntakeContext;
  #state: State = 'waiting';
  /** Whether the gateway has cut the connection, because its client did not read. */
  #isCutByGateway = false;
  /** Undefined until the first piece, and again when the client has left. */
  #writer: ResponseWriter | undefined;
  /** The last bytes and the charge of a response that waits for the disk. Set as `committing` begins. */
  #pendingEnd: { readonly settled: Settled; readonly bytes: Uint8Array } | undefined;
  /** The number of the stream's next event, if the door numbers events. */
  #eventNumber: number | undefined;
  /** How the call has ended, while the state is `sending`. */
  #outcome: Outcome = 'ok';
  /**
   * Whether `#finish` must release the slot: the worker's last frame came while the client lacked bytes, or
   * no worker took the call. Otherwise the channel frees the slot after the last frame.
   */
  #mustRelease = false;

  /** `exchange` is admitted. */
  constructor(exchange: ChatExchange, listener: IntakeContext) {
    this.#exchange = exchange;
    this.#admission = exchange.admitted;
    this.#listener = listener;
    this.isStream = this.#admission.call.stream;
  }

  /**
   * Sends the call to a worker, whose frames then come to this Delivery. If no worker takes the call, it is
   * rejected, and is over when this returns. Called once, first.
   */
  dispatch(): void {
    const { channel, metrics } = this.#listener;
    const { slot, modelIndex, call } = this.#admission;
    const exchange = this.#exchange;
    // For a fallback, workers replace the bound of output in the body, at `maxTokens` and
    // `maxCompletionTokens`. A body with `null` there has no bound, so workers replace nothing.
    const isBounded = call.outputTokensMax !== undefined;
    const isDispatched = channel.dispatch(
      slot,
      {
        requestId: exchange.requestId,
        door: DOOR_INDEX[exchange.door.name],
        betas: exchange.betas,
        modelIndex,
        stream: call.stream,
        includeUsage: call.includeUsage,
        modelStart: call.modelStart,
        modelEnd: call.modelEnd,
        body: call.body,
        bodyIsAscii: call.bodyIsAscii,
        largeBody: call.largeBody,
        trace: exchange.trace?.carried,
        account: exchange.account,
        // Frames have 32 bits for each of the next two numbers, and a client may write any.
        outputTokensMax: Math.min(call.outputTokensMax ?? Infinity, OUTPUT_TOKENS_UNLIMITED),
        choices: Math.min(call.choices, OUTPUT_TOKENS_UNLIMITED),
        mediaParts: call.mediaParts,
        repeatedTokens: call.repeatedTokens,
        fallbacks:
          exchange.models.length === 1
            ? undefined
            : {
                models: exchange.models.slice(1).map((fallback) => fallback.modelIndex),
                maxTokens: isBounded ? call.maxTokens : NOWHERE,
                maxCompletionTokens: isBounded ? call.maxCompletionTokens : NOWHERE,
              },
      },
      this,
    );
    if (isDispatched) {
      metrics.callBegun();
      return;
    }
    metrics.countRejection(NO_WORKER.detail ?? NO_WORKER.code);
    release(exchange, NO_WORKER, this.#listener);
    this.#mustRelease = true;
    this.#fail(NO_WORKER);
  }

  /** Relays a piece of the response (CallReceiver.onData). */
  onData(bytes: Uint8Array, hasNext: boolean): void {
    const exchange = this.#exchange;
    if (exchange.clientGone) return;
    if (this.#writer === undefined) {
      this.#state = 'responding';
      exchange.responseBegun();
      this.#writer = new ResponseWriter(exchange.res, this.#listener.clock, this);
      exchange.startSweep(this);
    }
    const eventNumber = this.isStream ? exchange.door.errors.numberIn?.(bytes) : undefined;
    if (eventNumber !== undefined) this.#eventNumber = eventNumber + 1;
    exchange.storable?.collect(bytes);
    exchange.contents?.addResponse(bytes);
    this.#writer.write(bytes, hasNext);
  }

  onTried(attempt: TriedAttempt): void {
    // Frames that the writer has not written yet are valid until this method returns.
    this.#writer?.flush();
    this.#exchange.addAttempt(attempt);
  }

  /** The response is whole. As `onCut` and `onFail`, returns whether the call's slot is free. */
  onEnd(bytes: Uint8Array, usage: Usage, upstreamWaitMs: number): boolean {
    if (this.#state === 'withdrawn') return this.onFail(STOPPED);
    const exchange = this.#exchange;
    const { journal, pendingCommits } = this.#listener;
    // The worker no longer needs the body, and a slow client may read the response for a long time.
    exchange.giveBackBody();
    if (!exchange.clientGone)
      exchange.storable?.keep(bytes, this.isStream, journal.nextPosition, this.#fallback?.model.id);
    const settled = this.#settle(usage, upstreamWaitMs);
    exchange.addServingAttempt();
    if (settled.taken !== undefined && !exchange.clientGone) {
      this.#state = 'committing';
      // Copied, because the worker overwrites this memory.
      this.#pendingEnd = { settled, bytes: bytes.slice() };
      this.#writer?.flush();
      pendingCommits.add(settled.position, this);
    } else {
      this.#endResponse(bytes);
    }
    return this.#handBackSlot();
  }

  /** The stream broke off: the caller pays for what came, as if its client had left. Cuts the connection. */
  onCut(usage: Usage, upstreamWaitMs: number): boolean {
    if (this.#state === 'withdrawn') return this.onFail(STOPPED);
    this.#exchange.giveBackBody();
    this.#exchange.storable?.giveUp();
    this.#settle(usage, upstreamWaitMs);
    if (this.#exchange.clientGone) {
      this.#finish('client_gone');
    } else {
      invariant(this.#writer !== undefined, 'only a response that has begun is cut');
      this.#outcome = 'client_gone';
      this.#writer.cut();
      if (!this.#isOver) this.#state = 'sending';
    }
    return this.#handBackSlot();
  }

  /** The call costs nothing. */
  onFail(error: ErrorRecord): boolean {
    const { connections, metrics } = this.#listener;
    this.#exchange.giveBackBody();
    // Perhaps the worker got no file descriptor for its connection.
    if (error.code === 'overloaded') connections.checkDescriptors();
    this.#exchange.storable?.giveUp();
    release(this.#exchange, error, this.#listener);
    metrics.callEnded();
    this.#fail(error);
    return this.#handBackSlot();
  }

  onCommitted(): void {
    invariant(this.#pendingEnd !== undefined, 'a committed response was held');
    if (this.#state === 'withdrawn') this.#takeBack(this.#pendingEnd.settled, STOPPED);
    else this.#endResponse(this.#pendingEnd.bytes);
  }

  /** If the client has left by itself, the charge stays. */
  onUncommitted(): void {
    invariant(this.#pendingEnd !== undefined, 'an uncommitted response was held');
    const staysCharged = this.#exchange.clientGone && this.#state !== 'withdrawn';
    if (staysCharged) this.#fail(NOT_COMMITTED);
    else this.#takeBack(this.#pendingEnd.settled, NOT_COMMITTED);
  }

  /** Takes back the charge of a response that is not sent to its end, and the stored response with it. */
  #takeBack(settled: Settled, error: ErrorRecord): void {
    this.#exchange.storable?.forget(this.#listener.journal.nextPosition);
    reverse(this.#exchange, settled, this.#listener);
    this.#exchange.reversed();
    this.#fail(error);
  }

  onSweep(nowMs: MonotonicMs): void {
    // No equal request waits for a client that does not read.
    if (this.#writer?.isBlocked === true) this.#exchange.cached?.endFlight();
    const isMoving = this.#writer?.onSweep(nowMs, this.#listener.limits.clientIdleTimeoutMs) ?? true;
    if (isMoving) return;
    this.#isCutByGateway = true;
    this.#exchange.res.close();
  }

  /** `exchange.clientGone` was set before. */
  onClientGone(): void {
    const { channel, connections } = this.#listener;
    // The gateway cut the connection before the client had a byte: the caller pays nothing.
    const isWithdrawn = this.#writer === undefined && connections.isClosing;
    // `onGone` may call `onDelivered`, which ends the call.
    this.#writer?.onGone();
    this.#writer = undefined;
    const state = this.#state;
    if (state === 'sending') {
      this.#finish('client_gone');
    } else if (state === 'waiting' || state === 'responding') {
      if (isWithdrawn) this.#state = 'withdrawn';
      // At once, because minutes may pass until the worker's last frame. A response that is not whole is not
      // kept.
      this.#exchange.storable?.giveUp();
      if (connections.isClosing || this.#isCutByGateway) channel.stop(this.#admission.slot);
      else channel.cancel(this.#admission.slot);
    } else if (state === 'committing' && isWithdrawn && this.#exchange.keyed === undefined) {
      // A response with an Idempotency-Key may be replayed as soon as its charge is on disk: both stay.
      this.#state = 'withdrawn';
    }
  }

  get endsConnection(): boolean {
    return this.#exchange.endsConnection;
  }

  writeHead(sendsClose: boolean): void {
    writeChatHead(this.#exchange, this.isStream, sendsClose, this.#fallback?.model.id);
  }

  /** The fallback that answers; undefined if the model that the call names does. Known at the first byte. */
  get #fallback(): CandidateModel | undefined {
    const { models } = this.#exchange;
    const index = models.length === 1 ? 0 : this.#listener.channel.table.fallbackOf(this.#admission.slot);
    return index === 0 ? undefined : models[index];
  }

  onTaken(bytes: number): void {
    // After its last frame the worker needs no credit.
    if (this.#state === 'responding') this.#listener.channel.refund(this.#admission.slot, bytes);
  }

  onDelivered(): void {
    this.#finish(this.#outcome);
  }

  /** Charges the call. Called once, for the worker's last frame. */
  #settle(usage: Usage, upstreamWaitMs: number): Settled {
    const settled = settle(this.#exchange, usage, this.#listener, this.#fallback);
    this.#listener.metrics.callEnded();
    this.#exchange.charged(settled, upstreamWaitMs);
    return settled;
  }

  /** Sends the last bytes of a settled call, or finishes if its client has left. */
  #endResponse(bytes: Uint8Array): void {
    const { res, clientGone, contents } = this.#exchange;
    this.#exchange.storable?.publish();
    // Only now, because a response whose charge is not committed is not sent.
    if (!clientGone) contents?.addResponse(bytes);
    if (clientGone) {
      this.#finish('client_gone');
    } else if (this.#writer !== undefined) {
      this.#writeLastBytes(this.#writer, bytes, 'ok');
    } else {
      res.cork(() => {
        // `end` itself writes `connection: close` if the connection ends.
        const sendsClose = false;
        this.writeHead(sendsClose);
        res.end(bytes, this.endsConnection);
      });
      this.#finish('ok');
    }
  }

  /** Sends the error in the form that is still possible, or finishes if the client has left. */
  #fail(error: ErrorRecord): void {
    const exchange = this.#exchange;
    exchange.sentError = error;
    if (exchange.clientGone) {
      this.#finish('client_gone');
    } else if (this.#writer === undefined) {
      exchange.res.cork(() => writeError(exchange.res, error, exchange, exchange.endsConnection));
      this.#finish(error.code);
    } else if (this.isStream && this.#writer.endsEvent) {
      const event = Buffer.from(exchange.door.errors.event(error, exchange.requestId, this.#eventNumber));
      exchange.contents?.addResponse(event);
      this.#writeLastBytes(this.#writer, event, error.code);
    } else {
      // A response of unknown length has begun, or an event of a stream, since its last events may come in
      // pieces: only a cut connection shows that it is not whole.
      exchange.res.close();
      this.#finish(error.code);
    }
  }

  /** Writes the last bytes. `onDelivered` follows, at once or later (ResponseWriter.end). */
  #writeLastBytes(writer: ResponseWriter, bytes: Uint8Array, outcome: Outcome): void {
    this.#outcome = outcome;
    writer.end(bytes);
    if (!this.#isOver) this.#state = 'sending';
  }

  /** A getter, because `onDelivered` may be called within `ResponseWriter.end`. */
  get #isOver(): boolean {
    return this.#state === 'over';
  }

  /** Returns whether the channel may free the slot now. If not, `#finish` will release it. */
  #handBackSlot(): boolean {
    this.#mustRelease = !this.#isOver;
    return this.#isOver;
  }

  /** The call is over for worker and client. Called once, at the end of every path. */
  #finish(outcome: Outcome): void {
    this.#state = 'over';
    this.#exchange.finish(outcome);
    // After `finish`, which reads the slot's words.
    if (this.#mustRelease) this.#listener.channel.release(this.#admission.slot);
  }
}
