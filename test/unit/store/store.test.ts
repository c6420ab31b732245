import { statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { open } from 'lmdb';
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import type { AccountRecord } from '#src/registry/account-record.js';
import type { KeyRecord } from '#src/registry/key-record.js';
import { FORMAT } from '#src/store/record-codec.js';
import { Store } from '#src/store/store.js';
import { storePath } from '#src/store/store-file.js';

function account(index: number): AccountRecord {
  return {
    index: asAccountIndex(index),
    id: `acct_${index}`,
    name: `name ${index} ü`,
    planId: 'free',
    active: index % 2 === 0,
    createdMs: asWallMs(1_700_000_000_000 + index),
    // Beyond 2^53 and near the largest balance, so that a lossy number would show.
    credited: asPicoUnits(8_999_999_999_999_999_999n - BigInt(index)),
  };
}

function key(index: number, accountIndex: number, name: string): KeyRecord {
  return {
    index: asKeyIndex(index),
    id: `key_${index}`,
    accountIndex: asAccountIndex(accountIndex),
    accountId: `acct_${accountIndex}`,
    name,
    digest: Buffer.alloc(32, index + 1),
    prefix: 'sk-abcd',
    active: true,
    createdMs: asWallMs(5),
    expiresSeconds: undefined,
    limits: NO_QUOTAS,
    replacedById: undefined,
  };
}

const spending = {
  spent: asPicoUnits(9_007_199_254_740_993n),
  uncovered: asPicoUnits(1n),
  dayNumber: 20_000,
  dayCalls: 7,
  minuteUsed: 3,
  takenMs: asWallMs(1_700_000_000_000),
};

void t.test('what was committed is there after closing and opening', async (t) => {
  const path = join(t.testdir(), 'made', 'data');
  let store = new Store(path);
  store.commit(() => {
    store.putAccount(account(0));
    store.addCredit(asAccountIndex(0), { amount: asPicoUnits(5n), note: 'a', createdMs: asWallMs(1) });
    store.addCredit(asAccountIndex(0), { amount: asPicoUnits(-2n), note: 'b', createdMs: asWallMs(2) });
    store.keys.put(key(0, 0, 'laptop'));
  });
  store.commit(() =>
    store.putAccounting({ spendings: new Map([[asAccountIndex(0), spending]]), usages: [] }),
  );
  await store.close();
  t.equal(statSync(path).mode & 0o777, 0o700, 'the folder is its owner’s');
  t.equal(statSync(storePath(path)).mode & 0o777, 0o600, 'the file is its owner’s');

  store = new Store(path);
  t.same(store.findAccount('acct_0'), account(0));
  t.same(store.findAccountByName(account(0).name), account(0));
  t.same(
    store.listCredits(asAccountIndex(0), 0, 1_000).items.map(({ amount, note }) => [amount, note]),
    [
      [5n, 'a'],
      [-2n, 'b'],
    ],
  );
  t.same(store.keys.find('key_0'), key(0, 0, 'laptop'));
  t.same(store.findSpending(asAccountIndex(0)), spending);
  t.equal(store.findSpending(asAccountIndex(1)), undefined);
  t.equal(store.findAccount('acct_1'), undefined);
  await store.close();
});

void t.test('a throw undoes the whole commit', async (t) => {
  const store = new Store(t.testdir());
  const work = (): never => {
    store.putAccount(account(0));
    throw new Error('no');
  };
  t.throws(() => store.commit(work), { message: 'no' });
  t.equal(store.findAccount('acct_0'), undefined);
  t.equal(store.freeAccountIndex(), 0);
  await store.close();
});

void t.test('pages join to the whole list, at every size', async (t) => {
  const store = new Store(t.testdir());
  store.commit(() => {
    for (let index = 0; index < 12; index++) {
      store.putAccount(account(index));
      store.keys.put(key(index, index % 2, 'same'));
    }
  });
  for (let limit = 1; limit <= 13; limit++) {
    for (const list of [
      (from: number) => store.listAccounts(from, limit),
      (from: number) => store.keys.list(undefined, from, limit),
    ]) {
      const found: number[] = [];
      let from: number | undefined = 0;
      while (from !== undefined) {
        const page: { items: readonly { index: number }[]; next: number | undefined } = list(from);
        t.ok(page.items.length <= limit && page.items.length > 0);
        found.push(...page.items.map(({ index }) => index));
        from = page.next;
      }
      t.same(found, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }
  }
  const odd = store.keys.list(asAccountIndex(1), 0, 4);
  t.same(
    odd.items.map(({ index }) => index),
    [1, 3, 5, 7],
  );
  t.equal(odd.next, 9);
  t.same(
    store.keys.list(asAccountIndex(1), 9, 4).items.map(({ index }) => index),
    [9, 11],
  );
  t.equal([...store.keys.eachOfName('same')].length, 12);
  t.same([...store.keys.eachOfName('sam')], []);
  await store.close();
});

void t.test('a deleted key leaves no trace but its slot, which rests before it is used again', async (t) => {
  const store = new Store(t.testdir());
  const take = (restedMs: number) =>
    store.commit(() => store.keys.takeIndexes(1, asWallMs(restedMs), 100)[0]);
  t.equal(take(0), 0);
  t.equal(take(0), 1);
  store.commit(() => {
    store.keys.put(key(0, 0, 'gone'));
    store.keys.remove(key(0, 0, 'gone'), asWallMs(100));
  });
  t.equal(store.keys.find('key_0'), undefined);
  t.same([...store.keys.eachOfName('gone')], []);
  t.same(store.keys.list(undefined, 0, 9).items, []);
  t.same(store.keys.list(asAccountIndex(0), 0, 9).items, []);
  t.equal(take(100), 2, 'not at once');
  t.equal(take(101), 0, 'after its rest');
  t.equal(take(999), 3, 'and not twice');
  store.commit(() => {
    store.keys.remove(key(1, 0, 'a'), asWallMs(300));
    store.keys.remove(key(3, 0, 'b'), asWallMs(200));
    store.keys.remove(key(0, 0, 'c'), asWallMs(400));
  });
  const takeMany = (count: number, slotsMax = 100) =>
    store.commit(() => store.keys.takeIndexes(count, asWallMs(400), slotsMax));
  t.same(takeMany(0), []);
  t.same(takeMany(4), [3, 1, 4, 5], 'longest unused first, then such as were never used');
  t.equal(take(401), 0);
  store.commit(() => {
    store.keys.remove(key(3, 0, 'd'), asWallMs(100));
    store.keys.remove(key(1, 0, 'e'), asWallMs(200));
  });
  t.same(takeMany(2, 3), [1, 6], 'a free slot beyond the limit is passed over');
  t.same(takeMany(1), [3], 'and stays free');
  await store.close();
});

void t.test('what is not a store of ours refuses to open, with the path and what to do', async (t) => {
  const expectRefusal = (path: string, code: string) => {
    t.throws(() => new Store(path), { code, message: storePath(path) });
    t.throws(() => new Store(path), { message: /Move the file away|another folder/ });
  };

  const garbage = t.testdir({ short: {}, long: {}, half: {}, other: {}, newer: {}, formless: {}, empty: {} });
  writeFileSync(storePath(join(garbage, 'short')), 'x');
  expectRefusal(join(garbage, 'short'), 'foreign');
  writeFileSync(storePath(join(garbage, 'long')), Buffer.alloc(20_000, 'garbage'));
  expectRefusal(join(garbage, 'long'), 'foreign');

  await new Store(join(garbage, 'half')).close();
  truncateSync(storePath(join(garbage, 'half')), 4096);
  expectRefusal(join(garbage, 'half'), 'foreign');

  const write = async (folder: string, table: string, entryKey: string, value: unknown) => {
    const root = open(storePath(join(garbage, folder)), { noSubdir: true });
    root.openDB({ name: table }).putSync(entryKey, value);
    await root.close();
  };
  await write('other', 'recipes', 'cake', 1);
  expectRefusal(join(garbage, 'other'), 'foreign');
  await write('newer', 'meta', 'format', FORMAT + 1);
  expectRefusal(join(garbage, 'newer'), 'newer');
  await write('formless', 'meta', 'format', 'one');
  expectRefusal(join(garbage, 'formless'), 'foreign');

  writeFileSync(storePath(join(garbage, 'empty')), '');
  t.throws(() => new Store(join(garbage, 'empty')), { code: 'damaged', message: /is empty: the books/ });
  t.throws(() => new Store(join(garbage, 'short', 'tollgate.lmdb', 'data')), { code: 'unreadable' });
});

void t.test('a damaged record is named and never guessed at', async (t) => {
  const path = t.testdir();
  const store = new Store(path);
  store.commit(() => store.putAccount(account(0)));
  await store.close();
  // Within a process LMDB has one environment a file, and its first opening says how many tables it can have.
  const root = open(storePath(path), { noSubdir: true, maxDbs: 32 });
  const table = root.openDB<Record<string, unknown>, string>({ name: 'accounts' });
  const good = table.get('acct_0')!;
  for (const bad of [
    { ...good, creditedPicoUnits: '1.5' },
    { ...good, index: -1 },
    { ...good, extra: 1 },
    5,
  ]) {
    table.putSync('acct_0', bad as Record<string, unknown>);
    const reopened = new Store(path);
    t.throws(() => reopened.findAccount('acct_0'), { code: 'damaged', message: /acct_0 of table accounts/ });
    await reopened.close();
  }
  await root.close();
});

void t.test('rows are written in a transaction, or not at all', async (t) => {
  const store = new Store(t.testdir());
  const writes: Readonly<Record<string, () => unknown>> = {
    put: () => store.putAccount(account(1)),
    'put to a table that is recorded': () => store.keys.put(key(1, 0, 'x')),
    remove: () => store.keys.removeWithoutFreeing(key(0, 0, 'laptop')),
    clear: () => store.answers.clear(),
  };
  store.commit(() => {
    store.putAccount(account(0));
    store.keys.put(key(0, 0, 'laptop'));
  });
  const assertGuarded = (): void => {
    for (const [name, write] of Object.entries(writes))
      t.throws(write, { message: /^invariant broken: rows (of the registry )?are written/ }, name);
  };
  assertGuarded();
  t.throws(() =>
    store.commit(() => {
      store.commit(() => store.putAccount(account(1)));
      for (const write of Object.values(writes)) write();
      throw new Error('undone');
    }),
  );
  assertGuarded();
  t.equal(store.findAccount('acct_1'), undefined);
  t.match(store.keys.find('key_0'), { name: 'laptop' });
  await store.close();
});

void t.test('a damaged slot keeps no charge from the disk', async (t) => {
  const path = t.testdir();
  let store = new Store(path);
  store.commit(() => {
    store.putAccount(account(0));
    store.keys.put(key(0, 0, 'laptop'));
  });
  await store.close();
  const root = open(storePath(path), { noSubdir: true, maxDbs: 32, overlappingSync: false });
  root.openDB('key_slots', {}).putSync(0, 7);
  await root.close();
  store = new Store(path);
  const use = {
    ...{ minuteRequests: 0, callDayNumber: 0, callsPerDay: 0, takenMs: asWallMs(5), minuteTokens: 0 },
    ...{ dayNumber: 20_000, monthNumber: 660, tokensPerDay: 1, callsPerMonth: 1, tokensPerMonth: 1 },
    ...{ spendPerDay: 1, spendPerMonth: 1 },
  };
  const scope = { kind: 'key', index: asKeyIndex(0) } as const;
  const spendings = new Map([[asAccountIndex(0), spending]]);
  store.commit(() => store.putAccounting({ spendings, usages: [], quotaUses: [[scope, use]] }));
  t.same(store.findSpending(asAccountIndex(0)), spending);
  t.equal(store.quotaUses.find(scope), undefined, 'nobody is known to have the slot');
  await store.close();
});
