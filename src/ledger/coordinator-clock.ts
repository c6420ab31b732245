/**
 * The clock by which quotas of a day are counted and reset: the host's clock or, if limits are shared, the
 * coordinator's wall clock. So a day ends at the same moment on all hosts, whatever their own wall clocks
 * show. Listeners and the main thread read the clock. After each exchange with the coordinator the main
 * thread (gateway/shared-accounting.ts) sets the difference of the two wall clocks.
 *
 * Must hold: the monotonic time stays the host's own. Minutes are counted by it, so the coordinator's wall
 * clock must not move it. Test: test/e2e/sharing-hosts.test.ts (the calendar of a host is off).
 */
import type { Clock } from '../core/clock.js';
import { asWallMs, type MonotonicMs, type WallMs } from '../core/units.js';
import type { LedgerBuffers } from './layout.js';

export class CoordinatorClock implements Clock {
  readonly #hostClock: Clock;
  /** One word: by how many ms the coordinator's wall clock is ahead of the host's; may be negative. */
  readonly #aheadMs: BigInt64Array;

  /** `aheadMs`: the buffer of that word, LedgerBuffers.calendar. */
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

  /** The coordinator's wall clock showed `wallMs` when the host's showed `hostWallMs`. Main thread. */
  follow(wallMs: WallMs, hostWallMs: number): void {
    Atomics.store(this.#aheadMs, 0, BigInt(Math.round(wallMs - hostWallMs)));
  }
}

/**
 * Returns the clock for a thread that works on these buffers: `hostClock` itself unless limits are shared.
 */
export function clockOf({ calendar }: LedgerBuffers, hostClock: Clock): Clock {
  return calendar === undefined ? hostClock : new CoordinatorClock(hostClock, calendar);
}
