/**
 * `StockLease` is what this process leases of one stock of one scope. Every ask reports how much was used and
 * how much is held, and the coordinator adds what it grants. `LeasedScope` owns it and collects its asks, and
 * `LeaseManager` sends them. Main thread.
 *
 * Must hold: the coordinator's record of this node is never less than what is outstanding here, so that it
 * cannot grant an amount twice. What is given back here is reported by a later ask, never before
 * (test/unit/sharing/stock-leases.test.ts; test/unit/sharing/lease-stock.test.ts, random use over several
 * nodes).
 */
import { maxOf, minOf } from '../core/units.js';
import type { LeaseWords, StockHeld } from '../ledger/leased-stocks.js';
import { PERIODS_AHEAD_MAX } from '../ledger/stocks.js';
import { STOCK_KINDS, type StockAsk, type StockGrant, type StockName } from './coordinator.js';
import {
  coveredMsOf,
  type Denial,
  FIRST_BATCH,
  IDLE_MS_PLENTIFUL,
  IDLE_MS_SCARCE,
  IdleFloor,
  isPlentiful,
  UseRate,
} from './lease-terms.js';

/** The slots that a first ask wants: a client's usual concurrency. */
const FIRST_SLOTS = 8;
/** Slots come back when calls end, so a slot that stayed free for the length of some calls is not needed. */
const IDLE_MS_SLOTS = 8_000;
/**
 * Tokens of the minute count against the limit for a minute from when the coordinator hears that they were
 * used. So a lease of them reports its use after this time at the latest.
 */
const IDLE_MS_WINDOW = 4_000;
/** A thread reports that a stock runs low when a quarter of it is left. */
const LOW_PART = 4n;

export class StockLease {
  readonly name: StockName;
  readonly #words: LeaseWords;
  readonly #idle: IdleFloor;
  readonly #rate: UseRate;
  /** Granted and not given back, since the lease was made, with what it found. */
  #net: bigint;
  #usedMs: number;
  /**
   * The coordinator's last reply, if it granted nothing of what was wanted; undefined after a grant, or if
   * the ask's period was a mistake. LeasedScope rejects requests by it, or has them wait if others may give
   * some back: those that came before the ask left, and need as much as was denied, under the same limit.
   */
  denial: Denial | undefined;
  /**
   * After `LeasedScope.reject`: until then requests that need as much are rejected without an ask. It ends by
   * time alone, also if there is a grant meanwhile.
   */
  deniedUntilMs = 0;
  /** The amount denied last: what was left here and the least that was asked for. Smaller needs still ask. */
  denied = 0n;
  /** The limit at that denial: under another limit requests ask again. */
  deniedLimit = 0n;
  /** The coordinator has plenty left, so idle amounts may stay here for longer. */
  #isPlentiful = false;
  /** What the coordinator has on record of this node: as outstanding, and as used. */
  #reported: { readonly period: number; readonly amount: bigint; readonly used: bigint };
  /** Something was given back since the last ask. */
  #gaveBack = false;
  /** When the last reply came; at first, when the lease was made. */
  #repliedMs: number;
  /** How much of the account's uncovered charges is still to be collected from this lease. */
  #uncovered = 0n;
  /** Whether calls take nothing of it: see `withhold`. */
  isWithheld = false;
  /** The limit that `follow` last saw. */
  #followed = 0n;
  /** The largest need of the calls that waited at the last ask for which any waited. It sizes the asks. */
  #largest: bigint;

  constructor(name: StockName, words: LeaseWords, nowMs: number) {
    const { period, granted, used } = words.read();
    this.name = name;
    this.#words = words;
    // A scope with nothing unused is forgotten. When it is next needed, its new lease finds in shared memory
    // what the earlier one left. Of a day or month the coordinator then has on record what was granted, all
    // of it used. Of the other kinds it counts only what is unused (`#outstandingOf`), which is 0.
    this.#reported = { period, amount: STOCK_KINDS[name] === 'period' ? granted : 0n, used };
    this.#idle = new IdleFloor(nowMs);
    this.#net = granted;
    this.#rate = new UseRate(Number(used), nowMs);
    this.#usedMs = nowMs;
    this.#repliedMs = nowMs;
    this.#largest = name === 'calls_in_flight' || name === 'calls_per_day' ? 1n : 0n;
  }

  /** What calls may take in `period`, of it or the next one. */
  left(period: number): bigint {
    const held = this.#words.read();
    return held.period >= period && held.period <= period + PERIODS_AHEAD_MAX ? held.available : 0n;
  }

  /** How much of the account's uncovered charges is to be collected, from here and from later grants. */
  setUncovered(amount: bigint): void {
    this.#uncovered = amount;
    this.#collect();
  }

