/**
 * The records of a key: its digest (never the key itself), and its last use and counts. Also the rules of
 * expiry, and of the use that a rotated key passes on. Plain records and pure functions of the registry and
 * the store; main thread.
 *
 * Must hold: a rotated key passes on what was used of its limits, even if it was never used itself. Test:
 * test/unit/registry/key-record.inherited-use.test.ts.
 */
import type { QuotaLimits } from '../core/quotas.js';
import { type AccountIndex, asWallMs, ceilDiv, type KeyIndex, type WallMs } from '../core/units.js';
import type { SettledQuotas } from '../ledger/scope-quotas.js';
import { KEY_EXPIRES_SECONDS_MAX } from './key-table.js';
import { MINUTE_MS } from './quota-use.js';
import { conflict, invalid } from './record-id.js';

export interface KeyRecord {
  /** The key's slot in the key table; free again a day after the key was deleted (SlotRest). */
  readonly index: KeyIndex;
  /** `key_` and 16 characters. */
  readonly id: string;
  readonly accountIndex: AccountIndex;
  readonly accountId: string;
  /**
   * Unique in its account, except for keys that were rotated, and keys of stores from before names had to be
   * unique. Keys of other accounts may have the same name.
   */
  readonly name: string;
  /** SHA-256 of the key, 32 bytes. */
  readonly digest: Buffer;
  /** The beginning of the key, by which its owner recognizes the key: `sk-` and four of 43 characters. */
  readonly prefix: string;
  readonly active: boolean;
  readonly createdMs: WallMs;
  /** Unix seconds from which on the key is rejected; undefined if it does not expire. */
  readonly expiresSeconds: number | undefined;
  /** The key's own limits, which apply within those of its account. */
  readonly limits: QuotaLimits;
  /** True if the contents of its calls must not be kept, whatever `call_log.contents` says. */
  readonly isPrivate?: boolean;
  /** Id of the key that a rotation put in its place; undefined if the key was not rotated. */
  readonly replacedById: string | undefined;
  /** Present if limits are shared: what was used of the key that this key replaces. */
  readonly inherited?: InheritedUse | undefined;
}

/** Counts of a key with limits of its own, at one moment. */
export interface InheritedUse extends Pick<
  KeyUseRecord,
  'minuteUsed' | 'dayNumber' | 'dayCalls' | 'takenMs'
> {
  /** Absent if the key's only quotas are requests a minute and calls a day. */
  readonly quotas?: SettledQuotas;
}

/** Totals as of the last flush. The counts are 0 unless the key has limits of its own. */
export interface KeyUseRecord {
  /** Unix seconds; undefined if the key was not used itself and only has its predecessor's counts. */
  readonly lastUsedSeconds: number | undefined;
  readonly minuteUsed: number;
  /** The day of `dayCalls`, counted from 1970-01-01 in UTC+8. */
  readonly dayNumber: number;
  readonly dayCalls: number;
  /** When the counts were read. */
  readonly takenMs: WallMs;
}

/** `sk-` and four characters. */
const PREFIX_CHARS = 7;

/** Returns the part of a key that may be shown. It leaves 232 of the 256 random bits unknown. */
export function prefixOf(key: string): string {
  return key.slice(0, PREFIX_CHARS);
}

/**
 * Joins what is used `now` with what the key has `inherited`, which no process counts before the key is used
 * first. Each count of the result is that of the later period; of equal periods the greater count.
 */
export function mergeUse(now: InheritedUse, inherited: InheritedUse | undefined): InheritedUse {
  if (inherited === undefined) return now;
  const takenMs = asWallMs(Math.max(now.takenMs, inherited.takenMs));
  const weighs = (use: InheritedUse): boolean => takenMs - use.takenMs < MINUTE_MS;
  const quotas = laterQuotas(now.quotas, inherited.quotas);
  return {
    minuteUsed: Math.max(weighs(now) ? now.minuteUsed : 0, weighs(inherited) ? inherited.minuteUsed : 0),
    dayNumber: Math.max(now.dayNumber, inherited.dayNumber),
    dayCalls: countOfLater(now.dayNumber, now.dayCalls, inherited.dayNumber, inherited.dayCalls),
    takenMs,
    ...(quotas === undefined ? {} : { quotas }),
  };
}

