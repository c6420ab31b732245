import t from 'tap';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { DiscardBudget } from '#src/request/discard-budget.js';

const MIB = 1024 * 1024;

void t.test('so much a second is thrown away, and less at once', (t) => {
  let nowMs = 5_000;
  const budget = new DiscardBudget({ monotonicMs: () => asMonotonicMs(nowMs), wallMs: () => asWallMs(0) });
  t.equal(budget.take(60 * MIB), true);
  t.equal(budget.take(10 * MIB), false);
  t.equal(budget.take(4 * MIB), true, 'what was refused was not taken');
  nowMs += 125;
  t.equal(budget.take(33 * MIB), false);
  t.equal(budget.take(32 * MIB), true, 'an eighth of a second later');
  nowMs += 60_000;
  t.equal(budget.take(60 * MIB), true);
  t.equal(budget.take(5 * MIB), false, 'what is not used is not kept');
  t.end();
});

void t.test('one body alone is read however long it is, and the next one waits for as much time', (t) => {
  let nowMs = 5_000;
  const budget = new DiscardBudget({ monotonicMs: () => asMonotonicMs(nowMs), wallMs: () => asWallMs(0) });
  t.equal(budget.take(320 * MIB), true);
  nowMs += 1_000;
  t.equal(budget.take(MIB), false);
  nowMs += 4;
  t.equal(budget.take(MIB), true);
  t.end();
});
