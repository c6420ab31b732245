/**
 * Which models a plan may use, as one look-up. Any thread; it never changes what it says.
 */
import { isListed, worstCaseOf, type Catalog, type ModelEntry } from '../registry/catalog.js';

/** What a token of the prompt and one of the output cost at least where calls are held. */
export interface LeastPrice {
  readonly inputPicoUnits: bigint;
  readonly outputPicoUnits: bigint;
}

export class ModelAccess {
  readonly #indices = new Map<string, number>();
  readonly #catalog: Catalog;
  /** One set of model indices a plan, made when the plan is first asked for: all at once would be a million entries. */
  readonly #allowed: (ReadonlySet<number> | undefined)[];

  /** The same. */
  readonly #leastPrices: (LeastPrice | undefined)[];

  constructor(catalog: Catalog) {
    catalog.models.forEach((model, index) => {
      if (!isListed(model)) return;
      for (const name of [model.id, ...model.aliases]) this.#indices.set(name, index);
    });
    this.#catalog = catalog;
    this.#allowed = catalog.plans.map(() => undefined);
    this.#leastPrices = catalog.plans.map(() => undefined);
  }

  /** The model's index, or undefined where it does not exist or is not on the plan: a caller is told the same of both. */
  indexOf(idOrAlias: string, planIndex: number): number | undefined {
    const index = this.#indices.get(idOrAlias);
    return index !== undefined && this.#allowedOn(planIndex).has(index) ? index : undefined;
  }

  /** No call on the plan costs less a token: of a plan with models of several prices it is no price that any model has. */
  leastPriceOf(planIndex: number): LeastPrice {
    return (this.#leastPrices[planIndex] ??= leastPrice(this.modelsOf(planIndex)));
  }

  /** The plan's models in the order of the catalogue. */
  modelsOf(planIndex: number): ModelEntry[] {
    return this.#catalog.plans[planIndex]!.modelIndices.map((index) => this.#catalog.models[index]!);
  }

  #allowedOn(planIndex: number): ReadonlySet<number> {
    return (this.#allowed[planIndex] ??= new Set(this.#catalog.plans[planIndex]!.modelIndices));
  }
}

function leastPrice(models: readonly ModelEntry[]): LeastPrice {
  const least = (amounts: readonly bigint[]): bigint =>
    amounts.reduce((left, right) => (right < left ? right : left), amounts[0] ?? 0n);
  return {
    inputPicoUnits: least(models.map(({ price }) => worstCaseOf(price, 1, 0))),
    outputPicoUnits: least(models.map(({ price }) => worstCaseOf(price, 0, 1))),
  };
}
