/**
 * The record of an ended call, with account and key by id, model and upstream by name:
 *
 *     EndedCall   all by number (call-ring-layout.ts); gateway/call-lines.ts makes the CallRecord of it
 *     CallRecord  for the access log and the call log; call-log/call-block.ts reads it from the call log
 *     CallView    the JSON of a CallRecord, parsed, for exports; admin/call-routes.ts adds names to it
 *
 * The _call log_ has these records, on disk. The _access log_ has lines with some of their members
 * (gateway/call-lines.ts), and the _usage log_ has charges, from the journal (gateway/usage-log.ts). The JSON
 * of `callJson`:
 *
 *     {"time":"2025-01-31T12:00:00.000Z","request_id":"req_3fQx0aZcW8Lk-1c",
 *      "route":"/v1/chat/completions","account":"acct_…","key":"key_…","model":"gpt-4o-mini",
 *      "answered_model":"gpt-4o-mini","upstream":"api.openai.com","stream":true,"cache":null,"status":200,
 *      "code":null,"prompt_tokens":9,"cached_tokens":0,"cache_write_tokens":0,"cache_write_1h_tokens":0,
 *      "completion_tokens":12,"reasoning_tokens":0,"source":"reported","cost":"0.00000855",
 *      "first_token_ms":310.4,"duration_ms":640.2,"queued_ms":0,"admitted_ms":0.3,"error":null,
 *      "attempts":[{"upstream":"api.openai.com","model":"gpt-4o-mini","status":200,"code":null,
 *        "start_ms":0.4,"duration_ms":639.6,"error":null}],
 *      "quotas":[{"scope":"account","id":"acct_…","quota":"requests_per_minute","left":59}]}
 *
 * `time` is when the call ended; it arrived `duration_ms` before. `first_token_ms`, `admitted_ms` and
 * `start_ms` count milliseconds from its arrival. A member is null if its value is unknown (account and key
 * of an invalid key, a model on no plan) or if there was none (tokens and cost of a replay or of a call that
 * was not charged, `admitted_ms` of a rejected call). If the caller left before the response began, `status`
 * is null and `code` is `client_gone`. `upstream` is the last one that was tried. `queued_ms` is how long the
 * call waited for its upstreams' limits. `cache` is `hit`, `miss`, or null if the response cache was not
 * asked. `error` is the message that the caller received, without keys that were in it. `quotas` has what was
 * left of each quota after admission.
 *
 * The text is made by templates, because a gateway writes it for each call: the members of the access log
 * take 1.0 µs, and 2.9 µs with JSON.stringify. Main threads and the processes of commands call this file;
 * the thread that exports spans uses only the type `CallView`.
 *
 * Must hold: no member is renamed or removed, because logs, exports and the admin interface show them; the
 * text is one line of ASCII (test/unit/telemetry/call-record.test.ts).
 */
import { jsonText } from '../core/json.js';
import { decimalOf, PICO_PER_NANO } from '../core/money.js';
import type { QuotaName, QuotaScope } from '../core/quotas.js';
import type { TokenCounts } from '../core/token-counts.js';
import type { PicoUnits, WallMs } from '../core/units.js';

/** How many attempts a record has at most. The record of a call with more has the first ones and the last. */
export const CALL_ATTEMPTS_MAX = 8;
/** How many characters of the error message are kept. */
export const CALL_ERROR_CHARS_MAX = 300;

const MS_PER_SECOND = 1_000;
/** The text in place of `chargeText` for a call that was not charged. */
const NO_CHARGE =
  '"prompt_tokens":null,"cached_tokens":null,"cache_write_tokens":null,"cache_write_1h_tokens":null,' +
  '"completion_tokens":null,"reasoning_tokens":null,"source":null,"cost":null';

export interface CallRecord {
  /** What ids of the listener's run begin with, such as `req_3fQx0aZcW8Lk-`. */
  readonly requestPrefix: string;
  /** The listener's count. The request's id is the prefix and this number in base 36. */
  readonly request: number;
  readonly endedMs: WallMs;
  /** One of DOOR_PATHS (core/door-names.ts). */
  readonly route: string;
  readonly account: string | null;
  readonly key: string | null;
  /** The model that the caller named. Here and in the next four members null is as in the JSON. */
  readonly model: string | null;
  readonly upstream: string | null;
  readonly stream: boolean;
  readonly cache: 'hit' | 'miss' | null;
  readonly status: number | null;
  /** The outcome; null if it is `ok`. */
  readonly code: string | null;
  /** Undefined if the call was not charged. */
  readonly usage: CallCharge | undefined;
  readonly firstTokenMs: number | undefined;
  readonly durationMs: number;
  /** Whole milliseconds. */
  readonly queuedMs: number;
  readonly admittedMs: number | undefined;
  /** The message that the caller received. */
  readonly error: string | null;
  readonly attempts: readonly CallAttempt[];
  readonly quotas: readonly QuotaLeft[];
}

