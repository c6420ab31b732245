/**
 * The rejections of quotas: which code each has, and a message that says whose quota it is, what it allows,
 * what is left of it and when to come back. The rate-limit phase and `admit` return them. Pure; listener
 * thread.
 *
 * Must hold: a caller that waits for the seconds that a rejection names is admitted, unless another caller
 * was faster (test/unit/request/quota-rejections.test.ts, test/unit/request/admit.test.ts).
 */
import { type DoorName, PROMPT_OF } from '../core/door-names.js';
import type { ErrorCode, ErrorRecord, RejectionDetail } from '../core/errors.js';
import { decimalOf } from '../core/money.js';
import { QUOTA_KINDS, type QuotaName } from '../core/quotas.js';
import { asGroupIndex } from '../core/units.js';
import { type ChatCall, mediaTokensOf } from '../protocol/chat-call.js';
import type { GroupNames } from '../registry/group-names.js';
import type { ChosenModel } from './model-access.js';

/**
 * The scope that has the quota. An account's quotas are its plan's; `model` is a plan's rule for one model.
 */
export type QuotaOwner =
  | { readonly kind: 'key' }
  | { readonly kind: 'account'; readonly plan: string }
  | { readonly kind: 'group'; readonly name: string }
  | { readonly kind: 'model'; readonly plan: string; readonly model: string };

/** `index` is used for a group only, `model` for a rule only. */
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
      return { kind, name: groupNames.of(asGroupIndex(index)) };
    case 'model':
      return { kind, plan, model: model ?? '' };
  }
}

/** One quota. Amounts are requests, calls, tokens or pico-units. */
interface Quota {
  readonly owner: QuotaOwner;
  readonly quota: QuotaName;
  readonly limit: bigint;
  /** How much the call needs; 0 if it is admitted while anything is left. */
  readonly need: bigint;
}

interface UsedUp extends Quota {
  readonly left: bigint;
  readonly retryAfterSeconds: number;
}

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

/** The rejection of a call that may be made again after `retryAfterSeconds`. */
export function quotaUsedUp({ owner, quota, limit, left, need, retryAfterSeconds }: UsedUp): ErrorRecord {
  const { unit, per } = QUOTA_KINDS[quota];
  const state =
    need > 0n && (unit === 'tokens' || unit === 'money')
      ? `, of which ${amountOf(left, quota)} ${unit === 'money' ? 'is' : 'are'} left, and the call may ${needOf(need, quota)}`
      : per === 'flight'
        ? ' and they are all in use'
        : ' and they are used up';
  const seconds = `${retryAfterSeconds} second${retryAfterSeconds === 1 && per === 'flight' ? '' : 's'}`;
  const moment = quota === 'calls_per_day' ? ', at 00:00 UTC+8' : '';
  const record = {
    code: CODES[quota],
    message: `${capital(allowanceOf(owner, quota, limit))}${state}. Retry after ${seconds}${moment}.`,
    retryAfterSeconds,
  };
  const detail = detailOf(owner, quota);
  return detail === undefined ? record : { ...record, detail };
}

/** The advice to a caller whose call holds tokens of parts that are not text (`media_part_tokens`). */
export const FEWER_MEDIA = 'send fewer images, documents, sounds and videos';

/** Whether any of the models that may answer takes parts of the call for tokens. */
export function holdsMedia(models: readonly Pick<ChosenModel, 'model'>[], call: ChatCall): boolean {
  return models.some(({ model }) => mediaTokensOf(call, model) > 0);
}

/**
 * The rejection of a call that needs more than the whole quota. `outputTokensMax` is the largest value of
 * `field` that would fit; undefined or less than 1 if none would. `hasMedia`: whether tokens of parts that
 * are not text are held.
 */
export function neverFits(
  { owner, quota, limit, need }: Quota,
  door: DoorName,
  field: string,
  outputTokensMax: number | undefined,
  hasMedia = false,
): ErrorRecord {
  const advice =
    outputTokensMax !== undefined && outputTokensMax >= 1
      ? `Set ${field} to at most ${outputTokensMax}.`
      : `Shorten the ${PROMPT_OF[door]}${hasMedia ? `, or ${FEWER_MEDIA}` : ''}.`;
  return {
    code: 'invalid_parameters',
    detail: 'beyond_quota',
    message: `The call may ${needOf(need, quota)} and ${allowanceOf(owner, quota, limit)}: it can never be admitted. ${advice}`,
  };
}

/** `the plan free allows 60 requests per minute`. */
function allowanceOf(owner: QuotaOwner, quota: QuotaName, limit: bigint): string {
  const { unit, per } = QUOTA_KINDS[quota];
  const amount = amountOf(limit, quota);
  const allowed = unit === 'money' ? `spending ${amount}` : `${amount} ${unit}`;
  const forModel = owner.kind === 'model' ? ` for the model ${owner.model}` : '';
  return `${nameOf(owner)} allows ${allowed} ${per === 'flight' ? 'in flight' : `per ${per}`}${forModel}`;
}

function nameOf(owner: QuotaOwner): string {
  if (owner.kind === 'key') return 'this key';
  return owner.kind === 'group' ? `the group ${owner.name}` : `the plan ${owner.plan}`;
}

function needOf(need: bigint, quota: QuotaName): string {
  return QUOTA_KINDS[quota].unit === 'money' ? `cost up to ${decimalOf(need)}` : `use up to ${need} tokens`;
}

function amountOf(amount: bigint, quota: QuotaName): string {
  return QUOTA_KINDS[quota].unit === 'money' ? decimalOf(amount) : String(amount);
}

/** Undefined if the code says enough. */
function detailOf({ kind }: QuotaOwner, quota: QuotaName): RejectionDetail | undefined {
  switch (quota) {
    case 'requests_per_minute':
    case 'calls_per_day':
      return undefined;
    case 'calls_in_flight':
      return kind === 'key' || kind === 'group' ? `${kind}_calls_in_flight` : 'account_calls_in_flight';
    default:
      return quota;
  }
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
