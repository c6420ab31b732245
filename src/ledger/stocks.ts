/**
 * Stocks: amounts that calls take and give back, and that a calendar refills. Calls, tokens and money of a
 * day or a month are stocks, and so are calls in flight, which no calendar refills (period 0). Any thread.
 *
 * A stock is two 64-bit words, `taken` (what settled calls used, and what calls in flight hold) and
 * `settled`. Each word holds
 *
 *     period (11 bits)  number of the day or month, modulo 2,048
 *     amount (53 bits)  calls, tokens, or nano-units of money
 *
 * Why it is right:
 * - Check and add are one compare-exchange of `taken`, so the sum of what is taken in a period never passes
 *   the limit that the check saw.
 * - A period and its amount share a word. So the exchange that first writes a new period also starts its
 *   amount: each period begins at zero once. What a call gives back or settles after its period is over
 *   changes nothing.
 * - A period never goes back. If the calendar is set back over a midnight, calls count toward the later
 *   period until the calendar has caught up, so that no limit is given twice. If it is set back by more, the
 *   later period was a mistake that would reject calls for as long: what was counted then counts for now.
 * - A call settles by adding what it used to `settled`, then giving back the rest of what it held. So `taken`
 *   is never less than `settled`, and a thread that dies between the two leaves its own call held.
 * - The store keeps `settled` alone: calls that a crash cut hold nothing afterwards. Calls of a day and an
 *   account's calls in flight have no word `settled`.
 * - A scope that rested for 1,024 to 2,048 days finds its last day's use counted for the day of its return.
 *
 * If limits are shared, the limit is what the coordinator granted to this process; the main thread changes it
 * in `granted`. It takes back by taking like a call, and lowers `granted` before it gives back what it took.
 * So a thread that looks at `granted` again after its exchange has either been counted, or sees that it was
 * lowered.
 *
 * Must hold: of no period more is taken than its limit, by whatever threads, also over midnight and with a
 * calendar that is set back (unit/ledger/stocks, unit/ledger/quotas, threads/ledger-tokens).
 */
import { invariant } from '../core/errors.js';
import { STOCK_SETTLED } from './layout.js';

const AMOUNT_BITS = 53;
/** An amount that a provider's report would take beyond stays there. */
const AMOUNT_MAX = 2 ** (AMOUNT_BITS - 1) - 1;
const PERIOD_SHIFT = BigInt(AMOUNT_BITS);
const PERIOD_BITS = 11;
const PERIOD_MASK = (1 << PERIOD_BITS) - 1;
/** A period that is so many before now, or more, may be taken for a later one. */
export const PERIODS_KNOWN = 1 << (PERIOD_BITS - 1);

/** Of stocks that no calendar refills. */
export const NO_PERIOD = 0;

/** A lost exchange means that another thread made progress. To lose so many in a row is a bug. */
const TRIES_MAX = 100_000;

/** A word as two halves: a third of the time that arithmetic with bigints takes. */
const whole = new BigInt64Array(1);
const [LOW, HIGH] = [0, 1];
const halves = new Int32Array(whole.buffer);
const TWO_32 = 2 ** 32;
const HIGH_BITS = AMOUNT_BITS - 32;
const HIGH_MASK = (1 << HIGH_BITS) - 1;

export function wordOf(period: number, amount: number): bigint {
  const high = Math.floor(amount / TWO_32);
  halves[LOW] = amount - high * TWO_32;
  halves[HIGH] = ((period & PERIOD_MASK) << HIGH_BITS) | (high & HIGH_MASK);
  return whole[0]!;
}

export function amountOf(word: bigint): number {
  whole[0] = word;
  return ((halves[HIGH]! << PERIOD_BITS) >> PERIOD_BITS) * TWO_32 + (halves[LOW]! >>> 0);
}

/** Periods by which `period` is after that of the word; negative if it is before. */
export function periodsSince(word: bigint, period: number): number {
  // A word of zeros is of no period, or of one whose number modulo 2,048 is 0, with nothing counted.
  if (word === 0n) return (period & PERIOD_MASK) === 0 ? 0 : 1;
  whole[0] = word;
  return ((period - (halves[HIGH]! >>> HIGH_BITS)) << (32 - PERIOD_BITS)) >> (32 - PERIOD_BITS);
}

/** What is taken of a stock in a period. */
export interface StockUse {
  /** What calls used and hold. */
  readonly taken: number;
  /** What calls used. */
  readonly settled: number;
}

/** What a refused call is told. */
export interface StockLeft {
  readonly left: number;
  /** How long until more may be left; 0 if that is not known. */
  readonly waitMs: number;
  /** False if limits are shared and the coordinator was never asked. */
  readonly isKnown: boolean;
}

export class Stocks {
  /** The last take left so little of a lease that more is to be asked for. Its caller clears it. */
  ranLow = false;
  /** What the last take that succeeded left of the limit. */
  left = 0;
  protected readonly words: BigInt64Array;
  readonly #hasSettled: boolean;

