/**
 * Limits of single keys: their minute and day, beside those of their account, and what gives a call of the
 * day back.
 */
import t from 'tap';
import { asCallSlot, asKeyIndex, asPicoUnits } from '#src/core/units.js';
import { dayNumberOf } from '#src/ledger/day.js';
import { Ledger } from '#src/ledger/ledger.js';
import { TICK_MS } from '#src/ledger/window.js';
import {
  admitTo,
  ACCOUNT,
  SLOT,
  createLedgerWorld,
  interruptAt,
  type LedgerWorld,
  takenOfDay,
} from '../../fixtures/ledger-world.js';

const KEY = asKeyIndex(33);
const OTHER_KEY = asKeyIndex(34);
const DAY_MS = 86_400_000;
const HOLD = asPicoUnits(10n);
const MANY = 1_000;

function limitedWorld(callsPerDay = 2): LedgerWorld {
  const world = createLedgerWorld();
  world.ledger.keys.open(KEY, { requestsPerMinute: 3, callsPerDay });
  world.ledger.keys.open(OTHER_KEY, { requestsPerMinute: undefined, callsPerDay });
  return world;
}

const admitFor = (ledger: Ledger, key: typeof KEY, slot = SLOT, callsPerDay = 2) =>
  admitTo(ledger, slot, ACCOUNT, MANY, HOLD, MANY, { key, callsPerDay });

void t.test('limits are what they were opened with, on every thread', (t) => {
  const { ledger, buffers, clock } = limitedWorld();
  const other = new Ledger(structuredClone(buffers), clock);
  t.match(other.keys.limitsOf(KEY), { requestsPerMinute: 3, callsPerDay: 2 });
  t.match(other.keys.limitsOf(OTHER_KEY), { requestsPerMinute: undefined, callsPerDay: 2 });
  ledger.keys.open(KEY, { requestsPerMinute: undefined, callsPerDay: undefined });
  t.match(other.keys.limitsOf(KEY), { requestsPerMinute: undefined, callsPerDay: undefined }, 'opened anew');
  t.throws(() => ledger.keys.open(asKeyIndex(40), { requestsPerMinute: 1, callsPerDay: 1 }), /within/);
  t.end();
});

void t.test('minutes of keys are counted apart from each other and from accounts', (t) => {
  const { ledger, clock } = limitedWorld();
  for (let n = 0; n < 3; n++) t.equal(ledger.keys.minute.take(KEY, 3).remaining, 2 - n);
  t.notOk(ledger.keys.minute.take(KEY, 3).admitted);
  t.notOk(ledger.keys.minute.check(KEY, 3).admitted);
  t.equal(ledger.keys.minute.take(OTHER_KEY, 3).remaining, 2);
  t.equal(ledger.minute.take(ACCOUNT, 3).remaining, 2);
  t.match(ledger.keys.countsOf(KEY), { minuteUsed: 3 });
  clock.pass(51 * TICK_MS);
  t.equal(ledger.keys.minute.take(KEY, 3).remaining, 2, 'the minute has passed');
  t.end();
});

void t.test('the day of a key: its last call, its refusal, and what gives a call back', (t) => {
  const { ledger, clock } = limitedWorld();
  const today = dayNumberOf(clock.wallMs());
  const calls = () => [ledger.keys.countsOf(KEY).dayCalls, ledger.snapshot(ACCOUNT).dayCalls];
  const [first, second, third] = [0, 1, 2].map(asCallSlot);
  t.equal(admitFor(ledger, KEY, first), 'admitted');
  t.equal(ledger.takenOf(first!).key, KEY);
  t.equal(admitFor(ledger, KEY, second), 'admitted');
  t.same(calls(), [2, 2]);
  const before = ledger.snapshot(ACCOUNT);
  t.equal(admitFor(ledger, KEY, third), 'key_daily_limit_exceeded');
  t.same(ledger.snapshot(ACCOUNT), before, 'a refusal has taken nothing of the account');
  t.equal(admitFor(ledger, OTHER_KEY, third), 'admitted', 'other keys go on');
  t.equal(admitTo(ledger, asCallSlot(3), ACCOUNT, MANY, HOLD), 'admitted', 'and keys without limits');
  t.equal(ledger.takenOf(asCallSlot(3)).scopeCount, 0);

  t.ok(ledger.release(first!));
  t.same(calls(), [1, 3], 'what was released counts for neither');
  t.ok(ledger.settle(second!, HOLD));
  t.same(calls(), [1, 3], 'what was settled counts');
  t.equal(admitFor(ledger, KEY, first), 'admitted');
  const settlement = { ...ledger.settle(first!, HOLD)! };
  ledger.reverse(takenOfDay(ACCOUNT, today, KEY), settlement);
  t.same(calls(), [1, 3], 'what was taken back does not');
  t.equal(ledger.releaseSlots(asCallSlot(0), 8), 2);
  t.same(calls(), [1, 1], 'calls of a listener that died are given back');
  t.equal(ledger.keys.countsOf(OTHER_KEY).dayCalls, 0);

  clock.pass(DAY_MS);
  t.equal(admitFor(ledger, KEY, first), 'admitted');
  t.equal(admitFor(ledger, KEY, second), 'admitted', 'a new day');
  t.end();
});

