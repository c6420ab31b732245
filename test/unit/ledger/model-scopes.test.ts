/** The table of rules for models: the pairs of an account and a model that have a slot. */
import t from 'tap';
import { asAccountIndex, type ModelScopeIndex } from '#src/core/units.js';
import { ModelScopes } from '#src/ledger/model-scopes.js';
import { interruptAt } from '../../fixtures/ledger-world.js';
import { newSeed, randomBelow } from '../../support/random.js';

const SLOTS = 16;

function openTwo(): readonly [ModelScopes, ModelScopes] {
  const words = new BigInt64Array(new SharedArrayBuffer(SLOTS * 8));
  return [new ModelScopes(words), new ModelScopes(words)];
}

void t.test('account and model have one slot on all threads, at whatever step another looks', (t) => {
  const account = asAccountIndex(3);
  // An account and a model whose search begins at the same slot as that of `account` and model 5.
  const [first] = openTwo();
  const start = first.slotOf(account, 5);
  let rival = 0;
  while (rival === 3 || openTwo()[0].slotOf(asAccountIndex(rival), 6) !== start) rival++;
  for (const hasRival of [false, true]) {
    let steps = 0;
    for (let isStep = true; isStep; steps++) {
      const [one, other] = openTwo();
      const slots: (ModelScopeIndex | undefined)[] = [];
      let rivalSlot: ModelScopeIndex | undefined;
      isStep = interruptAt(
        steps,
        () => void slots.push(one.slotOf(account, 5)),
        () => {
          if (hasRival) rivalSlot = other.slotOf(asAccountIndex(rival), 6);
          slots.push(other.slotOf(account, 5));
        },
      );
      slots.push(other.slotOf(account, 5), one.slotOf(account, 5));
      t.equal(new Set(slots).size, 1, `step ${steps}: ${slots.join()}`);
      t.not(slots[0], rivalSlot, 'the other account has another');
      t.same(other.pairOf(slots[0]!), { account, modelIndex: 5 });
    }
    t.ok(steps > 2, `${steps} steps`);
  }
  t.end();
});

void t.test('no two share a slot, and all slots are given', (t) => {
  const below = randomBelow(newSeed());
  const [one, other] = openTwo();
  const given = new Map<string, ModelScopeIndex>();
  for (let tries = 0; tries < 5_000; tries++) {
    const [account, modelIndex] = [asAccountIndex(below(6)), below(6)];
    const name = `${account} ${modelIndex}`;
    const slot = [one, other][below(2)]!.slotOf(account, modelIndex);
    const known = given.get(name);
    if (slot !== known && (known !== undefined || given.size === SLOTS))
      t.fail(`${name}: ${slot}, not ${known}`);
    if (slot === undefined) continue;
    given.set(name, slot);
    t.same(one.pairOf(slot), { account, modelIndex });
  }
  t.same(
    [...given.values()].sort((a, b) => a - b),
    Array.from({ length: SLOTS }, (_, slot) => slot),
  );
  t.end();
});
