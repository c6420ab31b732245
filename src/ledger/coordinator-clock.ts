/**
 * The clock by which quotas of a day are counted and reset: the host's clock or, if limits are shared, the
 * coordinator's calendar. So a day ends at the same moment on all hosts, whatever their own calendars show.
 * Listeners and the main thread read the clock. After each exchange with the coordinator the main thread
 * (gateway/shared-accounting.ts) sets the difference of the two calendars.
 *
 * Must hold: the monotonic time stays the host's own. Minutes are counted by it, so the coordinator's
 * calendar must not move it. Test: test/e2e/sharing-hosts.test.ts (the calendar of a host is off).
 */
import type { Clock } from '../core/clock.js';
import { asWallMs, type MonotonicMs, type WallMs } from '../core/units.js';
import type { LedgerBuffers } from './layout.js';

export class CoordinatorClock implements Clock {
  readonly #hostClock: Clock;
  /** One word: by how many ms the coordinator's calendar is ahead of the host's; negative if behind. */
  readonly #aheadMs: BigInt64Array;

  /** `calendar`: the buffer of that word, LedgerBuffers.calendar. */
  constructor(hostClock: Clock, calendar: SharedArrayBuffer) {
    this.#hostClock = hostClock;
    this.#aheadMs = new BigInt64Array(calendar);
  }

  monotonicMs(): MonotonicMs {
    return this.#hostClock.monotonicMs();
  }

  wallMs(): WallMs {
    return asWallMs(this.#hostClock.wallMs() + Number(Atomics.load(this.#aheadMs, 0)));
  }

  /** The coordinator's calendar showed `wallMs` when the host's showed `hostWallMs`. Main thread. */
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
