/** What was used of quotas: on disk with the charges of the calls, and there again after a start. */
import t from 'tap';
import { NO_QUOTAS, type QuotaLimits, type QuotaName } from '#src/core/quotas.js';
import {
  asAccountIndex,
  asCallSlot,
  asGroupIndex,
  asModelScopeIndex,
  asPicoUnits,
  asWallMs,
} from '#src/core/units.js';
import type { Catalog } from '#src/registry/catalog.js';
import type { QuotaUse, QuotaUseRecord } from '#src/registry/quota-use.js';
import { audit } from '#src/store/audit.js';
import type { FlushStore } from '#src/store/flush.js';
import { COUNTS_BY_PERIOD, QuotaUses, SharedQuotaUses } from '#src/store/quota-uses.js';
import { mergedCounts } from '#src/store/shared-counts.js';
import { recover } from '#src/store/recovery.js';
import { Store } from '#src/store/store.js';
import {
  ACCOUNTS_MAX,
  CATALOG,
  flushOf,
  GROUPS_MAX,
  type House,
  KEYS_MAX,
  ListLog,
  offlineRegistry,
  openHouse,
} from './support.js';

const CAPACITY = { accountsMax: ACCOUNTS_MAX, keysMax: KEYS_MAX, groupsMax: GROUPS_MAX };
const FIRST = asAccountIndex(0);
const SLOT = asCallSlot(0);
const DAY_MS = 24 * 3_600_000;

const LIMITS: QuotaLimits = {
  requestsPerMinute: 50,
  tokensPerMinute: 500,
  callsInFlight: 5,
  callsPerDay: 60,
  tokensPerDay: 600,
  callsPerMonth: 70,
  tokensPerMonth: 700,
  spendPerDay: asPicoUnits(8_000_000n),
  spendPerMonth: asPicoUnits(9_000_000n),
};

const catalogWith = (quotas: QuotaLimits): Catalog => ({
  ...CATALOG,
  plans: CATALOG.plans.map((plan) => ({ ...plan, quotas })),
});
const LIMITED = catalogWith(LIMITS);

/** An account in a group in a group, with a key; all have all quotas. */
function peopled(path: string): House {
  const house = openHouse(path, LIMITED);
  const { groups, accounts, keys } = house.registry;
  groups.create({ name: 'top', limits: LIMITS });
  groups.create({ name: 'team', parent: 'top', limits: LIMITS });
  accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(10n ** 9n), group: 'team' });
  keys.create({ account: 'acme', name: 'k', limits: LIMITS });
  return house;
}

/** A call of the key that holds 100 tokens; it uses 30 of them and costs 2,500 pico-units, 3 nano-units. */
function call({ ledger, registry }: House, ends = true): void {
  const key = registry.keys.find('k').record.index;
  const plan = { callsPerDay: 60, callsInFlightMax: 5, quotas: LIMITS };
  const needs = { hold: asPicoUnits(5_000n), tokens: 100 };
  ledger.minute.take(FIRST, 60);
  ledger.keys.minute.take(key, 50);
  for (let at = ledger.groupOf(FIRST); at !== undefined; at = ledger.groups.parentOf(at))
    ledger.groups.minute.take(at, 50);
  if (ledger.admit(ends ? SLOT : asCallSlot(1), { account: FIRST, plan, key }, needs) !== undefined)
    throw new Error('not admitted');
  if (ends) ledger.settle(SLOT, asPicoUnits(2_500n), 30);
}

function usesOf({ registry }: Pick<House, 'registry'>): (readonly QuotaUse[])[] {
  const { accounts, groups, keys } = registry;
  return [accounts.find('acme'), groups.find('team'), groups.find('top'), keys.find('k')].map(
    ({ quotas }) => quotas,
  );
}

const amountsOf = (uses: readonly QuotaUse[]): Partial<Record<QuotaName, [bigint, bigint]>> =>
  Object.fromEntries(uses.map(({ quota, used, held }) => [quota, [used, held]]));

const modelIdOf = (index: number): string => CATALOG.models[index]!.id;

function flush(house: House): boolean {
  const quotaUses = new QuotaUses(house.ledger, house.clock, modelIdOf);
  return flushOf(house, new ListLog(), house.store, { quotaUses }).run();
}

/** `calls` were admitted, two of them have ended. */
const amounts = (calls: bigint, isFlying: boolean) => ({
  requests_per_minute: [calls, 0n],
  tokens_per_minute: [60n, isFlying ? 100n : 0n],
  calls_in_flight: [0n, isFlying ? 1n : 0n],
  calls_per_day: [calls, 0n],
  tokens_per_day: [60n, isFlying ? 100n : 0n],
  calls_per_month: [calls, 0n],
  tokens_per_month: [60n, isFlying ? 100n : 0n],
  spend_per_day: [6_000n, isFlying ? 5_000n : 0n],
  spend_per_month: [6_000n, isFlying ? 5_000n : 0n],
});

