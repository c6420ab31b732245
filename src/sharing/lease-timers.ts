/**
 * What the keeper of leases does later comes through here, so that tests and the simulation can steer it. Main thread.
 */
export interface LeaseTimers {
  /** When the present turn of the event loop is over: what came in it leaves together. */
  soon(act: () => void): void;
  /** Once, after `ms`. Returns how to call it off. */
  after(ms: number, act: () => void): () => void;
}

export const SYSTEM_TIMERS: LeaseTimers = {
  soon: (act) => void setImmediate(act),
  after: (ms, act) => {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
};
