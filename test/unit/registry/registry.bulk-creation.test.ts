/** Many accounts in one transaction: all of them or none. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { digestOf } from '#src/registry/key-digest.js';
import { openHouse } from '../store/support.js';

const item = (name: string, keys: readonly string[] = [], credit = 0n) => ({
  name,
  planId: 'free',
  credit: asPicoUnits(credit),
  keys: keys.map((key) => ({ name: key })),
});

void t.test('accounts, credit and keys are on disk and in the words', async (t) => {
  const { registry, store, ledger, keyTable } = openHouse(t.testdir());
  const made = registry.createInBulk([item('a', ['x', 'y'], 5n), item('b'), item('c', ['x'], 7n)]);
  t.same(
    made.map(({ statement, keys }) => [statement.record.name, statement.available, keys.length]),
    [
      ['a', 5n, 2],
      ['b', 0n, 0],
      ['c', 7n, 1],
    ],
  );
  for (const { statement, keys } of made) {
    const { record } = statement;
    t.same(store.findAccount(record.id), record);
    t.equal(ledger.balance.available(record.index), record.credited);
    t.equal(ledger.isActive(record.index), true);
    for (const { key, record: keyRecord } of keys) {
      const found = keyTable.find(digestOf(key));
      t.equal(found, keyRecord.index);
      t.equal(keyTable.accountOf(keyRecord.index), record.index);
    }
  }
  await store.close();
});

void t.test('one that cannot be made is named, and leaves nothing of the others', async (t) => {
  const { registry, store, ledger } = openHouse(t.testdir());
  registry.accounts.create({ name: 'old', planId: 'free', credit: asPicoUnits(0n) });
  const wrong: [Parameters<typeof registry.createInBulk>[0], RegExp][] = [
    [[item('a'), item('old')], /^accounts\[1\]: name must be unique/],
    [[item('a'), item('a')], /^accounts\[1\]: name must be unique/],
    [[item('a', ['k', ''])], /^accounts\[0\]\.keys\[1\]: name must have 1 to 100/],
    [[{ ...item('a'), planId: 'gold' }], /^accounts\[0\]: plan must be one of/],
    [[item('a', ['1', '2', '3', '4', '5'])], /^accounts\[0\]\.keys\[4\]: limits\.keys allows 4 keys/],
    [[item('a'), item('b'), item('c'), item('d')], /^accounts\[3\]: there are 4 accounts/],
  ];
  for (const [items, message] of wrong) {
    t.throws(() => registry.createInBulk(items), { code: 'invalid_parameters', message });
    t.equal(registry.accounts.list(0, 10).items.length, 1);
    t.equal(registry.keys.list(undefined, 0, 10).items.length, 0);
  }
  t.same(registry.accounts.search({ text: 'a' }, 0, 10).items, []);
  const { index } = registry.createInBulk([item('a', ['1', '2', '3', '4'])])[0]!.statement.record;
  t.equal(index, 1, 'slots of what was undone are free');
  t.equal(ledger.isActive(index), true);
  await store.close();
});