void t.test('after a start each scope has used what had ended at the last flush', async (t) => {
  const path = t.testdir();
  const before = peopled(path);
  call(before);
  call(before);
  call(before, false);
  for (const uses of usesOf(before)) t.same(amountsOf(uses), amounts(3n, true));
  t.ok(flush(before));
  call(before);
  // The machine ends here: the last call is forgotten, and nothing is held.
  await before.store.close();

  const store = new Store(path);
  const offline = { registry: offlineRegistry(store, before.clock) };
  offline.registry.catalog = LIMITED;
  for (const uses of usesOf(offline)) t.same(amountsOf(uses), amounts(3n, false), 'a command reads the same');
  await store.close();

  const after = openHouse(path, LIMITED);
  recover({ ...after, ...CAPACITY, catalog: LIMITED, log: new ListLog() });
  for (const uses of usesOf(after)) t.same(amountsOf(uses), amounts(3n, false));
  call(after);
  for (const uses of usesOf(after)) t.match(amountsOf(uses), { tokens_per_month: [90n, 0n] });
  t.ok(flush(after));
  await after.store.close();
  t.same((await audit(path, CAPACITY)).differences, []);
});

void t.test('a rule for a model has used after a start what it had used before', async (t) => {
  const path = t.testdir();
  const admitted = ({ ledger }: House): number => {
    const plan = { callsPerDay: 60, callsInFlightMax: 5, quotas: NO_QUOTAS };
    const limits = { ...NO_QUOTAS, requestsPerMinute: 9, callsPerDay: 8, tokensPerMonth: 200 };
    const needs = { hold: asPicoUnits(1n), tokens: 40 };
    let calls = 0;
    while (
      ledger.admit(
        SLOT,
        { account: FIRST, plan, key: undefined, model: { modelIndex: 0, limits } },
        needs,
      ) === undefined
    ) {
      ledger.settle(SLOT, asPicoUnits(1n), 40);
      calls += 1;
    }
    return calls;
  };
  const before = peopled(path);
  t.equal(admitted(before), 5);
  t.ok(flush(before));
  await before.store.close();

  const after = openHouse(path, LIMITED);
  recover({ ...after, ...CAPACITY, catalog: LIMITED, log: new ListLog() });
  t.equal(admitted(after), 0);
  const slot = asModelScopeIndex(after.ledger.modelScopes.slotOf(FIRST, 0)!);
  t.match(after.ledger.models.countsOf(slot), { minuteUsed: 5, dayCalls: 5 });
  t.match(after.ledger.settledOf({ kind: 'model', index: slot }), { tokensPerMonth: 200 });
  await after.store.close();
});

void t.test('periods that are over are not restored', async (t) => {
  for (const [days, today, month] of [
    // The clock stands on 2025-01-31, 20:00 in UTC+8.
    [0, 60n, 60n],
    [1, 0n, 0n],
    [40, 0n, 0n],
  ] as const) {
    const path = t.testdir();
    const before = peopled(path);
    call(before);
    call(before);
    flush(before);
    await before.store.close();
    const after = openHouse(path, LIMITED);
    after.clock.nowMs += days * DAY_MS + (days === 0 ? 61_202 : 0);
    recover({ ...after, ...CAPACITY, catalog: LIMITED, log: new ListLog() });
    for (const uses of usesOf(after)) {
      t.match(amountsOf(uses), {
        tokens_per_minute: [0n, 0n],
        tokens_per_day: [today, 0n],
        tokens_per_month: [month, 0n],
        calls_per_month: [month / 30n, 0n],
      });
    }
    await after.store.close();
  }
});

