/**
 * The ledger: limits and money of all accounts, in shared buffers that every listener and the main thread open. Each
 * thread has a Ledger of its own over the same buffers. Nothing here waits, and nothing on a request's path allocates
 * but the bigints themselves.
 *
 * Objects that `takeMinute` and `settle` return are overwritten by the next call on the same Ledger: read them at once.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { CALLS_IN_FLIGHT_MAX } from '../core/limits.js';
import { asCallSlot, type AccountIndex, type CallSlot, type PicoUnits, type WallMs } from '../core/units.js';
import { Balance, type Funds, type Settlement } from './balance.js';
import { DayCounter, dayNumberOf, endOfDay } from './day.js';
import { DirtySet } from './dirty-set.js';
import { ACCOUNT_WORDS32, openLedgerViews, STANDING, type LedgerBuffers } from './layout.js';
import { Reservations } from './reservation.js';
import { Window, type MinuteTake } from './window.js';

export type Admission = 'admitted' | 'too_many_in_flight' | 'daily_limit_exceeded' | 'insufficient_quota';

/** What the store knows of an account when it is opened. What is held is not kept: a restart releases it. */
export interface AccountState {
  readonly credited: PicoUnits;
  readonly spent: PicoUnits;
  readonly uncovered: PicoUnits;
  /** The last day the account was used, in days since 1970-01-01 UTC+8, and its calls on that day. */
  readonly dayNumber: number;
  readonly dayCalls: number;
  readonly planIndex: number;
  readonly active: boolean;
}

export interface AccountSnapshot extends Funds {
  /** Permits that weigh in the current minute. */
  readonly minuteUsed: number;
  /** The last day the account was used and its calls on that day: today's only where the number is today's. */
  readonly dayNumber: number;
  readonly dayCalls: number;
}

export class Ledger {
  readonly #accountsMax: number;
  readonly #standing: Int32Array;
  readonly #clock: Clock;
  readonly #window: Window;
  readonly #day: DayCounter;
  readonly #balance: Balance;
  readonly #reservations: Reservations;
  readonly #inFlight: Int32Array;
  readonly #dirty: DirtySet;

  constructor(buffers: LedgerBuffers, clock: Clock) {
    const views = openLedgerViews(buffers);
    this.#accountsMax = buffers.accountsMax;
    this.#standing = views.accounts32;
    this.#clock = clock;
    this.#window = new Window(views, clock);
    this.#day = new DayCounter(views, clock);
    this.#balance = new Balance(views);
    this.#reservations = new Reservations(views);
    this.#inFlight = views.inFlight;
    this.#dirty = new DirtySet(views);
  }

  /** Takes one request of the minute, or nothing; see `Window.take`. Any thread. */
  takeMinute(account: AccountIndex, requestsPerMinute: number): MinuteTake {
    return this.#window.take(account, requestsPerMinute);
  }

