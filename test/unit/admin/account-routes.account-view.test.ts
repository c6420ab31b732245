import t from 'tap';
import { viewOfAccount } from '#src/admin/account-routes.js';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';

void t.test('money is exact, seconds are whole', (t) => {
  const statement = {
    record: {
      index: asAccountIndex(0),
      id: 'acct_x',
      name: 'acme',
      planId: 'free',
      active: false,
      createdMs: asWallMs(1_999),
      credited: asPicoUnits(8_999_999_999_999_999_999n),
    },
    available: asPicoUnits(8_999_999_999_999_999_996n),
    held: asPicoUnits(2n),
    spent: asPicoUnits(1n),
    uncovered: asPicoUnits(10n),
    callsToday: 5,
    requestsThisMinute: 6,
    callsInFlight: 7,
    quotas: [],
  };
  const view = {
    id: 'acct_x',
    name: 'acme',
    plan: 'free',
    group: null,
    group_name: null,
    active: false,
    balance: '8999999.999999999996',
    held: '0.000000000002',
    spent: '0.000000000001',
    credited: '8999999.999999999999',
    uncovered: '0.00000000001',
    calls_today: 5,
    requests_this_minute: 6,
    calls_in_flight: 7,
    quotas: {},
    created: 1,
  };
  t.same(viewOfAccount(statement), view);
  const leased = { minute: 10, dayCalls: 9, callsInFlight: 8, money: asPicoUnits(1_500_000_000_000n) };
  t.same(viewOfAccount({ ...statement, leased }), {
    ...view,
    leased: { balance: '1.50', calls_today: 9, requests_this_minute: 10, calls_in_flight: 8 },
  });
  const group = { id: 'grp_x', name: 'vision', path: ['research', 'vision'] };
  const quotas = [
    { quota: 'tokens_per_day', limit: 5n, used: 6n, held: 1n, resetsMs: asWallMs(9_000) },
  ] as const;
  t.same(viewOfAccount({ ...statement, group, quotas }), {
    ...view,
    group: 'grp_x',
    group_name: 'vision',
    quotas: { tokens_per_day: { limit: 5, used: 6, held: 1, left: 0, resets_at: 9 } },
  });
  t.end();
});
