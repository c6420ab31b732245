/**
 * The tries of one call: each upstream once; a model's only upstream again, after a pause, where that repeats no work there. Upstream
 * worker; one plan for a call. No more tries are made once a byte went down, which the session sees to.
 */
import type { Clock } from '../core/clock.js';
import type { AttemptFailure } from './error-mapping.js';
import type { Rest, TakenTarget, TargetChoice } from './target-choice.js';

/** Further tries of an only upstream; their pauses come to 0.3 s at most. */
const REPEATS_MAX = 2;
/** No repeat begins later: who could not connect for seconds would keep the caller for as long once more. */
const REPEAT_WITHIN_MS = 1_000;
/** The first pause at its longest; the second is twice as long. */
const PAUSE_MS = 100;

export class RetryPlan {
  readonly #choice: TargetChoice;
  readonly #clock: Clock;
  readonly #startMs: number;
  readonly #tried: number[] = [];
  #tries = 0;
  #repeats = 0;

  constructor(choice: TargetChoice, clock: Clock) {
    this.#choice = choice;
    this.#clock = clock;
    this.#startMs = clock.monotonicMs();
  }

  /** A place on the next upstream; undefined where all were tried or rest. */
  take(): TakenTarget | undefined {
    const taken = this.#choice.take(this.#tried, this.#tries > 0);
    if (taken === undefined) return undefined;
    this.#tried.push(taken.index);
    this.#tries++;
    return taken;
  }

  /** Places taken so far. */
  get tries(): number {
    return this.#tries;
  }

  /** Since the call came. */
  spentMs(): number {
    return this.#clock.monotonicMs() - this.#startMs;
  }

  rest(): Rest {
    return this.#choice.rest();
  }

  /** How long to pause before the next `take`; undefined where there is no further try. `sent`: a byte had reached the upstream. */
  pauseMs(taken: TakenTarget, failure: AttemptFailure, sent: boolean): number | undefined {
    const spentMs = this.spentMs();
    if (spentMs >= taken.target.totalTimeoutMs) return undefined;
    if (this.#choice.isAnyLeft(this.#tried)) return 0;
    if (this.#choice.targets > 1 || !failure.repeatable || spentMs >= REPEAT_WITHIN_MS) return undefined;
    if (this.#repeats === REPEATS_MAX) return undefined;
    this.#tried.length = 0;
    this.#repeats++;
    // A kept connection that turned out to be closed tells nothing about the upstream.
    if (sent && this.#repeats === 1) return 0;
    // Spread, so that the calls that failed together do not come again together.
    return PAUSE_MS * this.#repeats * (0.5 + Math.random() / 2);
  }
}
