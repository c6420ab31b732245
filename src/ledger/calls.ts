/**
 * What calls take from their accounts and keys, and what they give back: calls in flight, calls of the day, holds. Any
 * thread.
 *
 *     admit ──> settle ──> (reverse)      charged, and in rare cases taken back
 *          └──> release                   given back
 */
import { invariant } from '../core/errors.js';
import type { AccountIndex, CallSlot, KeyIndex, PicoUnits } from '../core/units.js';
import type { Balance, Settlement } from './balance.js';
import type { DayCalls } from './day.js';
import type { DirtySet } from './dirty-set.js';
import type { InFlight } from './in-flight.js';
import type { KeyDay, KeyLimits } from './key-limits.js';
import type { LedgerViews } from './layout.js';
import { Reservations } from './reservation.js';

export type Admission =
  | 'admitted'
  | 'too_many_in_flight'
  | 'key_daily_limit_exceeded'
  | 'daily_limit_exceeded'
  | 'insufficient_quota';

/** The call of a day that a call took. */
export interface TakenDay {
  readonly dayNumber: number;
  /** The key whose call of that day it took too. */
  readonly dayKey: KeyIndex | undefined;
}

export interface CallsOptions {
  readonly inFlight: InFlight;
  readonly day: DayCalls<AccountIndex>;
  readonly keys: KeyLimits;
  readonly balance: Balance;
  readonly dirty: DirtySet;
}

export class Calls {
  readonly #inFlight: InFlight;
  readonly #reservations: Reservations;
  readonly #day: DayCalls<AccountIndex>;
  readonly #keys: KeyLimits;
  readonly #balance: Balance;
  readonly #dirty: DirtySet;

  constructor(views: LedgerViews, { inFlight, day, keys, balance, dirty }: CallsOptions) {
    this.#inFlight = inFlight;
    this.#reservations = new Reservations(views);
    this.#day = day;
    this.#keys = keys;
    this.#balance = balance;
    this.#dirty = dirty;
  }

  /** Of an account, now. Any thread. */
  inFlightOf(account: AccountIndex): number {
    return this.#inFlight.of(account);
  }

  /**
   * Takes all that the call needs, or nothing, in this order: a place among the account's calls in flight, a call of the
   * key's day where it has a limit, a call of the account's day, the hold. A refusal gives back what was taken before it:
   * until then another thread may be refused a call that is free a moment later, and none is ever given one too many.
   * Owner of the slot, which is free.
   */
  admit(
    slot: CallSlot,
    account: AccountIndex,
    callsPerDay: number,
    hold: PicoUnits,
    callsInFlightMax: number,
    keyDay: KeyDay | undefined,
  ): Admission {
    invariant(this.#reservations.isFree(slot), `call slot ${slot} is free when a call is admitted into it`);
    if (!this.#inFlight.take(account, callsInFlightMax)) return 'too_many_in_flight';
    const keyDayNumber = keyDay === undefined ? undefined : this.#keys.takeDay(keyDay);
    if (keyDay !== undefined && keyDayNumber === undefined) {
      this.#inFlight.giveBack(account);
      return 'key_daily_limit_exceeded';
    }
    const dayNumber = this.#day.take(account, callsPerDay);
    if (dayNumber === undefined || !this.#balance.hold(account, hold)) {
      if (dayNumber !== undefined) this.#day.giveBack(account, dayNumber);
      if (keyDay !== undefined && keyDayNumber !== undefined) {
        this.#keys.giveBackDay(keyDay.key, keyDayNumber);
      }
      this.#inFlight.giveBack(account);
      return dayNumber === undefined ? 'daily_limit_exceeded' : 'insufficient_quota';
    }
    // Where midnight came between the two, the key's call is of a day that is over: it need not be given back.
    const dayKey = keyDayNumber === dayNumber ? keyDay?.key : undefined;
    this.#reservations.open(slot, account, dayNumber, hold, dayKey);
    this.#dirty.mark(account);
    return 'admitted';
  }

  /** See `Ledger.settle`. */
  settle(slot: CallSlot, cost: PicoUnits): Settlement | undefined {
    if (!this.#reservations.claim(slot)) return undefined;
    const account = this.#reservations.accountOf(slot);
    const settlement = this.#balance.settle(account, this.#reservations.holdOf(slot), cost);
    this.#reservations.close(slot);
    this.#inFlight.giveBack(account);
    this.#dirty.mark(account);
    return settlement;
  }

  dayNumberOf(slot: CallSlot): number {
    return this.#reservations.dayNumberOf(slot);
  }

  dayKeyOf(slot: CallSlot): KeyIndex | undefined {
    return this.#reservations.dayKeyOf(slot);
  }

  /** See `Ledger.reverse`. */
  reverse(account: AccountIndex, day: TakenDay, { charged, uncovered }: Settlement): void {
    this.#balance.reverse(account, charged, uncovered);
    this.#giveBackDay(account, day.dayNumber, day.dayKey);
    this.#dirty.mark(account);
  }

  /** See `Ledger.release`. */
  release(slot: CallSlot): boolean {
    if (!this.#reservations.claim(slot)) return false;
    const account = this.#reservations.accountOf(slot);
    this.#balance.giveBack(account, this.#reservations.holdOf(slot));
    const dayKey = this.#reservations.dayKeyOf(slot);
    this.#giveBackDay(account, this.#reservations.dayNumberOf(slot), dayKey);
    this.#reservations.close(slot);
    this.#inFlight.giveBack(account);
    this.#dirty.mark(account);
    return true;
  }

  #giveBackDay(account: AccountIndex, dayNumber: number, dayKey: KeyIndex | undefined): void {
    this.#day.giveBack(account, dayNumber);
    if (dayKey !== undefined) this.#keys.giveBackDay(dayKey, dayNumber);
  }
}
