/**
 * `StockLease` is what this process leases of one stock of one scope. Every ask reports how much was used and
 * how much is held, and the coordinator adds what it grants. `LeasedScope` owns it and collects its asks, and
 * `LeaseManager` sends them. Main thread.
 *
 * Must hold: the coordinator's record of this node is never less than what is outstanding here, so that it
 * cannot grant an amount twice. A later ask reports what was given back here. Tests:
 * unit/sharing/stock-leases, lease-stock (random use over several nodes).
 */
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
/** What was used of a window weighs from when the coordinator hears of it, so it hears soon. */
const IDLE_MS_WINDOW = 4_000;
/** A thread reports that a stock runs low when a quarter of it is left. */
const LOW_PART = 4n;

const NO_WAITS: readonly bigint[] = [];

export class StockLease {
  readonly name: StockName;
  readonly #words: LeaseWords;
  readonly #idle: IdleFloor;
  readonly #rate: UseRate;
  /** Granted and not given back, since the lease was made. */
  #net: bigint;
  #usedMs: number;
  /** The coordinator's last refusal; undefined after a grant. */
  denial: Denial | undefined;
  /** New waits are refused without an ask until then. Set by `LeasedScope.reject`. */
  deniedUntilMs = 0;
  /** What the last denial was about, with what was left here: smaller amounts may still be granted. */
  denied = 0n;
  /** The limit at that denial: under another limit more may be granted. */
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
  /** The limit that `follow` last saw. */
  #followed = 0n;
  /** The largest need of the calls that waited at the last ask for which any waited. It sizes the asks. */
  #largest: bigint;

  constructor(name: StockName, words: LeaseWords, nowMs: number) {
    const { period, granted, used } = words.read();
    this.name = name;
    this.#words = words;
    // A scope that has nothing unused is forgotten, and gets a new lease when it is next needed. What it used
    // of a period is still on the coordinator's record.
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
   * reported. `low`: the lease runs low, so more is wanted although nobody waits. `today`: the number of the
   * period by the calendar. `all`: report also what the coordinator has on record, because it may have lost
   * it.
   *
   * The sender reads the host's spent total after this ask is made. A charge flushed in between is counted
   * twice until the next ask; the other order could miss it.
   */
  ask(
    {
      needs = NO_WAITS,
      low = false,
      all = false,
    }: { needs?: readonly bigint[]; low?: boolean; all?: boolean },
    limit: bigint,
    today: number,
    nowMs: number,
  ): StockAsk | undefined {
    const held = this.#words.read();
    if (this.#rate.read(this.#usedOf(held), nowMs)) this.#usedMs = nowMs;
    this.#gaveBack = false;
    const isOver = held.period < today;
    const period = isOver ? today : held.period;
    const { granted, used } = isOver ? { granted: 0n, used: 0n } : held;
    const available = this.left(today);
    const unused = granted > used ? granted - used : 0n;
    const report = { limit, period, used, unused };
    let sum = this.#uncovered;
    let least: bigint | undefined;
    if (needs.length > 0) this.#largest = 0n;
    for (const need of needs) {
      sum += need;
      if (need > available && (least === undefined || need < least)) least = need;
      if (need > this.#largest) this.#largest = need;
    }
    if (sum <= available && !low) {
      if (!all && !this.#isOverreported(held) && !this.#isUnderreported(held)) return undefined;
      return { ...report, least: 0n, most: 0n };
    }
    const missing = least === undefined ? 1n : least - available;
    const batch = BigInt(this.name === 'calls_in_flight' ? FIRST_SLOTS : FIRST_BATCH);
    // What all that waits lacks; some needs for calls to come; what is used in the time to be covered; as
    // much again as is in use, so that a scope that grows asks seldom; and never less than the least.
    const wanted = [
      sum - available,
      this.#largest * batch,
      this.#covered - available,
      unused - available,
      missing,
    ];
    return {
      ...report,
      least: missing,
      most: wanted.reduce((most, amount) => (amount > most ? amount : most)),
    };
  }

  /** Applies the reply to `ask`, which was sent at `sentMs`. */
  take(grant: StockGrant, ask: StockAsk, sentMs: number, nowMs: number): void {
    const { granted, remaining, heldByOthers, period, freeInMs } = grant;
    if (period < ask.period) {
      this.#moveBack(period, ask.period, nowMs);
      return;
    }
    // The coordinator counts a new period from 0: nothing of the one before is on its record of this one.
    const said = period === ask.period ? ask : { used: 0n, unused: 0n };
    const unused = said.unused + granted;
    if (ask.most > 0n) {
      this.denial = granted === 0n ? { sentMs, heldByOthers } : undefined;
      // A grant leaves this as it is: until `deniedUntilMs` needs of so much are rejected, smaller ones not.
      if (granted === 0n) {
        this.denied = this.left(period) + ask.least;
        this.deniedLimit = ask.limit;
      }
    }
    this.#reported = { period, amount: this.#outstandingOf(said.used, unused), used: said.used };
    this.#repliedMs = nowMs;
    this.#isPlentiful = isPlentiful(unused, remaining);
    this.#words.publish(remaining, freeInMs);
    if (granted === 0n) return;
    // If the coordinator has no more, running low is not worth an ask.
    this.#net += granted;
    this.#words.add(period, granted, remaining === 0n ? 0n : this.#lowOf(unused));
    this.#collect();
    this.#usedMs = nowMs;
    this.#idle.restart(nowMs);
  }

  /** The period of the ask was a mistake of a clock: the next ask is about this one. */
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
    const now = this.#words.read();
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

  /** Takes out of the ledger what no call holds. The next ask reports that less is outstanding. */
  giveBack(): void {
    this.#giveBack(this.#words.read().available);
  }

  /** Nothing is held, and the coordinator knows that. */
  get isEmpty(): boolean {
    const held = this.#words.read();
    if (held.granted > held.used || this.#uncovered > 0n) return false;
    return !this.#isOverreported(held) && !this.#isUnderreported(held);
  }

  get #plentifulMs(): number {
    if (this.name === 'calls_in_flight') return IDLE_MS_SLOTS;
    return STOCK_KINDS[this.name] === 'window' ? IDLE_MS_WINDOW : IDLE_MS_PLENTIFUL;
  }

  /** The low-water mark: a listener wakes the main thread when so much is left of `unused`. */
  #lowOf(unused: bigint): bigint {
    const low = unused / LOW_PART;
    if (!this.#isPlentiful) return low;
    const ahead = this.#covered < unused ? this.#covered / 2n : unused / 2n;
    return ahead > low ? ahead : low;
  }

  /** What is used in the time that a lease covers. */
  get #covered(): bigint {
    return BigInt(Math.ceil((this.#rate.perSecond * coveredMsOf(this.#isPlentiful)) / 1_000));
  }

  /** Of a balance what was charged is granted no more. */
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
    return (
      STOCK_KINDS[this.name] === 'period' && period === this.#reported.period && used > this.#reported.used
    );
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
