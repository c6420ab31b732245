/**
 * The stock leases of this process: calls of the day, call slots and money. Every ask reports how much is
 * outstanding, and the coordinator adds what it grants. One lease is of one resource of one scope.
 * `LeasedScope` owns it and puts together its asks, and `LeaseManager` sends them. Main thread.
 *
 * Invariant: `reported`, what the coordinator has on record, is never less than what is outstanding. So the
 * coordinator cannot grant an amount twice. It hears with a later ask of what was given back here.
 */
import { asPicoUnits, type AccountIndex, type PicoUnits } from '../core/units.js';
import type { CountedLeases, Leases } from '../ledger/leases.js';
import type { DayAsk, DayGrant, MoneyAsk, MoneyGrant, SlotsAsk, SlotsGrant } from './coordinator.js';
import {
  COVERED_MS,
  type Denial,
  FIRST_BATCH,
  IDLE_MS_PLENTIFUL,
  IDLE_MS_SCARCE,
  IdleFloor,
  isPlentiful,
  lowOf,
  UseRate,
} from './lease-terms.js';

/** What the leases of day, slots and money have in common; `Amount` is calls, slots or pico-units. */
abstract class StockLease<Amount extends number | bigint> {
  /** The coordinator's last refusal; undefined after a grant. Set by `replied`. */
  denial: Denial | undefined;
  /** New waits are refused without an ask until then. Set by `LeasedScope.refuse`. */
  deniedUntilMs = 0;
  /** The coordinator has plenty left, so idle amounts may stay here for longer. */
  protected isPlentiful = false;
  /** What the coordinator has on record of this node. */
  protected reported: Amount;

  constructor(reported: Amount) {
    this.reported = reported;
  }

  /** Granted, and not yet given back or recorded as spent: the next ask reports it. */
  protected abstract get outstanding(): Amount;
  /**
   * Takes what no call uses out of the ledger (`takeBack…`). The coordinator has it back when the next ask
   * reports that less is outstanding.
   */
  abstract giveBack(): void;
  /**
   * Gives back what nobody has used for long enough. Returns true if an ask should be sent now. `LeasedScope`
   * calls it every 250 ms, as long as the coordinator can be reached.
   */
  abstract look(nowMs: number): boolean;
  /** Nothing is held, and the coordinator knows that. */
  abstract get isEmpty(): boolean;

  /** The coordinator has more on record than is outstanding, so there is something to report. */
  protected get isOverreported(): boolean {
    return this.outstanding < this.reported;
  }

  /**
   * Records the reply to an ask that left at `sentMs`. `wanted`: the ask was for more. `reported`: what the
   * coordinator has on record with its grant.
   */
  protected replied(
    { granted, heldByOthers }: { readonly granted: Amount; readonly heldByOthers: boolean },
    wanted: boolean,
    reported: Amount,
    sentMs: number,
  ): void {
    if (wanted) this.denial = granted <= 0 ? { sentMs, heldByOthers } : undefined;
    this.reported = reported;
  }
}

/**
 * The lease of a scope's calls of the day. Calls use them up, so an ask wants as many as the recent rate uses
 * in the next `COVERED_MS`.
 */
export class DayLease<Index extends number> extends StockLease<number> {
  readonly #leases: CountedLeases<Index>;
  /** The account or key, in `#leases`. */
  readonly #index: Index;
  readonly #rate: UseRate;
  #usedMs: number;

  constructor(leases: CountedLeases<Index>, index: Index, nowMs: number) {
    // A scope that has nothing unused is forgotten, and gets a new lease when it is next needed. Its used
    // calls are still outstanding, in the ledger and on the coordinator's record, so the new lease begins
    // with them. Slots and money are forgotten only with nothing outstanding: they begin at 0.
    const { used, unused } = leases.dayHeld(index);
    super(used + unused);
    this.#leases = leases;
    this.#index = index;
    this.#rate = new UseRate(used, nowMs);
    this.#usedMs = nowMs;
  }

