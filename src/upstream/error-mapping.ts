/**
 * Says what a failure of an upstream means to the caller, and whether another upstream may do better.
 * attempt.ts, chat-session.ts and the readers call it in upstream workers, gateway/probe-diagnosis.ts and
 * gateway/counter-pool.ts use its constants in the main thread. Pure.
 *
 * Must hold: no text made here contains a provider's key. No text for callers contains the upstream's
 * address: that of a failed connection is in `cause`, which operators alone read
 * (test/unit/upstream/error-mapping.test.ts, test/unit/upstream/secret-fragments.test.ts).
 */
import { OUT_OF_DESCRIPTORS, secondsText, type ErrorRecord } from '../core/errors.js';
import { UPSTREAM_MESSAGE_CHARS_MAX, UPSTREAM_RESPONSE_BYTES_MAX } from '../core/limits.js';
import type { WallMs } from '../core/units.js';
import type { FailureKind } from '../telemetry/metrics-layout.js';
import type { TimeoutCode } from '../http1/call.js';
import { isHtml } from '../http1/content-headers.js';
import type { HttpFault } from '../http1/http-client.js';
import { isRecord, membersOf, parsedJson } from '../core/json.js';
import {
  FIELD_UNSUPPORTED,
  NO_CREDENTIAL,
  REQUEST_UNWRITTEN,
  RESPONSE_INVALID,
  RESPONSE_TOO_LONG,
} from '../providers/provider.js';
import { errorIn } from './error-body.js';
import { boundedSeconds, retryAfterSeconds } from './retry-after.js';
import type { SecretFragments } from './secret-fragments.js';

/** Why an attempt failed. */
export interface AttemptFailure {
  /** The error for the caller, if the request or this process is at fault: no other upstream does better. */
  readonly callerError: ErrorRecord | undefined;
  /** The error for the caller, if no upstream's protocol can express the request. Set by each that cannot. */
  readonly unsupported: ErrorRecord | undefined;
  /** What was wrong, in words for the caller, if `callerError` is undefined. Without an address. */
  readonly reason: string;
  /** The upstream's Retry-After. */
  readonly retryAfterSeconds: number | undefined;
  /** As HttpFault.repeatable: another attempt on the same upstream most likely does no work twice. */
  readonly repeatable: boolean;
  /** The request is longer than the model can read. */
  readonly isContextTooLong: boolean;
  /** Status, or code and message of the HTTP client, for the log and `last_errors` in the status. */
  readonly cause: string;
  /** For the metrics. `credentials`: the provider rejects the operator's key or account. */
  readonly kind: FailureKind;
  /** The failure is not the upstream's, so it does not count against the breaker. */
  readonly isOurs: boolean;
  /** The settings may name a wrong address or model. */
  readonly wrongAddress: boolean;
}

/**
 * Statuses by which an upstream may reject the request; their bodies say more. 401, 402 and 403 are about the
 * operator's account, 405 and redirects about the configured address, all others about the upstream's state.
 */
const REJECTION_STATUSES: ReadonlySet<number> = new Set([400, 404, 409, 413, 422]);
const NOT_FOUND = 404;
const TOO_LARGE = 413;
const MISPLACED_STATUSES: ReadonlySet<number> = new Set([301, 302, 303, 305, 307, 308, 405, 410]);
/** For a model that an API does not know. The gateway knows it, so the settings have a wrong name for it. */
export const UNKNOWN_MODEL_CODES: ReadonlySet<unknown> = new Set([
  'model_not_found',
  'invalid_model',
  'unknown_model',
  'DeploymentNotFound',
]);
/** Codes of OpenAI, compatible servers and llama.cpp for a prompt that is too long for the model. */
const CONTEXT_LENGTH_CODES: ReadonlySet<unknown> = new Set([
  'context_length_exceeded',
  'exceed_context_size_error',
]);
/** How vLLM, SGLang and Anthropic say that a prompt is too long: they have no code. */
const CONTEXT_LENGTH_MESSAGE = /\bcontext (?:length|window|limit)\b|\b(?:prompt|input) is too long\b/i;
/** What a code that is logged looks like: a provider could put any text there. */
const CODE = /^[\w.-]{1,64}$/;
const CREDENTIAL_STATUSES: ReadonlySet<number> = new Set([401, 402, 403]);
const RETRY_AFTER_STATUSES: ReadonlySet<number> = new Set([429, 503]);

