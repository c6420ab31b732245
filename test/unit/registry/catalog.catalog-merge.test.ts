/** Whatever reloads follow each other, an index never means another model or plan. */
import t from 'tap';
import { type Catalog, isListed, mergeCatalogs, retireMissingPlans } from '#src/registry/catalog.js';
import { CATALOG } from '../store/support.js';
import { newSeed, randomOf } from '../../support/random.js';

/** Plans may use the models named. */
function catalogOf(models: readonly string[], plans: Readonly<Record<string, readonly string[]>>): Catalog {
  return {
    models: models.map((id) => ({ ...CATALOG.models[0]!, id })),
    plans: Object.entries(plans).map(([id, allowed]) => ({
      ...CATALOG.plans[0]!,
      id,
      modelIndices: models.flatMap((model, index) => (allowed.includes(model) ? [index] : [])),
    })),
  };
}

const shown = ({ models, plans }: Catalog) => ({
  models: models.map((model) => `${model.id}${isListed(model) ? '' : '†'}`),
  plans: plans.map((plan) => `${plan.id}${isListed(plan) ? '' : '†'}:${plan.modelIndices.join()}`),
});

void t.test(
  'places are kept, new ones follow, removed ones stay retired and come back where they were',
  (t) => {
    const first = catalogOf(['a', 'b', 'c'], { p: ['a', 'c'], q: ['b'] });
    const second = mergeCatalogs(first, catalogOf(['d', 'c', 'a'], { r: ['d', 'a'], p: ['c'] }));
    t.same(shown(second), { models: ['a', 'b†', 'c', 'd'], plans: ['p:2', 'q†:1', 'r:0,3'] });
    const third = mergeCatalogs(second, catalogOf(['b', 'e'], { q: ['e', 'b'] }));
    t.same(shown(third), { models: ['a†', 'b', 'c†', 'd†', 'e'], plans: ['p†:2', 'q:1,4', 'r†:0,3'] });
    t.end();
  },
);

void t.test('fallbacks are the same models after a reload', (t) => {
  const withFallbacks = (
    models: readonly string[],
    fallbacks: Readonly<Record<string, readonly string[]>>,
  ) => {
    const catalog = catalogOf(models, {});
    const indices = (id: string) => (fallbacks[id] ?? []).map((other) => models.indexOf(other));
    return {
      ...catalog,
      models: catalog.models.map((model) => ({ ...model, fallbacks: indices(model.id) })),
    };
  };
  const named = ({ models }: Catalog) =>
    models.map((model) => `${model.id}:${model.fallbacks.map((index) => models[index]!.id).join()}`);
  const first = withFallbacks(['a', 'b', 'c'], { a: ['c', 'b'], b: ['c'] });
  const second = mergeCatalogs(first, withFallbacks(['d', 'c', 'a'], { a: ['d', 'c'], d: ['a'] }));
  t.same(named(second), ['a:d,c', 'b:c', 'c:', 'd:a']);
  t.end();
});

void t.test('plans that go are closed first, and nothing else changes', (t) => {
  const current = mergeCatalogs(
    catalogOf(['a', 'x'], { p: ['a'], q: ['a'] }),
    catalogOf(['a'], { p: ['a'], q: ['a'] }),
  );
  const next = mergeCatalogs(current, catalogOf(['a', 'b'], { q: ['b'], r: ['b'] }));
  t.same(shown(retireMissingPlans(current, next)), { models: ['a', 'x†'], plans: ['p†:0', 'q:0'] });
  t.end();
});

void t.test('random reloads', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const some = (names: readonly string[]): string[] =>
    names.filter(() => next() < 0.5).sort(() => next() - 0.5);
  const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
  let running = catalogOf(['a'], { p: ['a'] });
  for (let reload = 0; reload < 200; reload++) {
    const models = some(names);
    const plans = Object.fromEntries(some(['p', 'q', 'r']).map((id) => [id, some(models)]));
    const merged = mergeCatalogs(running, catalogOf(models, plans));
    running.models.forEach(({ id }, index) => t.equal(merged.models[index]?.id, id));
    running.plans.forEach(({ id }, index) => t.equal(merged.plans[index]?.id, id));
    t.same(new Set(merged.models.filter(isListed).map(({ id }) => id)), new Set(models));
    for (const plan of merged.plans.filter(isListed)) {
      const allowed = plan.modelIndices.map((index) => merged.models[index]!.id);
      t.same(new Set(allowed), new Set(plans[plan.id]), 'a plan may use what it names');
    }
    t.same(new Set(merged.plans.filter(isListed).map(({ id }) => id)), new Set(Object.keys(plans)));
    running = merged;
  }
  t.end();
});
