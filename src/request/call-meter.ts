/**
 * What the metrics, the access log and the trace are told of one chat call: when its parts came, what it was charged, how it ended.
 * Listener thread; one a call.
 */
import { asWallMs } from '../core/units.js';
import type { CallTrace } from './call-trace.js';
import type { CallContext, ListenerContext } from './context.js';
import type { Settled } from './settle.js';
import { USAGE_SOURCES } from '../protocol/usage.js';
import type { AccessUsage } from '../telemetry/access-layout.js';
import { NO_MODEL, OTHER_MODEL, modelSlotOf, type Outcome } from '../telemetry/metrics-layout.js';

/** Of those that the call began with. */
type MeterContext = Pick<ListenerContext, 'metrics' | 'clock' | 'accessLog' | 'channel'>;

export class CallMeter {
  readonly #parts: MeterContext;
  readonly #receivedMs: number;
  #bodyMs = 0;
  #responseMs: number | undefined;
  #upstreamWaitMs: number | undefined;
  #settled: Settled | undefined;

  /** The headers are there. */
  constructor(parts: MeterContext) {
    this.#parts = parts;
    this.#receivedMs = parts.clock.monotonicMs();
  }

  bodyRead(): void {
    this.#bodyMs = this.#parts.clock.monotonicMs();
  }

  /** The first piece of a response that comes in pieces. */
  responseBegun(): void {
    this.#responseMs = this.#parts.clock.monotonicMs();
  }

  /** The upstream has answered; what it is charged counts unless it is taken back before the end. */
  charged(settled: Settled, upstreamWaitMs: number): void {
    this.#settled = settled;
    this.#upstreamWaitMs = upstreamWaitMs;
  }

  reversed(): void {
    this.#settled = undefined;
  }

  /** Said once, last. A response in one piece has just been written. Some 100 ns, and as much where the call is logged. */
  ended(outcome: Outcome, context: CallContext): void {
    this.#count(outcome, context);
    if (this.#parts.accessLog.wants(outcome)) this.#log(outcome, context);
    if (context.trace?.isRecorded === true) this.#endTrace(context.trace, outcome, context);
  }

  #endTrace(trace: CallTrace, outcome: Outcome, context: CallContext): void {
    trace.ended(context, {
      outcome,
      receivedMs: this.#receivedMs,
      responseMs: this.#responseMs,
      endedMs: this.#parts.clock.monotonicMs(),
      settled: this.#settled,
    });
  }

  #count(outcome: Outcome, { modelIndex, admission }: CallContext): void {
    const { metrics, clock } = this.#parts;
    const model = slotOf(modelIndex, outcome);
    const isError = outcome !== 'ok' && outcome !== 'client_gone';
    metrics.countCall(model, outcome, isError && this.#responseMs !== undefined);
    if (this.#settled === undefined) return;
    metrics.countUsage(model, this.#settled.usage, this.#settled.charged);
    if (outcome !== 'ok') return;
    const nowMs = clock.monotonicMs();
    const responseMs = this.#responseMs ?? nowMs;
    const isStream = admission?.call.stream === true;
    metrics.observeDuration(model, nowMs - this.#receivedMs);
    if (isStream) metrics.observeFirstToken(model, responseMs - this.#receivedMs);
    // Two threads' clocks took part, which may differ by microseconds.
    metrics.observeOverhead(isStream, Math.max(0, responseMs - this.#bodyMs - this.#upstreamWaitMs!));
  }

  #log(outcome: Outcome, { requestNumber, caller, modelIndex, admission }: CallContext): void {
    const { accessLog, clock, channel } = this.#parts;
    const stream = admission?.call.stream === true;
    const responseMs = this.#responseMs;
    accessLog.append({
      request: requestNumber,
      endedMs: asWallMs(clock.wallMs()),
      outcome,
      begun: responseMs !== undefined,
      stream,
      account: caller?.account,
      key: caller?.key,
      model: modelIndex,
      upstream: admission === undefined ? undefined : channel.upstreamOf(admission.slot),
      usage: this.#settled === undefined ? undefined : usageOf(this.#settled),
      firstTokenMs: stream && responseMs !== undefined ? responseMs - this.#receivedMs : undefined,
      durationMs: clock.monotonicMs() - this.#receivedMs,
    });
  }
}

function usageOf({ usage, charged }: Settled): AccessUsage {
  const { promptTokens, cachedTokens, completionTokens } = usage;
  return {
    promptTokens,
    cachedTokens,
    completionTokens,
    source: USAGE_SOURCES.indexOf(usage.source),
    charged,
  };
}

function slotOf(modelIndex: number | undefined, outcome: Outcome): number {
  if (modelIndex !== undefined) return modelSlotOf(modelIndex);
  return outcome === 'model_not_found' ? OTHER_MODEL : NO_MODEL;
}
