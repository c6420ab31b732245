/**
 * From records of spans to spans as the OpenTelemetry SDK exports them, with the names of its GenAI and HTTP conventions; what they
 * have no name for is `tollgate.*`. Never contents of messages, never keys. Exporting thread.
 */
import { SpanKind, SpanStatusCode, type Attributes, type HrTime, type SpanContext } from '@opentelemetry/api';
import type { Resource } from '@opentelemetry/resources';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import type { AccountIndex } from '../core/units.js';
import { CHAT_ROUTE } from './metrics-layout.js';
import { currencyOf } from './metrics-source.js';
import { SPAN_OF_CALL, type AttemptSpanRecord, type CallSpanRecord, type SpanRecord } from './span-record.js';

export interface SpanSurroundings {
  readonly resource: Resource;
  readonly version: string;
  /** From the threads' monotonic clock to Unix time. */
  readonly offsetMs: number;
  readonly accountIdOf: (account: AccountIndex) => string | undefined;
}

const SCOPE = 'tollgate';
const OPERATION = 'chat';
const SERVER_ERROR = 500;
const CLIENT_ERROR = 400;
const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

/** The span of a call is of kind server, that of an attempt of kind client. What the exporter does not ask for is not made. */
export class RecordedSpan implements ReadableSpan {
  readonly record: SpanRecord;
  readonly resource: Resource;
  readonly parentSpanContext?: SpanContext;
  readonly accountId: string | undefined;
  readonly links = [];
  readonly ended = true;
  readonly droppedAttributesCount = 0;
  readonly droppedEventsCount = 0;
  readonly droppedLinksCount = 0;
  readonly #version: string;
  readonly #offsetMs: number;

  constructor(record: SpanRecord, { resource, version, offsetMs, accountIdOf }: SpanSurroundings) {
    this.record = record;
    this.resource = resource;
    this.#version = version;
    this.#offsetMs = offsetMs;
    // Now: who waits long may find it forgotten.
    this.accountId = record.kind === SPAN_OF_CALL ? accountIdOf(record.account) : undefined;
    if (record.parentSpanId === null) return;
    const isRemote = record.kind === SPAN_OF_CALL;
    this.parentSpanContext = { ...contextOf(record, record.parentSpanId), isRemote };
  }

  get name(): string {
    const { record } = this;
    return record.kind === SPAN_OF_CALL ? `POST ${CHAT_ROUTE}` : `${OPERATION} ${record.model}`;
  }

  get kind(): SpanKind {
    return this.record.kind === SPAN_OF_CALL ? SpanKind.SERVER : SpanKind.CLIENT;
  }

  spanContext(): SpanContext {
    return contextOf(this.record, this.record.spanId);
  }

