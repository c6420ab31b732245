/**
 * The quotas of a scope besides requests a minute and calls a day: calls in flight, tokens, months and
 * spending. `Calls` takes and settles through it, one quota of one scope at a time; `LimitedScopes` sets
 * limits; store/quota-uses.ts stores and restores the use. Each thread has a ScopeQuotas of its own over the
 * same buffers. Any thread, unless a method says main thread.
 *
 * `record` is the index of the scope's quota record (layout.ts). Money is counted in nano-units, so that it
 * fits a stock. What a call holds and costs is rounded up. (A price of at most three decimals for a million
 * tokens costs whole nano-units.)
 *
 * Must hold: what a call took of a period is given back to that period, and a take that fails takes nothing.
 * Test: test/unit/ledger/quotas.test.ts (trees of scopes at random; a call that midnight parts).
 */
import type { Clock } from '../core/clock.js';
import { PICO_PER_NANO } from '../core/money.js';
import { Calendar, type Period } from '../core/calendar.js';
import type { QuotaName } from '../core/quotas.js';
import { asWallMs, type MonotonicMs, type PicoUnits, type WallMs } from '../core/units.js';
import {
  CALLS_PER_MONTH,
  EXTENDED_QUOTAS,
  lowestQuotaOf,
  type QuotaNumber,
  type QuotaViews,
  SPEND_PER_DAY,
  SPEND_PER_MONTH,
  stockAt,
  TOKENS_PER_DAY,
  TOKENS_PER_MINUTE,
  TOKENS_PER_MONTH,
} from './layout.js';
import { KINDS, NUMBERED_QUOTAS, QuotaRecords } from './quota-records.js';
import { numberOf } from './packed-words.js';
import { NO_PERIOD, type Stocks, type StockUse } from './stocks.js';
import type { TokenWindow } from './token-window.js';

const EXACT_PICO_MAX = BigInt(Number.MAX_SAFE_INTEGER);
/** What callers get as the time until all tokens of a minute are free, if only the coordinator knows it. */
const MINUTE_MS = 60_000;
const QUOTA_COUNT = EXTENDED_QUOTAS.length;
export const FIRST_QUOTA = 0 as QuotaNumber;
/** Bit n: quota n begins at zero in each `period` of the calendar (core/quotas.ts). */
const maskOf = (period: 'day' | 'month'): number =>
  KINDS.reduce((bits, { per }, quota) => (per === period ? bits | (1 << quota) : bits), 0);
const OF_DAY = maskOf('day');
const OF_MONTH = maskOf('month');

/** A hold or a cost in nano-units, rounded up; at most MAX_SAFE_INTEGER, which exceeds any limit. */
export function nanoUnitsOf(amount: PicoUnits): number {
  if (amount > EXACT_PICO_MAX)
    return Math.min(Number((amount + PICO_PER_NANO - 1n) / PICO_PER_NANO), Number.MAX_SAFE_INTEGER);
  // Numbers take a tenth of the time of bigints. The division may round up to a whole number, so the product,
  // which is exact, decides.
  const pico = numberOf(amount);
  const nano = Math.floor(pico / 1_000);
  return nano * 1_000 < pico ? nano + 1 : nano;
}

/** What a call takes or used of each quota, in the order of EXTENDED_QUOTAS. Money is in nano-units. */
export type Amounts = Float64Array;

/** Amounts with `calls` for each quota that counts calls. `setAmounts` sets the other amounts. */
export function createAmounts(calls: number): Amounts {
  return new Float64Array(QUOTA_COUNT).fill(calls);
}

/** Sets the amounts of all quotas but those that count calls. */
export function setAmounts(amounts: Amounts, tokens: number, nanoUnits: number): void {
  amounts[TOKENS_PER_MINUTE] = amounts[TOKENS_PER_DAY] = amounts[TOKENS_PER_MONTH] = tokens;
  amounts[SPEND_PER_DAY] = amounts[SPEND_PER_MONTH] = nanoUnits;
}

/** The day and the month that a call takes from, numbered from 1970-01 in the quotas' timezone. */
interface Periods {
  day: number;
  month: number;
}

/** A quota of a scope and its use. Money is in pico-units. */
export interface QuotaUse {
  readonly quota: QuotaName;
  readonly limit: bigint;
  /** What settled calls have used. */
  readonly used: bigint;
  /** What calls in flight hold. */
  readonly held: bigint;
  /** Granted to processes and not yet taken by calls, if limits are shared. */
  readonly leased?: bigint;
  /** When the quota's day or month ends; undefined for calls in flight and tokens a minute. */
  readonly resetsMs: WallMs | undefined;
}

