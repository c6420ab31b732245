/**
 * Converts an ended call (CallView) to a log record as the OpenTelemetry SDK exports it. Attributes have the
 * names of OpenTelemetry's GenAI and HTTP conventions, and `tollgate.*` for what the conventions lack. A
 * value that the span has too has the same name there (otel-span.ts). span-export.thread.ts calls it, on its
 * own thread.
 *
 * Must hold:
 * - No contents of a call and no key is in a log record (test/e2e/log-records.test.ts).
 * - Names of attributes stay, because operators' queries use them.
 */
import { SeverityNumber } from '@opentelemetry/api-logs';
import type { Resource } from '@opentelemetry/resources';
import type { ReadableLogRecord } from '@opentelemetry/sdk-logs';
import { DOOR_NAMES, DOOR_PATHS } from '../core/door-names.js';
import type { CallView } from './call-record.js';
import { CLIENT_ERROR, hrTimeOf, operationOf, SERVER_ERROR, withoutAbsent } from './otel-span.js';

type LogAttributes = ReadableLogRecord['attributes'];

const EVENT_NAME = 'tollgate.call';
const INFO = { severityNumber: SeverityNumber.INFO, severityText: 'INFO' } as const;
const WARN = { severityNumber: SeverityNumber.WARN, severityText: 'WARN' } as const;
const ERROR = { severityNumber: SeverityNumber.ERROR, severityText: 'ERROR' } as const;

export interface LogRecordEnvironment {
  /** Names the gateway: its version, and what OTEL_RESOURCE_ATTRIBUTES adds. */
  readonly resource: Resource;
  /** The instrumentation scope. One object for all log records, because the SDK groups them by it. */
  readonly scope: { readonly name: string; readonly version: string };
  /** When the exporting thread got the call, in Unix milliseconds. */
  readonly observedMs: number;
}

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
    attributes: attributesOf(call),
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
function attributesOf(call: CallView): LogAttributes {
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
