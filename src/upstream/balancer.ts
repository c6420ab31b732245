/**
 * The load balancer of a model: it chooses the target for each attempt of a call. Candidates are the targets
 * that the call has not tried, that do not cool down (breaker open, or parked for a Retry-After), and that
 * have room (are below their limits). The balancer takes the best priority; of equals, the fewest calls in
 * flight for the weight (weighted least connections). It counts the calls of its own worker; all workers
 * share the limits. route-table.ts has a Balancer for each model, retry-plan.ts calls it. Upstream worker.
 *
 * Must hold: each TakenTarget is released, and its first release is its outcome. If no other upstream is
 * left, an upstream that cools down is tried again within seconds, however long it was down
 * (test/unit/upstream/balancer.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { UpstreamQuotaName } from '../core/quotas.js';
import type { AccountIndex, MonotonicMs } from '../core/units.js';
import type { Log } from '../telemetry/log.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import { Breaker, type BreakerChange, type BreakerPass } from './breaker.js';
import type { AttemptFailure } from './error-mapping.js';
import { isSameUpstream, type TargetQuotas, type UpstreamTarget } from './target.js';
import type { TakeBy, TakenQuotas, UpstreamQuotas } from './upstream-quotas.js';

/**
 * The longest time for which an upstream is parked, because a Retry-After may be a day, or meant for one
 * caller only. If no other upstream is left, one call tries again after `parkMsMax` of the upstream, and all
 * calls follow once that call gets a response.
 */
const PARK_MS_MAX = 60_000;

/**
 * The state of one target. The Balancer makes it, and changes it at a reload (`target`) and at a reset. The
 * TakenTargets of the target's attempts, also of those that began before a reload, change all but `target`.
 */
interface TargetState {
  /** Never reused for another target: a call remembers by the index which targets it has tried. */
  readonly index: number;
  target: UpstreamTarget;
  readonly breaker: Breaker;
  /** Attempts that have not released the target. */
  inFlight: number;
  /** Until when the target's Retry-After is obeyed; monotonic ms, as all times here. 0: it is not parked. */
  parkedUntilMs: number;
  /** While the target is parked: when one call may try again, if no other upstream is left. */
  parkProbeAtMs: number;
}

/** Why no upstream takes a call now, and how long until one does. */
export interface Cooldown {
  readonly waitMs: number;
  /** In words for the caller. */
  readonly reason: string;
}

/** Why a call must wait: all upstreams that could serve it are at their limits. */
export interface NoRoom {
  /** The limit that the first upstream to have room again has reached. */
  readonly quota: UpstreamQuotaName | undefined;
  /** The slot of the same upstream in the metrics. */
  readonly slot: number;
  /** Milliseconds until that upstream has room, unless another call takes the room; 0: now, or not known. */
  readonly freeInMs: number;
  /** How long a call may wait for one of the upstreams; the longest of their settings. */
  readonly queueMs: number;
  /** The coordinator may grant more to one of the upstreams, or has just done so: its reply is under way. */
  readonly mayBeGranted: boolean;
  /** The coordinator has not said of one of the upstreams that its limit is used up. */
  readonly isUnknown: boolean;
}

/** What the Balancers of a worker share. */
export interface BalancerDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: UpstreamMetrics;
  readonly quotas: UpstreamQuotas;
}

export class Balancer {
  #states: readonly TargetState[] = [];
  #stateCount = 0;
  readonly #deps: BalancerDeps;
  readonly #clock: Clock;
  #limitsTokens = false;

  /** `targets` sorted by priority, best first. */
  constructor(targets: readonly UpstreamTarget[], deps: BalancerDeps) {
    this.#deps = deps;
    this.#clock = deps.clock;
    this.replace(targets);
  }

