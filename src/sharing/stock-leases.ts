/**
 * What all leases of stocks have in common: a StockLease holds what this process leases of one stock of one
 * scope. Every ask reports how much was used and how much is outstanding, and the coordinator adds what it
 * grants. A CountedLease is one of a day, a month or the tokens of the minute; slot-lease.ts (call slots) and
 * money-lease.ts have the others. leased-scope.ts owns the leases and collects their asks, lease-manager.ts
 * sends them. Main thread.
 *
 *     granted      what the coordinator granted in the period, less what was given back
 *     used         what calls have used; of the balance 0, because a charge leaves `granted`
 *     outstanding  granted - used; StockAsk calls it `unused`: what calls hold, and what is available
 *     available    what the next calls may take
 *     taken        what the coordinator counts as this node's: what is outstanding; of a day or month also
 *                  what was used
 *
 * Must hold: the coordinator's record of this node is never less than what is outstanding, or the coordinator
 * would grant an amount twice. So an amount to be given back is first taken out of the ledger, and then the
 * next ask reports less. What was used of a day or month is reported within the time that an amount may lie
 * idle, also if all of it was used; otherwise other nodes take it for an amount that may be given back. What
 * is left of a former day or month covers no need of the present one. Further test:
 * test/unit/sharing/lease-stock.test.ts (random use over several nodes).
 */
import { invariant } from '../core/errors.js';
import { QUOTA_KINDS } from '../core/quotas.js';
import { maxOf, minOf } from '../core/units.js';
import type { LeaseWords, StockHeld, StockWords } from '../ledger/leased-stocks.js';
import { PERIODS_AHEAD_MAX } from '../ledger/stocks.js';
import {
  type CountedName,
  STOCK_KINDS,
  type StockAsk,
  type StockGrant,
  type StockName,
} from './coordinator.js';
import { Denials, type Lack } from './denials.js';
import {
  COVERED_MS_PLENTIFUL,
  COVERED_MS_SCARCE,
  FIRST_BATCH,
  IDLE_MS_PLENTIFUL,
  IDLE_MS_SCARCE,
  IdleFloor,
  isPlentiful,
  UseRate,
} from './lease-terms.js';

/** A thread reports that a stock runs low when 1 / LOW_PART of it is left. */
const LOW_PART = 4n;

/** How much a lease asks for, and how long it keeps what lies idle. */
interface LeaseTerms {
  /** The need of a call, before any call has waited. */
  readonly firstNeed: bigint;
  /** How many such needs an ask wants at least. */
  readonly batch: number;
  /** How long an amount may lie idle while the coordinator has plenty left, in ms. */
  readonly idleMsPlentiful: number;
}

/** What asks depend on. */
export interface StockNeed {
  /** What each of the calls needs that wait for this lease; none by default. */
  readonly needs?: readonly bigint[];
  /** Whether the lease runs low, so that more is wanted although no call waits. */
  readonly low?: boolean;
  /** Whether the ask reports also what the coordinator has on record, because it may have lost that. */
  readonly all?: boolean;
}

/** What the coordinator has on record of this node, by its last reply. */
interface ReportedStock {
  readonly period: number;
  readonly taken: bigint;
  readonly used: bigint;
}

export abstract class StockLease<Words extends LeaseWords = LeaseWords> {
  readonly name: StockName;
  /** Shared memory. Threads take from it meanwhile. */
  protected readonly words: Words;
  /** Whether the stock is of a day or month: then what was used counts as taken until the period is over. */
  readonly #hasPeriod: boolean;
  readonly #terms: LeaseTerms;
  readonly #idle: IdleFloor;
  readonly #rate: UseRate;
  #usedMs: number; // when use was last seen, or an amount granted
  readonly #denials = new Denials();
  /** The amount that was denied last: what was available, and the ask's `least`. Smaller needs ask. */
  #deniedAmount = 0n;
  #deniedLimit = 0n; // the limit at that denial: under another limit requests ask again
  /** Whether the coordinator has plenty left, so that this process may keep idle amounts for longer. */
  #isPlentiful = false;
  #reported: ReportedStock;
  /** The last ask, until its reply is applied; undefined if nothing was asked since. */
  #asked: StockAsk | undefined;
  /**
   * Whether the next sweep reports at once what the coordinator does not know yet, and not only after the
   * idle time: an amount was given back, or the lease changed otherwise than by use. `ask` clears it; if that
   * ask is lost, LeaseManager asks again.
   */
  #reportsSoon = false;
  #repliedMs: number; // when the last reply came; at first, when the lease was made
  /** The largest need among the calls that waited at the last ask for which calls waited. It sizes asks. */
  #largestNeed: bigint;

