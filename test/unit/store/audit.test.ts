/**
 * The audit: sound books pass at every moment; each thing that can differ is named, with what it is and
 * should be.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { asBinary, open, type Database, type Key } from 'lmdb';
import t from 'tap';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { NO_USAGE } from '#src/registry/usage-report.js';
import { audit } from '#src/store/audit.js';
import { AUDITED_TABLES } from '#src/store/audit-run.js';
import { FORMAT } from '#src/store/record-codec.js';
import { storePath } from '#src/store/store-file.js';
import { Store } from '#src/store/store.js';
import { offlineRegistry, StoppedClock } from './support.js';

/** An array of msgpack that ends before its items. */
const UNDECODABLE = Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff]);
const BOUNDS = { accountsMax: 4, keysMax: 4, groupsMax: 4 };
/** Of books that a busy machine writes slowly. */
const AUDITS_MAX = 3_000;
const UNIT = 1_000_000_000_000n;

interface World {
  readonly path: string;
  readonly first: string;
  readonly second: string;
  readonly key: string;
}

/** Two accounts; the first has spent 3.00 by a key that it has and 1.00 by one that it has no more. */
async function sound(path: string): Promise<World> {
  const store = new Store(path);
  const registry = offlineRegistry(store, new StoppedClock());
  const first = registry.accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(12n * UNIT) });
  const second = registry.accounts.create({ name: 'other', planId: 'free', credit: asPicoUnits(0n) });
  registry.credits.add('acme', asPicoUnits(-2n * UNIT), 'back');
  const key = registry.keys.create({ account: 'acme', name: 'laptop' }).record;
  const gone = registry.keys.create({ account: 'acme', name: 'gone' }).record;
  registry.keys.create({ account: 'other', name: 'laptop' });
  registry.keys.delete(gone.id);
  const account = asAccountIndex(0);
  const usage = { ...NO_USAGE, account, modelId: 'small', calls: 1 };
  const cost = (units: bigint) => ({ cost: asPicoUnits(units * UNIT), uncovered: asPicoUnits(units) });
  store.commit(() =>
    store.putAccounting({
      spendings: new Map([
        [
          account,
          {
            spent: asPicoUnits(4n * UNIT),
            uncovered: asPicoUnits(4n),
            dayNumber: 20_000,
            dayCalls: 3,
            minuteUsed: 3,
            takenMs: asWallMs(1),
          },
        ],
      ]),
      usages: [
        { ...usage, hour: 1, keyId: key.id, ...cost(2n) },
        { ...usage, hour: 2, keyId: key.id, ...cost(1n) },
        { ...usage, hour: 2, keyId: gone.id, ...cost(1n) },
      ],
    }),
  );
  await store.close();
  return { path, first: first.record.id, second: second.record.id, key: key.id };
}

/** Changes rows as no run of the program would. */
async function tamper(
  path: string,
  work: (table: (name: string) => Database<unknown>) => void,
): Promise<void> {
  const root = open(storePath(path), { noSubdir: true, maxDbs: 16, overlappingSync: false });
  work((name) => root.openDB(name, {}));
  await root.close();
}

async function differencesOf(path: string): Promise<string[]> {
  const report = await audit(path, BOUNDS);
  t.equal(report.differences.length, report.differencesCount);
  return report.differences.map(
    ({ account, location, what, is, shouldBe }) => `${account}: ${what}: ${is}, not ${shouldBe}: ${location}`,
  );
}

void t.test('sound books: their sums, and nothing that differs', async (t) => {
  const { path } = await sound(t.testdir());
  const hash = (): string =>
    createHash('sha256')
      .update(readFileSync(storePath(path)))
      .digest('hex');
  const before = hash();
  t.same(await audit(path, BOUNDS), {
    path: storePath(path),
    format: FORMAT,
    accounts: 2,
    keys: 2,
    groups: 0,
    credited: 10n * UNIT,
    available: 6n * UNIT,
    spent: 4n * UNIT,
    uncovered: 4n,
    differences: [],
    differencesCount: 0,
  });
  t.equal(hash(), before, 'the file is as it was');

  const empty = t.testdir({ empty: {} });
  await new Store(join(empty, 'empty')).close();
  t.match(await audit(join(empty, 'empty'), BOUNDS), {
    accounts: 0,
    keys: 0,
    credited: 0n,
    differencesCount: 0,
  });
});

