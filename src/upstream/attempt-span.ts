/**
 * The trace span of one attempt: the headers that the span adds to the request, and how the attempt ended. A
 * span exists only if the trace is recorded. chat-session.ts makes the span, attempt.ts ends it; a span that
 * never ends is not exported. Upstream worker.
 *
 * Must hold: a span ends once, with its first outcome, because a failed attempt is aborted afterwards. The
 * whole way to a collector: test/e2e/traces.test.ts.
 */
import type { UpstreamRequest } from '../channel/messages.js';
import { DOOR_NAMES } from '../core/door-names.js';
import type { ProviderName } from '../core/provider-names.js';
import type { SpanOutbox } from '../telemetry/span-outbox.js';
import { type AttemptSpanRecord, SPAN_OF_ATTEMPT } from '../telemetry/span-record.js';
import {
  isSampledText,
  newSpanId,
  parseTraceParent,
  traceHeadersOf,
  type TraceParent,
  traceParentText,
  UNRECORDED,
} from '../telemetry/trace-context.js';
import type { SessionShared } from './session-shared.js';
import type { UpstreamTarget } from './target.js';

/** Values of `gen_ai.provider.name`, as OpenTelemetry's conventions list them. */
const OTEL_PROVIDER_NAMES: Readonly<Record<ProviderName, string>> = {
  openai: 'openai',
  azure: 'azure.ai.openai',
  anthropic: 'anthropic',
  gemini: 'gcp.gemini',
  vertex: 'gcp.vertex_ai',
  bedrock: 'aws.bedrock',
};

/** The members of the span that are known when the attempt begins. */
type SpanBegin = Omit<
  AttemptSpanRecord,
  'spanId' | 'endMs' | 'firstByteMs' | 'error' | 'status' | 'responseModel'
>;

interface AttemptEnd {
  /** The `kind` of the failure, or `cancelled`; undefined if the response was whole. */
  readonly error: string | undefined;
  /** HTTP status; 0 if none came. */
  readonly status: number;
  /** The model's name in the response; undefined if none came. */
  readonly responseModel: string | undefined;
  readonly nowMs: number;
}

/**
 * The span of the attempt on `target` that begins now. `attempts`: of the call, with this one. Undefined if
 * spans are not exported, or the call has no trace, or its trace is not recorded: UNRECORDED, or not sampled.
 * Then attempt.ts sends the trace headers that came with the call.
 */
export function newAttemptSpan(
  { routes, spanOutbox, clock }: Pick<SessionShared, 'routes' | 'spanOutbox' | 'clock'>,
  { request, attempts }: { readonly request: UpstreamRequest; readonly attempts: number },
  target: UpstreamTarget,
): AttemptSpan | undefined {
  const { trace } = request;
  if (spanOutbox === undefined || trace === undefined || trace === UNRECORDED) return undefined;
  const [parentText, traceState] = trace;
  const parent = isSampledText(parentText) ? parseTraceParent(parentText) : undefined;
  if (parent === undefined) return undefined;
  const { id: modelId, ownedBy } = routes.routeOf(request.modelIndex);
  const begin: SpanBegin = {
    kind: SPAN_OF_ATTEMPT,
    traceId: parent.traceId,
    parentSpanId: parent.spanId,
    flags: parent.flags,
    traceState,
    // Monotonic, as all times of a span here. The exporter turns them into wall-clock times.
    startMs: clock.monotonicMs(),
    requestId: request.requestId,
    door: DOOR_NAMES[request.door]!,
    origin: target.origin,
    // The upstream's own name of the model, if the settings give one.
    model: target.model ?? modelId,
    // Without a provider in the settings, who owns the model.
    provider: target.provider === undefined ? ownedBy : OTEL_PROVIDER_NAMES[target.provider.name],
    earlierAttempts: attempts - 1,
    stream: request.stream,
  };
  return new AttemptSpan(begin, parent, spanOutbox);
}

export class AttemptSpan {
  /** Name, value, name, value. By these headers the upstream's span becomes a child of this span. */
  readonly headers: readonly string[];
  readonly #begin: SpanBegin;
  readonly #outbox: SpanOutbox;
  readonly #spanId = newSpanId();
  #hasEnded = false;
  #firstByteMs: number | null = null;

  constructor(begin: SpanBegin, parent: TraceParent, outbox: SpanOutbox) {
    this.#begin = begin;
    this.#outbox = outbox;
    this.headers = traceHeadersOf([traceParentText({ ...parent, spanId: this.#spanId }), begin.traceState]);
  }

  /** Call when the worker relays the first byte of the response. A call after `end` has no effect. */
  recordFirstByte(nowMs: number): void {
    this.#firstByteMs = nowMs;
  }

  /** Ends the span with its first outcome. Later calls do nothing. */
  end({ error, status, responseModel, nowMs }: AttemptEnd): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#outbox.push({
      ...this.#begin,
      spanId: this.#spanId,
      endMs: nowMs,
      firstByteMs: this.#firstByteMs,
      error: error ?? null,
      status: status === 0 ? null : status,
      responseModel: responseModel ?? null,
    });
  }
}
