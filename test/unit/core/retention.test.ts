import t from 'tap';
import { isWithin, RetentionCalendar } from '#src/core/retention.js';
import { FakeClock } from '../../fixtures/ledger-world.js';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** A calendar that is asked each minute, as those who remove data do. */
function createWorld() {
  const clock = new FakeClock();
  const calendar = new RetentionCalendar(clock);
  const pass = (minutes: number): number => {
    let nowMs = calendar.nowMs();
    for (let minute = 0; minute < minutes; minute++) {
      clock.pass(MINUTE_MS);
      nowMs = calendar.nowMs();
    }
    return nowMs;
  };
  return { clock, pass };
}

void t.test('nothing is old in the first four minutes, then the wall clock tells', (t) => {
  const { clock, pass } = createWorld();
  t.equal(pass(3), -Infinity);
  t.equal(pass(1), clock.wall);
  t.equal(pass(600), clock.wall);
  t.end();
});

void t.test('a step ahead counts after an hour, and not at all if the clock is set right before', (t) => {
  for (const aheadMs of [2 * MINUTE_MS, DAY_MS, 20_000 * DAY_MS]) {
    const { clock, pass } = createWorld();
    pass(10);
    clock.wall += aheadMs;
    t.equal(pass(59), clock.wall - aheadMs);
    clock.wall -= aheadMs;
    t.equal(pass(120), clock.wall, 'the clock was set right');
    clock.wall += aheadMs;
    t.equal(pass(59), clock.wall - aheadMs);
    t.equal(pass(2), clock.wall, 'the clock stays ahead');
  }
  t.end();
});

void t.test('a step back counts at once', (t) => {
  const { clock, pass } = createWorld();
  pass(10);
  clock.wall -= DAY_MS;
  t.equal(pass(0), clock.wall);
  t.end();
});

void t.test('an age is below its bound, and never of the future', (t) => {
  t.ok(isWithin(10, 91, 100));
  t.notOk(isWithin(10, 90, 100));
  t.ok(isWithin(10, 100, 100));
  t.notOk(isWithin(10, 101, 100), 'what was written while the clock was ahead');
  t.notOk(isWithin(0, 100, 100));
  t.end();
});
