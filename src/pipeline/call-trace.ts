/**
 * The trace of one call: what of it goes to the upstream worker, and, where it is recorded, the span of the call. Listener thread.
 */
import { ERROR_KINDS } from '../core/errors.js';
import type { AccountIndex } from '../core/units.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { SpanOutbox } from '../telemetry/span-outbox.js';
import { SPAN_OF_CALL } from '../telemetry/span-record.js';
import type { CarriedTrace } from '../telemetry/trace-parent.js';
import type { CallContext } from './context.js';
import type { Settled } from './settle.js';

/** Of a span that is recorded: who it is. */
export interface CallSpan {
  readonly outbox: SpanOutbox;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | null;
  readonly flags: number;
  readonly state: string;
  readonly account: AccountIndex;
}

/** What is known of a call at its end. Times are monotonic. */
export interface CallEnd {
  readonly outcome: Outcome;
  readonly receivedMs: number;
  /** The first piece of an answer that came in pieces. */
  readonly answerMs: number | undefined;
  readonly endedMs: number;
  readonly settled: Settled | undefined;
}

const OK = 200;

export class CallTrace {
  /** The parent of what comes behind this gateway. */
  readonly carried: CarriedTrace;
  readonly #span: CallSpan | undefined;

  constructor(carried: CarriedTrace, span: CallSpan | undefined) {
    this.carried = carried;
    this.#span = span;
  }

  get isRecorded(): boolean {
    return this.#span !== undefined;
  }

  /** Said once, last, where the trace is recorded. Some 1 µs. */
  ended(context: CallContext, { outcome, receivedMs, answerMs, endedMs, settled }: CallEnd): void {
    const span = this.#span;
    if (span === undefined) return;
    const { admission, requestId } = context;
    const stream = admission?.call.stream === true;
    span.outbox.push({
      kind: SPAN_OF_CALL,
      traceId: span.traceId,
      spanId: span.spanId,
      parentSpanId: span.parentSpanId,
      flags: span.flags,
      traceState: span.state,
      startMs: receivedMs,
      endMs: endedMs,
      firstTokenMs: stream ? (answerMs ?? null) : null,
      outcome,
      status: statusOf(outcome, answerMs !== undefined),
      requestId,
      account: span.account,
      model: admission?.model.id ?? null,
      provider: admission?.model.ownedBy ?? null,
      stream,
      tokens: settled
        ? [settled.usage.promptTokens, settled.usage.cachedTokens, settled.usage.completionTokens]
        : null,
      costPicoUnits: settled?.charged ?? null,
    });
  }
}

/** An answer that has begun began with 200, whatever became of it. */
function statusOf(outcome: Outcome, begun: boolean): number | null {
  if (begun || outcome === 'ok') return OK;
  return outcome === 'client_gone' ? null : ERROR_KINDS[outcome].status;
}
