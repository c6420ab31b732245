/**
 * The two clocks of a thread, timers that fire together, and moments as people write them. Code takes the
 * time from a Clock that it is given, so that tests can stop the time; only the timers go by the thread's own
 * clock. Called from nearly every folder, on any thread.
 *
 * Must hold:
 * - `monotonicMs` means the same in all threads and processes of a host, because one writes leases and
 *   windows to shared memory and another reads them (test/unit/core/clock.test.ts).
 * - How long something took is never computed from `wallMs`, which may step. No test finds code that does so.
 * - Only `wallMs` can tell the age of data that outlive a start of the host: see retention.ts.
 * - A day that is in no calendar is not read as another day (test/unit/core/clock.moment.test.ts).
 */
import { performance } from 'node:perf_hooks';
import { asMonotonicMs, asWallMs, type MonotonicMs, type WallMs } from './units.js';

export interface Clock {
  /** Milliseconds, with fractions. Never steps; the same in all threads and processes of one host. */
  monotonicMs(): MonotonicMs;
  /** Whole milliseconds of the calendar. May step. */
  wallMs(): WallMs;
}

/**
 * How often `offsetMs` reads the two clocks together. The pair whose readings lie closest counts: if the
 * kernel suspends the thread between two readings, their pair is wrong by as long.
 */
const OFFSET_SAMPLES = 32;

/**
 * The host's clocks, of which two threads read values that differ by microseconds.
 *
 * `performance.now()` starts at zero in every thread. So its offset to CLOCK_MONOTONIC, which
 * `process.hrtime` reads and all threads share, is measured once. A reading then costs 40 ns and allocates
 * nothing. (`performance` is imported because the global one is a getter, which costs some 25 ns more.)
 */
export class SystemClock implements Clock {
  readonly #offsetMs = offsetMs();

  monotonicMs(): MonotonicMs {
    return asMonotonicMs(performance.now() + this.#offsetMs);
  }

  wallMs(): WallMs {
    return asWallMs(Date.now());
  }
}

function offsetMs(): number {
  let best = { offsetMs: 0, spreadMs: Infinity };
  for (let sample = 0; sample < OFFSET_SAMPLES; sample++) {
    const beforeMs = performance.now();
    const [seconds, nanoseconds] = process.hrtime();
    const afterMs = performance.now();
    const spreadMs = afterMs - beforeMs;
    if (spreadMs >= best.spreadMs) continue;
    best = { offsetMs: seconds * 1_000 + nanoseconds / 1e6 - (beforeMs + afterMs) / 2, spreadMs };
  }
  return best.offsetMs;
}

/**
 * A timer may fire some milliseconds before the tick (the multiple of its period) that it waits for. Then it
 * is not set for the same tick again, but for the next.
 */
const EARLY_MS_MAX = 5;

/**
 * Milliseconds from now to the next multiple of `periodMs` by the thread's own clock. Timers of a thread that
 * are set by this function fire together, so that an idle thread wakes once for all: each wake costs up to
 * 0.1 ms of CPU. `nowMs` is a reading of `performance.now()`, never of a Clock, which starts at another
 * moment.
 */
export function msToNextTick(periodMs: number, nowMs: number = performance.now()): number {
  const untilTickMs = periodMs - (nowMs % periodMs);
  return untilTickMs > EARLY_MS_MAX ? untilTickMs : untilTickMs + periodMs;
}

/**
 * Calls `act` about every `periodMs`, together with the other timers of the thread that use `msToNextTick`.
 * Returns a function that stops the calls. Does not keep the process alive.
 */
export function onEachTick(periodMs: number, act: () => void): () => void {
  let timer: NodeJS.Timeout;
  const schedule = (): void => {
    timer = setTimeout(() => {
      // Scheduled before `act`, so that `act` itself may stop the calls.
      schedule();
      act();
    }, msToNextTick(periodMs)).unref();
  };
  schedule();
  return () => clearTimeout(timer);
}

const STARTS_WITH_DAY = /^\d{4}-\d{2}-\d{2}/;

/**
 * `Date.parse` of a text that begins with a day, such as `2025-01-31` or `2025-01-31T12:00Z`. Returns Unix
 * milliseconds; NaN for any other text, and for a day that is in no calendar, such as 2025-02-31, which
 * `Date.parse` takes for one of the next month.
 */
export function parseMomentMs(text: string): number {
  const day = STARTS_WITH_DAY.exec(text)?.[0];
  if (day === undefined) return NaN;
  const dayMs = Date.parse(day);
  const isInCalendar = !Number.isNaN(dayMs) && new Date(dayMs).toISOString().startsWith(day);
  return isInCalendar ? Date.parse(text) : NaN;
}
