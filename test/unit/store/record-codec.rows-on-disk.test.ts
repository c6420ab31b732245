/**
 * Rows as they are on disk, word for word: what is written now is so, and rows of format 4 are read so. What
 * would be damaged on disk is not written.
 */
import { open } from 'lmdb';
import t from 'tap';
import { NO_QUOTAS } from '#src/core/quotas.js';
import {
  asAccountIndex,
  asGroupIndex,
  asKeyIndex,
  asPicoUnits,
  asWallMs,
  type PicoUnits,
} from '#src/core/units.js';
import { NO_USAGE } from '#src/registry/usage-report.js';
import { audit } from '#src/store/audit.js';
import { FORMAT, rowErrorOf } from '#src/store/record-codec.js';
import { Store } from '#src/store/store.js';
import { OPTIONS, storePath } from '#src/store/store-file.js';
import { TABLE } from '#src/store/tables.js';

const DIGEST = 'ab'.repeat(32);
const NOW = asWallMs(1_700_000_000_000);
const pico = (amount: bigint): PicoUnits => asPicoUnits(amount);
const account = asAccountIndex(0);
const keyIndex = asKeyIndex(0);
const group = asGroupIndex(1);

const SETTLED = {
  minuteTokens: 3,
  dayNumber: 20_000,
  monthNumber: 660,
  tokensPerDay: 5,
  callsPerMonth: 6,
  tokensPerMonth: 7,
  spendPerDay: 8,
  spendPerMonth: 9,
};
const LIMITS = {
  ...NO_QUOTAS,
  requestsPerMinute: 1,
  callsPerDay: 2,
  tokensPerMinute: 3,
  callsInFlight: 4,
  tokensPerDay: 5,
  callsPerMonth: 6,
  tokensPerMonth: 7,
  spendPerDay: pico(8n),
  spendPerMonth: pico(9n),
};
const STORED_LIMITS = {
  requestsPerMinute: 1,
  callsPerDay: 2,
  tokensPerMinute: 3,
  callsInFlight: 4,
  tokensPerDay: 5,
  callsPerMonth: 6,
  tokensPerMonth: 7,
  spendPerDayPicoUnits: '8',
  spendPerMonthPicoUnits: '9',
};

type Fields = Readonly<Record<string, unknown>>;

interface Kind {
  readonly table: string;
  readonly key: string | number | (string | number)[];
  readonly record: Fields;
  /** The row, besides its format. */
  readonly row: Fields;
  readonly put: (store: Store, record: never) => void;
  readonly find: (store: Store) => unknown;
}

