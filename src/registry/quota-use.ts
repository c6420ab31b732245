/**
 * Computes what is used of a scope's quotas, as operators read it (QuotaUse): from the ledger, from the rows
 * of the last flush, or from what the coordinator reports of all processes (QuotaCount). The statements of
 * accounts, keys and groups, the notices and the store use the functions. Pure; main thread of a gateway
 * process, or a command. Requests of the minute and calls of the day (MinuteDayCounts) are counted apart from
 * all other quotas.
 *
 * Must hold: a count of a day, a month or a minute that is over is shown as 0. A count of a later day or
 * month than the clock's is shown, because calls count there until the clock, which was set back, is there.
 * Fields of QuotaUseRecord are on disk, so they keep their meaning (store/quota-use-rows.ts).
 */
import { PICO_PER_NANO } from '../core/money.js';
import type { Calendar, Period } from '../core/calendar.js';
import { QUOTA_FIELDS, QUOTA_KINDS, QUOTA_NAMES, type QuotaLimits, type QuotaName } from '../core/quotas.js';
import { type AccountIndex, asWallMs, type WallMs } from '../core/units.js';
import { dayNumberOf, resetOfDay } from '../ledger/day.js';
import type { Scope } from '../ledger/layout.js';
import type { QuotaUse, SettledQuotas } from '../ledger/scope-quotas.js';

export type { QuotaUse };

/** How long a permit weighs, and so a count of the minute after it was read. */
export const MINUTE_MS = 60_000;

/** What is used of a quota, as a coordinator reports it. Money is in pico-units. */
export interface QuotaCount {
  /** The day or month of the counts; 0 if the quota has none. */
  readonly period: number;
  /** What was certainly used: for other hosts, what they have reported. */
  readonly used: bigint;
  /** Held by calls in flight on this host. */
  readonly held: bigint;
  /** Granted, and not known to be used or held: other hosts may have used some since their report. */
  readonly leased: bigint;
  /**
   * The part of `leased` that no calls of this host have: other hosts have it, or fallback quotas, or it was
   * held by processes that have ended.
   */
  readonly leasedByOthers: bigint;
}

/** Counts of the quotas that the coordinator was ever asked for. */
export type QuotaCounts = ReadonlyMap<QuotaName, QuotaCount>;

/** An account, a key or a group, by its slot. */
export type SlotScope = Exclude<Scope, { readonly kind: 'model' }>;

/** A scope with quotas, as the registry names it. */
export type LimitedScope = SlotScope & { readonly id: string; readonly limits: QuotaLimits };

interface MinuteDayCounts {
  readonly minuteUsed: number;
  /** Counted from 1970-01-01 in UTC+8. */
  readonly dayNumber: number;
  readonly dayCalls: number;
  readonly callsInFlight?: number;
}

/** Counts of a scope as of the last flush. */
export type FlushedCounts = MinuteDayCounts & { readonly takenMs: WallMs };

/** The counts of a group's minute and day. (Accounts and keys have these counts in other rows.) */
export function minuteDayCountsOf(record: QuotaUseRecord): FlushedCounts {
  const { minuteRequests: minuteUsed, callDayNumber: dayNumber, callsPerDay: dayCalls, takenMs } = record;
  return { minuteUsed, dayNumber, dayCalls, takenMs };
}

/** The quotas that are counted in quota records, which `minuteDayCountsOf` leaves out. */
export function settledQuotasOf(record: QuotaUseRecord): SettledQuotas {
  const { minuteTokens, dayNumber, monthNumber } = record;
  const { tokensPerDay, callsPerMonth, tokensPerMonth, spendPerDay, spendPerMonth } = record;
  const days = { dayNumber, tokensPerDay, spendPerDay };
  return { minuteTokens, ...days, monthNumber, callsPerMonth, tokensPerMonth, spendPerMonth };
}

/** Returns `flushed` without the requests of a minute that is over. `quotaUsesOf` checks the day. */
export function minuteDayCountsAt(flushed: FlushedCounts | undefined, nowMs: WallMs): MinuteDayCounts {
  if (flushed === undefined) return { minuteUsed: 0, dayNumber: 0, dayCalls: 0 };
  const { minuteUsed, dayNumber, dayCalls, takenMs } = flushed;
  return { minuteUsed: nowMs - takenMs < MINUTE_MS ? minuteUsed : 0, dayNumber, dayCalls };
}

