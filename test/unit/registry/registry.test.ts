/**
 * Accounts: made, found, listed, moved, disabled; on disk, and in the shared words the moment a call returns.
 */
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import type { Registry } from '#src/registry/registry.js';
import { ACCOUNTS_MAX, CATALOG, offlineRegistry, openHouse } from '../store/support.js';

const money = asPicoUnits(5_000_000_000_000n);
const none = asPicoUnits(0n);
const refused = (message: RegExp) => ({ code: 'invalid_parameters', message });

void t.test('a new account can be had by id and by name, and is in the ledger', async (t) => {
  const { registry, ledger, store, clock } = openHouse(t.testdir());
  const made = registry.accounts.create({ name: 'acme', planId: 'paid', credit: money });
  const { record } = made;
  t.match(record.id, /^acct_.{16}$/);
  t.match(made, {
    available: money,
    held: 0n,
    spent: 0n,
    uncovered: 0n,
    callsToday: 0,
    requestsThisMinute: 0,
  });
  t.match(record, { index: 0, name: 'acme', planId: 'paid', active: true, credited: money });
  t.equal(record.createdMs, clock.nowMs);
  t.same(registry.accounts.find(record.id), made);
  t.same(registry.accounts.find('acme'), made);
  t.same(store.findAccount(record.id), record, 'on disk');

  t.equal(ledger.isActive(record.index), true);
  t.equal(ledger.planIndexOf(record.index), 1);
  t.equal(ledger.balance.available(record.index), money);
  t.same(
    store.listCredits(record.index, 0, 1_000).items.map(({ amount, note }) => [amount, note]),
    [[money, 'opening balance']],
  );
  const poor = registry.accounts.create({ name: 'poor', planId: 'free', credit: none });
  t.same(store.listCredits(poor.record.index, 0, 1_000).items, [], 'no line for nothing');
  await store.close();
});

void t.test('what cannot be an account leaves no trace', async (t) => {
  const { registry, ledger, store } = openHouse(t.testdir());
  const { record } = registry.accounts.create({ name: 'acme', planId: 'free', credit: none });
  const wrong: [Parameters<Registry['accounts']['create']>[0], RegExp][] = [
    [
      { name: 'acme', planId: 'free', credit: none },
      new RegExp(`^name must be unique, and ${record.id} is named acme`),
    ],
    [{ name: '', planId: 'free', credit: none }, /^name must have 1 to 100/],
    [{ name: record.id, planId: 'free', credit: none }, /^name must not have the form of an id/],
    [{ name: 'x', planId: 'gold', credit: none }, /^plan must be one of .*\(free, paid, demo\), got gold$/],
    [
      { name: 'x', planId: 'free', credit: asPicoUnits(-1n) },
      /^credit must not be negative, got -0\.000000000001$/,
    ],
  ];
  for (const [request, message] of wrong) {
    t.throws(() => registry.accounts.create(request), refused(message), JSON.stringify(request.name));
  }
  t.equal(registry.accounts.list(0, 10).items.length, 1);
  t.equal(ledger.isActive(asAccountIndex(1)), false);
  for (const word of ['nobody', 'acct_0000000000000000', 'key_0000000000000000', '', 'ACME']) {
    t.throws(
      () => registry.accounts.find(word),
      { code: 'not_found', message: /^there is no account/ },
      word,
    );
  }
  await store.close();
});

