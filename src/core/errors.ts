/**
 * The catalogue of all errors that a caller can get, with their HTTP status and type. Nearly every folder
 * uses it, on any thread.
 *
 * Threads send an error to each other as an `ErrorRecord`, because structured clone drops the `code` of an
 * Error. Match on `code`, never on class or message.
 *
 * Must hold: codes, statuses and types stay, because clients match on them. A new code or detail needs its
 * text in error-meanings.ts, which does not compile without. The order of both lists may change from build to
 * build, because only shared memory has positions in them. The disk has the names, so the names stay.
 */
import { jsonText } from './json.js';

interface ErrorKind {
  /** The HTTP status at most doors; see `statusOf`. */
  readonly status: number;
  readonly type: string;
}

export const ERROR_KINDS = {
  missing_api_key: { status: 401, type: 'authentication_error' },
  invalid_api_key: { status: 401, type: 'authentication_error' },
  key_disabled: { status: 403, type: 'permission_error' },
  insufficient_quota: { status: 403, type: 'permission_error' },
  rate_limit_exceeded: { status: 429, type: 'rate_limit_error' },
  daily_limit_exceeded: { status: 429, type: 'rate_limit_error' },
  budget_exceeded: { status: 429, type: 'rate_limit_error' },
  model_not_found: { status: 400, type: 'invalid_request_error' },
  invalid_parameters: { status: 400, type: 'invalid_request_error' },
  not_found: { status: 404, type: 'invalid_request_error' },
  request_in_progress: { status: 409, type: 'invalid_request_error' },
  conflict: { status: 409, type: 'invalid_request_error' },
  method_not_allowed: { status: 405, type: 'invalid_request_error' },
  request_timeout: { status: 408, type: 'invalid_request_error' },
  request_too_large: { status: 413, type: 'invalid_request_error' },
  unsupported_media_type: { status: 415, type: 'invalid_request_error' },
  internal_error: { status: 500, type: 'server_error' },
  provider_unavailable: { status: 502, type: 'provider_error' },
  overloaded: { status: 503, type: 'server_error' },
  insufficient_role: { status: 403, type: 'permission_error' },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERROR_KINDS;
export const ERROR_CODES = Object.keys(ERROR_KINDS) as ErrorCode[];

/** Which bound rejected a call, if the code does not say so. Only the metrics show the detail. */
export const REJECTION_DETAILS = [
  'account_disabled',
  'calls_in_flight',
  'account_calls_in_flight',
  'key_calls_in_flight',
  'group_calls_in_flight',
  'quota_scopes',
  'tokens_per_minute',
  'tokens_per_day',
  'calls_per_month',
  'tokens_per_month',
  'spend_per_day',
  'spend_per_month',
  'beyond_quota',
  'books_behind',
  'books_closed',
  'authority_lost',
  'lease_late',
  'no_worker',
  'large_bodies',
  'bodies_in_work',
  'account_bodies_in_work',
  'file_descriptors',
] as const;
export type RejectionDetail = (typeof REJECTION_DETAILS)[number];

/** Who caused the failure. `downstream`: who sent the request. `upstream`: the provider. */
type ErrorSource = 'downstream' | 'gateway' | 'upstream';

/** An error as it goes from thread to thread and into a response. */
export interface ErrorRecord {
  readonly code: ErrorCode;
  readonly message: string;
  /** Seconds that the caller should wait, sent as `Retry-After`; undefined if waiting does not help. */
  readonly retryAfterSeconds?: number;
  /** The HTTP status, if it is not that of ERROR_KINDS: an unknown model in a path is a 404. */
  readonly status?: number;
  /** For the metrics alone; undefined if the code says which bound it was. */
  readonly detail?: RejectionDetail;
}

/** What a caller gets while the system gives the process no more file descriptors. */
export const OUT_OF_DESCRIPTORS: ErrorRecord = {
  code: 'overloaded',
  detail: 'file_descriptors',
  message: 'The gateway has as many connections open as its system allows. Retry after 1 second.',
  retryAfterSeconds: 1,
};

/** An expected failure. Everything else that is thrown is a bug, and the caller gets `internal_error`. */
export class ProxyError extends Error {
  readonly code: ErrorCode;
  readonly source: ErrorSource;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, source: ErrorSource, message: string, retryAfterSeconds?: number) {
    super(message);
    this.name = 'ProxyError';
    this.code = code;
    this.source = source;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The message of what was thrown, which need not be an Error. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Throws a ProxyError if `clientLeft` is aborted. Work of an admin request calls it between its steps. */
export function throwIfLeft(clientLeft: AbortSignal | undefined): void {
  if (clientLeft?.aborted === true) {
    throw new ProxyError('internal_error', 'downstream', 'The client has left.');
  }
}

/** Returns `1 second` or `2 seconds`, as messages say when to try again. */
export const secondsText = (seconds: number): string => `${seconds} second${seconds === 1 ? '' : 's'}`;

/** The HTTP status of the error. At some doors it is another: `statusByDoor` in door-names.ts. */
export function statusOf(record: ErrorRecord): number {
  return record.status ?? ERROR_KINDS[record.code].status;
}

/** The body of an error response, as JSON text. Strings are joined, in half the time that an object takes. */
export function errorBody({ code, message }: ErrorRecord): string {
  return `{"error":{"message":${jsonText(message)},"type":"${ERROR_KINDS[code].type}","code":"${code}"}}`;
}

/** Throws an Error if `condition` is false, which is a bug. An error that no code catches ends the thread. */
export function invariant(condition: boolean, expectation: string): asserts condition {
  if (!condition) throw new Error(`invariant broken: ${expectation}`);
}
