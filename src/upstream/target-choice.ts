/**
 * Which of a model's upstreams takes a call: the best priority that has not been tried, in it the one with the least calls in
 * flight for its weight. Upstream worker; one choice for a model, counting the calls of this worker alone.
 */
import { invariant } from '../core/errors.js';
import type { UpstreamTarget } from './target.js';

export class TargetChoice {
  readonly #targets: readonly UpstreamTarget[];
  readonly #inFlight: number[];

  /** `targets` sorted by priority, best first. */
  constructor(targets: readonly UpstreamTarget[]) {
    invariant(targets.length > 0, 'a model has an upstream');
    this.#targets = targets;
    this.#inFlight = targets.map(() => 0);
  }

  get targets(): number {
    return this.#targets.length;
  }

  /** Calls in flight on the target of that index. */
  inFlight(index: number): number {
    return this.#inFlight[index]!;
  }

  /** Takes a place on the best target whose index is not in `tried`; undefined where all were tried. O(targets). */
  take(tried: ReadonlySet<number>): TakenTarget | undefined {
    let best: number | undefined;
    for (let index = 0; index < this.#targets.length; index++) {
      if (tried.has(index)) continue;
      if (best === undefined) best = index;
      else if (this.#targets[index]!.priority !== this.#targets[best]!.priority) break;
      else if (this.#loadWithOneMore(index) < this.#loadWithOneMore(best)) best = index;
    }
    if (best === undefined) return undefined;
    this.#inFlight[best]!++;
    return new TakenTarget(this.#targets[best]!, best, this.#inFlight);
  }

  /** With the call counted in, so that of two idle targets the heavier one is taken. */
  #loadWithOneMore(index: number): number {
    return (this.#inFlight[index]! + 1) / this.#targets[index]!.weight;
  }
}

/** A place on a target; given back once. */
export class TakenTarget {
  readonly target: UpstreamTarget;
  readonly index: number;
  readonly #inFlight: number[];
  #released = false;

  constructor(target: UpstreamTarget, index: number, inFlight: number[]) {
    this.target = target;
    this.index = index;
    this.#inFlight = inFlight;
  }

  /** Idempotent. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#inFlight[this.index]!--;
  }
}
