/**
 * What this process leases by state: calls of the day, call slots, and money. Every ask says what the process
 * holds, and the coordinator adds what it grants. One lease is of one resource of one scope; `LeasedScope`
 * owns it and sends its asks. Main thread.
 *
 * Invariant: `reported`, what the coordinator has on record, is never less than what is held. The coordinator
 * can therefore not grant an amount twice, and hears later of what was given back here.
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
  /** The coordinator's last refusal; undefined after a grant. */
  denial: Denial | undefined;
  /** New waits are refused without an ask until then. */
  deniedUntilMs = 0;
  /** The coordinator has plenty left, so idle amounts may stay here for longer. */
  protected isPlentiful = false;
  /** What the coordinator has on record of this node. */
  protected reported: Amount;

  constructor(reported: Amount) {
    this.reported = reported;
  }

  /** What the next ask will say that this node holds. */
  protected abstract get outstanding(): Amount;
  /** Gives back what no call uses. */
  abstract giveBack(): void;
  /** Gives back what was idle for long enough; returns true if the coordinator should hear of it now. */
  abstract look(nowMs: number): boolean;
  /** Nothing is held, and the coordinator knows that. */
  abstract get isEmpty(): boolean;

  /** The coordinator has more on record than is held. */
  protected get isShrunk(): boolean {
    return this.outstanding < this.reported;
  }

  /** Takes note of a reply to an ask that left at `sentMs`; `wanted`: it asked for more. */
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

/** The lease of a scope's calls of the day. Calls use them up, so the lease covers the lately used rate. */
export class DayLease<Index extends number> extends StockLease<number> {
  readonly #leases: CountedLeases<Index>;
  readonly #counted: Index;
  readonly #rate: UseRate;
  #usedMs: number;

  constructor(leases: CountedLeases<Index>, counted: Index, nowMs: number) {
    const { used, unused } = leases.dayHeld(counted);
    super(used + unused);
    this.#leases = leases;
    this.#counted = counted;
    this.#rate = new UseRate(used, nowMs);
    this.#usedMs = nowMs;
  }

  /** Calls left, of `dayNumber` or a later day. */
  left(dayNumber: number): number {
    const held = this.#leases.dayHeld(this.#counted);
    return held.dayNumber >= dayNumber ? held.unused : 0;
  }

