/**
 * From the catalogue that runs to the next one, so that every index keeps its meaning: calls in flight, journals and
 * accounts name models and plans by index. Pure; main thread.
 */
import { isListed, type Catalog } from './catalog.js';

interface Entry {
  readonly id: string;
  readonly retired?: true;
}

/**
 * `next` with the indices of `current`: an entry takes the place of the one of its id, new ones follow, and what `next` does
 * not have stays as it was, retired. Indices of `next`'s plans into its models are translated.
 */
export function mergeCatalogs(current: Catalog, next: Catalog): Catalog {
  const models = mergeById(current.models, next.models);
  const indexOf = new Map(models.map(({ id }, index) => [id, index]));
  const plans = next.plans.map((plan) => ({
    ...plan,
    modelIndices: plan.modelIndices
      .map((index) => indexOf.get(next.models[index]!.id)!)
      .sort((a, b) => a - b),
  }));
  return { models, plans: mergeById(current.plans, plans) };
}

/** `current` without the plans that `next` does not have: no account can be put on one of them any more. */
export function retireMissingPlans(current: Catalog, next: Catalog): Catalog {
  const kept = new Set(next.plans.filter(isListed).map(({ id }) => id));
  const plans = current.plans.map((plan) => (kept.has(plan.id) ? plan : { ...plan, retired: true as const }));
  return { models: current.models, plans };
}

/** `next` in the places of `current`: see `mergeCatalogs`. */
export function mergeById<T extends Entry>(current: readonly T[], next: readonly T[]): T[] {
  const byId = new Map(next.map((entry) => [entry.id, entry]));
  const kept = current.map((entry): T => byId.get(entry.id) ?? { ...entry, retired: true });
  const known = new Set(current.map(({ id }) => id));
  return [...kept, ...next.filter(({ id }) => !known.has(id))];
}
