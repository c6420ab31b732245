/**
 * Which models a plan may use, and the least that a call on a plan costs. listener.thread.ts makes one for
 * each catalogue; admission and the routes of models ask it. Listener thread.
 *
 * Must hold: a model that is not on the plan looks like one that does not exist
 * (test/unit/request/model-access.test.ts).
 */
import { type Catalog, isListed, type ModelEntry } from '../registry/catalog.js';

/** A model that may answer a call. */
export interface ChosenModel {
  readonly modelIndex: number;
  readonly model: ModelEntry;
}

/** Lower bounds of what a token of the prompt and one of the output cost. */
interface LeastPrice {
  readonly inputPicoUnits: bigint;
  readonly outputPicoUnits: bigint;
}

/** Made for a catalogue and never changed. Plans and models are indices into the catalogue's lists. */
export class ModelAccess {
  readonly #indices = new Map<string, number>();
  readonly #catalog: Catalog;
  /** By model: the list of that model alone, for calls without fallbacks. */
  readonly #alone: readonly (readonly ChosenModel[])[];
  /** By plan: the indices of its models. Made when first needed: all at once would be a million entries. */
  readonly #allowed: (ReadonlySet<number> | undefined)[];
  /** By plan. Made when first needed. */
  readonly #leastPrices: (LeastPrice | undefined)[];

  constructor(catalog: Catalog) {
    catalog.models.forEach((model, index) => {
      if (!isListed(model)) return;
      for (const name of [model.id, ...model.aliases]) this.#indices.set(name, index);
    });
    this.#catalog = catalog;
    this.#alone = catalog.models.map((model, modelIndex) => [{ modelIndex, model }]);
    this.#allowed = catalog.plans.map(() => undefined);
    this.#leastPrices = catalog.plans.map(() => undefined);
  }

  /** The model's index. Undefined if there is no such model or it is not on the plan. */
  indexOf(idOrAlias: string, planIndex: number): number | undefined {
    const index = this.#indices.get(idOrAlias);
    return index !== undefined && this.#allowedOn(planIndex).has(index) ? index : undefined;
  }

  /** The model, then those of its fallbacks that are on the plan, in their order. */
  chosenOf(modelIndex: number, planIndex: number): readonly ChosenModel[] {
    const alone = this.#alone[modelIndex]!;
    const { models } = this.#catalog;
    const { fallbacks } = models[modelIndex]!;
    if (fallbacks.length === 0) return alone;
    const allowed = this.#allowedOn(planIndex);
    const listed = fallbacks.filter((index) => allowed.has(index) && isListed(models[index]!));
    return [...alone, ...listed.flatMap((index) => this.#alone[index]!)];
  }

  /**
   * No call on the plan holds less for a token, because long prices hold no less than a model's own. The two
   * prices may be those of different models.
   */
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
    inputPicoUnits: least(models.map(({ price }) => price.inputPicoUnitsMax)),
    outputPicoUnits: least(models.map(({ price }) => price.outputPicoUnitsMax)),
  };
}
