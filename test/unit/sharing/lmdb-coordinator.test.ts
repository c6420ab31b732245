/**
 * The coordinator of one host's processes: what every coordinator does, and what only its file and store do.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { asBinary } from 'lmdb';
import t from 'tap';
import { Calendar } from '#src/core/calendar.js';
import type { Settings } from '#src/config/schema.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { openStore } from '#src/gateway/accounting-base.js';
import type { GroupPosition } from '#src/gateway/messages.js';
import { dayNumberOf } from '#src/ledger/day.js';
import type { AccountRecord, SpendingRecord } from '#src/registry/account-record.js';
import type { Coordinator } from '#src/sharing/coordinator.js';
import { clearLeaseFiles, openLeaseFile, type LeaseFile } from '#src/sharing/lease-file.js';
import { LmdbCoordinator } from '#src/sharing/lmdb-coordinator.js';
import type { ScopeState } from '#src/sharing/scope-grants.js';
import { quotaUseKeyOf } from '#src/store/quota-use-rows.js';
import { Store } from '#src/store/store.js';
import { openTables } from '#src/store/tables.js';
import { ManualClock } from '../../fixtures/manual-clock.js';
import { FakeLog } from '../../fixtures/upstream-server.js';
import { authorityConformance, identity } from '../../support/authority-conformance.js';
import { exchangePlain, type PlainAsk } from '../../support/plain-asks.js';

const calendar = new Calendar();
const log = new FakeLog();

/** An array of 2^32 - 1 items, of which none follows. */
const UNDECODABLE = asBinary(Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff]));

const NOTHING_SPENT: SpendingRecord = {
  spent: asPicoUnits(0n),
  uncovered: asPicoUnits(0n),
  dayNumber: 0,
  dayCalls: 0,
  minuteUsed: 0,
  takenMs: asWallMs(0),
};

interface World {
  readonly store: Store;
  readonly file: LeaseFile;
  readonly clock: ManualClock;
  readonly join: (host: string, slot?: number) => Promise<Coordinator>;
  readonly close: () => Promise<void>;
}

function openWorld(path: string, clock = new ManualClock()): World {
  const store = new Store(path);
  const file = openLeaseFile(path);
  return {
    store,
    file,
    clock,
    join: async (host, slot) => {
      const authority = new LmdbCoordinator({
        node: identity(host, slot),
        file,
        store,
        clock,
        calendar,
        log,
      });
      await authority.join();
      return authority;
    },
    close: async () => {
      await file.environment.close();
      await store.close();
    },
  };
}

function accountOf(store: Store, id: string): AccountRecord {
  const known = store.findAccount(id);
  if (known !== undefined) return known;
  const index = store.freeAccountIndex();
  const record = { index, id, name: id, planId: 'free', active: true, createdMs: asWallMs(1) };
  store.commit(() => store.putAccount({ ...record, credited: asPicoUnits(0n) }));
  return { ...record, credited: asPicoUnits(0n) };
}

authorityConformance(t, 'lmdb', () => {
  const { store, file, clock, close } = openWorld(t.testdir());
  return Promise.resolve({
    connect: (node) => Promise.resolve(new LmdbCoordinator({ node, file, store, clock, calendar, log })),
    credit: (subject, amount) => {
      const record = accountOf(store, subject);
      store.commit(() => store.putAccount({ ...record, credited: asPicoUnits(record.credited + amount) }));
      return Promise.resolve();
    },
    spend: (_host, subject, amount) => {
      const { index } = accountOf(store, subject);
      const before = store.findSpending(index) ?? NOTHING_SPENT;
      const spent = asPicoUnits(before.spent + amount);
      store.commit(() =>
        store.putAccounting({ spendings: new Map([[index, { ...before, spent }]]), usages: [] }),
      );
      return Promise.resolve();
    },
    losesNoAnswer: true,
    clock,
    close,
  });
});

const NO_MONEY = { limit: 0n, period: 0, used: 0n, unused: 0n, least: 1n, most: 1n };
const LIMITS = { requestsPerMinute: 10, callsPerDay: 10, callsInFlight: 10 };
const ask = (subject: string, most: number): PlainAsk => ({
  scope: subject,
  limits: LIMITS,
  minute: { least: most, most, forMs: 0, returned: [] },
  day: { dayNumber: 0, used: 0, unused: 0, least: most, most },
});

async function lent(authority: Coordinator, subject: string, most: number): Promise<(number | undefined)[]> {
  const { answers } = await exchangePlain(authority, [ask(subject, most)]);
  return [answers[0]!.minute?.granted, answers[0]!.day?.granted];
}

