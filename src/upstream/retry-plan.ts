/**
 * The attempts of one call on the upstreams of its model: each upstream once, but for repeats. If there is no
 * other upstream, or all others cool down or are at their limits, the same upstream is tried again after a
 * pause, provided that the repeat does no work twice (retry with backoff and jitter). Only then does the call
 * wait for an upstream that is at its limits. call-models.ts makes a RetryPlan for each model of a call.
 * Upstream worker.
 *
 * Must hold: chat-session.ts asks for no further attempt after a byte for the client
 * (test/unit/upstream/chat-session-failover.test.ts). Only a `repeatable` failure is followed by an attempt
 * on the same upstream (test/unit/upstream/retry-plan.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, MonotonicMs } from '../core/units.js';
import type { AttemptFailure } from './error-mapping.js';
import type { TargetQuotas } from './target.js';
import type { TakeBy } from './upstream-quotas.js';
import type { Cooldown, NoRoom, Balancer } from './balancer.js';
import type { TakenTarget } from './target-state.js';

/** Further attempts on the same upstream (repeats); their pauses add up to 0.3 s at most. */
const REPEATS_MAX = 2;
/**
 * Once so much time has gone since the first attempt began, the same upstream is not tried again: a caller
 * that has waited seconds for a connection would wait as long again. A wait for room before does not count.
 */
const REPEAT_WITHIN_MS = 1_000;
/** The longest first pause. The longest second pause is twice as long. */
const FIRST_PAUSE_MS_MAX = 100;

export class RetryPlan {
  readonly #balancer: Balancer;
  readonly #account: AccountIndex;
  readonly #clock: Clock;
  readonly #tokensOf: () => number;
  #tokens: number | undefined;
  readonly #startMs: MonotonicMs;
  /** When the first attempt began, which the call may have waited for; until then as `#startMs`. */
  #firstAttemptMs: MonotonicMs;
  #attemptStartMs: MonotonicMs;
  /**
   * Indices of the targets that were tried. A repeat clears the list, so that its target is taken again: one
   * that has cooled down meanwhile may come first. The balancer reads the list during a call and keeps none.
   */
  readonly #triedIndices: number[] = [];
  #attempts = 0;
  #repeats = 0;

  /** `tokensOf`: the most tokens that the call may use; called only if an upstream limits tokens. */
  constructor(balancer: Balancer, account: AccountIndex, clock: Clock, tokensOf = () => 0) {
    this.#balancer = balancer;
    this.#account = account;
    this.#clock = clock;
    this.#tokensOf = tokensOf;
    this.#startMs = this.#firstAttemptMs = this.#attemptStartMs = clock.monotonicMs();
  }

  /**
   * Takes the next upstream; undefined if all were tried, cool down or are at their limits. `by` is `queue`
   * for a call that the queue serves (quota-queue.ts). The caller must release what it gets (TakenTarget).
   */
  take(by: TakeBy = 'call'): TakenTarget | undefined {
    const attempt = this.#attempts > 0 ? 'further' : 'first';
    const taken = this.#balancer.take(this.#triedIndices, this.#account, this.tokens, attempt, by);
    if (taken === undefined) return undefined;
    // The first attempt of a call that has not waited follows at once, so the clock is not read again.
    const isAtOnce = attempt === 'first' && by === 'call';
    this.#attemptStartMs = isAtOnce ? this.#startMs : this.#clock.monotonicMs();
    if (attempt === 'first') this.#firstAttemptMs = this.#attemptStartMs;
    this.#triedIndices.push(taken.index);
    this.#attempts++;
    return taken;
  }

  /** As in Balancer, which says when to ask. */
  noRoom(): NoRoom | undefined {
    return this.#balancer.noRoom(this.#triedIndices, this.#account, this.tokens);
  }

  /** The limits that the call waits for; none if it need not wait. Cheap: the queue asks at each sweep. */
  limits(): readonly TargetQuotas[] {
    return this.#balancer.limitsOf(this.#triedIndices, this.#account, this.tokens);
  }

  /** The most tokens that the call may use; 0 if no upstream limits tokens. */
  get tokens(): number {
    return (this.#tokens ??= this.#balancer.limitsTokens ? this.#tokensOf() : undefined) ?? 0;
  }

  /** The most tokens that any upstream allows a call, if this call may use more; else undefined. */
  get tokensBeyond(): number | undefined {
    const { tokensMax } = this.#balancer;
    return this.tokens > tokensMax ? tokensMax : undefined;
  }

  get attempts(): number {
    return this.#attempts;
  }

  get attemptStartMs(): MonotonicMs {
    return this.#attemptStartMs;
  }

  /** Whether the call has tried all upstreams of the model. */
  get hasTriedAll(): boolean {
    return this.#triedIndices.length >= this.#balancer.targetCount;
  }

  /** Milliseconds since the model got the call. */
  spentMs(): number {
    return this.#clock.monotonicMs() - this.#startMs;
  }

  cooldown(): Cooldown {
    return this.#balancer.cooldown(this.#account);
  }

  /**
   * Plans the attempt after a failed one, which the caller has released. Returns for how many milliseconds to
   * pause before `take`, 0 also if `take` may find no room, so that the call waits for it; undefined if there
   * is no further attempt. Call it once for each failure, because it counts repeats and lets `take`
   * choose the same upstream again. `wasSent`: a byte may have reached the upstream.
   */
  planPauseMs(taken: TakenTarget, failure: AttemptFailure, wasSent: boolean): number | undefined {
    const spentMs = this.spentMs();
    if (spentMs >= taken.target.totalTimeoutMs) return undefined;
    if (this.#balancer.isAnyLeft(this.#triedIndices, this.#account, this.tokens)) return 0;
    // If none of the others was tried, the same upstream is tried again, as if it were alone.
    const attemptsMs = this.#startMs + spentMs - this.#firstAttemptMs;
    const pauseMs = this.#planRepeatMs(taken, failure, wasSent, attemptsMs);
    if (pauseMs !== undefined) return pauseMs;
    // After 0 the next `take` returns undefined, and the call waits until an upstream is below its limits.
    return this.noRoom() === undefined ? undefined : 0;
  }

  /** As `planPauseMs`, before the same upstream is tried once more; undefined if that is not allowed. */
  #planRepeatMs(
    taken: TakenTarget,
    failure: AttemptFailure,
    wasSent: boolean,
    attemptsMs: number,
  ): number | undefined {
    const hasTriedOthers = this.#triedIndices.some((index) => index !== taken.index);
    if (hasTriedOthers || !failure.repeatable || attemptsMs >= REPEAT_WITHIN_MS) return undefined;
    if (this.#repeats === REPEATS_MAX) return undefined;
    this.#triedIndices.length = 0;
    this.#repeats++;
    // Sent, yet repeatable: the upstream had closed the kept connection, so a pause would gain nothing.
    if (wasSent && this.#repeats === 1) return 0;
    // Random, so that calls that failed together do not come together.
    return FIRST_PAUSE_MS_MAX * this.#repeats * (0.5 + Math.random() / 2);
  }
}