interface CallCharge extends TokenCounts {
  /** The model that answered, whose price was charged. */
  readonly answeredModel: string;
  /**
   * One of USAGE_SOURCES (core/token-counts.ts). Text, because the call log may be of another version that
   * has other sources. `route` is text for the same reason.
   */
  readonly source: string;
  readonly charged: PicoUnits;
}

/** One try of a call on one upstream. */
export interface CallAttempt {
  readonly upstream: string | null;
  readonly model: string | null;
  /** The upstream's HTTP status; null if it sent none. */
  readonly status: number | null;
  /** The kind of failure, as in the metrics; null if the attempt did not fail. */
  readonly code: string | null;
  /** Milliseconds from the arrival of the call. */
  readonly startMs: number;
  readonly durationMs: number;
  /** The cause, for operators; null if the attempt did not fail or has no text. */
  readonly error: string | null;
}

export interface QuotaLeft {
  readonly scope: QuotaScope;
  /** The id of the account or key, or the name of the group or model, that has the quota; null if unknown. */
  readonly id: string | null;
  readonly quota: QuotaName | 'balance';
  /** A bigint is an amount of money in pico-units, a number counts requests, calls or tokens. */
  readonly left: number | bigint;
}

/**
 * Returns a float of pico-units (QuotasLeft.balance) as an integer. Above 2^53 the float is not exact, so the
 * part below a nano-unit is dropped. gateway/call-lines.ts calls `picoUnitsOfFloat`.
 * call-log/block-builder.ts writes the same integer, and calls `picoUnitsOfFloat` only for negative amounts.
 */
export function picoUnitsOfFloat(amount: number): bigint {
  if (Number.isSafeInteger(amount)) return BigInt(amount);
  return BigInt(Math.floor(amount / 1_000)) * PICO_PER_NANO;
}

/** Gets ended calls from gateway/gateway-logs.ts, plain ones only if calls are exported. Main thread. */
export interface CallSink {
  append(call: CallRecord): void;
}

type SameInView =
  | 'route'
  | 'account'
  | 'key'
  | 'model'
  | 'upstream'
  | 'stream'
  | 'cache'
  | 'status'
  | 'code'
  | 'error';

export interface CallView extends Pick<CallRecord, SameInView> {
  readonly time: string;
  readonly request_id: string;
  readonly answered_model: string | null;
  readonly prompt_tokens: number | null;
  readonly cached_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly cache_write_1h_tokens: number | null;
  readonly completion_tokens: number | null;
  readonly reasoning_tokens: number | null;
  readonly source: string | null;
  readonly cost: string | null;
  readonly first_token_ms: number | null;
  readonly duration_ms: number;
  readonly queued_ms: number;
  readonly admitted_ms: number | null;
  readonly attempts: readonly AttemptView[];
  readonly quotas: readonly QuotaView[];
}

interface AttemptView extends Omit<CallAttempt, 'startMs' | 'durationMs'> {
  readonly start_ms: number;
  readonly duration_ms: number;
}

interface QuotaView extends Omit<QuotaLeft, 'left'> {
  /** A decimal text is an amount of money in units of the currency. */
  readonly left: number | string;
}

/** Returns an id such as `req_3fQx0aZcW8Lk-1c`. `request` is the listener's count. */
export function requestIdOf(prefix: string, request: number): string {
  return prefix + request.toString(36);
}

/** Returns the JSON of a call, in ASCII and without a newline. */
export function callJson(call: CallRecord): string {
  const { admittedMs, error, attempts, quotas } = call;
  return (
    `{"time":"${timeText(call.endedMs)}",${callMembers(call)},"admitted_ms":${msOrNull(admittedMs)},` +
    `"error":${error === null ? 'null' : jsonText(error)},` +
    `"attempts":[${attempts.map(attemptJson).join()}],"quotas":[${quotas.map(quotaJson).join()}]}`
  );
}

