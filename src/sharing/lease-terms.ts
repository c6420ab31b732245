/**
 * How long and how much a node holds: figures that the leases of all resources share. Main thread.
 */

/** What nobody used for so long is given back where others may need it. */
export const IDLE_MS_SCARCE = 500;
/** Where plenty is left it stays longer, so that a slow account costs an exchange every 16 s and not one a request. */
export const IDLE_MS_PLENTIFUL = 16_000;
/** Plenty is left where the authority has so many times what is held here. */
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

/** Tell the main thread when so much is left of `held`; never where the authority has no more. */
export function lowOf(held: number, remaining: number): number {
  return held < LOW_LEAST || remaining <= 0 ? NEVER_LOW : Math.floor(held / LOW_PART);
}

export function isPlentiful(held: number, remaining: number): boolean {
  return remaining >= held * PLENTIFUL_TIMES;
}

/** What the authority last said of a resource that was wanted and not given. */
export interface Denial {
  /** When the ask left: who came later has not been denied anything. */
  readonly sentMs: number;
  /** Others hold some that they may give back. */
  readonly elsewhere: boolean;
}
