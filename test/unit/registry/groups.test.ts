/** Groups: the tree, its accounts, limits, and what of them is on disk. */
import t from 'tap';
import { GROUP_DEPTH_MAX } from '#src/core/limits.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asPicoUnits } from '#src/core/units.js';
import { AccountDirectory } from '#src/registry/account-directory.js';
import { StoreOnly } from '#src/registry/registry-context.js';
import { SharedUses } from '#src/registry/shared-uses.js';
import { Registry } from '#src/registry/registry.js';
import { audit } from '#src/store/audit.js';
import { Store } from '#src/store/store.js';
import { CATALOG, offlineRegistry, openHouse, StoppedClock } from '../store/support.js';
import { newSeed } from '../../support/random.js';

const DAY_MS = 24 * 3_600_000;
const none = asPicoUnits(0n);

void t.test('a tree: made, listed, limited, found again after a restart', async (t) => {
  const path = t.testdir();
  const house = openHouse(path);
  const { groups, accounts } = house.registry;
  const limits = { spendPerMonth: asPicoUnits(5n), tokensPerDay: 100 };
  const top = groups.create({ name: 'firm', limits });
  t.match(top.record, { id: /^grp_[0-9a-z]{16}$/, index: 0, parentId: undefined });
  t.same(top.record.limits, { ...NO_QUOTAS, ...limits });
  t.same([top.path, top.accounts, top.groups], [['firm'], 0, 0]);
  groups.create({ name: 'research', parent: 'firm' });
  const deep = groups.create({ name: 'alpha', parent: 'research' });
  groups.create({ name: 'beta', parent: 'research' });
  groups.create({ name: 'another' });
  t.same(deep.path, ['firm', 'research', 'alpha']);
  const account = accounts.create({ name: 'acme', planId: 'free', credit: none, group: 'alpha' });
  t.same(account.group, { id: deep.record.id, name: 'alpha', path: ['firm', 'research', 'alpha'] });
  t.equal(groups.find('alpha').accounts, 1);
  t.same([groups.find('research').accounts, groups.find('research').groups], [0, 2]);

  const namesIn = (page: { items: readonly { record: { name: string } }[] }): string[] =>
    page.items.map(({ record }) => record.name);
  t.same(namesIn(groups.list(undefined, 0, 9)), ['firm', 'research', 'alpha', 'beta', 'another']);
  t.same(namesIn(groups.list('research', 0, 1)), ['alpha']);
  t.same(namesIn(groups.list('research', groups.list('research', 0, 1).next!, 1)), ['beta']);
  t.same(namesIn(groups.tree(undefined, 0, 3)), ['another', 'firm', 'research']);
  t.same(namesIn(groups.tree(undefined, groups.tree(undefined, 0, 3).next!, 3)), ['alpha', 'beta']);
  t.same(namesIn(groups.tree('research', 0, 9)), ['research', 'alpha', 'beta']);
  const found = (group: string): string[] => namesIn(accounts.search({ group }, 0, 9));
  t.same([found('firm'), found('alpha'), found('beta')], [['acme'], ['acme'], []]);

  const other = accounts.create({ name: 'other', planId: 'free', credit: none, group: 'firm' });
  const outside = accounts.create({ name: 'outside', planId: 'free', credit: none });
  const asked = [account, other, outside].map(({ record }) => record.id);
  for (const [group, isIn] of Object.entries({
    firm: [true, true, false],
    research: [true, false, false],
    beta: [false, false, false],
  })) {
    for (const limit of [0, 1, 2, 3]) {
      const members = groups.membersOf(group, limit);
      const ids = asked.filter((_, at) => isIn[at]);
      t.same(members.ids?.toSorted(), ids.length <= limit ? ids.toSorted() : undefined, `${group}, ${limit}`);
      // Twice, because a look is remembered.
      for (let time = 0; time < 2; time++) t.same(asked.map(members.has), isIn);
      t.equal(members.has('acct_0123456789abcdef'), false, 'a deleted one');
    }
  }

  const changed = groups.setLimits('firm', { tokensPerDay: undefined, callsInFlight: 3 });
  t.same(changed.record.limits, { ...NO_QUOTAS, spendPerMonth: 5n, callsInFlight: 3 });
  accounts.setGroup('acme', 'beta');
  t.same([groups.find('alpha').accounts, groups.find('beta').accounts], [0, 1]);
  await house.store.close();

  const store = new Store(path);
  const after = offlineRegistry(store, new StoppedClock());
  t.same(after.groups.find('firm').record, changed.record);
  t.equal(after.accounts.find('acme').group?.name, 'beta');
  after.accounts.setGroup('acme', undefined);
  t.equal(after.accounts.find('acme').group, undefined);
  t.same(store.groups.accountsOf(after.groups.recordOf('beta').id, 1), []);
  await store.close();
});