export interface TokenMinute {
  readonly limit: number;
  readonly remaining: number;
  /** Milliseconds until all tokens are free again, if calls in flight end now and use all that they hold. */
  readonly resetMs: number;
}

/** What the store keeps of a quota record. Money is in nano-units. */
export interface SettledQuotas {
  /** Numbered as in `Periods`. */
  readonly dayNumber: number;
  readonly monthNumber: number;
  readonly minuteTokens: number;
  readonly tokensPerDay: number;
  readonly callsPerMonth: number;
  readonly tokensPerMonth: number;
  readonly spendPerDay: number;
  readonly spendPerMonth: number;
}

/** The scope that has the fewest tokens of its minute left, of those that `tighten` was given. */
export interface TightestScope {
  /** 0 as long as there is none. */
  limit: number;
  left: number;
  /** Undefined for an account that has not called yet. */
  record: number | undefined;
}

export function createTightest(): TightestScope {
  return { limit: 0, left: 0, record: undefined };
}

/** Sets the tightest scope to one that has `left` of its `limit` left, unless the present one has less. */
export function tighten(
  tightest: TightestScope,
  limit: number,
  left: number,
  record: number | undefined,
): void {
  if (tightest.limit !== 0 && left >= tightest.left) return;
  tightest.limit = limit;
  tightest.left = left;
  tightest.record = record;
}

/** The use of a call that never reached an upstream, or is not charged. Nobody changes it. */
export const NOTHING_USED: Amounts = createAmounts(0);

export class ScopeQuotas extends QuotaRecords {
  /** A second result of the last successful `take`: what is left, with what the coordinator has. */
  left = 0;
  readonly #stocks: Stocks;
  /** Undefined if limits are shared: then the coordinator has the window, and tokens are taken of a stock. */
  readonly #window: TokenWindow | undefined;
  readonly #clock: Clock;
  readonly #calendar: Calendar;
  readonly #today = (): number => this.#calendar.dayAt(this.#clock.wallMs()).number;
  readonly #thisMonth = (): number => this.#calendar.monthAt(this.#clock.wallMs()).number;

  constructor(
    views: QuotaViews,
    { stocks, window }: { stocks: Stocks; window: TokenWindow | undefined },
    clock: Clock,
    timezone: string,
  ) {
    super(views);
    this.#stocks = stocks;
    this.#window = window;
    this.#clock = clock;
    this.#calendar = new Calendar(timezone);
  }

  /** Whether a lease has run low since the last call of this method, which resets that. */
  takeRanLow(): boolean {
    return this.#stocks.takeRanLow();
  }

  readPeriods(into: Periods, nowMs = this.#clock.wallMs()): void {
    into.day = this.#calendar.dayAt(nowMs).number;
    into.month = this.#calendar.monthAt(nowMs).number;
  }

  /**
   * Takes what a call needs of one quota. Returns false and takes nothing if less than that is left, or if
   * nothing is left (also if the call needs 0). If the call counts toward a later period, sets `periods` to
   * that period. `nowMs`: when the call began to take.
   */
  take(
    record: number,
    quota: QuotaNumber,
    limit: number,
    amounts: Amounts,
    periods: Periods,
    nowMs: MonotonicMs,
  ): boolean {
    const amount = amounts[quota]!;
    if (quota === TOKENS_PER_MINUTE && this.#window !== undefined) {
      const isTaken = this.#window.take(record, amount, limit, nowMs);
      this.left = this.#window.left;
      return isTaken;
    }
    const stock = stockAt(record, quota);
    const readPeriod = (OF_MONTH & (1 << quota)) !== 0 ? this.#thisMonth : this.#today;
    const countedPeriod = this.#stocks.take(stock, periodOf(quota, periods), amount, limit, readPeriod);
    if (countedPeriod === undefined) return false;
    this.left = this.#stocks.left;
    if ((OF_DAY & (1 << quota)) !== 0) periods.day = countedPeriod;
    else if ((OF_MONTH & (1 << quota)) !== 0) periods.month = countedPeriod;
    return true;
  }