void t.test('on hosts that share, a credit of another host may be spent before it is here', async (t) => {
  const path = t.testdir();
  const store = new Store(path);
  const registry = offlineRegistry(store, new StoppedClock());
  registry.accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(2n) });
  const account = asAccountIndex(0);
  const total = { dayNumber: 20_000, dayCalls: 1, minuteUsed: 1, takenMs: asWallMs(1) };
  const amounts = { cost: asPicoUnits(3n), uncovered: asPicoUnits(0n) };
  store.commit(() =>
    store.putAccounting({
      spendings: new Map([[account, { ...total, spent: amounts.cost, uncovered: amounts.uncovered }]]),
      usages: [{ ...NO_USAGE, account, modelId: 'small', calls: 1, hour: 1, keyId: 'key_gone', ...amounts }],
    }),
  );
  const told = 'spent: 0.000000000003, not not more than was credited';
  t.match(await differencesOf(path), [new RegExp(told)], 'alone');
  store.shared.commitAgreed(() =>
    store.copy.setPosition({ epoch: 'e', version: 1, lastId: '1', history: [] }),
  );
  t.same(await differencesOf(path), []);
  store.shared.commitAgreed(() => store.copy.setPartial());
  await t.rejects(audit(path, BOUNDS), {
    code: 'unreadable',
    message: /Audit again when the gateway serves/,
  });
  await store.close();
});

interface Damage {
  readonly table: string;
  readonly row: (world: World) => Key;
  /** The row in place of `old`; undefined removes it. */
  readonly change: (old: Record<string, unknown>, world: World) => unknown;
  /** The beginning of each difference. */
  readonly told: readonly string[];
}

const DIGEST = 'a'.repeat(64);
const OPERATOR = {
  ...{ format: FORMAT, id: 'op_x', name: 'x', role: 'viewer', digest: DIGEST, active: true, createdMs: 1 },
};

