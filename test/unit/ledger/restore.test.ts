/**
 * A minute that another process has counted weighs on after a restart, and never for too short a time.
 */
import t from 'tap';
import { TICK_MS } from '#src/ledger/window.js';
import { ACCOUNT, createLedgerWorld } from '../../fixtures/ledger-world.js';

const LIMIT = 10;
const WEIGHT_MS = 51 * TICK_MS;

void t.test(
  'what is left of the limit after a restart is what was left before, until the minute is over',
  (t) => {
    for (const used of [0, 1, 9, 10, 2 ** 20 - 1]) {
      for (const ageMs of [0, 1, TICK_MS, 30_000, 59_999, 60_000]) {
        const { ledger, clock } = createLedgerWorld();
        ledger.minute.restore(ACCOUNT, used, ageMs);
        t.equal(ledger.snapshot(ACCOUNT).minuteUsed, used, `${used} of ${ageMs} ms ago`);
        let admitted = 0;
        while (admitted <= LIMIT && ledger.minute.take(ACCOUNT, LIMIT).admitted) admitted++;
        t.equal(admitted, Math.max(0, LIMIT - used));
        clock.pass(WEIGHT_MS + TICK_MS);
        t.equal(ledger.minute.take(ACCOUNT, LIMIT).remaining, LIMIT - 1, 'all of it expires');
      }
    }
    t.end();
  },
);

void t.test('at every age: full for 60 s after it was taken, free by 61.3 s', (t) => {
  for (let ageMs = 0; ageMs <= 62_000; ageMs += 100) {
    const { ledger } = createLedgerWorld();
    ledger.minute.restore(ACCOUNT, LIMIT, ageMs);
    const { admitted, remaining } = ledger.minute.take(ACCOUNT, LIMIT);
    if (ageMs < 60_000) t.notOk(admitted, `${ageMs} ms ago`);
    if (ageMs >= WEIGHT_MS) t.equal(remaining, LIMIT - 1, `${ageMs} ms ago`);
  }
  t.end();
});

void t.test('whoever waits until the reset is admitted', (t) => {
  const { ledger, clock } = createLedgerWorld();
  ledger.minute.restore(ACCOUNT, LIMIT, 20_000);
  const { admitted, resetWallMs } = ledger.minute.take(ACCOUNT, LIMIT);
  t.notOk(admitted);
  clock.pass(resetWallMs - clock.wall);
  t.ok(ledger.minute.take(ACCOUNT, LIMIT).admitted);
  t.end();
});

void t.test('a clock that was set back, and a host that was started anew, err on refusing', (t) => {
  const back = createLedgerWorld();
  back.ledger.minute.restore(ACCOUNT, LIMIT, -5_000_000);
  t.notOk(back.ledger.minute.take(ACCOUNT, LIMIT).admitted);
  back.clock.pass(WEIGHT_MS + TICK_MS);
  t.ok(back.ledger.minute.take(ACCOUNT, LIMIT).admitted, 'for a minute, not for longer');

  const anew = createLedgerWorld();
  anew.clock.monotonic = 3_000;
  anew.ledger.minute.restore(ACCOUNT, LIMIT, 20_000);
  t.notOk(anew.ledger.minute.take(ACCOUNT, LIMIT).admitted);
  anew.clock.pass(WEIGHT_MS);
  t.ok(anew.ledger.minute.take(ACCOUNT, LIMIT).admitted);
  t.end();
});
