/**
 * Where each model's calls go, and what is known of its upstreams; a reload replaces it while calls run. Upstream worker.
 */
import type { Clock } from '../core/clock.js';
import type { Log } from '../telemetry/log.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import { TargetChoice } from './target-choice.js';
import type { ModelRoute, UpstreamTarget } from './target.js';

export class RouteTable {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #metrics: UpstreamMetrics;
  #routes: readonly ModelRoute[] = [];
  /** As the routes. */
  readonly #choices: TargetChoice[] = [];

  /** `routes` by the model's index in the catalogue. */
  constructor(routes: readonly ModelRoute[], clock: Clock, log: Log, metrics: UpstreamMetrics) {
    this.#clock = clock;
    this.#log = log;
    this.#metrics = metrics;
    this.replace(routes);
  }

  routeOf(modelIndex: number): ModelRoute {
    return this.#routes[modelIndex]!;
  }

  choiceOf(modelIndex: number): TargetChoice {
    return this.#choices[modelIndex]!;
  }

  /**
   * From now on calls, and further tries of calls that run, go where `routes` say, in which no model has another index than
   * before. Upstreams that did not change keep their breakers and calls.
   */
  replace(routes: readonly ModelRoute[]): void {
    this.#routes = routes;
    for (const [index, { targets }] of routes.entries()) {
      const choice = this.#choices[index];
      if (choice === undefined)
        this.#choices.push(new TargetChoice(targets, this.#clock, this.#log, this.#metrics));
      else choice.replace(targets);
    }
  }

  /** The upstreams of that model, or of all, are called again at once, whatever was known of them. */
  reset(modelId: string | undefined): void {
    for (const [index, { id }] of this.#routes.entries())
      if (modelId === undefined || modelId === id) this.#choices[index]!.reset(undefined);
  }

  /** Where calls go from now on: nobody calls models that were removed. */
  get targets(): UpstreamTarget[] {
    return this.#routes.flatMap(({ retired, targets }) => (retired === undefined ? targets : []));
  }
}
