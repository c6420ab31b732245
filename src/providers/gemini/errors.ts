/**
 * Translates errors of Google's APIs, a `google.rpc.Status` in a response or a stream, into a
 * ProviderFailure. gemini.ts and vertex/vertex.ts call `readError`; response.ts and stream.ts call
 * `throwIfError`. Pure; upstream worker.
 *
 * Follows https://cloud.google.com/apis/design/errors and ai.google.dev/gemini-api/docs/troubleshooting, read
 * 2026-11:
 *
 *     {"error":{"code":429,"message":"…","status":"RESOURCE_EXHAUSTED","details":[
 *       {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.4s"}]}}
 *
 * The HTTP status alone is not enough: Google responds with 400 also for a wrong API key, and for a country
 * or an account that it does not serve. The operator must mend such faults, not the caller.
 *
 * Must hold: no message names a project or account of the operator (`withoutOperatorNames`), because callers
 * read messages (test/unit/providers/gemini/errors.test.ts).
 */
import { isRecord, type Members, parsedJson } from '../../core/json.js';
import type { HeaderLookup } from '../../http1/http-client.js';
import { ProviderError, type ProviderFailure } from '../provider.js';

// Messages of a 400 about the operator's key, the operator's account, and a prompt that is too long.
const WRONG_KEY = /API[_ ]key[ _](?:not[ _]valid|expired|invalid|not[ _]found)/i;
const OPERATORS_ACCOUNT =
  /user location is not supported|enable billing|billing account|has not been used in project/i;
const TOO_LONG =
  /token count\b.{0,200}\b(?:exceeds|only supports)|exceeds the maximum .{0,200}token|input context is too long/i;

const OPERATOR_NAMES: readonly [pattern: RegExp, replacement: string][] = [
  [/\b(projects|tenants|organizations|folders|billingAccounts)\/[^\s/'"`,;)]+/g, '$1/…'],
  [/([?&]project=)[^\s&'"`]+/g, '$1…'],
  [/\b(resource project) [\w:-]+/gi, '$1 …'],
  [/\b(project(?:[_ ](?:number|id))?)[:= ]+['"`]?(?=[\w-]*\d)[\w:-]+['"`]?/gi, '$1 …'],
  // Because of the lookbehind a long run of such characters is tried once, not from each character on.
  [/(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.gserviceaccount\.com/g, '…'],
];

/** Reads the error of a response whose status is not 2xx. `body` may be anything, also cut. Never throws. */
export function readError(status: number, _header: HeaderLookup, body: string): ProviderFailure {
  const parsed = parsedJson(body);
  return failureOf(errorIn(Array.isArray(parsed) ? (parsed as unknown[])[0] : parsed), status);
}

/** Throws a ProviderError if a response, or an event, whose status was a success is an error. */
export function throwIfError(response: Members): void {
  if (response.error === undefined) return;
  const error = errorIn(response);
  throw new ProviderError(failureOf(error, typeof error?.code === 'number' ? error.code : 500));
}

function errorIn(body: unknown): Members | undefined {
  return isRecord(body) && isRecord(body.error) ? body.error : undefined;
}

/** `status`: Google's, of the response or in the error's `code`. */
function failureOf(error: Members | undefined, status: number): ProviderFailure {
  const text = typeof error?.message === 'string' ? error.message : '';
  const message = text === '' ? 'the provider gave no reason' : withoutOperatorNames(text);
  const details = Array.isArray(error?.details) ? (error.details as unknown[]) : [];
  return {
    status: statusOf(status, error?.status, text, details),
    message,
    code: codeOf(status, text),
    retryAfterSeconds: retryDelayIn(details),
  };
}

/**
 * The status as ProviderFailure (provider.ts) lists it. `status`: Google's. `statusName`: the error's member
 * `status`, such as RESOURCE_EXHAUSTED.
 */
function statusOf(status: number, statusName: unknown, text: string, details: readonly unknown[]): number {
  switch (status) {
    case 400: {
      if (
        WRONG_KEY.test(text) ||
        details.some((detail) => isRecord(detail) && detail.reason === 'API_KEY_INVALID')
      )
        return 401;
      // Any other `FAILED_PRECONDITION` is the caller's, such as cached content that is gone.
      return OPERATORS_ACCOUNT.test(text) ? 403 : statusName === 'RESOURCE_EXHAUSTED' ? 429 : 400;
    }
    case 401:
    case 403:
    case 404:
    case 413:
    case 429:
    case 503:
      return status;
    case 402:
      return 403;
    default:
      return 500;
  }
}

function codeOf(status: number, text: string): string | undefined {
  if (status === 404) return 'model_not_found';
  return status === 400 && TOO_LONG.test(text) ? 'context_length_exceeded' : undefined;
}

/** The delay of a `google.rpc.RetryInfo` (`34.4s`) in whole seconds, rounded up; undefined without one. */
function retryDelayIn(details: readonly unknown[]): number | undefined {
  for (const detail of details) {
    const delay = isRecord(detail) ? detail.retryDelay : undefined;
    const seconds = typeof delay === 'string' && delay.endsWith('s') ? Number(delay.slice(0, -1)) : 0;
    if (seconds > 0) return Math.ceil(seconds);
  }
  return undefined;
}

/** The message without names of projects, accounts and service accounts. vertex/vertex.ts calls this too. */
export function withoutOperatorNames(message: string): string {
  let text = message;
  for (const [pattern, replacement] of OPERATOR_NAMES) text = text.replace(pattern, replacement);
  return text;
}