const DAMAGES: readonly Damage[] = [
  {
    table: 'operators',
    row: () => DIGEST,
    change: () => ({ ...OPERATOR, role: 'nobody' }),
    told: [`null: the row: damaged, not a row of this format: record ${DIGEST} of table operators`],
  },
  {
    table: 'operators',
    row: () => 'b'.repeat(64),
    change: () => OPERATOR,
    told: [`null: the digest: ${DIGEST}, not ${'b'.repeat(64)}`],
  },
  {
    table: 'accounts',
    row: ({ first }) => first,
    change: (old) => ({ ...old, creditedPicoUnits: '11000000000000' }),
    told: ['FIRST: credited: 11.00, not 10.00: record FIRST of table accounts'],
  },
  {
    table: 'credits',
    row: () => [0, 1],
    change: (old) => ({ ...old, amountPicoUnits: '-1' }),
    told: ['FIRST: credited: 10.00, not 11.999999999999: record FIRST of table accounts'],
  },
  {
    table: 'credits',
    row: () => [0, 0],
    change: () => undefined,
    told: ['FIRST: credited: 10.00, not -2.00: record FIRST of table accounts'],
  },
  {
    table: 'spending',
    row: () => 0,
    change: (old) => ({ ...old, spentPicoUnits: '3999999999999' }),
    told: ['FIRST: spent: 3.999999999999, not 4.00: record 0 of table spending'],
  },
  {
    table: 'spending',
    row: () => 0,
    change: (old) => ({ ...old, spentPicoUnits: '10000000000001' }),
    told: [
      'FIRST: spent: 10.000000000001, not not more than was credited: record 0 of table spending',
      'FIRST: spent: 10.000000000001, not 4.00: record 0 of table spending',
    ],
  },
  {
    table: 'spending',
    row: () => 0,
    change: (old) => ({ ...old, spentPicoUnits: '-1', uncoveredPicoUnits: '-2' }),
    told: [
      'FIRST: spent: -0.000000000001, not not negative: record 0 of table spending',
      'FIRST: uncovered: -0.000000000002, not not negative: record 0 of table spending',
      'FIRST: spent: -0.000000000001, not 4.00: record 0 of table spending',
      'FIRST: uncovered: -0.000000000002, not 0.000000000004: record 0 of table spending',
    ],
  },
  {
    table: 'spending',
    row: () => 0,
    change: (old) => ({ ...old, dayCalls: -1 }),
    told: ['FIRST: the row: damaged, not a row of this format: record 0 of table spending'],
  },
  {
    table: 'spending',
    row: () => 0,
    change: () => undefined,
    told: [
      'FIRST: spent: 0.00, not 4.00: record 0 of table spending',
      'FIRST: uncovered: 0.00, not 0.000000000004: record 0 of table spending',
    ],
  },
  {
    table: 'spending',
    row: () => 3,
    change: () => ({
      format: 1,
      spentPicoUnits: '0',
      uncoveredPicoUnits: '0',
      dayNumber: 1,
      dayCalls: 1,
      minuteUsed: 1,
      takenMs: 1,
    }),
    told: ['null: the owner of slot 3: nothing, not an account: record 3 of table spending'],
  },
  {
    table: 'key_uses',
    row: () => 3,
    change: () => ({
      format: FORMAT,
      lastUsedSeconds: 1,
      minuteUsed: 0,
      dayNumber: 0,
      dayCalls: 0,
      takenMs: 1,
    }),
    told: ['null: the owner of slot 3: nothing, not a key: record 3 of table key_uses'],
  },
  {
    table: 'key_uses',
    row: () => 0,
    change: () => ({ format: FORMAT, lastUsedSeconds: 'yesterday' }),
    told: ['null: the row: damaged, not a row of this format: record 0 of table key_uses'],
  },
  {
    table: 'flushes',
    row: () => 1,
    change: () => ({ format: FORMAT, life: 'x', sequence: 5 }),
    told: ['null: the number of the flush: 5, not at most that of all, 0: record 1 of table flushes'],
  },
  {
    table: 'flushes',
    row: () => 0,
    change: () => ({ format: FORMAT, life: 7, sequence: 1 }),
    told: ['null: the row: damaged, not a row of this format: record 0 of table flushes'],
  },
  {
    table: 'usage',
    row: ({ key }) => [0, 1, key, 'small'],
    change: (old) => ({ ...old, costPicoUnits: '1', uncoveredPicoUnits: '0' }),
    told: [
      'FIRST: spent: 4.00, not 2.000000000001: record 0 of table spending',
      'FIRST: uncovered: 0.000000000004, not 0.000000000002: record 0 of table spending',
    ],
  },
  {
    table: 'usage',
    row: ({ key }) => [1, 1, key, 'small'],
    change: () => ({ ...NO_USAGE, format: 1, ...{ cost: undefined, uncovered: undefined } }),
    told: [
      'SECOND: the row: damaged, not a row of this format: record 1/1/KEY/small of table usage',
      'SECOND: the key: KEY, not a key of the account: record 1/1/KEY/small of table usage',
    ],
  },
  {
    table: 'usage',
    row: () => [2, 1, 'key_x', 'small'],
    change: () => 5,
    told: ['null: the owner of slot 2: nothing, not an account: record 2/1/key_x/small of table usage'],
  },
  {
    table: 'accounts',
    row: ({ first }) => first,
    change: () => 'five',
    told: [
      'FIRST: the row: damaged, not a row of this format: record FIRST of table accounts',
      'null: the slot of account FIRST: nothing, not 0: record 0 of table account_slots',
      'null: the name of account FIRST: nothing, not acme: record acme of table account_names',
    ],
  },
  {
    table: 'accounts',
    row: ({ second }) => second,
    change: (old) => ({ ...old, index: 0 }),
    told: [
      'SECOND: the owner of slot 0: FIRST, not SECOND: record SECOND of table accounts',
      'SECOND: credited: 0.00, not 10.00',
      'SECOND: spent: 4.00, not not more than was credited',
      'SECOND: the slot of account SECOND: 0, not 1: record 1 of table account_slots',
    ],
  },
  {
    table: 'accounts',
    row: ({ second }) => second,
    change: (old) => ({ ...old, index: 4 }),
    told: [
      'SECOND: the slot: 4, not below limits.accounts, 4: record SECOND of table accounts',
      'SECOND: the owner of slot 4: nothing, not SECOND',
      'SECOND: the slot of account SECOND: 4, not 1: record 1 of table account_slots',
    ],
  },
  {
    table: 'accounts',
    row: ({ second }) => second,
    change: (old) => ({ ...old, groupId: 'g'.repeat(5_000) }),
    told: [`SECOND: the group: ${'g'.repeat(5_000)}, not a group`, 'SECOND: the account in the list of'],
  },
  {
    table: 'account_names',
    row: () => 'acme',
    change: (_, { second }) => second,
    told: [
      'FIRST: the owner of the name acme: SECOND, not FIRST: record FIRST of table accounts',
      'SECOND: the name of account SECOND: other, not acme: record acme of table account_names',
    ],
  },
  {
    table: 'keys',
    row: ({ key }) => key,
    change: (old, { second }) => ({ ...old, accountId: second }),
    told: ['SECOND: the owner of account slot 0: FIRST, not SECOND: record KEY of table keys'],
  },
  {
    table: 'keys',
    row: ({ key }) => key,
    change: (old) => ({ ...old, index: 9 }),
    told: [
      'FIRST: the slot: 9, not below limits.keys, 4: record KEY of table keys',
      'FIRST: the slot: 9, not below the number of slots used, 3: record KEY of table keys',
      'FIRST: the owner of slot 9: nothing, not KEY',
      'FIRST: the last owner of slot 9: nothing, not KEY',
      'FIRST: the key in the list of its account: nothing, not KEY',
      'FIRST: the slot of key KEY: 9, not 0: record 0 of table key_slots',
      'FIRST: account and slot of key KEY: 0/9, not 0/0: record 0/0 of table keys_of_account',
    ],
  },
  {
    table: 'key_names',
    row: ({ key }) => ['laptop', key],
    change: () => undefined,
    told: ['FIRST: the key under the name laptop: nothing, not KEY: record KEY of table keys'],
  },
  {
    table: 'key_names',
    row: ({ key }) => ['tower', key],
    change: () => true,
    told: ['FIRST: the name of key KEY: laptop, not tower: record tower/KEY of table key_names'],
  },
  {
    table: 'key_slots_free',
    row: () => [5, 0],
    change: () => true,
    told: ['null: the owner of slot 0, which is free: KEY, not nothing: record 5/0 of table key_slots_free'],
  },
];