void t.test('a refusal by account or balance gives the call of the key back', (t) => {
  const { ledger } = limitedWorld();
  const calls = () => ledger.keys.countsOf(KEY).dayCalls;
  const keyDay = { key: KEY, callsPerDay: 2 };
  t.equal(admitTo(ledger, SLOT, ACCOUNT, 0, HOLD, MANY, keyDay), 'daily_limit_exceeded');
  t.equal(calls(), 0);
  t.equal(admitTo(ledger, SLOT, ACCOUNT, MANY, asPicoUnits(10_000n), MANY, keyDay), 'insufficient_quota');
  t.equal(calls(), 0);
  t.equal(admitTo(ledger, SLOT, ACCOUNT, MANY, HOLD, 0, keyDay), 'too_many_in_flight');
  t.equal(calls(), 0);
  t.equal(ledger.snapshot(ACCOUNT).dayCalls, 0);
  t.end();
});

void t.test('whenever another thread takes the last call of the day, exactly one of both has it', (t) => {
  for (const whose of ['key', 'account']) {
    for (let step = 0; ; step++) {
      const { ledger, buffers, clock } = limitedWorld();
      const other = new Ledger(buffers, clock);
      const [ofAccount, ofKey] = whose === 'key' ? [MANY, 1] : [1, MANY];
      const admit = (by: Ledger, slot: number) =>
        admitTo(by, asCallSlot(slot), ACCOUNT, ofAccount, HOLD, MANY, { key: KEY, callsPerDay: ofKey });
      const outcomes: string[] = [];
      const reached = interruptAt(
        step,
        () => outcomes.push(admit(ledger, 0)),
        () => outcomes.push(admit(other, 1)),
      );
      if (!reached) {
        t.ok(step > 5, `${whose}: all steps were tried`);
        break;
      }
      // Both may be refused: the one meets what the other is about to give back.
      const admitted = outcomes.filter((outcome) => outcome === 'admitted').length;
      t.ok(admitted <= 1, `${whose}, step ${step}: ${outcomes.join()}`);
      t.equal(ledger.keys.countsOf(KEY).dayCalls, admitted);
      t.equal(ledger.snapshot(ACCOUNT).dayCalls, admitted);
    }
  }
  t.end();
});

void t.test('where the days of key and account differ, the call of the key stays taken', (t) => {
  const { ledger, clock } = createLedgerWorld();
  // As when midnight comes between the two: the key is in the next day already.
  const tomorrow = { minuteUsed: 0, dayNumber: dayNumberOf(clock.wallMs()) + 1, dayCalls: 1 };
  ledger.keys.open(KEY, { requestsPerMinute: undefined, callsPerDay: 2 }, { used: tomorrow });
  t.equal(admitFor(ledger, KEY), 'admitted');
  ledger.release(SLOT);
  t.same(ledger.keys.countsOf(KEY), { ...tomorrow, dayCalls: 2 });
  t.end();
});

void t.test('what was used before a restart weighs on', (t) => {
  const { ledger, clock } = createLedgerWorld();
  const used = { minuteUsed: 2, dayNumber: dayNumberOf(clock.wallMs()), dayCalls: 1 };
  ledger.keys.open(KEY, { requestsPerMinute: 3, callsPerDay: 2 }, { used, ageMs: 30_000 });
  t.same(ledger.keys.countsOf(KEY), used);
  t.equal(ledger.keys.minute.take(KEY, 3).remaining, 0);
  t.equal(admitFor(ledger, KEY), 'admitted');
  t.equal(admitFor(ledger, KEY, asCallSlot(1)), 'key_daily_limit_exceeded');
  t.end();
});

void t.test('keys whose counts have changed, or that were used, are dirty once', (t) => {
  const { ledger } = limitedWorld();
  const drained = () => {
    const keys: number[] = [];
    ledger.keys.dirty.drain((key) => keys.push(key), 32);
    return keys;
  };
  t.same(drained(), []);
  ledger.keys.dirty.mark(OTHER_KEY);
  ledger.keys.minute.take(KEY, 3);
  t.same(drained(), [KEY, OTHER_KEY]);
  t.equal(admitFor(ledger, KEY), 'admitted');
  t.same(drained(), [KEY]);
  ledger.release(SLOT);
  t.same(drained(), [KEY]);
  ledger.keys.takeDay(KEY, 0);
  t.same(drained(), [], 'a refusal changes nothing');
  t.end();
});
