/**
 * A clock for days and resets: the host's clock, or the coordinator's calendar if limits are shared. So a day
 * ends at the same moment on all hosts, whatever their own calendars show. Listeners and the main thread read
 * it. After each exchange with the coordinator the main thread (gateway/shared-accounting.ts) sets the
 * difference.
 *
 * Must hold: the monotonic time stays the host's own. Minutes are counted by it, so the coordinator's
 * calendar must not move it. Test: test/e2e/sharing-hosts.test.ts (the calendar of a host is off).
 */
import type { Clock } from '../core/clock.js';
import { asWallMs, type MonotonicMs, type WallMs } from '../core/units.js';
import type { LedgerBuffers } from './layout.js';

export class CoordinatorClock implements Clock {
  readonly #clock: Clock;
  readonly #aheadMs: BigInt64Array;

  constructor(clock: Clock, calendar: SharedArrayBuffer) {
    this.#clock = clock;
    this.#aheadMs = new BigInt64Array(calendar);
  }

  monotonicMs(): MonotonicMs {
    return this.#clock.monotonicMs();
  }

  wallMs(): WallMs {
    return asWallMs(this.#clock.wallMs() + Number(Atomics.load(this.#aheadMs, 0)));
  }

  /** The coordinator's calendar showed `wallMs` when the host's showed `hostWallMs`. Main thread. */
  follow(wallMs: WallMs, hostWallMs: number): void {
    Atomics.store(this.#aheadMs, 0, BigInt(Math.round(wallMs - hostWallMs)));
  }
}

/** Returns the clock for a thread that works on these buffers: `clock` itself unless limits are shared. */
export function clockOf({ calendar }: LedgerBuffers, clock: Clock): Clock {
  return calendar === undefined ? clock : new CoordinatorClock(clock, calendar);
}
