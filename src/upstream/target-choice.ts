/**
 * Which of a model's upstreams takes a call: the best priority that has not been tried and is not resting, in it the one with the
 * least calls in flight for its weight. Upstream worker; one choice for a model, counting the calls of this worker alone.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { Log } from '../telemetry/log.js';
import type { UpstreamMetrics } from '../telemetry/upstream-metrics.js';
import { Breaker, type BreakerChange, type BreakerPass } from './breaker.js';
import type { AttemptFailure } from './error-mapping.js';
import { isSameUpstream, type UpstreamTarget } from './target.js';

/** An upstream's Retry-After is kept to for so long; it is asked again then, for it may have spoken of an hour or a day. */
const PARK_SECONDS_MAX = 60;

/** What is known of one upstream. */
interface TargetState {
  /** Of all that the choice ever had; a call remembers by it what it has tried. */
  readonly index: number;
  target: UpstreamTarget;
  readonly breaker: Breaker;
  inFlight: number;
  parkedUntilMs: number;
}

/** Why no upstream takes a call, and how long not. */
export interface Rest {
  readonly restMs: number;
  /** For the caller. */
  readonly reason: string;
}

export class TargetChoice {
  #states: readonly TargetState[] = [];
  #stateCount = 0;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #metrics: UpstreamMetrics;

  /** `targets` sorted by priority, best first. */
  constructor(targets: readonly UpstreamTarget[], clock: Clock, log: Log, metrics: UpstreamMetrics) {
    this.#clock = clock;
    this.#log = log;
    this.#metrics = metrics;
    this.replace(targets);
  }

  /** From the next `take` on these are chosen from, sorted as before; what is known of those that stay is kept. */
  replace(targets: readonly UpstreamTarget[]): void {
    invariant(targets.length > 0, 'a model has an upstream');
    const known = [...this.#states];
    this.#states = targets.map((target) => {
      const at = known.findIndex((state) => isSameUpstream(state.target, target));
      if (at < 0) return this.#newState(target);
      // A list may name one upstream twice: each takes over one state.
      const [state] = known.splice(at, 1);
      state!.target = target;
      return state!;
    });
  }

  #newState(target: UpstreamTarget): TargetState {
    const state: TargetState = {
      index: this.#stateCount++,
      target,
      breaker: new Breaker(target.breakerFailuresMax, (change, restMs) => {
        this.#metrics.setBreaker(state.target.slot, change === 'closed' ? 'closed' : 'open');
        noteChange(this.#log, target, change, restMs);
      }),
      inFlight: 0,
      parkedUntilMs: 0,
    };
    this.#metrics.setBreaker(target.slot, 'closed');
    return state;
  }

  get targets(): number {
    return this.#states.length;
  }

  /** Calls in flight on the target of that index. */
  inFlight(index: number): number {
    return this.#states.find((state) => state.index === index)!.inFlight;
  }

  /** Whether `take` would give a target. O(targets). */
  isAnyLeft(tried: readonly number[]): boolean {
    const nowMs = this.#clock.monotonicMs();
    return this.#states.some((state) => !tried.includes(state.index) && restMsOf(state, nowMs) === 0);
  }

  /**
   * Takes a place on the best target whose index is not in `tried`; undefined where all were tried or rest. `retry`: an earlier
   * attempt of the call has failed. O(targets).
   */
  take(tried: readonly number[], retry = false): TakenTarget | undefined {
    const nowMs = this.#clock.monotonicMs();
    let best: TargetState | undefined;
    for (const state of this.#states) {
      if (tried.includes(state.index) || restMsOf(state, nowMs) > 0) continue;
      if (best === undefined) best = state;
      else if (state.target.priority !== best.target.priority) break;
      else if (loadWithOneMore(state) < loadWithOneMore(best)) best = state;
    }
    if (best === undefined) return undefined;
    best.inFlight++;
    this.#metrics.attemptBegun(best.target.slot, retry);
    return new TakenTarget(best, this.#clock, this.#metrics);
  }

  /** The shortest rest of all targets. */
  rest(): Rest {
    const nowMs = this.#clock.monotonicMs();
    const rests = this.#states.map((state) => ({
      restMs: restMsOf(state, nowMs),
      reason: state.parkedUntilMs > nowMs ? 'it asked for a pause' : 'it failed repeatedly',
    }));
    return rests.reduce((least, rest) => (rest.restMs < least.restMs ? rest : least));
  }
}

/** A place on a target; given back once, with what became of the call. */
export class TakenTarget {
  readonly target: UpstreamTarget;
  readonly index: number;
  readonly #state: TargetState;
  readonly #clock: Clock;
  readonly #metrics: UpstreamMetrics;
  readonly #pass: BreakerPass;
  #released = false;

  constructor(state: TargetState, clock: Clock, metrics: UpstreamMetrics) {
    this.target = state.target;
    this.index = state.index;
    this.#state = state;
    this.#clock = clock;
    this.#metrics = metrics;
    if (state.breaker.isOpen) metrics.setBreaker(state.target.slot, 'half_open');
    this.#pass = state.breaker.begin(clock.monotonicMs());
  }

  /** The first part of a good answer is there. */
  answered(): void {
    this.#state.breaker.answered(this.#pass);
  }

  /** The target answered, if only that the caller was wrong. */
  releaseGood(): void {
    if (this.#give()) this.#state.breaker.succeeded(this.#pass, this.#clock.monotonicMs());
  }

  releaseFailed(failure: AttemptFailure): void {
    if (!this.#give()) return;
    const nowMs = this.#clock.monotonicMs();
    const { breaker } = this.#state;
    if (failure.retryAfterSeconds !== undefined) {
      const parkMs = Math.min(PARK_SECONDS_MAX, failure.retryAfterSeconds) * 1_000;
      this.#state.parkedUntilMs = Math.max(this.#state.parkedUntilMs, nowMs + parkMs);
      breaker.ended(this.#pass, nowMs);
    } else if (failure.ours) breaker.ended(this.#pass, nowMs);
    else breaker.failed(this.#pass, nowMs);
  }

  /** Nothing was learned of the target. Idempotent, as the others are. */
  release(): void {
    if (this.#give()) this.#state.breaker.ended(this.#pass, this.#clock.monotonicMs());
  }

  #give(): boolean {
    if (this.#released) return false;
    this.#released = true;
    this.#state.inFlight--;
    this.#metrics.attemptEnded(this.target.slot);
    return true;
  }
}

/** With the call counted in, so that of two idle targets the heavier one is taken. */
function loadWithOneMore(state: TargetState): number {
  return (state.inFlight + 1) / state.target.weight;
}

function restMsOf({ parkedUntilMs, breaker }: TargetState, nowMs: ReturnType<Clock['monotonicMs']>): number {
  return Math.max(parkedUntilMs - nowMs, breaker.restMs(nowMs));
}

/** As rare as rests are long: no line is left out. */
function noteChange(log: Log, { name }: UpstreamTarget, change: BreakerChange, restMs: number): void {
  if (change === 'closed') log.info('an upstream answers again and is used again', { subject: name });
  else if (change === 'opened')
    log.warn('an upstream keeps failing and is left alone', { subject: name, restMs });
  else log.warn('an upstream that was left alone still fails', { subject: name, restMs });
}
