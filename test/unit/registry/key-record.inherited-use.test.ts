import t from 'tap';
import { asWallMs } from '#src/core/units.js';
import { type InheritedUse, laterUse } from '#src/registry/key-record.js';

const NOW_MS = 1_000_000;
const useOf = (minuteUsed: number, dayNumber: number, dayCalls: number, takenMs = NOW_MS): InheritedUse => ({
  minuteUsed,
  dayNumber,
  dayCalls,
  takenMs: asWallMs(takenMs),
});

void t.test('a key that is rotated twice before it was used has what the first had used', (t) => {
  const now = useOf(1, 8, 2);
  t.same(laterUse(now, undefined), now);
  t.same(laterUse(useOf(0, 0, 0), useOf(5, 8, 9)), useOf(5, 8, 9), 'not used since');
  t.same(laterUse(now, useOf(5, 8, 9)), useOf(5, 8, 9), 'counted elsewhere by less');
  t.same(laterUse(useOf(6, 8, 10), useOf(5, 8, 9)), useOf(6, 8, 10), 'counted with what was inherited');
  t.same(laterUse(now, useOf(5, 7, 9)), useOf(5, 8, 2), 'of the day before');
  t.same(laterUse(now, useOf(5, 8, 9, NOW_MS - 60_000)), useOf(1, 8, 9), 'of a minute that weighs no more');
  t.end();
});
