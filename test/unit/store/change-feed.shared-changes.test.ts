/** The change feed and drafts: what a change touched, and what one would write. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { Store } from '#src/store/store.js';
import { offlineRegistry, StoppedClock } from './support.js';

const none = asPicoUnits(0n);

void t.test('a change names the groups, accounts and keys that it touched, each once', async (t) => {
  const store = new Store(t.testdir());
  const registry = offlineRegistry(store, new StoppedClock());
  const { shared } = store;
  t.equal(shared.feed.newest(), 0);
  const { record } = shared.commit(() =>
    registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(7n) }),
  );
  t.equal(shared.feed.newest(), 1);
  t.same(shared.feed.since(0), { groups: [], accounts: [record.index], keys: [] });
  const key = shared.commit(() => registry.keys.create({ account: 'a', name: 'k' })).record;
  shared.commit(() => registry.keys.rotate(key.id, 0));
  shared.commit(() => registry.credits.add('a', asPicoUnits(1n), ''));
  t.same(shared.feed.since(1), { groups: [], accounts: [0], keys: [0, 1] });
  shared.commit(() => registry.keys.delete(key.id));
  t.same(shared.feed.since(4), { groups: [], accounts: [], keys: [0] }, 'the slot of a key that is gone');
  t.same(shared.feed.since(5), { groups: [], accounts: [], keys: [] });
  const group = shared.commit(() => registry.groups.create({ name: 'g' })).record;
  shared.commit(() => registry.accounts.setGroup('a', 'g'));
  t.same(shared.feed.since(5), { groups: [group.index], accounts: [0], keys: [] });
  shared.commit(() => registry.accounts.setGroup('a', undefined));
  shared.commit(() => registry.groups.delete('g'));
  t.same(shared.feed.since(8), { groups: [group.index], accounts: [], keys: [] }, 'and that of such a group');

  shared.commit(() => registry.accounts.find('a'));
  t.equal(shared.feed.newest(), 9, 'what changes nothing is no change');
  t.throws(() => shared.commit(() => registry.accounts.create({ name: 'a', planId: 'free', credit: none })));
  t.equal(shared.feed.newest(), 9, 'nor is what was refused');
  registry.accounts.setActive('a', false);
  t.equal(shared.feed.newest(), 9, 'a process that has the store alone leaves no word');
  await store.close();
});

void t.test('rows of a commit within a change that was undone are no part of the change', async (t) => {
  const store = new Store(t.testdir());
  const registry = offlineRegistry(store, new StoppedClock());
  const { shared } = store;
  const nameOf = (name: string) => ({ name, planId: 'free', credit: none });
  const work = (): void => {
    registry.accounts.create(nameOf('kept'));
    try {
      store.commit(() => {
        registry.accounts.create(nameOf('undone'));
        throw new Error('changed its mind');
      });
    } catch {
      // What the caller of a commit may do: the commit alone is undone.
    }
  };
  const tables = shared.draft(work).rows.map(({ table }) => table);
  t.same(tables, ['accounts'], 'a draft, whose rows go to other hosts');
  shared.commit(work, (rows) => t.equal(rows.length, 1));
  t.same(shared.feed.since(0)?.accounts, [store.findAccountByName('kept')?.index]);
  t.equal(store.findAccountByName('undone'), undefined);
  await store.close();
});

void t.test('changes are kept up to a bound, and who asks for older ones is told', async (t) => {
  const store = new Store(t.testdir());
  const registry = offlineRegistry(store, new StoppedClock());
  const { shared } = store;
  registry.accounts.create({ name: 'a', planId: 'free', credit: none });
  store.commit(() => {
    for (let at = 0; at < 5_000; at++) shared.commit(() => registry.accounts.setActive('a', at % 2 === 0));
  });
  t.equal(shared.feed.newest(), 5_000);
  t.same(shared.feed.since(5_000 - 4_096), { groups: [], accounts: [0], keys: [] });
  t.equal(shared.feed.since(5_000 - 4_097), undefined);
  await store.close();
});

void t.test('a draft shows what would be written and leaves nothing', async (t) => {
  const store = new Store(t.testdir());
  const registry = offlineRegistry(store, new StoppedClock());
  const { shared } = store;
  const draft = shared.draft(() => {
    const { record } = registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(7n) });
    return { record, key: registry.keys.create({ account: record.id, name: 'k' }).record };
  });
  t.same(
    draft.rows.map(({ table, key }) => [table, key]),
    [
      ['accounts', draft.result.record.id],
      ['credits', [0, 0]],
      ['meta', 'key_slots_used'],
      ['keys', draft.result.key.id],
    ],
  );
  t.match(draft.rows[0]!.value, { name: 'a', creditedPicoUnits: '7' });
  t.equal(store.findAccountByName('a'), undefined);
  t.equal(shared.feed.newest(), 0);
  t.throws(() => shared.draft(() => registry.accounts.find('a')), { code: 'not_found' });
  t.equal(registry.accounts.create({ name: 'b', planId: 'free', credit: none }).record.index, 0);
  await store.close();
});