const KINDS: readonly Kind[] = [
  {
    table: 'accounts',
    key: 'acct_0',
    record: {
      ...{ index: account, id: 'acct_0', name: 'acme', planId: 'free', active: true, groupId: 'grp_1' },
      ...{ createdMs: NOW, credited: pico(2n ** 60n) },
    },
    row: {
      ...{ index: 0, id: 'acct_0', name: 'acme', planId: 'free', active: true, groupId: 'grp_1' },
      ...{ createdMs: 1_700_000_000_000, creditedPicoUnits: '1152921504606846976' },
    },
    put: (store, record) => store.putAccount(record),
    find: (store) => store.findAccount('acct_0'),
  },
  {
    table: 'credits',
    key: [0, 0],
    record: { amount: pico(-5n), note: 'back', createdMs: NOW },
    row: { amountPicoUnits: '-5', note: 'back', createdMs: 1_700_000_000_000 },
    put: (store, record) => store.openCredits(account, record),
    find: (store) => store.listCredits(account, 0, 1).items[0],
  },
  {
    table: 'credit_requests',
    key: [0, 'once'],
    record: { amount: pico(5n), note: '', response: '{}' },
    row: { amountPicoUnits: '5', note: '', answer: '{}' },
    put: (store, record) => store.putCreditRequest(account, 'once', record),
    find: (store) => store.findCreditRequest(account, 'once'),
  },
  {
    table: 'spending',
    key: 0,
    record: {
      ...{ spent: pico(4n), uncovered: pico(1n), dayNumber: 20_000, dayCalls: 3, minuteUsed: 2 },
      takenMs: NOW,
    },
    row: {
      ...{ spentPicoUnits: '4', uncoveredPicoUnits: '1', dayNumber: 20_000, dayCalls: 3, minuteUsed: 2 },
      takenMs: 1_700_000_000_000,
    },
    put: (store, record) => store.putAccounting({ spendings: new Map([[account, record]]), usages: [] }),
    find: (store) => store.findSpending(account),
  },
  {
    table: 'usage',
    key: [0, 7, 'key_0', 'small'],
    record: { ...NO_USAGE, calls: 9, completionTokens: 8, reasoningTokens: 7, cost: pico(4n) },
    row: {
      ...{ calls: 9, failedCalls: 0, estimatedCalls: 0, promptTokens: 0, cachedTokens: 0 },
      ...{ completionTokens: 8, costPicoUnits: '4', uncoveredPicoUnits: '0', reasoningTokens: 7 },
    },
    put: (store, record: Fields) =>
      store.putAccounting({
        spendings: new Map(),
        usages: [{ ...NO_USAGE, ...record, account, hour: 7, keyId: 'key_0', modelId: 'small' }],
      }),
    find: (store) => store.findUsage({ account, hour: 7, keyId: 'key_0', modelId: 'small' }),
  },
  {
    table: 'keys',
    key: 'key_0',
    record: {
      ...{ index: keyIndex, id: 'key_0', accountIndex: account, accountId: 'acct_0', name: 'laptop' },
      ...{ digest: Buffer.from(DIGEST, 'hex'), prefix: 'sk-abcd', active: false, createdMs: NOW },
      ...{ expiresSeconds: 1_800_000_000, limits: LIMITS, isPrivate: true, replacedById: 'key_1' },
      inherited: { minuteUsed: 1, dayNumber: 20_000, dayCalls: 2, takenMs: NOW, quotas: SETTLED },
    },
    row: {
      ...{ index: 0, id: 'key_0', accountIndex: 0, accountId: 'acct_0', name: 'laptop', digest: DIGEST },
      ...{ prefix: 'sk-abcd', active: false, createdMs: 1_700_000_000_000, expiresSeconds: 1_800_000_000 },
      ...{ ...STORED_LIMITS, isPrivate: true, replacedById: 'key_1' },
      inherited: {
        minuteUsed: 1,
        dayNumber: 20_000,
        dayCalls: 2,
        takenMs: 1_700_000_000_000,
        quotas: SETTLED,
      },
    },
    put: (store, record) => store.keys.put(record),
    find: (store) => store.keys.find('key_0'),
  },
  {
    table: 'key_uses',
    key: 0,
    record: { lastUsedSeconds: 1_700_000_000, minuteUsed: 1, dayNumber: 20_000, dayCalls: 2, takenMs: NOW },
    row: {
      ...{ lastUsedSeconds: 1_700_000_000, minuteUsed: 1, dayNumber: 20_000, dayCalls: 2 },
      takenMs: 1_700_000_000_000,
    },
    put: (store, record) => store.keys.putUse(keyIndex, record),
    find: (store) => store.keys.findUse(keyIndex),
  },
  {
    table: 'groups',
    key: 'grp_1',
    record: { index: group, id: 'grp_1', name: 'crew', parentId: 'grp_0', createdMs: NOW, limits: LIMITS },
    row: {
      ...{ index: 1, id: 'grp_1', name: 'crew', parentId: 'grp_0', createdMs: 1_700_000_000_000 },
      ...STORED_LIMITS,
    },
    put: (store, record) => store.groups.put(record),
    find: (store) => store.groups.find('grp_1'),
  },
  {
    table: 'operators',
    key: DIGEST,
    record: {
      ...{ id: 'op_0', name: 'ann', role: 'support', digest: DIGEST, active: true, createdMs: NOW },
      expiresSeconds: 1_800_000_000,
    },
    row: {
      ...{ id: 'op_0', name: 'ann', role: 'support', digest: DIGEST, active: true },
      ...{ createdMs: 1_700_000_000_000, expiresSeconds: 1_800_000_000 },
    },
    put: (store, record) => store.operators.put(record),
    find: (store) => store.operators.find(DIGEST),
  },
  {
    table: 'quota_uses',
    key: ['model', 0, 'small'],
    record: { minuteRequests: 1, callDayNumber: 20_000, callsPerDay: 2, takenMs: NOW, ...SETTLED },
    row: {
      ...{ minuteRequests: 1, callDayNumber: 20_000, callsPerDay: 2, takenMs: 1_700_000_000_000 },
      ...SETTLED,
    },
    put: (store, record) => store.quotaUses.put({ kind: 'model', index: account, modelId: 'small' }, record),
    find: (store) => store.quotaUses.find({ kind: 'model', index: account, modelId: 'small' }),
  },
];

