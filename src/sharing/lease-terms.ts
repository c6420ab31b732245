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
 * If the coordinator has little left, an amount that was not used for so long is given back; of a stock up to
 * half of that time later (IdleFloor).
 */
export const IDLE_MS_SCARCE = 500;
/** If it has plenty, it stays longer: a slow account costs an exchange in 16 to 24 s, not one a request. */
export const IDLE_MS_PLENTIFUL = 16_000;
/** Plenty is left if the coordinator has at least this many times what is held here. */
const PLENTIFUL_TIMES = 8n;
/** A first ask wants so many times what one call needs: most accounts that make one call make another. */
export const FIRST_BATCH = 4;
/** How far ahead a lease covers the need if little is left: others may need the rest. */
const COVERED_MS_SCARCE = 2_000;
/** If plenty is left. A lease is refilled while it covers half of this, which outlasts a takeover. */
const COVERED_MS_PLENTIFUL = 20_000;
/**
 * At the latest permits are refilled when a quarter is left. Fewer than LOW_LEAST are refilled when the last
 * one is taken, or each use would ask.
 */
const LOW_PART = 4;
const LOW_LEAST = 4;

/**
 * The low-water mark of permits: the thread that leaves so many of `held` wakes the main thread. If the
 * coordinator has none `remaining`, an ask before the last one is taken would be in vain.
 */
export function lowOf(held: number, remaining: number): number {
  return held < LOW_LEAST || remaining <= 0 ? 0 : Math.floor(held / LOW_PART);
}

/** How far ahead an ask covers the need: the rate of use times this is wanted. */
export function coveredMsOf(plentiful: boolean): number {
  return plentiful ? COVERED_MS_PLENTIFUL : COVERED_MS_SCARCE;
}

/**
 * Whether the coordinator has plenty left of a stock: `held` here, `remaining` there. Not if it has nothing,
 * also if nothing is held. minute-lease.ts has a rule of its own, by the limit.
 */
export function isPlentiful(held: bigint, remaining: bigint): boolean {
  return remaining > 0n && remaining >= held * PLENTIFUL_TIMES;
}

/** The coordinator's last reply about a resource that was wanted and not granted. */
export interface Denial {
  /** When the ask was sent, monotonic: a request that came later has not been denied anything. */
  readonly sentMs: number;
  /** Others hold some that they may give back. */
  readonly heldByOthers: boolean;
}

/**
 * The low-water mark of an amount over a sliding window of two halves: what nobody has touched for so long.
 * Halves, so that after a use it takes half a window longer until something counts as idle, not a whole one.
 */
export class IdleFloor {
  /** The least of the half before this one; 0 if that half was not watched. */
  #before = 0n;
  /** The least since `#sinceMs`; undefined before the first look. */
  #least: bigint | undefined;
  #sinceMs: number;

  constructor(nowMs: number) {
    this.#sinceMs = nowMs;
  }

  /**
   * `left` is there now. Returns what lay idle for `idleMs`, as far as the looks have seen; 0 between the
   * ends of two halves. The lease manager looks every 250 ms, at least once in each half.
   */
  look(left: bigint, idleMs: number, nowMs: number): bigint {
    if (this.#least === undefined || left < this.#least) this.#least = left;
    if (nowMs - this.#sinceMs < idleMs / 2) return 0n;
    const floor = minOf(this.#least, this.#before);
    this.restart(nowMs, this.#least);
    return floor;
  }

  /** The amount was changed from outside: the watch begins again. `before`: the least until now, if known. */
  restart(nowMs: number, before = 0n): void {
    this.#before = before;
    this.#least = undefined;
    this.#sinceMs = nowMs;
  }
}

/** Time constant of the moving average: it follows a change in seconds, and ignores one burst. */
const MEMORY_MS = 2_000;
/** Readings closer together count with the next one: one use in a millisecond is no rate of a thousand. */
const SPAN_MS_MIN = 50;

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

  /** `total` has been used up to now; returns whether it has grown since the last reading. */
  read(total: number, nowMs: number): boolean {
    const spanMs = nowMs - this.#readMs;
    if (spanMs < SPAN_MS_MIN) return total > this.#total;
    const grown = total > this.#total;
    const perSecond = (Math.max(0, total - this.#total) * 1_000) / spanMs;
    const weight = 1 - Math.exp(-spanMs / MEMORY_MS);
    this.perSecond += weight * (perSecond - this.perSecond);
    this.#total = total;
    this.#readMs = nowMs;
    return grown;
  }
}

/** All timers of the sharing code, so that tests and the simulation can control the time. */
export interface LeaseTimers {
  /** Runs `act` after the present turn of the event loop, so that all asks of that turn are sent together. */
  soon(act: () => void): void;
  /** Runs `act` once, after `ms`. Keeps the process alive until then, or until the returned cancel. */
  after(ms: number, act: () => void): () => void;
}

export const SYSTEM_TIMERS: LeaseTimers = {
  soon: (act) => void setImmediate(act),
  after: (ms, act) => {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
};
