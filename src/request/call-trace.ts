/**
 * The trace that a call belongs to (W3C Trace Context): begun from the client's headers, carried to the
 * upstream, ended as the span of the call. Intake begins it, ChatExchange ends it. Listener thread.
 *
 * Without an exporter the client's own `traceparent` is passed on as it is, so that its trace does not break
 * here. With one, every call of a known caller has a trace, and CallTracer decides at once whether it is
 * recorded. All unrecorded traces that began here share one object.
 *
 * Must hold: a trace begins after authentication, so that nobody without a key writes to the store of traces
 * (test/unit/request/call-trace.call-tracer.test.ts, test/e2e/traces.test.ts).
 */
import type { HttpRequest } from 'uWebSockets.js';
import { statusByDoor, type DoorName } from '../core/door-names.js';
import type { AccountIndex } from '../core/units.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { SpanOutbox } from '../telemetry/span-outbox.js';
import { SPAN_OF_CALL } from '../telemetry/span-record.js';
import {
  type CarriedTrace,
  checkedTraceState,
  FLAG_SAMPLED,
  FLAGS_OF_NEW,
  isSampled,
  newSpanId,
  newTraceId,
  parseTraceParent,
  type Sampling,
  type TraceParent,
  traceParentText,
  UNRECORDED,
} from '../telemetry/trace-context.js';
import type { CallContext, Caller } from './context.js';
import type { Settled } from './settle.js';

/** The identity of a recorded span. */
interface CallSpan {
  readonly outbox: SpanOutbox;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | null;
  readonly flags: number;
  readonly state: string;
  readonly account: AccountIndex;
}

/** What is known of a call at its end. Times are monotonic. */
interface CallEnd {
  readonly outcome: Outcome;
  readonly receivedMs: number;
  /** When the first piece of a response that came in pieces was written. */
  readonly responseMs: number | undefined;
  readonly endedMs: number;
  /** See EndedCall. */
  readonly queuedMs: number;
  readonly settled: Settled | undefined;
}

const OK = 200;

export class CallTrace {
  /** The trace as the upstream gets it: this call is the parent. */
  readonly carried: CarriedTrace;
  readonly #span: CallSpan | undefined;

  constructor(carried: CarriedTrace, span: CallSpan | undefined) {
    this.carried = carried;
    this.#span = span;
  }

  get isRecorded(): boolean {
    return this.#span !== undefined;
  }

  /** Called once, last, if the trace is recorded. Some 1 µs. */
  ended(
    context: CallContext,
    { outcome, receivedMs, responseMs, endedMs, queuedMs, settled }: CallEnd,
  ): void {
    const span = this.#span;
    if (span === undefined) return;
    const { admission, requestId, door } = context;
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
      firstTokenMs: stream ? (responseMs ?? null) : null,
      outcome,
      status: statusOf(door.name, outcome, responseMs !== undefined),
      requestId,
      door: door.name,
      account: span.account,
      model: admission?.model.id ?? null,
      answeredModel: fallbackOf(context, settled),
      provider: admission?.model.ownedBy ?? null,
      stream,
      tokens: settled
        ? [
            settled.usage.promptTokens,
            settled.usage.cachedTokens,
            settled.usage.cacheWriteTokens,
            settled.usage.completionTokens,
            settled.usage.reasoningTokens,
          ]
        : null,
      costPicoUnits: settled?.charged ?? null,
      queuedMs,
    });
  }
}

/** The id of the fallback that answered; null if that was the model that the call names. */
function fallbackOf({ modelIndex, models }: CallContext, settled: Settled | undefined): string | null {
  if (settled === undefined || settled.answered === modelIndex) return null;
  return models.find((chosen) => chosen.modelIndex === settled.answered)?.model.id ?? null;
}

/** Null if no status was sent. A response that `hasBegun` has 200, however it ended. */
function statusOf(door: DoorName, outcome: Outcome, hasBegun: boolean): number | null {
  if (hasBegun || outcome === 'ok') return OK;
  return outcome === 'client_gone' ? null : statusByDoor(door, outcome);
}

/** Set if spans are exported: which traces are recorded, and where their spans go. */
interface Recording {
  readonly sampling: Sampling;
  readonly outbox: SpanOutbox;
}

/** The client's trace headers. */
interface IncomingTrace {
  readonly parent: TraceParent | undefined;
  readonly state: string;
}

const NOT_RECORDED = new CallTrace(UNRECORDED, undefined);
const NO_TRACE: IncomingTrace = { parent: undefined, state: '' };

export class CallTracer {
  readonly #recording: Recording | undefined;

  /** `recording` is undefined if no spans are exported. */
  constructor(recording: Recording | undefined) {
    this.#recording = recording;
  }

  /** `text` is the header `traceparent`, or empty. If it is not, `req` is read. */
  begin(req: HttpRequest, text: string, { account }: Caller): CallTrace | undefined {
    const { parent, state } = text === '' ? NO_TRACE : incomingTraceOf(req);
    if (this.#recording === undefined) {
      return parent && new CallTrace([traceParentText(parent), state], undefined);
    }
    const { sampling, outbox } = this.#recording;
    const traceId = parent?.traceId ?? newTraceId();
    const sampled = isSampled(sampling, traceId, parent);
    if (!sampled && parent === undefined) return NOT_RECORDED;
    const flags = ((parent?.flags ?? FLAGS_OF_NEW) & ~FLAG_SAMPLED) | (sampled ? FLAG_SAMPLED : 0);
    const spanId = newSpanId();
    return new CallTrace(
      [traceParentText({ traceId, spanId, flags }), state],
      sampled
        ? { outbox, traceId, spanId, parentSpanId: parent?.spanId ?? null, flags, state, account }
        : undefined,
    );
  }
}

/**
 * Reads all headers, in some 2 µs: a second `traceparent` voids both, and there may be several `tracestate`.
 */
function incomingTraceOf(req: HttpRequest): IncomingTrace {
  const parents: string[] = [];
  const states: string[] = [];
  req.forEach((name, value) => {
    if (name === 'traceparent') parents.push(value);
    else if (name === 'tracestate') states.push(value);
  });
  const parent = parents.length === 1 ? parseTraceParent(parents[0]!) : undefined;
  return parent === undefined ? NO_TRACE : { parent, state: checkedTraceState(states.join(',')) };
}
