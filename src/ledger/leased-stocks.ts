/**
 * Stocks whose limits are shared with other processes: calls take of what the coordinator granted to this
 * process. Tokens of the minute are then a stock too, of period 0, because the coordinator has the window.
 * ledger.ts and upstream-counters.ts choose this class. The lease manager (sharing/stock-leases.ts) adds
 * grants and takes back by `leaseOf`. Any thread, each with an object of its own.
 *
 * `granted` is a word of the form of `taken` (stocks.ts): a period, and what was granted in it, less what was
 * given back. So `granted` - `taken` is what calls may take. In this file to _take back_ is what the lease
 * manager does to a lease, and to _give back_ what a call does that took too much.
 *
 * Only the main thread changes `granted`. To take back, the main thread takes like a call, then lowers
 * `granted`, then gives back what it took. A listener that takes reads `granted` again after its exchange of
 * `taken`. So either the main thread has seen the listener's amount in `taken`, or the listener reads the
 * lower `granted` and gives its amount back.
 *
 * If the coordinator finds that the period of a lease was a mistake of a clock, the lease moves to the right
 * period, with what is taken and nothing more: the coordinator may have granted the remainder to others.
 *
 * Must hold: never more is taken than granted, also while the main thread takes back. One exception: a call
 * may use more than it held, as its provider reports. Tests: test/unit/ledger/stocks.test.ts (at whatever
 * step a lease is taken back), test/unit/ledger/leases.test.ts, test/unit/sharing/lease-stock.test.ts.
 */
import type { Clock } from '../core/clock.js';
import * as layout from './layout.js';
import { type Halves, PackedWords } from './packed-words.js';
import { amountIn, PERIODS_AHEAD_MAX, periodsSince, setStock, type StockLeft, Stocks } from './stocks.js';

/**
 * Fields of a lease, by word; there are LEASE_WORDS of them (layout.ts). The main thread alone writes them.
 * LOW is the low-water mark: the take that leaves so much or less, where more was left before, sets `ranLow`;
 * 0 means no mark. By the coordinator's last reply, REMAINING is how much it could still grant, and FREE_MS
 * (monotonic, 0 before the first reply) when it has what was asked for.
 */
const GRANTED = 0;
const PERIOD = 1;
const LOW = 2;
const REMAINING = 3;
const FREE_MS = 4;

/** Where the leases of stocks lie. `stock` is the index of a stock's first word, as in stocks.ts. */
interface LeaseTable {
  readonly words: BigInt64Array;
  /** The first word of a stock's lease. */
  readonly leaseAt: (stock: number) => number;
  /** Whether what is taken counts as used at once: true for calls of a day or month, which nobody settles. */
  readonly isUsedAtOnce: (stock: number) => boolean;
}

/** Calls of the day: lease and stock are in the record of the account, key, group or rule. */
export function dayLeases(words: BigInt64Array): LeaseTable {
  return { words, leaseAt: (stock) => stock - layout.DAY + layout.DAY_LEASE, isUsedAtOnce: () => true };
}

/** An account's calls in flight: the lease is in the account's record, the stock in its extra bytes. */
export function flightLeases(words: BigInt64Array): LeaseTable {
  const leaseAt = (stock: number): number =>
    ((stock - layout.FLIGHT) / layout.EXTRA_WORDS64) * layout.COUNTED_WORDS64 + layout.FLIGHT_LEASE;
  return { words, leaseAt, isUsedAtOnce: () => false };
}

/** All other quotas: lease and stock are in the same quota record, at the offsets that layout.ts has. */
function quotaLeases(words: BigInt64Array): LeaseTable {
  const quotaOf = (stock: number): number =>
    ((stock % layout.QUOTA_WORDS64) - layout.STOCKS) / layout.STOCK_WORDS;
  return {
    words,
    leaseAt: (stock) =>
      stock - (stock % layout.QUOTA_WORDS64) + layout.LEASES + quotaOf(stock) * layout.LEASE_WORDS,
    isUsedAtOnce: (stock) => quotaOf(stock) === layout.CALLS_PER_MONTH,
  };
}

export class LeasedStocks extends Stocks {
  readonly #clock: Clock;
  readonly #leases: LeaseTable;
  readonly #granted: PackedWords;
  /** Scratch: the word `granted` as read before an exchange of `taken`, and after. */
  readonly #before: Halves = { low: 0, high: 0 };
  readonly #after: Halves = { low: 0, high: 0 };