  /** What to say for `waiting` calls, undefined if nothing. `all`: also what the coordinator knows. */
  ask(waiting: number, low: boolean, nowMs: number, all: boolean): DayAsk | undefined {
    const { dayNumber, used, unused } = this.#leases.dayHeld(this.#counted);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
    const held = { dayNumber, used, unused };
    if (waiting <= unused && !low) return all || this.isShrunk ? { ...held, least: 0, most: 0 } : undefined;
    const need = Math.ceil((this.#rate.perSecond * COVERED_MS) / 1_000) - unused;
    return { ...held, least: 1, most: Math.max(waiting, need, FIRST_BATCH) };
  }

  take(grant: DayGrant, ask: DayAsk, sentMs: number, nowMs: number): void {
    const { granted, remaining, dayNumber } = grant;
    const before = dayNumber === ask.dayNumber ? ask.used + ask.unused : 0;
    this.replied(grant, ask.most > 0, before + granted, sentMs);
    const unused = ask.unused + granted;
    this.isPlentiful = isPlentiful(unused, remaining);
    if (granted === 0) return;
    this.#leases.addDay(this.#counted, dayNumber, granted, lowOf(unused, remaining));
    this.#usedMs = nowMs;
  }

  look(nowMs: number): boolean {
    const { used, unused } = this.#leases.dayHeld(this.#counted);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
    const idleMs = this.isPlentiful ? IDLE_MS_PLENTIFUL : IDLE_MS_SCARCE;
    if (unused > 0 && nowMs - this.#usedMs >= idleMs) this.giveBack();
    return this.isShrunk;
  }

  giveBack(): void {
    this.#leases.takeBackDay(this.#counted);
  }

  /** Calls that the coordinator counts as used, although no call has used them. */
  get unused(): { readonly dayNumber: number; readonly dayUnused: number } {
    const { dayNumber, used } = this.#leases.dayHeld(this.#counted);
    return { dayNumber, dayUnused: Math.max(0, this.reported - used) };
  }

  get isEmpty(): boolean {
    return this.#leases.dayHeld(this.#counted).unused === 0 && !this.isShrunk;
  }

  protected get outstanding(): number {
    const { used, unused } = this.#leases.dayHeld(this.#counted);
    return used + unused;
  }
}

/** The slots that a first ask wants: a client's usual concurrency. */
const FIRST_SLOTS = 8;
/** Slots come back when calls end, so a slot that stayed free for the length of some calls is not needed. */
const IDLE_MS_SLOTS = 8_000;

/** The lease of an account's call slots. Slots that were never taken lately are given back. */
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

  /** What to say for `waiting` calls, undefined if nothing. `all`: also what the coordinator knows. */
  ask(waiting: number, low: boolean, all: boolean): SlotsAsk | undefined {
    const { outstanding } = this;
    const missing = waiting - this.left;
    if (missing <= 0 && !low) return all || this.isShrunk ? { outstanding, least: 0, most: 0 } : undefined;
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
    return this.isShrunk;
  }

  giveBack(): void {
    this.#leases.takeBackSlots(this.#account, this.left);
  }

  get isEmpty(): boolean {
    return this.outstanding === 0 && !this.isShrunk;
  }

  protected get outstanding(): number {
    return this.#leases.slotsHeld(this.#account);
  }
}

/** What the store has of this process's charges. Main thread. */
export interface SpentAccounting {
  /** Of what this life of the process has charged the account, what the store has as spent. */
  flushedOf(account: AccountIndex): PicoUnits;
  /** Collects at most `most` of the uncovered charges, as far as the lease goes; returns how much. */
  collect?(account: AccountIndex, most: PicoUnits): PicoUnits;
}

const NOTHING = asPicoUnits(0n);
/** A listener says that money runs low when a quarter of it is left. */
const LOW_PART = 4n;

/**
 * The lease of an account's money. Holds come back when calls cost less than they might have, so money that
 * no call held lately is given back.
 */
export class MoneyLease extends StockLease<bigint> {
  readonly #leases: Leases;
  readonly #account: AccountIndex;
  readonly #accounting: SpentAccounting;
  readonly #idle: IdleFloor<bigint>;
  #repliedMs: number;
  /** Uncovered charges of calls that are to be collected from this lease. */
  #uncovered = 0n;
  /** The largest hold that waited when calls last waited. */
  #holdPicoUnits = 0n;
  /** `denial` says that so much was not there; a smaller hold may still be granted. */
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

  /** Sets what is to be collected, now as far as the lease goes and then from later grants; 0 ends that. */
  setUncovered(amount: PicoUnits): void {
    this.#uncovered = amount;
    this.#collect();
  }

  /**
   * What to say; undefined if there is nothing to say. `holds` are those of calls that wait, `all`: also what
   * the coordinator knows already.
   *
   * Whoever carries the ask reads what the host has spent after this, see `MoneyAsk`: a charge that is
   * flushed in between is counted twice until the next ask, and never not at all.
   */
  ask(holds: readonly PicoUnits[], low: boolean, all: boolean): MoneyAsk | undefined {
    const { outstanding, left } = this;
    let sum = this.#uncovered;
    let least: bigint | undefined;
    if (holds.length > 0) this.#holdPicoUnits = 0n;
    for (const hold of holds) {
      sum += hold;
      if (hold > left && (least === undefined || hold < least)) least = hold;
      if (hold > this.#holdPicoUnits) this.#holdPicoUnits = hold;
    }
    if (sum <= left && !low)
      return all || this.isShrunk ? { outstanding, least: NOTHING, most: NOTHING } : undefined;
    const missing = least === undefined ? 1n : least - left;
    const ahead = this.#holdPicoUnits * BigInt(FIRST_BATCH);
    const wanted = [sum - left, ahead, outstanding - left, missing];
    const most = wanted.reduce((larger, amount) => (amount > larger ? amount : larger));
    return { outstanding, least: asPicoUnits(missing), most: asPicoUnits(most) };
  }

  take(grant: MoneyGrant, ask: MoneyAsk, sentMs: number, nowMs: number): void {
    const { granted, remaining } = grant;
    this.replied(grant, ask.most > 0n, ask.outstanding + granted, sentMs);
    // After a small grant, a larger amount that was denied before is still known to be missing.
    if (ask.most > 0n && granted === 0n) this.deniedPicoUnits = this.left + ask.least;
    this.#repliedMs = nowMs;
    this.isPlentiful = isPlentiful(this.reported, remaining);
    this.#leases.tellMoney(this.#account, remaining);
    if (granted === 0n) return;
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
    const isDue = idle > 0n || nowMs - this.#repliedMs >= idleMs;
    return this.#uncovered > 0n || (isDue && this.isShrunk);
  }

  giveBack(): void {
    this.#leases.takeBackMoney(this.#account, this.left);
  }

  get isEmpty(): boolean {
    return this.outstanding === 0n && !this.isShrunk && this.#uncovered === 0n;
  }

  protected get outstanding(): PicoUnits {
    const granted = this.#leases.moneyGranted(this.#account);
    return asPicoUnits(granted - this.#accounting.flushedOf(this.#account));
  }

  #collect(): void {
    if (this.#uncovered === 0n) return;
    this.#uncovered -= this.#accounting.collect?.(this.#account, asPicoUnits(this.#uncovered)) ?? 0n;
  }
}
