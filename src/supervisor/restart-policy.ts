/** How long to wait before a gateway that ended is started again. Pure but for its clock; supervisor process. */
import type { Clock } from '../core/clock.js';
import type { MonotonicMs } from '../core/units.js';

export interface RestartPauses {
  readonly firstMs: number;
  readonly longestMs: number;
  /** A gateway that served for so long had started well: the pauses begin anew. */
  readonly healthyMs: number;
}

/** The first restart is not noticed by a client that retries; a gateway that cannot start costs one try in ten seconds. */
export const RESTART_PAUSES: RestartPauses = { firstMs: 100, longestMs: 10_000, healthyMs: 60_000 };

export class RestartPolicy {
  readonly #clock: Clock;
  readonly #pauses: RestartPauses;
  #nextMs: number;
  #readySinceMs: MonotonicMs | undefined;

  constructor(clock: Clock, pauses: RestartPauses) {
    this.#clock = clock;
    this.#pauses = pauses;
    this.#nextMs = pauses.firstMs;
  }

  /** The gateway serves. */
  onReady(): void {
    this.#readySinceMs = this.#clock.monotonicMs();
  }

  /** The gateway ended, ready or not. Returns the pause before its next start; each is twice the one before. */
  pauseAfterExitMs(): number {
    const { firstMs, longestMs, healthyMs } = this.#pauses;
    const since = this.#readySinceMs;
    this.#readySinceMs = undefined;
    if (since !== undefined && this.#clock.monotonicMs() - since >= healthyMs) this.#nextMs = firstMs;
    const pauseMs = this.#nextMs;
    this.#nextMs = Math.min(pauseMs * 2, longestMs);
    return pauseMs;
  }
}
