/**
 * The lease of a scope's permits: what to ask for, and what to give back. leased-scope.ts has one for each
 * scope. Main thread.
 *
 * The grants that the process has at the same time are joined in shared memory, where all their permits get
 * the earliest expiry; `addMinute` (ledger/leases.ts) decides whether a grant joins the earlier ones or
 * replaces them. So it does not matter of which grant a permit was used, and permits are named, returned or
 * used, as permits of the grants that weigh longest: of the latest tick. An ask also _names as used_ permits
 * that calls have taken. The coordinator then counts these for a minute from the ask on, and not from the
 * expiry of their grant.
 *
 * Must hold: no permit is both used and returned, and none is named as used that may still be used
 * (test/unit/sharing/lease-laws.test.ts, simulation.test.ts). A call that has taken a permit never gives it
 * back. leased-scope.ts keeps a scope until its last ask was replied to.
 */
import { invariant } from '../core/errors.js';
import { TAKE_MS_MAX, WEIGHING_MS } from '../ledger/leased-window.js';
import type { CountedLeases } from '../ledger/leases.js';
import type { MinuteAsk, MinuteGrant, GrantedPermits } from './coordinator.js';
import { Denials, type Lack } from './denials.js';
import { GRANT_TICK_MS, VALID_MS_MAX, WEIGHING_TICKS } from './grant-policy.js';
import {
  COVERED_MS_PLENTIFUL,
  FIRST_BATCH,
  IDLE_MS_SCARCE,
  lowOf,
  SWEEP_MS,
  UseRate,
} from './lease-terms.js';

invariant(GRANT_TICK_MS - TAKE_MS_MAX > 0, 'a permit named as used is used before it weighs its last tick');
invariant(WEIGHING_MS === (WEIGHING_TICKS + 1) * GRANT_TICK_MS, 'headers tell how long permits weigh');

/**
 * Permits of a scope in use are renewed when they are valid for less: an ask gets others in their place. That
 * is one sweep later than half of the longest validity.
 */
const RENEW_MS = VALID_MS_MAX / 2 - SWEEP_MS;
/** Permits that were not used for so long are not renewed. */
const UNUSED_MS_MAX = 8_000;
/** How far ahead an ask covers the need if grants are valid for 1.2 s at most: more would expire unused. */
const COVERED_MS_SHORT = 1_200;
/** An ask wants so many times what the rate of use predicts, because the rate is a mean. */
const NEED_FACTOR = 1.25;
/** This clock may run slower than the coordinator's: 10 ms in 16 s are 600 parts in a million. */
export const VALIDITY_MARGIN_MS = 10;
/** Permits that are valid for less are not named as used: that would hardly shorten how long they weigh. */
const USED_MS_MIN = 2 * GRANT_TICK_MS;
/**
 * An ask is sent when 1 / USED_PART of the limit was used and is not yet named as used: to name them takes
 * at most so many asks for each time that the limit is used up.
 */
const USED_PART = 128;
/** So long after permits were last returned none has weight for long, so they need not be named. */
const RETURNED_MS_MAX = 60_000;
/** While the coordinator has plenty left, returned permits wait so long at most for another ask. */
const RETURN_WAIT_MS = 8_000;

interface MinuteNeed {
  readonly waiting: number;
  readonly limit: number;
  readonly isLow: boolean;
  readonly nowMs: number;
  readonly number: number;
}

/** What is known of an ask until its reply is applied. */
interface UnconfirmedAsk extends Required<Pick<MinuteAsk, 'limit' | 'most' | 'returned' | 'used'>> {
  readonly number: number;
}

export class MinuteLease {
  readonly #leases: CountedLeases<number>;
  readonly #index: number;
  /** The grants whose permits the process has, less the permits that were returned or named as used. */
  #grants: { tick: number; count: number }[] = [];
  #returned: GrantedPermits[] = []; // permits that the next ask returns
  #returnedMs = 0; // when permits were last added to `#returned`
  /** The last ask, until its reply is applied; undefined if there was none since. */
  #unconfirmed: UnconfirmedAsk | undefined;
  #heardNumber: number | undefined;
  #expiresMs = 0; // when the permits in shared memory expire
  #netGranted = 0; // permits granted since this lease was made, less those that were returned
  #usedMs: number; // when a permit was last seen to be used
  readonly #rate: UseRate;
  /** Whether by the last reply more than half of the limit remains. Then grants are valid for long. */
  #isPlentiful = false;
  #renews = false; // whether the next ask wants permits that are valid for longer than the present ones
  readonly #denials = new Denials();
  #deniedLimit = 0; // the limit at the last ask that wanted permits: `#denials` are of this limit
  #freeMs = 0; // when the coordinator will have permits again (monotonic), by its last reply
  #remaining = 0; // how many permits the coordinator has left, by its last reply
  #limit = Infinity; // the limit at the last ask

