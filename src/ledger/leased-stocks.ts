/**
 * Stocks that are shared with other processes: calls take of what the coordinator granted to this process.
 * Tokens of the minute are counted in the same way then, in period 0: the coordinator has the window.
 * counters.ts chooses LeasedStocks; the lease manager grants and takes back through StockLeaseWords.
 *
 * `granted` has the form of `taken` (stocks.ts): a period, and what was granted in it, less what was given
 * back. So `granted` - `taken` is what calls may take.
 *
 * Only the main thread changes `granted`. To take back it takes like a call, then lowers `granted`, then
 * gives back what it took. A thread looks at `granted` again after its exchange: either it has been counted
 * before, or it sees that `granted` was lowered, and gives its amount back. So never more is taken than
 * granted, but for what a provider reports beyond what a call held.
 *
 * Must hold: never more is taken than granted, while the main thread takes back (unit/ledger/leases,
 * unit/sharing/lease-stock).
 */
import type { Clock } from '../core/clock.js';
import {
  BESIDE_WORDS64,
  COUNTED_WORDS64,
  DAY,
  DAY_LEASE,
  EXTENDED_QUOTAS,
  FLIGHT,
  FLIGHT_LEASE,
  LEASE_WORDS,
  LEASES,
  QUOTA_WORDS64,
  STOCK_WORDS,
  STOCKS,
} from './layout.js';
import { amountOf, periodsSince, type StockLeft, Stocks, wordOf } from './stocks.js';

/** Fields of a lease. LOW: a take that leaves so much or less sets `ranLow`; 0: none does. */
const GRANTED = 0;
const PERIOD = 1;
const LOW = 2;
const HELD_BY_OTHERS = 3;
const FREE_MS = 4;

/** A lost exchange means that another thread made progress. To lose so many in a row is a bug. */
const TRIES_MAX = 100_000;

/** Where the leases of stocks lie. */
export interface LeaseTable {
  readonly words: BigInt64Array;
  /** The first word of a stock's lease. */
  readonly at: (stock: number) => number;
  /** Whether what is taken of the stock is used at once: calls of a day or a month. */
  readonly isUsedAtOnce: (stock: number) => boolean;
}

/** Of the calls of the day: in the record of the account, key, group or rule. */
export function dayLeases(words: BigInt64Array): LeaseTable {
  return { words, at: (stock) => stock - DAY + DAY_LEASE, isUsedAtOnce: () => true };
}

/** Of an account's calls in flight: in its record; the stock is beside that. */
export function flightLeases(words: BigInt64Array): LeaseTable {
  const at = (stock: number): number => ((stock - FLIGHT) / BESIDE_WORDS64) * COUNTED_WORDS64 + FLIGHT_LEASE;
  return { words, at, isUsedAtOnce: () => false };
}

/** Of all other quotas: in the quota record. */
function quotaLeases(words: BigInt64Array): LeaseTable {
  const quotaOf = (stock: number): number => ((stock % QUOTA_WORDS64) - STOCKS) / STOCK_WORDS;
  return {
    words,
    at: (stock) => stock - (stock % QUOTA_WORDS64) + LEASES + quotaOf(stock) * LEASE_WORDS,
    isUsedAtOnce: (stock) => EXTENDED_QUOTAS[quotaOf(stock)] === 'calls_per_month',
  };
}

export class LeasedStocks extends Stocks {
  readonly #clock: Clock;
  readonly #leases: LeaseTable;

  /** `leases`: of stocks that are not in quota records; these have no `settled`. */
  constructor(words: BigInt64Array, clock: Clock, leases?: LeaseTable) {
    super(words, leases === undefined);
    this.#clock = clock;
    this.#leases = leases ?? quotaLeases(words);
  }