void t.test('what was used before there were leases counts', async (t) => {
  const { store, clock, join: joinWorld, close } = openWorld(t.testdir());
  const { index } = accountOf(store, 'acct_before');
  const today = dayNumberOf(clock.wallMs());
  const use = { dayNumber: today, dayCalls: 4, minuteUsed: 7, takenMs: asWallMs(clock.wallMs() - 30_000) };
  const spendings = new Map([[index, { ...NOTHING_SPENT, ...use }]]);
  store.commit(() => store.putAccounting({ spendings, usages: [] }));
  const node = await joinWorld('a');
  t.same(await lent(node, 'acct_before', 7), [0, 0]);
  t.same(await lent(node, 'acct_before', 3), [3, 3]);
  clock.advance(31_200);
  t.same(
    await lent(node, 'acct_before', 7),
    [7, 0],
    'after a minute seven are free again; of the day four are not',
  );
  t.same(await lent(node, 'acct_before', 6), [0, 6]);
  await close();
});

void t.test('the minute that a rotated key inherited counts, whatever flushes wrote since', async (t) => {
  const { store, clock, join: joinWorld, close } = openWorld(t.testdir());
  const { index: accountIndex } = accountOf(store, 'acct_a');
  const index = asKeyIndex(0);
  const id = 'key_rotated';
  const takenMs = asWallMs(clock.wallMs() - 30_000);
  const inherited = { minuteUsed: 7, dayNumber: dayNumberOf(clock.wallMs()), dayCalls: 4, takenMs };
  // As a process writes it that has listed models for the key, and served no call.
  const use = { ...inherited, lastUsedSeconds: 1, minuteUsed: 0, takenMs: asWallMs(clock.wallMs()) };
  store.commit(() => {
    store.keys.put({
      ...{
        index,
        id,
        accountIndex,
        accountId: 'acct_a',
        name: 'k',
        digest: Buffer.alloc(32, 7),
        prefix: 'sk-',
      },
      ...{
        active: true,
        createdMs: takenMs,
        expiresSeconds: undefined,
        limits: NO_QUOTAS,
        replacedById: undefined,
      },
      inherited,
    });
    store.keys.putUse(index, use);
  });
  const node = await joinWorld('a');
  t.same(await lent(node, id, 7), [0, 0]);
  t.same(await lent(node, id, 3), [3, 3]);
  clock.advance(31_200);
  t.same(await lent(node, id, 7), [7, 0], 'a minute after they were used, not after the flush');
  await close();
});

void t.test('leases outlive all processes, and not the sharing of limits', async (t) => {
  const path = t.testdir();
  const clock = new ManualClock();
  const first = openWorld(path, clock);
  const node = await first.join('a');
  t.same(await lent(node, 'acct_x', 8), [8, 8]);
  await first.close();

  const [name] = readdirSync(path).filter((file) => file.startsWith('leases.'));
  const old = join(path, 'leases.00000000-0000-0000-0000-000000000000.lmdb');
  writeFileSync(old, 'of an earlier boot');
  clearLeaseFiles(path, { isShared: true });
  t.notOk(readdirSync(path).includes('leases.00000000-0000-0000-0000-000000000000.lmdb'));
  const second = openWorld(path, clock);
  t.same(await lent(await second.join('a'), 'acct_x', 3), [0, 0], 'of the life before');
  t.same(await lent(await second.join('a'), 'acct_x', 2), [2, 2]);
  await second.close();

  clearLeaseFiles(path, { isShared: false });
  t.same(
    readdirSync(path).filter((file) => file.startsWith('leases.')),
    [],
  );
  writeFileSync(join(path, name!), 'damaged');
  clearLeaseFiles(path, { isShared: true });
  t.notOk(readdirSync(path).includes(name!), 'one that is damaged is made anew');
});

void t.test('of scopes of another version, the first gateway begins with what the store has', async (t) => {
  const path = t.testdir();
  const clock = new ManualClock();
  const first = openWorld(path, clock);
  const { index } = accountOf(first.store, 'acct_former');
  const use = { dayNumber: dayNumberOf(clock.wallMs()), dayCalls: 4, takenMs: clock.wallMs() };
  const spendings = new Map([[index, { ...NOTHING_SPENT, ...use }]]);
  first.store.commit(() => first.store.putAccounting({ spendings, usages: [] }));
  t.same(await lent(await first.join('a'), 'acct_x', 8), [8, 8]);
  // The row as versions until 2026-11-22 wrote it.
  const former = { buckets: [], dayNumber: use.dayNumber, dayUsedBefore: 4, days: [], slots: [], money: [] };
  first.file.environment.write(() => {
    first.file.scopes.putSync('acct_former', former);
    first.file.scopes.putSync('acct_torn', UNDECODABLE);
  });
  t.same(await lent(await first.join('a', 1), 'acct_former', 1), [0, 0]);
  await first.close();

  clearLeaseFiles(path, { isShared: true });
  const second = openWorld(path, clock);
  const node = await second.join('a');
  t.same(await lent(node, 'acct_torn', 10), [10, 10]);
  t.same(await lent(node, 'acct_former', 10), [10, 0]);
  t.same(await lent(await second.join('a', 1), 'acct_former', 6), [0, 6]);
  t.same(await lent(node, 'acct_x', 3), [0, 0], 'a scope that can be read stays as it is');
  await second.close();
});

