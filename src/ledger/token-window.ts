/**
 * Tokens per minute: in any span of 60 seconds, the tokens of the calls in flight and of the calls that ended
 * in the span are at most the limit, whether a call is counted at its admission, its end, or between.
 * ScopeQuotas uses this class, for what quota-batch.ts leaves to it, unless limits are shared;
 * UpstreamCounters always. Any thread, each with an object of its own.
 *
 * Two 64-bit words count up; `taken` also falls, by what calls give back. In this text and in private names
 * `taken` is always that word; `read().taken` and `takenOf` return what weighs.
 *
 *     taken     what all calls since the start used, and what calls in flight hold
 *     settled   what all calls since the start used
 *
 * Time is cut into the ticks of window.ts, 1.2 s each. A tick start is 64 bits: tick (22 bits, modulo 2^22),
 * and `settled` as that tick began (42 bits, modulo 2^42). 51 of them are kept, each at number tick % 51.
 * `last` is the last tick whose start was written; a tick in which no call ended may have no start. What
 * weighs in tick T is taken - start(T - 50): all that is in flight, and all that ended in T or the 50 ticks
 * before T, which is more than 60 seconds.
 *
 * A call holds R from its admission. When it ends and has used U, its thread writes the start of the tick,
 * adds U to `settled`, then takes R - U from `taken`. So the call weighs R until its end and U for a minute
 * after that. If U is more than R, U - R is added to `taken` before these steps, so that `taken` is never
 * below `settled`.
 *
 * Why this is right:
 * - Check and add are one compare-exchange of `taken`. The tick start that the check used never changes while
 *   its tick weighs, and that of an earlier tick is no greater. So a thread that stalls between check and
 *   exchange has counted too much rather than too little.
 * - A tick start never includes a call that ended in its tick or later. The thread that writes it loads its
 *   word, then `settled`, then `last`, and then exchanges the word. A thread that ends a call in tick T
 *   writes start(T), raises `last` to T, and then adds. So if `settled` includes a call of a later tick,
 *   `last` shows that tick, and the writer goes on with it. If `settled` includes a call of the same tick,
 *   that tick's start was there before, and the exchange fails.
 * - A tick without a start began with the same `settled` as the next tick with a start: nothing ended in
 *   between. If no later tick has a start, the tick began with `settled` itself, read before `last`. The
 *   thread that missed the start writes it, unless the word is of a later tick or changes meanwhile.
 * - No thread awaits another. One that dies within `settle` leaves R in `taken`, or R - U if it had added U.
 *   That stays until the process ends, because a claimed call is not settled again (Reservations.claim). So
 *   too much weighs, not too little.
 * - Amounts are compared modulo 2^42, half of which is more than two limits. A word shows the same tick
 *   number again after 51 x 2^22 ticks, eight years. A word that was never written is 0, which reads as the
 *   start of a tick whose number is 0 modulo 2^22: one tick in 58 days, in which too much weighs.
 *
 * Must hold: in no 60 seconds more tokens than the limit are counted. The one exception: what a call used
 * beyond its hold, which nothing prevents. Further test: test/threads/ledger-tokens.test.ts.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { QUOTA_TOKENS_MAX } from '../core/quotas.js';
import type { MonotonicMs } from '../core/units.js';
import * as layout from './layout.js';
import type { QuotaViews } from './layout.js';
import { amountOf, type Halves, headsSince, PackedWords, pack, addTo } from './packed-words.js';
import { TICK_MS, TICKS_PER_MINUTE } from './window.js';

export const TICK_BITS = 22;
const AMOUNT_BITS = 64 - TICK_BITS;
const AMOUNT_HALF = 2 ** (AMOUNT_BITS - 1);
/** The most tokens that are counted of one call, whatever its provider reports. */
const USED_MAX = QUOTA_TOKENS_MAX;

invariant(layout.TOKEN_TICKS_KEPT === TICKS_PER_MINUTE + 1, 'one start for each tick that weighs');
invariant(2 * QUOTA_TOKENS_MAX < AMOUNT_HALF, 'a minute of tokens, and a call beyond it, fit a tick start');

