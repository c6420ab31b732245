/**
 * The lease of a scope's minute: what to ask for, what to do with the response, what to give back. Main thread.
 *
 * Permits are alike: who returns some may name the grants that weigh longest, for each was used before any of the joined
 * grants had expired.
 */
import type { CountedLeases } from '../ledger/leases.js';
import type { MinuteAsk, MinuteGrant, ReturnedPermits } from './coordinator.js';
import { type Denial, FIRST_BATCH, IDLE_MS_SCARCE, lowOf, UseRate } from './lease-terms.js';

/** The longest validity that is of use: a slow account then asks four times a minute. */
const VALID_MS_MAX = 16_000;
/** A fast account asks about twice a second; one that is in between takes some permits for longer. */
const COVERED_MS = 2_000;
const BATCH = 16;
/** With short validity no more than what is used in it. */
const COVERED_MS_SHORT = 1_200;
/** More than the rate says, for it is a mean. */
const NEED_PART = 1.25;
/** A node's clock may run slower than the coordinator's: 10 ms in 16 s are 600 parts in a million. */
export const VALIDITY_MARGIN_MS = 10;
/** After so long a returned permit weighs no more. */
const RETURNED_MS_MAX = 60_000;
/** Permits that nobody is short of are returned with the next ask, or after so long. */
const RETURN_WAIT_MS = 8_000;

export class MinuteLease<Index extends number> {
  readonly #leases: CountedLeases<Index>;
  readonly #counted: Index;
  #grants: { tick: number; count: number }[] = [];
  #returned: ReturnedPermits[] = [];
  #returnedMs = 0;
  /** The ask whose answer has not come (yet). */
  #unheard: { readonly number: number; readonly returned: readonly ReturnedPermits[] } | undefined;
  #heardNumber: number | undefined;
  #expiresMs = 0;
  /** Lent and not returned. */
  #granted = 0;
  #usedMs: number;
  readonly #rate: UseRate;
  #plentiful = false;
  /** Undefined where the last ask was granted. */
  denial: Denial | undefined;
  /** New waits are refused without asking until then. */
  deniedUntilMs = 0;
  #freeMs = 0;
  #remaining = 0;

  constructor(leases: CountedLeases<Index>, counted: Index, nowMs: number) {
    this.#leases = leases;
    this.#counted = counted;
    this.#usedMs = nowMs;
    this.#rate = new UseRate(0, nowMs);
  }

  left(nowMs: number): number {
    return this.#leases.minuteLeft(this.#counted, nowMs);
  }

  /**
   * For `waiting` requests, or ahead of need where it runs low; undefined where there is nothing to say. `number` grows from ask to
   * ask of all scopes.
   */
  ask(waiting: number, low: boolean, nowMs: number, number: number): MinuteAsk | undefined {
    this.#read(nowMs);
    const wants = waiting > this.left(nowMs) || low;
    if (!wants && this.#returned.length === 0 && this.#unheard === undefined) return undefined;
    // Nothing else is returned until it is known whether the coordinator has taken this.
    const returned = this.#unheard?.returned ?? this.#returned.splice(0);
    this.#heardNumber ??= number - 1;
    this.#unheard = { number, returned };
    const order = { number, heardNumber: this.#heardNumber };
    if (!wants) return { least: 0, most: 0, forMs: 0, returned, order };
    const need = Math.ceil((this.#rate.perSecond * this.#coveredMs * NEED_PART) / 1_000);
    return { least: 1, most: Math.max(waiting, need, FIRST_BATCH), forMs: VALID_MS_MAX, returned, order };
  }

  /** `sentMs` is when the ask left, `asked` whether it wanted anything. */
  take(grant: MinuteGrant, asked: boolean, limit: number, sentMs: number, nowMs: number): void {
    this.#heardNumber = this.#unheard?.number;
    this.#unheard = undefined;
    this.#remaining = grant.remaining;
    this.#freeMs = nowMs + grant.freeInMs;
    this.#plentiful = grant.remaining * 2 > limit;
    if (asked) this.denial = grant.granted === 0 ? { sentMs, heldByOthers: grant.heldByOthers } : undefined;
    if (grant.granted > 0) this.#install(grant, sentMs + grant.validMs - VALIDITY_MARGIN_MS, nowMs);
    this.#tell();
  }

  /** The coordinator has none and nobody gives any back: not asked again for so long. */
  refuse(untilMs: number): void {
    this.deniedUntilMs = Math.max(untilMs, this.deniedUntilMs);
    this.#tell();
  }

  /** Gives back what has expired or lies idle; true where the coordinator should hear of it now. */
  look(nowMs: number): boolean {
    this.#read(nowMs);
    const isIdle = !this.#plentiful && nowMs - this.#usedMs >= IDLE_MS_SCARCE;
    if (nowMs >= this.#expiresMs || isIdle) this.giveBack(nowMs);
    if (this.#returned.length === 0) return false;
    const ageMs = nowMs - this.#returnedMs;
    if (ageMs > RETURNED_MS_MAX) {
      this.#returned = [];
      return false;
    }
    return !this.#plentiful || ageMs >= RETURN_WAIT_MS;
  }

  giveBack(nowMs: number): void {
    this.#return(this.#leases.takeBackMinute(this.#counted), nowMs);
    this.#grants = [];
  }

  /** Since a permit was last used. */
  idleMs(nowMs: number): number {
    return nowMs - this.#usedMs;
  }

  /** What the coordinator counts as used, and nobody has. */
  get unused(): number {
    const returned = [...this.#returned, ...(this.#unheard?.returned ?? [])];
    const unused = this.#leases.minuteUnused(this.#counted);
    return returned.reduce((all, { count }) => all + count, unused);
  }

  get isEmpty(): boolean {
    return this.#returned.length === 0 && this.#leases.minuteUnused(this.#counted) === 0;
  }

  get #coveredMs(): number {
    if (!this.#plentiful) return COVERED_MS_SHORT;
    return Math.max(COVERED_MS, Math.min(VALID_MS_MAX, (BATCH * 1_000) / this.#rate.perSecond));
  }

  #install({ granted, tick }: MinuteGrant, expiresMs: number, nowMs: number): void {
    this.#granted += granted;
    if (expiresMs <= nowMs) {
      this.#returned.push({ tick, count: granted });
      this.#returnedMs = nowMs;
      this.#granted -= granted;
      return;
    }
    const low = lowOf(granted, this.#remaining);
    const left = this.#leases.addMinute(this.#counted, expiresMs, granted, low, nowMs);
    if (left === 'joined') {
      this.#expiresMs = Math.min(this.#expiresMs, expiresMs);
    } else {
      this.#return(left, nowMs);
      this.#grants = [];
      this.#expiresMs = expiresMs;
    }
    this.#grants.push({ tick, count: granted });
  }

  /** The newest grants first: they would weigh longest. */
  #return(permits: number, nowMs: number): void {
    let left = permits;
    for (const grant of [...this.#grants].reverse()) {
      const count = Math.min(left, grant.count);
      if (count === 0) break;
      this.#returned.push({ tick: grant.tick, count });
      left -= count;
    }
    this.#granted -= permits - left;
    if (permits > 0) this.#returnedMs = nowMs;
  }

  #read(nowMs: number): void {
    const used = this.#granted - this.#leases.minuteUnused(this.#counted);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
  }

  #tell(): void {
    this.#leases.tellMinute(this.#counted, this.#remaining, this.#freeMs, this.deniedUntilMs);
  }
}
