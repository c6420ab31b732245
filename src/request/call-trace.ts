/**
 * The trace that a call belongs to (W3C Trace Context): begun from the client's headers, carried to the
 * upstream, ended as the span of the call. intake.ts begins it, recorded-call.ts ends it. Listener thread.
 *
 * If no spans are exported, the client's `traceparent` is passed on, so that its trace does not break here.
 * Otherwise every call of a known caller has a trace. CallTracer decides at once whether the trace is
 * _recorded_: whether its span is exported. All unrecorded traces that began here share one object.
 *
 * Must hold: a trace begins after authentication, so that nobody without a key causes an export of spans
 * (test/unit/request/call-trace.call-tracer.test.ts, test/e2e/traces.test.ts).
 */
import type { HttpRequest } from 'uWebSockets.js';
import { statusByDoor, type DoorName } from '../core/door-names.js';
import type { AccountIndex } from '../core/units.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { SpanOutbox } from '../telemetry/span-outbox.js';
import { SPAN_OF_CALL, spanTokensOf } from '../telemetry/span-record.js';
import {
  type CarriedTrace,
  checkedTraceState,
  FLAG_SAMPLED,
  FLAGS_OF_NEW_TRACE,
  newSpanId,
  newTraceId,
  parseTraceParent,
  type TraceParent,
  traceParentText,
  UNRECORDED,
} from '../telemetry/trace-context.js';
import { isSampled, type Sampling } from '../telemetry/trace-sampling.js';
import type { CallContext, Caller } from './context.js';
import type { Settled } from './settle.js';

/** The ids of a recorded call's span, and where the span is sent. The ids are in hex. */
interface CallSpan {
  readonly outbox: SpanOutbox;
  readonly traceId: string;
  readonly spanId: string;
  /** Null if the client sent no trace. */
  readonly parentSpanId: string | null;
  readonly flags: number;
  /** The header `tracestate`; may be empty. */
  readonly traceState: string;
  readonly account: AccountIndex;
}

/** What is known of a call at its end, as RecordedCall has it. Times are monotonic. */
interface CallEnd {
  readonly outcome: Outcome;
  readonly receivedMs: number;
  readonly responseMs: number | undefined;
  readonly endedMs: number;
  readonly queuedMs: number;
  /** Undefined if the call was not charged. */
  readonly settled: Settled | undefined;
}

const OK_STATUS = 200;

export class CallTrace {
  /** The headers `traceparent` and `tracestate` as the upstream gets them: this call is the parent. */
  readonly carried: CarriedTrace;
  readonly #span: CallSpan | undefined;

  constructor(carried: CarriedTrace, span: CallSpan | undefined) {
    this.carried = carried;
    this.#span = span;
  }

  get isRecorded(): boolean {
    return this.#span !== undefined;
  }

  /** Sends the span of the call. Called once, last, if the trace is recorded. Some 1 µs. */
  sendSpan(
    context: CallContext,
    { outcome, receivedMs, responseMs, endedMs, queuedMs, settled }: CallEnd,
  ): void {
    const span = this.#span;
    if (span === undefined) return;
    const { admission, requestId, door } = context;
    const isStream = admission?.call.stream === true;
    span.outbox.push({
      kind: SPAN_OF_CALL,
      traceId: span.traceId,
      spanId: span.spanId,
      parentSpanId: span.parentSpanId,
      flags: span.flags,
      traceState: span.traceState,
      startMs: receivedMs,
      endMs: endedMs,
      firstTokenMs: isStream ? (responseMs ?? null) : null,
      outcome,
      status: statusOf(door.name, outcome, responseMs !== undefined),
      requestId,
      door: door.name,
      account: span.account,
      model: admission?.model.id ?? null,
      answeredModel: fallbackOf(context, settled),
      provider: admission?.model.ownedBy ?? null,
      stream: isStream,
      tokens: settled ? spanTokensOf(settled.usage) : null,
      costPicoUnits: settled?.charged ?? null,
      queuedMs,
    });
  }
}

/** The id of the fallback that answered; null if none did. */
function fallbackOf({ modelIndex, models }: CallContext, settled: Settled | undefined): string | null {
  if (settled === undefined || settled.answered === modelIndex) return null;
  return models.find((chosen) => chosen.modelIndex === settled.answered)?.model.id ?? null;
}

/** The status that the client got; null if the client left before. A response that has begun has 200. */
function statusOf(door: DoorName, outcome: Outcome, hasBegun: boolean): number | null {
  if (hasBegun || outcome === 'ok') return OK_STATUS;
  return outcome === 'client_gone' ? null : statusByDoor(door, outcome);
}

/** Which traces are recorded, and where their spans are sent. */
interface Recording {
  readonly sampling: Sampling;
  readonly outbox: SpanOutbox;
}

/** The client's trace headers. */
interface IncomingTrace {
  readonly parent: TraceParent | undefined;
  readonly state: string;
}

const UNRECORDED_TRACE = new CallTrace(UNRECORDED, undefined);
const NO_TRACE: IncomingTrace = { parent: undefined, state: '' };

export class CallTracer {
  readonly #recording: Recording | undefined;

  /** `recording` is undefined if no spans are exported. */
  constructor(recording: Recording | undefined) {
    this.#recording = recording;
  }

  /**
   * `traceParent` is the header, or empty. If it is not empty, `req` is read, which only the handler of µWS
   * may do. Returns undefined if the call belongs to no trace.
   */
  begin(req: HttpRequest, traceParent: string, { account }: Caller): CallTrace | undefined {
    const { parent, state } = traceParent === '' ? NO_TRACE : incomingTraceOf(req);
    if (this.#recording === undefined) {
      return parent && new CallTrace([traceParentText(parent), state], undefined);
    }
    const { sampling, outbox } = this.#recording;
    const traceId = parent?.traceId ?? newTraceId();
    const isRecorded = isSampled(sampling, traceId, parent);
    if (!isRecorded && parent === undefined) return UNRECORDED_TRACE;
    // The upstream gets this gateway's decision and span id in place of the client's, recorded or not.
    const flags = ((parent?.flags ?? FLAGS_OF_NEW_TRACE) & ~FLAG_SAMPLED) | (isRecorded ? FLAG_SAMPLED : 0);
    const spanId = newSpanId();
    return new CallTrace(
      [traceParentText({ traceId, spanId, flags }), state],
      isRecorded
        ? { outbox, traceId, spanId, parentSpanId: parent?.spanId ?? null, flags, traceState: state, account }
        : undefined,
    );
  }
}

/**
 * Reads all headers, which takes some 2 µs, because two `traceparent` headers are both invalid, and several
 * `tracestate` headers are one list.
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