  /** `leases` is given for stocks outside of quota records; these have no word `settled`. */
  constructor(words: BigInt64Array, clock: Clock, leases?: LeaseTable) {
    super(words, { hasSettled: leases === undefined });
    this.#clock = clock;
    this.#leases = leases ?? quotaLeases(words);
    this.#granted = new PackedWords(this.#leases.words);
  }

  /** As `Stocks.take`, but the limit is what was granted, and no mistake of a clock is corrected here. */
  override take(stock: number, period: number, amount: number): number | undefined {
    const { words, current, next } = this;
    const [before, after] = [this.#before, this.#after];
    const leases = this.#leases.words;
    const lease = this.#leases.leaseAt(stock);
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      // `taken` is read first. If the exchange succeeds, `taken` was still the same when `granted` was read.
      words.load(stock, current);
      this.#granted.load(lease + GRANTED, before);
      const periodsLater = periodsSince(before, period);
      // The period of the lease is over, or was a mistake of a clock: only the coordinator can correct that.
      if (periodsLater > 0 || periodsLater < -PERIODS_AHEAD_MAX) return undefined;
      const countedPeriod = period - periodsLater;
      const limit = amountIn(before);
      const taken = periodsSince(current, countedPeriod) > 0 ? 0 : amountIn(current);
      if (taken >= limit || taken + amount > limit) return undefined;
      setStock(next, countedPeriod, taken + amount);
      if (!words.compareExchange(stock, current, next)) continue;
      // If the main thread has lowered `granted` meanwhile, the amount goes back.
      this.#granted.load(lease + GRANTED, after);
      if (periodsSince(after, countedPeriod) !== 0 || amountIn(after) < taken + amount) {
        this.settle(stock, countedPeriod, amount, 0);
        continue;
      }
      const leftHere = limit - taken - amount;
      const low = Number(Atomics.load(leases, lease + LOW));
      if (low > 0 && leftHere <= low && leftHere + amount > low) this.ranLow = true;
      this.left = leftHere + Number(Atomics.load(leases, lease + REMAINING));
      return countedPeriod;
    }
    throw new Error('invariant broken: a stock is taken or rejected in bounded tries');
  }

  /** Does nothing, because the coordinator knows the use that the store has. */
  override set(): void {
    return;
  }

  override clear(stock: number): void {
    super.clear(stock);
    const { words, leaseAt } = this.#leases;
    const lease = leaseAt(stock);
    for (let word = 0; word < layout.LEASE_WORDS; word++) Atomics.store(words, lease + word, 0n);
  }

  /** If the coordinator counts in a later period than this process has taken of, that period. */
  override last(stock: number, period: number): { readonly period: number; readonly taken: number } {
    const last = super.last(stock, period);
    const before = this.#before;
    this.#granted.load(this.#leases.leaseAt(stock) + GRANTED, before);
    const isGranted = before.low !== 0 || before.high !== 0;
    const grantedPeriod = isGranted ? period - periodsSince(before, period) : 0;
    return grantedPeriod > last.period ? { period: grantedPeriod, taken: 0 } : last;
  }

