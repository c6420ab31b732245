/**
 * The clock of a process that shares limits with other processes: the coordinator's wall clock, and the
 * host's monotonic time. Quotas of a day or month are counted and reset by the wall clock, so a day ends at
 * the same moment on all hosts. Listeners and the main thread have an object each, over one shared word. The
 * main thread sets the word after exchanges with the coordinator (gateway/shared-accounting.ts).
 *
 * Must hold: `monotonicMs` never follows the coordinator, because minutes are counted by monotonic time. The
 * main thread alone writes the word. Further test: test/e2e/sharing-hosts.test.ts (one host's wall clock is
 * ahead).
 */
import type { Clock } from '../core/clock.js';
import { asWallMs, type MonotonicMs, type WallMs } from '../core/units.js';
import type { LedgerBuffers } from './layout.js';

export class CoordinatorClock implements Clock {
  readonly #hostClock: Clock;
  /**
   * One word: by how many ms the coordinator's wall clock is ahead of the host's; negative if it is behind.
   * 0 until the coordinator has replied: until then days are counted by the host's wall clock.
   */
  readonly #aheadMs: BigInt64Array;

  /** `aheadMs`: LedgerBuffers.coordinatorAheadMs, which holds that word. */
  constructor(hostClock: Clock, aheadMs: SharedArrayBuffer) {
    this.#hostClock = hostClock;
    this.#aheadMs = new BigInt64Array(aheadMs);
  }

  monotonicMs(): MonotonicMs {
    return this.#hostClock.monotonicMs();
  }

  wallMs(): WallMs {
    return asWallMs(this.#hostClock.wallMs() + Number(Atomics.load(this.#aheadMs, 0)));
  }

  /** The coordinator's wall clock showed `wallMs` when the host's showed about `hostWallMs`. Main thread. */
  setDifference(wallMs: WallMs, hostWallMs: number): void {
    Atomics.store(this.#aheadMs, 0, BigInt(Math.round(wallMs - hostWallMs)));
  }
}

/** The clock for a thread that works on these buffers. It is `hostClock` if limits are not shared. */
export function clockOf({ coordinatorAheadMs }: LedgerBuffers, hostClock: Clock): Clock {
  return coordinatorAheadMs === undefined ? hostClock : new CoordinatorClock(hostClock, coordinatorAheadMs);
}