  /** `index`: the scope's among `leases`, those of its kind. */
  constructor(leases: CountedLeases<number>, index: number, nowMs: number) {
    this.#leases = leases;
    this.#index = index;
    this.#usedMs = nowMs;
    this.#rate = new UseRate(0, nowMs);
  }

  /**
   * The number of the last ask whose reply was applied. Before the first reply the number before the first
   * ask; undefined if no ask was made.
   */
  get heardNumber(): number | undefined {
    return this.#heardNumber;
  }

  /** How many permits calls may take now. */
  left(nowMs: number): number {
    return this.#leases.minuteLeft(this.#index, nowMs);
  }

  /**
   * The ask for `waiting` requests, or ahead of need; undefined if there is nothing to ask or report.
   * `isLow`: a thread has used most of what is leased. `number`: of the exchange.
   */
  ask({ waiting, limit, isLow, nowMs, number }: MinuteNeed): MinuteAsk | undefined {
    this.#readUse(nowMs);
    const wants = waiting > this.left(nowMs) || isLow || this.#renews;
    this.#renews = false;
    const hasReport = this.#returned.length > 0 || this.#unconfirmed !== undefined;
    if (!wants && !hasReport && !this.#hasUsed(limit / USED_PART, nowMs)) return undefined;
    this.#limit = limit;
    // What an ask without a reply returned or named as used is repeated, and nothing is added: if the
    // coordinator has carried out that ask, it knows by the order that it has these permits already.
    const returned = this.#unconfirmed?.returned ?? this.#returned.splice(0);
    const used = this.#unconfirmed?.used ?? this.#takeUsed(nowMs);
    this.#heardNumber ??= number - 1;
    const need = Math.ceil((this.#rate.perSecond * this.#coveredMs * NEED_FACTOR) / 1_000);
    const most = wants ? Math.max(waiting, need, FIRST_BATCH) : 0;
    this.#unconfirmed = { number, limit, most, returned, used };
    const order = { number, heardNumber: this.#heardNumber };
    const [least, forMs] = wants ? [1, VALID_MS_MAX] : [0, 0];
    return { least, most, forMs, limit, returned, used, order };
  }

  /** Applies the reply to the last ask, which was sent at `sentMs`. Throws if no ask waits for a reply. */
  applyGrant(grant: MinuteGrant, sentMs: number, nowMs: number): void {
    invariant(this.#unconfirmed !== undefined, 'a reply is applied once');
    const { number, limit, most } = this.#unconfirmed;
    this.#heardNumber = number;
    this.#unconfirmed = undefined;
    this.#remaining = grant.remaining;
    this.#freeMs = nowMs + grant.freeInMs;
    this.#isPlentiful = grant.remaining * 2 > limit;
    if (most > 0) {
      const { granted, heldByOthers } = grant;
      this.#denials.record(granted === 0 ? { sentMs, heldByOthers } : undefined);
      this.#deniedLimit = limit;
    }
    if (grant.granted > 0) this.#install(grant, sentMs + grant.validMs - VALIDITY_MARGIN_MS, nowMs);
    this.#publish();
  }

  /** Why a request that came at `sinceMs` lacks a permit, under this limit. */
  lackOf(limit: number, sinceMs: number, nowMs: number): Lack {
    return limit === this.#deniedLimit ? this.#denials.lackOf(sinceMs, nowMs) : 'unasked';
  }

  /** As `Denials.reject`, also for listeners, which go by shared memory. */
  reject(nowMs: number, forMs: number): void {
    if (this.#denials.reject(nowMs, forMs)) this.#publish();
  }

  /** Gives back permits that have expired or lie idle. Returns whether an ask should be sent now. */
  sweep(nowMs: number): boolean {
    this.#readUse(nowMs);
    const isIdle = !this.#isPlentiful && nowMs - this.#usedMs >= IDLE_MS_SCARCE;
    if (nowMs >= this.#expiresMs || isIdle) this.giveBack(nowMs);
    const wasUsed = this.#grants.length > 0 && nowMs - this.#usedMs < UNUSED_MS_MAX;
    this.#renews = wasUsed && this.#isPlentiful && this.#expiresMs - nowMs < RENEW_MS;
    if (this.#renews || this.#hasUsed(this.#limit / USED_PART, nowMs)) return true;
    if (this.#returned.length === 0) return false;
    const ageMs = nowMs - this.#returnedMs;
    if (ageMs > RETURNED_MS_MAX) {
      this.#returned = [];
      return false;
    }
    return !this.#isPlentiful || ageMs >= RETURN_WAIT_MS;
  }

  /** Takes all unused permits out of shared memory. The next ask returns them. */
  giveBack(nowMs: number): void {
    this.#renews = false;
    this.#return(this.#leases.takeBackMinute(this.#index), nowMs);
  }

  idleMs(nowMs: number): number {
    return nowMs - this.#usedMs;
  }

  /** How many permits no request has used, with those whose return the coordinator has not heard of. */
  get unused(): number {
    const returned = [...this.#returned, ...(this.#unconfirmed?.returned ?? [])];
    const unused = this.#leases.minuteUnused(this.#index);
    return returned.reduce((total, { count }) => total + count, unused);
  }

  /** Whether nothing is leased and nothing is to be returned with the next ask, besides what one repeats. */
  get isEmpty(): boolean {
    return this.#returned.length === 0 && this.#leases.minuteUnused(this.#index) === 0;
  }

  get #coveredMs(): number {
    return this.#isPlentiful ? COVERED_MS_PLENTIFUL : COVERED_MS_SHORT;
  }

  /** Puts the granted permits into shared memory. */
  #install({ granted, tick }: MinuteGrant, expiresMs: number, nowMs: number): void {
    // The reply was so late that the permits have expired.
    if (expiresMs <= nowMs) {
      this.#returned.push({ tick, count: granted });
      this.#returnedMs = nowMs;
      return;
    }
    this.#netGranted += granted;
    // The low-water mark: half of what calls will use in the time that a lease covers, if plenty is left.
    const aheadCount = this.#isPlentiful ? (this.#rate.perSecond * this.#coveredMs) / 2_000 : 0;
    const lowMark = Math.max(lowOf(granted, this.#remaining), Math.floor(Math.min(granted / 2, aheadCount)));
    const replacedCount = this.#leases.addMinute(this.#index, expiresMs, granted, lowMark, nowMs);
    if (replacedCount === 'joined') {
      this.#expiresMs = Math.min(this.#expiresMs, expiresMs);
    } else {
      // The grant has replaced an earlier one, of which so many permits were unused.
      this.#return(replacedCount, nowMs);
      this.#expiresMs = expiresMs;
    }
    this.#grants.push({ tick, count: granted });
  }

  /** The grants, those that weigh longest first. A later grant may be valid for less. */
  #longestFirst(): { tick: number; count: number }[] {
    return [...this.#grants].sort((first, second) => second.tick - first.tick);
  }

  /** Adds unused permits to `#returned`, and empties `#grants`: all others were used. */
  #return(permits: number, nowMs: number): void {
    let toReturn = permits;
    for (const grant of this.#longestFirst()) {
      const count = Math.min(toReturn, grant.count);
      if (count === 0) break;
      this.#returned.push({ tick: grant.tick, count });
      toReturn -= count;
    }
    this.#netGranted -= permits - toReturn;
    if (permits > 0) this.#returnedMs = nowMs;
    this.#grants = [];
  }

  /** Takes the permits that the next ask names as used out of `#grants`; none that expire soon. */
  #takeUsed(nowMs: number): GrantedPermits[] {
    const used: GrantedPermits[] = [];
    let toName = this.#usedOfLongGrants(nowMs);
    for (const grant of this.#longestFirst()) {
      const count = Math.min(toName, grant.count);
      if (count <= 0) break;
      grant.count -= count;
      toName -= count;
      used.push({ tick: grant.tick, count });
    }
    this.#grants = this.#grants.filter(({ count }) => count > 0);
    return used;
  }

  /** How many permits were used, and not yet named as used; 0 if the grants expire within USED_MS_MIN. */
  #usedOfLongGrants(nowMs: number): number {
    if (this.#expiresMs - nowMs < USED_MS_MIN) return 0;
    const granted = this.#grants.reduce((total, { count }) => total + count, 0);
    return granted - this.#leases.minuteUnused(this.#index);
  }

  /** Whether `#usedOfLongGrants` is `count` or more, and 1 at least. */
  #hasUsed(count: number, nowMs: number): boolean {
    return this.#usedOfLongGrants(nowMs) >= Math.max(1, count);
  }

  /** Reads in shared memory how many permits calls have used, for the rate and for `#usedMs`. */
  #readUse(nowMs: number): void {
    const used = this.#netGranted - this.#leases.minuteUnused(this.#index);
    if (this.#rate.read(used, nowMs)) this.#usedMs = nowMs;
  }

  /** Writes to shared memory what listeners need to reject requests. */
  #publish(): void {
    this.#leases.publishMinute(
      this.#index,
      this.#remaining,
      this.#freeMs,
      this.#denials.rejectsUntilMs,
      this.#deniedLimit,
    );
  }
}
