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

/** The span of a call has the kind server, that of an attempt the kind client. */
export function otelSpanOf(record: SpanRecord, around: SpanSurroundings): ReadableSpan {
  const { parentSpanId, startMs, endMs } = record;
  const { resource, version, offsetMs } = around;
  const isCall = record.kind === SPAN_OF_CALL;
  const context = contextOf(record, record.spanId);
  const firstMs = isCall ? record.firstTokenMs : record.firstByteMs;
  return {
    name: isCall ? `POST ${CHAT_ROUTE}` : `${OPERATION} ${record.model}`,
    kind: isCall ? SpanKind.SERVER : SpanKind.CLIENT,
    spanContext: () => context,
    ...(parentSpanId === null
      ? {}
      : { parentSpanContext: { ...contextOf(record, parentSpanId), isRemote: isCall } }),
    startTime: hrTimeOf(startMs + offsetMs),
    endTime: hrTimeOf(endMs + offsetMs),
    duration: hrTimeOf(Math.max(0, endMs - startMs)),
    status: { code: hasFailed(record) ? SpanStatusCode.ERROR : SpanStatusCode.UNSET },
    attributes: isCall
      ? callAttributes(record, around.accountIdOf(record.account))
      : attemptAttributes(record),
    events:
      firstMs === null
        ? []
        : [{ name: isCall ? 'first_token' : 'first_byte', time: hrTimeOf(firstMs + offsetMs) }],
    links: [],
    resource,
    instrumentationScope: { name: SCOPE, version },
    ended: true,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  };
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

function callAttributes(record: CallSpanRecord, accountId: string | undefined): Attributes {
  const { outcome, status, model, provider, tokens, costPicoUnits } = record;
  return {
    'http.request.method': 'POST',
    'http.route': CHAT_ROUTE,
    'url.path': CHAT_ROUTE,
    ...(status === null ? {} : { 'http.response.status_code': status }),
    ...(outcome === 'ok' ? {} : { 'error.type': outcome }),
    'gen_ai.operation.name': OPERATION,
    ...(provider === null ? {} : { 'gen_ai.provider.name': provider }),
    ...(model === null ? {} : { 'gen_ai.request.model': model, 'gen_ai.request.stream': record.stream }),
    ...(tokens === null
      ? {}
      : {
          'gen_ai.usage.input_tokens': tokens[0],
          'gen_ai.usage.cache_read.input_tokens': tokens[1],
          'gen_ai.usage.output_tokens': tokens[2],
        }),
    'tollgate.request.id': record.requestId,
    ...(accountId === undefined ? {} : { 'tollgate.account.id': accountId }),
    ...(costPicoUnits === null ? {} : { 'tollgate.cost': currencyOf(costPicoUnits) }),
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
    'tollgate.request.id': record.requestId,
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