/** Returns the use of each quota that has a limit, in the order of QUOTA_NAMES: of `counts`, or of `uses`. */
export function quotaUsesOf(
  limits: QuotaLimits,
  counts: MinuteDayCounts,
  uses: Iterable<Omit<QuotaUse, 'limit'>>,
  nowMs: WallMs,
): QuotaUse[] {
  const byName = new Map(Array.from(uses, (use) => [use.quota, use]));
  const dayCalls = counts.dayNumber >= dayNumberOf(nowMs) ? counts.dayCalls : 0;
  const setUse = (quota: QuotaName, used: number, held = 0, resetsMs?: WallMs): void => {
    byName.set(quota, { quota, used: BigInt(used), held: BigInt(held), resetsMs });
  };
  setUse('requests_per_minute', counts.minuteUsed);
  setUse('calls_per_day', dayCalls, 0, resetOfDay(counts.dayNumber, nowMs));
  if (counts.callsInFlight !== undefined) setUse('calls_in_flight', 0, counts.callsInFlight);
  return QUOTA_NAMES.flatMap((quota) => {
    const limit = limits[QUOTA_FIELDS[quota]];
    const { used = 0n, held = 0n, resetsMs } = byName.get(quota) ?? {};
    return limit === undefined ? [] : [{ quota, limit: BigInt(limit), used, held, resetsMs }];
  });
}

/** The use as of the last flush. The record has money in nano-units, the result in pico-units. */
export function flushedUses(
  record: QuotaUseRecord | undefined,
  calendar: Calendar,
  nowMs: WallMs,
): Omit<QuotaUse, 'limit'>[] {
  const { dayNumber = 0, monthNumber = 0 } = record ?? {};
  const day = calendar.dayOf(dayNumber, nowMs);
  const month = calendar.monthOf(monthNumber, nowMs);
  const isToday = dayNumber >= day.number;
  const isThisMonth = monthNumber >= month.number;
  const isThisMinute = record !== undefined && nowMs - record.takenMs < MINUTE_MS;
  const useOf = (quota: QuotaName, used: number | undefined, isCurrent: boolean, resetsMs?: WallMs) => {
    const picoFactor = QUOTA_KINDS[quota].unit === 'money' ? PICO_PER_NANO : 1n;
    return { quota, used: isCurrent ? BigInt(used ?? 0) * picoFactor : 0n, held: 0n, resetsMs };
  };
  return [
    useOf('tokens_per_minute', record?.minuteTokens, isThisMinute),
    useOf('tokens_per_day', record?.tokensPerDay, isToday, day.endMs),
    useOf('calls_per_month', record?.callsPerMonth, isThisMonth, month.endMs),
    useOf('tokens_per_month', record?.tokensPerMonth, isThisMonth, month.endMs),
    useOf('spend_per_day', record?.spendPerDay, isToday, day.endMs),
    useOf('spend_per_month', record?.spendPerMonth, isThisMonth, month.endMs),
  ];
}

const NO_COUNT: QuotaCount = { period: 0, used: 0n, held: 0n, leased: 0n, leasedByOthers: 0n };

/** The day or month in which a quota counts at `nowMs`, if `counted` is the last in which it was counted. */
function periodOf(
  quota: QuotaName,
  counted: number,
  calendar: Calendar,
  nowMs: WallMs,
): Pick<Period, 'number' | 'endMs'> | undefined {
  const { per } = QUOTA_KINDS[quota];
  // Calls a day are counted by the day in UTC+8, whatever `quota_timezone` says.
  if (quota === 'calls_per_day') {
    const endMs = resetOfDay(counted, nowMs);
    return { number: dayNumberOf(asWallMs(endMs - 1)), endMs };
  }
  if (per === 'day') return calendar.dayOf(counted, nowMs);
  return per === 'month' ? calendar.monthOf(counted, nowMs) : undefined;
}

