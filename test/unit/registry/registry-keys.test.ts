/** Keys: shown once, known by their digest alone, in force on the shared table the moment a call returns. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { digestOf } from '#src/registry/key-digest.js';
import { KEYS_MAX, openHouse, type House } from '../store/support.js';

function peopledHouse(path: string): House {
  const house = openHouse(path);
  for (const name of ['acme', 'other']) {
    house.registry.createAccount({ name, planId: 'free', credit: asPicoUnits(0n) });
  }
  return house;
}

/** How the data plane sees a key. */
function standingOf({ keyTable }: House, key: string): readonly [number, string] | undefined {
  const found = keyTable.find(digestOf(key));
  return found === undefined ? undefined : [keyTable.accountOf(found), keyTable.stateOf(found)];
}

void t.test('a key is in force from its making to its deletion', async (t) => {
  const house = peopledHouse(t.testdir());
  const { registry, store, clock } = house;
  const { record, key } = registry.createKey({ account: 'other', name: 'laptop' });
  t.match(record, { name: 'laptop', accountId: registry.findAccount('other').record.id, active: true });
  t.match(record.id, /^key_.{16}$/);
  t.equal(record.createdMs, clock.nowMs);
  t.same(standingOf(house, key), [1, 'active']);
  t.same(store.findKey(record.id), record);
  t.notOk(JSON.stringify(record).includes(key.slice(8)), 'the record does not have the key');

  t.equal(registry.setKeyActive('laptop', false).active, false);
  t.same(standingOf(house, key), [1, 'disabled']);
  t.equal(store.findKey(record.id)?.active, false);
  t.equal(registry.setKeyActive(record.id, true).active, true);
  t.same(standingOf(house, key), [1, 'active']);
  t.equal(registry.deleteKey('laptop').id, record.id);
  t.equal(standingOf(house, key), undefined);
  t.throws(() => registry.deleteKey('laptop'), { code: 'not_found', message: /^there is no key laptop/ });
  t.throws(() => registry.setKeyActive(record.id, true), { code: 'not_found' });
  await store.close();
});

void t.test('names of keys may repeat, and then only an id will do', async (t) => {
  const house = peopledHouse(t.testdir());
  const { registry, store } = house;
  const first = registry.createKey({ account: 'acme', name: 'ci' });
  const second = registry.createKey({ account: 'other', name: 'ci' });
  const several = { code: 'invalid_parameters', message: /^several keys are named ci: give the id of one$/ };
  t.throws(() => registry.setKeyActive('ci', false), several);
  t.throws(() => registry.deleteKey('ci'), several);
  registry.setKeyActive(first.record.id, false);
  t.same(standingOf(house, first.key), [0, 'disabled']);
  t.same(standingOf(house, second.key), [1, 'active']);
  registry.deleteKey(first.record.id);
  t.equal(registry.deleteKey('ci').id, second.record.id, 'now it is unique');
  await store.close();
});

void t.test('keys are listed by account and altogether, page by page', async (t) => {
  const { registry, store } = peopledHouse(t.testdir());
  for (const [account, name] of [
    ['acme', 'a'],
    ['other', 'b'],
    ['acme', 'c'],
    ['acme', 'd'],
  ] as const) {
    registry.createKey({ account, name });
  }
  const names = (account: string | undefined, limit: number): string[] => {
    const found: string[] = [];
    let from: number | undefined = 0;
    while (from !== undefined) {
      const page: ReturnType<typeof registry.listKeys> = registry.listKeys(account, from, limit);
      found.push(...page.items.map(({ name }) => name));
      from = page.next;
    }
    return found;
  };
  for (let limit = 1; limit <= 5; limit++) {
    t.same(names(undefined, limit), ['a', 'b', 'c', 'd']);
    t.same(names('acme', limit), ['a', 'c', 'd']);
    t.same(names(registry.findAccount('other').record.id, limit), ['b']);
  }
  t.throws(() => registry.listKeys('nobody', 0, 1), { code: 'not_found' });
  await store.close();
});

void t.test('what cannot be a key leaves no trace', async (t) => {
  const { registry, store } = peopledHouse(t.testdir());
  t.throws(() => registry.createKey({ account: 'nobody', name: 'x' }), { code: 'not_found' });
  t.throws(() => registry.createKey({ account: 'acme', name: '' }), {
    code: 'invalid_parameters',
    message: /^name must have/,
  });
  const first = registry.createKey({ account: 'acme', name: 'x' });
  t.equal(first.record.index, 0, 'no slot was lost');
  const itself = { code: 'invalid_parameters', message: /^(?!.*sk-).*API key/ };
  t.throws(() => registry.createKey({ account: 'acme', name: first.key }), itself, 'a key is no name');
  t.throws(() => registry.setKeyActive(first.key, false), itself, 'nor an id');
  t.throws(() => registry.findAccount(first.key), itself);
  await store.close();
});

void t.test(
  'as many keys as the table has slots; a deleted one’s slot is had again after its rest',
  async (t) => {
    const house = peopledHouse(t.testdir());
    const { registry, store, clock } = house;
    const make = () => registry.createKey({ account: 'acme', name: 'k' });
    const made = Array.from({ length: KEYS_MAX }, make);
    const full = { code: 'invalid_parameters', message: /limits\.keys/ };
    t.throws(make, full);
    registry.deleteKey(made[1]!.record.id);
    t.throws(make, full, 'not at once');
    clock.nowMs += 24 * 3_600_000;
    t.throws(make, full, 'nor on the edge');
    clock.nowMs += 1;
    const next = make();
    t.equal(next.record.index, 1);
    t.same(standingOf(house, next.key), [0, 'active']);
    t.equal(standingOf(house, made[1]!.key), undefined);
    t.same(standingOf(house, made[2]!.key), [0, 'active']);
    t.throws(make, full, 'and full again');
    await store.close();
  },
);