  /** Calls left of `dayNumber` or a later day: those left of an earlier day are worth nothing. */
  left(dayNumber: number): number {
    const held = this.#leases.dayHeld(this.#index);
    return held.dayNumber >= dayNumber ? held.unused : 0;
  }

  /**
   * The next ask, if `waiting` calls wait for this lease; undefined if nothing is wanted or to be reported.
   * `low`: the lease runs low, so more is wanted although nobody waits. `today`: the day's number. `all`:
   * report also what the coordinator has on record, because it may have lost it.
   */
  ask(waiting: number, low: boolean, today: number, nowMs: number, all: boolean): DayAsk | undefined {
    const { dayNumber, used, unused } = this.#leases.dayHeld(this.#index);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
    // All are of `dayNumber`, the day that was last granted of.
    const held = { dayNumber, used, unused };
    const usable = this.left(today);
    if (waiting <= usable && !low)
      return all || this.isOverreported ? { ...held, least: 0, most: 0 } : undefined;
    const need = Math.ceil((this.#rate.perSecond * COVERED_MS) / 1_000) - usable;
    return { ...held, least: 1, most: Math.max(waiting, need, FIRST_BATCH) };
  }

  take(grant: DayGrant, ask: DayAsk, sentMs: number, nowMs: number): void {
    const { granted, remaining, dayNumber } = grant;
    // The coordinator counts a new day from 0: nothing of the day before is on its record of this one.
    const former = dayNumber === ask.dayNumber ? ask : { used: 0, unused: 0 };
    this.replied(grant, ask.most > 0, former.used + former.unused + granted, sentMs);
    const unused = former.unused + granted;
    this.isPlentiful = isPlentiful(unused, remaining);
    if (granted === 0) return;
    this.#leases.addDay(this.#index, dayNumber, granted, lowOf(unused, remaining));
    this.#usedMs = nowMs;
  }

  look(nowMs: number): boolean {
    const { used, unused } = this.#leases.dayHeld(this.#index);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
    const idleMs = this.isPlentiful ? IDLE_MS_PLENTIFUL : IDLE_MS_SCARCE;
    if (unused > 0 && nowMs - this.#usedMs >= idleMs) this.giveBack();
    return this.isOverreported;
  }

  giveBack(): void {
    this.#leases.takeBackDay(this.#index);
  }

  /**
   * For `CallsUse`, by its names. `dayUnused`: calls of `dayNumber` that the coordinator counts as used,
   * although no call has used them.
   */
  get unused(): { readonly dayNumber: number; readonly dayUnused: number } {
    const { dayNumber, used } = this.#leases.dayHeld(this.#index);
    return { dayNumber, dayUnused: Math.max(0, this.reported - used) };
  }

  get isEmpty(): boolean {
    return this.#leases.dayHeld(this.#index).unused === 0 && !this.isOverreported;
  }

  protected get outstanding(): number {
    const { used, unused } = this.#leases.dayHeld(this.#index);
    return used + unused;
  }
}

/** The slots that a first ask wants: a client's usual concurrency. */
const FIRST_SLOTS = 8;
/** Slots come back when calls end, so a slot that stayed free for the length of some calls is not needed. */
const IDLE_MS_SLOTS = 8_000;

/**
 * The lease of an account's call slots. Slots that no call has taken for `IDLE_MS_SLOTS`, or `IDLE_MS_SCARCE`
 * if the coordinator has few, are given back.
 */
export class SlotsLease extends StockLease<number> {
  readonly #leases: Leases;
  readonly #account: AccountIndex;
  readonly #idle: IdleFloor<number>;

  constructor(leases: Leases, account: AccountIndex, nowMs: number) {
    super(0);
    this.#leases = leases;
    this.#account = account;
    this.#idle = new IdleFloor(0, nowMs);
  }

  get left(): number {
    return this.outstanding - this.#leases.inFlightOf(this.#account);
  }

  /** As `DayLease.ask`. */
  ask(waiting: number, low: boolean, all: boolean): SlotsAsk | undefined {
    const { outstanding } = this;
    const missing = waiting - this.left;
    if (missing <= 0 && !low)
      return all || this.isOverreported ? { outstanding, least: 0, most: 0 } : undefined;
    // As many again as calls have taken, so that a growing account asks seldom.
    return {
      outstanding,
      least: 1,
      most: Math.max(missing, this.#leases.inFlightOf(this.#account), FIRST_SLOTS),
    };
  }

  take(grant: SlotsGrant, ask: SlotsAsk, sentMs: number, nowMs: number): void {
    this.replied(grant, ask.most > 0, ask.outstanding + grant.granted, sentMs);
    this.isPlentiful = isPlentiful(this.reported, grant.remaining);
    if (grant.granted === 0) return;
    this.#leases.addSlots(this.#account, grant.granted, lowOf(this.reported, grant.remaining));
    this.#idle.restart(nowMs);
  }

  look(nowMs: number): boolean {
    const idle = this.#idle.look(this.left, this.isPlentiful ? IDLE_MS_SLOTS : IDLE_MS_SCARCE, nowMs);
    if (idle > 0) {
      this.#leases.takeBackSlots(this.#account, idle);
      this.#idle.restart(nowMs);
    }
    return this.isOverreported;
  }

  giveBack(): void {
    this.#leases.takeBackSlots(this.#account, this.left);
  }

  get isEmpty(): boolean {
    return this.outstanding === 0 && !this.isOverreported;
  }

  protected get outstanding(): number {
    return this.#leases.slotsHeld(this.#account);
  }
}

/** What a money lease needs to know of charges and their flush. Main thread. */
export interface SpentAccounting {
  /**
   * What this process has charged the account since it started, as far as the store has recorded it as spent.
   */
  flushedOf(account: AccountIndex): PicoUnits;
  /**
   * Charges the account's uncovered charges to what is leased, at most `most`; returns how much. Left out
   * only by tests that have no uncovered charges.
   */
  collect?(account: AccountIndex, most: PicoUnits): PicoUnits;
}

const NOTHING = asPicoUnits(0n);
/** A listener says that money runs low when a quarter of it is left. */
const LOW_PART = 4n;

/**
 * The lease of an account's money. A call gives back the part of its hold that it did not cost, so money
 * comes back. What no call has held for `IDLE_MS_SCARCE`, or `IDLE_MS_PLENTIFUL`, is given back to the
 * coordinator.
 */
export class MoneyLease extends StockLease<bigint> {
  readonly #leases: Leases;
  readonly #account: AccountIndex;
  readonly #accounting: SpentAccounting;
  readonly #idle: IdleFloor<bigint>;
  /** When the last reply came; at first, when the lease was made. */
  #repliedMs: number;
  /** How much of the account's uncovered charges is still to be collected from this lease. */
  #uncovered = 0n;
  /** The largest hold of the calls that waited at the last ask for which any waited. It sizes the asks. */
  #largestHold = 0n;
  /** What the last denial was about: smaller holds may still be granted. `LeasedScope` reads it. */
  deniedPicoUnits = 0n;

  constructor(leases: Leases, account: AccountIndex, accounting: SpentAccounting, nowMs: number) {
    super(0n);
    this.#leases = leases;
    this.#account = account;
    this.#accounting = accounting;
    this.#idle = new IdleFloor(0n, nowMs);
    this.#repliedMs = nowMs;
  }

  get left(): PicoUnits {
    return this.#leases.available(this.#account);
  }

  /** Held by calls, or charged and not in the store yet. */
  get inUse(): PicoUnits {
    return asPicoUnits(this.outstanding - this.left);
  }

  /**
   * Sets how much of the account's uncovered charges is to be collected: at once what is available here, the
   * rest from later grants. 0 ends it.
   */
  setUncovered(amount: PicoUnits): void {
    this.#uncovered = amount;
    this.#collect();
  }

  /**
   * As `DayLease.ask`; `holds` are those of the calls that wait.
   *
   * The sender reads the host's spent total after this ask is made. A charge flushed in between is counted
   * twice until the next ask; the other order could miss it.
   */
  ask(holds: readonly PicoUnits[], low: boolean, all: boolean): MoneyAsk | undefined {
    const { outstanding, left } = this;
    let sum = this.#uncovered;
    let least: bigint | undefined;
    if (holds.length > 0) this.#largestHold = 0n;
    for (const hold of holds) {
      sum += hold;
      if (hold > left && (least === undefined || hold < least)) least = hold;
      if (hold > this.#largestHold) this.#largestHold = hold;
    }
    if (sum <= left && !low)
      return all || this.isOverreported ? { outstanding, least: NOTHING, most: NOTHING } : undefined;
    const missing = least === undefined ? 1n : least - left;
    const ahead = this.#largestHold * BigInt(FIRST_BATCH);
    // What all that waits lacks; some holds for calls to come; as much again as is in use, so that an account
    // that grows asks seldom; and never less than the least.
    const wanted = [sum - left, ahead, outstanding - left, missing];
    const most = wanted.reduce((larger, amount) => (amount > larger ? amount : larger));
    return { outstanding, least: asPicoUnits(missing), most: asPicoUnits(most) };
  }

  take(grant: MoneyGrant, ask: MoneyAsk, sentMs: number, nowMs: number): void {
    const { granted, remaining } = grant;
    this.replied(grant, ask.most > 0n, ask.outstanding + granted, sentMs);
    // A grant leaves this as it is: until `deniedUntilMs` holds of so much are refused, smaller ones not.
    if (ask.most > 0n && granted === 0n) this.deniedPicoUnits = this.left + ask.least;
    this.#repliedMs = nowMs;
    this.isPlentiful = isPlentiful(this.reported, remaining);
    this.#leases.tellMoney(this.#account, remaining);
    if (granted === 0n) return;
    // If the coordinator has no more, running low is not worth an ask.
    const low = remaining === 0n ? NOTHING : asPicoUnits(this.reported / LOW_PART);
    this.#leases.addMoney(this.#account, granted, low);
    this.#collect();
    this.#idle.restart(nowMs);
  }

  look(nowMs: number): boolean {
    const idleMs = this.isPlentiful ? IDLE_MS_PLENTIFUL : IDLE_MS_SCARCE;
    const idle = this.#idle.look(this.left, idleMs, nowMs);
    if (idle > 0n) {
      this.#leases.takeBackMoney(this.#account, asPicoUnits(idle));
      this.#idle.restart(nowMs);
    }
    // Every flush of a charge makes less outstanding, so unlike the other stocks a lease in use nearly always
    // has something to report. It does so once in `idleMs`, and at once if money lay idle or is to be
    // collected.
    const isDue = idle > 0n || nowMs - this.#repliedMs >= idleMs;
    return this.#uncovered > 0n || (isDue && this.isOverreported);
  }

  giveBack(): void {
    this.#leases.takeBackMoney(this.#account, this.left);
  }

  get isEmpty(): boolean {
    return this.outstanding === 0n && !this.isOverreported && this.#uncovered === 0n;
  }

  protected get outstanding(): PicoUnits {
    const granted = this.#leases.moneyGranted(this.#account);
    return asPicoUnits(granted - this.#accounting.flushedOf(this.#account));
  }

  /** Collects uncovered charges from what is available here. */
  #collect(): void {
    if (this.#uncovered === 0n) return;
    this.#uncovered -= this.#accounting.collect?.(this.#account, asPicoUnits(this.#uncovered)) ?? 0n;
  }
}
