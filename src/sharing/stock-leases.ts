/**
 * Holds what this process leases of one stock of one scope. Every ask reports how much was used and how much
 * is outstanding, and the coordinator adds what it grants. leased-scope.ts owns a StockLease and collects its
 * asks, lease-manager.ts sends them. Main thread.
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
 * next ask reports less. Tests: test/unit/sharing/stock-leases.test.ts, lease-stock.test.ts (random use over
 * several nodes).
 */
import { maxOf, minOf } from '../core/units.js';
import type { LeaseWords, StockHeld } from '../ledger/leased-stocks.js';
import { PERIODS_AHEAD_MAX } from '../ledger/stocks.js';
import {
  STOCK_KINDS,
  type StockAsk,
  type StockGrant,
  type StockKind,
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

/** How many call slots a first ask wants: a client's usual concurrency. */
const FIRST_SLOTS = 8;
/**
 * How long a call slot may lie idle if the coordinator has plenty left. Slots come back when calls end, so a
 * slot that stayed free for the length of some calls is not needed.
 */
const IDLE_MS_SLOTS = 8_000;
/**
 * Tokens of the minute count against the limit for a minute from when the coordinator hears that they were
 * used. So a lease of such tokens reports its use after this time at the latest.
 */
const IDLE_MS_WINDOW = 4_000;
/** A thread reports that a stock runs low when 1 / LOW_PART of it is left. */
const LOW_PART = 4n;

export class StockLease {
  readonly name: StockName;
  readonly #kind: StockKind;
  readonly #words: LeaseWords;
  readonly #idle: IdleFloor;
  readonly #rate: UseRate;
  /** All that was granted (at first, what the words showed), less what was given back: for `#usedOf`. */
  #netGranted: bigint;
  #usedMs: number; // when use was last seen, or an amount granted
  readonly #denials = new Denials();
  /** The amount that was denied last: what was available, and the ask's `least`. Smaller needs ask. */
  #deniedAmount = 0n;
  #deniedLimit = 0n; // the limit at that denial: under another limit requests ask again
  /** Whether the coordinator has plenty left, so that this process may keep idle amounts for longer. */
  #isPlentiful = false;
  /** What the coordinator has on record of this node, by its last reply. */
  #reported: { readonly period: number; readonly taken: bigint; readonly used: bigint };
  /**
   * Whether the next sweep reports at once what the coordinator does not know yet, and not only after the
   * idle time: an amount was given back, or the lease changed otherwise than by use. `ask` clears it; if that
   * ask is lost, LeaseManager asks again.
   */
  #reportsSoon = false;
  #repliedMs: number; // when the last reply came; at first, when the lease was made
  /** How much of the account's uncovered charges is still to be collected; 0 in leases of other stocks. */
  #uncovered = 0n;
  #isWithheld = false;
  #limitBefore = 0n; // the limit at the last `followLimit`; 0 before the first
  /** The largest need among the calls that waited at the last ask for which calls waited. It sizes asks. */
  #largestNeed: bigint;

  constructor(name: StockName, words: LeaseWords, nowMs: number) {
    const { period, granted, used } = words.read();
    this.name = name;
    this.#kind = STOCK_KINDS[name];
    this.#words = words;
    // LeaseManager forgets a scope with nothing outstanding. If it is needed again, its new lease finds in
    // shared memory what the earlier lease left. Of a day or month the coordinator then has on record what
    // was granted, and all of that was used. Of other kinds it has on record what is outstanding: 0.
    this.#reported = { period, taken: this.#kind === 'period' ? granted : 0n, used };
    this.#idle = new IdleFloor(nowMs);
    this.#netGranted = granted;
    this.#rate = new UseRate(Number(used), nowMs);
    this.#usedMs = nowMs;
    this.#repliedMs = nowMs;
    this.#largestNeed = this.#kind === 'flight' || name === 'calls_per_day' ? 1n : 0n;
  }

  /** Whether calls take nothing of this lease: see `setWithheld`. Only call slots can be withheld. */
  get isWithheld(): boolean {
    return this.#isWithheld;
  }

  /** What calls may take in `period`. The words may already be of the next period, if a clock is ahead. */
  availableIn(period: number): bigint {
    const held = this.#words.read();
    return held.period >= period && held.period <= period + PERIODS_AHEAD_MAX ? held.available : 0n;
  }

  /** Sets how much of the account's uncovered charges to collect, now and from later grants. */
  setUncovered(amount: bigint): void {
    this.#uncovered = amount;
    this.#collect();
  }

  /**
   * Makes the next ask, which the caller sends, while calls with these `needs` wait for this lease; undefined
   * if nothing is wanted or to be reported. `low`: the lease runs low, so more is wanted although no call
   * waits. `all`: report also what the coordinator has on record, because it may have lost its record.
   * `currentPeriod`: the number of the day or month by the calendar, 0 for a stock without a period. Must be
   * called before the exchange reads what the host's store has as spent: see StockAsk.unused.
   */
  ask(
    { needs = [], low = false, all = false }: { needs?: readonly bigint[]; low?: boolean; all?: boolean },
    limit: bigint,
    currentPeriod: number,
    nowMs: number,
  ): StockAsk | undefined {
    const held = this.#readHeld();
    if (this.#rate.read(this.#usedOf(held), nowMs)) this.#usedMs = nowMs;
    this.#reportsSoon = false;
    const isOver = held.period < currentPeriod;
    const period = isOver ? currentPeriod : held.period;
    const { granted, used } = isOver ? { granted: 0n, used: 0n } : held;
    const available = this.availableIn(currentPeriod);
    const unused = maxOf(granted - used, 0n);
    const report = { limit, period, used, unused };
    const wanted = needs.reduce((total, need) => total + need, this.#uncovered);
    if (needs.length > 0) this.#largestNeed = needs.reduce(maxOf);
    if (wanted <= available && !low) {
      // While slots are withheld each exchange needs an ask, because only a reply ends that.
      const isKnown = !this.#isWithheld && !this.#isOverreported(held) && !this.#isUnderreported(held);
      if (!all && isKnown) return undefined;
      return { ...report, least: 0n, most: 0n };
    }
    const unmet = needs.filter((need) => need > available);
    const least = unmet.length === 0 ? 1n : unmet.reduce(minOf) - available;
    const batch = BigInt(this.#kind === 'flight' ? FIRST_SLOTS : FIRST_BATCH);
    // The largest of these is wanted.
    const most = [
      // What all calls that wait, and the uncovered charges, lack.
      wanted - available,
      // Enough for some calls to come.
      this.#largestNeed * batch,
      // What calls will use in the time that a lease covers, beyond what is available.
      this.#coveredNeed - available,
      // As much again as calls hold now, so that a scope that grows asks seldom.
      unused - available,
      least,
    ].reduce(maxOf);
    return { ...report, least, most };
  }

  /** Applies the reply to `ask`, which was sent at `sentMs`. */
  applyGrant(grant: StockGrant, ask: StockAsk, sentMs: number, nowMs: number): void {
    const { remaining, heldByOthers, period, freeInMs } = grant;
    if (period < ask.period) {
      this.#moveBack(period, ask.period, nowMs);
      return;
    }
    // The coordinator counts a new period from 0: its record has nothing of the period that the ask named.
    const recorded = period === ask.period ? ask : { used: 0n, unused: 0n };
    const unused = recorded.unused + grant.granted;
    // The fallback quota may grant slots while slots are withheld. Calls do not get them, and the next ask
    // reports them as given back.
    const granted = this.#isWithheld ? 0n : grant.granted;
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
    this.#words.publish(remaining, freeInMs);
    if (granted === 0n) {
      // A period that has begun goes on, also if the clock was set back: rejections must tell when it ends.
      if (period > ask.period) this.#words.add(period, 0n, 0n);
      return;
    }
    this.#netGranted += granted;
    // No low-water mark (0) if the coordinator has nothing left: the ask of a low lease would get nothing.
    this.#words.add(period, granted, remaining === 0n ? 0n : this.#lowOf(unused));
    this.#collect();
    this.#usedMs = nowMs;
    this.#idle.restart(nowMs);
  }

  /**
   * Called if the reply names an earlier period than the ask: by the coordinator's calendar the ask's period
   * was a mistake of a clock. The lease goes on in the period of the reply. `?.`: the words of a balance have
   * no `moveBack`, because a balance has no period.
   */
  #moveBack(period: number, mistakenPeriod: number, nowMs: number): void {
    this.#words.moveBack?.(period);
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
    const { granted, used, available } = this.#words.read();
    return granted - used > available ? 0 : nowMs - this.#usedMs;
  }

  /** Gives back what no call has used for long enough. Returns true if an ask should be sent now. */
  sweep(nowMs: number): boolean {
    const held = this.#words.read();
    if (this.#rate.read(this.#usedOf(held), nowMs)) this.#usedMs = nowMs;
    const idleMs = this.#isPlentiful ? this.#plentifulMs : IDLE_MS_SCARCE;
    // A stock in use keeps what it will need soon, even if that lay idle.
    const kept = nowMs - this.#usedMs >= idleMs ? 0n : this.#coveredNeed;
    const idle = this.#idle.idleAmount(held.available, idleMs, nowMs) - kept;
    if (idle > 0n) {
      this.#giveBack(idle);
      this.#idle.restart(nowMs);
    }
    // A lease in use nearly always has something to report. It reports once in `idleMs`, but at once if
    // `#reportsSoon` is set, or an amount is to be collected.
    const isDue = this.#reportsSoon || nowMs - this.#repliedMs >= idleMs;
    if (this.#uncovered > 0n) return true;
    if (!isDue) return false;
    const heldNow = this.#readHeld();
    return this.#isOverreported(heldNow) || this.#isUnderreported(heldNow);
  }

  /**
   * Shrinks a lease of call slots in proportion if their limit was lowered, so that all leases together are
   * at most the new limit. Otherwise a lease in steady use would never shrink, because its slots come back
   * when calls end. Calls in flight go on beyond the limit, but no new call takes the slot of one that ends.
   * LeasedScope calls it at each sweep.
   */
  followLimit(limit: bigint): void {
    const limitBefore = this.#limitBefore;
    this.#limitBefore = limit;
    if (this.#kind !== 'flight' || limit >= limitBefore) return;
    const { period, granted } = this.#words.read();
    const kept = (granted * limit) / limitBefore;
    if (kept === granted) return;
    this.#words.add(period, kept - granted, 0n);
    this.#netGranted -= granted - kept;
    this.#reportsSoon = true;
  }

  /**
   * Withholds call slots from calls, or ends that. While slots are withheld no call takes one, because the
   * coordinator may grant the slot to others before the call ends. Calls that hold slots go on, and asks
   * report these slots. When the withholding ends, the lease has the slots that calls hold. It may end only
   * after a reply of the coordinator, which then has recorded an ask with these slots.
   */
  setWithheld(isWithheld: boolean): void {
    if (isWithheld === this.#isWithheld) return;
    this.#isWithheld = isWithheld;
    const { period, granted } = this.#words.read();
    // The `!` is safe, here and in `#readHeld`: only call slots are withheld, and their words have `held`.
    const change = isWithheld ? -granted : this.#words.held!();
    this.#words.add(period, change, 0n);
    this.#netGranted += change;
    this.#reportsSoon = true;
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
    this.#giveBack(this.#words.read().available);
  }

  /** Whether nothing is outstanding, and the coordinator knows so. */
  get isEmpty(): boolean {
    const held = this.#readHeld();
    if (held.granted > held.used || this.#uncovered > 0n) return false;
    return !this.#isOverreported(held) && !this.#isUnderreported(held);
  }

  /** As `#words.read()`. But while slots are withheld the words have 0: then `granted` is what calls hold. */
  #readHeld(): StockHeld {
    const held = this.#words.read();
    return this.#isWithheld ? { ...held, granted: this.#words.held!() } : held;
  }

  /** How long an amount may lie idle while the coordinator has plenty left. */
  get #plentifulMs(): number {
    if (this.#kind === 'flight') return IDLE_MS_SLOTS;
    return this.#kind === 'window' ? IDLE_MS_WINDOW : IDLE_MS_PLENTIFUL;
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

  /**
   * How much was used, for the rate. The words of a balance show 0 as used, and a charge leaves `granted`
   * when a flush has written it. So of money all counts as used that was granted, was not given back, and is
   * no longer in `granted`.
   */
  #usedOf({ granted, used }: StockHeld): number {
    return Number(this.#kind === 'balance' ? this.#netGranted - granted : used);
  }

  /** What counts as taken by this node at the coordinator. `unused`: what is outstanding. */
  #takenOf(used: bigint, unused: bigint): bigint {
    return this.#kind === 'period' ? used + unused : unused;
  }

  /** Whether the coordinator has more on record than is taken, so that an ask can free some. */
  #isOverreported({ period, granted, used }: StockHeld): boolean {
    if (period !== this.#reported.period) return false;
    return this.#takenOf(used, granted - used) < this.#reported.taken;
  }

  /** Whether the coordinator shows as unused what was used of a day or a month. */
  #isUnderreported({ period, used }: StockHeld): boolean {
    return this.#kind === 'period' && period === this.#reported.period && used > this.#reported.used;
  }

  /** Takes up to `amount` out of the ledger. The next ask reports that less is outstanding. */
  #giveBack(amount: bigint): void {
    if (amount <= 0n) return;
    const givenBack = this.#words.takeBack(amount);
    this.#netGranted -= givenBack;
    if (givenBack > 0n) this.#reportsSoon = true;
  }

  /** Collects uncovered charges from what is available. */
  #collect(): void {
    if (this.#uncovered > 0n) this.#uncovered -= this.#words.collect?.(this.#uncovered) ?? 0n;
  }
}