/** Control characters, line separators, and half of a surrogate pair, as the cut of a message may leave. */
const UNPRINTABLE = /[\p{Cc}\p{Cs}\u2028\u2029]+/gu;

/** What holds of a failure unless more is known: this upstream is at fault, and another may do better. */
const UNAVAILABLE = {
  callerError: undefined,
  unsupported: undefined,
  retryAfterSeconds: undefined,
  repeatable: false,
  isContextTooLong: false,
  isOurs: false,
  wrongAddress: false,
} as const;

const SET_UP_WRONGLY = 'its address or the model is set up wrongly here';
const REJECTED = 'the provider of this model refused the request; check its parameters';

/** What the code of a fault says. */
interface CodeMeaning {
  /** In words for the caller. */
  readonly reason: string;
  readonly kind: FailureKind;
  // As in AttemptFailure; left out if the upstream is at fault.
  readonly isOurs?: true;
  readonly callerError?: ErrorRecord;
}

const CLOSED: CodeMeaning = { reason: 'it closed the connection', kind: 'connection_lost' };
const FAILED: CodeMeaning = { reason: 'the connection to it failed', kind: 'connect' };
/** The process or the system has no file descriptor left. */
const NO_DESCRIPTOR: CodeMeaning = {
  ...FAILED,
  kind: 'no_connection_free',
  isOurs: true,
  callerError: OUT_OF_DESCRIPTORS,
};
/** By codes of src/http1, src/providers and Node. `codeMeaningOf` says what other codes mean. */
const MEANING_BY_CODE: Readonly<Record<string, CodeMeaning>> = {
  ECONNREFUSED: { reason: 'it refused the connection', kind: 'connect' },
  ECONNRESET: CLOSED,
  EPIPE: CLOSED,
  HTTP1_CLOSED: CLOSED,
  EMFILE: NO_DESCRIPTOR,
  ENFILE: NO_DESCRIPTOR,
  HTTP1_INVALID: { reason: 'its answer was not valid', kind: 'invalid_answer' },
  TIMEOUT_CONNECT: { reason: 'it could not be reached in time', kind: 'connect' },
  // The settings allow no more connections.
  TIMEOUT_QUEUE: { reason: 'all connections to it are in use', kind: 'no_connection_free', isOurs: true },
  TIMEOUT_FIRST_BYTE: { reason: 'it did not answer in time', kind: 'timeout' },
  TIMEOUT_IDLE: { reason: 'it stopped sending', kind: 'timeout' },
  TIMEOUT_TOTAL: { reason: 'it did not finish in time', kind: 'timeout' },
  // Not `isOurs`: only a stream that has begun gets it, which attempt.ts cuts without the breaker.
  TIMEOUT_HELD_UP: { reason: 'its answer was not read in time', kind: 'timeout' },
  [NO_CREDENTIAL]: { reason: 'its credentials could not be had', kind: 'credentials' },
  [FIELD_UNSUPPORTED]: { reason: 'it does not support what was asked for', kind: 'rejected', isOurs: true },
  [REQUEST_UNWRITTEN]: { reason: 'the request to it could not be written', kind: 'rejected', isOurs: true },
} satisfies Readonly<Record<TimeoutCode, CodeMeaning> & Record<string, CodeMeaning>>;

/** Other codes of Node: unreachable, unknown name, or untrusted certificate. */
function codeMeaningOf(code: string): CodeMeaning {
  return (
    MEANING_BY_CODE[code] ?? (code.startsWith('HTTP1_') ? { ...FAILED, kind: 'connection_lost' } : FAILED)
  );
}

export const CLIENT_GONE: ErrorRecord = {
  code: 'internal_error',
  message: 'the client left before the call had reached a provider',
};
export const CRASHED: ErrorRecord = {
  code: 'internal_error',
  message: 'the gateway failed on this call; retry it. It is not billed.',
};

const NO_BUDGET: ErrorRecord = {
  code: 'overloaded',
  message:
    'The gateway holds as many long answers for slow readers as it may. Retry after 5 seconds, or ask for a stream.',
  retryAfterSeconds: 5,
};

const TOO_LONG: ErrorRecord = {
  code: 'provider_unavailable',
  message:
    `The response is longer than the gateway takes (${UPSTREAM_RESPONSE_BYTES_MAX} bytes). ` +
    'Ask for fewer inputs. This call is not billed.',
};