  /**
   * The next ask, if calls with these needs wait for this lease; undefined if nothing is wanted or to be
   * reported. `low`: the lease runs low, so more is wanted although nobody waits. `all`: report also what the
   * coordinator has on record, because it may have lost it. `current`: the number of the day or month by the
   * calendar, 0 for a stock without a period. Of a balance read this before what was spent: StockAsk.unused.
   */
  ask(
    { needs = [], low = false, all = false }: { needs?: readonly bigint[]; low?: boolean; all?: boolean },
    limit: bigint,
    current: number,
    nowMs: number,
  ): StockAsk | undefined {
    const held = this.#read();
    if (this.#rate.read(this.#usedOf(held), nowMs)) this.#usedMs = nowMs;
    this.#gaveBack = false;
    const isOver = held.period < current;
    const period = isOver ? current : held.period;
    const { granted, used } = isOver ? { granted: 0n, used: 0n } : held;
    const available = this.left(current);
    const unused = maxOf(granted - used, 0n);
    const report = { limit, period, used, unused };
    const sum = needs.reduce((total, need) => total + need, this.#uncovered);
    if (needs.length > 0) this.#largest = needs.reduce(maxOf);
    if (sum <= available && !low) {
      // What is withheld is given free by the reply.
      const isKnown = !this.isWithheld && !this.#isOverreported(held) && !this.#isUnderreported(held);
      if (!all && isKnown) return undefined;
      return { ...report, least: 0n, most: 0n };
    }
    const unmet = needs.filter((need) => need > available);
    const least = unmet.length === 0 ? 1n : unmet.reduce(minOf) - available;
    const batch = BigInt(this.name === 'calls_in_flight' ? FIRST_SLOTS : FIRST_BATCH);
    // The largest of these is wanted.
    const most = [
      // What all calls that wait, and the uncovered charges, lack.
      sum - available,
      // Enough for some calls to come.
      this.#largest * batch,
      // What calls will use in the time that a lease covers, beyond what is available.
      this.#covered - available,
      // As much again as calls hold now, so that a scope that grows asks seldom.
      unused - available,
      least,
    ].reduce(maxOf);
    return { ...report, least, most };
  }

  /** Applies the reply to `ask`, which was sent at `sentMs`. */
  take(grant: StockGrant, ask: StockAsk, sentMs: number, nowMs: number): void {
    const { remaining, heldByOthers, period, freeInMs } = grant;
    if (period < ask.period) {
      this.#moveBack(period, ask.period, nowMs);
      return;
    }
    // The coordinator counts a new period from 0: nothing of the one before is on its record of this one.
    const recorded = period === ask.period ? ask : { used: 0n, unused: 0n };
    const unused = recorded.unused + grant.granted;
    // What comes while slots are withheld (of the fallback quota) is reported by the next ask as given back.
    const granted = this.isWithheld ? 0n : grant.granted;
    if (ask.most > 0n) {
      this.denial = granted === 0n ? { sentMs, heldByOthers } : undefined;
      // A grant leaves this as it is: until `deniedUntilMs` needs of so much are rejected, smaller ones not.
      if (granted === 0n) {
        this.denied = this.left(period) + ask.least;
        this.deniedLimit = ask.limit;
      }
    }
    this.#reported = { period, amount: this.#outstandingOf(recorded.used, unused), used: recorded.used };
    this.#repliedMs = nowMs;
    this.#isPlentiful = isPlentiful(unused, remaining);
    this.#words.publish(remaining, freeInMs);
    if (granted === 0n) return;
    this.#net += granted;
    // If the coordinator has no more, an ask when the lease runs low is in vain: a low-water mark of 0.
    this.#words.add(period, granted, remaining === 0n ? 0n : this.#lowOf(unused));
    this.#collect();
    this.#usedMs = nowMs;
    this.#idle.restart(nowMs);
  }

  /**
   * The coordinator replied with an earlier period than the ask named: by its calendar that one was a mistake
   * of a clock. The lease goes on in the period of the reply. A balance has no period and no `moveBack`.
   */
  #moveBack(period: number, mistaken: number, nowMs: number): void {
    this.#words.moveBack?.(period);
    if (this.#reported.period === mistaken) this.#reported = { ...this.#reported, period };
    // Nothing was refused, so requests that wait ask again.
    this.denial = undefined;
    this.#gaveBack = true;
    this.#repliedMs = nowMs;
  }

  /** Gives back what nobody has used for long enough; returns true if an ask should be sent now. */
  look(nowMs: number): boolean {
    const held = this.#words.read();
    if (this.#rate.read(this.#usedOf(held), nowMs)) this.#usedMs = nowMs;
    const idleMs = this.#isPlentiful ? this.#plentifulMs : IDLE_MS_SCARCE;
    const keep = nowMs - this.#usedMs >= idleMs ? 0n : this.#covered;
    const idle = this.#idle.look(held.available, idleMs, nowMs) - keep;
    if (idle > 0n) {
      this.#giveBack(idle);
      this.#idle.restart(nowMs);
    }
    // A lease in use nearly always has something to report. It does so once in `idleMs`, and at once if
    // something lay idle or is to be collected.
    const isDue = this.#gaveBack || nowMs - this.#repliedMs >= idleMs;
    if (this.#uncovered > 0n) return true;
    if (!isDue) return false;
    const now = this.#read();
    return this.#isOverreported(now) || this.#isUnderreported(now);
  }

  /**
   * Call slots come back when calls end, so in steady use a lease of them would outlive a limit that was
   * lowered. So it shrinks as the limit did, all leases together to the new limit at most. Calls in flight go
   * on beyond it; none takes the slot of one that ends.
   */
  follow(limit: bigint): void {
    const before = this.#followed;
    this.#followed = limit;
    if (this.name !== 'calls_in_flight' || limit >= before) return;
    const { period, granted } = this.#words.read();
    const kept = (granted * limit) / before;
    if (kept === granted) return;
    this.#words.add(period, kept - granted, 0n);
    this.#net -= granted - kept;
    this.#gaveBack = true;
  }

  /**
   * Of call slots: calls take none while they are withheld, because others may be granted them before such a
   * call ends. Those that calls hold go on and stay reported. When that ends, what calls hold is here again.
   * So end it only after a reply of the coordinator, which then has taken in an ask.
   */
  withhold(isWithheld: boolean): void {
    if (isWithheld === this.isWithheld) return;
    this.isWithheld = isWithheld;
    const { period, granted } = this.#words.read();
    const change = isWithheld ? -granted : this.#words.held!();
    this.#words.add(period, change, 0n);
    this.#net += change;
    this.#gaveBack = true;
  }

  /** Takes out of the ledger what no call holds. The next ask reports that less is outstanding. */
  giveBack(): void {
    this.#giveBack(this.#words.read().available);
  }

  /** Nothing is held, and the coordinator knows that. */
  get isEmpty(): boolean {
    const held = this.#read();
    if (held.granted > held.used || this.#uncovered > 0n) return false;
    return !this.#isOverreported(held) && !this.#isUnderreported(held);
  }

  /** Call slots that are withheld are not in the words, except for those that calls hold. */
  #read(): StockHeld {
    const held = this.#words.read();
    return this.isWithheld ? { ...held, granted: this.#words.held!() } : held;
  }

  get #plentifulMs(): number {
    if (this.name === 'calls_in_flight') return IDLE_MS_SLOTS;
    return STOCK_KINDS[this.name] === 'window' ? IDLE_MS_WINDOW : IDLE_MS_PLENTIFUL;
  }

  /** The low-water mark: a listener wakes the main thread when so much is left of `unused`. */
  #lowOf(unused: bigint): bigint {
    const low = unused / LOW_PART;
    return this.#isPlentiful ? maxOf(low, minOf(this.#covered, unused) / 2n) : low;
  }

  /** What is used in the time that a lease covers. */
  get #covered(): bigint {
    return BigInt(Math.ceil((this.#rate.perSecond * coveredMsOf(this.#isPlentiful)) / 1_000));
  }

  /**
   * How much was used, for the rate. The words of a balance have no `used`: a charge that the store has is
   * taken out of `granted`. So what was used is what this lease was granted and is no longer there.
   */
  #usedOf({ granted, used }: StockHeld): number {
    return Number(this.name === 'balance' ? this.#net - granted : used);
  }

  #outstandingOf(used: bigint, unused: bigint): bigint {
    return STOCK_KINDS[this.name] === 'period' ? used + unused : unused;
  }

  /** The coordinator has more on record than is outstanding, so there is something to report. */
  #isOverreported({ period, granted, used }: StockHeld): boolean {
    if (period !== this.#reported.period) return false;
    return this.#outstandingOf(used, granted - used) < this.#reported.amount;
  }

  /** The coordinator has less on record as used of a day or a month, so it shows the rest as unused. */
  #isUnderreported({ period, used }: StockHeld): boolean {
    const isCounted = STOCK_KINDS[this.name] === 'period';
    return isCounted && period === this.#reported.period && used > this.#reported.used;
  }

  #giveBack(amount: bigint): void {
    if (amount <= 0n) return;
    const taken = this.#words.takeBack(amount);
    this.#net -= taken;
    if (taken > 0n) this.#gaveBack = true;
  }

  /** Collects uncovered charges from what is available here. */
  #collect(): void {
    if (this.#uncovered > 0n) this.#uncovered -= this.#words.collect?.(this.#uncovered) ?? 0n;
  }
}
