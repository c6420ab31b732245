/**
 * What this process was granted by the coordinator: how it is put into the shared words and taken out again.
 * For accounts and for keys with limits of their own. Main thread.
 */
import { type AccountIndex, asPicoUnits, type KeyIndex, type PicoUnits } from '../core/units.js';
import { DAY_SHIFT, dayWordOf } from './day.js';
import {
  COUNTED_WORDS32,
  COUNTED_WORDS64,
  AVAILABLE,
  CREDITED,
  DAY,
  GRANTED_DAY,
  GRANTED_SLOTS,
  LOW_DAY,
  LOW_MINUTE,
  LOW_MONEY,
  LOW_SLOTS,
  MINUTE_HELD_BY_OTHERS,
  MINUTE_FREE_MS,
  MINUTE_REFUSED_UNTIL_MS,
  MONEY_HELD_BY_OTHERS,
  openLedgerViews,
  SPENT,
  WINDOW,
  type CountedViews,
  type LedgerBuffers,
} from './layout.js';
import { expiryMsOf, grantOf, PERMITS_MAX, permitsOf } from './leased-window.js';

/** A lost exchange means that another thread got on; to lose this often in a row is a bug, not contention. */
const TRIES_MAX = 100_000;

/** Of one day: what was granted is `used` and `unused` together. */
export interface DayHeld {
  readonly dayNumber: number;
  readonly used: number;
  readonly unused: number;
}

/** Minutes and days, of accounts or of keys. */
export class CountedLeases<Index extends number> {
  readonly #words64: BigInt64Array;
  readonly #words32: Int32Array;

  constructor(views: CountedViews) {
    this.#words64 = views.records64;
    this.#words32 = views.records32;
  }