/** The count of a quota, and when its period ends; NO_COUNT if the count is of a period that is over. */
function countNow(
  quota: QuotaName,
  counts: QuotaCounts,
  calendar: Calendar,
  nowMs: WallMs,
): QuotaCount & { readonly resetsMs?: WallMs } {
  const count = counts.get(quota) ?? NO_COUNT;
  const period = periodOf(quota, count.period, calendar, nowMs);
  if (period === undefined) return count;
  return count.period >= period.number
    ? { ...count, period: period.number, resetsMs: period.endMs }
    : NO_COUNT;
}

/** Returns `flushed`, the use as of the last flushes, with what all processes use now. */
export function sharedQuotaUses(
  flushed: readonly QuotaUse[],
  counts: QuotaCounts,
  calendar: Calendar,
  nowMs: WallMs,
): QuotaUse[] {
  return flushed.map((use) => {
    const { used, held, leased, resetsMs = use.resetsMs } = countNow(use.quota, counts, calendar, nowMs);
    const { per } = QUOTA_KINDS[use.quota];
    // A process that died may have written more to the store than it had reported. The difference was leased
    // to that process: it counts as used here, and no longer as leased.
    const hasPeriod = per === 'day' || per === 'month';
    const isSamePeriod = hasPeriod && use.resetsMs === resetsMs;
    const unreported = isSamePeriod && use.used > used ? use.used - used : 0n;
    return {
      ...use,
      used: used + unreported,
      held,
      leased: leased > unreported ? leased - unreported : 0n,
      resetsMs,
    };
  });
}

/**
 * The use of a rotated key, for its successor. Includes what other hosts have leased, because they may still
 * use it. Money is rounded up to nano-units.
 */
export function inheritedQuotasOf(counts: QuotaCounts, calendar: Calendar, nowMs: WallMs): SettledQuotas {
  const countsNow = new Map(
    Array.from(counts.keys(), (quota) => [quota, countNow(quota, counts, calendar, nowMs)]),
  );
  // Later than the clock's, if the clock was set back since one of the quotas was counted.
  const latestOf = (current: number, quotas: readonly QuotaName[]): number =>
    Math.max(current, ...quotas.map((quota) => countsNow.get(quota)?.period ?? 0));
  const dayNumber = latestOf(calendar.dayAt(nowMs).number, ['tokens_per_day', 'spend_per_day']);
  const monthNumber = latestOf(calendar.monthAt(nowMs).number, [
    'calls_per_month',
    'tokens_per_month',
    'spend_per_month',
  ]);
  const usedOf = (quota: QuotaName, period: number): bigint => {
    const { period: counted, used, leasedByOthers } = countsNow.get(quota) ?? NO_COUNT;
    return counted === period ? used + leasedByOthers : 0n;
  };
  const countOf = (quota: QuotaName, period: number): number => Number(usedOf(quota, period));
  const nanoUnitsOf = (quota: QuotaName, period: number): number =>
    Number((usedOf(quota, period) + PICO_PER_NANO - 1n) / PICO_PER_NANO);
  return {
    minuteTokens: countOf('tokens_per_minute', 0),
    dayNumber,
    monthNumber,
    tokensPerDay: countOf('tokens_per_day', dayNumber),
    callsPerMonth: countOf('calls_per_month', monthNumber),
    tokensPerMonth: countOf('tokens_per_month', monthNumber),
    spendPerDay: nanoUnitsOf('spend_per_day', dayNumber),
    spendPerMonth: nanoUnitsOf('spend_per_month', monthNumber),
  };
}

/** The scope whose use a row has. A `model` is an account's use of one model; `index` is the account's. */
export type UsedScope =
  | SlotScope
  | { readonly kind: 'model'; readonly index: AccountIndex; readonly modelId: string };

/**
 * The use of a scope's quotas by ended calls, as of the last flush. These are totals, so writing them twice
 * changes nothing. The first three fields are 0 for accounts and keys, which have these counts in other rows
 * (`spending`, `key_uses`).
 */
export interface QuotaUseRecord extends SettledQuotas {
  readonly minuteRequests: number;
  /** The day of `callsPerDay`, counted from 1970-01-01 in UTC+8. */
  readonly callDayNumber: number;
  readonly callsPerDay: number;
  /** When the flush read the counts. Those of the minute are of the 60 s before. */
  readonly takenMs: WallMs;
}
