/**
 * The upstreams of each model with their state (breakers, calls in flight). upstream-task.ts makes a table
 * for its worker, sessions read it. Upstream worker.
 *
 * Must hold: a reload replaces the routes while calls run. So an index always means the same model, and
 * upstreams that did not change keep their state (test/unit/upstream/route-table.test.ts).
 */
import { invariant } from '../core/errors.js';
import { type BalancerDeps, Balancer } from './balancer.js';
import type { ModelRoute, UpstreamTarget } from './target.js';

export class RouteTable {
  readonly #deps: BalancerDeps;
  #routes: readonly ModelRoute[] = [];
  /** By the model's index in the catalogue, as the routes. */
  readonly #balancers: Balancer[] = [];

  /** `routes` by the model's index in the catalogue. */
  constructor(routes: readonly ModelRoute[], deps: BalancerDeps) {
    this.#deps = deps;
    this.replace(routes);
  }

  /** Throws for a model that has no route: the listener knows a newer catalogue, which is a bug. */
  routeOf(modelIndex: number): ModelRoute {
    const route = this.#routes[modelIndex];
    invariant(route !== undefined, 'a worker has the routes of all models that listeners know');
    return route;
  }

  /** Throws as `routeOf` does. */
  balancerOf(modelIndex: number): Balancer {
    const balancer = this.#balancers[modelIndex];
    invariant(balancer !== undefined, 'a worker has the routes of all models that listeners know');
    return balancer;
  }

  /**
   * From now on calls, and further attempts of running calls, go where `routes` say. Throws if a model has
   * another index or is missing (a removed one is `retired`): calls would go to another model than they pay
   * for. Upstreams that did not change (`isSameUpstream`) keep their breakers and calls.
   */
  replace(routes: readonly ModelRoute[]): void {
    const keepIndices = this.#routes.every(({ id }, index) => routes[index]?.id === id);
    invariant(keepIndices, 'a model keeps its index over reloads');
    this.#routes = routes;
    for (const [index, { targets }] of routes.entries()) {
      const balancer = this.#balancers[index];
      if (balancer === undefined) this.#balancers.push(new Balancer(targets, this.#deps));
      else balancer.replace(targets);
    }
  }

  /** Closes the breakers of that model's upstreams, or of all, so that they get calls again at once. */
  reset(modelId: string | undefined): void {
    for (const [index, { id }] of this.#routes.entries())
      if (modelId === undefined || modelId === id) this.#balancers[index]!.reset(undefined);
  }

  /** Closes the breakers of upstreams that use one of these credentials. */
  resetCredentials(positions: readonly number[]): void {
    if (positions.length === 0) return;
    for (const [index, { targets }] of this.#routes.entries())
      for (const { provider, slot } of targets)
        // -1 is no position: the upstream has a key, or needs no credential.
        if (positions.includes(provider?.credential ?? -1)) this.#balancers[index]!.reset(slot);
  }

  /** The targets of all models that were not removed. */
  get targets(): UpstreamTarget[] {
    return this.#routes.flatMap(({ retired, targets }) => (retired === undefined ? targets : []));
  }
}
