/**
 * The trace that a chat call belongs to: begun from the caller's headers, carried to the upstream, ended as the span of the call.
 * Listener thread.
 *
 * Without an exporter the caller's own `traceparent` is handed on as it is, so that its trace does not break here. With one, every
 * call of a known caller has a trace; whether it is recorded is decided at once, and where it is not, and began here, nothing is made.
 */
import type { HttpRequest } from 'uWebSockets.js';
import type { Caller } from '../pipeline/context.js';
import { newSpanId, newTraceId } from '../telemetry/span-ids.js';
import type { SpanOutbox } from '../telemetry/span-outbox.js';
import { isSampled, type Sampling } from '../telemetry/trace-sampling.js';
import {
  FLAGS_OF_NEW,
  FLAG_SAMPLED,
  UNRECORDED,
  checkedTraceState,
  parseTraceParent,
  traceParentText,
  type TraceParent,
} from '../telemetry/trace-parent.js';
import { CallTrace } from '../pipeline/call-trace.js';

/** Of a gateway that exports spans. */
export interface Recording {
  readonly sampling: Sampling;
  readonly outbox: SpanOutbox;
}

interface Arrived {
  readonly parent: TraceParent | undefined;
  readonly state: string;
}

const NOT_RECORDED = new CallTrace(UNRECORDED, undefined);

const NOTHING: Arrived = { parent: undefined, state: '' };

export class CallTracer {
  readonly #recording: Recording | undefined;

  constructor(recording: Recording | undefined) {
    this.#recording = recording;
  }

  /** To be asked while the request's headers are there. `text` is the header `traceparent`, empty where the caller sends none. */
  begin(req: HttpRequest, text: string, { account }: Caller): CallTrace | undefined {
    const { parent, state } = text === '' ? NOTHING : arrivedIn(req);
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

/** All headers are looked at, some 2 µs: a second `traceparent` makes both void, and a `tracestate` may come in several. */
function arrivedIn(req: HttpRequest): Arrived {
  const parents: string[] = [];
  const states: string[] = [];
  req.forEach((name, value) => {
    if (name === 'traceparent') parents.push(value);
    else if (name === 'tracestate') states.push(value);
  });
  const parent = parents.length === 1 ? parseTraceParent(parents[0]!) : undefined;
  return parent === undefined ? NOTHING : { parent, state: checkedTraceState(states.join(',')) };
}
