/**
 * The text of the two logs of calls, each a line of JSON for a call. gateway-logs.ts calls this, on the main
 * thread of a gateway process.
 *
 * Access log, for every call that ended, rejected ones included:
 *
 *     {"level":"info","time":"2025-01-31T12:00:00.000Z","thread":"listener-0","pid":7,
 *      "request_id":"req_3fQx0aZcW8Lk-1c","route":"/v1/chat/completions","account":"acct_…",
 *      "key":"key_…","model":"gpt-4o-mini","answered_model":"gpt-4o-mini",
 *      "upstream":"api.openai.com","stream":true,"cache":null,"status":200,"code":null,"prompt_tokens":9,
 *      "cached_tokens":0,"cache_write_tokens":0,"cache_write_1h_tokens":0,"completion_tokens":12,
 *      "reasoning_tokens":0,"source":"reported","cost":"0.00000855",
 *      "first_token_ms":310.4,"duration_ms":640.2,"queued_ms":0,"message":"call"}
 *
 * Usage log, for every record of the journal:
 *
 *     {"time":"2025-01-31T12:00:00.000Z","request_id":"req_3fQx0aZcW8Lk-1c","account":"acct_…",
 *      "key":"key_…","model":"gpt-4o-mini","outcome":"served","prompt_tokens":9,"cached_tokens":0,
 *      "cache_write_tokens":0,"cache_write_1h_tokens":0,"completion_tokens":12,"reasoning_tokens":0,
 *      "source":"reported","cost":"0.00000855","uncovered":"0.00","duration_ms":640}
 *
 * In both, `time` is when the call ended. In the access log a field is null if it is unknown (account and key
 * of an invalid key, a model on no plan) or if there was none (tokens and cost of a replay or of a call that
 * was not charged; `status` if the caller left before its response began, and `code` is then `client_gone`).
 * `upstream` is the one that was tried last, `queued_ms` the time of waiting for room in the limits of
 * upstreams, `cache` is `hit`, `miss`, or null if the response cache was not asked. In the usage log
 * `outcome` is `served`, an error code, `reversed` (the line takes back the charge of an earlier line of the
 * same request) or `collected` (it charges what an earlier line left uncovered); `source` is null if nothing
 * was served.
 *
 * Lines are put together by templates: that takes a third of JSON.stringify's time (measured: 1.0 and 2.9
 * µs).
 */
import { DOOR_NAMES, DOOR_PATHS, statusByDoor } from '../core/door-names.js';
import { jsonText } from '../core/json.js';
import { decimalOf } from '../core/money.js';
import type { JournalOutcome, JournalRecord } from '../ledger/journal-layout.js';
import type { TokenCounts } from '../core/token-counts.js';
import { USAGE_SOURCES } from '../protocol/usage.js';
import type { UsageKey } from '../registry/usage-report.js';
import type { AccessRecord } from '../telemetry/access-ring.js';
import type { IdNames } from './id-names.js';

const MS_PER_SECOND = 1_000;
const SERVED_OUTCOMES: readonly JournalOutcome[] = ['served', 'reversed', 'collected'];
const NO_CHARGE =
  '"prompt_tokens":null,"cached_tokens":null,"cache_write_tokens":null,"cache_write_1h_tokens":null,' +
  '"completion_tokens":null,"reasoning_tokens":null,"source":null,"cost":null';

export interface CallNames {
  readonly ids: Pick<IdNames, 'accountIdOf' | 'keyIdOf'>;
  /** Returns the id of the request with that number in the listener of that index. */
  readonly requestIdOf: (listener: number, request: number) => string;
  readonly modelIdOf: (modelIndex: number) => string;
}

export interface AccessNames extends CallNames {
  readonly upstreamNameOf: (upstreamSlot: number) => string | undefined;
}

