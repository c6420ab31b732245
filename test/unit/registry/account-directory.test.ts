/** The search over names, ids, plans and standing. */
import { open } from 'lmdb';
import t from 'tap';
import { asAccountIndex, asPicoUnits, asWallMs, type AccountIndex } from '#src/core/units.js';
import { AccountDirectory, type AccountFilter } from '#src/registry/account-directory.js';
import type { AccountRecord } from '#src/registry/account-record.js';
import { ChangeApplier } from '#src/registry/change-applier.js';
import { recover } from '#src/store/recovery.js';
import { Store } from '#src/store/store.js';
import { TABLE } from '#src/store/tables.js';
import { OPTIONS, storePath } from '#src/store/store-file.js';
import {
  ACCOUNTS_MAX,
  CATALOG,
  GROUPS_MAX,
  KEYS_MAX,
  ListLog,
  offlineRegistry,
  openHouse,
  StoppedClock,
} from '../store/support.js';

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

void t.test('recovery fills it, and the ChangeApplier keeps it', async (t) => {
  const { registry, ...house } = openHouse(t.testdir());
  const { store } = house;
  const capacity = { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: GROUPS_MAX };
  const credit = asPicoUnits(0n);
  registry.groups.create({ name: 'g' });
  registry.accounts.create({ name: 'one', planId: 'free', credit, group: 'g' });
  registry.accounts.create({ name: 'two', planId: 'paid', credit });
  const directory = new AccountDirectory();
  recover({ ...house, ...capacity, directory, catalog: CATALOG, log: new ListLog() });
  t.same(directory.find({}, 0, 9).found, [0, 1]);
  t.same(directory.find({ planId: 'paid' }, 0, 9).found, [1]);
  const group = store.groups.findByName('g')!.id;
  t.equal(directory.countOf(group), 1);

  const options = { store, live: house, directory, catalog: () => CATALOG, ...capacity };
  const applier = new ChangeApplier({ ...options, log: new ListLog() });
  const three = registry.accounts.create({ name: 'three', planId: 'paid', credit, group: 'g' }).record;
  registry.accounts.setActive('two', false);
  registry.accounts.setGroup('one', undefined);
  for (const slot of [0, 1, 2]) applier.applyAccount(asAccountIndex(slot));
  t.same(directory.find({ planId: 'paid', active: true }, 0, 9).found, [three.index]);
  t.equal(directory.countOf(group), 1);
  store.commit(() => store.putAccount(recordOf(ACCOUNTS_MAX)));
  applier.applyAccount(asAccountIndex(ACCOUNTS_MAX));
  t.same(directory.find({}, 0, 9).found, [0, 1, 2], 'without an account beyond limits.accounts');
  await store.close();
});

void t.test(
  'a search of a command that meets a damaged account hides no account the next time',
  async (t) => {
    const path = t.testdir();
    const before = new Store(path);
    const names = ['a', 'b', 'c'];
    const made = offlineRegistry(before, new StoppedClock());
    const ids = names.map(
      (name) => made.accounts.create({ name, planId: 'free', credit: asPicoUnits(0n) }).record.id,
    );
    await before.close();
    const root = open(storePath(path), OPTIONS);
    root.openDB('accounts', TABLE).putSync(ids.sort()[1]!, { format: 1, index: 'damaged' });
    await root.close();
    const store = new Store(path);
    const { accounts } = offlineRegistry(store, new StoppedClock());
    for (const attempt of ['first', 'second'])
      t.throws(() => accounts.search({ planId: 'free' }, 0, 10), { code: 'damaged' }, attempt);
    await store.close();
  },
);
