/**
 * What is recorded of a call: times, attempts and charge, for metrics, call log, access log and trace. A
 * ChatExchange (chat-exchange.ts) is a RecordedCall. Intake, Delivery, ChargedHit and Replay say what happens
 * to the call. Listener thread.
 *
 * Must hold: of `charged`, `addServingAttempt`, `reversed` and `report` those that are called come in this
 * order, once each. `report` always comes, by `ChatExchange.finish`. It reads the words of the call's slot,
 * so the slot is free only afterwards (test/unit/request/delivery.test.ts). `#appendPlain` and `#endedCall`
 * record the same facts: change both together (the unit test compares them).
 */
import { DOOR_INDEX } from '../core/door-names.js';
import type { TriedAttempt } from '../channel/messages.js';
import type { ErrorRecord } from '../core/errors.js';
import { CALL_ATTEMPTS_MAX } from '../telemetry/call-record.js';
import type { Door } from '../doors/door.js';
import { asWallMs, type CallSlot, type MonotonicMs, type WallMs } from '../core/units.js';
import { USAGE_SOURCES } from '../core/token-counts.js';
import * as ring from '../telemetry/call-ring-layout.js';
import type { EndedAttempt, EndedCall, WantedLogs } from '../telemetry/call-ring-layout.js';
import { NO_MODEL, OTHER_MODEL, modelSlotOf, type Outcome } from '../telemetry/metrics-layout.js';
import type { CallTrace } from './call-trace.js';
import { CallContext, type IntakeContext } from './context.js';
import type { Settled } from './settle.js';

/** The status of an upstream whose response is relayed. */
const RELAYED_STATUS = 200;
/** How much two readings of one attempt's start (`triedMs`) may differ: each is rounded to 10 µs. */
const START_DIFFERENCE_MS_MAX = 0.02;
const NO_ATTEMPTS: readonly EndedAttempt[] = [];

export class RecordedCall extends CallContext {
  /** Whether the client has left. Then µWS has freed `res`, and no method of `res` may be called. */
  clientGone = false;
  /** Whether the caller asked for a stream. Set as soon as the body is parsed; false before. */
  isStream = false;
  /** Set once the caller is known, if the call belongs to a trace. */
  trace: CallTrace | undefined = undefined;
  /** The error that the caller got, instead of a response or at the end of one. Delivery may set it too. */
  sentError: ErrorRecord | undefined = undefined;
  protected readonly listener: IntakeContext;
  #attempts: EndedAttempt[] | undefined = undefined;
  /**
   * Whether the only attempt has served the call and is not in `#attempts` yet: if the call turns out to be
   * plain (call-ring-layout.ts), as most do, the attempt needs no object.
   */
  #isAttemptDeferred = false;
  /** When the head had come, when the body was whole, and when the response began: monotonic times. */
  readonly #receivedMs: MonotonicMs;
  #bodyMs = 0;
  /** Undefined if the response is not written in pieces, or has not begun. */
  #responseMs: number | undefined = undefined;
  #upstreamWaitMs = 0;
  #settled: Settled | undefined = undefined;

  /** The head of the request has come. */
  constructor(
    requestId: string,
    requestNumber: number,
    corsLines: string,
    listener: IntakeContext,
    door?: Door,
  ) {
    super(requestId, requestNumber, corsLines, door);
    this.listener = listener;
    this.#receivedMs = listener.clock.monotonicMs();
  }

  /** The whole body has come: the overhead counts from now. */
  bodyRead(): void {
    this.#bodyMs = this.listener.clock.monotonicMs();
  }

  /** The first piece of a response that is written in pieces is about to be written. */
  responseBegun(): void {
    this.#responseMs = this.listener.clock.monotonicMs();
  }

  /** The call was settled. The charge counts unless `reversed` follows. */
  charged(settled: Settled, upstreamWaitMs: number): void {
    this.#settled = settled;
    this.#upstreamWaitMs = upstreamWaitMs;
  }

