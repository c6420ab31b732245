/**
 * Decides how long to wait before something that has ended is started again: a gateway process
 * (supervisor/group-member.ts) or an upstream worker (gateway/upstream-workers.ts). Pure, but for its Clock.
 *
 * Must hold: the pause doubles each time, up to the longest one, and is the first one again after a healthy
 * life. So what fails at each start takes little of the machine, and what fails once is back at once.
 */
import type { Clock } from './clock.js';
import type { MonotonicMs } from './units.js';

export interface RestartPauses {
  readonly firstMs: number;
  readonly longestMs: number;
  /** A life is healthy if it has served for so long. */
  readonly healthyMs: number;
}

export class RestartPolicy {
  readonly #clock: Clock;
  readonly #pauses: RestartPauses;
  #nextPauseMs: number;
  /** Undefined while nothing serves. */
  #readySinceMs: MonotonicMs | undefined;

  constructor(clock: Clock, pauses: RestartPauses) {
    this.#clock = clock;
    this.#pauses = pauses;
    this.#nextPauseMs = pauses.firstMs;
  }

  onReady(): void {
    this.#readySinceMs = this.#clock.monotonicMs();
  }

  /** Call it once for each end, whether it was ready or not. Returns the pause in milliseconds. */
  pauseAfterExitMs(): number {
    const { firstMs, longestMs, healthyMs } = this.#pauses;
    const readySinceMs = this.#readySinceMs;
    this.#readySinceMs = undefined;
    if (readySinceMs !== undefined && this.#clock.monotonicMs() - readySinceMs >= healthyMs)
      this.#nextPauseMs = firstMs;
    const pauseMs = this.#nextPauseMs;
    this.#nextPauseMs = Math.min(pauseMs * 2, longestMs);
    return pauseMs;
  }
}
