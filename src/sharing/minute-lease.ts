/**
 * The lease of a scope's requests of the minute: what to ask for, and what to give back. `LeasedScope` owns
 * it. Main thread.
 *
 * Permits are alike, and each used permit was used before any of the joined grants expired. So returned
 * permits may be named as part of the grants that would weigh longest.
 *
 * Must hold: no permit is both used and returned, and none is named as used that may still be used
 * (test/unit/sharing/lease-laws.test.ts, simulation.test.ts).
 */
import type { CountedLeases } from '../ledger/leases.js';
import type { MinuteAsk, MinuteGrant, GrantedPermits } from './coordinator.js';
import { LONG_TICKS, TICK_MS } from './grant-policy.js';
import { coveredMsOf, type Denial, FIRST_BATCH, IDLE_MS_SCARCE, lowOf, UseRate } from './lease-terms.js';

/** The longest validity there is. */
const VALID_MS_MAX = LONG_TICKS * TICK_MS;
/** Permits in use are renewed when they are valid for less: others then replace them. */
const RENEW_MS = VALID_MS_MAX / 2 - 250;
/** Permits that were not used for so long are not renewed. */
const RESTING_MS = 8_000;
/** With short validity, permits for longer than that would expire unused. */
const COVERED_MS_SHORT = 1_200;
/** The rate is a mean, so more than the rate is asked for. */
const NEED_PART = 1.25;
/** This clock may run slower than the coordinator's: 10 ms in 16 s are 600 parts in a million. */
export const VALIDITY_MARGIN_MS = 10;
/** Permits with less validity are not named as used: little would be gained. */
const USED_MS_MIN = 2 * TICK_MS;
/** The coordinator hears at once when this part of the limit was used of such permits since the last ask. */
const USED_PART = 128;
/** After so long a permit has no weight, so it need not be returned. */
const RETURNED_MS_MAX = 60_000;
/** Permits that nobody lacks are returned with the next ask, or after so long. */
const RETURN_WAIT_MS = 8_000;

