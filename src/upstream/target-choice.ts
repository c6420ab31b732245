/**
 * Which of a model's upstreams takes a call: the best priority that has not been tried and is not resting, in it the one with the
 * least calls in flight for its weight. Upstream worker; one choice for a model, counting the calls of this worker alone.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { MonotonicMs } from '../core/units.js';
import type { Log } from '../telemetry/log.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import { Breaker, type BreakerChange, type BreakerPass } from './breaker.js';
import type { AttemptFailure } from './error-mapping.js';
import { isSameUpstream, type UpstreamTarget } from './target.js';

/**
 * An upstream's Retry-After is kept to for so long while others take its calls; it is asked again then, for it may have spoken of an hour or
 * a day. It may also have meant the one caller whose call it refused: where no other upstream is left, a single call asks again after
 * `parkMsMax` of the upstream, and all follow where that is answered.
 */
const PARK_MS_MAX = 60_000;

/** What is known of one upstream. */
interface TargetState {
  /** Of all that the choice ever had; a call remembers by it what it has tried. */
  readonly index: number;
  target: UpstreamTarget;
  readonly breaker: Breaker;
  inFlight: number;
  parkedUntilMs: number;
  /** While parked: when one call may ask whether it still has to be, if no other upstream is left. */
  parkProbeAtMs: number;
}

/** Why no upstream takes a call, and how long not. */
export interface Cooldown {
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
      breaker: new Breaker(target.breakerFailuresMax, (change, cooldownMs) => {
        this.#metrics.setBreaker(state.target.slot, change === 'closed' ? 'closed' : 'open');
        noteChange(this.#log, target, change, cooldownMs);
      }),
      inFlight: 0,
      parkedUntilMs: 0,
      parkProbeAtMs: 0,
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
    return this.#best(tried, this.#clock.monotonicMs()) !== undefined;
  }