  /** What was granted in `period` or a later period; 0 if the lease is of an earlier period. */
  grantedIn(stock: number, period: number): number {
    this.#granted.load(this.#leases.leaseAt(stock) + GRANTED, this.#before);
    return periodsSince(this.#before, period) > 0 ? 0 : amountIn(this.#before);
  }

  /** What is left of the lease and, by its last reply, at the coordinator. Not known before that reply. */
  override leftOf(stock: number, period: number): StockLeft {
    const { words, leaseAt } = this.#leases;
    const lease = leaseAt(stock);
    const leftHere = this.grantedIn(stock, period) - this.read(stock, period).taken;
    const remaining = Number(Atomics.load(words, lease + REMAINING));
    const freeMs = Number(Atomics.load(words, lease + FREE_MS));
    const waitMs = Math.max(0, freeMs - this.#clock.monotonicMs());
    return { left: Math.max(0, leftHere) + remaining, waitMs, isKnown: freeMs > 0 };
  }

  /** The lease of one stock. Amounts are calls, tokens, or nano-units of money. Main thread. */
  leaseOf(stock: number): StockWords {
    return {
      read: () => this.#heldOf(stock),
      add: (period, amount, low) => this.#grant(stock, period, amount, low),
      takeBack: (amountMax) => this.#takeBack(stock, amountMax),
      held: () => BigInt(this.read(stock, 0).taken),
      publish: (remaining, freeInMs) => {
        const { words, leaseAt } = this.#leases;
        const freeMs = Math.ceil(this.#clock.monotonicMs() + freeInMs);
        Atomics.store(words, leaseAt(stock) + REMAINING, remaining);
        Atomics.store(words, leaseAt(stock) + FREE_MS, BigInt(freeMs));
      },
      moveBack: (period) => this.#moveBack(stock, period),
    };
  }

  #heldOf(stock: number): StockHeld {
    const { words, leaseAt, isUsedAtOnce } = this.#leases;
    const lease = leaseAt(stock);
    const period = Number(Atomics.load(words, lease + PERIOD));
    const granted = this.grantedIn(stock, period);
    const { taken, settled } = this.read(stock, period);
    return {
      period,
      granted: BigInt(granted),
      used: BigInt(isUsedAtOnce(stock) ? taken : settled),
      available: BigInt(Math.max(0, granted - taken)),
    };
  }

  /** Adds `amount`, which may be negative, to the grant of `period`. LOW stays if `low` is undefined. */
  #grant(stock: number, period: number, amount: bigint, low?: bigint): void {
    const { words, leaseAt } = this.#leases;
    const lease = leaseAt(stock);
    this.#granted.load(lease + GRANTED, this.#before);
    const before = periodsSince(this.#before, period) === 0 ? amountIn(this.#before) : 0;
    if (low !== undefined) Atomics.store(words, lease + LOW, low);
    this.#setGranted(stock, period, before + Number(amount));
  }

  /** GRANTED has the period modulo 2,048, for listeners. PERIOD has it whole, for the main thread alone. */
  #setGranted(stock: number, period: number, amount: number): void {
    const { words, leaseAt } = this.#leases;
    const lease = leaseAt(stock);
    Atomics.store(words, lease + PERIOD, BigInt(period));
    setStock(this.#after, period, amount);
    this.#granted.store(lease + GRANTED, this.#after);
  }

  /** Takes back in the order that the header gives. If a call takes first, the next try takes back less. */
  #takeBack(stock: number, amountMax: bigint): bigint {
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      const { period, available } = this.#heldOf(stock);
      const amount = available < amountMax ? available : amountMax;
      if (amount <= 0n) return 0n;
      const taken = Number(amount);
      if (this.take(stock, period, taken) === undefined) continue;
      this.#grant(stock, period, -amount);
      this.settle(stock, period, taken, 0);
      return amount;
    }
    throw new Error('invariant broken: a stock is taken back in bounded tries');
  }

  #moveBack(stock: number, period: number): void {
    const { words, current } = this;
    if (this.#heldOf(stock).period <= period) return;
    // First the lease gets the period, with nothing granted: from here on no thread takes of the later one.
    this.#setGranted(stock, period, 0);
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      words.load(stock, current);
      if (periodsSince(current, period) >= -PERIODS_AHEAD_MAX) {
        this.#setGranted(stock, period, this.read(stock, period).taken);
        return;
      }
      this.giveUpMistaken(stock, () => period);
    }
    throw new Error('invariant broken: a stock is moved back in bounded tries');
  }
}

/** What this process has of a stock or of a balance. Its calls hold `granted` - `used` - `available`. */
export interface StockHeld {
  /** The day or month; 0 if the stock has none. */
  readonly period: number;
  /** What was granted in the period, less what was given back. */
  readonly granted: bigint;
  readonly used: bigint;
  readonly available: bigint;
}

/** A lease in shared memory, from which other threads take meanwhile. Main thread. */
export interface LeaseWords {
  read(): StockHeld;
  /**
   * Adds what was granted, and drops what is left of another period. From then on, a take that leaves `low`
   * or less makes its thread ask the lease manager for more; a `low` of 0 disables that.
   */
  add(period: number, amount: bigint, low: bigint): void;
  /** Takes at most `amountMax` of what is available out of what was granted; returns how much. */
  takeBack(amountMax: bigint): bigint;
  /** Shows listeners what the coordinator could still grant, and when what was asked for will be free. */
  publish(remaining: bigint, freeInMs: number): void;
}

export interface StockWords extends LeaseWords {
  /** Of call slots: how many of them calls hold, whatever is granted. */
  held(): bigint;
  /**
   * Of a day or month: what was taken of a later period counts toward `period` from now on, and nothing is
   * available. Does nothing if the lease is not of a later period. Calls in flight keep what they hold.
   */
  moveBack(period: number): void;
}

/** The lease of an account's balance. */
export interface MoneyWords extends LeaseWords {
  /** Collects at most `amountMax` of the uncovered charges; returns how much. */
  collect(amountMax: bigint): bigint;
}
