/**
 * The timers of the sharing code, so that tests and the simulation can control the time. The files of
 * src/sharing take LeaseTimers; gateway/shared-accounting.ts, open-hosts.ts and equal-share.ts give them
 * SYSTEM_TIMERS. Main thread.
 *
 * Must hold: nothing relies on a timer that comes in time: one may come TIMER_EARLY_MS early, and late by as
 * long as the thread is busy.
 */

/** Timers count whole ms from a rounded start, so one may come a fraction of a millisecond early. */
export const TIMER_EARLY_MS = 1;

export interface LeaseTimers {
  /** Runs `act` after the present turn of the event loop, so that all asks of the turn are sent together. */
  soon(act: () => void): void;
  /** Runs `act` once, after `ms`; until then keeps the process alive. Returns a function that cancels it. */
  after(ms: number, act: () => void): () => void;
}

export const SYSTEM_TIMERS: LeaseTimers = {
  soon: (act) => void setImmediate(act),
  after: (ms, act) => {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
};
