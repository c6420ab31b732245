/**
 * The lease of a scope's calls of the day. Main thread.
 */
import type { AccountIndex } from '../core/units.js';
import type { CountedLeases, Leases } from '../ledger/leases.js';
import type { DayAsk, DayGrant, SlotsAsk, SlotsGrant } from './coordinator.js';
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

export class DayLease<Index extends number> {
  readonly #leases: CountedLeases<Index>;
  readonly #counted: Index;
  readonly #rate: UseRate;
  #usedMs: number;
  #plentiful = false;
  /** What the coordinator has on record of this node. */
  #told = 0;
  denial: Denial | undefined;
  deniedUntilMs = 0;

  constructor(leases: CountedLeases<Index>, counted: Index, nowMs: number) {
    this.#leases = leases;
    this.#counted = counted;
    const { used, unused } = leases.dayHeld(counted);
    this.#rate = new UseRate(used, nowMs);
    this.#usedMs = nowMs;
    this.#told = used + unused;
  }

  /** Calls left, of `dayNumber` or a later day. */
  left(dayNumber: number): number {
    const held = this.#leases.dayHeld(this.#counted);
    return held.dayNumber >= dayNumber ? held.unused : 0;
  }

  /** `all`: also what the coordinator knows, should it have forgotten. */
  ask(waiting: number, low: boolean, nowMs: number, all: boolean): DayAsk | undefined {
    const { dayNumber, used, unused } = this.#leases.dayHeld(this.#counted);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
    const held = { dayNumber, used, unused };
    if (waiting <= unused && !low) {
      const isDue = all || used + unused < this.#told;
      return isDue ? { ...held, least: 0, most: 0 } : undefined;
    }
    const need = Math.ceil((this.#rate.perSecond * COVERED_MS) / 1_000) - unused;
    return { ...held, least: 1, most: Math.max(waiting, need, FIRST_BATCH) };
  }

  take(grant: DayGrant, ask: DayAsk, sentMs: number, nowMs: number): void {
    const asked = ask.most > 0;
    if (asked) this.denial = grant.granted === 0 ? { sentMs, heldByOthers: grant.heldByOthers } : undefined;
    const before = grant.dayNumber === ask.dayNumber ? ask.used + ask.unused : 0;
    this.#told = before + grant.granted;
    const unused = ask.unused + grant.granted;
    this.#plentiful = isPlentiful(unused, grant.remaining);
    if (grant.granted === 0) return;
    this.#leases.addDay(this.#counted, grant.dayNumber, grant.granted, lowOf(unused, grant.remaining));
    this.#usedMs = nowMs;
  }

  look(nowMs: number): boolean {
    const { used, unused } = this.#leases.dayHeld(this.#counted);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
    const idleMs = this.#plentiful ? IDLE_MS_PLENTIFUL : IDLE_MS_SCARCE;
    if (unused > 0 && nowMs - this.#usedMs >= idleMs) this.giveBack();
    return this.#isShrunk;
  }

  giveBack(): void {
    this.#leases.takeBackDay(this.#counted);
  }

  /** What the coordinator counts as used of that day, and nobody has. */
  get unused(): { readonly dayNumber: number; readonly dayUnused: number } {
    const { dayNumber, used } = this.#leases.dayHeld(this.#counted);
    return { dayNumber, dayUnused: Math.max(0, this.#told - used) };
  }

  get isEmpty(): boolean {
    return this.#leases.dayHeld(this.#counted).unused === 0 && !this.#isShrunk;
  }

  /** The coordinator has more on record than is held. */
  get #isShrunk(): boolean {
    const { used, unused } = this.#leases.dayHeld(this.#counted);
    return used + unused < this.#told;
  }
}

/*
 * The lease of an account's places for calls in flight. They come back when calls end, so what was never taken lately is given
 * back. Main thread.
 */

/** What a first ask wants: a client's usual concurrency. */
const FIRST_SLOTS = 8;
/** Places come back by themselves, so what was free for the length of some calls is not needed. */
const IDLE_MS_SLOTS = 8_000;

export class SlotsLease {
  readonly #leases: Leases;
  readonly #account: AccountIndex;
  readonly #idle: IdleFloor<number>;
  #plentiful = false;
  #told = 0;
  denial: Denial | undefined;
  deniedUntilMs = 0;

  constructor(leases: Leases, account: AccountIndex, nowMs: number) {
    this.#leases = leases;
    this.#account = account;
    this.#idle = new IdleFloor(0, nowMs);
  }

  get left(): number {
    return this.#leases.slotsHeld(this.#account) - this.#leases.inFlightOf(this.#account);
  }

  /** `all`: also what the coordinator knows, should it have forgotten. */
  ask(waiting: number, low: boolean, all: boolean): SlotsAsk | undefined {
    const outstanding = this.#leases.slotsHeld(this.#account);
    const missing = waiting - this.left;
    if (missing <= 0 && !low) {
      return all || outstanding < this.#told ? { outstanding, least: 0, most: 0 } : undefined;
    }
    // Twice as many as are taken now: so that a growing account asks seldom.
    const most = Math.max(missing, this.#leases.inFlightOf(this.#account), FIRST_SLOTS);
    return { outstanding, least: 1, most };
  }

  take(grant: SlotsGrant, ask: SlotsAsk, sentMs: number, nowMs: number): void {
    if (ask.most > 0)
      this.denial = grant.granted === 0 ? { sentMs, heldByOthers: grant.heldByOthers } : undefined;
    this.#told = ask.outstanding + grant.granted;
    this.#plentiful = isPlentiful(this.#told, grant.remaining);
    if (grant.granted === 0) return;
    this.#leases.addSlots(this.#account, grant.granted, lowOf(this.#told, grant.remaining));
    this.#idle.restart(nowMs);
  }

  look(nowMs: number): boolean {
    const idleMs = this.#plentiful ? IDLE_MS_SLOTS : IDLE_MS_SCARCE;
    const idle = this.#idle.look(this.left, idleMs, nowMs);
    if (idle > 0) {
      this.#leases.takeBackSlots(this.#account, idle);
      this.#idle.restart(nowMs);
    }
    return this.#isShrunk;
  }

  giveBack(): void {
    this.#leases.takeBackSlots(this.#account, this.left);
  }

  get isEmpty(): boolean {
    return this.#leases.slotsHeld(this.#account) === 0 && !this.#isShrunk;
  }

  get #isShrunk(): boolean {
    return this.#leases.slotsHeld(this.#account) < this.#told;
  }
}