/** Each quota gets the count of the later period; the minute's tokens come from `now` alone. */
function laterQuotas(
  now: SettledQuotas | undefined,
  inherited: SettledQuotas | undefined,
): SettledQuotas | undefined {
  if (inherited === undefined) return now;
  if (now === undefined) return { ...inherited, minuteTokens: 0 };
  const dayCountOf = (quota: 'tokensPerDay' | 'spendPerDay'): number =>
    countOfLater(now.dayNumber, now[quota], inherited.dayNumber, inherited[quota]);
  const monthCountOf = (quota: 'callsPerMonth' | 'tokensPerMonth' | 'spendPerMonth'): number =>
    countOfLater(now.monthNumber, now[quota], inherited.monthNumber, inherited[quota]);
  return {
    dayNumber: Math.max(now.dayNumber, inherited.dayNumber),
    monthNumber: Math.max(now.monthNumber, inherited.monthNumber),
    minuteTokens: now.minuteTokens,
    tokensPerDay: dayCountOf('tokensPerDay'),
    callsPerMonth: monthCountOf('callsPerMonth'),
    tokensPerMonth: monthCountOf('tokensPerMonth'),
    spendPerDay: dayCountOf('spendPerDay'),
    spendPerMonth: monthCountOf('spendPerMonth'),
  };
}

/** The count of the later of two periods; if they are the same, the greater count. */
function countOfLater(period: number, count: number, otherPeriod: number, otherCount: number): number {
  if (period === otherPeriod) return Math.max(count, otherCount);
  return period > otherPeriod ? count : otherCount;
}

const MS_PER_SECOND = 1_000;

/** Whether a key or an operator's token has expired: at a whole second, as the key table stores it. */
export function isExpired({ expiresSeconds }: Pick<KeyRecord, 'expiresSeconds'>, nowMs: WallMs): boolean {
  return expiresSeconds !== undefined && expiresSeconds <= Math.floor(nowMs / MS_PER_SECOND);
}

/** Returns when a new key or token expires, in Unix seconds, if it does. Throws `invalid_parameters`. */
export function expiryOf(
  request: { readonly expiresSeconds?: number | undefined; readonly expiresInSeconds?: number | undefined },
  nowMs: WallMs,
): number | undefined {
  const { expiresSeconds, expiresInSeconds } = request;
  if (expiresSeconds !== undefined && expiresInSeconds !== undefined) {
    throw invalid('expires and expires_in exclude each other: give one of them');
  }
  const expiry = expiresInSeconds === undefined ? expiresSeconds : secondsLater(nowMs, expiresInSeconds);
  if (expiry === undefined) return undefined;
  const nowSeconds = Math.floor(nowMs / MS_PER_SECOND);
  if (expiry > nowSeconds && expiry <= KEY_EXPIRES_SECONDS_MAX) return expiry;
  throw invalid(
    `expires must be a moment from now, ${momentText(nowSeconds)}, to ${momentText(KEY_EXPIRES_SECONDS_MAX)}, got ${momentText(expiry)}`,
  );
}

/** A date and Unix seconds: commands are given a date, the admin interface seconds. */
function momentText(seconds: number): string {
  const moment = new Date(seconds * MS_PER_SECOND);
  // Unix seconds of any size may come, and a Date ends in the year 275760.
  if (Number.isNaN(moment.getTime())) return `${seconds} in Unix seconds`;
  return `${moment.toISOString().replace('.000', '')} (${seconds} in Unix seconds)`;
}

/**
 * Returns the Unix seconds at which a key that is rotated now expires. Without grace it is expired at once,
 * so the present second is rounded down.
 */
export function endOfGrace(nowMs: WallMs, graceSeconds: number): number {
  return graceSeconds === 0 ? Math.floor(nowMs / MS_PER_SECOND) : secondsLater(nowMs, graceSeconds);
}

/** Throws `conflict` or `invalid_parameters` if the key cannot be rotated. */
export function assertRotatable(record: KeyRecord, nowMs: WallMs): void {
  const { id, name, replacedById } = record;
  if (replacedById !== undefined) {
    throw conflict(`the key ${id} (${name}) has been rotated already: ${replacedById} is in its place`);
  }
  if (!record.active)
    throw invalid(`the key ${id} (${name}) is disabled: enable it, or delete it and create another`);
  if (isExpired(record, nowMs))
    throw invalid(`the key ${id} (${name}) has expired: delete it and create another`);
}

/** Unix seconds, rounded up, so that a key lives at least so long. */
function secondsLater(nowMs: WallMs, seconds: number): number {
  return ceilDiv(nowMs, MS_PER_SECOND) + seconds;
}