void t.test('limits that change keep what was used; what is removed leaves no row', async (t) => {
  const house = peopled(t.testdir());
  const { registry, store, ledger } = house;
  call(house);
  call(house);
  registry.keys.setLimits('k', { ...NO_QUOTAS, tokensPerDay: 60 });
  registry.groups.setLimits('top', { tokensPerDay: 61 });
  t.match(amountsOf(registry.keys.find('k').quotas), { tokens_per_day: [60n, 0n] });
  t.match(amountsOf(registry.groups.find('top').quotas), { tokens_per_day: [60n, 0n] });
  t.equal(registry.groups.find('top').quotas.find(({ quota }) => quota === 'tokens_per_day')?.limit, 61n);
  t.throws(() => call(house), { message: 'not admitted' });
  registry.keys.setLimits('k', NO_QUOTAS);
  registry.keys.setLimits('k', { tokensPerDay: 100 });
  t.match(amountsOf(registry.keys.find('k').quotas), { tokens_per_day: [60n, 0n] }, 'set again');

  const plain = registry.keys.create({ account: 'acme', name: 'plain' });
  t.notOk(house.keyTable.isLimited(plain.record.index));
  registry.keys.setLimits('plain', { callsPerDay: 1 });
  t.ok(house.keyTable.isLimited(plain.record.index), 'a key may get its first limit later');

  flush(house);
  const { index } = registry.keys.find('k').record;
  t.match(store.quotaUses.find({ kind: 'key', index }), { tokensPerDay: 60 });
  registry.keys.delete('k');
  t.equal(store.quotaUses.find({ kind: 'key', index }), undefined);
  registry.accounts.setGroup('acme', 'top');
  t.equal(ledger.groupOf(FIRST), 0);
  const team = registry.groups.delete('team');
  t.equal(store.quotaUses.find({ kind: 'group', index: team.index }), undefined);
  t.equal(house.groupNames.nameOf(team.index), '');
  registry.accounts.setGroup('acme', undefined);
  t.equal(ledger.groupOf(FIRST), undefined);
  await store.close();
});

void t.test('a rotated key goes on where the former was, with and without a gateway', async (t) => {
  const path = t.testdir();
  const house = peopled(path);
  call(house);
  call(house);
  const made = house.registry.keys.rotate('k', 60);
  t.match(amountsOf(house.registry.keys.find(made.record.id).quotas), amounts(2n, false));
  t.ok(flush(house));
  await house.store.close();
  const store = new Store(path);
  const { keys } = offlineRegistry(store, house.clock);
  const again = keys.rotate(made.record.id, 60);
  t.match(amountsOf(keys.find(again.record.id).quotas), {
    tokens_per_month: [60n, 0n],
    spend_per_day: [6_000n, 0n],
  });
  await store.close();
});

void t.test('a flush that fails leaves groups to the next', async (t) => {
  const house = peopled(t.testdir());
  const { store, ledger, clock } = house;
  call(house);
  let fails = true;
  const failing: FlushStore = {
    findUsage: (key) => store.findUsage(key),
    findKeyId: (index) => store.findKeyId(index),
    putAccounting: (rows) => store.putAccounting(rows),
    commit: (work) => {
      if (fails) throw new Error('no disk');
      return store.commit(work);
    },
  };
  const quotaUses = new QuotaUses(ledger, clock, modelIdOf);
  const flusher = flushOf(house, new ListLog(), failing, { quotaUses });
  t.notOk(flusher.run());
  t.equal(quotaUses.size, 2);
  fails = false;
  t.ok(flusher.run());
  t.equal(quotaUses.size, 0);
  t.match(store.quotaUses.find({ kind: 'group', index: asGroupIndex(0) }), {
    tokensPerDay: 30,
    minuteRequests: 1,
  });
  await store.close();
});

void t.test('the commit of a charge has what its call used, before the next flush', async (t) => {
  const house = peopled(t.testdir());
  const { store, ledger, clock, registry } = house;
  const quotaUses = new QuotaUses(ledger, clock, modelIdOf);
  const flusher = flushOf(house, new ListLog(), store, { quotaUses });
  call(house);
  t.ok(flusher.commit());
  const { index } = registry.keys.find('k').record;
  t.match(store.quotaUses.find({ kind: 'key', index }), { tokensPerDay: 30 });
  for (const name of ['top', 'team']) {
    const { index: group } = registry.groups.find(name).record;
    t.match(store.quotaUses.find({ kind: 'group', index: group }), { tokensPerDay: 30 });
  }
  await store.close();
});

void t.test('a call that ends after its key and its group were deleted leaves no rows of them', async (t) => {
  const path = t.testdir();
  const house = peopled(path);
  const { ledger, registry, store } = house;
  call(house, false);
  registry.keys.delete('k');
  registry.accounts.setGroup('acme', undefined);
  registry.groups.delete('team');
  ledger.settle(asCallSlot(1), asPicoUnits(2_500n), 30);
  t.ok(flush(house));
  const top = registry.groups.find('top').record.index;
  t.match(store.quotaUses.find({ kind: 'group', index: top }), { tokensPerDay: 30 });
  await store.close();
  t.same((await audit(path, CAPACITY)).differences, []);
});

