/**
 * Makes the rejections of quotas: each has a code, and a message that says whose quota it is, what the quota
 * allows, what is left of it and when to come back. rate-limit.ts and admit.ts call it; rejections.ts uses
 * its advice on media. Pure; listener thread. ledger/quota-rejections.ts decides which quota rejects a call.
 *
 * Must hold: a caller that waits for the seconds that a rejection names is admitted, unless another caller
 * was faster. The seconds come from rate-limit.ts and admit.ts (test/unit/request/admit.test.ts). Callers see
 * the messages and codes, so to change one is to change behaviour
 * (test/unit/request/quota-rejections.test.ts).
 */
import { type DoorName, PROMPT_OF } from '../core/door-names.js';
import { secondsText, type ErrorCode, type ErrorRecord, type RejectionDetail } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import { SPECIFIED_TIMEZONE } from '../core/calendar.js';
import { QUOTA_KINDS, type QuotaName } from '../core/quotas.js';
import { asGroupIndex } from '../core/units.js';
import { type ChatCall, mediaTokensOf } from '../protocol/chat-call.js';
import type { GroupNames } from '../registry/group-names.js';
import type { CandidateModel } from './model-access.js';

/**
 * The scope that the message names as the owner of the quota: an account has the quotas of its plan. `model`
 * is a plan's rule for a model.
 */
export type QuotaOwner =
  | { readonly kind: 'key' }
  | { readonly kind: 'account'; readonly plan: string }
  | { readonly kind: 'group'; readonly name: string }
  | { readonly kind: 'model'; readonly plan: string; readonly model: string };

/**
 * `index` is the slot of a group; other kinds do not read it. `model` is the id of a rule's model; the
 * rate-limit phase passes undefined, because it does not know the model yet.
 */
export function ownerOf(
  kind: QuotaOwner['kind'],
  index: number,
  plan: string,
  model: string | undefined,
  groupNames: GroupNames,
): QuotaOwner {
  switch (kind) {
    case 'key':
      return { kind };
    case 'account':
      return { kind, plan };
    case 'group':
      return { kind, name: groupNames.nameOf(asGroupIndex(index)) };
    case 'model':
      return { kind, plan, model: model ?? '' };
  }
}

/** A quota, and what the call needs of it. Amounts are requests, calls, tokens or pico-units. */
interface QuotaNeed {
  readonly owner: QuotaOwner;
  readonly quota: QuotaName;
  readonly limit: bigint;
  /** How much the call needs; 0 if any amount left is enough, as for tokens with `token_quota: settle`. */
  readonly need: bigint;
}

/** A quota that has too little left now. */
interface UsedUpQuota extends QuotaNeed {
  readonly left: bigint;
  readonly retryAfterSeconds: number;
}

/** Such as `UTC+8`. */
const SPECIFIED_ZONE_NAME = `UTC${SPECIFIED_TIMEZONE.replace(/^([+-])0?(\d+):00$/, '$1$2')}`;

const CODES: Readonly<Record<QuotaName, ErrorCode>> = {
  requests_per_minute: 'rate_limit_exceeded',
  tokens_per_minute: 'rate_limit_exceeded',
  calls_in_flight: 'overloaded',
  calls_per_day: 'daily_limit_exceeded',
  tokens_per_day: 'daily_limit_exceeded',
  calls_per_month: 'budget_exceeded',
  tokens_per_month: 'budget_exceeded',
  spend_per_day: 'budget_exceeded',
  spend_per_month: 'budget_exceeded',
};