  /** Permits left of the grant, 0 if it has expired; they may be taken the next moment. */
  minuteLeft(counted: Index, nowMs: number): number {
    const grant = Atomics.load(this.#words64, counted * COUNTED_WORDS64 + WINDOW);
    return nowMs < expiryMsOf(grant) ? permitsOf(grant) : 0;
  }

  /**
   * `permits` more, valid until `expiresMs`. Joined to the grant before where that is valid for long enough:
   * all are then valid until the earlier of both. Otherwise in its place: then returns the permits that were
   * left of it. `low`: see `LeasedWindow`.
   */
  addMinute(
    counted: Index,
    expiresMs: number,
    permits: number,
    low: number,
    nowMs: number,
  ): 'joined' | number {
    const index = counted * COUNTED_WORDS64 + WINDOW;
    Atomics.store(this.#words32, counted * COUNTED_WORDS32 + LOW_MINUTE, low);
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const grant = Atomics.load(this.#words64, index);
      const left = permitsOf(grant);
      const earlierMs = Math.min(expiryMsOf(grant), expiresMs);
      const joins = left > 0 && left + permits <= PERMITS_MAX && (earlierMs - nowMs) * 2 >= expiresMs - nowMs;
      const next = joins ? grantOf(earlierMs, left + permits) : grantOf(expiresMs, permits);
      if (Atomics.compareExchange(this.#words64, index, grant, next) === grant)
        return joins ? 'joined' : left;
    }
    throw new Error('invariant broken: a grant is put in place in bounded tries');
  }

  /** Takes the grant out; returns the permits that were left, whether or not it had expired. */
  takeBackMinute(counted: Index): number {
    return permitsOf(Atomics.exchange(this.#words64, counted * COUNTED_WORDS64 + WINDOW, 0n));
  }

  /** Permits left, whether or not they have expired. */
  minuteUnused(counted: Index): number {
    return permitsOf(Atomics.load(this.#words64, counted * COUNTED_WORDS64 + WINDOW));
  }

  /**
   * What the coordinator told of the minute: for the headers of responses, and how long it need not be asked
   * again.
   */
  tellMinute(counted: Index, remaining: number, freeMs: number, refusedUntilMs: number): void {
    const first64 = counted * COUNTED_WORDS64;
    Atomics.store(this.#words32, counted * COUNTED_WORDS32 + MINUTE_HELD_BY_OTHERS, remaining);
    Atomics.store(this.#words64, first64 + MINUTE_FREE_MS, BigInt(Math.ceil(freeMs)));
    Atomics.store(this.#words64, first64 + MINUTE_REFUSED_UNTIL_MS, BigInt(Math.floor(refusedUntilMs)));
  }

  dayHeld(counted: Index): DayHeld {
    const first = counted * COUNTED_WORDS64;
    const granted = Atomics.load(this.#words64, first + GRANTED_DAY);
    const left = Atomics.load(this.#words64, first + DAY);
    const unused = Number(BigInt.asUintN(32, left));
    return {
      dayNumber: Number(granted >> DAY_SHIFT),
      used: Number(BigInt.asUintN(32, granted)) - unused,
      unused,
    };
  }

  /** `calls` more of `dayNumber`; what there was of an earlier day is forgotten with its day. */
  addDay(counted: Index, dayNumber: number, calls: number, low: number): void {
    const first = counted * COUNTED_WORDS64;
    Atomics.store(this.#words32, counted * COUNTED_WORDS32 + LOW_DAY, low);
    const granted = Atomics.load(this.#words64, first + GRANTED_DAY);
    if (Number(granted >> DAY_SHIFT) === dayNumber) {
      Atomics.store(this.#words64, first + GRANTED_DAY, granted + BigInt(calls));
      Atomics.add(this.#words64, first + DAY, BigInt(calls));
    } else {
      Atomics.store(this.#words64, first + GRANTED_DAY, dayWordOf(dayNumber, calls));
      Atomics.store(this.#words64, first + DAY, dayWordOf(dayNumber, calls));
    }
  }

  /** Takes out the calls that are unused; returns how many. */
  takeBackDay(counted: Index): number {
    const first = counted * COUNTED_WORDS64;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const word = Atomics.load(this.#words64, first + DAY);
      const unused = BigInt.asUintN(32, word);
      if (unused === 0n) return 0;
      if (Atomics.compareExchange(this.#words64, first + DAY, word, word - unused) !== word) continue;
      Atomics.sub(this.#words64, first + GRANTED_DAY, unused);
      return Number(unused);
    }
    throw new Error('invariant broken: calls of the day are taken back in bounded tries');
  }
}

export class Leases {
  readonly accounts: CountedLeases<AccountIndex>;
  readonly keys: CountedLeases<KeyIndex>;
  readonly #words64: BigInt64Array;
  readonly #words32: Int32Array;
  readonly #inFlight: Int32Array;

  constructor(buffers: LedgerBuffers) {
    const views = openLedgerViews(buffers);
    this.accounts = new CountedLeases(views.accounts);
    this.keys = new CountedLeases(views.keys);
    this.#words64 = views.accounts.records64;
    this.#words32 = views.accounts.records32;
    this.#inFlight = views.inFlight;
  }

  /** Calls in flight now, those that are just being refused included. */
  inFlightOf(account: AccountIndex): number {
    return Atomics.load(this.#inFlight, account);
  }

  /**
   * Places for calls in flight that this process holds: those it was granted, or those that are taken where
   * these are more.
   */
  slotsHeld(account: AccountIndex): number {
    const granted = Atomics.load(this.#words32, account * COUNTED_WORDS32 + GRANTED_SLOTS);
    return Math.max(granted, this.inFlightOf(account));
  }

  addSlots(account: AccountIndex, slots: number, low: number): void {
    const first = account * COUNTED_WORDS32;
    Atomics.store(this.#words32, first + LOW_SLOTS, low);
    Atomics.add(this.#words32, first + GRANTED_SLOTS, slots);
  }

  /** Takes out places, down to those that are taken. */
  takeBackSlots(account: AccountIndex, slots: number): void {
    const index = account * COUNTED_WORDS32 + GRANTED_SLOTS;
    const granted = Atomics.load(this.#words32, index);
    Atomics.store(this.#words32, index, Math.max(this.inFlightOf(account), granted - slots));
  }

  /** Money that was granted and is not spent: held by calls included. */
  moneyHeld(account: AccountIndex): PicoUnits {
    const first = account * COUNTED_WORDS64;
    return asPicoUnits(
      Atomics.load(this.#words64, first + CREDITED) - Atomics.load(this.#words64, first + SPENT),
    );
  }

  /** Money ever granted, less what was given back. */
  moneyGranted(account: AccountIndex): PicoUnits {
    return asPicoUnits(Atomics.load(this.#words64, account * COUNTED_WORDS64 + CREDITED));
  }

  available(account: AccountIndex): PicoUnits {
    return asPicoUnits(Atomics.load(this.#words64, account * COUNTED_WORDS64 + AVAILABLE));
  }

  addMoney(account: AccountIndex, amount: PicoUnits, low: PicoUnits): void {
    const first = account * COUNTED_WORDS64;
    Atomics.store(this.#words64, first + LOW_MONEY, low);
    Atomics.add(this.#words64, first + CREDITED, amount);
    Atomics.add(this.#words64, first + AVAILABLE, amount);
  }

  /** The store has no more what was charged of a lease, and then taken back: it is the coordinator's. */
  forgetMoney(account: AccountIndex, amount: PicoUnits): void {
    Atomics.sub(this.#words64, account * COUNTED_WORDS64 + CREDITED, amount);
  }

  /** What the coordinator told to have left of the account's money. */
  tellMoney(account: AccountIndex, remaining: PicoUnits): void {
    Atomics.store(this.#words64, account * COUNTED_WORDS64 + MONEY_HELD_BY_OTHERS, remaining);
  }

  /** Takes out at most `amount` of what is available; returns how much. */
  takeBackMoney(account: AccountIndex, amount: PicoUnits): PicoUnits {
    const first = account * COUNTED_WORDS64;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const available = Atomics.load(this.#words64, first + AVAILABLE);
      const taken = available < amount ? available : amount;
      if (taken <= 0n) return asPicoUnits(0n);
      if (
        Atomics.compareExchange(this.#words64, first + AVAILABLE, available, available - taken) !== available
      ) {
        continue;
      }
      Atomics.sub(this.#words64, first + CREDITED, taken);
      // The coordinator has it with the next exchange: who is told of the balance meanwhile is told of it.
      Atomics.add(this.#words64, first + MONEY_HELD_BY_OTHERS, taken);
      return asPicoUnits(taken);
    }
    throw new Error('invariant broken: money is taken back in bounded tries');
  }
}
