/**
 * What a worker knows of one target of a model: how many attempts are in flight, and until when it cools down
 * (breaker open, or parked for a Retry-After). balancer.ts makes a TargetState for each target and chooses by
 * it; each attempt has a TakenTarget, by which it reports its outcome. Upstream worker.
 *
 * Must hold (test/unit/upstream/balancer.test.ts): each TakenTarget is released, and its first release is its
 * outcome. The breaker of a target that was removed is not published, because another target may have its
 * slot in the metrics. (The end of each attempt is: the count of attempts in flight would stay.) The end of a
 * park, like that of a cooldown, is found out by one call at a time, and that call ends no later park.
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, MonotonicMs } from '../core/units.js';
import type { Log } from '../telemetry/log.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import { Breaker, type BreakerChange, type BreakerPass } from './breaker.js';
import type { AttemptFailure } from './error-mapping.js';
import type { UpstreamTarget } from './target.js';
import type { TakenQuotas } from './upstream-quotas.js';

/**
 * The longest time for which an upstream is parked, because a Retry-After may be a day, or meant for one
 * caller only. If no other upstream is left, one call tries again after `parkMsMax` of the upstream, and all
 * calls follow once that call gets a response.
 */
const PARK_MS_MAX = 60_000;

interface StateDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: UpstreamMetrics;
}

export class TargetState {
  /** Never reused for another target: a call remembers by the index which targets it has tried. */
  readonly index: number;
  readonly #deps: StateDeps;
  readonly #breaker: Breaker;
  #target: UpstreamTarget;
  #isRemoved = false;
  /** Attempts that have not released the target. */
  #inFlight = 0;
  /** Until when the target's Retry-After is obeyed; monotonic ms, as all times here. 0: it is not parked. */
  #parkedUntilMs = 0;
  /** While the target is parked: when one call may try again, if no other upstream is left. */
  #parkProbeAtMs = 0;
  /** The number of the last park. */
  #park = 0;

