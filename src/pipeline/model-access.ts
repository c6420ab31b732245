/**
 * Which models a plan may use, as one look-up. Any thread; immutable.
 */
import type { Catalog, ModelEntry } from '../registry/catalog.js';

export class ModelAccess {
  readonly #indices = new Map<string, number>();
  /** One set of model indices a plan. */
  readonly #allowed: readonly ReadonlySet<number>[];
  readonly #models: readonly ModelEntry[];

  constructor(catalog: Catalog) {
    catalog.models.forEach((model, index) => this.#indices.set(model.id, index));
    this.#allowed = catalog.plans.map((plan) => new Set(plan.modelIndices));
    this.#models = catalog.models;
  }

  /** The model's index, or undefined where it does not exist or is not on the plan: a caller is told the same of both. */
  indexOf(modelId: string, planIndex: number): number | undefined {
    const index = this.#indices.get(modelId);
    return index !== undefined && this.#allowed[planIndex]!.has(index) ? index : undefined;
  }

  /** The plan's models in the order of the catalogue. */
  modelsOf(planIndex: number): ModelEntry[] {
    return this.#models.filter((_, index) => this.#allowed[planIndex]!.has(index));
  }
}
