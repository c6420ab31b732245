import t from 'tap';
import { asWallMs } from '#src/core/units.js';
import { DayCounter, dayNumberOf, endOfDay } from '#src/ledger/day.js';
import { createLedgerBuffers, openLedgerViews } from '#src/ledger/layout.js';
import { ACCOUNT, FakeClock, interruptAt } from '../../fixtures/ledger-world.js';

const DAY_MS = 86_400_000;
/** 2026-01-01 00:00 in UTC+8. */
const MIDNIGHT_MS = Date.UTC(2025, 11, 31, 16);
const TODAY = dayNumberOf(asWallMs(MIDNIGHT_MS));

function createDay(): { clock: FakeClock; day: DayCounter; other: DayCounter } {
  const clock = new FakeClock();
  clock.wall = MIDNIGHT_MS;
  const views = openLedgerViews(createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 1 }));
  return { clock, day: new DayCounter(views.accounts, clock), other: new DayCounter(views.accounts, clock) };
}

void t.test('a day ends at 00:00 UTC+8, to the millisecond', (t) => {
  t.equal(dayNumberOf(asWallMs(MIDNIGHT_MS - 1)), TODAY - 1);
  t.equal(dayNumberOf(asWallMs(MIDNIGHT_MS + DAY_MS - 1)), TODAY);
  t.equal(endOfDay(TODAY), MIDNIGHT_MS + DAY_MS);
  t.equal(endOfDay(TODAY - 1), MIDNIGHT_MS);
  t.equal(new Date(endOfDay(TODAY)).toISOString(), '2026-01-01T16:00:00.000Z');
  t.end();
});

void t.test('takes the limit and no more, and the whole limit again at midnight', (t) => {
  const { clock, day } = createDay();
  t.equal(day.take(ACCOUNT, 2), TODAY);
  t.equal(day.take(ACCOUNT, 2), TODAY);
  t.equal(day.take(ACCOUNT, 2), undefined);
  t.same(day.read(ACCOUNT), { dayNumber: TODAY, dayCalls: 2 }, 'a refusal takes nothing');
  clock.wall = MIDNIGHT_MS + DAY_MS - 1;
  t.equal(day.take(ACCOUNT, 2), undefined);
  clock.wall += 1;
  t.equal(day.take(ACCOUNT, 2), TODAY + 1);
  t.same(day.read(ACCOUNT), { dayNumber: TODAY + 1, dayCalls: 1 });
  t.equal(day.take(ACCOUNT, 0), undefined);
  clock.wall += DAY_MS;
  t.equal(day.take(ACCOUNT, 0), undefined, 'a limit of nothing refuses on a fresh day too');
  t.end();
});

void t.test('what is given back goes to the day it was taken on, and never below zero', (t) => {
  const { clock, day } = createDay();
  const taken = day.take(ACCOUNT, 5)!;
  day.giveBack(ACCOUNT, taken);
  t.equal(day.read(ACCOUNT).dayCalls, 0);
  day.giveBack(ACCOUNT, taken);
  t.same(day.read(ACCOUNT), { dayNumber: TODAY, dayCalls: 0 });
  day.take(ACCOUNT, 5);
  clock.wall += DAY_MS;
  day.take(ACCOUNT, 5);
  day.giveBack(ACCOUNT, taken);
  t.same(day.read(ACCOUNT), { dayNumber: TODAY + 1, dayCalls: 1 }, "yesterday's call does not lower today's");
  t.end();
});

void t.test('a clock set back over midnight goes on with the later day', (t) => {
  const { clock, day } = createDay();
  t.equal(day.take(ACCOUNT, 2), TODAY);
  clock.wall = MIDNIGHT_MS - 1;
  t.equal(day.take(ACCOUNT, 2), TODAY);
  t.equal(day.take(ACCOUNT, 2), undefined, 'the earlier day is not opened again');
  clock.wall = MIDNIGHT_MS + DAY_MS;
  t.equal(day.take(ACCOUNT, 2), TODAY + 1);
  t.end();
});

void t.test('a clock set back by days takes what was counted with it', (t) => {
  for (const days of [2, 3, 365]) {
    const { clock, day } = createDay();
    t.equal(day.take(ACCOUNT, 2), TODAY);
    clock.wall += days * DAY_MS;
    t.equal(day.take(ACCOUNT, 2), TODAY + days);
    clock.wall -= days * DAY_MS;
    t.equal(day.take(ACCOUNT, 2), TODAY, 'one call was counted on the mistaken day');
    t.equal(day.take(ACCOUNT, 2), undefined);
    t.same(day.read(ACCOUNT), { dayNumber: TODAY, dayCalls: 2 });
    clock.wall = MIDNIGHT_MS + DAY_MS;
    t.equal(day.take(ACCOUNT, 2), TODAY + 1, 'midnight comes as ever');
  }
  t.end();
});

void t.test('a thread stopped at any step: the day rolls once, none too many, none lost', (t) => {
  for (const before of [0, 1, 2]) {
    for (const afterMidnight of [false, true]) {
      for (const calls of [1, 2, 3]) {
        for (let step = 0, reached = true; reached; step++) {
          const { clock, day, other } = createDay();
          for (let n = 0; n < before; n++) day.take(ACCOUNT, 3);
          const taken: (number | undefined)[] = [];
          if (afterMidnight) clock.wall += DAY_MS;
          reached = interruptAt(
            step,
            () => taken.push(day.take(ACCOUNT, 3)),
            () => {
              for (let n = 0; n < calls; n++) taken.push(other.take(ACCOUNT, 3));
            },
          );
          const admitted = taken.filter((number) => number !== undefined).length;
          const left = afterMidnight ? 3 : 3 - before;
          const asked = reached ? calls + 1 : 1;
          t.equal(admitted, Math.min(left, asked));
          if (admitted > 0) t.equal(day.read(ACCOUNT).dayCalls, 3 - left + admitted);
        }
      }
    }
  }
  t.end();
});
