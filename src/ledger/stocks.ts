/**
 * Stocks: amounts that calls take of and give back. Calls, tokens and money of a day or a month (the period
 * of a stock) are stocks, and so are calls in flight, which have no period (NO_PERIOD). ScopeQuotas,
 * DayCounter, `Calls` and UpstreamCounters count by this class. Any thread, each with an object of its own.
 *
 * A stock is two 64-bit words, `taken` (what settled calls used, and what calls in flight hold) and
 * `settled`. Each word holds
 *
 *     period (11 bits)  number of the day or month, modulo 2,048
 *     amount (53 bits)  calls, tokens, or nano-units of money
 *
 * Why this is right:
 * - A take adds to `taken`, and then checks what was there before. If that was too much, or of another
 *   period, it takes the amount back from that period. The additions are in one order, so the sum of what
 *   calls take in a period never passes the limit. Until the amount is back, another thread may find too
 *   little left. A take that begins a period, or is large, checks and adds by one compare-exchange, which
 *   takes twice as long as an addition and leaves four times the garbage.
 * - A period and its amount share a word. So the exchange that first writes a new period also starts its
 *   amount: each period begins at zero once. A call that ends after its period changes nothing: nothing is
 *   subtracted but by a compare-exchange, and what is added to a later period is taken back.
 * - A period never goes back. If the clock is set back over a midnight, calls count toward the later period
 *   until the clock has reached that period, so that no limit is given twice. If the clock is set back by two
 *   or more periods, the later period was a mistake that would reject calls for as long: what was counted in
 *   it counts for the current period. To decide by how much, a thread reads the clock again after it read the
 *   word: the machine may have slept for days since the thread last read the clock.
 * - A call settles by adding what it used to `settled`, then giving back what else it held. So `taken` is
 *   never less than `settled`, and a thread that dies between the two steps leaves its own call held. (But
 *   what was added to a later period's `settled` may exceed that `taken` until it is taken back: see `read`.)
 * - The store keeps `settled` alone: calls that a crash cut off hold nothing afterwards. Calls of a day and
 *   an account's calls in flight have no word `settled`.
 * - A scope that rested for 1,024 to 2,048 days finds its last day's use counted for the day of its return.
 *
 * quota-batch.ts takes and settles most calls on the same words, without this class.
 *
 * If limits are shared, the limit is what the coordinator granted to this process: leased-stocks.ts.
 *
 * Must hold: in no period calls take more than the limit, whatever threads do, also over midnight and if the
 * clock is set back. Only what a call used beyond its hold is added without a limit. Further tests:
 * test/unit/ledger/quotas.test.ts, test/threads/ledger-tokens.test.ts.
 */
import { invariant } from '../core/errors.js';
import { LISTENERS_MAX, WORKERS_MAX } from '../core/limits.js';
import { QUOTA_LIMITS_MAX } from '../core/quotas.js';
import { EXCHANGES_MAX, STOCK_SETTLED } from './layout.js';
import { ADDED, amountOf, type Halves, headsSince, MISADDED, pack, PackedWords } from './packed-words.js';

export const PERIOD_BITS = 11;
/** Amounts stop at this bound, which only a provider's report could exceed. */
export const AMOUNT_MAX = 2 ** (63 - PERIOD_BITS) - 1;
/** The most that is added before the check: what all threads add at once must not reach the period. */
const ADDED_MAX = 2 ** 31 - 1;
for (const limit of Object.values(QUOTA_LIMITS_MAX)) {
  // Spending is counted in nano-units.
  const amount = typeof limit === 'bigint' ? Number(limit / 1_000n) : limit;
  invariant(
    amount + (LISTENERS_MAX + WORKERS_MAX) * ADDED_MAX < AMOUNT_MAX,
    'a limit, and what all threads add before they check it, fit below the period',
  );
}
/** A period that is this many before now, or more, looks like a later one, because numbers wrap. */
export const PERIODS_KNOWN = 1 << (PERIOD_BITS - 1);

/**
 * How many periods a stock's period may be ahead of the clock, after the clock was set back. A period further
 * ahead was a mistake of the clock.
 */
export const PERIODS_AHEAD_MAX = 1;

/** The period of stocks that have none: calls in flight. */
export const NO_PERIOD = 0;

/** By how many periods `period` is after the word's period; negative if it is before. */
export function periodsSince(word: Halves, period: number): number {
  // A word of zeros was never written, or is of a period whose number modulo 2,048 is 0. Nothing is counted
  // in either.
  if (word.low === 0 && word.high === 0) return (period & (2 * PERIODS_KNOWN - 1)) === 0 ? 0 : 1;
  return headsSince(word, PERIOD_BITS, period);
}

/** The amount in a word of a stock or of its lease, whatever its period. */
export function amountIn(word: Halves): number {
  return amountOf(word, PERIOD_BITS);
}

/** Sets `into` to the word of that period and amount. */
export function setStock(into: Halves, period: number, amount: number): void {
  pack(into, PERIOD_BITS, period, amount);
}

