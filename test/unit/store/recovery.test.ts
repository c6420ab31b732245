import t from 'tap';
import { viewOfAccount } from '#src/admin/account-routes.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import {
  asAccountIndex,
  asCallSlot,
  asGroupIndex,
  asKeyIndex,
  asPicoUnits,
  asWallMs,
} from '#src/core/units.js';
import { NO_PLAN_INDEX } from '#src/registry/catalog.js';
import { digestOf } from '#src/registry/key-digest.js';
import { recover } from '#src/store/recovery.js';
import {
  ACCOUNTS_MAX,
  CATALOG,
  KEYS_MAX,
  ListLog,
  flushOf,
  openHouse,
  serve,
  GROUPS_MAX,
} from './support.js';
import { admitTo } from '../../fixtures/ledger-world.js';

const CAPACITY = { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: GROUPS_MAX, catalog: CATALOG };
const FIRST = asAccountIndex(0);
const SECOND = asAccountIndex(1);

void t.test('a start finds money, days, plans and keys as they were', async (t) => {
  const path = t.testdir();
  const before = openHouse(path);
  before.registry.accounts.create({ name: 'a', planId: 'paid', credit: asPicoUnits(1_000n) });
  before.registry.accounts.create({ name: 'b', planId: 'free', credit: asPicoUnits(0n) });
  before.registry.accounts.setActive('b', false);
  const good = before.registry.keys.create({ account: 'a', name: 'good' });
  const disabled = before.registry.keys.create({ account: 'b', name: 'disabled' });
  const deleted = before.registry.keys.create({ account: 'a', name: 'deleted' });
  before.registry.keys.setActive(disabled.record.id, false);
  before.registry.keys.delete(deleted.record.id);
  const { ledger, store } = before;
  ledger.minute.take(FIRST, 60);
  serve(before, 0, 70n);
  admitTo(ledger, asCallSlot(1), FIRST, 10, asPicoUnits(900n));
  flushOf(before, new ListLog()).run();
  const { held, ...rest } = ledger.snapshot(FIRST);
  t.equal(held, 900n);
  await store.close();

  const after = openHouse(path);
  const log = new ListLog();
  recover({ ...after, ...CAPACITY, log });
  t.same(
    after.ledger.snapshot(FIRST),
    { ...rest, available: 930n, held: 0n, minuteUsed: 1, callsInFlight: 0 },
    'the hold of the call that is gone is back',
  );
  after.clock.nowMs += 61_202;
  t.equal(after.ledger.snapshot(FIRST).minuteUsed, 0, 'the minute passes');
  t.equal(after.totals.spentOf(FIRST), 70n);
  t.same([after.ledger.planIndexOf(FIRST), after.ledger.isActive(FIRST)], [1, true]);
  t.same([after.ledger.planIndexOf(SECOND), after.ledger.isActive(SECOND)], [0, false]);
  const found = after.keyTable.find(digestOf(good.key))!;
  t.same([after.keyTable.accountOf(found), after.keyTable.stateOf(found)], [FIRST, 'active']);
  t.equal(after.keyTable.stateOf(after.keyTable.find(digestOf(disabled.key))!), 'disabled');
  t.equal(after.keyTable.find(digestOf(deleted.key)), undefined);
  t.same(log.lines, []);
  await after.store.close();
});

void t.test('an account whose plan has gone is disabled and told, until it is moved', async (t) => {
  const path = t.testdir();
  const before = openHouse(path);
  before.registry.accounts.create({ name: 'a', planId: 'paid', credit: asPicoUnits(5n) });
  await before.store.close();

  const catalog = { ...CATALOG, plans: CATALOG.plans.slice(0, 1) };
  const after = openHouse(path, catalog);
  const log = new ListLog();
  recover({ ...after, ...CAPACITY, catalog, log });
  t.equal(after.ledger.planIndexOf(FIRST), NO_PLAN_INDEX);
  t.match(log.lines, [/^warn account is disabled: its plan/]);
  t.equal(after.ledger.isActive(FIRST), false);
  after.registry.accounts.setActive('a', true);
  t.equal(after.ledger.isActive(FIRST), false, 'enabling alone does not give it limits');
  const shown = viewOfAccount(after.registry.accounts.find('a'));
  t.match(shown, { plan: 'paid', active: true, plan_missing: true }, 'the cause is shown');
  after.registry.accounts.setPlan('a', 'free');
  t.notOk('plan_missing' in viewOfAccount(after.registry.accounts.find('a')));
  t.equal(after.ledger.isActive(FIRST), true);
  await after.store.close();
});