  override take(stock: number, period: number, amount: number): number | undefined {
    const { words } = this;
    const leases = this.#leases.words;
    const lease = this.#leases.at(stock);
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const granted = Atomics.load(leases, lease + GRANTED);
      const since = periodsSince(granted, period);
      if (since > 0) return undefined;
      const counted = period - since;
      const limit = amountOf(granted);
      const word = Atomics.load(words, stock);
      const taken = periodsSince(word, counted) > 0 ? 0 : amountOf(word);
      if (taken >= limit || taken + amount > limit) return undefined;
      if (Atomics.compareExchange(words, stock, word, wordOf(counted, taken + amount)) !== word) continue;
      const after = Atomics.load(leases, lease + GRANTED);
      if (after !== granted && (periodsSince(after, counted) !== 0 || amountOf(after) < taken + amount)) {
        this.settle(stock, counted, amount, 0);
        continue;
      }
      const left = limit - taken - amount;
      const low = Number(Atomics.load(leases, lease + LOW));
      if (low > 0 && left <= low && left + amount > low) this.ranLow = true;
      this.left = left + Number(Atomics.load(leases, lease + HELD_BY_OTHERS));
      return counted;
    }
    throw new Error('invariant broken: a stock is taken or refused in bounded tries');
  }

  /** Does nothing: the coordinator counts what the store knows. */
  override set(): void {
    return;
  }

  override clear(stock: number): void {
    super.clear(stock);
    const { words, at } = this.#leases;
    const lease = at(stock);
    for (let word = 0; word < LEASE_WORDS; word++) Atomics.store(words, lease + word, 0n);
  }

  /** What may be left here and at the coordinator. */
  override leftOf(stock: number, period: number): StockLeft {
    const { words, at } = this.#leases;
    const lease = at(stock);
    const granted = Atomics.load(words, lease + GRANTED);
    const here = periodsSince(granted, period) > 0 ? 0 : amountOf(granted) - this.read(stock, period).taken;
    const others = Number(Atomics.load(words, lease + HELD_BY_OTHERS));
    const freeMs = Number(Atomics.load(words, lease + FREE_MS));
    const waitMs = Math.max(0, freeMs - this.#clock.monotonicMs());
    return { left: Math.max(0, here) + others, waitMs, isKnown: freeMs > 0 };
  }
}

/** What this process has of a stock. What calls hold is `granted` - `used` - `available`. */
export interface StockHeld {
  /** 0 if the stock has none. */
  readonly period: number;
  /** In the period, less what was given back. */
  readonly granted: bigint;
  readonly used: bigint;
  readonly available: bigint;
}

/** The lease of one stock. Amounts are calls, tokens, or nano-units of money. Main thread. */
export class StockLeaseWords {
  /** Where the lease lies. */
  readonly #words: BigInt64Array;
  readonly #stocks: LeasedStocks;
  readonly #clock: Clock;
  readonly #stock: number;
  readonly #lease: number;
  readonly #isUsedAtOnce: boolean;

  /** `leases` as of LeasedStocks. */
  constructor(words: BigInt64Array, stock: number, clock: Clock, leases?: LeaseTable) {
    const table = leases ?? quotaLeases(words);
    this.#words = table.words;
    this.#stocks = new LeasedStocks(words, clock, leases);
    this.#clock = clock;
    this.#stock = stock;
    this.#lease = table.at(stock);
    this.#isUsedAtOnce = table.isUsedAtOnce(stock);
  }

  read(): StockHeld {
    const period = Number(Atomics.load(this.#words, this.#lease + PERIOD));
    const granted = BigInt(amountOf(Atomics.load(this.#words, this.#lease + GRANTED)));
    const { taken, settled } = this.#stocks.read(this.#stock, period);
    const available = granted - BigInt(taken);
    const used = BigInt(this.#isUsedAtOnce ? taken : settled);
    return { period, granted, used, available: available < 0n ? 0n : available };
  }

  /** Adds what was granted. What is left of another period is dropped. */
  add(period: number, amount: bigint, low: bigint): void {
    const granted = Atomics.load(this.#words, this.#lease + GRANTED);
    const before = periodsSince(granted, period) === 0 ? amountOf(granted) : 0;
    Atomics.store(this.#words, this.#lease + LOW, low);
    Atomics.store(this.#words, this.#lease + PERIOD, BigInt(period));
    const sum = before + Number(amount);
    Atomics.store(this.#words, this.#lease + GRANTED, wordOf(period, sum));
  }

  /** Takes at most `most` of what is available out of what was granted; returns how much. */
  takeBack(most: bigint): bigint {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const { period, available } = this.read();
      const amount = available < most ? available : most;
      if (amount <= 0n) return 0n;
      const taken = Number(amount);
      if (this.#stocks.take(this.#stock, period, taken) === undefined) continue;
      const granted = amountOf(Atomics.load(this.#words, this.#lease + GRANTED));
      Atomics.store(this.#words, this.#lease + GRANTED, wordOf(period, granted - taken));
      this.#stocks.settle(this.#stock, period, taken, 0);
      return amount;
    }
    throw new Error('invariant broken: a stock is taken back in bounded tries');
  }

  /** What the coordinator could still grant, and in how many ms what was asked for is free. */
  tell(remaining: bigint, freeInMs: number): void {
    const freeMs = Math.ceil(this.#clock.monotonicMs() + freeInMs);
    Atomics.store(this.#words, this.#lease + HELD_BY_OTHERS, remaining);
    Atomics.store(this.#words, this.#lease + FREE_MS, BigInt(freeMs));
  }
}
