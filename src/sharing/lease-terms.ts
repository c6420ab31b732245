/**
 * How long and how much a node holds: figures that the leases of all resources share. Main thread.
 */

/** What nobody used for so long is given back where others may need it. */
export const IDLE_MS_SCARCE = 500;
/** Where plenty is left it stays longer, so that a slow account costs an exchange every 16 s and not one a request. */
export const IDLE_MS_PLENTIFUL = 16_000;
/** Plenty is left where the coordinator has so many times what is held here. */
const PLENTIFUL_TIMES = 8;
/** What a first ask wants beside what waits: most accounts that make one call make another. */
export const FIRST_BATCH = 4;
/** How far ahead the need of days and money is covered. */
export const COVERED_MS = 2_000;
/** Refill when a quarter is left; small leases are refilled when they are empty, or each use would ask. */
const LOW_PART = 4;
const LOW_LEAST = 4;

/** No lease ever leaves this. */
export const NEVER_LOW = -1;

/** Tell the main thread when so much is left of `held`; never where the coordinator has no more. */
export function lowOf(held: number, remaining: number): number {
  return held < LOW_LEAST || remaining <= 0 ? NEVER_LOW : Math.floor(held / LOW_PART);
}

export function isPlentiful(held: number, remaining: number): boolean {
  return remaining >= held * PLENTIFUL_TIMES;
}

/** What the coordinator last said of a resource that was wanted and not given. */
export interface Denial {
  /** When the ask left: who came later has not been denied anything. */
  readonly sentMs: number;
  /** Others hold some that they may give back. */
  readonly heldByOthers: boolean;
}

/*
 * How much of an amount nobody has touched for a while: the least that was seen in the last two halves of that while. One that
 * was touched a moment ago is thus waited for half of it longer, and not for another whole one. Main thread.
 */

export class IdleFloor<Amount extends number | bigint> {
  readonly #nothing: Amount;
  /** The least of the half before this one; nothing where that was not watched. */
  #before: Amount;
  /** The least since `#sinceMs`; undefined before the first look. */
  #least: Amount | undefined;
  #sinceMs: number;

  constructor(nothing: Amount, nowMs: number) {
    this.#nothing = nothing;
    this.#before = nothing;
    this.#sinceMs = nowMs;
  }

  /** `left` is there now; returns what lay idle for `idleMs`, and nothing between the ends of its halves. */
  look(left: Amount, idleMs: number, nowMs: number): Amount {
    if (this.#least === undefined || left < this.#least) this.#least = left;
    if (nowMs - this.#sinceMs < idleMs / 2) return this.#nothing;
    const floor = this.#least < this.#before ? this.#least : this.#before;
    this.#before = this.#least;
    this.#least = undefined;
    this.#sinceMs = nowMs;
    return floor;
  }

  /** The amount is another one from now on. */
  restart(nowMs: number): void {
    this.#before = this.#nothing;
    this.#least = undefined;
    this.#sinceMs = nowMs;
  }
}

/*
 * How fast something is used lately, from readings of its total. Main thread.
 */

/** Readings weigh by their span against this: a rate follows a change within seconds, and a burst is not taken for the rule. */
const MEMORY_MS = 2_000;
/** Readings that are closer together are put off: one use in a millisecond is no rate of a thousand. */
const SPAN_MS_MIN = 50;

export class UseRate {
  /** Uses a second, lately. */
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

/*
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
