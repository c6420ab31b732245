/**
 * Requests per minute of scopes. The rate-limit phase takes permits of its scopes, and upstream-counters.ts
 * those of upstreams. LeasedWindow replaces this class if limits are shared. Any thread.
 *
 * Must hold: in any span of 60 seconds at most the limit is admitted, whatever the threads do, and a permit
 * is free after 61.3 s at most. Further test: test/threads/ledger-window.test.ts.
 *
 * Time is cut into ticks of a 50th of a minute. For each scope one 64-bit word, the head, holds
 *
 *     tick (38 bits)   the last tick to which a thread has rolled the scope
 *     age   (6 bits)   ticks since the count last began at 0, at most 51
 *     count (20 bits)  permits taken since then, modulo 2^20
 *
 * and 51 tick starts of 32 bits hold, for each tick, the count with which it began: lap (12 bits), count (20
 * bits). A tick's index is tick % 51, its lap is tick / 51. The permits of a tick and of the 50 before it are
 * used = count - start(tick - 50): one load, no sum over buckets. Ticks are counted whole, so a permit weighs
 * until 51 ticks after its own began. That is more than 60 s after it was taken and at most 61.2 s, and 0.1 s
 * more covers clocks and rounding. Under full pressure 50/51 = 98.04 % of the limit is admitted.
 *
 * Why this is right:
 * - Check and add are one compare-exchange of the head. The start of the tick 50 before the head's, which
 *   the check read, is final. So if the exchange succeeds, the check still held.
 * - Rolling from tick T to T' first writes count into the starts T+1..T', then exchanges the head. To write
 *   a start, a thread loads it, checks that the head is still the one it read, and compare-exchanges the
 *   start. Within a tick the count only grows, so the thread that wins the head's exchange had its count in
 *   every start. A late thread fails at its check of the head, or at its exchange of the start. No thread
 *   awaits another, so one that stops anywhere delays none.
 * - The start of T+1 replaces that of T-50, which tick T still needs. A reader that finds another lap there
 *   knows that some thread's clock is past T, and helps to roll instead.
 * - After 51 ticks without a call all permits have expired: the head goes to count 0, age 0, and starts at or
 *   before that tick count as 0 and are not read. So old starts do no harm after an idle gap of any length.
 * - A thread may stall between reading the clock and its exchange. It would then count its permit in a tick
 *   that is long over, and the permit would expire early. So the thread reads the clock again after the
 *   exchange. If the tick has ended, it abandons that permit, which stays counted, and tries again. A call
 *   may thus be rejected because of its own abandoned permit: one call in ten million, on the safe side.
 * - Counts are compared modulo 2^20, which is more than any limit. A lap repeats after 69 hours; a thread
 *   would have to sleep for exactly that between two instructions, and would then cause a roll one tick
 *   early.
 * - Each thread measures its own offset to the host's clock (core/clock.ts), so the clocks of threads differ
 *   by microseconds. A thread whose clock lags uses the head's tick instead. A tick is longer than a 50th of
 *   a minute by enough to cover 1.5 ms of difference.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { REQUESTS_PER_MINUTE_MAX } from '../core/limits.js';
import { type AccountIndex, asWallMs, type WallMs } from '../core/units.js';
import { DirtySet } from './dirty-set.js';
import {
  COUNTED_WORDS32,
  type CountedViews,
  EXCHANGES_MAX,
  TICKS_KEPT,
  TICK_STARTS,
  windowAt,
} from './layout.js';

/** Whether a request is admitted, as of the moment when `take` or `check` runs. */
export interface MinuteTake {
  readonly admitted: boolean;
  readonly remaining: number;
  /**
   * If admitted: when all permits used now will have expired. If rejected: when the next permit is free, if
   * no other request takes it. Rounded up to a whole millisecond.
   */
  readonly resetWallMs: WallMs;
  /** Rejected, but the coordinator may have permits, so ask it. Always false if limits are not shared. */
  readonly mayAskForMore: boolean;
}

/** A result that a counter keeps and returns each time, so that no `take` allocates one. */
export function createMinuteTake(): { -readonly [Field in keyof MinuteTake]: MinuteTake[Field] } {
  return { admitted: false, remaining: 0, resetWallMs: asWallMs(0), mayAskForMore: false };
}

/**
 * Counts requests a minute of many scopes: Window those that this process admits, LeasedWindow those it was
 * granted. Window says what each method does. `scope`: the slot of the account, key, group, rule or upstream.
 */
export interface MinuteCounter<Index extends number> {
  take(scope: Index, limit: number): MinuteTake;
  check(scope: Index, limit: number): MinuteTake;
  usedOf(scope: Index): number;
  restore(scope: Index, used: number, ageMs: number): void;
  clear(scope: Index): void;
}

export const TICKS_PER_MINUTE = 50;
/** 1/32 ms (exact in binary) more than a 50th of a minute: 1.5 ms a minute for clocks that differ. */
export const TICK_MS = 60_000 / TICKS_PER_MINUTE + 1 / 32;

