/** Percentiles of a histogram, which the console and `tollgate status` show. */
import t from 'tap';
import { percentileOf } from '#src/telemetry/status-document.js';

void t.test('a percentile lies within its bucket, as if the values were spread evenly', (t) => {
  t.same(percentileOf([10, 100], [90, 10, 0], 0.5), { ms: 50 / 9, above: false });
  t.same(percentileOf([10, 100], [90, 10, 0], 1), { ms: 100, above: false });
  t.same(percentileOf([10, 100], { 1: 10 }, 0.5), { ms: 55, above: false }, 'absent counts are 0');
  t.same(percentileOf([10, 100], [1, 0, 9], 0.5), { ms: 100, above: true }, 'above the last bound');
  t.same(percentileOf([10, 100], [0, 0, 0], 0.5), undefined, 'nothing was measured');
  t.same(percentileOf([], { 0: 1 }, 0.5), undefined, 'before the bounds have come');
  t.end();
});