/** No counter thread has translated a large body: the pool is full or late, or the task failed. */
export const NOT_TRANSLATED = 'NOT_TRANSLATED';
/** The counter pool is full. Callers get this also if a task failed, because they may try again then too. */
export const COUNTER_BUSY: ErrorRecord = {
  code: 'overloaded',
  detail: 'large_bodies',
  message: 'The gateway has as many large requests in work as it may. Retry after 5 seconds.',
  retryAfterSeconds: 5,
};

/** `rejected`: the body says what is wrong with the request; attempt.ts then calls `rejectionFailure`. */
type StatusMeaning = 'response' | 'rejected' | 'unavailable';

export function meaningOf(status: number): StatusMeaning {
  if (status >= 200 && status < 300) return 'response';
  return REJECTION_STATUSES.has(status) ? 'rejected' : 'unavailable';
}

/** For a response whose status is neither a success nor a rejection of the request. */
export function statusFailure(status: number, retryAfter: string | undefined, nowMs: WallMs): AttemptFailure {
  return {
    ...UNAVAILABLE,
    reason: reasonOf(status),
    wrongAddress: MISPLACED_STATUSES.has(status),
    retryAfterSeconds: RETRY_AFTER_STATUSES.has(status) ? retryAfterSeconds(retryAfter, nowMs) : undefined,
    cause: `status ${status}`,
    kind: statusKind(status),
  };
}

/** For a response that came not at all or not whole, or a request that the protocol cannot express. */
export function connectionFailure(fault: HttpFault): AttemptFailure {
  const { reported } = fault;
  if (reported !== undefined) return reportedFailure(reported.status, reported.retryAfterSeconds);
  if (fault.code === RESPONSE_INVALID) return invalidResponseFailure(fault.message);
  if (fault.code === RESPONSE_TOO_LONG) return tooLongFailure(fault.message);
  if (fault.code === NOT_TRANSLATED)
    return { ...budgetFailure(), callerError: COUNTER_BUSY, cause: fault.message };
  return {
    ...UNAVAILABLE,
    ...codeMeaningOf(fault.code),
    unsupported:
      fault.code === FIELD_UNSUPPORTED ? { code: 'invalid_parameters', message: fault.message } : undefined,
    repeatable: fault.repeatable,
    cause: `${fault.code}: ${fault.message}`,
  };
}

/** For an error within a response. Its message is dropped. Its Retry-After counts with any status. */
function reportedFailure(status: number, retryAfterSeconds: number | undefined): AttemptFailure {
  return {
    ...UNAVAILABLE,
    reason: reasonOf(status),
    retryAfterSeconds: retryAfterSeconds === undefined ? undefined : boundedSeconds(retryAfterSeconds),
    cause: `an error inside of its answer, as status ${status}`,
    kind: statusKind(status),
  };
}

function statusKind(status: number): FailureKind {
  if (CREDENTIAL_STATUSES.has(status)) return 'credentials';
  return status === 429 ? 'rate_limited' : 'status';
}

/** For a response that breaks the protocol. `detail`: in what way, for the log. */
export function invalidResponseFailure(detail: string): AttemptFailure {
  return {
    ...UNAVAILABLE,
    reason: 'its answer was not valid',
    kind: 'invalid_answer',
    cause: `bad answer: ${detail}`,
  };
}

/** Callers can cause it, by many choices or a long request that is repeated: not the upstream's failure. */
export function tooLongFailure(detail: string): AttemptFailure {
  return { ...invalidResponseFailure(detail), reason: 'its answer was too long', isOurs: true };
}

/** As `tooLongFailure`, if the request alone decides on the length: another upstream's would be as long. */
export function textlessTooLongFailure(detail: string): AttemptFailure {
  return { ...tooLongFailure(detail), callerError: TOO_LONG };
}

/** For a response for which the memory budget is used up: see ResponseBudget. */
export function budgetFailure(): AttemptFailure {
  return {
    ...UNAVAILABLE,
    callerError: NO_BUDGET,
    reason: 'its answer found no room',
    cause: 'no room for a whole answer',
    kind: 'no_room',
    isOurs: true,
  };
}

/** For a success that is a web page: there is no API at that address. */
export function pageFailure(): AttemptFailure {
  return { ...invalidResponseFailure('HTML, so there is no API at this address'), wrongAddress: true };
}

