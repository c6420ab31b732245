/**
 * Holds what minute-lease.ts and stock-leases.ts share: the constants that say how much a process leases
 * ahead and for how long it keeps idle amounts, IdleFloor and UseRate. Main thread.
 *
 * The constants trade round trips against money and permits that lie idle; no limit depends on them. Permits
 * are counted as numbers, stocks as bigints, because money needs them.
 *
 * Must hold: if the coordinator has little left, an idle amount is given back while a request of another
 * process still waits for it (WAIT_FOR_OTHERS_MS). Further tests: test/unit/sharing/stock-leases.test.ts,
 * lease-manager.test.ts.
 */
import { invariant } from '../core/errors.js';
import { minOf } from '../core/units.js';
import { TIMER_EARLY_MS } from './lease-timers.js';

/** How often the lease manager checks leases for what lies idle. */
export const SWEEP_MS = 250;
/** How long an amount may lie idle if the coordinator has little left; then the process gives it back. */
export const IDLE_MS_SCARCE = 500;
invariant(SWEEP_MS <= IDLE_MS_SCARCE / 2, 'IdleFloor is swept at least once in each half');
/**
 * How long a request or a debit waits for what others hold. IdleFloor may notice half of the time late, and a
 * sweep may come 60 ms late (RETRY_MS of lease-manager.ts), so what lies idle of a stock goes back after
 * 900 ms at most; 600 ms are left for the exchanges.
 */
export const WAIT_FOR_OTHERS_MS = 3 * IDLE_MS_SCARCE;
/**
 * How long an amount may lie idle if the coordinator has plenty left: an account that seldom calls costs an
 * exchange in 16 to 24 s, not one for each request.
 */
export const IDLE_MS_PLENTIFUL = 16_000;
/** What lies idle of a stock is given back after so long: IdleFloor may notice half of the time late. */
export const GIVEN_BACK_MS_MAX = 1.5 * IDLE_MS_PLENTIFUL;
/** The coordinator has plenty left of a stock if it has this many times what the process holds, or more. */
const PLENTIFUL_TIMES = 8n;
/** How many calls a first ask covers, because most accounts that make one call make another. */
export const FIRST_BATCH = 4;
/** How far ahead a lease covers the need if little is left: not far, because others may need some. */
export const COVERED_MS_SCARCE = 2_000;
/**
 * How far ahead a lease covers the need if plenty is left. The lease is refilled when it covers half of this
 * time, so calls go on while another server takes over.
 */
export const COVERED_MS_PLENTIFUL = 20_000;
/**
 * The process asks for more permits when 1 / LOW_PART of them is left, at the latest. If it has fewer than
 * LOW_LEAST it asks when the last one is taken: a mark among so few would make nearly each use ask.
 */
const LOW_PART = 4;
const LOW_LEAST = 4;

/**
 * The low-water mark of permits: the thread that leaves so many of `held` wakes the main thread. It is 0 if
 * the coordinator has none `remaining`, because an earlier ask would get nothing.
 */
export function lowOf(held: number, remaining: number): number {
  return held < LOW_LEAST || remaining <= 0 ? 0 : Math.floor(held / LOW_PART);
}

/**
 * Whether the coordinator has plenty left of a stock: `remaining`, while the process holds `held`. False if
 * nothing remains, even if nothing is held. For permits minute-lease.ts compares with the limit instead.
 */
export function isPlentiful(held: bigint, remaining: bigint): boolean {
  return remaining > 0n && remaining >= held * PLENTIFUL_TIMES;
}

/**
 * The least that an amount has been in the last `idleMs`: no call has needed it, so it lies idle. The time is
 * watched in two halves, so an amount counts as idle half of `idleMs` late at most, not all of it.
 */
export class IdleFloor {
  #leastBefore = 0n; // the least amount in the former half; 0 if the former half was not watched
  /** The least amount in the present half, which began at `#sinceMs`; undefined before its first sweep. */
  #least: bigint | undefined;
  #sinceMs: number;

  constructor(nowMs: number) {
    this.#sinceMs = nowMs;
  }

  /**
   * `amount` is what is there now. Returns how much has lain idle for `idleMs`, as far as sweeps have found;
   * 0 before a half is over. The lease manager sweeps every SWEEP_MS.
   */
  idleAmount(amount: bigint, idleMs: number, nowMs: number): bigint {
    if (this.#least === undefined || amount < this.#least) this.#least = amount;
    // Without the margin a half would take two sweeps if the timer of the second one came early.
    if (nowMs - this.#sinceMs < idleMs / 2 - TIMER_EARLY_MS) return 0n;
    const floor = minOf(this.#least, this.#leastBefore);
    this.restart(nowMs, this.#least);
    return floor;
  }

  /**
   * Begins a half. A caller that has changed the amount by a grant or a return leaves `leastBefore` out: then
   * nothing counts as idle before two halves are over.
   */
  restart(nowMs: number, leastBefore = 0n): void {
    this.#leastBefore = leastBefore;
    this.#least = undefined;
    this.#sinceMs = nowMs;
  }
}

/** The time constant of the moving average: it follows a change within seconds, and hardly a single burst. */
const AVERAGED_MS = 2_000;
/** Readings closer together than this set no rate: one use within a millisecond is no rate of 1,000. */
const READING_MS_MIN = 50;

/** The rate of use: an exponentially weighted moving average over readings of a total at irregular times. */
export class UseRate {
  #perSecond = 0;
  #total: number;
  #readMs: number;

  constructor(total: number, nowMs: number) {
    this.#total = total;
    this.#readMs = nowMs;
  }

  /** Uses a second, by the readings up to now; 0 at first. */
  get perSecond(): number {
    return this.#perSecond;
  }

  /** `total` was used up to `nowMs`. Returns whether that is more than at the last reading with a rate. */
  read(total: number, nowMs: number): boolean {
    const spanMs = nowMs - this.#readMs;
    const hasGrown = total > this.#total;
    if (spanMs < READING_MS_MIN) return hasGrown;
    const perSecond = (Math.max(0, total - this.#total) * 1_000) / spanMs;
    const weight = 1 - Math.exp(-spanMs / AVERAGED_MS);
    this.#perSecond += weight * (perSecond - this.#perSecond);
    this.#total = total;
    this.#readMs = nowMs;
    return hasGrown;
  }
}