  /**
   * Takes a call of the day and a hold, or nothing at all, and records both in `slot`, which must be free. The account's
   * calls in flight are looked at first, then the daily limit. Owner of the slot.
   */
  admit(
    slot: CallSlot,
    account: AccountIndex,
    callsPerDay: number,
    hold: PicoUnits,
    callsInFlightMax = CALLS_IN_FLIGHT_MAX,
  ): Admission {
    invariant(this.#reservations.isFree(slot), `call slot ${slot} is free when a call is admitted into it`);
    if (Atomics.add(this.#inFlight, account, 1) >= callsInFlightMax) {
      Atomics.sub(this.#inFlight, account, 1);
      return 'too_many_in_flight';
    }
    const dayNumber = this.#day.take(account, callsPerDay);
    if (dayNumber === undefined) {
      Atomics.sub(this.#inFlight, account, 1);
      return 'daily_limit_exceeded';
    }
    if (!this.#balance.hold(account, hold)) {
      this.#day.giveBack(account, dayNumber);
      Atomics.sub(this.#inFlight, account, 1);
      return 'insufficient_quota';
    }
    this.#reservations.open(slot, account, dayNumber, hold);
    this.#dirty.mark(account);
    return 'admitted';
  }

  /**
   * Charges `cost` for the call in `slot` and frees the slot; undefined where it was settled or released before. The
   * balance never goes below zero: what it does not cover is told, and recorded. Any thread.
   */
  settle(slot: CallSlot, cost: PicoUnits): Settlement | undefined {
    if (!this.#reservations.claim(slot)) return undefined;
    const account = this.#reservations.accountOf(slot);
    const settlement = this.#balance.settle(account, this.#reservations.holdOf(slot), cost);
    this.#reservations.close(slot);
    Atomics.sub(this.#inFlight, account, 1);
    this.#dirty.mark(account);
    return settlement;
  }

  /** The day whose call is in `slot`, which is held. Owner of the slot. */
  dayNumberOf(slot: CallSlot): number {
    return this.#reservations.dayNumberOf(slot);
  }

  /** Takes back what `settle` did, and gives back the call of the day: the answer could not be given after all. Any thread. */
  reverse(account: AccountIndex, dayNumber: number, { charged, uncovered }: Settlement): void {
    this.#balance.reverse(account, charged, uncovered);
    this.#day.giveBack(account, dayNumber);
    this.#dirty.mark(account);
  }

  /** Gives back hold and call of the day, and frees the slot; false where it was settled or released before. Any thread. */
  release(slot: CallSlot): boolean {
    if (!this.#reservations.claim(slot)) return false;
    const account = this.#reservations.accountOf(slot);
    this.#balance.giveBack(account, this.#reservations.holdOf(slot));
    this.#day.giveBack(account, this.#reservations.dayNumberOf(slot));
    this.#reservations.close(slot);
    Atomics.sub(this.#inFlight, account, 1);
    this.#dirty.mark(account);
    return true;
  }

  /** What a hold could take now. Any thread. */
  available(account: AccountIndex): PicoUnits {
    return this.#balance.available(account);
  }

  planIndexOf(account: AccountIndex): number {
    return Atomics.load(this.#standing, account * ACCOUNT_WORDS32 + STANDING) >>> 1;
  }

  /** False too for an account that was never opened. Any thread. */
  isActive(account: AccountIndex): boolean {
    return (Atomics.load(this.#standing, account * ACCOUNT_WORDS32 + STANDING) & 1) === 1;
  }

  /** Sets all words of an account that no thread uses yet. Does not mark it: the store has it. Main thread. */
  openAccount(account: AccountIndex, initial: AccountState): void {
    invariant(account >= 0 && account < this.#accountsMax, `account ${account} is within the ledger`);
    this.#window.clear(account);
    this.#day.set(account, initial.dayNumber, initial.dayCalls);
    this.#balance.set(account, initial.credited, initial.spent, initial.uncovered);
    this.#setStanding(account, initial.planIndex, initial.active);
  }

  /** After `openAccount`: the minute that ended `ageMs` ago counts `used` requests; see `Window.restore`. Main thread. */
  restoreMinute(account: AccountIndex, used: number, ageMs: number): void {
    this.#window.restore(account, used, ageMs);
  }

  /** Main thread; the data plane reads it from the next request on. */
  setPlan(account: AccountIndex, planIndex: number): void {
    this.#setStanding(account, planIndex, this.isActive(account));
  }

  /** Main thread; the data plane reads it from the next request on. */
  setActive(account: AccountIndex, active: boolean): void {
    this.#setStanding(account, this.planIndexOf(account), active);
  }

  /** Puts money in, or takes it out down to zero; false, and nothing is changed, where that cannot be. Main thread. */
  credit(account: AccountIndex, amount: PicoUnits): boolean {
    const done = this.#balance.credit(account, amount);
    if (done) this.#dirty.mark(account);
    return done;
  }

  /** Permits that weigh in the current minute. Any thread. */
  minuteUsedOf(account: AccountIndex): number {
    return this.#window.usedOf(account);
  }

  /** The last day the account was used and its calls on that day. Any thread. */
  dayOf(account: AccountIndex): { readonly dayNumber: number; readonly dayCalls: number } {
    return this.#day.read(account);
  }

  /** Main thread. */
  snapshot(account: AccountIndex): AccountSnapshot {
    return {
      ...this.#balance.read(account),
      ...this.#day.read(account),
      minuteUsed: this.#window.usedOf(account),
    };
  }

  /**
   * Releases what the calls in `count` slots from `first` hold: their listener has died. Returns how many were released.
   * Each is released or settled once, whoever else still has hands on it. Main thread.
   */
  releaseSlots(first: CallSlot, count: number): number {
    let released = 0;
    for (let slot: number = first; slot < first + count; slot++) {
      if (this.release(asCallSlot(slot))) released++;
    }
    return released;
  }

  /**
   * Visits accounts whose money, day count or minute has changed since they were last visited, at most `max`; returns how many.
   * A change made meanwhile is seen by who then reads the account, or comes with the next drain, or both. Main thread.
   */
  drainDirty(visit: (account: AccountIndex) => void, max: number): number {
    return this.#dirty.drain(visit, max);
  }

  /** The next 00:00 UTC+8. Any thread. */
  nextResetOfDay(): WallMs {
    return endOfDay(dayNumberOf(this.#clock.wallMs()));
  }

  #setStanding(account: AccountIndex, planIndex: number, active: boolean): void {
    const standing = (planIndex << 1) | (active ? 1 : 0);
    Atomics.store(this.#standing, account * ACCOUNT_WORDS32 + STANDING, standing);
  }
}
