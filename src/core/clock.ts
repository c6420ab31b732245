/**
 * Time comes in through a Clock, so that tests can hold it still. Any thread.
 */
import { performance } from 'node:perf_hooks';
import { asMonotonicMs, asWallMs, type MonotonicMs, type WallMs } from './units.js';

export interface Clock {
  /** Never steps; the same base in all threads and processes of one host; has fractions. */
  monotonicMs(): MonotonicMs;
  /** The calendar's time; may step. */
  wallMs(): WallMs;
}

/**
 * Pairs of readings of which the tightest counts: a thread that is put aside between the two of one is wrong
 * by so long.
 */
const OFFSET_SAMPLES = 32;

/**
 * The host's clocks. `performance.now()` starts at zero in every thread, so its offset to CLOCK_MONOTONIC
 * (which `process.hrtime` reads, and which all threads share) is taken once; a reading then costs 40 ns and
 * allocates nothing. (The global of that name is a getter, which costs some 25 ns more.) Two threads' clocks
 * differ by microseconds.
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
  for (let sample = 0; sample < OFFSET_SAMPLES; sample += 1) {
    const before = performance.now();
    const [seconds, nanoseconds] = process.hrtime();
    const after = performance.now();
    const spreadMs = after - before;
    if (spreadMs >= best.spreadMs) continue;
    best = { offsetMs: seconds * 1_000 + nanoseconds / 1e6 - (before + after) / 2, spreadMs };
  }
  return best.offsetMs;
}

/** Timers may run a millisecond early: the tick that one was for must not count as the next. */
const EARLY_MS_MAX = 5;

/**
 * Milliseconds from `nowMs` to the next multiple of `periodMs`; at most 5 ms more than the period. Timers of
 * one thread that use it fire together, so a thread at rest wakes once for all of them. Each wake costs up to
 * 0.1 ms of CPU.
 */
export function msToNextTick(nowMs: number, periodMs: number): number {
  const restMs = periodMs - (nowMs % periodMs);
  return restMs > EARLY_MS_MAX ? restMs : restMs + periodMs;
}