const COUNT_BITS = 20;
const COUNT_MASK = (1 << COUNT_BITS) - 1;
const AGE_MASK = 63;
const HEAD_TICK_SHIFT = 26n;
const LAP_MASK = 0xfff;

invariant(TICKS_KEPT === TICKS_PER_MINUTE + 1, 'one start for each tick that weighs');
invariant(REQUESTS_PER_MINUTE_MAX < 1 << COUNT_BITS, 'a minute of permits fits the count');
invariant(TICKS_KEPT <= AGE_MASK, 'an age of all kept ticks fits its field');

function headOf(tick: number, age: number, count: number): bigint {
  return (BigInt(tick) << HEAD_TICK_SHIFT) | BigInt((age << COUNT_BITS) | count);
}

function tickStartOf(tick: number, count: number): number {
  return ((Math.floor(tick / TICKS_KEPT) & LAP_MASK) << COUNT_BITS) | count;
}

/** The windows of all scopes of one kind. */
export class Window<Index extends number = AccountIndex> implements MinuteCounter<Index> {
  readonly #words64: BigInt64Array;
  readonly #words32: Int32Array;
  readonly #clock: Clock;
  readonly #dirty: DirtySet<Index>;
  readonly #take = createMinuteTake();

  constructor(views: CountedViews, clock: Clock) {
    this.#words64 = views.records64;
    this.#words32 = views.records32;
    this.#clock = clock;
    this.#dirty = new DirtySet(views);
  }

  /**
   * Takes one permit, or nothing. `limit` is in permits a minute, 1 or more; it may change each time. Returns
   * one object, which the next `take` or `check` overwrites. Marks the scope dirty if it took one. About
   * 150 ns. Any thread.
   */
  take(scope: Index, limit: number): MinuteTake {
    return this.#decide(scope, limit, 'take');
  }

  /** What `take` would return now, but for `remaining`: nothing is taken. Any thread. */
  check(scope: Index, limit: number): MinuteTake {
    return this.#decide(scope, limit, 'check');
  }