export interface StockUse {
  /** What settled calls used, and what calls in flight hold. */
  readonly taken: number;
  /** What settled calls used; 0 if the stock has no word `settled`. */
  readonly settled: number;
}

/** What is left of a stock, for a rejected call. */
export interface StockLeft {
  readonly left: number;
  /** How long until more may be left; 0 if that is not known. */
  readonly waitMs: number;
  /** False if limits are shared and the coordinator was never asked. */
  readonly isKnown: boolean;
}

export class Stocks {
  /** Whether a take has left so little of a lease that more should be asked for. LeasedStocks sets it. */
  protected ranLow = false;
  /** A second result of the last successful `take`, which the next one overwrites: what is left. */
  left = 0;
  protected readonly words: PackedWords;
  /** Scratch: the word that was read, and the one to be written. */
  protected readonly current: Halves = { low: 0, high: 0 };
  protected readonly next: Halves = { low: 0, high: 0 };
  readonly #hasSettled: boolean;

  /**
   * `words`: where the stocks lie; `stock` below is the index of a stock's first word. `hasSettled`: the next
   * word is its `settled`; otherwise that word is not the stock's.
   */
  constructor(words: BigInt64Array, { hasSettled = true } = {}) {
    this.words = new PackedWords(words);
    this.#hasSettled = hasSettled;
  }

  /**
   * Takes `amount` (not negative) of a period that has a limit. Returns the period that the amount counts
   * toward, `period` or a later one. Returns undefined, and takes nothing, if less than `amount` is left, or
   * if nothing is left. `readPeriod` reads the clock again and returns the period; called if the word is two
   * or more periods ahead.
   */
  take(
    stock: number,
    period: number,
    amount: number,
    limit: number,
    readPeriod: () => number = throwNoPeriod,
  ): number | undefined {
    const { words, current, next } = this;
    let currentPeriod = period;
    if (amount <= ADDED_MAX) {
      const result = words.addWithin(stock, PERIOD_BITS, period, amount, limit, current);
      if (result === ADDED) {
        this.left = limit - amountIn(current) - amount;
        return period;
      }
      if (result === MISADDED) this.#undoAdd(stock, period, amount);
    }
    words.glance(stock, current);
    for (let tries = 0; tries < EXCHANGES_MAX; tries++) {
      const periodsLater = periodsSince(current, currentPeriod);
      const taken = periodsLater > 0 ? 0 : amountIn(current);
      const countedPeriod = periodsLater < 0 ? currentPeriod + 1 : currentPeriod;
      if (periodsLater >= -PERIODS_AHEAD_MAX && taken < limit && taken + amount <= limit) {
        setStock(next, countedPeriod, taken + amount);
        if (words.compareExchange(stock, current, next)) {
          this.left = limit - taken - amount;
          return countedPeriod;
        }
      } else if (tries > 0) {
        // Decided only after a load: a glance, as in the first try, may be of two moments (packed-words.ts).
        if (periodsLater >= -PERIODS_AHEAD_MAX) return undefined;
        currentPeriod = this.giveUpMistaken(stock, readPeriod);
      }
      words.load(stock, current);
    }
    throw new Error('invariant broken: a stock is taken or rejected in bounded tries');
  }