void t.test('what a process held is free when it has been killed', async (t) => {
  const path = t.testdir();
  const { store, clock, join: joinWorld, close } = openWorld(path);
  const record = { ...accountOf(store, 'acct_x'), credited: asPicoUnits(100n) };
  store.commit(() => store.putAccount(record));
  const child = fork(new URL('../../fixtures/lease-holder.js', import.meta.url), [path, 'acct_x']);
  t.teardown(() => child.kill('SIGKILL'));
  await once(child, 'message');
  const node = await joinWorld('a', 1);
  const money = { outstanding: asPicoUnits(0n), least: asPicoUnits(100n), most: asPicoUnits(100n) };
  const all: PlainAsk = {
    scope: 'acct_x',
    limits: LIMITS,
    slots: { outstanding: 0, least: 10, most: 10 },
    money,
  };
  t.match((await exchangePlain(node, [all])).answers, [
    { slots: { granted: 0, heldByOthers: true }, money: { granted: 0n, heldByOthers: true } },
  ]);
  child.kill('SIGKILL');
  await once(child, 'exit');
  clock.advance(1_000);
  t.match((await exchangePlain(node, [all])).answers, [{ slots: { granted: 10 }, money: { granted: 100n } }]);
  await close();
});

void t.test('a store that cannot be read is a loss', async (t) => {
  const { file, clock, close } = openWorld(t.testdir());
  const store = {
    refresh: () => undefined,
    findAccount: () => {
      throw new Error('damaged');
    },
  } as unknown as Store;
  const authority = new LmdbCoordinator({ node: identity('a'), file, store, clock, calendar, log });
  await authority.join();
  const linesBefore = log.lines.length;
  await t.rejects(exchangePlain(authority, [ask('acct_x', 1)]), {
    code: 'authority_lost',
    reason: 'failing',
    message: 'leases cannot be had: damaged',
  });
  t.equal(file.scopes.get('acct_x'), undefined, 'nothing was lent');
  await t.rejects(exchangePlain(authority, [ask('acct_x', 1)]), {
    code: 'authority_lost',
    reason: 'failing',
  });
  const told = log.lines.slice(linesBefore);
  t.match(told, [{ level: 'error', fields: { error: 'damaged', stack: /findAccount/ } }], 'it may be a bug');
  t.equal(told.length, 1, 'once');
  await close();
});

void t.test('a damaged row costs its own scope alone, and is told once', async (t) => {
  const { file, join, clock, close } = openWorld(t.testdir());
  const node = await join('a');
  t.same(await lent(node, 'acct_x', 2), [2, 2]);
  t.same(await lent(node, 'acct_y', 1), [1, 1]);
  const whole = file.scopes.get('acct_x') as object;
  // A node's row that does not decode costs no scope.
  file.environment.write(() => file.nodes.putSync('b:7', UNDECODABLE));
  const rows = [
    'no row',
    {},
    UNDECODABLE,
    { ...whole, buckets: 7 },
    { ...whole, buckets: [[0, [['1', 'x']]]] },
    { ...whole, buckets: [['x', [['1', 1]]]] },
    { ...whole, stocks: [['calls_per_day', 0, null]] },
    { ...whole, stocks: [['calls_per_day', 0.5, 0, [], [], 0]] },
    { ...whole, stocks: ['calls_per_year'] },
  ];
  for (const [at, row] of rows.entries()) {
    const scope = `acct_${at}`;
    file.environment.write(() => file.scopes.putSync(scope, row));
    const stored = file.scopes.get(scope);
    const linesBefore = log.lines.length;
    const { answers } = await exchangePlain(node, [ask(scope, 1), ask('acct_y', 1)]);
    t.match(answers[0], { minute: { granted: 0 }, day: { granted: 0 } });
    t.match(answers[1], { minute: { granted: 1 }, day: { granted: 1 } }, 'the other scope has its own');
    const raw = await node.exchange([{ scope, stocks: { balance: NO_MONEY } }]);
    t.match(raw.replies, [{ isUnknown: true, stocks: { balance: { granted: 0n, heldByOthers: true } } }]);
    t.same(file.scopes.get(scope), stored, 'nobody writes it anew');
    t.same(
      (await node.view([scope, 'acct_y'])).map(({ scope }) => scope),
      ['acct_y'],
    );
    t.match(log.lines.slice(linesBefore), [{ level: 'error', fields: { scope } }]);
    t.equal(log.lines.length, linesBefore + 1, 'once');
    clock.advance(1);
  }
  await close();
});

