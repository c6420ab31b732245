/**
 * Converts span records to spans, and ended calls (CallView) to log records, as the OpenTelemetry SDK exports
 * them (an _item_ is a span or a log record). Attributes have the names of OpenTelemetry's GenAI and HTTP
 * conventions, and `tollgate.*` for what the conventions lack. The same value has the same name in both.
 * span-export.thread.ts calls it, on its own thread.
 *
 * Must hold:
 * - No contents of a call and no key is in an item (test/unit/telemetry/otel-items.test.ts,
 *   test/e2e/traces.test.ts, test/e2e/log-records.test.ts).
 * - Names of attributes stay, because operators' queries use them.
 */
import { SpanKind, SpanStatusCode, type Attributes, type HrTime, type SpanContext } from '@opentelemetry/api';
import { SeverityNumber } from '@opentelemetry/api-logs';
import type { Resource } from '@opentelemetry/resources';
import type { ReadableLogRecord } from '@opentelemetry/sdk-logs';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import { DOOR_NAMES, DOOR_PATHS, SERVICE_OF, type DoorName } from '../core/door-names.js';
import type { AccountIndex } from '../core/units.js';
import type { CallView } from './call-record.js';
import { currencyOf, OPERATIONS } from './metrics-source.js';
import { SPAN_OF_CALL, type AttemptSpanRecord, type CallSpanRecord, type SpanRecord } from './span-record.js';

interface Environment {
  /** Names the gateway: its version, and what OTEL_RESOURCE_ATTRIBUTES adds. */
  readonly resource: Resource;
  /** The instrumentation scope. One object for all items, because the SDK groups log records by it. */
  readonly scope: { readonly name: string; readonly version: string };
}

interface SpanEnvironment extends Environment {
  /** Added to a time of the monotonic clock, which all threads share, to get Unix time. */
  readonly offsetMs: number;
  /** Returns undefined if the id is not known, and the span then has none. */
  readonly accountIdOf: (account: AccountIndex) => string | undefined;
}

interface LogRecordEnvironment extends Environment {
  /** When the exporting thread got the call, in Unix milliseconds. */
  readonly observedMs: number;
}

/** The first HTTP status of each class of errors. */
const SERVER_ERROR = 500;
const CLIENT_ERROR = 400;
const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

const operationOf = (door: DoorName): string => OPERATIONS[SERVICE_OF[door]];

/** Returns a span of the kind server for a call, and one of the kind client for an attempt. */
export function otelSpanOf(record: SpanRecord, environment: SpanEnvironment): ReadableSpan {
  const { parentSpanId, startMs, endMs } = record;
  const { resource, scope, offsetMs } = environment;
  const isCall = record.kind === SPAN_OF_CALL;
  const context = contextOf(record, record.spanId);
  const firstEventMs = isCall ? record.firstTokenMs : record.firstByteMs;
  return {
    name: isCall ? `POST ${DOOR_PATHS[record.door]}` : `${operationOf(record.door)} ${record.model}`,
    kind: isCall ? SpanKind.SERVER : SpanKind.CLIENT,
    spanContext: () => context,
    // The parent of a call's span is a span of the caller's process, so it is remote.
    ...(parentSpanId === null
      ? {}
      : { parentSpanContext: { ...contextOf(record, parentSpanId), isRemote: isCall } }),
    startTime: hrTimeOf(startMs + offsetMs),
    endTime: hrTimeOf(endMs + offsetMs),
    duration: hrTimeOf(Math.max(0, endMs - startMs)),
    status: { code: hasFailed(record) ? SpanStatusCode.ERROR : SpanStatusCode.UNSET },
    attributes: isCall
      ? callAttributes(record, environment.accountIdOf(record.account))
      : attemptAttributes(record),
    events:
      firstEventMs === null
        ? []
        : [{ name: isCall ? 'first_token' : 'first_byte', time: hrTimeOf(firstEventMs + offsetMs) }],
    links: [],
    resource,
    instrumentationScope: scope,
    ended: true,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  };
}

