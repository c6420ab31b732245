/**
 * Quotas of days and months while the clock is set back over the midnight at which a month began: what is
 * used of the month that has begun stays used, in rejections, on disk, for a rotated key and for operators.
 */
import t from 'tap';
import { NO_QUOTAS, QUOTA_FIELDS, type QuotaLimits, type QuotaName } from '#src/core/quotas.js';
import { asAccountIndex, asCallSlot, asPicoUnits } from '#src/core/units.js';
import type { KeyRecord } from '#src/registry/key-record.js';
import { QuotaUses, SharedQuotaUses } from '#src/store/quota-uses.js';
import { recover } from '#src/store/recovery.js';
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
const ACCOUNT = asAccountIndex(0);
const SLOT = asCallSlot(0);
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** A month begins in UTC+8. */
const MIDNIGHT_MS = Date.UTC(2025, 1, 28, 16);
const MONTH_END_MS = Date.UTC(2025, 2, 31, 16);
const CALL_TOKENS = 30;
const CALL_COST = asPicoUnits(30_000n);

/** Each limit is for four calls. */
const QUOTAS: readonly (readonly [QuotaName, Partial<QuotaLimits>, endMs: number])[] = [
  ['calls_per_day', { callsPerDay: 4 }, MIDNIGHT_MS + DAY_MS],
  ['tokens_per_day', { tokensPerDay: 4 * CALL_TOKENS }, MIDNIGHT_MS + DAY_MS],
  ['spend_per_day', { spendPerDay: asPicoUnits(4n * CALL_COST) }, MIDNIGHT_MS + DAY_MS],
  ['calls_per_month', { callsPerMonth: 4 }, MONTH_END_MS],
  ['tokens_per_month', { tokensPerMonth: 4 * CALL_TOKENS }, MONTH_END_MS],
  ['spend_per_month', { spendPerMonth: asPicoUnits(4n * CALL_COST) }, MONTH_END_MS],
];

function peopled(path: string, limits: Partial<QuotaLimits>): House {
  const house = openHouse(path, CATALOG);
  house.clock.nowMs = MIDNIGHT_MS + HOUR_MS;
  const { accounts, keys } = house.registry;
  accounts.create({ name: 'acme', planId: 'free', credit: asPicoUnits(10n ** 12n) });
  keys.create({ account: 'acme', name: 'k', limits });
  return house;
}

/** Makes calls of the key until one is rejected: how many were served, and the rejection. */
function useUp({ ledger }: House, { index: key }: KeyRecord, callsMax = 10) {
  const plan = { callsPerDay: 1_000, callsInFlightMax: 5, quotas: NO_QUOTAS };
  const needs = { hold: CALL_COST, tokens: CALL_TOKENS };
  for (let calls = 0; ; calls++) {
    if (calls === callsMax) return { calls, rejection: undefined };
    const rejection = ledger.admit(SLOT, { account: ACCOUNT, plan, key }, needs);
    if (rejection !== undefined) return { calls, rejection };
    ledger.settle(SLOT, CALL_COST, CALL_TOKENS);
  }
}

const keyOf = ({ registry }: House): KeyRecord => registry.keys.find('k').record;

function flush(house: House): boolean {
  const quotaUses = new QuotaUses(house.ledger, house.clock, () => '');
  return flushOf(house, new ListLog(), house.store, { quotaUses }).run();
}

for (const [quota, limits, endMs] of QUOTAS) {
  const limit = BigInt(limits[QUOTA_FIELDS[quota]]!);
  const usedUp = [{ quota, limit, used: limit, held: 0n, resetsMs: endMs }];

  void t.test(`${quota}: who waits for as long as the rejection says is admitted`, async (t) => {
    const house = peopled(t.testdir(), limits);
    const key = keyOf(house);
    t.equal(useUp(house, key).calls, 4);
    house.clock.nowMs -= 2 * HOUR_MS;
    const { calls, rejection } = useUp(house, key);
    t.match({ calls, rejection }, { calls: 0, rejection: { quota, left: 0n, resetsMs: endMs } });
    t.same(house.registry.keys.find('k').quotas, usedUp, 'operators see the same');
    house.clock.nowMs = MIDNIGHT_MS;
    t.equal(useUp(house, key).calls, 0, 'the midnight that was before is no new one');
    house.clock.nowMs = endMs;
    t.equal(useUp(house, key).calls, 4);
    await house.store.close();
  });

  void t.test(`${quota}: nothing is left after a start, nor for a rotated key`, async (t) => {
    const path = t.testdir();
    const before = peopled(path, limits);
    t.equal(useUp(before, keyOf(before)).calls, 4);
    before.clock.nowMs -= 2 * HOUR_MS;
    t.ok(flush(before));
    before.registry.keys.rotate('k', 0);
    const offline = offlineRegistry(before.store, before.clock);
    t.same(offline.keys.find('k').quotas, usedUp, 'a command reads the same');
    t.ok(flush(before));
    await before.store.close();

    const after = openHouse(path, CATALOG);
    after.clock.nowMs = MIDNIGHT_MS - HOUR_MS;
    recover({ ...after, ...CAPACITY, catalog: CATALOG, log: new ListLog() });
    t.equal(useUp(after, keyOf(after)).calls, 0);
    after.clock.nowMs = MIDNIGHT_MS + HOUR_MS;
    t.equal(useUp(after, keyOf(after)).calls, 0, 'the clock is right again');
    after.clock.nowMs = endMs;
    t.equal(useUp(after, keyOf(after)).calls, 4);
    await after.store.close();
  });

  if (quota === 'calls_per_day') continue; // counted in another row
  void t.test(`${quota}: a row that several gateways add to has each call once`, async (t) => {
    const house = peopled(t.testdir(), limits);
    const { ledger, clock, store } = house;
    const scope = { kind: 'key', index: keyOf(house).index } as const;
    const uses = new SharedQuotaUses(ledger, clock, () => '', store.quotaUses, new ListLog());
    const usedInRow = (): bigint | undefined => {
      store.commit(() => {
        for (const [of, row] of uses.rows([], [scope.index])) store.quotaUses.put(of, row);
      });
      uses.recordWritten();
      return offlineRegistry(store, clock).keys.find('k').quotas[0]?.used;
    };
    t.equal(useUp(house, keyOf(house), 2).calls, 2);
    t.equal(usedInRow(), limit / 2n);
    clock.nowMs -= 2 * HOUR_MS;
    t.equal(usedInRow(), limit / 2n, 'the clock is set back');
    clock.nowMs += 2 * HOUR_MS;
    t.equal(usedInRow(), limit / 2n, 'the clock is right again');
    t.equal(useUp(house, keyOf(house)).calls, 2);
    t.equal(usedInRow(), limit);
    await store.close();
  });
}

void t.test('a clock that was a month ahead for a moment takes no use off the disk', async (t) => {
  const house = peopled(t.testdir(), { tokensPerMonth: 120 });
  const { clock, store } = house;
  t.equal(useUp(house, keyOf(house), 2).calls, 2);
  clock.nowMs += 40 * DAY_MS;
  t.ok(flush(house));
  clock.nowMs -= 40 * DAY_MS;
  t.match(offlineRegistry(store, clock).keys.find('k').quotas, [{ used: 60n, resetsMs: MONTH_END_MS }]);
  await store.close();
});
