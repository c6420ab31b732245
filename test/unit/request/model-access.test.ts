import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { tokenPriceOf } from '#src/registry/catalog.js';
import { type CandidateModel, ModelAccess } from '#src/request/model-access.js';
import { CATALOG } from './support.js';

void t.test('a plan sees its models, and of the others not that they exist', (t) => {
  const access = new ModelAccess(CATALOG);
  t.equal(access.indexOf('priced', 0), 0);
  t.equal(access.indexOf('free', 0), 1);
  t.equal(access.indexOf('also-free', 0), 1, 'an alias is its model');
  t.equal(access.indexOf('hidden', 0), undefined);
  t.equal(access.indexOf('also-hidden', 0), undefined);
  t.equal(access.indexOf('__proto__', 0), undefined);
  t.equal(access.indexOf('', 0), undefined);
  t.same(
    access.modelsOf(0).map(({ id }) => id),
    ['priced', 'free'],
  );
  t.end();
});

const indicesOf = (candidates: readonly CandidateModel[]): number[] =>
  candidates.map(({ modelIndex }) => modelIndex);

void t.test('fallbacks are those that are listed and on the plan, in their order', (t) => {
  const [priced, free, hidden] = CATALOG.models;
  const models = [
    { ...priced!, fallbacks: [3, 2, 1] },
    free!,
    hidden!,
    { ...free!, id: 'other', aliases: [] },
  ];
  const plan = { ...CATALOG.plans[0]!, modelIndices: [0, 1, 3] };
  const access = new ModelAccess({ models, plans: [plan] });
  t.same(indicesOf(access.candidatesOf(0, 0)), [0, 3, 1], 'without the one that is not on the plan');
  t.same(indicesOf(access.candidatesOf(1, 0)), [1]);
  const retired = { ...models[3]!, retired: true as const };
  const later = new ModelAccess({ models: [...models.slice(0, 3), retired], plans: [plan] });
  t.same(indicesOf(later.candidatesOf(0, 0)), [0, 1], 'nor the one that a reload has removed');
  t.equal(later.indexOf('other', 0), undefined);
  t.end();
});

void t.test('the least price of a plan is no higher than that of any of its models', (t) => {
  const price = (input: bigint, output: bigint) =>
    tokenPriceOf({ inputPicoUnits: asPicoUnits(input), outputPicoUnits: asPicoUnits(output) });
  const models = [price(5n, 2n), price(3n, 9n), price(1n, 1n)].map((price, index) => ({
    ...CATALOG.models[0]!,
    id: `m${index}`,
    price,
  }));
  const plans = [[0, 1], [2], []].map((modelIndices) => ({ ...CATALOG.plans[0]!, modelIndices }));
  const access = new ModelAccess({ models, plans });
  const leastOf = (plan: number): bigint[] => Object.values(access.leastPriceOf(plan)) as bigint[];
  t.same([0, 1, 2].map(leastOf), [
    [3n, 2n],
    [1n, 1n],
    [0n, 0n],
  ]);
  t.end();
});