/** The SDK's exporter calls only `serialize` of a trace state, so the stub's other methods do nothing. */
function contextOf({ traceId, flags, traceState }: SpanRecord, spanId: string): SpanContext {
  const context = { traceId, spanId, traceFlags: flags };
  if (traceState === '') return context;
  const stub = { serialize: () => traceState, get: () => undefined, set: () => stub, unset: () => stub };
  return { ...context, traceState: stub };
}

/** Whether the span is an error: not if a call ended with 4xx, but also if a stream broke after its 200. */
function hasFailed(record: SpanRecord): boolean {
  if (record.kind !== SPAN_OF_CALL) return record.error !== null && record.error !== 'cancelled';
  if (record.outcome === 'ok' || record.outcome === 'client_gone') return false;
  return record.status === null || record.status >= SERVER_ERROR || record.status < CLIENT_ERROR;
}

function callAttributes(record: CallSpanRecord, accountId: string | undefined): Attributes {
  const { outcome, model, costPicoUnits } = record;
  const [input, cached, cacheWrite, output, reasoning] = record.tokens ?? [];
  return withoutAbsent({
    'http.request.method': 'POST',
    'http.route': DOOR_PATHS[record.door],
    'url.path': DOOR_PATHS[record.door],
    'http.response.status_code': record.status,
    'error.type': outcome === 'ok' ? null : outcome,
    'gen_ai.operation.name': operationOf(record.door),
    'gen_ai.provider.name': record.provider,
    'gen_ai.request.model': model,
    'gen_ai.request.stream': model === null ? null : record.stream,
    'tollgate.answered_model': record.answeredModel,
    'gen_ai.usage.input_tokens': input,
    'gen_ai.usage.cache_read.input_tokens': cached,
    'gen_ai.usage.cache_creation.input_tokens': cacheWrite,
    'gen_ai.usage.output_tokens': output,
    'gen_ai.usage.reasoning.output_tokens': reasoning,
    'tollgate.request.id': record.requestId,
    'tollgate.account.id': accountId,
    'tollgate.cost': costPicoUnits === null ? null : currencyOf(costPicoUnits),
    'tollgate.upstream.queued_ms': record.queuedMs === 0 ? null : record.queuedMs,
  });
}

function attemptAttributes(record: AttemptSpanRecord): Attributes {
  const { status, error, earlierAttempts } = record;
  return withoutAbsent({
    'gen_ai.operation.name': operationOf(record.door),
    'gen_ai.provider.name': record.provider,
    'gen_ai.request.model': record.model,
    'gen_ai.request.stream': record.stream,
    'gen_ai.response.model': record.responseModel,
    'http.request.method': 'POST',
    'http.response.status_code': status,
    'http.request.resend_count': earlierAttempts === 0 ? null : earlierAttempts,
    // A status of 400 or more says more than the kind of the failure.
    'error.type': status !== null && status >= CLIENT_ERROR ? String(status) : error,
    'tollgate.upstream.failure': error,
    ...serverAttributes(record.origin),
    'tollgate.request.id': record.requestId,
  });
}

/** Returns the attributes without those that are null or undefined. */
function withoutAbsent<Value>(
  attributes: Readonly<Record<string, Value | null | undefined>>,
): Record<string, Value> {
  const present = Object.entries(attributes).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(present) as Record<string, Value>;
}

/**
 * Attributes by origin, cached because parsing an address takes as long as the rest of the conversion. There
 * is one entry for each origin of an upstream since the start.
 */
const servers = new Map<string, Attributes>();

function serverAttributes(origin: string): Attributes {
  let attributes = servers.get(origin);
  if (attributes === undefined) {
    attributes = serverAttributesOf(origin);
    servers.set(origin, attributes);
  }
  return attributes;
}

/** The origin of the built-in model, `echo:`, has no host, so the scheme stands for the address. */
function serverAttributesOf(origin: string): Attributes {
  const { hostname, port, protocol } = new URL(origin);
  if (hostname === '') return { 'server.address': protocol.slice(0, -1) };
  const portNumber = port === '' ? DEFAULT_PORTS[protocol] : Number(port);
  return { 'server.address': hostname, ...(portNumber === undefined ? {} : { 'server.port': portNumber }) };
}