  /**
   * An attempt has failed, or ended after its client had left. The gateway's status shows the attempt even if
   * no log keeps the call. At most CALL_ATTEMPTS_MAX attempts are kept: the first ones and the last.
   */
  addAttempt(attempt: TriedAttempt): void {
    const { upstreamSlot: upstream, fallback, startMs, durationMs, status, code, error } = attempt;
    const model = this.models[fallback]?.modelIndex;
    if (model === undefined) return;
    // Counted from the head of the request; the clocks of two threads differ by microseconds.
    const startedMs = Math.max(0, startMs - this.#receivedMs);
    this.#pushAttempt({ upstream, model, status, code, startMs: startedMs, durationMs, error });
  }

  /**
   * The response is whole, or its client has left, and the call was charged. Adds the attempt that served the
   * call, unless the worker has sent it already (`addAttempt`), as for a stream that broke.
   */
  addServingAttempt(): void {
    if (!this.listener.callRing.stores) return;
    if (this.#attempts === undefined && !this.clientGone) this.#isAttemptDeferred = true;
    else this.#addServed(this.clientGone ? 'cancelled' : undefined);
  }

  /** `code`: `cancelled` if the client had left before the attempt ended. */
  #addServed(code: 'cancelled' | undefined): void {
    const { channel } = this.listener;
    const settled = this.#settled;
    const upstream = this.#slot === undefined ? undefined : channel.table.upstreamOf(this.#slot);
    if (upstream === undefined || settled === undefined) return;
    const startMs = channel.table.triedMs(this.#slot!, this.#receivedMs);
    const last = this.#attempts?.at(-1);
    if (last?.upstream === upstream && Math.abs(last.startMs - startMs) < START_DIFFERENCE_MS_MAX) return;
    const durationMs = Math.max(0, settled.settledMs - this.#receivedMs - startMs);
    const status = code !== undefined && this.#responseMs === undefined ? 0 : RELAYED_STATUS;
    this.#pushAttempt({ upstream, model: settled.answered, status, code, startMs, durationMs, error: '' });
  }

  /** For a call that is not plain. Called before `#settled`, which has the attempt's end, is cleared. */
  #addDeferredAttempt(): void {
    if (this.#isAttemptDeferred) this.#addServed(undefined);
    this.#isAttemptDeferred = false;
  }

  #pushAttempt(attempt: EndedAttempt): void {
    this.#attempts ??= [];
    if (this.#attempts.length === CALL_ATTEMPTS_MAX) this.#attempts.pop();
    this.#attempts.push(attempt);
  }

  /** The charge was taken back, in journal and ledger (`reverse` of settle.ts). */
  reversed(): void {
    this.#addDeferredAttempt();
    this.#settled = undefined;
  }

  /**
   * Records the call in metrics, logs and trace, in 100 to 400 ns. bench/load/parts/build-without.ts replaces
   * this method, `bodyRead`, `responseBegun` and `charged` by their names.
   */
  protected report(outcome: Outcome): void {
    const { callRing, clock } = this.listener;
    const nowMs = clock.monotonicMs();
    this.#count(outcome, nowMs);
    const log = callRing.chooseLogged(outcome);
    const store = callRing.chooseStored(this.#storedAs, nowMs);
    if (log || !store || outcome !== 'ok' || !this.#isAttemptDeferred || !this.#appendPlain(nowMs))
      this.#appendWhole(outcome, nowMs, { log, store });
    if (this.trace?.isRecorded !== true) return;
    this.trace.sendSpan(this, {
      outcome,
      receivedMs: this.#receivedMs,
      responseMs: this.#responseMs,
      endedMs: nowMs,
      queuedMs: this.#queuedMs,
      settled: this.#settled,
    });
  }

  #appendWhole(outcome: Outcome, nowMs: MonotonicMs, wanted: WantedLogs): void {
    // A call that is not stored has no deferred attempt, unless the call log was just switched off: then the
    // reader drops the record. Each call with attempts is appended, because UpstreamErrors counts them.
    this.#addDeferredAttempt();
    if (!wanted.log && !wanted.store && this.#attempts === undefined) return;
    this.listener.callRing.append(this.#endedCall(outcome, nowMs), wanted);
  }

  #count(outcome: Outcome, nowMs: MonotonicMs): void {
    const { metrics } = this.listener;
    const model = metricsSlotOf(this.modelIndex, outcome);
    const isError = outcome !== 'ok' && outcome !== 'client_gone';
    metrics.countCall(model, outcome, isError && this.#responseMs !== undefined, DOOR_INDEX[this.door.name]);
    if (this.#settled === undefined) return;
    const { usage, charged, uncovered, answered } = this.#settled;
    metrics.countUsage(modelSlotOf(answered), usage, charged, uncovered);
    if (answered !== this.modelIndex) metrics.countFallback(model, modelSlotOf(answered));
    if (outcome !== 'ok') return;
    const responseMs = this.#responseMs ?? nowMs;
    metrics.observeDuration(model, nowMs - this.#receivedMs);
    if (this.isStream) metrics.observeFirstToken(model, responseMs - this.#receivedMs);
    // A worker measured the wait, and the clocks of two threads differ by microseconds.
    metrics.observeOverhead(this.isStream, Math.max(0, responseMs - this.#bodyMs - this.#upstreamWaitMs));
  }

  /** How long the call waited because its upstreams were at their limits. */
  get #queuedMs(): number {
    return this.#slot === undefined ? 0 : this.listener.channel.table.queuedMsOf(this.#slot);
  }

  /** The slot of a call that went to a worker. A hit has given its slot back. */
  get #slot(): CallSlot | undefined {
    return this.hit === undefined ? this.admission?.slot : undefined;
  }

  get #storedAs(): 'admitted' | 'rejected' | 'unknown' {
    if (this.admission !== undefined || this.hit !== undefined) return 'admitted';
    return this.caller === undefined ? 'unknown' : 'rejected';
  }

  /**
   * Writes the call as a plain one (call-ring-layout.ts). Returns false, and has written nothing, if the call
   * is not plain. If the ring is full (-1), the call is dropped.
   */
  #appendPlain(nowMs: MonotonicMs): boolean {
    const { callRing, channel } = this.listener;
    const { caller, admission, quotasLeft, sentError } = this;
    const settled = this.#settled;
    const slot = this.#slot;
    if (caller === undefined || admission === undefined || slot === undefined) return false;
    if (settled === undefined || quotasLeft === undefined || sentError !== undefined) return false;
    const { usage } = settled;
    const receivedMs = this.#receivedMs;
    const duration = microsOf(nowMs - receivedMs);
    // The other counts of tokens are parts of these two, so none is higher than their sum.
    const tokens = usage.promptTokens + usage.completionTokens;
    const upstream = channel.table.upstreamOf(slot);
    if (upstream === undefined || Math.max(duration, tokens) > ring.PLAIN_NUMBER_MAX) return false;
    const first64 = callRing.beginPlain(quotasLeft.others);
    if (first64 === -1) return true;
    const { floats, ints } = callRing;
    floats[first64 + ring.PLAIN_REQUEST] = this.requestNumber;
    floats[first64 + ring.PLAIN_ENDED_MS] = endedWallMs(settled, nowMs);
    callRing.amounts[first64 + ring.PLAIN_CHARGED] = settled.charged;
    floats[first64 + ring.PLAIN_BALANCE] = quotasLeft.balance;
    // The record begins at `first64` in the views of 64-bit words, at `first32` in that of 32-bit words.
    const first32 = first64 << 1;
    const startMs = channel.table.triedMs(slot, receivedMs);
    const responseMs = this.#responseMs;
    const stream = this.isStream;
    ints[first32 + ring.PLAIN_ACCOUNT] = caller.account;
    ints[first32 + ring.PLAIN_KEY] = caller.key;
    ints[first32 + ring.PLAIN_MODEL] = admission.modelIndex;
    ints[first32 + ring.PLAIN_ANSWERED] = settled.answered;
    ints[first32 + ring.PLAIN_UPSTREAM] = upstream;
    ints[first32 + ring.PLAIN_FLAGS] =
      ring.STORED |
      (stream ? ring.STREAM : 0) |
      (responseMs === undefined ? 0 : ring.BEGUN) |
      // The cache was asked. It was a miss, because a hit has no slot here.
      (this.cacheLine === '' ? 0 : ring.CACHE_MISS) |
      (DOOR_INDEX[this.door.name] << ring.DOOR_SHIFT) |
      (USAGE_SOURCES.indexOf(usage.source) << ring.SOURCE_SHIFT);
    ints[first32 + ring.PLAIN_QUEUED_MS] = channel.table.queuedMsOf(slot);
    ints[first32 + ring.PLAIN_PROMPT] = usage.promptTokens;
    ints[first32 + ring.PLAIN_CACHED] = usage.cachedTokens;
    ints[first32 + ring.PLAIN_COMPLETION] = usage.completionTokens;
    ints[first32 + ring.PLAIN_CACHE_WRITE] = usage.cacheWriteTokens;
    ints[first32 + ring.PLAIN_CACHE_WRITE_1H] = usage.cacheWrite1hTokens;
    ints[first32 + ring.PLAIN_REASONING] = usage.reasoningTokens;
    ints[first32 + ring.PLAIN_DURATION] = duration;
    ints[first32 + ring.PLAIN_FIRST_TOKEN] =
      stream && responseMs !== undefined ? microsOf(responseMs - receivedMs) : ring.NOTHING;
    ints[first32 + ring.PLAIN_ADMITTED] = microsOf(admission.admittedMs - receivedMs);
    ints[first32 + ring.PLAIN_ATTEMPT_START] = microsOf(startMs);
    ints[first32 + ring.PLAIN_ATTEMPT_US] = microsOf(Math.max(0, settled.settledMs - receivedMs - startMs));
    ints[first32 + ring.PLAIN_IN_FLIGHT] = quotasLeft.inFlight;
    ints[first32 + ring.PLAIN_PER_DAY] = quotasLeft.perDay;
    ints[first32 + ring.PLAIN_MINUTE] = quotasLeft.minute ?? ring.NOTHING;
    callRing.publish();
    return true;
  }

  #endedCall(outcome: Outcome, nowMs: MonotonicMs): EndedCall {
    const { clock, channel } = this.listener;
    const { admission } = this;
    const stream = this.isStream;
    const responseMs = this.#responseMs;
    const settled = this.#settled;
    const caller = this.caller ?? this.rejectedCaller;
    return {
      request: this.requestNumber,
      door: DOOR_INDEX[this.door.name],
      endedMs: settled === undefined ? asWallMs(clock.wallMs()) : endedWallMs(settled, nowMs),
      outcome,
      begun: responseMs !== undefined,
      stream,
      account: caller?.account,
      key: caller?.key,
      model: this.modelIndex,
      cache: this.hit !== undefined ? 'hit' : this.cacheLine !== '' ? 'miss' : undefined,
      upstream: this.#slot === undefined ? undefined : channel.table.upstreamOf(this.#slot),
      queuedMs: this.#queuedMs,
      usage: settled && {
        ...settled.usage,
        answered: settled.answered,
        source: USAGE_SOURCES.indexOf(settled.usage.source),
        charged: settled.charged,
      },
      firstTokenMs: stream && responseMs !== undefined ? responseMs - this.#receivedMs : undefined,
      durationMs: nowMs - this.#receivedMs,
      admittedMs: admission && admission.admittedMs - this.#receivedMs,
      quotas: this.quotasLeft,
      attempts: this.#attempts ?? NO_ATTEMPTS,
      error: outcome === 'client_gone' ? '' : (this.sentError?.message ?? ''),
    };
  }
}

/** For a field of whole microseconds. The ring cuts the fraction off, so adding a half rounds the value. */
const microsOf = (ms: number): number => ms * 1_000 + 0.5;

/** When a call that is over at `nowMs` ended, by the wall clock, which was read as it was settled. */
function endedWallMs({ settledMs, settledWallMs }: Settled, nowMs: MonotonicMs): WallMs {
  return asWallMs(settledWallMs + Math.round(nowMs - settledMs));
}

function metricsSlotOf(modelIndex: number | undefined, outcome: Outcome): number {
  if (modelIndex !== undefined) return modelSlotOf(modelIndex);
  return outcome === 'model_not_found' ? OTHER_MODEL : NO_MODEL;
}