  /** The next `take` chooses from `targets`, sorted by priority. Upstreams that stay keep their state. */
  replace(targets: readonly UpstreamTarget[]): void {
    invariant(targets.length > 0, 'a model has an upstream');
    this.#limitsTokens = targets.some(({ quotas }) => quotas?.limits.tokensPerMinute !== undefined);
    const earlierStates = [...this.#states];
    this.#states = targets.map((target) => {
      const position = earlierStates.findIndex((state) => isSameUpstream(state.target, target));
      if (position < 0) return this.#newState(target);
      // A list may name an upstream twice: each entry takes over a state of its own.
      const state = earlierStates.splice(position, 1)[0]!;
      state.target = target;
      // A slot in the metrics goes by name, which another upstream of the same host may have had before.
      this.#publishBreaker(state);
      return state;
    });
  }

  #newState(target: UpstreamTarget): TargetState {
    const state: TargetState = {
      index: this.#stateCount++,
      target,
      breaker: new Breaker(target.breakerFailuresMax, (change, cooldownMs) => {
        // If a reload has removed the upstream, another upstream may have its slot by now.
        if (this.#states.includes(state)) this.#publishBreaker(state);
        logChange(this.#deps.log, target, change, cooldownMs);
      }),
      inFlight: 0,
      parkedUntilMs: 0,
      parkProbeAtMs: 0,
    };
    this.#publishBreaker(state);
    return state;
  }

  #publishBreaker({ target, breaker }: TargetState): void {
    this.#deps.metrics.setBreaker(target.slot, breaker.isOpen ? 'open' : 'closed', breaker.cooldownEndMs);
  }

  /** Whether a target limits tokens, so that a call's tokens must be estimated before it is sent. */
  get limitsTokens(): boolean {
    return this.#limitsTokens;
  }

  get targetCount(): number {
    return this.#states.length;
  }

  inFlight(index: number): number {
    return this.#states.find((state) => state.index === index)!.inFlight;
  }

  /**
   * Whether `take` would return a target, or might once the coordinator has replied. Takes nothing, so other
   * calls may take the target first. O(targets), with a look at the limits of each full target.
   */
  isAnyLeft(tried: readonly number[], account: AccountIndex, tokens = 0): boolean {
    const nowMs = this.#clock.monotonicMs();
    for (let skipped = tried; ;) {
      const best = this.#best(skipped, nowMs, account);
      if (best === undefined) return false;
      const { quotas } = best.target;
      if (quotas === undefined || !this.#deps.quotas.isFull(quotas, tokens)) return true;
      skipped = [...skipped, best.index];
    }
  }

  /**
   * Takes the best target whose index is not in `tried`; undefined if all were tried, cool down, or are at
   * their limits. `tokens`: the most that the call may use. `attempt`: for the metrics. `by`: as in
   * UpstreamQuotas.take. O(targets).
   */
  take(
    tried: readonly number[],
    account: AccountIndex,
    tokens = 0,
    attempt: 'first' | 'further' = 'first',
    by: TakeBy = 'call',
  ): TakenTarget | undefined {
    const nowMs = this.#clock.monotonicMs();
    for (let skipped = tried; ;) {
      const best = this.#best(skipped, nowMs, account);
      if (best === undefined) return undefined;
      const { quotas } = best.target;
      const takenQuotas = quotas && this.#deps.quotas.take(quotas, tokens, by);
      if (quotas !== undefined && takenQuotas === undefined) {
        skipped = [...skipped, best.index];
        continue;
      }
      best.inFlight++;
      this.#deps.metrics.attemptBegun(best.target.slot, attempt === 'further');
      return new TakenTarget(best, account, this.#deps, takenQuotas);
    }
  }

  /**
   * Why the call must wait. To be called after `take` returned undefined, or if `isAnyLeft` is false.
   * Undefined if no target could serve the call even below its limits.
   */
  noRoom(tried: readonly number[], account: AccountIndex, tokens: number): NoRoom | undefined {
    const nowMs = this.#clock.monotonicMs();
    // Visits all upstreams that do not cool down, the best first.
    let soonest: { quota: UpstreamQuotaName | undefined; slot: number; freeInMs: number } | undefined;
    let queueMs = 0;
    let mayBeGranted = false;
    let isUnknown = false;
    for (let skipped = tried; ;) {
      const state = this.#best(skipped, nowMs, account);
      if (state === undefined) break;
      skipped = [...skipped, state.index];
      const { slot, quotas } = state.target;
      const shortage = quotas && this.#deps.quotas.shortageOf(quotas, tokens);
      const freeInMs = shortage?.freeInMs ?? 0;
      if (freeInMs === Infinity) continue;
      if (soonest === undefined || freeInMs < soonest.freeInMs)
        soonest = { quota: shortage?.quota, slot, freeInMs };
      queueMs = Math.max(queueMs, quotas?.queueMs ?? 0);
      mayBeGranted ||= shortage?.mayBeGranted === true;
      isUnknown ||= shortage?.isUnknown === true;
    }
    return soonest && { ...soonest, queueMs, mayBeGranted, isUnknown };
  }

  /**
   * The limits that keep the call out: those of the upstreams that could serve it now if there were no
   * limits. Empty if one of these upstreams has none. Reads no counter, because the queue asks for each call
   * that waits. O(targets).
   */
  limitsOf(tried: readonly number[], account: AccountIndex, tokens: number): TargetQuotas[] {
    const nowMs = this.#clock.monotonicMs();
    const isAnyReady = this.#states.some((state) => cooldownMsOf(state, nowMs, account) <= 0);
    const waitMsOf = isAnyReady ? cooldownMsOf : lastResortCooldownMsOf;
    const limits: TargetQuotas[] = [];
    for (const state of this.#states) {
      if (tried.includes(state.index) || waitMsOf(state, nowMs, account) > 0) continue;
      const { quotas } = state.target;
      if (quotas === undefined) return [];
      if (tokens <= (quotas.limits.tokensPerMinute ?? Infinity)) limits.push(quotas);
    }
    return limits;
  }

  /** The most tokens that any target allows a call; Infinity if one has no such limit. */
  get tokensMax(): number {
    return Math.max(...this.#states.map(({ target }) => target.quotas?.limits.tokensPerMinute ?? Infinity));
  }

  /** The shortest cooldown of the targets, for a call of that account. */
  cooldown(account: AccountIndex): Cooldown {
    const nowMs = this.#clock.monotonicMs();
    const cooldowns = this.#states.map((state) => ({
      waitMs: lastResortCooldownMsOf(state, nowMs, account),
      reason: state.parkedUntilMs > nowMs ? 'it asked for a pause' : 'it failed repeatedly',
    }));
    return cooldowns.reduce((shortest, cooldown) =>
      cooldown.waitMs < shortest.waitMs ? cooldown : shortest,
    );
  }

  /** Closes the breakers of the targets with that slot, or of all, and forgets their Retry-After. */
  reset(slot: number | undefined): void {
    for (const state of this.#states) {
      if (slot !== undefined && state.target.slot !== slot) continue;
      state.breaker.reset();
      state.parkedUntilMs = 0;
    }
  }

  /** The best target that is not in `skipped` and does not cool down, even if it is at its limits. */
  #best(skipped: readonly number[], nowMs: MonotonicMs, account: AccountIndex): TargetState | undefined {
    let best: TargetState | undefined;
    let isAnyReady = false;
    for (const state of this.#states) {
      if (cooldownMsOf(state, nowMs, account) > 0) continue;
      isAnyReady = true;
      if (skipped.includes(state.index)) continue;
      if (best === undefined) best = state;
      else if (state.target.priority !== best.target.priority) break;
      else if (loadWithOneMore(state) < loadWithOneMore(best)) best = state;
    }
    if (isAnyReady) return best;
    // All targets cool down: then the shorter cooldowns of the last resort count.
    return this.#states.find(
      (state) => !skipped.includes(state.index) && lastResortCooldownMsOf(state, nowMs, account) === 0,
    );
  }
}

