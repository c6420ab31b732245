/**
 * Makes the CallRecord of an ended call, with names in place of slots, and its line of the access log.
 * gateway-logs.ts calls both, on the main thread of a gateway process. usage-log.ts has the usage log.
 *
 * The access log has a line for every call that ended, also for rejected ones: the members that
 * telemetry/call-record.ts describes, from `request_id` to `queued_ms`, after
 *
 *     {"level":"info","time":"2025-01-31T12:00:00.000Z","thread":"listener-0","pid":7,
 *
 * and before `"message":"call"}`. `time` is when the call ended.
 *
 * Must hold: a line is JSON whatever names and numbers it has, and shows the values with which the call was
 * settled. No record has a caller's key or an operator's token, because logs, exports and the console show
 * records. People parse these lines, so a member keeps its name. Further test:
 * test/unit/gateway/gateway-logs.test.ts.
 */
import { SecretMask } from '../call-log/secret-mask.js';
import { DOOR_NAMES, DOOR_PATHS, statusByDoor } from '../core/door-names.js';
import { PICO_PER_NANO } from '../core/money.js';
import { nameIndexOf, NUMBERS_PER_QUOTA, type QuotasLeft, scopeIndexOf } from '../core/quotas-left.js';
import { QUOTA_KINDS, QUOTA_NAMES, QUOTA_SCOPES } from '../core/quotas.js';
import { asGroupIndex, type GroupIndex } from '../core/units.js';
import { USAGE_SOURCES } from '../core/token-counts.js';
import type { EndedAttempt, EndedCall } from '../telemetry/call-ring-layout.js';
import {
  callMembers,
  picoUnitsOfFloat,
  timeText,
  type CallAttempt,
  type CallRecord,
  type QuotaLeft,
} from '../telemetry/call-record.js';
import type { IdNames } from './id-names.js';
import type { CallNames } from './usage-log.js';

const NO_QUOTAS: readonly QuotaLeft[] = [];
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

/** Returns the status that the caller got; null if it left before its response began. */
function httpStatusOf({ outcome, begun, door }: EndedCall): number | null {
  if (begun || outcome === 'ok') return 200;
  return outcome === 'client_gone' ? null : statusByDoor(DOOR_NAMES[door]!, outcome);
}