  /** `reported`: what the coordinator has on record of this node when the lease is made. */
  constructor(name: StockName, words: Words, terms: LeaseTerms, reported: ReportedStock, nowMs: number) {
    this.name = name;
    this.words = words;
    this.#hasPeriod = STOCK_KINDS[name] === 'period';
    this.#terms = terms;
    this.#reported = reported;
    this.#idle = new IdleFloor(nowMs);
    // Of all kinds but the balance, which begins at 0, `usedOf` is `used`.
    this.#rate = new UseRate(Number(reported.used), nowMs);
    this.#usedMs = nowMs;
    this.#repliedMs = nowMs;
    this.#largestNeed = terms.firstNeed;
  }

  // The kinds of stocks differ in the following. A class of a kind overrides what is not so for it.

  /** What is here: what asks report as granted and used, and what the next calls may take. */
  protected read(): StockHeld {
    return this.words.read();
  }

  /** How much was used, for the rate: a number that grows by what calls use. */
  protected usedOf({ used }: StockHeld): number {
    return Number(used);
  }

  /** What is wanted besides the needs of calls. */
  protected extraNeed(): bigint {
    return 0n;
  }

  /** Whether each exchange needs an ask, although the coordinator knows all. */
  protected alwaysAsks(): boolean {
    return false;
  }

  /** How much of a grant calls may use. The next ask reports the rest as given back. */
  protected usableOf(granted: bigint): bigint {
    return granted;
  }

  /** Called when `amount` was granted, or given back if it is negative. The words have it already. */
  protected onChanged(_amount: bigint): void {
    // Nothing else depends on the words.
  }

  /** Moves the words to `period`, which is earlier than theirs. */
  protected moveBackTo(_period: number): void {
    // A stock without a period has no earlier one.
  }

  /** Has the next sweep report the lease: it has changed otherwise than by use. */
  protected reportSoon(): void {
    this.#reportsSoon = true;
  }

  /** What calls may take in `period`. The words may already be of the next period, if a clock is ahead. */
  availableIn(period: number): bigint {
    const held = this.words.read();
    return held.period >= period && held.period <= period + PERIODS_AHEAD_MAX ? held.available : 0n;
  }

  /**
   * Makes the next ask, which the caller sends; undefined if nothing is wanted or to be reported. If no reply
   * comes, the next ask replaces it. `currentPeriod`: the number of the day or month by the calendar, 0 for a
   * stock without a period. Must be called before the exchange reads what the host's store has as spent: see
   * StockAsk.unused.
   */
  ask(need: StockNeed, limit: bigint, currentPeriod: number, nowMs: number): StockAsk | undefined {
    this.#asked = this.#makeAsk(need, limit, currentPeriod, nowMs);
    return this.#asked;
  }