void t.test('what is refused', async (t) => {
  const { registry, store, clock } = openHouse(t.testdir());
  const { groups, accounts } = registry;
  const refused = (work: () => unknown, code: string, message: RegExp): void => {
    t.throws(work, { code, message });
  };
  for (const [at, name] of ['a', 'b', 'c', 'd'].entries())
    groups.create({ name, ...(at === 0 ? {} : { parent: 'abcd'[at - 1]! }) });
  refused(
    () => groups.create({ name: 'e', parent: 'd' }),
    'invalid_parameters',
    /at most 3 deep.* d is 4 deep/,
  );
  refused(() => groups.create({ name: 'a' }), 'invalid_parameters', /must be unique, and grp_/);
  refused(() => groups.create({ name: '' }), 'invalid_parameters', /^name must have/);
  refused(() => groups.create({ name: 'x', parent: 'y' }), 'not_found', /no group y/);
  refused(() => groups.find('sk-' + 'a'.repeat(43)), 'invalid_parameters', /^(?!.*sk-).*API key/);
  refused(() => groups.delete('a'), 'conflict', /other groups/);
  accounts.create({ name: 'acme', planId: 'free', credit: none, group: 'd' });
  refused(() => groups.delete('d'), 'conflict', /accounts/);
  refused(() => accounts.setGroup('acme', 'nobody'), 'not_found', /no group nobody/);
  accounts.setGroup('acme', undefined);
  const { index } = groups.delete('d');
  refused(() => groups.find('d'), 'not_found', /no group d/);

  // Its slot rests for a day.
  for (const name of ['e', 'f', 'g', 'h']) t.not(groups.create({ name }).record.index, index);
  refused(() => groups.create({ name: 'i' }), 'invalid_parameters', /limits.groups allows 8 groups/);
  clock.nowMs += DAY_MS + 1;
  t.equal(groups.create({ name: 'i' }).record.index, index);
  await store.close();
});

void t.test('slots beyond a limit that was lowered keep no group from being made', async (t) => {
  const path = t.testdir();
  const store = new Store(path);
  const clock = new StoppedClock();
  const live = new StoreOnly(store);
  const bounds = { accountsMax: 9, keysMax: 9, groupsMax: 99 };
  const before = new Registry({ store, catalog: CATALOG, clock, live, ...bounds });
  const names = Array.from({ length: 9 }, (_, at) => `g${at}`);
  for (const name of names) before.groups.create({ name });
  for (const name of names.toReversed()) {
    before.groups.delete(name);
    clock.nowMs += 1;
  }
  await store.close();
  const house = openHouse(path);
  house.clock.nowMs += 2 * DAY_MS;
  t.equal(house.registry.groups.create({ name: 'a' }).record.index, 7, 'the 9th is passed over');
  await house.store.close();
});

void t.test('rows that are damaged or missing: the tree ends, and accounts are listed', async (t) => {
  const { registry, store } = openHouse(t.testdir());
  const { groups, accounts } = registry;
  const top = groups.create({ name: 'a' }).record;
  const below = groups.create({ name: 'b', parent: 'a' }).record;
  store.commit(() => store.groups.put({ ...top, parentId: below.id }));
  t.same(
    groups.tree('b', 0, 9).items.map(({ record }) => record.name),
    ['b', 'a'],
  );
  const lost = groups.create({ name: 'c' }).record;
  accounts.create({ name: 'acme', planId: 'free', credit: none, group: 'c' });
  accounts.create({ name: 'other', planId: 'free', credit: none });
  store.commit(() => store.groups.removeWithoutFreeing(lost));
  t.match(accounts.search({}, 0, 9).items, [
    { record: { name: 'acme' }, group: { id: lost.id, name: lost.id, path: [lost.id] } },
    { record: { name: 'other' } },
  ]);
  await store.close();
});