  /**
   * Takes a place on the best target whose index is not in `tried`; undefined where all were tried or rest. `retry`: an earlier
   * attempt of the call has failed. O(targets).
   */
  take(tried: readonly number[], retry = false): TakenTarget | undefined {
    const nowMs = this.#clock.monotonicMs();
    const best = this.#best(tried, nowMs);
    if (best === undefined) return undefined;
    best.inFlight++;
    this.#metrics.attemptBegun(best.target.slot, retry);
    return new TakenTarget(best, this.#clock, this.#metrics);
  }

  /** How long until one of the targets takes a call. */
  rest(): Cooldown {
    const nowMs = this.#clock.monotonicMs();
    const coolsDown = this.#states.map((state) => ({
      restMs: loneCooldownMsOf(state, nowMs),
      reason: state.parkedUntilMs > nowMs ? 'it asked for a pause' : 'it failed repeatedly',
    }));
    return coolsDown.reduce((least, cooldown) => (cooldown.restMs < least.restMs ? cooldown : least));
  }

  /** All breakers of that slot, or of all slots, are closed, and nothing is kept to of what the upstream asked for. */
  reset(slot: number | undefined): void {
    for (const state of this.#states) {
      if (slot !== undefined && state.target.slot !== slot) continue;
      state.breaker.reset();
      state.parkedUntilMs = 0;
    }
  }

  #best(tried: readonly number[], nowMs: MonotonicMs): TargetState | undefined {
    let best: TargetState | undefined;
    let isAnyAwake = false;
    for (const state of this.#states) {
      if (cooldownMsOf(state, nowMs) > 0) continue;
      isAnyAwake = true;
      if (tried.includes(state.index)) continue;
      if (best === undefined) best = state;
      else if (state.target.priority !== best.target.priority) break;
      else if (loadWithOneMore(state) < loadWithOneMore(best)) best = state;
    }
    return isAnyAwake ? best : this.#bestOfCoolingDown(tried, nowMs);
  }

  /** All rest, so what each asks for is weighed against calls that nobody serves. */
  #bestOfCoolingDown(tried: readonly number[], nowMs: MonotonicMs): TargetState | undefined {
    return this.#states.find((state) => !tried.includes(state.index) && loneCooldownMsOf(state, nowMs) === 0);
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
  /** It finds out whether a parked target must still be left alone. */
  readonly #isParkProbe: boolean;
  #released = false;

  constructor(state: TargetState, clock: Clock, metrics: UpstreamMetrics) {
    this.target = state.target;
    this.index = state.index;
    this.#state = state;
    this.#clock = clock;
    this.#metrics = metrics;
    const nowMs = clock.monotonicMs();
    if (state.breaker.isOpen) metrics.setBreaker(state.target.slot, 'half_open');
    this.#pass = state.breaker.begin(nowMs);
    this.#isParkProbe = state.parkedUntilMs > nowMs;
    if (this.#isParkProbe) state.parkProbeAtMs = nowMs + state.target.parkMsMax;
  }

  /** The first part of a good answer is there. */
  answered(): void {
    this.#state.breaker.answered(this.#pass);
    if (this.#isParkProbe) this.#state.parkedUntilMs = 0;
  }

  /** The target answered, if only that the caller was wrong. */
  releaseGood(): void {
    if (!this.#give()) return;
    this.#state.breaker.succeeded(this.#pass, this.#clock.monotonicMs());
    if (this.#isParkProbe) this.#state.parkedUntilMs = 0;
  }

  releaseFailed(failure: AttemptFailure): void {
    if (!this.#give()) return;
    const nowMs = this.#clock.monotonicMs();
    const { breaker } = this.#state;
    if (failure.retryAfterSeconds !== undefined) {
      this.#park(failure.retryAfterSeconds * 1_000, nowMs);
      breaker.ended(this.#pass, nowMs);
    } else if (failure.ours) this.#endUnheard(nowMs);
    else breaker.failed(this.#pass, nowMs);
  }

  /** Nothing was learned of the target. Idempotent, as the others are. */
  release(): void {
    if (this.#give()) this.#endUnheard(this.#clock.monotonicMs());
  }

  /** A call that began earlier does not shorten what a later one was told. */
  #park(ms: number, nowMs: MonotonicMs): void {
    const state = this.#state;
    const { parkMsMax } = state.target;
    if (parkMsMax === 0) return;
    state.parkedUntilMs = Math.max(state.parkedUntilMs, nowMs + Math.min(PARK_MS_MAX, ms));
    state.parkProbeAtMs = nowMs + parkMsMax;
  }

  /** The next call finds out what this one was to. */
  #endUnheard(nowMs: MonotonicMs): void {
    this.#state.breaker.ended(this.#pass, nowMs);
    if (this.#isParkProbe) this.#state.parkProbeAtMs = nowMs;
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

function cooldownMsOf({ parkedUntilMs, breaker }: TargetState, nowMs: MonotonicMs): number {
  return Math.max(parkedUntilMs - nowMs, breaker.restMs(nowMs));
}

function loneCooldownMsOf(
  { parkedUntilMs, parkProbeAtMs, breaker }: TargetState,
  nowMs: MonotonicMs,
): number {
  return Math.max(Math.min(parkedUntilMs, parkProbeAtMs) - nowMs, breaker.loneRestMs(nowMs), 0);
}

/** As rare as rests are long: no line is left out. */
function noteChange(log: Log, { name }: UpstreamTarget, change: BreakerChange, cooldownMs: number): void {
  if (change === 'closed') log.info('an upstream answers again and is used again', { subject: name });
  else if (change === 'opened')
    log.warn('an upstream keeps failing and is left alone', { subject: name, restMs: cooldownMs });
  else log.warn('an upstream that was left alone still fails', { subject: name, restMs: cooldownMs });
}

/*
 * The tries of one call: each upstream once; a model's only upstream again, after a pause, where that repeats no work there. Upstream
 * worker; one plan for a call. No more tries are made once a byte went down, which the session sees to.
 */

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

  rest(): Cooldown {
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