/**
 * For one of REJECTION_STATUSES. A rejection is the caller's mistake, and the caller gets the upstream's
 * message without the `fragments` of credentials. If the upstream does not know the path or the model, or is
 * no API, the mistake is the operator's: the gateway has accepted the caller's model.
 */
export function rejectionFailure(
  status: number,
  contentType: string | undefined,
  body: string,
  fragments: SecretFragments,
): AttemptFailure {
  const isPage = isHtml(contentType) || body.trimStart().startsWith('<');
  const error = isPage ? undefined : errorIn(parsedJson(body));
  const { code, type } = membersOf(error);
  // Mistral has the code of an unknown model in `type`.
  const isUnknownModel = UNKNOWN_MODEL_CODES.has(code) || UNKNOWN_MODEL_CODES.has(type);
  // The size is the caller's mistake, even if a proxy rejects it.
  if (status !== NOT_FOUND && !isUnknownModel && (!isPage || status === TOO_LARGE))
    return callerFailure(status, error, fragments);
  const isCode = typeof code === 'string' && CODE.test(code) && fragments.cleaned(code) === code;
  return {
    ...UNAVAILABLE,
    reason: SET_UP_WRONGLY,
    kind: 'status',
    cause: `status ${status}, ${isPage ? 'HTML' : isCode ? code : 'no error code'}`,
    // Only a 404 without an error in its body counts against the breaker. If an API says what it did not
    // find, one caller's request may be the reason, and also if a page has another status.
    isOurs: status !== NOT_FOUND || error !== undefined,
    wrongAddress: true,
  };
}

function callerFailure(status: number, error: unknown, fragments: SecretFragments): AttemptFailure {
  const callerError: ErrorRecord = { code: 'invalid_parameters', message: callerMessage(error, fragments) };
  return {
    ...UNAVAILABLE,
    callerError,
    isContextTooLong: isContextLength(error),
    kind: 'rejected',
    reason: 'it refused the request',
    cause: `status ${status}`,
  };
}

function isContextLength(error: unknown): boolean {
  if (!isRecord(error)) return false;
  const { code, type, message } = error;
  return (
    CONTEXT_LENGTH_CODES.has(code) ||
    CONTEXT_LENGTH_CODES.has(type) ||
    (typeof message === 'string' && CONTEXT_LENGTH_MESSAGE.test(message))
  );
}

/** A `provider_unavailable` error that says what to do. `seconds`: when to retry, if that is known. */
export function unavailableError(reason: string, seconds: number | undefined): ErrorRecord {
  const advice =
    seconds === undefined ? 'retry later, with increasing intervals' : `retry after ${secondsText(seconds)}`;
  const message = `the provider of this model is temporarily unavailable (${reason}); ${advice}. This call is not billed.`;
  return {
    code: 'provider_unavailable',
    message,
    ...(seconds === undefined ? {} : { retryAfterSeconds: seconds }),
  };
}

/** Failures before the upstream has done any work that its limits count. */
const KINDS_WITHOUT_WORK: ReadonlySet<FailureKind> = new Set([
  'connect',
  'no_connection_free',
  'rate_limited',
  'credentials',
  'status',
  'rejected',
]);

/** Tokens that a failed attempt used. Undefined: not known, so all that the attempt may have used count. */
export function tokensUsedBy({ kind, repeatable }: AttemptFailure, sent: boolean): 0 | undefined {
  return !sent || repeatable || KINDS_WITHOUT_WORK.has(kind) ? 0 : undefined;
}

function reasonOf(status: number): string {
  if (status === 429) return 'it is rate-limited';
  return MISPLACED_STATUSES.has(status) ? SET_UP_WRONGLY : 'it answered with an error';
}

function callerMessage(error: unknown, fragments: SecretFragments): string {
  const original = isRecord(error) ? error.message : error;
  if (typeof original !== 'string') return REJECTED;
  // Cut first, because cleaning takes long. Of a key that is cut, 8 characters are enough to be found. Cut
  // again, because cleaning may lengthen the text.
  const cleaned = fragments.cleaned(original.trim().slice(0, UPSTREAM_MESSAGE_CHARS_MAX));
  const message = cleaned?.slice(0, UPSTREAM_MESSAGE_CHARS_MAX).replace(UNPRINTABLE, ' ').trim();
  return message === undefined || message === '' ? REJECTED : message;
}