export class MinuteLease<Index extends number> {
  readonly #leases: CountedLeases<Index>;
  readonly #counted: Index;
  #grants: { tick: number; count: number }[] = [];
  #returned: GrantedPermits[] = [];
  #returnedMs = 0;
  /** The ask whose reply has not come. */
  #unheard: ({ readonly number: number } & Pick<MinuteAsk, 'returned' | 'used'>) | undefined;
  /** The number of the last ask whose reply is in what is granted here; undefined if none was made. */
  heardNumber: number | undefined;
  #expiresMs = 0;
  /** Permits granted and not returned, in all. */
  #granted = 0;
  #usedMs: number;
  readonly #rate: UseRate;
  #plentiful = false;
  /** Whether valid permits are to be replaced by others that are valid for longer. */
  #renews = false;
  /** The coordinator's last refusal; undefined after a grant. */
  denial: Denial | undefined;
  /** New waits are refused without an ask until then. */
  deniedUntilMs = 0;
  /** The limit at the last ask that wanted something: `denial` and `deniedUntilMs` hold for it. */
  deniedLimit = 0;
  /** When the coordinator has some again, and how many it has left: both by its last reply. */
  #freeMs = 0;
  #remaining = 0;
  /** The limit at the last ask. */
  #limit = Infinity;

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
   * The ask for `waiting` requests, or ahead of need; undefined if there is nothing to ask or report. `low`:
   * a listener has used most of what is here. `number`: of the exchange.
   */
  ask(waiting: number, limit: number, low: boolean, nowMs: number, number: number): MinuteAsk | undefined {
    this.#read(nowMs);
    const wants = waiting > this.left(nowMs) || low || this.#renews;
    this.#renews = false;
    const isQuiet = this.#returned.length === 0 && this.#unheard === undefined;
    if (!wants && isQuiet && !this.#isUsed(limit / USED_PART, nowMs)) return undefined;
    this.#limit = limit;
    // Nothing else is returned until it is known whether the coordinator has taken these.
    const returned = this.#unheard?.returned ?? this.#returned.splice(0);
    const used = this.#unheard?.used ?? this.#takeUsed(nowMs);
    this.heardNumber ??= number - 1;
    this.#unheard = { number, returned, used };
    const report = { limit, returned, used, order: { number, heardNumber: this.heardNumber } };
    if (!wants) return { least: 0, most: 0, forMs: 0, ...report };
    const need = Math.ceil((this.#rate.perSecond * this.#coveredMs * NEED_PART) / 1_000);
    return { least: 1, most: Math.max(waiting, need, FIRST_BATCH), forMs: VALID_MS_MAX, ...report };
  }

  /** Applies the reply to an ask that was sent at `sentMs`. */
  take(grant: MinuteGrant, { limit, most }: MinuteAsk, sentMs: number, nowMs: number): void {
    this.heardNumber = this.#unheard?.number;
    this.#unheard = undefined;
    this.#remaining = grant.remaining;
    this.#freeMs = nowMs + grant.freeInMs;
    this.#plentiful = grant.remaining * 2 > limit;
    if (most > 0) {
      this.denial = grant.granted === 0 ? { sentMs, heldByOthers: grant.heldByOthers } : undefined;
      this.deniedLimit = limit;
    }
    if (grant.granted > 0) this.#install(grant, sentMs + grant.validMs - VALIDITY_MARGIN_MS, nowMs);
    this.#publish();
  }

  /** The coordinator has none and nobody gives any back: new waits are refused until `untilMs`. */
  reject(untilMs: number): void {
    this.deniedUntilMs = Math.max(untilMs, this.deniedUntilMs);
    this.#publish();
  }

  /** Gives back what has expired or lies idle; returns true if the coordinator should hear of it now. */
  look(nowMs: number): boolean {
    this.#read(nowMs);
    const isIdle = !this.#plentiful && nowMs - this.#usedMs >= IDLE_MS_SCARCE;
    if (nowMs >= this.#expiresMs || isIdle) this.giveBack(nowMs);
    const wasUsed = this.#grants.length > 0 && nowMs - this.#usedMs < RESTING_MS;
    this.#renews = wasUsed && this.#plentiful && this.#expiresMs - nowMs < RENEW_MS;
    if (this.#renews || this.#isUsed(this.#limit / USED_PART, nowMs)) return true;
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

  /** Milliseconds since a permit was last used. */
  idleMs(nowMs: number): number {
    return nowMs - this.#usedMs;
  }

  /** Permits that the coordinator counts as used, although no request has used them. */
  get unused(): number {
    const returned = [...this.#returned, ...(this.#unheard?.returned ?? [])];
    const unused = this.#leases.minuteUnused(this.#counted);
    return returned.reduce((all, { count }) => all + count, unused);
  }

  get isEmpty(): boolean {
    return this.#returned.length === 0 && this.#leases.minuteUnused(this.#counted) === 0;
  }

  get #coveredMs(): number {
    return this.#plentiful ? coveredMsOf(true) : COVERED_MS_SHORT;
  }

  #install({ granted, tick }: MinuteGrant, expiresMs: number, nowMs: number): void {
    if (expiresMs <= nowMs) {
      this.#returned.push({ tick, count: granted });
      this.#returnedMs = nowMs;
      return;
    }
    this.#granted += granted;
    const ahead = this.#plentiful ? (this.#rate.perSecond * this.#coveredMs) / 2_000 : 0;
    const low = Math.max(lowOf(granted, this.#remaining), Math.floor(Math.min(granted / 2, ahead)));
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

  /** Returns permits of the newest grants first, because these would weigh longest. */
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

  /**
   * Names the permits used of long grants, as part of those valid longest: otherwise they would weigh from
   * the expiry of the grant on, although they were used before.
   */
  #takeUsed(nowMs: number): GrantedPermits[] {
    const used: GrantedPermits[] = [];
    let left = this.#usedOfLong(nowMs);
    for (const grant of [...this.#grants].sort((one, other) => other.tick - one.tick)) {
      const count = Math.min(left, grant.count);
      if (count <= 0) break;
      grant.count -= count;
      left -= count;
      used.push({ tick: grant.tick, count });
    }
    this.#grants = this.#grants.filter(({ count }) => count > 0);
    return used;
  }

  /** How many were used, and not yet named as used, of grants that are valid for long. */
  #usedOfLong(nowMs: number): number {
    if (this.#expiresMs - nowMs < USED_MS_MIN) return 0;
    const granted = this.#grants.reduce((sum, { count }) => sum + count, 0);
    return granted - this.#leases.minuteUnused(this.#counted);
  }

  /** At least so many were. */
  #isUsed(count: number, nowMs: number): boolean {
    return this.#usedOfLong(nowMs) >= Math.max(1, count);
  }

  #read(nowMs: number): void {
    const used = this.#granted - this.#leases.minuteUnused(this.#counted);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
  }

  #publish(): void {
    this.#leases.publishMinute(
      this.#counted,
      this.#remaining,
      this.#freeMs,
      this.deniedUntilMs,
      this.deniedLimit,
    );
  }
}
