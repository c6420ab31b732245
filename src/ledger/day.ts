/**
 * Calls a day, from 00:00 UTC+8 to the next, of accounts, keys, groups and rules for models. Ledger, `Calls`
 * and LimitedScopes use it; stocks.ts says how a stock is counted when the day changes or the clock is set
 * back. Any thread.
 *
 * Must hold: a day begins at zero once, at 00:00 UTC+8; a call is given back to its own day alone. Further
 * test: test/unit/ledger/day.leased-day.test.ts.
 */
import type { Clock } from '../core/clock.js';
import { asWallMs, type WallMs } from '../core/units.js';
import { type CountedViews, dayAt } from './layout.js';
import { PERIODS_AHEAD_MAX, Stocks } from './stocks.js';

const DAY_MS = 86_400_000;
/** Ms by which UTC+8 is ahead of UTC: it has no summer time. sharing/valkey-lua.ts builds it into scripts. */
export const ZONE_OFFSET_MS = 8 * 3_600_000;

/** The last day with a call, in days since 1970-01-01 UTC+8, and the calls on that day. */
export interface DayCount {
  readonly dayNumber: number;
  readonly dayCalls: number;
}

/** The number of the day: days since 1970-01-01 in UTC+8. */
export function dayNumberOf(wallMs: WallMs): number {
  return Math.floor((wallMs + ZONE_OFFSET_MS) / DAY_MS);
}

/** When the day after `dayNumber` begins. */
export function endOfDay(dayNumber: number): WallMs {
  return asWallMs((dayNumber + 1) * DAY_MS - ZONE_OFFSET_MS);
}

/**
 * When a scope with no call left, which was last used on `dayNumber`, is admitted again: at the end of today,
 * or of `dayNumber` if the clock was set back over midnight. A day further ahead was a mistake of the clock,
 * which the next take corrects.
 */
export function resetOfDay(dayNumber: number, wallMs: WallMs): WallMs {
  const today = dayNumberOf(wallMs);
  return endOfDay(dayNumber > today + PERIODS_AHEAD_MAX ? today : Math.max(dayNumber, today));
}

/** Counts the days of scopes of one kind. `scope` is the index of an account, key, group or rule. */
export class DayCounter {
  readonly #stocks: Stocks;
  readonly #clock: Clock;
  readonly #onLow: (scope: number) => void;
  readonly #today = (): number => dayNumberOf(this.#clock.wallMs());

  /** If limits are shared, `stocks` are leased, and `take` calls `onLow` if it leaves few calls. */
  constructor(
    views: CountedViews,
    clock: Clock,
    stocks = new Stocks(views.records64, { hasSettled: false }),
    onLow: (scope: number) => void = () => undefined,
  ) {
    this.#stocks = stocks;
    this.#clock = clock;
    this.#onLow = onLow;
  }

  /** How many calls the last `take` left of its day, as far as this process knows. */
  get left(): number {
    return this.#stocks.left;
  }

  /** Takes a call of today. Returns the number of the day that counts the call; undefined if none is left. */
  take(scope: number, callsPerDay: number, nowMs = this.#clock.wallMs()): number | undefined {
    const stocks = this.#stocks;
    const day = stocks.take(dayAt(scope), dayNumberOf(nowMs), 1, callsPerDay, this.#today);
    if (stocks.takeRanLow()) this.#onLow(scope);
    return day;
  }

  /** Gives back a call that `take` took from `dayNumber`, once; does nothing if that day is over. */
  giveBack(scope: number, dayNumber: number): void {
    this.#stocks.settle(dayAt(scope), dayNumber, 1, 0);
  }

  /** The last day on which the scope was used, and its calls on that day. Any thread. */
  read(scope: number): DayCount {
    const { period, taken } = this.#stocks.last(dayAt(scope), this.#today());
    return { dayNumber: period, dayCalls: taken };
  }

  /** Calls that are left of the day of that number, as far as this process knows. Any thread. */
  leftOf(scope: number, dayNumber: number, callsPerDay: number): number {
    return this.#stocks.leftOf(dayAt(scope), dayNumber, callsPerDay).left;
  }

  /** Sets day and count, unless limits are shared. Main thread, before the scope is first used. */
  set(scope: number, dayNumber: number, dayCalls: number): void {
    // A leased stock is only cleared, because `set` does nothing there.
    this.#stocks.clear(dayAt(scope));
    this.#stocks.set(dayAt(scope), dayNumber, dayCalls, this.#today());
  }
}