void t.test('a stock of a newer version is left as it is, and the others are granted', async (t) => {
  const { file, join, close } = openWorld(t.testdir());
  const node = await join('a');
  t.same(await lent(node, 'acct_x', 2), [2, 2]);
  const row = file.scopes.get('acct_x') as ScopeState;
  // Its life is none of this version's, and what it means is not known.
  const newer = ['calls_per_year', 2, 7, [['1', 3, 4]], [], 0, 'more'];
  file.environment.write(() => file.scopes.putSync('acct_x', { ...row, stocks: [newer, ...row.stocks] }));
  const linesBefore = log.lines.length;
  t.same(await lent(node, 'acct_x', 3), [3, 3]);
  t.equal(log.lines.length, linesBefore, 'it is no damage');
  const { stocks } = file.scopes.get('acct_x') as ScopeState;
  t.same(
    stocks.find(([name]) => (name as string) === 'calls_per_year'),
    newer,
  );
  const [view] = await node.view(['acct_x'], [0]);
  t.same(Object.keys(view!.stocks), ['calls_per_day']);
  await close();
});

void t.test('a life has a number of its own', async (t) => {
  const { join, close } = openWorld(t.testdir());
  const node = await join('a');
  t.same(await lent(node, 'acct_x', 4), [4, 4]);
  const next = await join('a', 1);
  const [view] = await next.view(['acct_x'], [0, 1]);
  t.same(
    view!.processes.map(({ slot }) => slot),
    [0],
    'the second has nothing of the first',
  );
  await close();
});

void t.test('a damaged row of the store costs its own scope alone, and is told once', async (t) => {
  const path = t.testdir();
  const before = openWorld(path);
  const { index: used } = accountOf(before.store, 'acct_used');
  const { index: spending } = accountOf(before.store, 'acct_spending');
  accountOf(before.store, 'acct_whole');
  await before.close();
  const tables = openTables(path);
  tables.environment.write(() => {
    tables.quotaUses.putSync(quotaUseKeyOf({ kind: 'account', index: used }), 'no row');
    tables.spending.putSync(spending, 'no row');
  });
  await tables.environment.close();

  const { file, join, close } = openWorld(path);
  const node = await join('a');
  for (const [scope, row] of [
    ['acct_used', `record account/${used}/ of table quota_uses is damaged`],
    ['acct_spending', `record ${spending} of table spending is damaged`],
  ] as const) {
    const linesBefore = log.lines.length;
    const { replies } = await node.exchange([
      { scope, stocks: { balance: NO_MONEY } },
      { scope: 'acct_whole', stocks: { calls_per_day: { ...NO_MONEY, limit: 10n, most: 1n } } },
    ]);
    t.match(replies[0], { isUnknown: true, stocks: { balance: { granted: 0n, heldByOthers: true } } });
    t.match(replies[1], { stocks: { calls_per_day: { granted: 1n } } }, 'the other scope has its own');
    t.same(await lent(node, scope, 1), [0, 0]);
    t.equal(file.scopes.get(scope), undefined, 'nothing was lent');
    t.same(await node.view([scope]), []);
    t.match(log.lines.slice(linesBefore), [{ level: 'error', fields: { scope, error: RegExp(row) } }]);
    t.equal(log.lines.length, linesBefore + 1, 'once');
  }
  await close();
});

void t.test('hosts that share leave no leases of before to who shares them no more', async (t) => {
  const path = t.testdir();
  await openWorld(path).close();
  const leases = (): string[] => readdirSync(path).filter((name) => name.startsWith('leases.'));
  const group: GroupPosition = { id: 'group', slot: 0 };
  const open = (sharing: object | undefined): Promise<void> =>
    openStore({ data: path, sharing } as Settings, group).close();
  await open(undefined);
  t.not(leases().length, 0, 'processes of one host go on with them');
  await open({ url: 'redis://127.0.0.1' });
  t.same(leases(), []);
});