  /**
   * `words`: where the stocks lie. A stock is named by the index of its first word. `hasSettled`: the second
   * one is `settled`; otherwise it is not the stock's.
   */
  constructor(words: BigInt64Array, hasSettled = true) {
    this.words = words;
    this.#hasSettled = hasSettled;
  }

  /**
   * Takes `amount` (not negative) of a period that has a limit. Returns the period that it counts toward,
   * `period` or the one after it; undefined, and takes nothing, if less than `amount` is left, or nothing.
   */
  take(stock: number, period: number, amount: number, limit: number): number | undefined {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const word = Atomics.load(this.words, stock);
      const since = periodsSince(word, period);
      if (since < -1) {
        this.#rename(stock, word, period);
        continue;
      }
      const taken = since > 0 ? 0 : amountOf(word);
      if (taken >= limit || taken + amount > limit) return undefined;
      const counted = since < 0 ? period + 1 : period;
      const next = wordOf(counted, taken + amount);
      if (Atomics.compareExchange(this.words, stock, word, next) !== word) continue;
      this.left = limit - taken - amount;
      return counted;
    }
    throw new Error('invariant broken: a stock is taken or refused in bounded tries');
  }

  /** Replaces `held` by `used` for a call that took of `period`. Nothing if that is over. */
  settle(stock: number, period: number, held: number, used: number): void {
    if (used > held) this.#add(stock, period, used - held);
    if (used !== 0) this.#add(stock + STOCK_SETTLED, period, used, true);
    if (used < held) this.#add(stock, period, used - held);
  }

  /** Takes back what `settle` counted as used. */
  reverse(stock: number, period: number, used: number): void {
    this.#add(stock + STOCK_SETTLED, period, -used);
    this.#add(stock, period, -used);
  }

  /** What counts in `period`. */
  read(stock: number, period: number): StockUse {
    const settled = this.#hasSettled ? this.#amountIn(stock + STOCK_SETTLED, period) : 0;
    return { taken: Math.max(settled, this.#amountIn(stock, period)), settled };
  }

  /** The last period of which was taken, and what was; `period` is about now. */
  last(stock: number, period: number): { readonly period: number; readonly taken: number } {
    const word = Atomics.load(this.words, stock);
    return word === 0n
      ? { period: 0, taken: 0 }
      : { period: period - periodsSince(word, period), taken: amountOf(word) };
  }

  /** Sets what was used in `period`; nothing is held. Main thread, before the scope is first used. */
  set(stock: number, period: number, settled: number): void {
    invariant(settled >= 0 && settled <= AMOUNT_MAX, 'an amount fits its word');
    if (this.#hasSettled) Atomics.store(this.words, stock + STOCK_SETTLED, wordOf(period, settled));
    Atomics.store(this.words, stock, wordOf(period, settled));
  }

  /** Forgets everything. Main thread, before the scope is first used. */
  clear(stock: number): void {
    Atomics.store(this.words, stock, 0n);
    if (this.#hasSettled) Atomics.store(this.words, stock + STOCK_SETTLED, 0n);
  }

  leftOf(stock: number, period: number, limit: number): StockLeft {
    return { left: Math.max(0, limit - this.read(stock, period).taken), waitMs: 0, isKnown: true };
  }

  /** Adds to the amount of `period`, if the word is of it or, with `starts`, if it is of an earlier one. */
  #add(at: number, period: number, amount: number, starts = false): void {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const word = Atomics.load(this.words, at);
      const since = periodsSince(word, period);
      if (since < 0 || (since > 0 && !starts)) return;
      const sum = (since > 0 ? 0 : amountOf(word)) + amount;
      const next = wordOf(period, Math.max(0, Math.min(sum, AMOUNT_MAX)));
      if (Atomics.compareExchange(this.words, at, word, next) === word) return;
    }
    throw new Error('invariant broken: a stock is given back to in bounded tries');
  }

  #amountIn(at: number, period: number): number {
    const word = Atomics.load(this.words, at);
    return periodsSince(word, period) > 0 ? 0 : amountOf(word);
  }

  /** The stock's period was a mistake: what was counted counts for `period`. */
  #rename(stock: number, word: bigint, period: number): void {
    const settled = this.#hasSettled ? Atomics.load(this.words, stock + STOCK_SETTLED) : 0n;
    if (periodsSince(settled, period) < -1) {
      // Unless it is of an earlier period, whose calls are over.
      const isSame = settled >> PERIOD_SHIFT === word >> PERIOD_SHIFT;
      const renamed = wordOf(period, isSame ? amountOf(settled) : 0);
      Atomics.compareExchange(this.words, stock + STOCK_SETTLED, settled, renamed);
    }
    Atomics.compareExchange(this.words, stock, word, wordOf(period, amountOf(word)));
  }
}
