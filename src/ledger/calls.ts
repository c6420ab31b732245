/**
 * What calls take from their accounts and keys, and give back: calls in flight, calls of the day, holds.
 * Ledger calls it, for listeners that admit and settle, and for the main thread that releases the calls of a
 * dead listener. Any thread. Each admitted call is settled or released exactly once.
 *
 *     admit ──> settle ──> (reverse)      charged, and in rare cases reversed
 *          └──> release                   given back
 */
import { invariant } from '../core/errors.js';
import {
  type AccountIndex,
  asAccountIndex,
  asKeyIndex,
  asPicoUnits,
  type CallSlot,
  type KeyIndex,
  type PicoUnits,
} from '../core/units.js';
import type { Balance, Settlement } from './balance.js';
import type { DayCalls } from './day.js';
import type { DirtySet } from './dirty-set.js';
import type { KeyDay, KeyLimits } from './key-limits.js';
import {
  ACCOUNT,
  COUNTED_WORDS32,
  DAY_KEY,
  DAY_NUMBER,
  GRANTED_SLOTS,
  HOLD,
  type LedgerViews,
  LOW_SLOTS,
  RESERVATION_WORDS32,
  RESERVATION_WORDS64,
  STATE,
} from './layout.js';

const STATE_FREE = 0;
const STATE_HELD = 1;
const STATE_SETTLING = 2;

/**
 * What each call in flight has taken from its account: one record a call slot.
 *
 *     free ──open──> held ──claim──> settling ──close──> free
 *
 * A slot belongs to one listener, which alone opens it. Claiming is a compare-exchange: if a listener settles
 * a call while the main thread releases it, because it takes the listener for dead, one of them gets the
 * record. The other words are written before the state becomes held, and only who has claimed the record
 * reads them.
 */
export class Reservations {
  readonly #words32: Int32Array;
  readonly #words64: BigInt64Array;

  constructor(views: LedgerViews) {
    this.#words32 = views.reservations32;
    this.#words64 = views.reservations64;
  }

  isFree(slot: CallSlot): boolean {
    return Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + STATE) === STATE_FREE;
  }

  /**
   * Records what a call has taken; `dayKey` is the key of whose day it took a call too. Owner of the slot,
   * which has seen it free.
   */
  open(
    slot: CallSlot,
    account: AccountIndex,
    dayNumber: number,
    hold: PicoUnits,
    dayKey: KeyIndex | undefined,
  ): void {
    const first = slot * RESERVATION_WORDS32;
    Atomics.store(this.#words32, first + ACCOUNT, account);
    Atomics.store(this.#words32, first + DAY_NUMBER, dayNumber);
    Atomics.store(this.#words32, first + DAY_KEY, dayKey === undefined ? 0 : dayKey + 1);
    Atomics.store(this.#words64, slot * RESERVATION_WORDS64 + HOLD, hold);
    Atomics.store(this.#words32, first + STATE, STATE_HELD);
  }

  /** True for exactly one caller. That caller reads the record, charges or gives back, and then closes it. */
  claim(slot: CallSlot): boolean {
    const state = slot * RESERVATION_WORDS32 + STATE;
    return Atomics.compareExchange(this.#words32, state, STATE_HELD, STATE_SETTLING) === STATE_HELD;
  }

  accountOf(slot: CallSlot): AccountIndex {
    return asAccountIndex(Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + ACCOUNT));
  }

  dayNumberOf(slot: CallSlot): number {
    return Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + DAY_NUMBER);
  }

  dayKeyOf(slot: CallSlot): KeyIndex | undefined {
    const word = Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + DAY_KEY);
    return word === 0 ? undefined : asKeyIndex(word - 1);
  }

  holdOf(slot: CallSlot): PicoUnits {
    return asPicoUnits(Atomics.load(this.#words64, slot * RESERVATION_WORDS64 + HOLD));
  }

  close(slot: CallSlot): void {
    Atomics.store(this.#words32, slot * RESERVATION_WORDS32 + STATE, STATE_FREE);
  }
}

/** Counts the calls in flight of accounts, against a limit that comes with each call. */
export class InFlight {
  protected readonly counts: Int32Array;

  constructor(views: LedgerViews) {
    this.counts = views.inFlight;
  }

  of(account: AccountIndex): number {
    return Atomics.load(this.counts, account);
  }

  /**
   * Counts one more call; false, and leaves the count, if it is `callsMax` already. A rejected call is
   * counted for a moment all the same.
   */
  take(account: AccountIndex, callsMax: number): boolean {
    if (Atomics.add(this.counts, account, 1) < callsMax) return true;
    Atomics.sub(this.counts, account, 1);
    return false;
  }

  giveBack(account: AccountIndex): void {
    Atomics.sub(this.counts, account, 1);
  }
}

/**
 * Counts calls in flight against what was granted. It counts the call before it reads the grant, so the main
 * thread that takes a grant back sees every call that uses it.
 */
export class LeasedInFlight extends InFlight {
  readonly #records32: Int32Array;
  readonly #onLow: (account: AccountIndex) => void;

  /** `onLow` is called by the thread whose call leaves only LOW_SLOTS. */
  constructor(views: LedgerViews, onLow: (account: AccountIndex) => void) {
    super(views);
    this.#records32 = views.accounts.records32;
    this.#onLow = onLow;
  }

  override take(account: AccountIndex): boolean {
    const before = Atomics.add(this.counts, account, 1);
    const first = account * COUNTED_WORDS32;
    const left = Atomics.load(this.#records32, first + GRANTED_SLOTS) - before - 1;
    if (left < 0) {
      Atomics.sub(this.counts, account, 1);
      return false;
    }
    if (left === Atomics.load(this.#records32, first + LOW_SLOTS)) this.#onLow(account);
    return true;
  }
}

export type Admission =
  | 'admitted'
  | 'too_many_in_flight'
  | 'key_daily_limit_exceeded'
  | 'daily_limit_exceeded'
  | 'insufficient_quota';

/** The call of a day that an admitted call took. */
export interface TakenDay {
  readonly dayNumber: number;
  /** The key of whose day it took a call too. */
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

  /** The account's calls in flight now. Any thread. */
  inFlightOf(account: AccountIndex): number {
    return this.#inFlight.of(account);
  }

  /**
   * Takes all that the call needs, or nothing, in this order: one of the account's calls in flight, a call of
   * the key's day if it has a limit, a call of the account's day, the hold. A rejection gives back what was
   * taken before it. Until then another thread may be rejected although a moment later it would not be, but
   * no thread ever gets one too many. Owner of the slot, which is free.
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
    // If midnight came between the two, the key's call is of a day that is over, and need not be given back.
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
