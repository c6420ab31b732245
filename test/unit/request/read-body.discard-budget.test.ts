import t from 'tap';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { DiscardBudget } from '#src/request/read-body.js';

const MIB = 1024 * 1024;

void t.test('so much a second is thrown away, and no more after a rest', (t) => {
  let nowMs = 5_000;
  const budget = new DiscardBudget({ monotonicMs: () => asMonotonicMs(nowMs), wallMs: () => asWallMs(0) });
  t.equal(budget.take(250 * MIB), true);
  t.equal(budget.take(10 * MIB), false);
  t.equal(budget.take(6 * MIB), true, 'what was refused was not taken');
  nowMs += 500;
  t.equal(budget.take(129 * MIB), false);
  t.equal(budget.take(128 * MIB), true, 'half a second later');
  nowMs += 60_000;
  t.equal(budget.take(257 * MIB), false, 'what is not used is not kept');
  t.equal(budget.take(256 * MIB), true);
  t.end();
});