void t.test('each damage is told, and nothing besides', async (t) => {
  for (const [at, { table, row, change, told }] of DAMAGES.entries()) {
    const world = await sound(t.testdir());
    await tamper(world.path, (open) => {
      const rows = open(table);
      const key = row(world);
      const changed = change((rows.get(key) ?? {}) as Record<string, unknown>, world);
      if (changed === undefined) rows.removeSync(key);
      else rows.putSync(key, changed);
    });
    const found = (await differencesOf(world.path)).map((line) =>
      line.replaceAll(world.first, 'FIRST').replaceAll(world.second, 'SECOND').replaceAll(world.key, 'KEY'),
    );
    t.equal(found.length, told.length, `damage ${at} of ${table}: ${found.join('\n')}`);
    for (const wanted of told) {
      t.ok(
        found.some((line) => line.startsWith(wanted)),
        `damage ${at} of ${table}: ${wanted} in\n${found.join('\n')}`,
      );
    }
  }
});

void t.test('a key of another form is a damaged row, and hides no other', async (t) => {
  const keys: readonly Key[] = [
    ...['x', 7, -1, 0.5, Infinity, NaN, true, Symbol.for('x'), 2n ** 70n],
    ...[[0], ['x'], [0, 0], [0, 'x'], ['x', 0], [0, 1, 2], [0, 1, 'x', 2], [0, 1, 'x', 'y', 'z']],
    ...[['acct_x', 'key_x'], [0, true], [Symbol.for('x'), 0], ['x', 0, 1], ['account', 0, ''], [[0]]],
  ] as Key[];
  for (const table of AUDITED_TABLES) {
    // Of these two the audit reads single rows by their keys.
    if (table === 'meta' || table === 'key_ids') continue;
    const { path } = await sound(t.testdir());
    await tamper(path, (open) => {
      for (const key of keys) open(table).putSync(key, true);
      open('spending').putSync(0, { format: 1 });
    });
    const found = await differencesOf(path);
    t.ok(
      found.some((line) => line.endsWith('damaged, not a row of this format: record 0 of table spending')),
      `${table}: what else is damaged`,
    );
    const ofKeys = found.filter((line) => line.startsWith(`null: the key: damaged, not a key of this table`));
    t.ok(ofKeys.length >= 10 && ofKeys.every((line) => line.endsWith(` of table ${table}`)), table);
    t.equal(new Set(ofKeys).size, ofKeys.length, `${table}: each once`);
  }
});

