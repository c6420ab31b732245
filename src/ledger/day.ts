/**
 * Calls a day, from 00:00 UTC+8 to the next, of accounts or of keys. Ledger and KeyLimits use DayCounter
 * unless limits are shared. Any thread.
 *
 * The number of the day and its count share one 64-bit word. So the exchange that first writes a new day also
 * starts its count: the day changes once. The day of an account never goes back. If the wall clock is set
 * back over midnight, calls count toward the later day until the clock has caught up, so that no day's limit
 * is given twice. If it is set back by days, the later day was a mistake that would reject calls for as many
 * days: what was counted then counts for today.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { CALLS_PER_DAY_MAX } from '../core/limits.js';
import { asWallMs, type AccountIndex, type WallMs } from '../core/units.js';
import { COUNTED_WORDS64, DAY, type CountedViews } from './layout.js';

const DAY_MS = 86_400_000;
/** UTC+8 has no summer time. */
const ZONE_OFFSET_MS = 8 * 3_600_000;
export const DAY_SHIFT = 32n;

/** A lost exchange means that another thread made progress. To lose so many in a row is a bug. */
const TRIES_MAX = 100_000;

invariant(CALLS_PER_DAY_MAX < 2 ** 32, 'a day of calls fits its half of the word');

/** The number of the day: days since 1970-01-01 in UTC+8. */
export function dayNumberOf(wallMs: WallMs): number {
  return Math.floor((wallMs + ZONE_OFFSET_MS) / DAY_MS);
}

/** When the day after `dayNumber` begins. */
export function endOfDay(dayNumber: number): WallMs {
  return asWallMs((dayNumber + 1) * DAY_MS - ZONE_OFFSET_MS);
}

/**
 * When a scope with no call left, which last called on `dayNumber`, is admitted again: at the end of today,
 * or of `dayNumber` if the clock was set back over midnight.
 */
export function resetOfDay(dayNumber: number, wallMs: WallMs): WallMs {
  const today = dayNumberOf(wallMs);
  return endOfDay(isMistaken(dayNumber, today) ? today : Math.max(dayNumber, today));
}

/** Whether the clock has been set back by days since it showed this day. */
function isMistaken(dayNumber: number, today: number): boolean {
  return dayNumber > today + 1;
}

/** The word of a day and the count of its calls. */
export function dayWordOf(dayNumber: number, calls: number): bigint {
  return (BigInt(dayNumber) << DAY_SHIFT) | BigInt(calls);
}

/**
 * Counts calls of the day: all that this process admits (DayCounter), or those it was granted (LeasedDay).
 */
export interface DayCalls<Index extends number> {
  take(counted: Index, callsPerDay: number): number | undefined;
  giveBack(counted: Index, dayNumber: number): void;
  read(counted: Index): { readonly dayNumber: number; readonly dayCalls: number };
  set(counted: Index, dayNumber: number, dayCalls: number): void;
}

export class DayCounter<Index extends number = AccountIndex> implements DayCalls<Index> {
  readonly #words64: BigInt64Array;
  readonly #clock: Clock;

  constructor(views: CountedViews, clock: Clock) {
    this.#words64 = views.records64;
    this.#clock = clock;
  }

  /**
   * Takes a call of today. Returns the number of the day it was taken from; undefined if `callsPerDay` is
   * reached.
   */
  take(counted: Index, callsPerDay: number): number | undefined {
    const index = counted * COUNTED_WORDS64 + DAY;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const word = Atomics.load(this.#words64, index);
      const day = Number(word >> DAY_SHIFT);
      // Read after the word, so that a clock that never steps back cannot show an earlier day than the word.
      const today = dayNumberOf(this.#clock.wallMs());
      if (today > day) {
        if (callsPerDay < 1) return undefined;
        if (Atomics.compareExchange(this.#words64, index, word, dayWordOf(today, 1)) === word) return today;
        continue;
      }
      const calls = Number(BigInt.asUintN(32, word));
      if (isMistaken(day, today)) {
        Atomics.compareExchange(this.#words64, index, word, dayWordOf(today, calls));
        continue;
      }
      if (calls >= callsPerDay) return undefined;
      if (Atomics.compareExchange(this.#words64, index, word, word + 1n) === word) return day;
    }
    throw new Error('invariant broken: a call of the day is taken or refused in bounded tries');
  }

  /** Gives back a call that `take` took from `dayNumber`; does nothing if that day is over. */
  giveBack(counted: Index, dayNumber: number): void {
    const index = counted * COUNTED_WORDS64 + DAY;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const word = Atomics.load(this.#words64, index);
      if (Number(word >> DAY_SHIFT) !== dayNumber || BigInt.asUintN(32, word) === 0n) return;
      if (Atomics.compareExchange(this.#words64, index, word, word - 1n) === word) return;
    }
    throw new Error('invariant broken: a call of the day is given back in bounded tries');
  }

  /** The last day on which the account was used, and its calls on that day. Any thread. */
  read(counted: Index): { readonly dayNumber: number; readonly dayCalls: number } {
    const word = Atomics.load(this.#words64, counted * COUNTED_WORDS64 + DAY);
    return { dayNumber: Number(word >> DAY_SHIFT), dayCalls: Number(BigInt.asUintN(32, word)) };
  }

  /** Sets day and count. Main thread, before the account is first used. */
  set(counted: Index, dayNumber: number, dayCalls: number): void {
    Atomics.store(this.#words64, counted * COUNTED_WORDS64 + DAY, dayWordOf(dayNumber, dayCalls));
  }
}