/** Returns seconds and nanoseconds. `ms` is Unix time, or a duration of 0 or more. */
function hrTimeOf(ms: number): HrTime {
  const seconds = Math.floor(ms / 1_000);
  // Rounded down, because rounding up could give 10^9 nanoseconds, which OTLP does not allow.
  return [seconds, Math.floor((ms - seconds * 1_000) * 1e6)];
}

type LogAttributes = ReadableLogRecord['attributes'];

const EVENT_NAME = 'tollgate.call';
const INFO = { severityNumber: SeverityNumber.INFO, severityText: 'INFO' } as const;
const WARN = { severityNumber: SeverityNumber.WARN, severityText: 'WARN' } as const;
const ERROR = { severityNumber: SeverityNumber.ERROR, severityText: 'ERROR' } as const;

export function otelLogRecordOf(
  call: CallView,
  { resource, scope, observedMs }: LogRecordEnvironment,
): ReadableLogRecord {
  return {
    hrTime: hrTimeOf(Date.parse(call.time)),
    hrTimeObserved: hrTimeOf(observedMs),
    ...severityOf(call),
    body: [`POST ${call.route}`, call.status, call.code].filter((value) => value !== null).join(' '),
    eventName: EVENT_NAME,
    resource,
    instrumentationScope: scope,
    attributes: logAttributes(call),
    droppedAttributesCount: 0,
  };
}

/**
 * A call that ended with a status 4xx is the caller's error: WARN. All other errors are ERROR, also of a call
 * that failed after its response had begun with 200, or before any status.
 */
function severityOf({ status, code }: CallView): typeof INFO | typeof WARN | typeof ERROR {
  if (code === null || code === 'client_gone') return INFO;
  return status !== null && status >= CLIENT_ERROR && status < SERVER_ERROR ? WARN : ERROR;
}

/** Leaves out null, a wait of 0, empty lists, and an `answered_model` that is the model that was named. */
function logAttributes(call: CallView): LogAttributes {
  const door = DOOR_NAMES.find((name) => DOOR_PATHS[name] === call.route);
  const { attempts, quotas } = call;
  return withoutAbsent<LogAttributes[string]>({
    'http.request.method': 'POST',
    'http.route': call.route,
    'url.path': call.route,
    'http.response.status_code': call.status,
    'error.type': call.code,
    'gen_ai.operation.name': door === undefined ? null : operationOf(door),
    'gen_ai.request.model': call.model,
    'gen_ai.request.stream': call.model === null ? null : call.stream,
    'gen_ai.usage.input_tokens': call.prompt_tokens,
    'gen_ai.usage.cache_read.input_tokens': call.cached_tokens,
    'gen_ai.usage.cache_creation.input_tokens': call.cache_write_tokens,
    'gen_ai.usage.output_tokens': call.completion_tokens,
    'gen_ai.usage.reasoning.output_tokens': call.reasoning_tokens,
    'tollgate.answered_model': call.answered_model === call.model ? null : call.answered_model,
    'tollgate.request.id': call.request_id,
    'tollgate.account.id': call.account,
    'tollgate.key.id': call.key,
    'tollgate.cost': call.cost === null ? null : Number(call.cost),
    'tollgate.usage.source': call.source,
    'tollgate.cache': call.cache,
    'tollgate.error.message': call.error,
    'tollgate.duration_ms': call.duration_ms,
    'tollgate.first_token_ms': call.first_token_ms,
    'tollgate.admitted_ms': call.admitted_ms,
    'tollgate.upstream': call.upstream,
    'tollgate.upstream.queued_ms': call.queued_ms === 0 ? null : call.queued_ms,
    'tollgate.attempts': attempts.length === 0 ? null : attempts.map((attempt) => ({ ...attempt })),
    'tollgate.quotas': quotas.length === 0 ? null : quotas.map((quota) => ({ ...quota })),
  });
}
