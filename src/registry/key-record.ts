/**
 * The records of a key: its digest (never the key itself), and its last use and counts. Also the rules of
 * expiry, and of the use that a rotated key passes on. Plain records and pure functions of the registry and
 * the store; main thread.
 *
 * Must hold: a rotated key passes on what was used of its limits, even if it was never used itself. Test:
 * test/unit/registry/key-record.inherited-use.test.ts.
 */
import { hasQuotas, type QuotaLimits } from '../core/quotas.js';
import { type AccountIndex, asWallMs, ceilDiv, type KeyIndex, type WallMs } from '../core/units.js';
import type { SettledQuotas } from '../ledger/scope-quotas.js';
import { KEY_EXPIRES_SECONDS_MAX } from './key-table.js';
import { conflict, invalid } from './record-id.js';

export interface KeyRecord {
  /** The key's slot in the key table; free again a day after the key was deleted (SLOT_REST_MS). */
  readonly index: KeyIndex;
  /** `key_` and 16 characters. */
  readonly id: string;
  readonly accountIndex: AccountIndex;
  readonly accountId: string;
  /**
   * Unique in its account, but for keys that were rotated, and keys from before names had to be unique. Keys
   * of other accounts may have the same name.
   */
  readonly name: string;
  /** SHA-256 of the key, 32 bytes. */
  readonly digest: Buffer;
  /** The beginning of the key, by which its owner recognizes it: `sk-` and four of 43 characters. */
  readonly prefix: string;
  readonly active: boolean;
  readonly createdMs: WallMs;
  /** Unix seconds from which on the key is rejected; undefined if it does not expire. */
  readonly expiresSeconds: number | undefined;
  /** Own limits, within those of its account. */
  readonly limits: QuotaLimits;
  /** True if the contents of its calls must not be kept, whatever `call_log.contents` says. */
  readonly isPrivate?: boolean;
  /** Id of the key that rotation put in its place. */
  readonly replacedById: string | undefined;
  /** Present if limits are shared: the use of the key that this one replaces. */
  readonly inherited?: InheritedUse | undefined;
}

/** Counts of a key with limits of its own, at one moment. */
export interface InheritedUse extends Pick<
  KeyUseRecord,
  'minuteUsed' | 'dayNumber' | 'dayCalls' | 'takenMs'
> {
  /** Absent if the key has no quotas besides those of a minute and a day. */
  readonly quotas?: SettledQuotas;
}

/** Totals as of the last flush. The counts are 0 unless the key has limits of its own. */
export interface KeyUseRecord {
  /** Undefined for a key that has only its predecessor's counts. */
  readonly lastUsedSeconds: number | undefined;
  readonly minuteUsed: number;
  /** The day of `dayCalls`, counted from 1970-01-01 in UTC+8. */
  readonly dayNumber: number;
  readonly dayCalls: number;
  readonly takenMs: WallMs;
}

export function isLimited({ limits }: KeyRecord): boolean {
  return hasQuotas(limits);
}

const PREFIX_CHARS = 7;

/** Returns the part of a key that may be shown. It leaves 232 of the 256 random bits unknown. */
export function prefixOf(key: string): string {
  return key.slice(0, PREFIX_CHARS);
}

/** How long a permit weighs. */
const WINDOW_MS = 60_000;

/** The counts of the minute and the day; the caller adds those of other quotas. */
export function inheritedOf(use: KeyUseRecord | undefined): InheritedUse | undefined {
  if (use === undefined) return undefined;
  const { minuteUsed, dayNumber, dayCalls, takenMs } = use;
  return { minuteUsed, dayNumber, dayCalls, takenMs };
}

/**
 * Returns the use `now` together with the use inherited `before`, which no process counts until the key is
 * first used: of each count the greater one, or the only one that its period still has.
 */
export function laterUse(now: InheritedUse, before: InheritedUse | undefined): InheritedUse {
  if (before === undefined) return now;
  const takenMs = asWallMs(Math.max(now.takenMs, before.takenMs));
  const weighs = (use: InheritedUse): boolean => takenMs - use.takenMs < WINDOW_MS;
  const quotas = laterQuotas(now.quotas, before.quotas);
  return {
    minuteUsed: Math.max(weighs(now) ? now.minuteUsed : 0, weighs(before) ? before.minuteUsed : 0),
    dayNumber: Math.max(now.dayNumber, before.dayNumber),
    dayCalls: ofLater(now.dayNumber, now.dayCalls, before.dayNumber, before.dayCalls),
    takenMs,
    ...(quotas === undefined ? {} : { quotas }),
  };
}

