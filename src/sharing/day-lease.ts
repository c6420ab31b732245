/**
 * The lease of a subject's calls of the day. Main thread.
 */
import type { CountedLeases } from '../ledger/leases.js';
import type { DayAsk, DayGrant } from './authority.js';
import {
  COVERED_MS,
  FIRST_BATCH,
  IDLE_MS_PLENTIFUL,
  IDLE_MS_SCARCE,
  isPlentiful,
  lowOf,
  type Denial,
} from './lease-terms.js';
import { UseRate } from './use-rate.js';

export class DayLease<Index extends number> {
  readonly #leases: CountedLeases<Index>;
  readonly #counted: Index;
  readonly #rate: UseRate;
  #usedMs: number;
  #plentiful = false;
  /** What the authority has on record of this node. */
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

  /** `all`: also what the authority knows, should it have forgotten. */
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
    if (asked) this.denial = grant.granted === 0 ? { sentMs, elsewhere: grant.elsewhere } : undefined;
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

  /** What the authority counts as used of that day, and nobody has. */
  get unused(): { readonly dayNumber: number; readonly dayUnused: number } {
    const { dayNumber, used } = this.#leases.dayHeld(this.#counted);
    return { dayNumber, dayUnused: Math.max(0, this.#told - used) };
  }

  get isEmpty(): boolean {
    return this.#leases.dayHeld(this.#counted).unused === 0 && !this.#isShrunk;
  }

  /** The authority has more on record than is held. */
  get #isShrunk(): boolean {
    const { used, unused } = this.#leases.dayHeld(this.#counted);
    return used + unused < this.#told;
  }
}