  get startTime(): HrTime {
    return hrTimeOf(this.record.startMs + this.#offsetMs);
  }

  get endTime(): HrTime {
    return hrTimeOf(this.record.endMs + this.#offsetMs);
  }

  get duration(): HrTime {
    return hrTimeOf(Math.max(0, this.record.endMs - this.record.startMs));
  }

  get status(): { readonly code: SpanStatusCode } {
    return { code: hasFailed(this.record) ? SpanStatusCode.ERROR : SpanStatusCode.UNSET };
  }

  get events(): { readonly name: string; readonly time: HrTime }[] {
    const { record } = this;
    const isCall = record.kind === SPAN_OF_CALL;
    const firstMs = isCall ? record.firstTokenMs : record.firstByteMs;
    if (firstMs === null) return [];
    return [{ name: isCall ? 'first_token' : 'first_byte', time: hrTimeOf(firstMs + this.#offsetMs) }];
  }

  get instrumentationScope(): { readonly name: string; readonly version: string } {
    return { name: SCOPE, version: this.#version };
  }

  get attributes(): Attributes {
    return { ...this.commonAttributes, ...this.ownAttributes };
  }

  /** Those that most spans of the same kind have in common. */
  get commonAttributes(): Attributes {
    const { record } = this;
    return record.kind === SPAN_OF_CALL ? callAttributes(record) : attemptAttributes(record);
  }

  /** In ASCII: identifiers and numbers. */
  get ownAttributes(): Attributes {
    const { record, accountId } = this;
    const attributes: Attributes = {};
    if (record.kind === SPAN_OF_CALL && record.tokens !== null) {
      const [input, cached, output] = record.tokens;
      attributes['gen_ai.usage.input_tokens'] = input;
      attributes['gen_ai.usage.cache_read.input_tokens'] = cached;
      attributes['gen_ai.usage.output_tokens'] = output;
    }
    attributes['tollgate.request.id'] = record.requestId;
    if (accountId !== undefined) attributes['tollgate.account.id'] = accountId;
    if (record.kind === SPAN_OF_CALL && record.costPicoUnits !== null)
      attributes['tollgate.cost'] = currencyOf(record.costPicoUnits);
    return attributes;
  }
}

/** Only what the serializer reads of a state: its text. */
function contextOf({ traceId, flags, traceState }: SpanRecord, spanId: string): SpanContext {
  const context = { traceId, spanId, traceFlags: flags };
  if (traceState === '') return context;
  const state = { serialize: () => traceState, get: () => undefined, set: () => state, unset: () => state };
  return { ...context, traceState: state };
}

/** A refusal of a caller is no fault of the gateway's; a stream that broke after its 200 is. */
function hasFailed(record: SpanRecord): boolean {
  if (record.kind !== SPAN_OF_CALL) return record.error !== null && record.error !== 'cancelled';
  if (record.outcome === 'ok' || record.outcome === 'client_gone') return false;
  return record.status === null || record.status >= SERVER_ERROR || record.status < CLIENT_ERROR;
}

function callAttributes(record: CallSpanRecord): Attributes {
  const { outcome, status, model, provider } = record;
  return {
    'http.request.method': 'POST',
    'http.route': CHAT_ROUTE,
    'url.path': CHAT_ROUTE,
    ...(status === null ? {} : { 'http.response.status_code': status }),
    ...(outcome === 'ok' ? {} : { 'error.type': outcome }),
    'gen_ai.operation.name': OPERATION,
    ...(provider === null ? {} : { 'gen_ai.provider.name': provider }),
    ...(model === null ? {} : { 'gen_ai.request.model': model, 'gen_ai.request.stream': record.stream }),
  };
}

function attemptAttributes(record: AttemptSpanRecord): Attributes {
  const { status, error, provider, responseModel, earlierTries } = record;
  // A status that tells what went wrong is the better name for it.
  const errorType = status !== null && status >= CLIENT_ERROR ? String(status) : error;
  return {
    'gen_ai.operation.name': OPERATION,
    'gen_ai.provider.name': provider,
    'gen_ai.request.model': record.model,
    'gen_ai.request.stream': record.stream,
    ...(responseModel === null ? {} : { 'gen_ai.response.model': responseModel }),
    'http.request.method': 'POST',
    ...(status === null ? {} : { 'http.response.status_code': status }),
    ...(earlierTries === 0 ? {} : { 'http.request.resend_count': earlierTries }),
    ...(errorType === null ? {} : { 'error.type': errorType }),
    ...(error === null ? {} : { 'tollgate.upstream.failure': error }),
    ...serverAttributes(record.origin),
  };
}

/** By origin, of which there are as many as upstreams: reading an address takes as long as all else in a span. */
const servers = new Map<string, Attributes>();

function serverAttributes(origin: string): Attributes {
  let attributes = servers.get(origin);
  if (attributes === undefined) {
    attributes = serverAttributesOf(origin);
    servers.set(origin, attributes);
  }
  return attributes;
}

/** Of the built-in model, whose origin has no host, the word alone. */
function serverAttributesOf(origin: string): Attributes {
  const { hostname, port, protocol } = new URL(origin);
  if (hostname === '') return { 'server.address': protocol.slice(0, -1) };
  const number = port === '' ? DEFAULT_PORTS[protocol] : Number(port);
  return { 'server.address': hostname, ...(number === undefined ? {} : { 'server.port': number }) };
}

function hrTimeOf(ms: number): HrTime {
  const seconds = Math.floor(ms / 1_000);
  // Not rounded: that may come to a whole second more.
  return [seconds, Math.floor((ms - seconds * 1_000) * 1e6)];
}