void t.test('what cannot be right stops the start', async (t) => {
  const { store, registry, clock, ...house } = openHouse(t.testdir());
  registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(5n) });
  registry.accounts.create({ name: 'b', planId: 'free', credit: asPicoUnits(5n) });
  for (const name of ['x', 'y']) registry.keys.create({ account: 'a', name });
  const start = (over: object) =>
    recover({ ...house, store, clock, ...CAPACITY, log: new ListLog(), ...over });
  t.throws(() => start({ accountsMax: 1 }), {
    message: /limits.accounts \(1\) allows: raise it to at least 2/,
  });
  const empty = openHouse(t.testdir({ other: {} }) + '/other');
  t.throws(() => start({ ...empty, store, keysMax: 1 }), { message: /limits.keys \(1\)/ });
  const total = {
    uncovered: asPicoUnits(0n),
    dayNumber: 1,
    dayCalls: 1,
    minuteUsed: 1,
    takenMs: clock.wallMs(),
  };
  const spendings = new Map([[SECOND, { ...total, spent: asPicoUnits(6n) }]]);
  store.commit(() => store.putAccounting({ spendings, usages: [] }));
  t.throws(() => start({}), { code: 'damaged', message: /\(b\).*more was spent than credited/ });
  store.shared.commitAgreed(() =>
    store.copy.setPosition({ epoch: 'e', version: 1, lastId: '1', history: [] }),
  );
  t.throws(() => start({}), { code: 'damaged' }, 'alone on what was shared once');
  const other = openHouse(t.testdir({ third: {} }) + '/third');
  t.doesNotThrow(
    () => start({ ...other, store, totals: undefined }),
    'hosts share it, and the credit is on its way',
  );
  await other.store.close();
  await store.close();
  await empty.store.close();
});

void t.test('a key of an account that has no slot stops the start, and is named', async (t) => {
  const house = openHouse(t.testdir());
  const { store, registry } = house;
  registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(5n) });
  const { record } = registry.keys.create({ account: 'a', name: 'laptop' });
  store.commit(() => store.keys.put({ ...record, accountIndex: asAccountIndex(ACCOUNTS_MAX) }));
  const fresh = openHouse(t.testdir({ fresh: {} }) + '/fresh');
  const options = { ...fresh, store, ...CAPACITY, log: new ListLog() };
  t.throws(() => recover(options), { code: 'damaged', message: /the account of key key_.* \(laptop\)/ });
  await store.close();
  await fresh.store.close();
});

void t.test(
  'groups whose parents are missing, in a circle or beyond the limits stop the start',
  async (t) => {
    const groups = {
      missing: [[0, 'grp_9']],
      circle: [
        [0, 'grp_1'],
        [1, 'grp_0'],
      ],
      // The parent comes after its child in the order of ids.
      beyond: [
        [0, `grp_${GROUPS_MAX}`],
        [GROUPS_MAX, undefined],
      ],
    } as const;
    for (const [what, parents] of Object.entries(groups)) {
      const house = openHouse(t.testdir());
      const { store } = house;
      store.commit(() => {
        for (const [slot, parentId] of parents) {
          const group = { index: asGroupIndex(slot), id: `grp_${slot}`, name: `g${slot}`, parentId };
          store.groups.put({ ...group, createdMs: asWallMs(1), limits: NO_QUOTAS });
        }
      });
      const expected =
        what === 'beyond'
          ? { code: 'unreadable', message: /limits.groups \(8\) allows: raise it to at least 9/ }
          : { code: 'damaged', message: /the groups above grp_0 \(g0\) are missing, or they form a circle/ };
      t.throws(() => recover({ ...house, ...CAPACITY, log: new ListLog() }), expected, what);
      await store.close();
    }
  },
);