  constructor(index: number, target: UpstreamTarget, deps: StateDeps) {
    this.index = index;
    this.#target = target;
    this.#deps = deps;
    this.#breaker = new Breaker(target.breakerFailuresMax, (change, cooldownMs) => {
      this.#publishBreaker();
      logChange(deps.log, this.#target, change, cooldownMs);
    });
    this.#publishBreaker();
  }

  get target(): UpstreamTarget {
    return this.#target;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** The load with one call more, so that of two idle targets the one with more weight is taken. */
  get loadWithOneMore(): number {
    return (this.#inFlight + 1) / this.#target.weight;
  }

  /** A reload keeps the upstream (`isSameUpstream`), with other settings. */
  replace(target: UpstreamTarget): void {
    this.#target = target;
    // A slot in the metrics goes by name, which another upstream of the same host may have had before.
    this.#publishBreaker();
  }

  /** A reload has removed the upstream. Attempts that run may still release it. */
  remove(): void {
    this.#isRemoved = true;
  }

  /** Closes the breaker and forgets the Retry-After. */
  reset(): void {
    this.#breaker.reset();
    this.#parkedUntilMs = 0;
  }

  isParked(nowMs: MonotonicMs): boolean {
    return this.#parkedUntilMs > nowMs;
  }

  /** Milliseconds until the target may be called for that account; 0 or less: now. */
  cooldownMs(nowMs: MonotonicMs, account: AccountIndex): number {
    return Math.max(this.#parkedUntilMs - nowMs, this.#breaker.waitMs(nowMs, account));
  }

  /** As `cooldownMs`, if no other upstream is left: shorter, so that some call tries again. */
  lastResortCooldownMs(nowMs: MonotonicMs, account: AccountIndex): number {
    const parkedMs = Math.min(this.#parkedUntilMs, this.#parkProbeAtMs) - nowMs;
    return Math.max(parkedMs, this.#breaker.lastResortWaitMs(nowMs, account), 0);
  }

  /** Takes the target for one attempt, for which one of the two cooldowns is over. */
  take(account: AccountIndex, takenQuotas: TakenQuotas | undefined): TakenTarget {
    return new TakenTarget(this, account, this.#deps, takenQuotas);
  }

  // The next six methods are for TakenTarget alone. `probedPark`: what `beginPark` returned.

  /** An attempt begins. Returns the pass that tells its outcome from those of other states. */
  begin(nowMs: MonotonicMs, account: AccountIndex): BreakerPass {
    this.#inFlight++;
    const pass = this.#breaker.begin(nowMs, account);
    if (this.#breaker.isProbe(pass)) this.#deps.metrics.setBreaker(this.#target.slot, 'half_open');
    return pass;
  }

  /**
   * The number of the park whose end the attempt that begins is to find out; undefined if the target is not
   * parked.
   */
  beginPark(nowMs: MonotonicMs): number | undefined {
    if (!this.isParked(nowMs)) return undefined;
    this.#parkProbeAtMs = nowMs + this.#target.parkMsMax;
    return this.#park;
  }

  recordResponseBegin(pass: BreakerPass, probedPark: number | undefined): void {
    this.#breaker.recordResponseBegin(pass);
    if (probedPark === this.#park) this.#parkedUntilMs = 0;
  }

  recordSuccess(pass: BreakerPass, probedPark: number | undefined, nowMs: MonotonicMs): void {
    this.#breaker.recordSuccess(pass, nowMs);
    if (probedPark === this.#park) this.#parkedUntilMs = 0;
  }

  recordFailure(
    pass: BreakerPass,
    probedPark: number | undefined,
    nowMs: MonotonicMs,
    account: AccountIndex,
    failure: AttemptFailure,
  ): void {
    if (failure.retryAfterSeconds !== undefined) {
      this.#parkFor(failure.retryAfterSeconds * 1_000, nowMs);
      this.#breaker.recordNoOutcome(pass, nowMs);
    } else if (failure.isOurs) this.recordNoOutcome(pass, probedPark, nowMs);
    else this.#breaker.recordFailure(pass, nowMs, account);
  }

  /** The attempt says nothing about the target. If it was the probe, the next attempt probes. */
  recordNoOutcome(pass: BreakerPass, probedPark: number | undefined, nowMs: MonotonicMs): void {
    this.#breaker.recordNoOutcome(pass, nowMs);
    if (probedPark === this.#park) this.#parkProbeAtMs = nowMs;
  }

  /** The attempt is over. */
  release(): void {
    this.#inFlight--;
  }

  /** Obeys a Retry-After. Of several the one that ends last counts. */
  #parkFor(retryAfterMs: number, nowMs: MonotonicMs): void {
    const { parkMsMax } = this.#target;
    if (parkMsMax === 0) return;
    this.#park++;
    this.#parkedUntilMs = Math.max(this.#parkedUntilMs, nowMs + Math.min(PARK_MS_MAX, retryAfterMs));
    this.#parkProbeAtMs = nowMs + parkMsMax;
  }

  #publishBreaker(): void {
    if (this.#isRemoved) return;
    const { isOpen, cooldownEndMs } = this.#breaker;
    this.#deps.metrics.setBreaker(this.#target.slot, isOpen ? 'open' : 'closed', cooldownEndMs);
  }
}

/** A target that was taken for one attempt. Needs a release, of which the first counts, and one `settle`. */
export class TakenTarget {
  readonly target: UpstreamTarget;
  readonly index: number;
  readonly #state: TargetState;
  readonly #account: AccountIndex;
  readonly #deps: StateDeps;
  readonly #pass: BreakerPass;
  /** The park whose end the attempt is to find out; undefined if none. */
  readonly #probedPark: number | undefined;
  readonly #takenQuotas: TakenQuotas | undefined;
  #isReleased = false;

  /** For TargetState.take alone. */
  constructor(
    state: TargetState,
    account: AccountIndex,
    deps: StateDeps,
    takenQuotas: TakenQuotas | undefined,
  ) {
    this.target = state.target;
    this.index = state.index;
    this.#state = state;
    this.#account = account;
    this.#deps = deps;
    this.#takenQuotas = takenQuotas;
    const nowMs = deps.clock.monotonicMs();
    this.#pass = state.begin(nowMs, account);
    this.#probedPark = state.beginPark(nowMs);
  }

  /** The first part of a good response has come. Called once. */
  recordResponseBegin(): void {
    this.#state.recordResponseBegin(this.#pass, this.#probedPark);
  }

  /** Releases a target that responded well, or rejected the request. */
  releaseGood(): void {
    if (!this.#releaseOnce()) return;
    this.#state.recordSuccess(this.#pass, this.#probedPark, this.#deps.clock.monotonicMs());
  }

  releaseFailed(failure: AttemptFailure): void {
    if (!this.#releaseOnce()) return;
    const nowMs = this.#deps.clock.monotonicMs();
    this.#state.recordFailure(this.#pass, this.#probedPark, nowMs, this.#account, failure);
  }

  /** The attempt says nothing about the target. Idempotent, as the other releases are. */
  release(): void {
    if (!this.#releaseOnce()) return;
    this.#state.recordNoOutcome(this.#pass, this.#probedPark, this.#deps.clock.monotonicMs());
  }

  /**
   * Settles the tokens that the attempt used; undefined: perhaps all that the call may use. Must be called
   * for each attempt, or its tokens stay taken. Only the first call counts.
   */
  settle(tokens?: number): void {
    this.#takenQuotas?.settle(tokens);
  }

  /** Returns false if the target was released before. */
  #releaseOnce(): boolean {
    if (this.#isReleased) return false;
    this.#isReleased = true;
    this.#state.release();
    this.#takenQuotas?.giveBackCall();
    this.#deps.metrics.attemptEnded(this.target.slot);
    return true;
  }
}

/** Not rate-limited, because a cooldown takes seconds, so that changes are rare. */
function logChange(log: Log, { name }: UpstreamTarget, change: BreakerChange, cooldownMs: number): void {
  if (change === 'closed') log.info('an upstream answers again and is used again', { subject: name });
  else if (change === 'opened')
    log.warn('an upstream keeps failing and is left alone', { subject: name, restMs: cooldownMs });
  else log.warn('an upstream that was left alone still fails', { subject: name, restMs: cooldownMs });
}
