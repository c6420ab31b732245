/**
 * What a scope has used of its quotas, as operators read it. Pure; main thread of a gateway process, or a
 * command.
 */
import { QUOTA_FIELDS, QUOTA_NAMES, type QuotaLimits, type QuotaName } from '../core/quotas.js';
import type { AccountIndex, GroupIndex, KeyIndex, WallMs } from '../core/units.js';

/** One quota of a scope. All units are whole numbers: requests, calls, tokens, pico-units. */
export interface QuotaUse {
  readonly quota: QuotaName;
  readonly limit: bigint;
  /** By calls that have ended; a request or a call counts when it is admitted. */
  readonly used: bigint;
  /** By calls in flight, beyond that. */
  readonly held: bigint;
  /** When the day or the month ends; undefined for a window and for calls in flight. */
  readonly resetsMs: WallMs | undefined;
}

/** A scope with quotas, as the registry names it. */
export interface LimitedScope {
  readonly kind: 'account' | 'key' | 'group';
  readonly index: AccountIndex | KeyIndex | GroupIndex;
  readonly id: string;
  readonly limits: QuotaLimits;
}

/** What is known of one quota, whatever its limit. */
export type QuotaCount = Pick<QuotaUse, 'used' | 'held' | 'resetsMs'>;

/** Returns what is used of each quota that has a limit, in the order of QUOTA_NAMES. */
export function quotaUsesOf(limits: QuotaLimits, countOf: (quota: QuotaName) => QuotaCount): QuotaUse[] {
  return QUOTA_NAMES.flatMap((quota) => {
    const limit = limits[QUOTA_FIELDS[quota]];
    return limit === undefined ? [] : [{ quota, limit: BigInt(limit), ...countOf(quota) }];
  });
}

/** Whose use a row has. A model's is that of one account, by the model's id. */
export type UsedScope =
  | { readonly kind: 'account' | 'key' | 'group'; readonly index: number }
  | { readonly kind: 'model'; readonly index: AccountIndex; readonly modelId: string };

/**
 * What calls that have ended have used of a scope's quotas, as of the last flush. Absolute: writing it twice
 * changes nothing. The first three are 0 of accounts and keys, which have them in other records.
 */
export interface QuotaUseRecord {
  readonly minuteRequests: number;
  /** The day of `callsPerDay`, counted from 1970-01-01 in UTC+8. */
  readonly callDayNumber: number;
  readonly callsPerDay: number;
  /** Tokens in the minute before `takenMs`. */
  readonly minuteTokens: number;
  readonly takenMs: WallMs;
  /** The day and the month of the counts below, from 1970-01 by `quota_timezone`. */
  readonly dayNumber: number;
  readonly monthNumber: number;
  readonly tokensPerDay: number;
  readonly callsPerMonth: number;
  readonly tokensPerMonth: number;
  /** Nano-units: 10^-9 of the currency. */
  readonly spendPerDay: number;
  readonly spendPerMonth: number;
}