/** Of each quota the count of the later period; of the tokens of the minute those of `now` alone. */
function laterQuotas(
  now: SettledQuotas | undefined,
  before: SettledQuotas | undefined,
): SettledQuotas | undefined {
  if (before === undefined) return now;
  if (now === undefined) return { ...before, minuteTokens: 0 };
  const ofDay = (quota: 'tokensPerDay' | 'spendPerDay'): number =>
    ofLater(now.dayNumber, now[quota], before.dayNumber, before[quota]);
  const ofMonth = (quota: 'callsPerMonth' | 'tokensPerMonth' | 'spendPerMonth'): number =>
    ofLater(now.monthNumber, now[quota], before.monthNumber, before[quota]);
  return {
    dayNumber: Math.max(now.dayNumber, before.dayNumber),
    monthNumber: Math.max(now.monthNumber, before.monthNumber),
    minuteTokens: now.minuteTokens,
    tokensPerDay: ofDay('tokensPerDay'),
    callsPerMonth: ofMonth('callsPerMonth'),
    tokensPerMonth: ofMonth('tokensPerMonth'),
    spendPerDay: ofDay('spendPerDay'),
    spendPerMonth: ofMonth('spendPerMonth'),
  };
}

/** The count of the later of two periods; if they are the same, the greater count. */
function ofLater(period: number, count: number, otherPeriod: number, otherCount: number): number {
  if (period === otherPeriod) return Math.max(count, otherCount);
  return period > otherPeriod ? count : otherCount;
}

const MS_PER_SECOND = 1_000;

/** Keys and operators' tokens expire at whole seconds, because the key table stores seconds. */
export function isExpired({ expiresSeconds }: Pick<KeyRecord, 'expiresSeconds'>, nowMs: WallMs): boolean {
  return expiresSeconds !== undefined && expiresSeconds <= Math.floor(nowMs / MS_PER_SECOND);
}

/**
 * Returns when a new key or token expires, in Unix seconds; undefined if it does not. Throws
 * `invalid_parameters`.
 */
export function expiryOf(
  request: { readonly expiresSeconds?: number | undefined; readonly expiresInSeconds?: number | undefined },
  nowMs: WallMs,
): number | undefined {
  const { expiresSeconds, expiresInSeconds } = request;
  if (expiresSeconds !== undefined && expiresInSeconds !== undefined) {
    throw invalid('expires and expires_in exclude each other: give one of them');
  }
  const expiry = expiresInSeconds === undefined ? expiresSeconds : afterSeconds(nowMs, expiresInSeconds);
  if (expiry === undefined) return undefined;
  const nowSeconds = Math.floor(nowMs / MS_PER_SECOND);
  if (expiry > nowSeconds && expiry <= KEY_EXPIRES_SECONDS_MAX) return expiry;
  throw invalid(
    `expires must be a moment from now, ${momentText(nowSeconds)}, to ${momentText(KEY_EXPIRES_SECONDS_MAX)}, got ${momentText(expiry)}`,
  );
}

/** Commands are given a date, the admin interface Unix seconds: an error shows both. */
function momentText(seconds: number): string {
  const moment = new Date(seconds * MS_PER_SECOND);
  // Unix seconds of any size may come, and a Date ends in the year 275760.
  if (Number.isNaN(moment.getTime())) return `${seconds} in Unix seconds`;
  return `${moment.toISOString().replace('.000', '')} (${seconds} in Unix seconds)`;
}

/** Returns when a key that is rotated now expires: at once, or when the grace period is over. */
export function endOfGrace(nowMs: WallMs, graceSeconds: number): number {
  return graceSeconds === 0 ? Math.floor(nowMs / MS_PER_SECOND) : afterSeconds(nowMs, graceSeconds);
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

function afterSeconds(nowMs: WallMs, seconds: number): number {
  return ceilDiv(nowMs, MS_PER_SECOND) + seconds;
}
