/**
 * How long and how much a process holds: the constants, the two estimators and the Denial that
 * minute-lease.ts and stock-leases.ts share, and the timers of the sharing code. Main thread.
 *
 * The constants trade round trips for idle money and permits; no limit depends on them. Permits are counted
 * as numbers, and stocks as bigints, because money is one.
 *
 * Must hold: if little is left, an idle amount is given back within the wait of a request (lease-waits.ts).
 * Tests: test/unit/sharing/stock-leases.test.ts (IdleFloor too), lease-manager.test.ts.
 */
import { minOf } from '../core/units.js';

/**
 * If the coordinator has little left, an amount that was not used for so long is given back. An amount of a
 * stock may stay for half of that time longer (IdleFloor).
 */
export const IDLE_MS_SCARCE = 500;
/**
 * If the coordinator has plenty left, an idle amount stays for so long: a slow account costs an exchange in
 * 16 to 24 s, not one a request.
 */
export const IDLE_MS_PLENTIFUL = 16_000;
/** Plenty is left if the coordinator has at least this many times what is held here. */
const PLENTIFUL_TIMES = 8n;
/** A first ask wants so many times what one call needs: most accounts that make one call make another. */
export const FIRST_BATCH = 4;
/** How far ahead a lease covers the need if little is left. It is short because others may need some. */
const COVERED_MS_SCARCE = 2_000;
/**
 * How far ahead if plenty is left. A lease is refilled while it covers half of this time, which is longer
 * than another server needs to take over.
 */
const COVERED_MS_PLENTIFUL = 20_000;
/**
 * Permits are refilled when a quarter is left, at the latest. Fewer than LOW_LEAST are refilled when the last
 * one is taken, because otherwise each use would ask.
 */
const LOW_PART = 4;
const LOW_LEAST = 4;

/**
 * The low-water mark of permits: the thread that leaves so many of `held` wakes the main thread. If the
 * coordinator has none `remaining`, an ask before the last one is taken would get nothing.
 */
export function lowOf(held: number, remaining: number): number {
  return held < LOW_LEAST || remaining <= 0 ? 0 : Math.floor(held / LOW_PART);
}

/** How far ahead an ask covers the need: it wants the rate of use times this time. */
export function coveredMsOf(isPlenty: boolean): number {
  return isPlenty ? COVERED_MS_PLENTIFUL : COVERED_MS_SCARCE;
}

/**
 * Whether the coordinator has plenty left of a stock, if `held` is here and `remaining` there. False if it
 * has nothing left, also if nothing is held. minute-lease.ts has a rule of its own, by the limit.
 */
export function isPlentiful(held: bigint, remaining: bigint): boolean {
  return remaining > 0n && remaining >= held * PLENTIFUL_TIMES;
}

/** The coordinator's last reply about a resource that was wanted and not granted. */
export interface Denial {
  /** When the ask was sent (monotonic). A request that came later has not been denied anything. */
  readonly sentMs: number;
  /** Whether other nodes hold some that they may give back. */
  readonly heldByOthers: boolean;
}

/**
 * The least of an amount over a sliding window of two halves: what no call has touched for so long. With two
 * halves an amount counts as idle at most half a window late, not a whole one.
 */
export class IdleFloor {
  /** The least amount of the half before the present one; 0 if the half before was not watched. */
  #leastBefore = 0n;
  /** The least amount since `#sinceMs`; undefined before the first look. */
  #least: bigint | undefined;
  #sinceMs: number;

  constructor(nowMs: number) {
    this.#sinceMs = nowMs;
  }

  /**
   * `amount` is what is there now. Returns what lay idle for `idleMs`, as far as the looks have seen; 0
   * between the ends of two halves. The lease manager looks every 250 ms, at least once in each half.
   */
  look(amount: bigint, idleMs: number, nowMs: number): bigint {
    if (this.#least === undefined || amount < this.#least) this.#least = amount;
    if (nowMs - this.#sinceMs < idleMs / 2) return 0n;
    const floor = minOf(this.#least, this.#leastBefore);
    this.restart(nowMs, this.#least);
    return floor;
  }

  /**
   * The watch begins again, because the amount was changed by a grant or a return. `leastBefore`: the least
   * of the half before; 0 if it was not watched.
   */
  restart(nowMs: number, leastBefore = 0n): void {
    this.#leastBefore = leastBefore;
    this.#least = undefined;
    this.#sinceMs = nowMs;
  }
}

/** Time constant of the moving average: it follows a change in seconds, and ignores one burst. */
const AVERAGED_MS = 2_000;
/** A reading sooner after the last one sets no rate: one use within a millisecond is no rate of 1,000. */
const READING_MS_MIN = 50;

/** An exponentially weighted moving average (EWMA) of a rate, from readings of a total at irregular times. */
export class UseRate {
  /** Uses a second, lately. `read` alone sets it. */
  perSecond = 0;
  #total: number;
  #readMs: number;

  constructor(total: number, nowMs: number) {
    this.#total = total;
    this.#readMs = nowMs;
  }

  /** `total` has been used up to now. Returns whether it is more than at the last reading. */
  read(total: number, nowMs: number): boolean {
    const spanMs = nowMs - this.#readMs;
    const hasGrown = total > this.#total;
    if (spanMs < READING_MS_MIN) return hasGrown;
    const perSecond = (Math.max(0, total - this.#total) * 1_000) / spanMs;
    const weight = 1 - Math.exp(-spanMs / AVERAGED_MS);
    this.perSecond += weight * (perSecond - this.perSecond);
    this.#total = total;
    this.#readMs = nowMs;
    return hasGrown;
  }
}

/** All timers of the sharing code, so that tests and the simulation can control the time. */
export interface LeaseTimers {
  /** Runs `act` after the present turn of the event loop, so that all asks of the turn are sent together. */
  soon(act: () => void): void;
  /**
   * Runs `act` once, after `ms`. Returns a function that cancels it. Until either, the timer keeps the
   * process alive.
   */
  after(ms: number, act: () => void): () => void;
}

export const SYSTEM_TIMERS: LeaseTimers = {
  soon: (act) => void setImmediate(act),
  after: (ms, act) => {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
};