void t.test('as many accounts as the ledger has slots, and not one more', async (t) => {
  const { registry, store } = openHouse(t.testdir());
  for (let at = 0; at < ACCOUNTS_MAX; at++) {
    const { record } = registry.accounts.create({ name: `a${at}`, planId: 'free', credit: none });
    t.equal(record.index, at);
  }
  t.throws(
    () => registry.accounts.create({ name: 'late', planId: 'free', credit: none }),
    refused(/^there are 4 accounts, the most that limits\.accounts allows/),
  );
  for (let limit = 1; limit <= ACCOUNTS_MAX + 1; limit++) {
    const names: string[] = [];
    let from: number | undefined = 0;
    while (from !== undefined) {
      const page: ReturnType<Registry['accounts']['list']> = registry.accounts.list(from, limit);
      t.ok(page.items.length <= limit);
      names.push(...page.items.map(({ record }) => record.name));
      from = page.next;
    }
    t.same(names, ['a0', 'a1', 'a2', 'a3'], `pages of ${limit}`);
  }
  await store.close();
});

void t.test('plan and standing change on disk and in the words at once', async (t) => {
  const { registry, ledger, store } = openHouse(t.testdir());
  const { record } = registry.accounts.create({ name: 'acme', planId: 'free', credit: none });
  const seen = (): object => ({
    live: [ledger.planIndexOf(record.index), ledger.isActive(record.index)],
    disk: [store.findAccount(record.id)?.planId, store.findAccount(record.id)?.active],
  });
  t.equal(registry.accounts.setPlan('acme', 'paid').record.planId, 'paid');
  t.same(seen(), { live: [1, true], disk: ['paid', true] });
  t.equal(registry.accounts.setActive(record.id, false).record.active, false);
  t.same(seen(), { live: [1, false], disk: ['paid', false] });
  registry.accounts.setActive('acme', false);
  registry.accounts.setPlan('acme', 'free');
  t.same(seen(), { live: [0, false], disk: ['free', false] }, 'a new plan does not enable');
  registry.accounts.setActive('acme', true);
  t.same(seen(), { live: [0, true], disk: ['free', true] });

  t.throws(() => registry.accounts.setPlan('acme', 'gold'), refused(/^plan must be one of/));
  t.throws(() => registry.accounts.setPlan('nobody', 'paid'), { code: 'not_found' });
  t.throws(() => registry.accounts.setActive('nobody', false), { code: 'not_found' });
  t.same(seen(), { live: [0, true], disk: ['free', true] });
  await store.close();
});

void t.test(
  'without its plan an account stays disabled, whatever is enabled, until it has one',
  async (t) => {
    const house = openHouse(t.testdir(), { ...CATALOG, plans: CATALOG.plans.slice(0, 2) });
    const { registry, ledger, store, clock } = house;
    // Made under settings that had the plan.
    const { record } = offlineRegistry(store, clock).accounts.create({
      name: 'old',
      planId: 'demo',
      credit: none,
    });
    registry.accounts.setActive('old', true);
    t.equal(ledger.isActive(record.index), false);
    t.equal(registry.accounts.find('old').record.active, true, 'the operator’s word is kept');
    registry.accounts.setPlan('old', 'paid');
    t.equal(ledger.isActive(record.index), true);
    await store.close();
  },
);

void t.test('the demo account is made once, and only where there is none', async (t) => {
  const { registry, ledger, store } = openHouse(t.testdir());
  const first = registry.ensureDemo();
  t.match(first.key, /^sk-[A-Za-z0-9_-]{43}$/);
  const demo = registry.accounts.find('demo');
  t.equal(demo.record.id, first.accountId);
  t.equal(demo.record.planId, 'demo');
  t.equal(demo.available, 100_000_000_000_000n);
  t.equal(ledger.isActive(demo.record.index), true);
  t.equal(registry.keys.list('demo', 0, 10).items.length, 1);
  t.same(registry.ensureDemo(), { accountId: first.accountId, key: undefined });
  t.equal(registry.keys.list(undefined, 0, 10).items.length, 1, 'nor is a second key made');
  await store.close();

  const other = openHouse(t.testdir());
  other.registry.accounts.create({ name: 'acme', planId: 'free', credit: none });
  t.same(other.registry.ensureDemo(), { accountId: undefined, key: undefined });
  t.equal(other.registry.accounts.list(0, 10).items.length, 1);
  await other.store.close();
});
