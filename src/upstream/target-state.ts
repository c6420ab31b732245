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
 * caller. If no other is left, one call tries again after `parkMsMax`, and a response lets all follow.
 */
const PARK_MS_MAX = 60_000;

interface StateDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: UpstreamMetrics;
}

/** The park of a target: while it lasts, the target gets no calls, because its Retry-After is obeyed. */
class Park {
  /** `parkMsMax` of the target. 0: it is never parked. */
  msMax = 0;
  /** Monotonic, as all times here. 0: the target is not parked. */
  #endMs = 0;
  /** When one call may try again, if no other upstream is left. */
  #probeAtMs = 0;
  /** The number of the last park. */
  #number = 0;

  waitMs(nowMs: MonotonicMs): number {
    return this.#endMs - nowMs;
  }

  lastResortWaitMs(nowMs: MonotonicMs): number {
    return Math.min(this.#endMs, this.#probeAtMs) - nowMs;
  }

  /** Parks the target. Of several Retry-Afters the one that ends last counts. */
  begin(retryAfterMs: number, nowMs: MonotonicMs): void {
    if (this.msMax === 0) return;
    this.#number++;
    this.#endMs = Math.max(this.#endMs, nowMs + Math.min(PARK_MS_MAX, retryAfterMs));
    this.#probeAtMs = nowMs + this.msMax;
  }

  /** An attempt begins. Returns the park whose end it is to find out, for the next two; undefined if none. */
  probe(nowMs: MonotonicMs): number | undefined {
    if (this.waitMs(nowMs) <= 0) return undefined;
    this.#probeAtMs = nowMs + this.msMax;
    return this.#number;
  }

  /** The attempt got a good response. */
  endIf(probed: number | undefined): void {
    if (probed === this.#number) this.#endMs = 0;
  }

  /** The attempt says nothing about the target, so the next one probes. */
  probeAgainIf(probed: number | undefined, nowMs: MonotonicMs): void {
    if (probed === this.#number) this.#probeAtMs = nowMs;
  }

  /** Forgets the Retry-After. */
  clear(): void {
    this.#endMs = 0;
  }
}

/** What a TargetState shares with the attempts on its target. */
interface Shared extends StateDeps {
  readonly breaker: Breaker;
  readonly park: Park;
  /** Attempts that have not released the target. */
  inFlight: number;
}

export class TargetState {
  /** Never reused for another target: a call remembers by the index which targets it has tried. */
  readonly index: number;
  readonly #shared: Shared;
  #target: UpstreamTarget;
  #isRemoved = false;

  constructor(index: number, target: UpstreamTarget, deps: StateDeps) {
    const breaker = new Breaker(target.breakerFailuresMax, (change, cooldownMs) => {
      this.#publishBreaker();
      logChange(deps.log, this.#target, change, cooldownMs);
    });
    this.index = index;
    this.#shared = { ...deps, breaker, park: new Park(), inFlight: 0 };
    this.#target = target;
    this.replace(target);
  }

  get target(): UpstreamTarget {
    return this.#target;
  }

  get inFlight(): number {
    return this.#shared.inFlight;
  }

  /** The load with one call more, so that of two idle targets the one with more weight is taken. */
  get loadWithOneMore(): number {
    return (this.inFlight + 1) / this.#target.weight;
  }

  /** A reload keeps the upstream (`isSameUpstream`), with other settings. */
  replace(target: UpstreamTarget): void {
    this.#target = target;
    this.#shared.park.msMax = target.parkMsMax;
    // A slot in the metrics goes by name, which another upstream of the same host may have had before.
    this.#publishBreaker();
  }

  /** A reload has removed the upstream. Attempts that run may still release it. */
  remove(): void {
    this.#isRemoved = true;
  }

  /** Closes the breaker and forgets the Retry-After. */
  reset(): void {
    this.#shared.breaker.reset();
    this.#shared.park.clear();
  }

  isParked(nowMs: MonotonicMs): boolean {
    return this.#shared.park.waitMs(nowMs) > 0;
  }

  /** Milliseconds until the target may be called for that account; 0 or less: now. */
  cooldownMs(nowMs: MonotonicMs, account: AccountIndex): number {
    const { breaker, park } = this.#shared;
    return Math.max(park.waitMs(nowMs), breaker.waitMs(nowMs, account));
  }

  /** As `cooldownMs`, if no other upstream is left: shorter, so that some call tries again. */
  lastResortCooldownMs(nowMs: MonotonicMs, account: AccountIndex): number {
    const { breaker, park } = this.#shared;
    return Math.max(park.lastResortWaitMs(nowMs), breaker.lastResortWaitMs(nowMs, account));
  }

  /** Takes the target for one attempt, for which one of the two cooldowns is over. */
  take(account: AccountIndex, takenQuotas: TakenQuotas | undefined): TakenTarget {
    return new TakenTarget(this, this.#shared, account, takenQuotas);
  }

  #publishBreaker(): void {
    if (this.#isRemoved) return;
    const { breaker, metrics } = this.#shared;
    const { isOpen, cooldownEndMs } = breaker;
    metrics.setBreaker(this.#target.slot, isOpen ? 'open' : 'closed', cooldownEndMs);
  }
}

/** A target that was taken for one attempt. Needs a release, of which the first counts, and one `settle`. */
export class TakenTarget {
  readonly target: UpstreamTarget;
  readonly index: number;
  readonly #shared: Shared;
  readonly #account: AccountIndex;
  readonly #pass: BreakerPass;
  /** What `probe` of the Park has returned. */
  readonly #probedPark: number | undefined;
  readonly #takenQuotas: TakenQuotas | undefined;
  #isReleased = false;

  constructor(
    { target, index }: TargetState,
    shared: Shared,
    account: AccountIndex,
    takenQuotas: TakenQuotas | undefined,
  ) {
    const { breaker, park, clock, metrics } = shared;
    this.target = target;
    this.index = index;
    this.#shared = shared;
    this.#account = account;
    this.#takenQuotas = takenQuotas;
    const nowMs = clock.monotonicMs();
    shared.inFlight++;
    this.#pass = breaker.begin(nowMs, account);
    if (breaker.isProbe(this.#pass)) metrics.setBreaker(target.slot, 'half_open');
    this.#probedPark = park.probe(nowMs);
  }

  /** The first part of a good response has come. Called once. */
  recordResponseBegin(): void {
    this.#shared.breaker.recordResponseBegin(this.#pass);
    this.#shared.park.endIf(this.#probedPark);
  }

  /** Releases a target that responded well, or rejected the request. */
  releaseGood(): void {
    if (!this.#releaseOnce()) return;
    this.#shared.breaker.recordSuccess(this.#pass, this.#nowMs());
    this.#shared.park.endIf(this.#probedPark);
  }

  releaseFailed({ retryAfterSeconds, isOurs }: AttemptFailure): void {
    if (isOurs && retryAfterSeconds === undefined) {
      this.release();
      return;
    }
    if (!this.#releaseOnce()) return;
    const { breaker, park } = this.#shared;
    const nowMs = this.#nowMs();
    if (retryAfterSeconds === undefined) breaker.recordFailure(this.#pass, nowMs, this.#account);
    else {
      park.begin(retryAfterSeconds * 1_000, nowMs);
      breaker.recordNoOutcome(this.#pass, nowMs);
    }
  }

  /** The attempt says nothing about the target. Idempotent, as the other releases are. */
  release(): void {
    if (!this.#releaseOnce()) return;
    const nowMs = this.#nowMs();
    this.#shared.breaker.recordNoOutcome(this.#pass, nowMs);
    this.#shared.park.probeAgainIf(this.#probedPark, nowMs);
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
    this.#shared.inFlight--;
    this.#takenQuotas?.giveBackCall();
    this.#shared.metrics.attemptEnded(this.target.slot);
    return true;
  }

  #nowMs(): MonotonicMs {
    return this.#shared.clock.monotonicMs();
  }
}

/** Not rate-limited, because a cooldown takes seconds, so that changes are rare. */
function logChange(log: Log, { name }: UpstreamTarget, change: BreakerChange, cooldownMs: number): void {
  if (change === 'closed') log.info('an upstream answers again and is used again', { subject: name });
  else if (change === 'opened')
    log.warn('an upstream keeps failing and is left alone', { subject: name, restMs: cooldownMs });
  else log.warn('an upstream that was left alone still fails', { subject: name, restMs: cooldownMs });
}