export function callView(call: CallRecord): CallView {
  return JSON.parse(callJson(call)) as CallView;
}

/** Returns the members of `callJson` from `request_id` to `queued_ms`, which the access log has too. */
export function callMembers(call: CallRecord): string {
  const { usage, code } = call;
  // A request id, a path of DOOR_PATHS, numbers and booleans need no escapes.
  return (
    `"request_id":"${requestIdOf(call.requestPrefix, call.request)}","route":"${call.route}",` +
    `"account":${quotedAsIs(call.account)},"key":${quotedAsIs(call.key)},` +
    `"model":${jsonName(call.model)},"answered_model":${jsonName(usage?.answeredModel ?? null)},` +
    `"upstream":${jsonName(call.upstream)},` +
    `"stream":${call.stream},"cache":${quotedAsIs(call.cache)},"status":${call.status},"code":${quotedAsIs(code)},` +
    `${usage === undefined ? NO_CHARGE : chargeText(usage, usage.source, usage.charged)},` +
    `"first_token_ms":${msOrNull(call.firstTokenMs)},` +
    `"duration_ms":${roundedMs(call.durationMs)},"queued_ms":${call.queuedMs}`
  );
}

function attemptJson({ upstream, model, status, code, startMs, durationMs, error }: CallAttempt): string {
  return (
    `{"upstream":${jsonName(upstream)},"model":${jsonName(model)},"status":${status},"code":${quotedAsIs(code)},` +
    `"start_ms":${roundedMs(startMs)},"duration_ms":${roundedMs(durationMs)},` +
    `"error":${error === null ? 'null' : jsonText(error)}}`
  );
}

function quotaJson({ scope, id, quota, left }: QuotaLeft): string {
  const amount = typeof left === 'bigint' ? `"${decimalOf(left)}"` : left;
  // Ids of accounts and keys need no escapes; the names of models and groups may.
  const idJson = scope === 'model' || scope === 'group' ? jsonName(id) : quotedAsIs(id);
  return `{"scope":"${scope}","id":${idJson},"quota":"${quota}","left":${amount}}`;
}

/** Returns the members for a call's tokens and charge, with the same names as in NO_CHARGE. */
export function chargeText(tokens: TokenCounts, source: string | null, charged: bigint): string {
  return (
    `"prompt_tokens":${tokens.promptTokens},"cached_tokens":${tokens.cachedTokens},` +
    `"cache_write_tokens":${tokens.cacheWriteTokens},"cache_write_1h_tokens":${tokens.cacheWrite1hTokens},` +
    `"completion_tokens":${tokens.completionTokens},"reasoning_tokens":${tokens.reasoningTokens},` +
    `"source":${quotedAsIs(source)},"cost":"${decimalOf(charged)}"`
  );
}

let cachedSecond = NaN;
let cachedSecondText = '';

/**
 * Returns the text that Date.toISOString returns. `toISOString` takes as long as all other members of a line,
 * so only the first call of each second uses it, and its text up to the milliseconds is cached.
 */
export function timeText(ms: number): string {
  const second = Math.floor(ms / MS_PER_SECOND);
  if (second !== cachedSecond) {
    cachedSecond = second;
    cachedSecondText = new Date(second * MS_PER_SECOND).toISOString().slice(0, -'000Z'.length);
  }
  return `${cachedSecondText}${String(Math.floor(ms - second * MS_PER_SECOND)).padStart(3, '0')}Z`;
}

function msOrNull(ms: number | undefined): string {
  return ms === undefined ? 'null' : String(roundedMs(ms));
}

/** Rounds to microseconds: the clocks of two threads differ by that much. */
function roundedMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

/** How many names are cached: more than the settings and the records of some days have. */
const JSON_NAMES_MAX = 20_000;
const jsonNames = new Map<string, string>();

/** Returns the JSON text of a name of a model, an upstream or a group. Texts are cached: names are few. */
function jsonName(name: string | null): string {
  if (name === null) return 'null';
  let text = jsonNames.get(name);
  if (text === undefined) {
    text = jsonText(name);
    if (jsonNames.size >= JSON_NAMES_MAX) jsonNames.clear();
    jsonNames.set(name, text);
  }
  return text;
}

/** Returns JSON text without escaping. For ids that the registry creates and for constants such as codes. */
export function quotedAsIs(text: string | null): string {
  return text === null ? 'null' : `"${text}"`;
}
