import t from 'tap';
import { quotaFields, quotaLines } from '#src/cli/quota-text.js';

const resets = Date.UTC(2026, 10, 30, 16) / 1_000;

void t.test('what is used of each quota, as people read it', (t) => {
  const quotas = {
    spend_per_month: {
      limit: '250.00',
      used: '0.000012',
      held: '1.25',
      left: '248.749988',
      resets_at: resets,
    },
    tokens_per_day: { limit: 100_000, used: 61_200, held: 0, left: 38_800, resets_at: resets },
    requests_per_minute: { limit: 60, used: 60, held: 0, left: 0, resets_at: null },
    calls_in_flight: { limit: 4, used: 0, held: 3, left: 1, resets_at: null },
    calls_per_day: { limit: 1_000, used: 1_999, held: 0, left: 0, resets_at: resets },
  };
  t.same(quotaFields(quotas), [
    ['requests per minute', '60 of 60 (100 %)'],
    ['calls in flight', '0 of 4 (0 %), 3 held'],
    ['calls per day', '1,999 of 1,000 (199 %), resets 2026-11-30 16:00:00Z'],
    ['tokens per day', '61,200 of 100,000 (61 %), resets 2026-11-30 16:00:00Z'],
    ['spend per month', '0.000012 of 250.00 (under 1 %), 1.25 held, resets 2026-11-30 16:00:00Z'],
  ]);
  t.same(quotaLines({}), []);
  t.same(
    quotaFields({ tokens_per_day: { limit: 1_000, used: 999, held: 0, left: 1, resets_at: null } }),
    [['tokens per day', '999 of 1,000 (99 %)']],
    'rounded down: 100 % is all',
  );
  for (const [used, limit, percent] of [
    ['0.57', '1.00', '57 %'],
    ['2999999.999999999999', '3000000.00', '99 %'],
  ] as const)
    t.same(
      quotaFields({ spend_per_day: { limit, used, held: '0.00', left: '0.00', resets_at: null } }),
      [['spend per day', `${used} of ${limit} (${percent})`]],
      'money is exact',
    );
  t.end();
});