  #decide(scope: Index, limit: number, purpose: 'take' | 'check'): MinuteTake {
    const word = windowAt(scope);
    // Raised if the clock of another thread proves to be ahead of the clock here.
    let tickMin = 0;
    for (let tries = 0; tries < EXCHANGES_MAX; tries++) {
      const nowMs = this.#clock.monotonicMs();
      const nowTick = Math.max(tickMin, Math.floor(nowMs / TICK_MS));
      const head = Atomics.load(this.#words64, word);
      const tick = Number(head >> HEAD_TICK_SHIFT);
      if (nowTick > tick) {
        this.#roll(scope, head, nowTick);
        continue;
      }
      const ageAndCount = Number(BigInt.asUintN(32, head));
      const count = ageAndCount & COUNT_MASK;
      const age = (ageAndCount >>> COUNT_BITS) & AGE_MASK;
      const start = this.#startCount(scope, tick, age, count, tick - TICKS_PER_MINUTE);
      if (start === undefined) {
        // Time is past `tick` on another thread's clock: the next try rolls, too.
        tickMin = tick + 1;
        continue;
      }
      const used = (count - start) & COUNT_MASK;
      if (used >= limit) {
        const freeTick = this.#freeTick(scope, tick, age, count, limit);
        if (freeTick === undefined) {
          tickMin = tick + 1;
          continue;
        }
        return this.#reject(freeTick, nowMs);
      }
      if (purpose === 'check') return this.#admit(limit - used, tick, nowMs);
      // The count wraps inside its field; a carry must not reach the age.
      const next = count === COUNT_MASK ? head - BigInt(COUNT_MASK) : head + 1n;
      if (Atomics.compareExchange(this.#words64, word, head, next) !== head) continue;
      // Marked dirty before the clock is read, so that a stall in `mark` is noticed below.
      this.#dirty.mark(scope);
      if (Math.floor(this.#clock.monotonicMs() / TICK_MS) > tick) continue;
      return this.#admit(limit - used - 1, tick, nowMs);
    }
    throw new Error('invariant broken: a permit is taken or rejected in bounded tries');
  }

  /** Permits that weigh now, for flushes, coordinators and views; changes nothing. Any thread. */
  usedOf(scope: Index): number {
    for (let tries = 0; tries < EXCHANGES_MAX; tries++) {
      const head = Atomics.load(this.#words64, windowAt(scope));
      const headTick = Number(head >> HEAD_TICK_SHIFT);
      const tick = Math.max(headTick, Math.floor(this.#clock.monotonicMs() / TICK_MS));
      if (tick - headTick >= TICKS_KEPT) return 0;
      const ageAndCount = Number(BigInt.asUintN(32, head));
      const count = ageAndCount & COUNT_MASK;
      const age = (ageAndCount >>> COUNT_BITS) & AGE_MASK;
      const start = this.#startCount(scope, headTick, age, count, tick - TICKS_PER_MINUTE);
      if (start !== undefined) return (count - start) & COUNT_MASK;
    }
    throw new Error('invariant broken: a window is read in bounded tries');
  }

  /**
   * Counts what an earlier process has flushed: `used` permits that weighed `ageMs` ago. They weigh as if all
   * had been taken at that moment, so an error can only reject. Main thread, before the scope is first used:
   * a permit that is taken at the same time would be lost. The head gets age 0, so no tick start is read.
   */
  restore(scope: Index, used: number, ageMs: number): void {
    const nowMs = this.#clock.monotonicMs();
    // `ageMs` is negative if the clock was set back meanwhile, and reaches before the first tick if the host
    // was restarted. Either way the permits weigh too long rather than too short.
    const tick = Math.max(0, Math.floor((nowMs - Math.max(0, ageMs)) / TICK_MS));
    if (tick + TICKS_KEPT <= Math.floor(nowMs / TICK_MS)) return;
    Atomics.store(this.#words64, windowAt(scope), headOf(tick, 0, Math.min(used, COUNT_MASK)));
  }

  /** Forgets all permits. Main thread, before an account, or the next owner of a slot, is first used. */
  clear(scope: Index): void {
    Atomics.store(this.#words64, windowAt(scope), 0n);
  }

  /**
   * The count with which `earlierTick` began, if the head has `tick`, `age` and `count`. Undefined if that
   * start was overwritten, because time is past `tick`.
   */
  #startCount(
    scope: Index,
    tick: number,
    age: number,
    count: number,
    earlierTick: number,
  ): number | undefined {
    if (earlierTick > tick) return count;
    if (earlierTick <= tick - age) return 0;
    const word = Atomics.load(
      this.#words32,
      scope * COUNTED_WORDS32 + TICK_STARTS + (earlierTick % TICKS_KEPT),
    );
    return word === tickStartOf(earlierTick, word & COUNT_MASK) ? word & COUNT_MASK : undefined;
  }

  /** The first tick with fewer than `limit` permits, by binary search. Undefined as in `#startCount`. */
  #freeTick(scope: Index, tick: number, age: number, count: number, limit: number): number | undefined {
    let low = tick - TICKS_PER_MINUTE + 1;
    let high = tick + 1;
    while (low < high) {
      const middle = low + ((high - low) >> 1);
      const start = this.#startCount(scope, tick, age, count, middle);
      if (start === undefined) return undefined;
      if (((count - start) & COUNT_MASK) < limit) high = middle;
      else low = middle + 1;
    }
    return low + TICKS_PER_MINUTE;
  }

  /** Tries once to roll the scope from `head` to `nowTick`. The caller reads the head again, and retries. */
  #roll(scope: Index, head: bigint, nowTick: number): void {
    const word = windowAt(scope);
    const tick = Number(head >> HEAD_TICK_SHIFT);
    if (nowTick - tick >= TICKS_KEPT) {
      Atomics.compareExchange(this.#words64, word, head, headOf(nowTick, 0, 0));
      return;
    }
    const ageAndCount = Number(BigInt.asUintN(32, head));
    const count = ageAndCount & COUNT_MASK;
    const age = Math.min(TICKS_KEPT, ((ageAndCount >>> COUNT_BITS) & AGE_MASK) + nowTick - tick);
    const starts = scope * COUNTED_WORDS32 + TICK_STARTS;
    for (let next = tick + 1; next <= nowTick; next++) {
      const index = starts + (next % TICKS_KEPT);
      const start = tickStartOf(next, count);
      const before = Atomics.load(this.#words32, index);
      if (before === start) continue;
      // As long as the head is the one read, `before` is older than it, so the new start may replace it.
      if (Atomics.load(this.#words64, word) !== head) return;
      if (Atomics.compareExchange(this.#words32, index, before, start) !== before) return;
    }
    Atomics.compareExchange(this.#words64, word, head, headOf(nowTick, age, count));
  }

  #admit(remaining: number, tick: number, nowMs: number): MinuteTake {
    const take = this.#take;
    take.admitted = true;
    take.remaining = remaining;
    take.resetWallMs = this.#wallMsAt(tick + TICKS_KEPT, nowMs);
    return take;
  }

  #reject(freeTick: number, nowMs: number): MinuteTake {
    const take = this.#take;
    take.admitted = false;
    take.remaining = 0;
    take.resetWallMs = this.#wallMsAt(freeTick, nowMs);
    return take;
  }

  /** The wall clock at the start of a tick: 1 ms more, because it rounds down to whole milliseconds. */
  #wallMsAt(tick: number, nowMs: number): WallMs {
    return asWallMs(this.#clock.wallMs() + Math.ceil(tick * TICK_MS - nowMs) + 1);
  }
}
