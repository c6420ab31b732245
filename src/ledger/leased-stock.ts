/**
 * The money of an account where it is shared with other processes: the words mean what this process was
 * granted. Any thread, but for what says main thread.
 *
 * `credited` is what was granted less what was given back, so the law of balance.ts holds of this process
 * alone, and what it is granted and has not spent is credited - spent.
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

  /** `onLow` is called by whoever takes the hold that leaves little. */
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
   * Not here: as soon as the store has the charge no more, the coordinator lends that money to anybody. Until
   * the flush it is in `held`, and then it is forgotten (`Leases.forgetMoney`).
   */
  protected override regain(): void {
    return;
  }

  /**
   * Nothing is granted: what the store knows of the account, the coordinator counts. Main thread, before the
   * account is first used.
   */
  override set(account: AccountIndex): void {
    const nothing = asPicoUnits(0n);
    super.set(account, nothing, nothing, nothing);
  }
}

/*
 * Calls per day where the limit is shared with other processes: what was granted of a day is taken one by
 * one. Any thread; main-thread writes are in leases.ts.
 *
 * The number of the day and the calls left share one 64-bit word. Beside it the main thread keeps how many of
 * that day were ever granted: what is missing between the two was used.
 */

/** A lost exchange means that another thread got on; to lose this often in a row is a bug, not contention. */
const TRIES_MAX = 100_000;

export class LeasedDay<Index extends number = AccountIndex> implements DayCalls<Index> {
  readonly #words64: BigInt64Array;
  readonly #words32: Int32Array;
  readonly #clock: Clock;
  readonly #onLow: (counted: Index) => void;

  /** `onLow` is called by whoever takes the call that leaves few. */
  constructor(views: CountedViews, clock: Clock, onLow: (counted: Index) => void) {
    this.#words64 = views.records64;
    this.#words32 = views.records32;
    this.#clock = clock;
    this.#onLow = onLow;
  }

  /**
   * Takes a call of today; returns the number of the day it was granted of, undefined if none is left here.
   */
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

  /** The call can be taken again; nothing happens where that day is over. */
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
   * The day that was last granted of and the calls of it that this process has used. Exact in the main thread
   * alone.
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
   * Nothing is granted. What the store knows of the day, the coordinator counts. Main thread, before the
   * account is first used.
   */
  set(counted: Index): void {
    const first = counted * COUNTED_WORDS64;
    Atomics.store(this.#words64, first + GRANTED_DAY, 0n);
    Atomics.store(this.#words64, first + DAY, 0n);
  }
}