void t.test('random trees: never deeper than allowed, no circle, and the audit agrees', async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  let state = seed | 1;
  const random = (below: number): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
  const path = t.testdir();
  const store = new Store(path);
  const bounds = { accountsMax: 20, keysMax: 4, groupsMax: 40 };
  const live = new StoreOnly(store);
  const { groups, accounts } = new Registry({
    store,
    catalog: CATALOG,
    clock: new StoppedClock(),
    ...bounds,
    live,
  });
  // What must come out, kept apart: the parent of each group, and the group of each account.
  const parents = new Map<string, string | undefined>();
  const homes = new Map<string, string | undefined>();
  const depthOf = (name: string | undefined): number =>
    name === undefined ? 0 : 1 + depthOf(parents.get(name));
  const some = (names: Iterable<string>): string | undefined => {
    const all = [...names];
    return all.length === 0 || random(4) === 0 ? undefined : all[random(all.length)];
  };
  let [made, refusals, deleted] = [0, 0, 0];
  for (let step = 0; step < 400; step++) {
    const kind = random(10);
    if (kind < 3) {
      const [name, parent] = [`g${step}`, some(parents.keys())];
      const allowed = depthOf(parent) < GROUP_DEPTH_MAX && parents.size + deleted < bounds.groupsMax;
      try {
        groups.create({ name, parent });
        t.ok(allowed, `${name} in ${parent} may be`);
        parents.set(name, parent);
        made++;
      } catch {
        t.notOk(allowed, `${name} in ${parent} may not be`);
        refusals++;
      }
    } else if (kind < 5 && homes.size < bounds.accountsMax) {
      const [name, group] = [`a${step}`, some(parents.keys())];
      accounts.create({ name, planId: 'free', credit: none, group });
      homes.set(name, group);
    } else if (kind < 8) {
      const [name, group] = [some(homes.keys()), some(parents.keys())];
      if (name === undefined) continue;
      accounts.setGroup(name, group);
      homes.set(name, group);
    } else {
      const name = some(parents.keys());
      if (name === undefined) continue;
      const isEmpty = ![...parents.values(), ...homes.values()].includes(name);
      try {
        groups.delete(name);
        t.ok(isEmpty, `${name} was empty`);
        parents.delete(name);
        deleted++;
      } catch {
        t.notOk(isEmpty, `${name} was not empty`);
        refusals++;
      }
    }
  }
  t.ok(made > 10 && refusals > 10 && deleted > 0, `${made} made, ${refusals} refused, ${deleted} deleted`);
  for (const [name, parent] of parents) {
    const { path: names, accounts: count, groups: below } = groups.find(name);
    t.equal(names.length, depthOf(name));
    t.equal(names.at(-2), parent);
    t.equal(count, [...homes.values()].filter((home) => home === name).length);
    t.equal(below, [...parents.values()].filter((above) => above === name).length);
  }
  for (const [name, home] of homes) t.equal(accounts.find(name).group?.name, home);
  t.equal(groups.tree(undefined, 0, 100).items.length, parents.size);
  await store.close();
  t.match(await audit(path, bounds), { groups: parents.size, differences: [] });
});

void t.test('quotas that the ledger has no room to count are refused, and nothing is written', async (t) => {
  const house = openHouse(t.testdir(), CATALOG, 2);
  const { groups, keys, accounts } = house.registry;
  const limits = { tokensPerDay: 100 };
  accounts.create({ name: 'acme', planId: 'free', credit: none });
  keys.create({ account: 'acme', name: 'counted', limits });
  const { id } = keys.create({ account: 'acme', name: 'free' }).record;
  groups.create({ name: 'counted', limits });
  groups.create({ name: 'free', limits: { requestsPerMinute: 1, callsPerDay: 1 } });
  const rejection = { code: 'invalid_parameters', message: /cannot be counted/ };
  t.throws(() => groups.create({ name: 'other', limits }), rejection);
  t.throws(() => groups.find('other'), { code: 'not_found' });
  t.throws(() => groups.setLimits('free', limits), rejection);
  t.throws(() => keys.setLimits(id, limits), rejection);
  t.throws(() => keys.create({ account: 'acme', name: 'other', limits }), rejection);
  t.equal(groups.find('free').record.limits.tokensPerDay, undefined);
  groups.setLimits('counted', { tokensPerDay: 50 });
  groups.setLimits('free', { callsPerDay: 2 });
  await house.store.close();
});

void t.test('one of several processes refuses the same', async (t) => {
  const { store, clock, ledger } = openHouse(t.testdir(), CATALOG, 1);
  const live = new SharedUses(store, new AccountDirectory(), undefined, ledger);
  const bounds = { accountsMax: 4, keysMax: 4, groupsMax: 8 };
  const { groups } = new Registry({ store, catalog: CATALOG, clock, ...bounds, live });
  const limits = { tokensPerDay: 100 };
  const { index } = groups.create({ name: 'counted', limits }).record;
  groups.create({ name: 'free' });
  // As the ChangeApplier does it.
  ledger.groups.open(index, limits);
  const rejection = { code: 'invalid_parameters', message: /cannot be counted/ };
  t.throws(() => groups.setLimits('free', limits), rejection);
  t.throws(() => groups.create({ name: 'other', limits }), rejection);
  t.equal(groups.find('free').record.limits.tokensPerDay, undefined);
  groups.setLimits('counted', { tokensPerDay: 50 });
  await store.close();
});