void t.test('bytes that are no value at all are a damaged row', async (t) => {
  for (const bytes of [[0xc1], [0xde, 0xff], [], [0x81, 0xa1]]) {
    const world = await sound(t.testdir());
    const root = open(storePath(world.path), { noSubdir: true, maxDbs: 16, overlappingSync: false });
    root.openDB<Buffer, number>('spending', { encoding: 'binary' }).putSync(0, Buffer.from(bytes));
    await root.close();
    t.same(await differencesOf(world.path), [
      `${world.first}: the row: damaged, not a row of this format: record 0 of table spending`,
    ]);
  }
});

void t.test(
  'a number of slots that is no value at all is told of at each key, and hides nothing',
  async (t) => {
    const world = await sound(t.testdir());
    await tamper(world.path, (table) => {
      table('meta').putSync('key_slots_used', asBinary(UNDECODABLE));
      table('spending').putSync(0, { format: 1 });
    });
    const found = await differencesOf(world.path);
    const ofSlots = found.filter((line) => line.includes('below the number of slots used, damaged'));
    t.equal(ofSlots.length, 2, 'of both keys');
    t.ok(found.some((line) => line.endsWith('record 0 of table spending')));
  },
);

void t.test('what cannot be read is refused with the path, and not made', async (t) => {
  const folder = t.testdir({ empty: {}, foreign: {} });
  await t.rejects(audit(join(folder, 'absent'), BOUNDS), {
    code: 'unreadable',
    message: `There are no books in ${join(folder, 'absent')}`,
  });
  writeFileSync(storePath(join(folder, 'empty')), '');
  await t.rejects(audit(join(folder, 'empty'), BOUNDS), {
    code: 'damaged',
    message: `${storePath(join(folder, 'empty'))} is empty`,
  });
  const root = open(storePath(join(folder, 'foreign')), { noSubdir: true, overlappingSync: false });
  root.openDB('recipes', {}).putSync('cake', 1);
  await root.close();
  await t.rejects(audit(join(folder, 'foreign'), BOUNDS), {
    code: 'foreign',
    message: storePath(folder + '/foreign'),
  });
});

void t.test('books that are being written balance at every moment', async (t) => {
  const path = t.testdir();
  const writer = fileURLToPath(new URL('../../fixtures/books-writer.js', import.meta.url));
  const child = spawn(process.execPath, [writer, path], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.teardown(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  const seen = new Set<bigint>();
  let audits = 0;
  for (; audits < AUDITS_MAX && seen.size < 20; audits++) {
    const report = await audit(path, BOUNDS);
    if (report.differencesCount > 0) t.same(report.differences, []);
    seen.add(report.spent);
  }
  t.equal(seen.size, 20, `${seen.size} moments in ${audits} audits`);
  const closed = once(child, 'close');
  child.stdin.end();
  t.same(await closed, [0, null]);
});
