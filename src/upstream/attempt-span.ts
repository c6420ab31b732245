/**
 * The span of one try on an upstream: its headers, and what became of it; only where the trace is recorded. Upstream worker.
 */
import type { UpstreamRequest } from '../channel/messages.js';
import {
  type CarriedTrace,
  isSampledText,
  newSpanId,
  parseTraceParent,
  traceHeadersOf,
  type TraceParent,
  traceParentText,
  UNRECORDED,
} from '../telemetry/trace-context.js';
import type { SpanOutbox } from '../telemetry/span-outbox.js';
import { SPAN_OF_ATTEMPT } from '../telemetry/span-record.js';
import type { UpstreamTarget } from './target.js';

/** What is known of a try when it begins. */
export interface AttemptBegin {
  readonly request: UpstreamRequest;
  readonly target: UpstreamTarget;
  /** The model's id here, which is its name there unless the target has another. */
  readonly modelId: string;
  readonly provider: string;
  /** Tries of the call that came before. */
  readonly earlierTries: number;
  readonly nowMs: number;
}

export interface AttemptEnd {
  /** Kind of a failure, or `cancelled`; undefined where the response was whole. */
  readonly error: string | undefined;
  readonly status: number;
  readonly responseModel: string | undefined;
  readonly nowMs: number;
}

export class AttemptSpan {
  /** Name, value, name, value: this span is the parent of what comes behind. */
  readonly headers: readonly string[];
  readonly #begin: AttemptBegin;
  readonly #outbox: SpanOutbox;
  readonly #parent: TraceParent;
  readonly #traceState: string;
  readonly #spanId = newSpanId();
  #ended = false;
  #firstByteMs: number | null = null;

  private constructor(begin: AttemptBegin, parent: TraceParent, traceState: string, outbox: SpanOutbox) {
    this.#begin = begin;
    this.#outbox = outbox;
    this.#parent = parent;
    this.#traceState = traceState;
    this.headers = traceHeadersOf([traceParentText({ ...parent, spanId: this.#spanId }), traceState]);
  }

  /** Undefined where the trace is not recorded: its headers go on as they came, and that costs nothing. */
  static of(begin: () => AttemptBegin, carried: CarriedTrace, outbox: SpanOutbox | undefined) {
    if (outbox === undefined || carried === UNRECORDED) return undefined;
    const [text, traceState] = carried;
    if (!isSampledText(text)) return undefined;
    const parent = parseTraceParent(text);
    return parent && new AttemptSpan(begin(), parent, traceState, outbox);
  }

  /** Called once. */
  firstByte(nowMs: number): void {
    this.#firstByteMs = nowMs;
  }

  /** The first word counts: an attempt that has failed is aborted as well. */
  end({ error, status, responseModel: answerModel, nowMs }: AttemptEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    const parent = this.#parent;
    const { request, target, modelId, provider, earlierTries, nowMs: startMs } = this.#begin;
    this.#outbox.push({
      kind: SPAN_OF_ATTEMPT,
      traceId: parent.traceId,
      spanId: this.#spanId,
      parentSpanId: parent.spanId,
      flags: parent.flags,
      traceState: this.#traceState,
      startMs,
      endMs: nowMs,
      firstByteMs: this.#firstByteMs,
      error: error ?? null,
      status: status === 0 ? null : status,
      requestId: request.requestId,
      origin: target.origin,
      model: target.model ?? modelId,
      responseModel: answerModel ?? null,
      provider,
      earlierTries,
      stream: request.stream,
    });
  }
}
