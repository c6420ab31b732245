import t from 'tap';
import { percentOfLimit, percentText, QUOTA_NAMES } from '#src/core/quotas.js';

void t.test('each quota has a name', (t) => {
  t.equal(new Set(QUOTA_NAMES).size, 9);
  t.end();
});

void t.test('percent of a limit are exact, and rounded down', (t) => {
  for (const [percent, limit, ...amounts] of [
    [99, 100_000, 99_800],
    [99, 100_000, 99_000, 999],
    [100, 100_000, 99_000, 1_000],
    [199, 1_000, 1_999],
    [0, 1_000, 9],
    [99, 1_000_000_000_000, 999_999_999_999],
    [57, '1.00', '0.57'],
    [57, '1.00', '0.56', '0.01'],
    [99, '3000000.00', '2999999.999999999999'],
    [0, '3.00'],
  ] as const)
    t.equal(percentOfLimit(limit, ...amounts), percent, `${amounts.join(' and ')} of ${limit}`);
  t.equal(percentText(100_000, 99_800), '99 %');
  t.equal(percentText('250.00', '0.000012'), 'under 1 %');
  t.equal(percentText('250.00', '0.00', '2.50'), '1 %');
  t.equal(percentText(8, 0), '0 %');
  t.end();
});