  /**
   * Replaces `held` by `used` for a call that took of `period`; does nothing if that period is over, or was a
   * mistake of the clock. The caller settles no hold twice.
   */
  settle(stock: number, period: number, held: number, used: number): void {
    if (used > held) this.#add(stock, period, used - held);
    if (used !== 0) {
      invariant(this.#hasSettled, 'the next word is the stock’s');
      this.#add(stock + STOCK_SETTLED, period, used, stock);
    }
    if (used < held) this.#add(stock, period, used - held);
  }

  /** Whether a lease has run low since the last call, which resets that; false unless limits are shared. */
  takeRanLow(): boolean {
    if (!this.ranLow) return false;
    this.ranLow = false;
    return true;
  }

  /** Undoes what `settle` counted as used; once, after `settle`. Throws without a word `settled`. */
  reverse(stock: number, period: number, used: number): void {
    invariant(this.#hasSettled, 'the next word is the stock’s');
    this.#add(stock + STOCK_SETTLED, period, -used);
    this.#add(stock, period, -used);
  }

  /** What counts in `period`. A word of an earlier period counts as 0. */
  read(stock: number, period: number): StockUse {
    const settled = this.#hasSettled ? this.#amountIn(stock + STOCK_SETTLED, period) : 0;
    return { taken: Math.max(settled, this.#amountIn(stock, period)), settled };
  }

  /** The last period that calls took from, and how much they took. `period`: the current one. */
  last(stock: number, period: number): { readonly period: number; readonly taken: number } {
    this.words.load(stock, this.current);
    return this.current.low === 0 && this.current.high === 0
      ? { period: 0, taken: 0 }
      : { period: period - periodsSince(this.current, period), taken: amountIn(this.current) };
  }

  /**
   * Sets the use in `period`, with nothing held. Numbers of periods wrap, so use from too long ago would look
   * like that of a later period, and is dropped. A period too far ahead was a mistake of the clock, and its
   * use becomes that of `currentPeriod`. Main thread, before the scope is first used.
   */
  set(stock: number, period: number, settled: number, currentPeriod: number): void {
    invariant(settled >= 0 && settled <= AMOUNT_MAX, 'an amount fits its word');
    if (currentPeriod - period >= PERIODS_KNOWN) {
      this.clear(stock);
      return;
    }
    setStock(this.next, period - currentPeriod < PERIODS_KNOWN ? period : currentPeriod, settled);
    this.#store(stock, this.next);
  }

  /** Sets the use to 0 and forgets the period. Main thread, before the scope is first used. */
  clear(stock: number): void {
    this.#store(stock, { low: 0, high: 0 });
  }

  leftOf(stock: number, period: number, limit: number): StockLeft {
    return { left: Math.max(0, limit - this.read(stock, period).taken), waitMs: 0, isKnown: true };
  }

  #store(stock: number, word: Halves): void {
    if (this.#hasSettled) this.words.store(stock + STOCK_SETTLED, word);
    this.words.store(stock, word);
  }

  /**
   * Adds to the amount of `period` if the word is of that period. With `stock`, the word is its `settled`,
   * and begins that period if the stock has begun it. If `settled` is of a later period than its stock, that
   * period was a mistake which is being given up: what was counted in it counts in `period`.
   */
  #add(word: number, period: number, amount: number, stock?: number): void {
    const { words, current, next } = this;
    if (amount > 0 && amount <= ADDED_MAX) {
      const result = words.addWithin(word, PERIOD_BITS, period, amount, AMOUNT_MAX, current);
      if (result === ADDED) return;
      if (result === MISADDED) this.#undoAdd(word, period, amount);
    } else if (amount < 0 && words.takeOff(word, PERIOD_BITS, period, -amount)) return;
    words.glance(word, current);
    for (let tries = 0; tries < EXCHANGES_MAX; tries++) {
      const periodsLater = periodsSince(current, period);
      // An atomic load for `#isOf` once a period, and not once a call.
      if (periodsLater === 0 || (stock !== undefined && this.#isOf(stock, period))) {
        const newAmount = (periodsLater > 0 ? 0 : amountIn(current)) + amount;
        setStock(next, period, Math.max(0, Math.min(newAmount, AMOUNT_MAX)));
        if (words.compareExchange(word, current, next)) return;
      } else if (tries > 0) return; // after a load: the first try saw a glance
      words.load(word, current);
    }
    throw new Error('invariant broken: a stock is given back to in bounded tries');
  }

  /** Takes back `amount`, which was added to what is in `current`, unless the period there is over by now. */
  #undoAdd(word: number, period: number, amount: number): void {
    this.#add(word, period - periodsSince(this.current, period), -amount);
  }

  #isOf(stock: number, period: number): boolean {
    // Into `next`, because `#add` still needs `current`.
    this.words.load(stock, this.next);
    return periodsSince(this.next, period) === 0;
  }

  #amountIn(word: number, period: number): number {
    this.words.load(word, this.current);
    return periodsSince(this.current, period) > 0 ? 0 : amountIn(this.current);
  }

  /**
   * Returns the current period, for a caller that found the stock's word (`current`) two or more periods
   * ahead. If the word is still ahead of the clock, which is read only now, the clock was set back: the
   * word's period was a mistake, and what was counted in it counts for the current period. Otherwise the
   * caller had been stopped for days after it read the clock, and the word is right.
   */
  protected giveUpMistaken(stock: number, readPeriod: () => number): number {
    const { words, current, next } = this;
    const period = readPeriod();
    if (periodsSince(current, period) >= -PERIODS_AHEAD_MAX) return period;
    setStock(next, period, amountIn(current));
    // The stock first: then no call of the mistaken period begins it in `settled` again.
    if (words.compareExchange(stock, current, next) && this.#hasSettled) this.#giveUpSettled(stock, period);
    return period;
  }

  /** Moves `settled` back too, after the stock was moved from the period in `current` to `period`. */
  #giveUpSettled(stock: number, period: number): void {
    const { words, current, next } = this;
    const settled: Halves = { low: 0, high: 0 };
    for (let tries = 0; tries < EXCHANGES_MAX; tries++) {
      words.load(stock + STOCK_SETTLED, settled);
      if (periodsSince(settled, period) >= -PERIODS_AHEAD_MAX) return;
      // If `settled` is of an earlier period than the stock's word, its calls are over: nothing of it counts.
      const isSame = headsSince(settled, PERIOD_BITS, 0) === headsSince(current, PERIOD_BITS, 0);
      setStock(next, period, isSame ? amountIn(settled) : 0);
      if (words.compareExchange(stock + STOCK_SETTLED, settled, next)) return;
    }
    throw new Error('invariant broken: a stock is moved back in bounded tries');
  }
}

/** `readPeriod` of stocks without a period: their words are never ahead. */
function throwNoPeriod(): number {
  throw new Error('invariant broken: a stock without a calendar is of a later period');
}
