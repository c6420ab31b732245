/**
 * Tells which models a plan may use, and the least that a call on a plan costs. listener.thread.ts makes one
 * ModelAccess for each catalogue; admit.ts and model-routes.ts ask it. Listener thread.
 *
 * Must hold: a model that is not on the plan, or that a reload has removed, looks like one that does not
 * exist, also as a fallback. `leastPriceOf` is never above a price of the plan: intake.ts rejects bodies by
 * it that have not come whole.
 */
import { type Catalog, isListed, type ModelEntry } from '../registry/catalog.js';

/** A model that may answer a call: the one that the call names, or a fallback. */
export interface CandidateModel {
  /** The model's index in the catalogue. */
  readonly modelIndex: number;
  readonly model: ModelEntry;
}

/** The least that a call holds for each token of its prompt, and for each token of its output. */
interface LeastPrice {
  readonly inputPicoUnits: bigint;
  readonly outputPicoUnits: bigint;
}

/** For one catalogue, which never changes. Plans and models are named by their indices there. */
export class ModelAccess {
  readonly #indexByName = new Map<string, number>();
  readonly #catalog: Catalog;
  /** By model: a list of that model alone, made once so that a call without fallbacks needs no new list. */
  readonly #listsOfOne: readonly (readonly CandidateModel[])[];
  /** By plan: the indices of its models. Made when first needed, because all at once may be a million. */
  readonly #indicesByPlan: (ReadonlySet<number> | undefined)[];
  /** By plan. Each price is made when first needed. */
  readonly #leastPrices: (LeastPrice | undefined)[];

  constructor(catalog: Catalog) {
    // A model that a reload has removed keeps its index, but calls no longer find it.
    catalog.models.forEach((model, index) => {
      if (!isListed(model)) return;
      for (const name of [model.id, ...model.aliases]) this.#indexByName.set(name, index);
    });
    this.#catalog = catalog;
    this.#listsOfOne = catalog.models.map((model, modelIndex) => [{ modelIndex, model }]);
    this.#indicesByPlan = catalog.plans.map(() => undefined);
    this.#leastPrices = catalog.plans.map(() => undefined);
  }

  /** Returns the model's index; undefined if no listed model has the name, or it is not on the plan. */
  indexOf(idOrAlias: string, planIndex: number): number | undefined {
    const index = this.#indexByName.get(idOrAlias);
    return index !== undefined && this.#indicesOf(planIndex).has(index) ? index : undefined;
  }

  /** Returns the model, and then its fallbacks that are listed and on the plan, in their order. */
  candidatesOf(modelIndex: number, planIndex: number): readonly CandidateModel[] {
    const listOfOne = this.#listsOfOne[modelIndex]!;
    const { models } = this.#catalog;
    const { fallbacks } = models[modelIndex]!;
    if (fallbacks.length === 0) return listOfOne;
    const indices = this.#indicesOf(planIndex);
    const listed = fallbacks.filter((index) => indices.has(index) && isListed(models[index]!));
    return [...listOfOne, ...listed.flatMap((index) => this.#listsOfOne[index]!)];
  }

  /**
   * Returns the lowest prices by which any call on the plan is held (`worstCaseOf` of registry/catalog.ts). A
   * long price is never below the model's own, so only the latter are compared. The two prices may be those
   * of different models. They are 0 if the plan has no model.
   */
  leastPriceOf(planIndex: number): LeastPrice {
    return (this.#leastPrices[planIndex] ??= leastPrice(this.modelsOf(planIndex)));
  }

  /** The plan's models in the order of the catalogue. */
  modelsOf(planIndex: number): ModelEntry[] {
    return this.#catalog.plans[planIndex]!.modelIndices.map((index) => this.#catalog.models[index]!);
  }

  #indicesOf(planIndex: number): ReadonlySet<number> {
    return (this.#indicesByPlan[planIndex] ??= new Set(this.#catalog.plans[planIndex]!.modelIndices));
  }
}

function leastPrice(models: readonly ModelEntry[]): LeastPrice {
  const lowestOf = (amounts: readonly bigint[]): bigint =>
    amounts.reduce((lowest, amount) => (amount < lowest ? amount : lowest), amounts[0] ?? 0n);
  return {
    inputPicoUnits: lowestOf(models.map(({ price }) => price.inputPicoUnitsMax)),
    outputPicoUnits: lowestOf(models.map(({ price }) => price.outputPicoUnitsMax)),
  };
}
