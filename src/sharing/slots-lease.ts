/**
 * The lease of an account's places for calls in flight. They come back when calls end, so what was never taken lately is given
 * back. Main thread.
 */
import type { AccountIndex } from '../core/units.js';
import type { Leases } from '../ledger/leases.js';
import type { SlotsAsk, SlotsGrant } from './authority.js';
import { IdleFloor } from './idle-floor.js';
import { IDLE_MS_SCARCE, isPlentiful, lowOf, type Denial } from './lease-terms.js';

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

  /** `all`: also what the authority knows, should it have forgotten. */
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
    if (ask.most > 0) this.denial = grant.granted === 0 ? { sentMs, elsewhere: grant.elsewhere } : undefined;
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