void t.test('a start finds what keys may do, and what they have done', async (t) => {
  const path = t.testdir();
  const before = openHouse(path);
  before.registry.accounts.create({ name: 'a', planId: 'paid', credit: asPicoUnits(1_000n) });
  const now = Math.floor(before.clock.nowMs / 1_000);
  const limits = { requestsPerMinute: 5, callsPerDay: 7 };
  const rich = before.registry.keys.create({ account: 'a', name: 'rich', expiresInSeconds: 9, limits });
  const plain = before.registry.keys.create({ account: 'a', name: 'plain' });
  const rotated = before.registry.keys.rotate('rich', 5);
  const gone = before.registry.keys.create({ account: 'a', name: 'gone' });
  const { ledger, keyTable, store, registry } = before;
  const used = rotated.record.index;
  ledger.keys.minute.take(used, 5);
  ledger.keys.takeDay(used, 7);
  for (const { record } of [rotated, plain, gone]) {
    if (keyTable.recordUse(record.index, now - record.index)) ledger.keys.dirty.mark(record.index);
  }
  registry.keys.delete(gone.record.id);
  const flush = flushOf(before, new ListLog());
  flush.run();
  t.equal(store.keys.findUse(gone.record.index), undefined, 'nothing of a key that is gone');
  t.match(store.keys.findUse(plain.record.index), { lastUsedSeconds: now - plain.record.index, dayCalls: 0 });
  await store.close();

  const after = openHouse(path);
  recover({ ...after, ...CAPACITY, log: new ListLog() });
  const find = (key: string) => after.keyTable.find(digestOf(key))!;
  t.match(after.ledger.keys.limitsOf(find(rotated.key)), limits);
  t.match(after.ledger.keys.countsOf(find(rotated.key)), { minuteUsed: 1, dayCalls: 1 });
  t.match(after.ledger.keys.limitsOf(find(rich.key)), limits);
  t.match(after.ledger.keys.countsOf(find(rich.key)), { minuteUsed: 0, dayCalls: 0 });
  t.notOk(after.keyTable.isLimited(find(plain.key)));
  for (const [key, seconds] of [
    [rich.key, 5],
    [rotated.key, 9],
  ] as const) {
    t.notOk(after.keyTable.isExpired(find(key), now + seconds - 1));
    t.ok(after.keyTable.isExpired(find(key), now + seconds));
  }
  const lastUses = ['rich', 'plain'].map((name) => after.registry.keys.find(name).lastUsedSeconds);
  t.same(lastUses, [now - rotated.record.index, now - plain.record.index]);
  t.equal(after.registry.keys.find(rich.record.id).lastUsedSeconds, undefined);
  await after.store.close();
});

void t.test('a restart with another calendar forgets no minute and prolongs none', async (t) => {
  const minutes = 60_000;
  for (const setMs of [0, 1_000, -1_000, 3_600_000, -3_600_000, 30 * 86_400_000, -30 * 86_400_000]) {
    for (const restMs of [0, 20_000, 2 * minutes]) {
      const path = t.testdir();
      const before = openHouse(path);
      before.registry.accounts.create({ name: 'a', planId: 'free', credit: asPicoUnits(1_000n) });
      const { record } = before.registry.keys.create({
        account: 'a',
        name: 'k',
        limits: { requestsPerMinute: 10 },
      });
      before.clock.nowMs += minutes;
      for (let n = 0; n < 7; n++) {
        before.ledger.minute.take(FIRST, 60);
        before.ledger.keys.minute.take(record.index, 10);
      }
      t.ok(flushOf(before, new ListLog()).run());
      await before.store.close();

      const after = openHouse(path);
      after.clock.nowMs = before.clock.nowMs + restMs + setMs;
      after.clock.setMs = setMs;
      recover({ ...after, ...CAPACITY, log: new ListLog() });
      const expected = restMs < minutes ? 7 : 0;
      const name = `set by ${setMs} ms, after ${restMs} ms`;
      t.equal(after.ledger.minute.usedOf(FIRST), expected, name);
      t.equal(after.ledger.keys.countsOf(record.index).minuteUsed, expected, name);
      after.clock.nowMs += minutes + 2_000;
      t.equal(after.ledger.minute.usedOf(FIRST), 0, `${name}, a minute on`);
      await after.store.close();
    }
  }
});

void t.test(
  'the use of an account, a key or a group beyond the limits, which none has, hinders no start',
  async (t) => {
    const path = t.testdir();
    const before = openHouse(path);
    const takenMs = before.clock.wallMs();
    const nothing = { minuteTokens: 0, dayNumber: 0, tokensPerDay: 0, spendPerDay: 0 };
    const nothingOfMonth = { monthNumber: 0, callsPerMonth: 0, tokensPerMonth: 0, spendPerMonth: 0 };
    before.store.commit(() => {
      for (const slot of [0, KEYS_MAX - 1, KEYS_MAX, GROUPS_MAX, 2 ** 32, Number.MAX_SAFE_INTEGER]) {
        const counts = { minuteUsed: 1, dayNumber: 1, dayCalls: 1, takenMs };
        before.store.keys.putUse(asKeyIndex(slot), { lastUsedSeconds: 5, ...counts });
        for (const scope of [
          { kind: 'key', index: asKeyIndex(slot) },
          { kind: 'group', index: asGroupIndex(slot) },
          { kind: 'account', index: asAccountIndex(slot) },
          { kind: 'model', index: asAccountIndex(slot), modelId: 'small' },
        ] as const)
          before.store.quotaUses.put(scope, {
            ...{ minuteRequests: 0, callDayNumber: 0, callsPerDay: 0, takenMs },
            ...nothing,
            ...nothingOfMonth,
          });
      }
    });
    await before.store.close();
    const after = openHouse(path);
    t.doesNotThrow(() => recover({ ...after, ...CAPACITY, log: new ListLog() }));
    await after.store.close();
  },
);
