/** The search over names, ids, plans and standing. */
import t from 'tap';
import { asAccountIndex, asPicoUnits, asWallMs, type AccountIndex } from '#src/core/units.js';
import { AccountDirectory, type AccountFilter } from '#src/registry/account-directory.js';
import type { AccountRecord } from '#src/registry/account-record.js';
import { offlineRegistry, openHouse } from '../store/support.js';

function recordOf(index: number, more: Partial<AccountRecord> = {}): AccountRecord {
  return {
    index: asAccountIndex(index),
    id: `acct_${String(index).padStart(16, '0')}`,
    name: `name ${index}`,
    planId: 'free',
    active: true,
    createdMs: asWallMs(0),
    credited: asPicoUnits(0n),
    ...more,
  };
}

const NO_IDS: ReadonlySet<AccountIndex> = new Set();
const textual = (text: string): AccountFilter => ({ search: { text, ids: NO_IDS } });

void t.test('finds by part of the name, plan and standing, page by page', (t) => {
  const directory = new AccountDirectory();
  const names = ['Acme', 'acme two', 'Bolt', 'The ACME of all', 'Ünï'];
  names.forEach((name, index) =>
    directory.set(recordOf(index, { name, planId: index % 2 === 0 ? 'free' : 'paid', active: index !== 1 })),
  );
  t.same(directory.find({}, 0, 10), { found: [0, 1, 2, 3, 4], next: undefined });
  t.same(directory.find(textual('acme'), 0, 10), { found: [0, 1, 3], next: undefined });
  t.same(directory.find(textual('CME'), 0, 2), { found: [0, 1], next: 3 });
  t.same(directory.find(textual('CME'), 3, 2), { found: [3], next: undefined });
  t.same(directory.find(textual('ünÏ'), 0, 2), { found: [4], next: undefined });
  t.same(directory.find(textual('nobody'), 0, 2), { found: [], next: undefined });
  t.same(directory.find({ planId: 'paid', active: true }, 0, 9), { found: [3], next: undefined });
  t.same(directory.find({ ...textual('acme'), active: false }, 0, 9), { found: [1], next: undefined });
  t.same(directory.find({ search: { text: 'acct_x', ids: new Set([asAccountIndex(2)]) } }, 0, 9).found, [2]);
  t.same(directory.find({}, 5, 9), { found: [], next: undefined });

  directory.set(recordOf(1, { name: 'acme two', planId: 'free' }));
  t.same(directory.find({ ...textual('acme'), active: true }, 0, 9).found, [0, 1, 3], 'changes are seen');
  directory.set(recordOf(7, { name: 'Acme seven' }));
  t.same(directory.find({}, 4, 9), { found: [4, 7], next: undefined }, 'slots 5 and 6 are still empty');
  t.end();
});

void t.test('a search has an end', (t) => {
  const directory = new AccountDirectory();
  for (let index = 0; index < 500_001; index++) directory.set(recordOf(index));
  t.same(directory.find(textual('name 500000'), 0, 10), { found: [], next: 500_000 });
  t.same(directory.find(textual('name 500000'), 500_000, 10), { found: [500_000], next: undefined });
  t.end();
});

void t.test('the registry keeps it, with or without a gateway', async (t) => {
  const { registry, store, clock } = openHouse(t.testdir());
  const namesOf = (of: typeof registry, search: Parameters<typeof registry.accounts.search>[0]): string[] =>
    of.accounts.search(search, 0, 10).items.map(({ record }) => record.name);
  const credit = asPicoUnits(0n);
  const { id } = registry.accounts.create({ name: 'Acme', planId: 'free', credit }).record;
  t.same(namesOf(registry, { text: 'acm' }), ['Acme']);
  registry.accounts.create({ name: 'acme 2', planId: 'paid', credit });
  registry.createInBulk([{ name: 'acme 3', planId: 'paid', credit, keys: [] }]);
  t.same(namesOf(registry, { text: 'acm' }), ['Acme', 'acme 2', 'acme 3'], 'new ones are in it');
  registry.accounts.setPlan('acme 2', 'demo');
  registry.accounts.setActive('Acme', false);
  for (const of of [registry, offlineRegistry(store, clock)]) {
    t.same(namesOf(of, { planId: 'demo' }), ['acme 2']);
    t.same(namesOf(of, { active: false }), ['Acme']);
    t.same(namesOf(of, { text: id }), ['Acme']);
    t.same(namesOf(of, { text: id.slice(0, -1).toUpperCase() }), ['Acme']);
    t.same(namesOf(of, { text: 'acct_' }), [], 'the beginning that all have finds none');
  }
  await store.close();
});
