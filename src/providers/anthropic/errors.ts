/**
 * Translates errors of Anthropic's API, in a response or a stream, into a ProviderFailure (provider.ts).
 * anthropic.ts and vertex/vertex.ts call `readAnthropicError`; response.ts and stream.ts call `failureOf`.
 * Pure; upstream worker.
 *
 * Must hold: no message has an id of the operator's account at Anthropic (OPERATOR_IDS), because callers read
 * messages (test/unit/providers/anthropic/errors.test.ts).
 *
 * Follows platform.claude.com, page "Errors", 2026-11.
 */
import { isRecord, membersOf, parsedJson } from '../../core/json.js';
import type { HeaderLookup } from '../../http1/http-client.js';
import type { ProviderFailure } from '../provider.js';

/** Anthropic's own status, which OpenAI's API does not have. */
const OVERLOADED = 529;

/** ProviderFailure.status for each type of error: Anthropic's status, but for the last two. */
const STATUS_BY_TYPE: ReadonlyMap<unknown, number> = new Map([
  ['invalid_request_error', 400],
  ['authentication_error', 401],
  ['billing_error', 402],
  ['permission_error', 403],
  ['not_found_error', 404],
  ['request_too_large', 413],
  ['rate_limit_error', 429],
  ['api_error', 500],
  // 504 at Anthropic, and 529: OpenAI's API has neither. The latter comes inside a stream too.
  ['timeout_error', 500],
  ['overloaded_error', 503],
]);

/**
 * Messages with status 400 that concern the operator's account at Anthropic, and not the caller's request.
 * A 402 takes the place of the 400, so that another upstream is tried (upstream/error-mapping.ts).
 */
const OPERATOR_ACCOUNT = /credit balance|organization has been disabled|API usage limits|purchase credits/i;
const OPERATOR_ACCOUNT_CODES: ReadonlySet<unknown> = new Set(['organization_on_hold', 'cmek_key_disabled']);
/** Messages with status 400 about a prompt that is longer than the model reads. */
const TOO_LONG = /prompt is too long|exceeds? (?:the )?context (?:limit|window)|input is too long/i;
/** Anthropic's ids of the operator's organization, workspace, keys and users, of requests, and UUIDs. */
const OPERATOR_IDS =
  /\b(?:org|wrkspc|apikey|user|req)_[A-Za-z0-9]{6,}\b|\b[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b/gi;

/** Reads the error of a response whose status is not 2xx. `body` may be anything, also cut. Never throws. */
export function readAnthropicError(status: number, _header: HeaderLookup, body: string): ProviderFailure {
  return failureOf(membersOf(parsedJson(body)).error, statusOf(status));
}

/** `error`: the member `error` of a body or an event. `status`: used if the type of the error is unknown. */
export function failureOf(error: unknown, status: number): ProviderFailure {
  if (!isRecord(error)) return { status, message: `the provider answered with status ${status}` };
  const { type, message: text, details } = error;
  const reason = [text, type].find((value) => typeof value === 'string') ?? 'the provider gave no reason';
  const message = reason.replace(OPERATOR_IDS, '…');
  const typedStatus = STATUS_BY_TYPE.get(type) ?? status;
  if (typedStatus === 400) {
    const code = isRecord(details) ? details.error_code : undefined;
    if (OPERATOR_ACCOUNT.test(message) || OPERATOR_ACCOUNT_CODES.has(code)) return { status: 402, message };
    if (TOO_LONG.test(message)) return { status: 400, message, code: 'context_length_exceeded' };
  }
  // Anthropic's message begins so if there is no such model. Any other 404 is a wrong path of the operator.
  if (typedStatus === 404 && message.startsWith('model:'))
    return { status: 404, message, code: 'model_not_found' };
  return { status: typedStatus, message };
}

/** OpenAI's status for a status of Anthropic's whose body has no known type. */
function statusOf(status: number): number {
  if (status === OVERLOADED) return 503;
  // OpenAI's API has no 422: a wrong request is a 400.
  if (status === 422) return 400;
  return status === 503 || (status >= 400 && status < 500) ? status : 500;
}
