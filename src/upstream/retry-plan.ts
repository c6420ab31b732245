/**
 * The attempts of one call on the upstreams of its model: each upstream once. An upstream beside which there
 * is no other, or all others rest or are at their limits, is tried again after a pause, if that does no work
 * twice (retry with backoff and jitter). Only then does the call wait for one that is at its limits.
 * call-models.ts makes one for each model of a call. Upstream worker.
 *
 * Must hold: the session makes no further attempt once a byte was sent to the client
 * (test/unit/upstream/target-choice.retry-plan.test.ts, test/unit/upstream/chat-session-failover.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, MonotonicMs } from '../core/units.js';
import type { AttemptFailure } from './error-mapping.js';
import type { TargetQuotas } from './target.js';
import type { Cooldown, NoRoom, TakenTarget, TargetChoice } from './target-choice.js';

/** Further attempts on the same upstream; their pauses add up to 0.3 s at most. */
const REPEATS_MAX = 2;
/**
 * No further attempt begins later: a caller that waited seconds for a connection would wait as long again.
 */
const REPEAT_WITHIN_MS = 1_000;
/** The longest first pause; the second is twice as long. */
const PAUSE_MS = 100;

export class RetryPlan {
  readonly #choice: TargetChoice;
  readonly #account: AccountIndex;
  readonly #clock: Clock;
  readonly #tokensOf: () => number;
  #tokens: number | undefined;
  readonly #startMs: MonotonicMs;
  #triedMs: MonotonicMs;
  readonly #tried: number[] = [];
  #tries = 0;
  #repeats = 0;

  /** `tokensOf` is called if an upstream limits tokens: how many the call may use at most. */
  constructor(choice: TargetChoice, account: AccountIndex, clock: Clock, tokensOf = () => 0) {
    this.#choice = choice;
    this.#account = account;
    this.#clock = clock;
    this.#tokensOf = tokensOf;
    this.#startMs = this.#triedMs = clock.monotonicMs();
  }

  /** Takes the next upstream; undefined if all were tried, cool down or are at their limits. */
  take(queued = false): TakenTarget | undefined {
    const taken = this.#choice.take(this.#tried, this.#account, this.#tries > 0, this.tokens, queued);
    if (taken === undefined) return undefined;
    // The first attempt follows at once.
    this.#triedMs = queued || this.#tries > 0 ? this.#clock.monotonicMs() : this.#startMs;
    this.#tried.push(taken.index);
    this.#tries++;
    return taken;
  }

  /** Call it after `take` returned nothing, or if `isAnyLeft` is false. Undefined if it is not by limits. */
  noRoom(): NoRoom | undefined {
    return this.#choice.noRoom(this.#tried, this.#account, this.tokens);
  }

  /** As TargetChoice.limitsOf. Cheap. */
  limits(): readonly TargetQuotas[] {
    return this.#choice.limitsOf(this.#tried, this.#account, this.tokens);
  }

  /** The most tokens that the call may use; 0 if no upstream limits tokens. */
  get tokens(): number {
    return (this.#tokens ??= this.#choice.limitsTokens ? this.#tokensOf() : undefined) ?? 0;
  }

  /** The most tokens that any upstream allows a call, if this call may use more; else undefined. */
  get tokensBeyond(): number | undefined {
    const { tokensMax } = this.#choice;
    return this.tokens > tokensMax ? tokensMax : undefined;
  }

  /** Attempts so far. */
  get tries(): number {
    return this.#tries;
  }

  /** When the last attempt began. */
  get triedMs(): MonotonicMs {
    return this.#triedMs;
  }

  /** Whether the call has tried all upstreams of the model. */
  get hasTriedAll(): boolean {
    return this.#tried.length >= this.#choice.targets;
  }

  /** Milliseconds since the call came. */
  spentMs(): number {
    return this.#clock.monotonicMs() - this.#startMs;
  }

  rest(): Cooldown {
    return this.#choice.rest(this.#account);
  }

  /**
   * Milliseconds to pause before the next `take`; undefined if there is no further attempt. `sent`: a byte
   * had reached the upstream.
   */
  pauseMs(taken: TakenTarget, failure: AttemptFailure, sent: boolean): number | undefined {
    const spentMs = this.spentMs();
    if (spentMs >= taken.target.totalTimeoutMs) return undefined;
    if (this.#choice.isAnyLeft(this.#tried, this.#account, this.tokens)) return 0;
    // The upstreams that are left rest or are full: such a spare must not take the repeats of one that works.
    const pauseMs = this.#repeatAfterMs(taken, failure, sent, spentMs);
    if (pauseMs !== undefined) return pauseMs;
    // A full one takes the call as soon as it has room.
    return this.noRoom() === undefined ? undefined : 0;
  }

  /** As `pauseMs`, before the same upstream is tried once more; undefined if it is not. */
  #repeatAfterMs(
    taken: TakenTarget,
    failure: AttemptFailure,
    sent: boolean,
    spentMs: number,
  ): number | undefined {
    const hasTriedOthers = this.#tried.some((index) => index !== taken.index);
    if (hasTriedOthers || !failure.repeatable || spentMs >= REPEAT_WITHIN_MS) return undefined;
    if (this.#repeats === REPEATS_MAX) return undefined;
    this.#tried.length = 0;
    this.#repeats++;
    // The upstream had closed the kept connection: no pause is needed.
    if (sent && this.#repeats === 1) return 0;
    // Random, so that calls that failed together do not return together.
    return PAUSE_MS * this.#repeats * (0.5 + Math.random() / 2);
  }
}
