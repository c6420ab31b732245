/**
 * Requests of the minute: what becomes of one, and how they are counted. Any thread.
 */
import type { WallMs } from '../core/units.js';

/** What became of one request. Times are true at the moment of the call. */
export interface MinuteTake {
  readonly admitted: boolean;
  /** Permits left now. */
  readonly remaining: number;
  /**
   * Admitted: when all that is used now will have expired. Refused: when the next request is admitted, provided nobody
   * else takes the permit. Rounded up to a whole millisecond.
   */
  readonly resetWallMs: WallMs;
  /** Refused, and another process may have permits: the authority has not been asked. Never where limits are not shared. */
  readonly asks: boolean;
}

/** By all that this process admits (Window), or by what it was lent (LeasedWindow). */
export interface MinuteCounter<Index extends number> {
  take(counted: Index, limit: number): MinuteTake;
  check(counted: Index, limit: number): MinuteTake;
  usedOf(counted: Index): number;
  restore(counted: Index, used: number, ageMs: number): void;
  clear(counted: Index): void;
}