/** A target that was taken for one attempt. Needs a release, of which the first counts, and one `settle`. */
export class TakenTarget {
  readonly target: UpstreamTarget;
  readonly index: number;
  readonly #state: TargetState;
  readonly #account: AccountIndex;
  readonly #deps: BalancerDeps;
  readonly #pass: BreakerPass;
  /** The attempt is to find out whether a parked target can be called again. */
  readonly #isParkProbe: boolean;
  readonly #takenQuotas: TakenQuotas | undefined;
  #isReleased = false;

  constructor(
    state: TargetState,
    account: AccountIndex,
    deps: BalancerDeps,
    takenQuotas: TakenQuotas | undefined,
  ) {
    this.target = state.target;
    this.index = state.index;
    this.#state = state;
    this.#account = account;
    this.#deps = deps;
    this.#takenQuotas = takenQuotas;
    const nowMs = deps.clock.monotonicMs();
    this.#pass = state.breaker.begin(nowMs, account);
    if (state.breaker.isProbe(this.#pass)) deps.metrics.setBreaker(state.target.slot, 'half_open');
    this.#isParkProbe = state.parkedUntilMs > nowMs;
    if (this.#isParkProbe) state.parkProbeAtMs = nowMs + state.target.parkMsMax;
  }

  /** The first part of a good response has come. Called once. */
  recordResponseBegin(): void {
    this.#state.breaker.recordResponseBegin(this.#pass);
    if (this.#isParkProbe) this.#state.parkedUntilMs = 0;
  }

  /** Releases a target that responded well, or rejected the request. */
  releaseGood(): void {
    if (!this.#releaseOnce()) return;
    this.#state.breaker.recordSuccess(this.#pass, this.#deps.clock.monotonicMs());
    if (this.#isParkProbe) this.#state.parkedUntilMs = 0;
  }

  releaseFailed(failure: AttemptFailure): void {
    if (!this.#releaseOnce()) return;
    const nowMs = this.#deps.clock.monotonicMs();
    const { breaker } = this.#state;
    if (failure.retryAfterSeconds !== undefined) {
      this.#park(failure.retryAfterSeconds * 1_000, nowMs);
      breaker.recordNoOutcome(this.#pass, nowMs);
    } else if (failure.isOurs) this.#endUndecided(nowMs);
    else breaker.recordFailure(this.#pass, nowMs, this.#account);
  }

  /** The attempt says nothing about the target. Idempotent, as the other releases are. */
  release(): void {
    if (this.#releaseOnce()) this.#endUndecided(this.#deps.clock.monotonicMs());
  }

  /**
   * Settles the tokens that the attempt used; undefined: perhaps all that the call may use. Must be called
   * for each attempt, or its tokens stay taken. Only the first call counts.
   */
  settle(tokens?: number): void {
    this.#takenQuotas?.settle(tokens);
  }

  /** Obeys a Retry-After. Of several the one that ends last counts. */
  #park(retryAfterMs: number, nowMs: MonotonicMs): void {
    const state = this.#state;
    const { parkMsMax } = state.target;
    if (parkMsMax === 0) return;
    state.parkedUntilMs = Math.max(state.parkedUntilMs, nowMs + Math.min(PARK_MS_MAX, retryAfterMs));
    state.parkProbeAtMs = nowMs + parkMsMax;
  }

  /** The attempt says nothing about the target. If it was the probe, the next attempt probes. */
  #endUndecided(nowMs: MonotonicMs): void {
    this.#state.breaker.recordNoOutcome(this.#pass, nowMs);
    if (this.#isParkProbe) this.#state.parkProbeAtMs = nowMs;
  }

  /** Returns false if the target was released before. */
  #releaseOnce(): boolean {
    if (this.#isReleased) return false;
    this.#isReleased = true;
    this.#state.inFlight--;
    this.#takenQuotas?.giveBackCall();
    this.#deps.metrics.attemptEnded(this.target.slot);
    return true;
  }
}

/** The load with the new call, so that of two idle targets the one with more weight is taken. */
function loadWithOneMore(state: TargetState): number {
  return (state.inFlight + 1) / state.target.weight;
}

/** Milliseconds until the target may be called for that account; 0 or less: now. */
function cooldownMsOf(state: TargetState, nowMs: MonotonicMs, account: AccountIndex): number {
  return Math.max(state.parkedUntilMs - nowMs, state.breaker.waitMs(nowMs, account));
}

/** As `cooldownMsOf`, if no other upstream is left: shorter, so that some call tries again. */
function lastResortCooldownMsOf(state: TargetState, nowMs: MonotonicMs, account: AccountIndex): number {
  const parkedMs = Math.min(state.parkedUntilMs, state.parkProbeAtMs) - nowMs;
  return Math.max(parkedMs, state.breaker.lastResortWaitMs(nowMs, account), 0);
}

/** Not rate-limited, because a cooldown takes seconds, so that changes are rare. */
function logChange(log: Log, { name }: UpstreamTarget, change: BreakerChange, cooldownMs: number): void {
  if (change === 'closed') log.info('an upstream answers again and is used again', { subject: name });
  else if (change === 'opened')
    log.warn('an upstream keeps failing and is left alone', { subject: name, restMs: cooldownMs });
  else log.warn('an upstream that was left alone still fails', { subject: name, restMs: cooldownMs });
}