/** Returns the rejection of a call that fits the quota again after `retryAfterSeconds`. */
export function quotaUsedUp(usedUp: UsedUpQuota): ErrorRecord {
  const { owner, quota, limit, left, need, retryAfterSeconds } = usedUp;
  const { unit, per } = QUOTA_KINDS[quota];
  const stateText =
    need > 0n && (unit === 'tokens' || unit === 'money')
      ? `, of which ${amountText(left, quota)} ${unit === 'money' ? 'is' : 'are'} left, and the call may ${needText(need, quota)}`
      : per === 'flight'
        ? ' and they are all in use'
        : ' and they are used up';
  // Only the day of calls always begins at SPECIFIED_TIMEZONE's midnight; `quota_timezone` moves the others.
  const resetText = quota === 'calls_per_day' ? `, at 00:00 ${SPECIFIED_ZONE_NAME}` : '';
  const record = {
    code: CODES[quota],
    message: `${capitalized(allowanceText(owner, quota, limit))}${stateText}. Retry after ${secondsText(retryAfterSeconds)}${resetText}.`,
    retryAfterSeconds,
  };
  const detail = metricsDetailOf(owner, quota);
  return detail === undefined ? record : { ...record, detail };
}

/** Advice to a caller if tokens are held for media parts of its call (`media_part_tokens`). */
export const FEWER_MEDIA = 'send fewer images, documents, sounds and videos';

/** Whether tokens are held for media parts, at any of the models that may answer. */
export function holdsMedia(models: readonly Pick<CandidateModel, 'model'>[], call: ChatCall): boolean {
  return models.some(({ model }) => mediaTokensOf(call, model) > 0);
}

/**
 * Returns the rejection of a call that needs more than the whole quota, so waiting does not help. `field` is
 * the caller's member for the output; undefined for a hit, which needs the same whatever it asks for.
 * `outputTokensMax` is the field's largest value that fits the quota; undefined or less than 1 if none does.
 * `hasMedia`: the result of `holdsMedia`.
 */
export function neverFits(
  { owner, quota, limit, need }: QuotaNeed,
  door: DoorName,
  field: string | undefined,
  outputTokensMax: number | undefined,
  hasMedia = false,
): ErrorRecord {
  const advice =
    outputTokensMax !== undefined && outputTokensMax >= 1
      ? ` Set ${field} to at most ${outputTokensMax}.`
      : ` Shorten the ${PROMPT_OF[door]}${hasMedia ? `, or ${FEWER_MEDIA}` : ''}.`;
  return {
    code: 'invalid_parameters',
    detail: 'beyond_quota',
    message: `The call may ${needText(need, quota)} and ${allowanceText(owner, quota, limit)}: it can never be admitted.${field === undefined ? '' : advice}`,
  };
}

/** Such as `the plan free allows 60 requests per minute`. */
function allowanceText(owner: QuotaOwner, quota: QuotaName, limit: bigint): string {
  const { unit, per } = QUOTA_KINDS[quota];
  const amount = amountText(limit, quota);
  const allowed = unit === 'money' ? `spending ${amount}` : `${amount} ${unit}`;
  const forModel = owner.kind === 'model' ? ` for the model ${owner.model}` : '';
  return `${ownerText(owner)} allows ${allowed} ${per === 'flight' ? 'in flight' : `per ${per}`}${forModel}`;
}

function ownerText(owner: QuotaOwner): string {
  if (owner.kind === 'key') return 'this key';
  return owner.kind === 'group' ? `the group ${owner.name}` : `the plan ${owner.plan}`;
}

function needText(need: bigint, quota: QuotaName): string {
  const { unit } = QUOTA_KINDS[quota];
  return unit === 'money' ? `cost up to ${decimalOf(need)}` : `use up to ${need} ${unit}`;
}

function amountText(amount: bigint, quota: QuotaName): string {
  return QUOTA_KINDS[quota].unit === 'money' ? decimalOf(amount) : String(amount);
}

/** Returns what metrics call the rejection; undefined if its code says enough. */
function metricsDetailOf({ kind }: QuotaOwner, quota: QuotaName): RejectionDetail | undefined {
  switch (quota) {
    case 'requests_per_minute':
    case 'calls_per_day':
      return undefined;
    case 'calls_in_flight':
      // A rule for a model limits one account, so its metric is the account's: it has no detail of its own.
      return kind === 'key' || kind === 'group' ? `${kind}_calls_in_flight` : 'account_calls_in_flight';
    default:
      return quota;
  }
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