  #makeAsk(
    { needs = [], low = false, all = false }: StockNeed,
    limit: bigint,
    currentPeriod: number,
    nowMs: number,
  ): StockAsk | undefined {
    const held = this.read();
    if (this.#rate.read(this.usedOf(held), nowMs)) this.#usedMs = nowMs;
    this.#reportsSoon = false;
    const isOver = held.period < currentPeriod;
    const period = isOver ? currentPeriod : held.period;
    const { granted, used } = isOver ? { granted: 0n, used: 0n } : held;
    const available = this.availableIn(currentPeriod);
    const unused = maxOf(granted - used, 0n);
    const report = { limit, period, used, unused };
    const wanted = needs.reduce((total, need) => total + need, this.extraNeed());
    if (needs.length > 0) this.#largestNeed = needs.reduce(maxOf);
    if (wanted <= available && !low) {
      if (!all && !this.alwaysAsks() && this.#isKnown(held)) return undefined;
      return { ...report, least: 0n, most: 0n };
    }
    const unmet = needs.filter((need) => need > available);
    const least = unmet.length === 0 ? 1n : unmet.reduce(minOf) - available;
    // The largest of these is wanted.
    const most = [
      // What all calls that wait, and the uncovered charges, lack.
      wanted - available,
      // Enough for some calls to come.
      this.#largestNeed * BigInt(this.#terms.batch),
      // What calls will use in the time that a lease covers, beyond what is available.
      this.#coveredNeed - available,
      // As much again as calls hold now, so that a scope that grows asks seldom.
      unused - available,
      least,
    ].reduce(maxOf);
    return { ...report, least, most };
  }

  /** Applies the reply to the last ask, which was sent at `sentMs`. Throws if no ask waits for a reply. */
  applyGrant(grant: StockGrant, sentMs: number, nowMs: number): void {
    const ask = this.#asked;
    invariant(ask !== undefined, 'a reply is applied once');
    this.#asked = undefined;
    const { remaining, heldByOthers, period, freeInMs } = grant;
    if (period < ask.period) {
      this.#moveBack(period, ask.period, nowMs);
      return;
    }
    // The coordinator counts a new period from 0: its record has nothing of the period that the ask named.
    const recorded = period === ask.period ? ask : { used: 0n, unused: 0n };
    const unused = recorded.unused + grant.granted;
    const granted = this.usableOf(grant.granted);
    if (ask.most > 0n) {
      this.#denials.record(granted === 0n ? { sentMs, heldByOthers } : undefined);
      // A grant does not reset these two, because they hold until `Denials.rejectsUntilMs`.
      if (granted === 0n) {
        this.#deniedAmount = this.availableIn(period) + ask.least;
        this.#deniedLimit = ask.limit;
      }
    }
    this.#reported = { period, taken: this.#takenOf(recorded.used, unused), used: recorded.used };
    this.#repliedMs = nowMs;
    this.#isPlentiful = isPlentiful(unused, remaining);
    this.words.publish(remaining, freeInMs);
    if (granted === 0n) {
      // A period that has begun goes on, also if the clock was set back: rejections must tell when it ends.
      if (period > ask.period) this.words.add(period, 0n, 0n);
      return;
    }
    // No low-water mark (0) if the coordinator has nothing left: the ask of a low lease would get nothing.
    this.words.add(period, granted, remaining === 0n ? 0n : this.#lowOf(unused));
    this.onChanged(granted);
    this.#usedMs = nowMs;
    this.#idle.restart(nowMs);
  }

  /**
   * Called if the reply names an earlier period than the ask: by the coordinator's calendar the ask's period
   * was a mistake of a clock. The lease goes on in the period of the reply.
   */
  #moveBack(period: number, mistakenPeriod: number, nowMs: number): void {
    this.moveBackTo(period);
    if (this.#reported.period === mistakenPeriod) this.#reported = { ...this.#reported, period };
    // Nothing was denied, so requests that wait ask again.
    this.#denials.record(undefined);
    this.#reportsSoon = true;
    this.#repliedMs = nowMs;
  }

  /**
   * How long nothing was used, as far as sweeps and asks have seen; 0 while calls hold some. Of call slots
   * only that tells their use, because slots come back.
   */
  idleMs(nowMs: number): number {
    const { granted, used, available } = this.read();
    return granted - used > available ? 0 : nowMs - this.#usedMs;
  }

  /** Gives back what no call has used for long enough. Returns true if an ask should be sent now. */
  sweep(nowMs: number): boolean {
    const held = this.read();
    if (this.#rate.read(this.usedOf(held), nowMs)) this.#usedMs = nowMs;
    const idleMs = this.#isPlentiful ? this.#terms.idleMsPlentiful : IDLE_MS_SCARCE;
    // A stock in use keeps what it will need soon, even if that lay idle.
    const kept = nowMs - this.#usedMs >= idleMs ? 0n : this.#coveredNeed;
    const idle = this.#idle.idleAmount(held.available, idleMs, nowMs) - kept;
    if (idle > 0n) {
      this.#takeBack(idle);
      this.#idle.restart(nowMs);
    }
    if (this.extraNeed() > 0n) return true;
    // A lease in use nearly always has something to report. It reports once in `idleMs`, but at once if
    // `#reportsSoon` is set.
    const isDue = this.#reportsSoon || nowMs - this.#repliedMs >= idleMs;
    return isDue && !this.#isKnown(this.read());
  }

  /**
   * Why a request that came at `sinceMs` lacks some of the stock, under this limit. `needed`: how much would
   * have to be here for it and for the requests that were allotted some. A denial of a larger amount, or
   * under another limit, says nothing about this one.
   */
  lackOf(needed: bigint, limit: bigint, sinceMs: number, nowMs: number): Lack {
    const isDenied = limit === this.#deniedLimit && needed >= this.#deniedAmount;
    return isDenied ? this.#denials.lackOf(sinceMs, nowMs) : 'unasked';
  }

  /** As `Denials.reject`. Gives back what is available, because it was too little for the request. */
  reject(nowMs: number, forMs: number): void {
    this.#denials.reject(nowMs, forMs);
    this.giveBack();
  }

  /** Gives back all that no call holds. */
  giveBack(): void {
    this.#takeBack(this.words.read().available);
  }

  /** Whether nothing is outstanding or wanted, and the coordinator knows so. */
  get isEmpty(): boolean {
    const held = this.read();
    return held.granted <= held.used && this.extraNeed() === 0n && this.#isKnown(held);
  }

  /** The low-water mark: the take that leaves so much of `unused` makes its thread wake the main thread. */
  #lowOf(unused: bigint): bigint {
    const low = unused / LOW_PART;
    return this.#isPlentiful ? maxOf(low, minOf(this.#coveredNeed, unused) / 2n) : low;
  }

  /** How much calls will use in the time that a lease covers. */
  get #coveredNeed(): bigint {
    const coveredMs = this.#isPlentiful ? COVERED_MS_PLENTIFUL : COVERED_MS_SCARCE;
    return BigInt(Math.ceil((this.#rate.perSecond * coveredMs) / 1_000));
  }

  /** Whether an ask would tell nothing new: neither that some is free, nor that it was used. */
  #isKnown(held: StockHeld): boolean {
    const { period, granted, used } = held;
    if (period !== this.#reported.period) return true;
    const isOverreported = this.#takenOf(used, granted - used) < this.#reported.taken;
    // Whether the coordinator shows as unused what was used, although as much counts as taken.
    const isUnderreported = this.#hasPeriod && used > this.#reported.used;
    return !isOverreported && !isUnderreported;
  }

  /** What counts as taken by this node at the coordinator. `unused`: what is outstanding. */
  #takenOf(used: bigint, unused: bigint): bigint {
    return this.#hasPeriod ? used + unused : unused;
  }

  /** Takes up to `amount` out of the ledger. The next ask reports that less is outstanding. */
  #takeBack(amount: bigint): void {
    if (amount <= 0n) return;
    const takenBack = this.words.takeBack(amount);
    if (takenBack <= 0n) return;
    this.onChanged(-takenBack);
    this.#reportsSoon = true;
  }
}

/**
 * Tokens of the minute count against the limit for a minute from when the coordinator hears that they were
 * used. So a lease of such tokens reports its use after this time at the latest.
 */
const IDLE_MS_WINDOW = 4_000;

/**
 * A lease of which used amounts do not come back to this process: of a day, a month, tokens of the minute.
 */
export class CountedLease extends StockLease<StockWords> {
  constructor(name: Exclude<CountedName, 'calls_in_flight'>, words: StockWords, nowMs: number) {
    const { period, granted, used } = words.read();
    const hasPeriod = STOCK_KINDS[name] === 'period';
    const terms = {
      firstNeed: QUOTA_KINDS[name].unit === 'calls' ? 1n : 0n,
      batch: FIRST_BATCH,
      idleMsPlentiful: hasPeriod ? IDLE_MS_PLENTIFUL : IDLE_MS_WINDOW,
    };
    // LeaseManager forgets a scope with nothing outstanding. If it is needed again, its new lease finds in
    // shared memory what the earlier lease left. Of a day or month the coordinator then has on record what
    // was granted, and all of that was used. Of the minute it has on record what is outstanding: 0.
    super(name, words, terms, { period, taken: hasPeriod ? granted : 0n, used }, nowMs);
  }

  protected override moveBackTo(period: number): void {
    this.words.moveBack(period);
  }
}
