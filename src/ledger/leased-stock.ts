/**
 * The money of an account, and the calls of a day, if they are shared with other processes: threads take from
 * what the coordinator granted to this process. counters.ts chooses these classes; the lease manager puts the
 * grants in, by leases.ts. Any thread, unless a method says main thread.
 *
 * `credited` is what was granted less what was given back. So the law of balance.ts holds of this process
 * alone, and what it was granted and has not spent is credited - spent.
 */
import type { Clock } from '../core/clock.js';
import { type AccountIndex, asPicoUnits, type PicoUnits } from '../core/units.js';
import { Balance } from './balance.js';
import { DAY_SHIFT, type DayCalls, dayNumberOf } from './day.js';
import {
  COUNTED_WORDS32,
  COUNTED_WORDS64,
  type CountedViews,
  DAY,
  type LedgerViews,
  GRANTED_DAY,
  LOW_DAY,
  LOW_MONEY,
  MONEY_HELD_BY_OTHERS,
} from './layout.js';

export class LeasedBalance extends Balance {
  readonly #records64: BigInt64Array;
  readonly #onLow: (account: AccountIndex) => void;

  /** `onLow` is called by the thread whose hold leaves less than LOW_MONEY. */
  constructor(views: LedgerViews, onLow: (account: AccountIndex) => void) {
    super(views);
    this.#records64 = views.accounts.records64;
    this.#onLow = onLow;
  }

  override hold(account: AccountIndex, amount: PicoUnits): boolean {
    if (!super.hold(account, amount)) return false;
    const low = Atomics.load(this.#records64, account * COUNTED_WORDS64 + LOW_MONEY);
    const left = super.available(account);
    if (left < low && left + amount >= low) this.#onLow(account);
    return true;
  }

  override balance(account: AccountIndex): PicoUnits {
    const heldByOthers = Atomics.load(this.#records64, account * COUNTED_WORDS64 + MONEY_HELD_BY_OTHERS);
    return asPicoUnits(super.available(account) + heldByOthers);
  }

  /**
   * Does nothing. When the store no longer has the charge, the coordinator may grant the money to any
   * process. Until that flush it counts as held; then `Leases.forgetMoney` takes it out.
   */
  protected override regain(): void {
    return;
  }

  /**
   * Sets all to nothing granted: the coordinator counts what the store knows. Main thread, before the account
   * is first used.
   */
  override set(account: AccountIndex): void {
    const nothing = asPicoUnits(0n);
    super.set(account, nothing, nothing, nothing);
  }
}

/*
 * Calls a day. The number of the day and the calls left share one 64-bit word. The main thread keeps beside
 * it how many calls of that day were ever granted: the difference was used.
 */

/** A lost exchange means that another thread made progress. To lose so many in a row is a bug. */
const TRIES_MAX = 100_000;

export class LeasedDay<Index extends number = AccountIndex> implements DayCalls<Index> {
  readonly #words64: BigInt64Array;
  readonly #words32: Int32Array;
  readonly #clock: Clock;
  readonly #onLow: (counted: Index) => void;

  /** `onLow` is called by the thread whose call leaves only LOW_DAY. */
  constructor(views: CountedViews, clock: Clock, onLow: (counted: Index) => void) {
    this.#words64 = views.records64;
    this.#words32 = views.records32;
    this.#clock = clock;
    this.#onLow = onLow;
  }

  /** Takes a call of today. Returns the number of its day; undefined if none is left here. */
  take(counted: Index): number | undefined {
    const index = counted * COUNTED_WORDS64 + DAY;
    const today = dayNumberOf(this.#clock.wallMs());
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const word = Atomics.load(this.#words64, index);
      const day = Number(word >> DAY_SHIFT);
      const left = Number(BigInt.asUintN(32, word));
      if (today > day || left === 0) return undefined;
      if (Atomics.compareExchange(this.#words64, index, word, word - 1n) !== word) continue;
      if (left - 1 === Atomics.load(this.#words32, counted * COUNTED_WORDS32 + LOW_DAY)) this.#onLow(counted);
      return day;
    }
    throw new Error('invariant broken: a call of the day is taken or refused in bounded tries');
  }

  /** Gives back a call that `take` took from `dayNumber`; does nothing if that day is over. */
  giveBack(counted: Index, dayNumber: number): void {
    const index = counted * COUNTED_WORDS64 + DAY;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const word = Atomics.load(this.#words64, index);
      if (Number(word >> DAY_SHIFT) !== dayNumber) return;
      if (Atomics.compareExchange(this.#words64, index, word, word + 1n) === word) return;
    }
    throw new Error('invariant broken: a call of the day is given back in bounded tries');
  }

  /**
   * The last day of which calls were granted, and those of them that this process has used. Exact on the main
   * thread alone.
   */
  read(counted: Index): { readonly dayNumber: number; readonly dayCalls: number } {
    const first = counted * COUNTED_WORDS64;
    const granted = Atomics.load(this.#words64, first + GRANTED_DAY);
    const left = Atomics.load(this.#words64, first + DAY);
    const dayNumber = Number(granted >> DAY_SHIFT);
    if (Number(left >> DAY_SHIFT) !== dayNumber) return { dayNumber, dayCalls: 0 };
    return { dayNumber, dayCalls: Math.max(0, Number(granted - left)) };
  }

  /**
   * Sets all to nothing granted: the coordinator counts what the store knows. Main thread, before the account
   * is first used.
   */
  set(counted: Index): void {
    const first = counted * COUNTED_WORDS64;
    Atomics.store(this.#words64, first + GRANTED_DAY, 0n);
    Atomics.store(this.#words64, first + DAY, 0n);
  }
}