void t.test('the next owner of a slot begins at 0 within the month of the former', async (t) => {
  const house = peopled(t.testdir());
  const { registry, store, ledger, clock } = house;
  clock.nowMs -= 10 * DAY_MS;
  const quotaUses = new SharedQuotaUses(ledger, clock, modelIdOf, store.quotaUses, new ListLog());
  const flushed = () => flushOf(house, new ListLog(), store, { quotaUses }).run();
  call(house);
  call(house);
  t.ok(flushed());
  const [key, group] = [registry.keys.find('k').record.index, registry.groups.find('team').record.index];
  for (const scope of [{ kind: 'key', index: key } as const, { kind: 'group', index: group } as const])
    t.match(store.quotaUses.find(scope), { tokensPerMonth: 60, callsPerMonth: 2, spendPerMonth: 6 });
  registry.keys.delete('k');
  registry.accounts.setGroup('acme', undefined);
  registry.groups.delete('team');
  clock.nowMs += DAY_MS + 1;
  t.equal(registry.keys.create({ account: 'acme', name: 'k', limits: LIMITS }).record.index, key);
  t.equal(registry.groups.create({ name: 'next', limits: LIMITS }).record.index, group);
  registry.accounts.setGroup('acme', 'next');
  call(house);
  t.ok(flushed());
  for (const scope of [{ kind: 'key', index: key } as const, { kind: 'group', index: group } as const])
    t.match(store.quotaUses.find(scope), { tokensPerMonth: 30, callsPerMonth: 1, spendPerMonth: 3 });
  await store.close();
});

void t.test('several gateways add to a row, each what it has counted since', (t) => {
  const use = (fields: Partial<QuotaUseRecord>): QuotaUseRecord => ({
    minuteRequests: 0,
    callDayNumber: 10,
    callsPerDay: 0,
    minuteTokens: 0,
    takenMs: asWallMs(1),
    dayNumber: 10,
    monthNumber: 1,
    tokensPerDay: 0,
    callsPerMonth: 0,
    tokensPerMonth: 0,
    spendPerDay: 0,
    spendPerMonth: 0,
    ...fields,
  });
  const merged = (...[stored, mine, own]: readonly (QuotaUseRecord | undefined)[]): QuotaUseRecord =>
    mergedCounts(COUNTS_BY_PERIOD, mine!, own, stored);
  const counted = use({ callsPerDay: 2, tokensPerDay: 20, tokensPerMonth: 200, takenMs: asWallMs(5) });
  t.same(merged(undefined, counted, undefined), counted);
  const stored = use({ callsPerDay: 1, tokensPerDay: 10, tokensPerMonth: 100, spendPerMonth: 7 });
  t.same(merged(stored, counted, undefined), {
    ...counted,
    callsPerDay: 3,
    tokensPerDay: 30,
    tokensPerMonth: 300,
    spendPerMonth: 7,
  });
  const written = use({ callsPerDay: 2, tokensPerDay: 15, tokensPerMonth: 150 });
  t.match(merged(stored, counted, written), { callsPerDay: 1, tokensPerDay: 15, tokensPerMonth: 150 });
  const tomorrow = use({ ...counted, dayNumber: 11, tokensPerDay: 3 });
  t.match(merged(stored, tomorrow, written), { dayNumber: 11, tokensPerDay: 3, tokensPerMonth: 150 });
  const ahead = use({ dayNumber: 11, tokensPerDay: 4 });
  t.match(merged(ahead, counted, written), { dayNumber: 11, tokensPerDay: 4, tokensPerMonth: 50 });
  t.match(merged(undefined, counted, written), { tokensPerDay: 5 }, 'the row was removed meanwhile');
  t.end();
});

void t.test('a damaged row that several gateways add to is written anew', async (t) => {
  const house = peopled(t.testdir());
  const { store, ledger, clock } = house;
  const log = new ListLog();
  const uses = new SharedQuotaUses(ledger, clock, () => '', store.quotaUses, log);
  const scope = { kind: 'account', index: FIRST } as const;
  const write = (): void => {
    store.commit(() => {
      for (const [of, row] of uses.rows([FIRST], [])) store.quotaUses.put(of, row);
    });
    uses.recordWritten();
  };
  call(house);
  write();
  const whole = store.quotaUses.find(scope)!;
  store.commit(() => store.quotaUses.put(scope, { ...whole, minuteTokens: -1 }));
  t.throws(() => store.quotaUses.find(scope), { code: 'damaged' });
  call(house);
  write();
  t.match(store.quotaUses.find(scope), { callsPerMonth: 2, tokensPerDay: 60 }, 'all that was counted here');
  t.match(log.lines, [/damaged row of quota use/]);
  await store.close();
});
