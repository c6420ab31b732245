/**
 * The lease of an account's money. Holds come back when calls end for less than they might have cost, so what was never held
 * lately is given back. Main thread.
 */
import { asPicoUnits, type AccountIndex, type PicoUnits } from '../core/units.js';
import type { Leases } from '../ledger/leases.js';
import type { HostSpent, MoneyAsk, MoneyGrant } from './coordinator.js';
import { type Denial, FIRST_BATCH, IDLE_MS_PLENTIFUL, IDLE_MS_SCARCE, IdleFloor } from './lease-terms.js';

/** What the store has of this process's charges. Main thread. */
export interface SpentAccounting {
  /** Of what this life of the process has charged the account, what the store has as spent. */
  flushedOf(account: AccountIndex): PicoUnits;
  /** What all processes of the host have, for an coordinator that does not read the store. */
  hostSpentOf?(account: AccountIndex): HostSpent | undefined;
  /** Charges of what calls have left uncovered at most `most`, as far as the lease goes; returns how much. */
  collect?(account: AccountIndex, most: PicoUnits): PicoUnits;
}

const NOTHING = asPicoUnits(0n);
const LOW_PART = 4n;
/** Plenty is left where the coordinator has so many times what is held here. */
const PLENTIFUL_TIMES = 8n;

export class MoneyLease {
  readonly #leases: Leases;
  readonly #account: AccountIndex;
  readonly #accounting: SpentAccounting;
  readonly #idle: IdleFloor<bigint>;
  #plentiful = false;
  #told = 0n;
  #toldMs: number;
  /** What calls have left uncovered and the lease did not cover yet. */
  #owed = 0n;
  /** The largest hold that waited at the last ask. */
  #holdPicoUnits = 0n;
  denial: Denial | undefined;
  deniedUntilMs = 0;
  /** What `denial` is about: more than this was not there. */
  deniedPicoUnits = 0n;

  constructor(leases: Leases, account: AccountIndex, accounting: SpentAccounting, nowMs: number) {
    this.#leases = leases;
    this.#account = account;
    this.#accounting = accounting;
    this.#idle = new IdleFloor(0n, nowMs);
    this.#toldMs = nowMs;
  }

  get left(): PicoUnits {
    return this.#leases.available(this.#account);
  }

  /** Held by calls, or charged and not in the store yet. */
  get inUse(): PicoUnits {
    return asPicoUnits(this.#outstanding() - this.left);
  }

  /** So much is to be charged beyond all holds: at once as far as the lease goes, and then of what the coordinator lends. */
  owe(amount: PicoUnits): void {
    this.#owed = amount;
    this.#collect();
  }

  /** `holds` of calls that wait, the oldest first; `all`: also what the coordinator knows, should it have forgotten. */
  ask(holds: readonly PicoUnits[], low: boolean, all: boolean): MoneyAsk | undefined {
    // Before what is outstanding is read: a charge is then counted twice for a moment, never not at all.
    const spent = this.#accounting.hostSpentOf?.(this.#account);
    const outstanding = this.#outstanding();
    const report = { outstanding, ...(spent === undefined ? {} : { spent }) };
    const { left } = this;
    let sum: bigint = this.#owed;
    let least: bigint | undefined;
    for (const hold of holds) {
      sum += hold;
      if (hold > left && (least === undefined || hold < least)) least = hold;
      if (hold > this.#holdPicoUnits) this.#holdPicoUnits = hold;
    }
    if (sum <= left && !low) {
      return all || outstanding < this.#told ? { ...report, least: NOTHING, most: NOTHING } : undefined;
    }
    const inUse = outstanding - left;
    const ahead = this.#holdPicoUnits * BigInt(FIRST_BATCH);
    const most = [sum - left, ahead, inUse].reduce((larger, amount) => (amount > larger ? amount : larger));
    const missing = least === undefined ? 1n : least - left;
    return {
      ...report,
      least: asPicoUnits(missing),
      most: asPicoUnits(most > missing ? most : missing),
    };
  }

  take(grant: MoneyGrant, ask: MoneyAsk, sentMs: number, nowMs: number): void {
    if (ask.most > 0n) {
      this.denial = grant.granted === 0n ? { sentMs, heldByOthers: grant.heldByOthers } : undefined;
      // A smaller amount that was granted says nothing of a larger one that was denied before.
      if (grant.granted === 0n) this.deniedPicoUnits = this.left + ask.least;
    }
    this.#told = ask.outstanding + grant.granted;
    this.#toldMs = nowMs;
    this.#plentiful = grant.remaining >= this.#told * PLENTIFUL_TIMES;
    this.#leases.tellMoney(this.#account, grant.remaining);
    if (grant.granted === 0n) return;
    const low = grant.remaining === 0n ? NOTHING : asPicoUnits(this.#told / LOW_PART);
    this.#leases.addMoney(this.#account, grant.granted, low);
    this.#collect();
    this.#idle.restart(nowMs);
  }

  look(nowMs: number): boolean {
    const idleMs = this.#plentiful ? IDLE_MS_PLENTIFUL : IDLE_MS_SCARCE;
    const idle = this.#idle.look(this.left, idleMs, nowMs);
    if (idle > 0n) {
      this.#leases.takeBackMoney(this.#account, asPicoUnits(idle));
      this.#idle.restart(nowMs);
    }
    const isDue = idle > 0n || nowMs - this.#toldMs >= idleMs;
    return this.#owed > 0n || (isDue && this.#isShrunk);
  }

  giveBack(): void {
    this.#leases.takeBackMoney(this.#account, this.left);
  }

  get isEmpty(): boolean {
    return this.#outstanding() === 0n && !this.#isShrunk && this.#owed === 0n;
  }

  get #isShrunk(): boolean {
    return this.#outstanding() < this.#told;
  }

  #collect(): void {
    if (this.#owed > 0n)
      this.#owed -= this.#accounting.collect?.(this.#account, asPicoUnits(this.#owed)) ?? 0n;
  }

  #outstanding(): PicoUnits {
    const granted = this.#leases.moneyGranted(this.#account);
    return asPicoUnits(granted - this.#accounting.flushedOf(this.#account));
  }
}