void t.test('rows are written with these fields', async (t) => {
  const path = t.testdir();
  const store = new Store(path);
  store.commit(() => {
    for (const { put, record } of KINDS) put(store, record as never);
  });
  for (const { table, record, find } of KINDS) t.same(find(store), record, table);
  await store.close();
  const root = open(storePath(path), OPTIONS);
  for (const { table, key, row } of KINDS)
    t.strictSame(root.openDB(table, TABLE).get(key), { format: FORMAT, ...row }, table);
  await root.close();
});

void t.test('rows of format 4 are read with the same meaning', async (t) => {
  const path = t.testdir();
  await new Store(path).close();
  const root = open(storePath(path), OPTIONS);
  for (const { table, key, row } of KINDS) root.openDB(table, TABLE).putSync(key, { format: 4, ...row });
  await root.close();
  const store = new Store(path);
  for (const { table, record, find } of KINDS) t.strictSame(find(store), record, table);
  await store.close();
});

void t.test(
  'a row of a later format is not called damaged, and is told as one of a newer Tollgate',
  async (t) => {
    const path = t.testdir();
    await new Store(path).close();
    const root = open(storePath(path), OPTIONS);
    const later = (row: Fields): Fields => ({ format: FORMAT + 1, ...row, more: true });
    for (const { table, key, row } of KINDS) root.openDB(table, TABLE).putSync(key, later(row));
    await root.close();
    const store = new Store(path);
    for (const { table, find } of KINDS)
      t.throws(
        () => find(store),
        { code: 'newer', message: /record .* was written by a newer Tollgate/ },
        table,
      );
    await store.close();
    const { differences } = await audit(path, { accountsMax: 4, keysMax: 4, groupsMax: 4 });
    const rows = differences.filter(({ what }) => what === 'the row').map(({ is }) => is);
    t.same([...new Set(rows)], ['of a newer Tollgate']);
  },
);

void t.test('what is no format makes no row newer', (t) => {
  for (const format of [0, -1, FORMAT + 0.5, NaN, Infinity, '9', null, undefined, [9], { valueOf: () => 9 }])
    t.equal(rowErrorOf({ format }, 'record 1').code, 'damaged', String(format));
  for (const stored of [undefined, null, 9, 'format', Symbol('unreadable row'), [9]])
    t.equal(rowErrorOf(stored, 'record 1').code, 'damaged', String(stored));
  t.equal(rowErrorOf({ format: FORMAT + 1 }, 'record 1').code, 'newer');
  t.end();
});

/** The kinds that operators change, whose rows are checked before they are written. */
const CHECKED_KINDS = KINDS.filter(({ table }) => table !== 'spending' && !/us(age|es)$/.test(table));

void t.test('a member that a record has besides its own is not written', async (t) => {
  const store = new Store(t.testdir());
  store.commit(() => {
    for (const { put, record } of KINDS) put(store, { ...record, more: 1, __proto__: { most: 2 } } as never);
  });
  for (const { table, record, find } of KINDS) t.same(find(store), record, table);
  await store.close();
});

void t.test(
  'a record whose row would be damaged is not written, and its transaction is undone',
  async (t) => {
    const store = new Store(t.testdir());
    t.equal(CHECKED_KINDS.length, 6);
    for (const { table, put, record, find } of CHECKED_KINDS)
      for (const wrong of [
        { createdMs: NaN, note: 1 },
        { createdMs: 0.5, note: undefined },
        { createdMs: undefined, note: null },
        { createdMs: '5', amount: 10n ** 19n },
      ]) {
        const write = (): void => store.commit(() => put(store, { ...record, ...wrong } as never));
        t.throws(write, /^a row does not fit Stored\w+, and is not written: \{"format":(?!.*abab)/, table);
        t.equal(find(store), undefined, table);
      }
    await store.close();
  },
);
