/**
 * Makes lines of the access log and of the usage log, and the CallRecord of an ended call, with names in
 * place of slots; and appends the lines of the usage log. gateway-logs.ts calls the functions,
 * accounting-base.ts makes the UsageLog, store/flush.ts fills it. Main thread of a gateway process.
 *
 * The access log has a line for every call that ended, also for rejected ones: the members that
 * telemetry/call-record.ts describes, from `request_id` to `queued_ms`, after
 *
 *     {"level":"info","time":"2025-01-31T12:00:00.000Z","thread":"listener-0","pid":7,
 *
 * and before `"message":"call"}`.
 *
 * The usage log has a line for every record of the journal:
 *
 *     {"time":"2025-01-31T12:00:00.000Z","request_id":"req_3fQx0aZcW8Lk-1c","account":"acct_…",
 *      "key":"key_…","model":"gpt-4o-mini","answered_model":"gpt-4o-mini","outcome":"served",
 *      "prompt_tokens":9,"cached_tokens":0,"cache_write_tokens":0,"cache_write_1h_tokens":0,
 *      "completion_tokens":12,"reasoning_tokens":0,"source":"reported","cost":"0.00000855",
 *      "uncovered":"0.00","duration_ms":640}
 *
 * In both logs `time` is when the call ended. In the usage log `outcome` is `served`, an error code,
 * `reversed` (the line takes back the charge of an earlier line of the request) or `collected` (the line
 * charges what an earlier line left uncovered). `source` is null if `outcome` is an error code.
 *
 * Must hold: a line is JSON whatever names and numbers it has, and shows the values with which the call was
 * settled. No record has a caller's key or an operator's token, because logs, exports and the console show
 * records. People parse these lines, so a member keeps its name. Lines of the usage log wait for the end of
 * the flush that counts their records, unless there are more than USAGE_LINES_WAITING_MAX. Further test:
 * test/unit/gateway/gateway-logs.test.ts.
 */
import { SecretMask } from '../call-log/secret-mask.js';
import type { Settings } from '../config/schema.js';
import { DOOR_NAMES, DOOR_PATHS, statusByDoor } from '../core/door-names.js';
import { decimalOf, PICO_PER_NANO } from '../core/money.js';
import { nameIndexOf, NUMBERS_PER_QUOTA, type QuotasLeft, scopeIndexOf } from '../core/quotas-left.js';
import { QUOTA_KINDS, QUOTA_NAMES, QUOTA_SCOPES } from '../core/quotas.js';
import { asGroupIndex, type GroupIndex } from '../core/units.js';
import type { JournalOutcome, JournalRecord } from '../ledger/journal-layout.js';
import { USAGE_SOURCES } from '../core/token-counts.js';
import type { UsageRowKey } from '../registry/usage-report.js';
import type { EndedAttempt, EndedCall } from '../telemetry/call-ring-layout.js';
import {
  callMembers,
  chargeText,
  picoUnitsOfFloat,
  quotedAsIs,
  requestIdOf,
  timeText,
  type CallAttempt,
  type CallRecord,
  type QuotaLeft,
} from '../telemetry/call-record.js';
import { LineFile } from '../telemetry/line-file.js';
import type { Log } from '../telemetry/log.js';
import type { IdNames } from './id-names.js';

const NO_QUOTAS: readonly QuotaLeft[] = [];
/** The outcomes of the usage log that have a `source`. All other outcomes are error codes. */
const SERVED_OUTCOMES: readonly JournalOutcome[] = ['served', 'reversed', 'collected'];

/** Looks up the names in lines of the usage log. */
interface CallNames {
  readonly ids: Pick<IdNames, 'accountIdOf' | 'keyIdOf'>;
  readonly modelIdOf: (modelIndex: number) => string;
}

/** Looks up the names in the records of calls. */
export interface CallRecordNames extends CallNames {
  /** Returns what the request ids of the listener of that index begin with. */
  readonly requestPrefixOf: (listener: number) => string;
  readonly ids: CallNames['ids'] & Pick<IdNames, 'forgetOld'>;
  /** Returns undefined if no upstream has had the slot. */
  readonly upstreamNameOf: (upstreamSlot: number) => string | undefined;
  readonly groupNameOf: (group: GroupIndex) => string;
}

