/** Moments as people write them. */
import t from 'tap';
import { parseMomentMs } from '#src/core/clock.js';

void t.test('a day that is in no calendar is no moment', (t) => {
  t.equal(parseMomentMs('2025-01-31'), Date.UTC(2025, 0, 31));
  t.equal(parseMomentMs('2024-02-29'), Date.UTC(2024, 1, 29));
  t.equal(parseMomentMs('2025-01-31T12:00Z'), Date.UTC(2025, 0, 31, 12));
  t.equal(parseMomentMs('2025-02-28T23:30:01-02:00'), Date.UTC(2025, 2, 1, 1, 30, 1));
  for (const month of [
    '02-29',
    '02-30',
    '02-31',
    '04-31',
    '06-31',
    '09-31',
    '11-31',
    '13-01',
    '00-01',
    '01-32',
  ])
    for (const rest of ['', 'T00:00Z', 'T23:30-02:00'])
      t.ok(Number.isNaN(parseMomentMs(`2025-${month}${rest}`)), `2025-${month}${rest}`);
  for (const text of ['', 'x', '2025', '2025-01', '1 Jan 2025', '2025-01-31T25:00Z'])
    t.ok(Number.isNaN(parseMomentMs(text)), text);
  t.end();
});