export class TokenWindow {
  readonly #words: PackedWords;
  readonly #words32: Int32Array;
  readonly #clock: Clock;

  /** What the last successful take left of the limit: a second result of `take`, to be read at once. */
  left = 0;
  /**
   * A second result of `#weightOf`, which only `msUntil` reads: the first tick from `from` on that has a
   * start; undefined if no tick has.
   */
  #startedTick: number | undefined;

  /**
   * Scratch, so that nothing is allocated: words as they were read. `#taken` is an argument of `#weightOf`,
   * and `#start` the word that `#writeStart` replaces. `#next` is a word to be written; `#weightOf` also
   * reads tick starts into `#next`.
   */
  readonly #taken: Halves = { low: 0, high: 0 };
  readonly #settled: Halves = { low: 0, high: 0 };
  readonly #start: Halves = { low: 0, high: 0 };
  readonly #next: Halves = { low: 0, high: 0 };

  constructor({ words64, words32 }: QuotaViews, clock: Clock) {
    this.#words = new PackedWords(words64);
    this.#words32 = words32;
    this.#clock = clock;
  }

  /**
   * Takes `amount` (not negative). Returns false and takes nothing if less is left, or if nothing is left
   * (also for an amount of 0). `record` is the scope's quota record. `nowMs` may be a little old: then more
   * weighs, not less. Throws after EXCHANGES_MAX lost tries (layout.ts), and has taken nothing then.
   */
  take(record: number, amount: number, limit: number, nowMs = this.#clock.monotonicMs()): boolean {
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      // `taken` is read before the tick starts, so that it includes nothing newer. In the first try a glance
      // (packed-words.ts) will do if an exchange follows, which fails if the halves were of two moments.
      if (tries === 0 && amount > 0) this.#words.glance(takenAt(record), this.#taken);
      else this.#words.load(takenAt(record), this.#taken);
      const weight = this.#weightOf(record, this.#tick(record, nowMs) - TICKS_PER_MINUTE);
      if (weight >= limit || weight + amount > limit) {
        // No exchange tells whether the glance was right: decide again by a load.
        if (tries === 0 && amount > 0) continue;
        return false;
      }
      this.left = limit - weight - amount;
      if (amount === 0) return true;
      addTo(this.#taken, amount, this.#next);
      if (this.#words.compareExchange(takenAt(record), this.#taken, this.#next)) return true;
    }
    throw new Error('invariant broken: tokens are taken or rejected in bounded tries');
  }

  /**
   * Replaces `held` by `used`, which weighs for a minute from `nowMs`, when the call ended. The caller
   * settles no hold twice: Reservations.claim and TakenQuotas (upstream/upstream-quotas.ts) see to that.
   * Throws as `take` does; then the call goes on to weigh what it held.
   */
  settle(record: number, held: number, used: number, nowMs = this.#clock.monotonicMs()): void {
    const counted = Math.min(used, USED_MAX);
    if (counted > held) this.#words.add(takenAt(record), counted - held, this.#next);
    if (counted > 0) {
      this.#beginTick(record, nowMs);
      this.#words.add(takenAt(record) + layout.STOCK_SETTLED, counted, this.#next);
    }
    if (counted < held) this.#words.add(takenAt(record), counted - held, this.#next);
  }

  /** What weighs now (`taken`), and the part of it that calls in flight hold (`held`). */
  read(record: number): { readonly taken: number; readonly held: number } {
    const held = this.#heldOf(record);
    const taken = this.#weightOf(record, this.#tick(record, this.#clock.monotonicMs()) - TICKS_PER_MINUTE);
    return { taken, held: Math.min(taken, held) };
  }

  /** What weighs at `nowMs`; changes no count. */
  takenOf(record: number, nowMs: MonotonicMs): number {
    this.#words.load(takenAt(record), this.#taken);
    return this.#weightOf(record, this.#tick(record, nowMs) - TICKS_PER_MINUTE);
  }

  /**
   * Milliseconds until `amount` fits if every call in flight ends now and uses all that it holds. If `amount`
   * is above the limit: until nothing weighs.
   *
   * Looks for the first tick from whose beginning on so little has ended, or is in flight, that `amount` fits
   * beside it. What ended before weighs no more once that tick is TICKS_PER_MINUTE ticks ago.
   */
  msUntil(record: number, amount: number, limit: number): number {
    const nowMs = this.#clock.monotonicMs();
    const nowTick = this.#tick(record, nowMs);
    this.#words.load(takenAt(record), this.#taken);
    let tick = nowTick - TICKS_PER_MINUTE;
    while (tick <= nowTick) {
      const weight = this.#weightOf(record, tick);
      if (weight < limit && weight + amount <= limit) break;
      // All ticks up to the next that has a start began with the same `settled`, so they have the same
      // weight. If no tick has a start, no call has ended since: only calls in flight are left to wait for.
      tick = (this.#startedTick ?? nowTick) + 1;
    }
    return Math.max(0, (tick + TICKS_PER_MINUTE) * TICK_MS - nowMs);
  }

  /** Milliseconds until nothing weighs, if calls in flight, which hold `held` or more, end at `nowMs`. */
  msUntilFree(record: number, nowMs: MonotonicMs, held: number): number {
    const isHeld = held > 0 || this.#heldOf(record) > 0;
    // What ends in the last tick weighs in that tick and in TICKS_PER_MINUTE more.
    const lastTick = isHeld ? this.#tick(record, nowMs) : Atomics.load(this.#words32, lastAt(record));
    return Math.max(0, (lastTick + TICKS_PER_MINUTE + 1) * TICK_MS - nowMs);
  }

  /**
   * Forgets all calls, then counts `used` tokens as of a call that ended `ageMs` ago, so that they weigh for
   * what is left of their minute. Main thread, before the scope is first used: no word is exchanged.
   */
  set(record: number, used: number, ageMs: number): void {
    const nowMs = this.#clock.monotonicMs();
    const tick = Math.max(0, Math.floor((nowMs - Math.max(0, ageMs)) / TICK_MS));
    const settled = Math.floor(nowMs / TICK_MS) - tick > TICKS_PER_MINUTE ? 0 : Math.min(used, USED_MAX);
    const word = { low: 0, high: 0 };
    for (let kept = 0; kept < layout.TOKEN_TICKS_KEPT; kept++)
      this.#words.store(startsAt(record) + kept, word);
    pack(word, TICK_BITS, tick, 0);
    this.#words.store(startsAt(record) + (tick % layout.TOKEN_TICKS_KEPT), word);
    Atomics.store(this.#words32, lastAt(record), tick);
    addTo({ low: 0, high: 0 }, settled, word);
    this.#words.store(takenAt(record) + layout.STOCK_SETTLED, word);
    this.#words.store(takenAt(record), word);
  }

  /** What calls in flight hold. Leaves the word `taken` in `#taken`, for `#weightOf`. */
  #heldOf(record: number): number {
    this.#words.load(takenAt(record) + layout.STOCK_SETTLED, this.#settled);
    this.#words.load(takenAt(record), this.#taken);
    return differenceOf(this.#taken, this.#settled);
  }

  /** The current tick, or that of another thread whose clock is ahead. */
  #tick(record: number, nowMs: MonotonicMs): number {
    return Math.max(Math.floor(nowMs / TICK_MS), Atomics.load(this.#words32, lastAt(record)));
  }

  /**
   * What weighs of `#taken` if ticks before `from` weigh no more; the caller has loaded `#taken`.
   * `headsSince` is by how many ticks a word is older than a tick; negative if the word is of a later tick.
   *
   *     1. The start of `from` is there: the weight is `#taken` less that.
   *     2. It is missing: the start of the next tick that has one serves, or `settled` if no tick has.
   *     3. The missing start is written, so that the next search is short.
   */
  #weightOf(record: number, from: number): number {
    const first = Math.max(0, from);
    const index = startsAt(record) + (first % layout.TOKEN_TICKS_KEPT);
    this.#words.load(index, this.#start);
    this.#startedTick = first;
    if (headsSince(this.#start, TICK_BITS, first) === 0) return differenceOf(this.#taken, this.#start);
    // `settled` before `last`, as the header says.
    this.#words.load(takenAt(record) + layout.STOCK_SETTLED, this.#settled);
    this.#startedTick = undefined;
    let tickStart = this.#settled;
    const last = Atomics.load(this.#words32, lastAt(record));
    for (let tick = first + 1; tick <= last; tick++) {
      this.#words.load(startsAt(record) + (tick % layout.TOKEN_TICKS_KEPT), this.#next);
      if (headsSince(this.#next, TICK_BITS, tick) !== 0) continue;
      this.#startedTick = tick;
      tickStart = this.#next;
      break;
    }
    const weight = differenceOf(this.#taken, tickStart);
    // If not, a thread whose clock is ahead has put the start of a later tick there, which must stay.
    if (headsSince(this.#start, TICK_BITS, first) > 0) this.#writeStart(index, first, tickStart);
    return weight;
  }

  /**
   * Writes the start of the current tick, unless the start is there already, as `last` tells if it has
   * reached the clock's tick: then `last` is the current tick (see `#tick`). Each lost try means that another
   * thread has written a start or raised `last`, so EXCHANGES_MAX lost tries are a bug.
   */
  #beginTick(record: number, nowMs: MonotonicMs): void {
    if (Atomics.load(this.#words32, lastAt(record)) >= Math.floor(nowMs / TICK_MS)) return;
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      const tick = this.#tick(record, nowMs);
      const index = startsAt(record) + (tick % layout.TOKEN_TICKS_KEPT);
      this.#words.load(index, this.#start);
      if (headsSince(this.#start, TICK_BITS, tick) !== 0) {
        this.#words.load(takenAt(record) + layout.STOCK_SETTLED, this.#settled);
        if (Atomics.load(this.#words32, lastAt(record)) > tick) continue;
        if (!this.#writeStart(index, tick, this.#settled)) continue;
      }
      this.#raise(record, tick);
      return;
    }
    throw new Error('invariant broken: a tick is begun in bounded tries');
  }

  /** Replaces the word that `#start` holds by a tick start; false if the word has changed meanwhile. */
  #writeStart(index: number, tick: number, settled: Halves): boolean {
    pack(this.#next, TICK_BITS, tick, amountOf(settled, TICK_BITS));
    return this.#words.compareExchange(index, this.#start, this.#next);
  }

  /** Raises `last` to `tick` if it is lower. Call after the start of `tick` is written: see the header. */
  #raise(record: number, tick: number): void {
    for (let last = Atomics.load(this.#words32, lastAt(record)); last < tick;) {
      const before = Atomics.compareExchange(this.#words32, lastAt(record), last, tick);
      if (before === last) return;
      last = before;
    }
  }
}

/**
 * `taken` less a tick start or less `settled`, modulo 2^42; 0 if that is below zero.
 *
 * The difference is below zero only if `taken` is older than what is subtracted, because calls of other
 * threads have begun and ended meanwhile, or if a glance saw halves of two moments. As the word `taken` is
 * never below `settled`, the word has changed by now, so the exchange of `take` fails and 0 does no harm.
 * Methods that exchange nothing may then return too little: a `take` of 0, which adds nothing; `read`,
 * `takenOf` and `msUntil`, which are for people and for waits, and admit nobody.
 */
function differenceOf(taken: Halves, settled: Halves): number {
  const difference = amountOf(taken, TICK_BITS) - amountOf(settled, TICK_BITS);
  if (difference > AMOUNT_HALF) return 0;
  return difference < -AMOUNT_HALF ? difference + 2 * AMOUNT_HALF : Math.max(0, difference);
}

/** `taken` and `settled` lie as the two words of a stock do: `settled` is STOCK_SETTLED words further. */
function takenAt(record: number): number {
  return layout.stockAt(record, layout.TOKENS_PER_MINUTE);
}

function startsAt(record: number): number {
  return record * layout.QUOTA_WORDS64 + layout.TOKEN_TICK_STARTS;
}

function lastAt(record: number): number {
  return record * layout.QUOTA_WORDS32 + layout.LAST_STARTED_TICK;
}