/** Returns the record of a call of the listener of that index. An id or upstream that is unknown is null. */
export function callRecordOf(names: CallRecordNames, listener: number, endedCall: EndedCall): CallRecord {
  const { account, key, model, upstream, outcome, usage, attempts } = endedCall;
  const { ids, modelIdOf } = names;
  const accountId = account === undefined ? null : ids.accountIdOf(account);
  return {
    requestPrefix: names.requestPrefixOf(listener),
    request: endedCall.request,
    endedMs: endedCall.endedMs,
    route: DOOR_PATHS[DOOR_NAMES[endedCall.door]!],
    account: accountId,
    key: key === undefined ? null : ids.keyIdOf(key),
    model: model === undefined ? null : modelIdOf(model),
    upstream: upstream === undefined ? null : (names.upstreamNameOf(upstream) ?? null),
    stream: endedCall.stream,
    cache: endedCall.cache ?? null,
    status: httpStatusOf(endedCall),
    code: outcome === 'ok' ? null : outcome,
    // Each member is named, because V8 makes an object slowly if it is spread and a member is replaced.
    usage: usage && {
      promptTokens: usage.promptTokens,
      cachedTokens: usage.cachedTokens,
      cacheWriteTokens: usage.cacheWriteTokens,
      cacheWrite1hTokens: usage.cacheWrite1hTokens,
      completionTokens: usage.completionTokens,
      reasoningTokens: usage.reasoningTokens,
      answeredModel: modelIdOf(usage.answered),
      source: USAGE_SOURCES[usage.source]!,
      charged: usage.charged,
    },
    firstTokenMs: endedCall.firstTokenMs,
    durationMs: endedCall.durationMs,
    queuedMs: endedCall.queuedMs,
    admittedMs: endedCall.admittedMs,
    error: maskedOrNull(endedCall.error),
    attempts:
      attempts.length === 1
        ? [attemptOf(names, attempts[0]!)]
        : attempts.map((attempt) => attemptOf(names, attempt)),
    quotas:
      endedCall.quotas === undefined ? NO_QUOTAS : quotasOf(names, accountId, endedCall, endedCall.quotas),
  };
}

/** Masks callers' keys and operators' tokens, which have a known format, and no other secrets. */
const KEY_MASK = new SecretMask(() => []);

/** Returns null for an empty message. Masks keys: a caller may have sent its key as a model's name. */
function maskedOrNull(message: string): string | null {
  return message === '' ? null : KEY_MASK.hidden(message);
}

function attemptOf(names: CallRecordNames, attempt: EndedAttempt): CallAttempt {
  return {
    upstream: names.upstreamNameOf(attempt.upstream) ?? null,
    model: names.modelIdOf(attempt.model),
    status: attempt.status === 0 ? null : attempt.status,
    code: attempt.code ?? null,
    startMs: attempt.startMs,
    durationMs: attempt.durationMs,
    error: maskedOrNull(attempt.error),
  };
}

/**
 * Returns what was left of each quota, first of those that every call has. `id` is the account's. `others`
 * has NUMBERS_PER_QUOTA numbers for each quota: its code, its scope's slot, what is left (quotas-left.ts).
 */
function quotasOf(
  names: CallRecordNames,
  id: string | null,
  { key, model }: EndedCall,
  { minute, inFlight, perDay, balance, others }: QuotasLeft,
): QuotaLeft[] {
  const quotasLeft: QuotaLeft[] = [
    { scope: 'account', id, quota: 'balance', left: picoUnitsOfFloat(balance) },
    { scope: 'account', id, quota: 'calls_in_flight', left: inFlight },
    { scope: 'account', id, quota: 'calls_per_day', left: perDay },
  ];
  if (minute !== undefined)
    quotasLeft.push({ scope: 'account', id, quota: 'requests_per_minute', left: minute });
  for (let position = 0; others !== undefined && position < others.length; position += NUMBERS_PER_QUOTA) {
    const scope = QUOTA_SCOPES[scopeIndexOf(others[position]!)]!;
    const quota = QUOTA_NAMES[nameIndexOf(others[position]!)]!;
    const amount = others[position + 2]!;
    let scopeId = id;
    if (scope === 'key') scopeId = key === undefined ? null : names.ids.keyIdOf(key);
    else if (scope === 'model') scopeId = model === undefined ? null : names.modelIdOf(model);
    else if (scope === 'group') scopeId = names.groupNameOf(asGroupIndex(others[position + 1]!));
    const isMoney = QUOTA_KINDS[quota].unit === 'money';
    quotasLeft.push({
      scope,
      id: scopeId,
      quota,
      left: isMoney ? BigInt(amount) * PICO_PER_NANO : amount,
    });
  }
  return quotasLeft;
}