/** Returns the access log's line of a call of the listener of that index, in ASCII and without a newline. */
export function accessLine(names: AccessNames, listener: number, record: AccessRecord): string {
  const { account, key, model, upstream, outcome, usage, firstTokenMs } = record;
  const { ids } = names;
  const charge =
    usage === undefined ? NO_CHARGE : chargeText(usage, USAGE_SOURCES[usage.source]!, usage.charged);
  return (
    `{"level":"info","time":"${timeText(record.endedMs)}",` +
    `"thread":"listener-${listener}","pid":${process.pid},` +
    `"request_id":"${names.requestIdOf(listener, record.request)}",` +
    `"route":"${DOOR_PATHS[DOOR_NAMES[record.door]!]}",` +
    `"account":${quoted(account === undefined ? null : ids.accountIdOf(account))},` +
    `"key":${quoted(key === undefined ? null : ids.keyIdOf(key))},` +
    `"model":${model === undefined ? 'null' : jsonName(names.modelIdOf(model))},` +
    `"answered_model":${usage === undefined ? 'null' : jsonName(names.modelIdOf(usage.answered))},` +
    `"upstream":${upstream === undefined ? 'null' : jsonName(names.upstreamNameOf(upstream))},` +
    `"stream":${record.stream},"cache":${quoted(record.cache ?? null)},"status":${httpStatusOf(record)},` +
    `"code":${outcome === 'ok' ? 'null' : `"${outcome}"`},${charge},` +
    `"first_token_ms":${firstTokenMs === undefined ? 'null' : roundedMs(firstTokenMs)},` +
    `"duration_ms":${roundedMs(record.durationMs)},"queued_ms":${record.queuedMs},"message":"call"}`
  );
}

/**
 * Returns the usage log's line of a record of the journal of that index, without a newline; `row` is the
 * usage row in which the call was counted.
 */
export function usageLine(
  names: CallNames,
  journal: number,
  record: JournalRecord,
  row: Pick<UsageKey, 'keyId' | 'modelId'>,
): string {
  const answered = JSON.stringify(row.modelId);
  const model =
    record.requested === record.model ? answered : JSON.stringify(names.modelIdOf(record.requested));
  const source = SERVED_OUTCOMES.includes(record.outcome) ? USAGE_SOURCES[record.source]! : null;
  return (
    `{"time":"${timeText(record.endedMs)}","request_id":"${names.requestIdOf(journal, record.request)}",` +
    `"account":${quoted(names.ids.accountIdOf(record.account))},"key":${quoted(row.keyId)},` +
    `"model":${model},"answered_model":${source === null ? 'null' : answered},"outcome":"${record.outcome}",` +
    `${chargeText(record, source, record.charged)},` +
    `"uncovered":"${decimalOf(record.uncovered)}","duration_ms":${record.durationMs}}`
  );
}

function chargeText(tokens: TokenCounts, source: string | null, charged: bigint): string {
  return (
    `"prompt_tokens":${tokens.promptTokens},"cached_tokens":${tokens.cachedTokens},` +
    `"cache_write_tokens":${tokens.cacheWriteTokens},"cache_write_1h_tokens":${tokens.cacheWrite1hTokens},` +
    `"completion_tokens":${tokens.completionTokens},"reasoning_tokens":${tokens.reasoningTokens},` +
    `"source":${quoted(source)},"cost":"${decimalOf(charged)}"`
  );
}

let second = NaN;
let secondText = '';

/** Formats as Date.toISOString does, but asks it once a second: it takes as long as all else in a line. */
function timeText(ms: number): string {
  const now = Math.floor(ms / MS_PER_SECOND);
  if (now !== second) {
    second = now;
    secondText = new Date(now * MS_PER_SECOND).toISOString().slice(0, -'000Z'.length);
  }
  return `${secondText}${String(Math.floor(ms - now * MS_PER_SECOND)).padStart(3, '0')}Z`;
}

/** Rounds to a thousandth, the resolution between the clocks of two threads. */
function roundedMs(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

const jsonNames = new Map<string, string>();

/**
 * Returns the JSON text of a name of a model or an upstream. Texts are cached: the settings have few names.
 */
function jsonName(name: string | undefined): string {
  if (name === undefined) return 'null';
  let text = jsonNames.get(name);
  if (text === undefined) {
    text = jsonText(name);
    jsonNames.set(name, text);
  }
  return text;
}

/** Ids that the registry creates need no escapes. */
function quoted(text: string | null): string {
  return text === null ? 'null' : `"${text}"`;
}

function httpStatusOf({ outcome, begun, door }: AccessRecord): number | null {
  if (begun || outcome === 'ok') return 200;
  return outcome === 'client_gone' ? null : statusByDoor(DOOR_NAMES[door]!, outcome);
}