  /**
   * Replaces what a call held of a quota by what it used until its end at `nowMs`. NOTHING_USED gives all
   * back. Called once for each take, as `Reservations.claim` ensures.
   */
  settle(
    record: number,
    quota: QuotaNumber,
    held: Amounts,
    used: Amounts,
    periods: Periods,
    nowMs: MonotonicMs,
  ): void {
    if (quota === TOKENS_PER_MINUTE && this.#window !== undefined)
      this.#window.settle(record, held[quota]!, used[quota]!, nowMs);
    else this.#stocks.settle(stockAt(record, quota), periodOf(quota, periods), held[quota]!, used[quota]!);
  }

  /** Undoes what a settled call used of the days and months in `mask`; its tokens of the minute stay used. */
  reverse(record: number, mask: number, used: Amounts, periods: Periods): void {
    for (let bits = mask & (OF_DAY | OF_MONTH); bits !== 0; bits &= bits - 1) {
      const quota = lowestQuotaOf(bits);
      const [stock, period] = [stockAt(record, quota), periodOf(quota, periods)];
      if (quota === CALLS_PER_MONTH) this.#stocks.settle(stock, period, 1, 0);
      else this.#stocks.reverse(stock, period, used[quota]!);
    }
  }

  /** What is left of a quota, and when a call that needs `amounts` of it may come again. */
  leftOf(
    record: number,
    quota: QuotaNumber,
    limit: number,
    amounts: Amounts,
  ): { left: number; resetsMs: WallMs } {
    const nowMs = this.#clock.wallMs();
    if (quota === TOKENS_PER_MINUTE && this.#window !== undefined) {
      const waitMs = this.#window.msUntil(record, amounts[quota]!, limit);
      const left = Math.max(0, limit - this.#window.read(record).taken);
      return { left, resetsMs: asWallMs(nowMs + Math.ceil(waitMs) + 1) };
    }
    const period = this.#periodAt(record, quota, nowMs);
    const { left, waitMs } = this.#stocks.leftOf(stockAt(record, quota), period?.number ?? 0, limit);
    return { left, resetsMs: period?.endMs ?? asWallMs(nowMs + Math.ceil(waitMs) + 1) };
  }

  /** The limit of tokens a minute of a record; undefined if the record has none. */
  tokensPerMinuteOf(record: number): number | undefined {
    const isLimited = (this.maskOf(record) & (1 << TOKENS_PER_MINUTE)) !== 0;
    return isLimited ? this.limitOf(record, TOKENS_PER_MINUTE) : undefined;
  }

  /**
   * Tokens taken of the minute; if limits are shared, by all processes, as the coordinator last reported.
   * `record` is undefined for an account that has not called yet.
   */
  minuteTokensOf(record: number | undefined, limit: number, nowMs: MonotonicMs): number {
    if (record === undefined) return 0;
    if (this.#window !== undefined) return this.#window.takenOf(record, nowMs);
    const { left, isKnown } = this.#stocks.leftOf(stockAt(record, TOKENS_PER_MINUTE), NO_PERIOD, limit);
    return isKnown ? Math.max(0, limit - left) : 0;
  }

  /**
   * The tokens of the minute of that scope; undefined if `tighten` was given no scope. `held`: what a call in
   * flight holds of them, as far as the caller knows.
   */
  tokenMinuteOf(
    { limit, left, record }: TightestScope,
    nowMs: MonotonicMs,
    held = 0,
  ): TokenMinute | undefined {
    if (limit === 0) return undefined;
    const isAnyUsed = left !== limit && record !== undefined;
    const resetMs = isAnyUsed ? (this.#window?.msUntilFree(record, nowMs, held) ?? MINUTE_MS) : 0;
    return { limit, remaining: Math.max(0, left), resetMs };
  }

  /** The quotas in `mask` with their use. `record` is undefined for an account that has not called yet. */
  useOf(record: number | undefined, mask: number, limitOf: (quota: QuotaNumber) => number): QuotaUse[] {
    const uses: QuotaUse[] = [];
    for (const [quota, name] of NUMBERED_QUOTAS) {
      if ((mask & (1 << quota)) === 0) continue;
      const { taken, settled, resetsMs } = this.#useOf(record, quota);
      uses.push({
        quota: name,
        limit: this.amountIn(quota, limitOf(quota)),
        used: this.amountIn(quota, settled),
        held: this.amountIn(quota, taken - settled),
        resetsMs,
      });
    }
    return uses;
  }

  /** An amount of a quota in the unit that operators see: money in pico-units, all else as counted. */
  amountIn(quota: QuotaNumber, amount: number): bigint {
    return BigInt(amount) * (KINDS[quota]!.unit === 'money' ? PICO_PER_NANO : 1n);
  }

  /**
   * What the flush writes of a record: not what calls in flight hold, because a restart ends these calls. Day
   * and month are those of the counts, whatever the clock says: it may have been set back, or be wrong.
   */
  settledOf(record: number): SettledQuotas {
    const nowMs = this.#clock.wallMs();
    const dayNumber = this.#lastPeriodOf(record, OF_DAY, nowMs);
    const monthNumber = this.#lastPeriodOf(record, OF_MONTH, nowMs);
    const useIn = (quota: QuotaNumber, period: number): StockUse =>
      this.#stocks.read(stockAt(record, quota), period);
    return {
      dayNumber,
      monthNumber,
      // If limits are shared, only the coordinator knows the minute: this process's stock never forgets.
      minuteTokens: this.#window === undefined ? 0 : this.#useOf(record, TOKENS_PER_MINUTE).settled,
      tokensPerDay: useIn(TOKENS_PER_DAY, dayNumber).settled,
      // calls.ts does not settle calls of the month: what is taken of them is used.
      callsPerMonth: useIn(CALLS_PER_MONTH, monthNumber).taken,
      tokensPerMonth: useIn(TOKENS_PER_MONTH, monthNumber).settled,
      spendPerDay: useIn(SPEND_PER_DAY, dayNumber).settled,
      spendPerMonth: useIn(SPEND_PER_MONTH, monthNumber).settled,
    };
  }

  /** Counts what was used `ageMs` ago; nothing if limits are shared. Main thread, before the first use. */
  restore(record: number, settled: SettledQuotas, ageMs: number): void {
    const { dayNumber, monthNumber, minuteTokens } = settled;
    const now = { day: this.#today(), month: this.#thisMonth() };
    const set = (quota: QuotaNumber, period: number, amount: number): void =>
      this.#stocks.set(stockAt(record, quota), period, amount, periodOf(quota, now));
    set(TOKENS_PER_DAY, dayNumber, settled.tokensPerDay);
    set(SPEND_PER_DAY, dayNumber, settled.spendPerDay);
    set(CALLS_PER_MONTH, monthNumber, settled.callsPerMonth);
    set(TOKENS_PER_MONTH, monthNumber, settled.tokensPerMonth);
    set(SPEND_PER_MONTH, monthNumber, settled.spendPerMonth);
    this.#window?.set(record, minuteTokens, ageMs);
  }

  /** Forgets the use of a record whose slot belonged to another scope. Main thread. */
  clear(record: number): void {
    for (const [quota] of NUMBERED_QUOTAS) this.#stocks.clear(stockAt(record, quota));
    this.#window?.set(record, 0, 0);
  }

  #useOf(record: number | undefined, quota: QuotaNumber): StockUse & { resetsMs: WallMs | undefined } {
    if (record === undefined) return { taken: 0, settled: 0, resetsMs: undefined };
    if (quota === TOKENS_PER_MINUTE && this.#window !== undefined) {
      const { taken, held } = this.#window.read(record);
      return { taken, settled: taken - held, resetsMs: undefined };
    }
    const period = this.#periodAt(record, quota, this.#clock.wallMs());
    const { taken, settled } = this.#stocks.read(stockAt(record, quota), period?.number ?? 0);
    // As in `settledOf`: calls of the month are not settled.
    return { taken, settled: quota === CALLS_PER_MONTH ? taken : settled, resetsMs: period?.endMs };
  }

  /**
   * The day or month in which the next call counts: a later one than the clock's, if the clock was set back
   * since calls were counted there. Undefined for a quota without a day or month.
   */
  #periodAt(record: number, quota: QuotaNumber, nowMs: WallMs): Period | undefined {
    const stock = stockAt(record, quota);
    const calendar = this.#calendar;
    if ((OF_DAY & (1 << quota)) !== 0)
      return calendar.dayOf(this.#stocks.last(stock, calendar.dayAt(nowMs).number).period, nowMs);
    if ((OF_MONTH & (1 << quota)) !== 0)
      return calendar.monthOf(this.#stocks.last(stock, calendar.monthAt(nowMs).number).period, nowMs);
    return undefined;
  }

  /** The last day or month that was counted, of the quotas in `mask`; 0 if nothing was. */
  #lastPeriodOf(record: number, mask: number, nowMs: WallMs): number {
    let latest = 0;
    for (let bits = mask; bits !== 0; bits &= bits - 1) {
      const quota = lowestQuotaOf(bits);
      // `!`: the quotas of `mask` have a day or a month.
      const { number } = this.#periodAt(record, quota, nowMs)!;
      // A period beyond `number` was a mistake of the clock, and its count is of `number`.
      const { period } = this.#stocks.last(stockAt(record, quota), number);
      latest = Math.max(latest, Math.min(period, number));
    }
    return latest;
  }
}

/** The day or the month that the quota is counted in; NO_PERIOD if it has none. */
export function periodOf(quota: QuotaNumber, { day, month }: Periods): number {
  if ((OF_MONTH & (1 << quota)) !== 0) return month;
  return (OF_DAY & (1 << quota)) !== 0 ? day : NO_PERIOD;
}