/** Returns the access log's line of a call of the listener of that index, in ASCII and without a newline. */
export function accessLine(call: CallRecord, listener: number): string {
  return (
    `{"level":"info","time":"${timeText(call.endedMs)}","thread":"listener-${listener}",` +
    `"pid":${process.pid},${callMembers(call)},"message":"call"}`
  );
}

/**
 * Returns the usage log's line of a record of a journal, without a newline. `row` is the usage row in which
 * the call was counted, so `row.modelId` is the id of `record.model`.
 */
export function usageLine(
  names: CallNames,
  requestPrefix: string,
  record: JournalRecord,
  row: Pick<UsageRowKey, 'keyId' | 'modelId'>,
): string {
  const answered = JSON.stringify(row.modelId);
  const model =
    record.requested === record.model ? answered : JSON.stringify(names.modelIdOf(record.requested));
  const source = SERVED_OUTCOMES.includes(record.outcome) ? USAGE_SOURCES[record.source]! : null;
  return (
    `{"time":"${timeText(record.endedMs)}","request_id":"${requestIdOf(requestPrefix, record.request)}",` +
    `"account":${quotedAsIs(names.ids.accountIdOf(record.account))},"key":${quotedAsIs(row.keyId)},` +
    `"model":${model},"answered_model":${source === null ? 'null' : answered},"outcome":"${record.outcome}",` +
    `${chargeText(record, source, record.charged)},` +
    `"uncovered":"${decimalOf(record.uncovered)}","duration_ms":${record.durationMs}}`
  );
}

/** Returns the status that the caller got; null if it left before its response began. */
function httpStatusOf({ outcome, begun, door }: EndedCall): number | null {
  if (begun || outcome === 'ok') return 200;
  return outcome === 'client_gone' ? null : statusByDoor(DOOR_NAMES[door]!, outcome);
}

/** Lines that wait for the end of a flush: about 5 MB, from a fraction of a second of the busiest gateway. */
const USAGE_LINES_WAITING_MAX = 20_000;

/** store/flush.ts calls `add` for each record, and `write` after each transaction. */
export class UsageLog {
  readonly #names: CallNames;
  readonly #file: Pick<LineFile, 'append' | 'close'>;
  #lines: string[] = [];

  constructor(names: CallNames, file: Pick<LineFile, 'append' | 'close'>) {
    this.#names = names;
    this.#file = file;
  }

  /**
   * Adds a line for a record that was counted in the usage row `row`. The listener's `requestPrefix` and the
   * record's number make the request id.
   */
  add(requestPrefix: string, record: JournalRecord, row: Pick<UsageRowKey, 'keyId' | 'modelId'>): void {
    this.#lines.push(usageLine(this.#names, requestPrefix, record, row));
    if (this.#lines.length >= USAGE_LINES_WAITING_MAX) this.write();
  }

  /** Gives the lines to the file, even if the store rejected the transaction: the calls were made anyway. */
  write(): void {
    if (this.#lines.length === 0) return;
    this.#file.append(this.#lines);
    this.#lines = [];
  }

  close(): void {
    this.write();
    this.#file.close();
  }
}

/** Returns undefined if the settings have no usage log. */
export function usageLogOf(
  { usage_log: usageLog }: Settings,
  names: CallNames,
  log: Log,
): UsageLog | undefined {
  if (usageLog === undefined) return undefined;
  const { path, rotate_bytes: rotateBytes, keep } = usageLog;
  return new UsageLog(names, new LineFile({ name: 'usage log', path, rotateBytes, keep, log }));
}
