/**
 * The load balancer of a model: it chooses the target for each attempt of a call. Candidates are the targets
 * that the call has not tried, that do not cool down (target-state.ts), and that have room (are below their
 * limits). The balancer takes the best priority; of equals, the fewest calls in
 * flight for the weight (weighted least connections). It counts the calls of its own worker; all workers
 * share the limits. route-table.ts has a Balancer for each model, retry-plan.ts calls it. Upstream worker.
 *
 * Must hold (test/unit/upstream/balancer.test.ts): who takes a target releases it (TakenTarget). If no other
 * upstream is left, an upstream that cools down is tried again within seconds, however long it was down. (One
 * that the call has tried is left as long as it does not cool down.) The targets are sorted by priority,
 * because `#best` stops at the first of another one.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { UpstreamQuotaName } from '../core/quotas.js';
import type { AccountIndex, MonotonicMs } from '../core/units.js';
import type { Log } from '../telemetry/log.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import { isSameUpstream, type TargetQuotas, type UpstreamTarget } from './target.js';
import { type TakenTarget, TargetState } from './target-state.js';
import type { TakeBy, UpstreamQuotas } from './upstream-quotas.js';

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
    invariant(
      targets.every(({ priority }, at) => at === 0 || priority >= targets[at - 1]!.priority),
      'the targets of a model are sorted by priority',
    );
    this.#limitsTokens = targets.some(({ quotas }) => quotas?.limits.tokensPerMinute !== undefined);
    const earlierStates = [...this.#states];
    this.#states = targets.map((target) => {
      const position = earlierStates.findIndex((state) => isSameUpstream(state.target, target));
      if (position < 0) return new TargetState(this.#stateCount++, target, this.#deps);
      // A list may name an upstream twice: each entry takes over a state of its own.
      const state = earlierStates.splice(position, 1)[0]!;
      state.replace(target);
      return state;
    });
    for (const state of earlierStates) state.remove();
  }

  /** Whether a target limits tokens, so that a call's tokens must be estimated before it is sent. */
  get limitsTokens(): boolean {
    return this.#limitsTokens;
  }

  get targetCount(): number {
    return this.#states.length;
  }

  /** How many calls the target with that index has. For tests: the target must still be there. */
  inFlight(index: number): number {
    return this.#states.find((state) => state.index === index)!.inFlight;
  }

  /**
   * Whether `take` would return a target, or might once the coordinator has replied. Takes nothing, so other
   * calls may take the target first. O(targets), and once more for each that is full.
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
   * UpstreamQuotas.take. O(targets), and once more for each that is full.
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
      this.#deps.metrics.attemptBegun(best.target.slot, attempt === 'further');
      return best.take(account, takenQuotas);
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
   * limits. Empty if limits do not keep it out, because one of these has none, or there is none. Reads no
   * counter, because the queue asks for each call that waits. O(targets).
   */
  limitsOf(tried: readonly number[], account: AccountIndex, tokens: number): TargetQuotas[] {
    const nowMs = this.#clock.monotonicMs();
    const isAnyReady = this.#states.some((state) => state.cooldownMs(nowMs, account) <= 0);
    const limits: TargetQuotas[] = [];
    for (const state of this.#states) {
      if (tried.includes(state.index)) continue;
      const waitMs = isAnyReady
        ? state.cooldownMs(nowMs, account)
        : state.lastResortCooldownMs(nowMs, account);
      if (waitMs > 0) continue;
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
      waitMs: state.lastResortCooldownMs(nowMs, account),
      reason: state.isParked(nowMs) ? 'it asked for a pause' : 'it failed repeatedly',
    }));
    return cooldowns.reduce((shortest, cooldown) =>
      cooldown.waitMs < shortest.waitMs ? cooldown : shortest,
    );
  }

  /** Closes the breakers of the targets with that slot, or of all, and forgets their Retry-After. */
  reset(slot: number | undefined): void {
    for (const state of this.#states) if (slot === undefined || state.target.slot === slot) state.reset();
  }

  /** The best target that is not in `skipped` and does not cool down, even if it is at its limits. */
  #best(skipped: readonly number[], nowMs: MonotonicMs, account: AccountIndex): TargetState | undefined {
    let best: TargetState | undefined;
    let isAnyReady = false;
    for (const state of this.#states) {
      if (state.cooldownMs(nowMs, account) > 0) continue;
      isAnyReady = true;
      if (skipped.includes(state.index)) continue;
      if (best === undefined) best = state;
      else if (state.target.priority !== best.target.priority) break;
      else if (state.loadWithOneMore < best.loadWithOneMore) best = state;
    }
    if (isAnyReady) return best;
    // All targets cool down: then the shorter cooldowns of the last resort count.
    return this.#states.find(
      (state) => !skipped.includes(state.index) && state.lastResortCooldownMs(nowMs, account) === 0,
    );
  }
}
