/**
 * Calls of the day that were granted: used, given back and taken back, and what is told of them, over
 * midnight too.
 */
import t from 'tap';
import { asWallMs, type AccountIndex } from '#src/core/units.js';
import { DayCounter, dayNumberOf } from '#src/ledger/day.js';
import { createLedgerBuffers, openLedgerViews } from '#src/ledger/layout.js';
import { dayLeases, LeasedStocks } from '#src/ledger/leased-stocks.js';
import { Leases, type CountedLeases } from '#src/ledger/leases.js';
import { ACCOUNT, FakeClock, interruptAt } from '../../fixtures/ledger-world.js';
import { addDay, dayHeld, takeBackDay } from '../../fixtures/day-leases.js';

const DAY_MS = 86_400_000;
/** 2026-01-01 00:00 in UTC+8. */
const MIDNIGHT_MS = Date.UTC(2025, 11, 31, 16);
const TODAY = dayNumberOf(asWallMs(MIDNIGHT_MS));

interface LeasedDay extends Pick<DayCounter, 'giveBack' | 'read'> {
  take(account: AccountIndex): number | undefined;
  set(account: AccountIndex): void;
}

interface World {
  readonly clock: FakeClock;
  readonly day: LeasedDay;
  readonly leases: CountedLeases<AccountIndex>;
  readonly low: number[];
}

function createWorld(lent = 0, low = 0): World {
  const clock = new FakeClock();
  clock.wall = MIDNIGHT_MS;
  const buffers = createLedgerBuffers({ accountsMax: 2, callsInFlightMax: 1, shared: true });
  const leases = new Leases(buffers, clock).accounts;
  const told: number[] = [];
  const { accounts } = openLedgerViews(buffers);
  const stocks = new LeasedStocks(accounts.records64, clock, dayLeases(accounts.records64));
  const counter = new DayCounter(accounts, clock, stocks, (account) => told.push(account));
  // The limit is what was lent.
  const day: LeasedDay = {
    take: (account) => counter.take(account, 0),
    giveBack: (account, dayNumber) => counter.giveBack(account, dayNumber),
    read: (account) => counter.read(account),
    set: (account) => counter.set(account, TODAY, 7),
  };
  if (lent > 0) addDay(leases, ACCOUNT, TODAY, lent, low);
  return { clock, day, leases, low: told };
}

void t.test('takes what was lent and no more', (t) => {
  const { day, leases, low } = createWorld(3, 1);
  t.equal(day.take(ACCOUNT), TODAY);
  t.same(low, []);
  t.equal(day.take(ACCOUNT), TODAY);
  t.same(low, [ACCOUNT], 'once, by whoever leaves few');
  t.same(dayHeld(leases, ACCOUNT), { dayNumber: TODAY, used: 2, unused: 1 });
  t.equal(day.take(ACCOUNT), TODAY);
  t.equal(day.take(ACCOUNT), undefined);
  t.same(low, [ACCOUNT]);
  addDay(leases, ACCOUNT, TODAY, 2, 0);
  t.same(dayHeld(leases, ACCOUNT), { dayNumber: TODAY, used: 3, unused: 2 }, 'what was used stays counted');
  t.same(day.read(ACCOUNT), { dayNumber: TODAY, dayCalls: 3 });
  t.end();
});

void t.test('what is given back can be taken again, that day alone', (t) => {
  const { clock, day, leases } = createWorld(1);
  const taken = day.take(ACCOUNT)!;
  day.giveBack(ACCOUNT, taken);
  t.same(dayHeld(leases, ACCOUNT), { dayNumber: TODAY, used: 0, unused: 1 });
  day.take(ACCOUNT);
  clock.wall += DAY_MS;
  addDay(leases, ACCOUNT, TODAY + 1, 1, 0);
  day.giveBack(ACCOUNT, taken);
  t.same(dayHeld(leases, ACCOUNT), { dayNumber: TODAY + 1, used: 0, unused: 1 }, "yesterday's call is over");
  t.end();
});

void t.test('what is lent of a day is not for the next', (t) => {
  const { clock, day, leases } = createWorld(2);
  clock.wall = MIDNIGHT_MS + DAY_MS - 1;
  t.equal(day.take(ACCOUNT), TODAY);
  clock.wall += 1;
  t.equal(day.take(ACCOUNT), undefined);
  addDay(leases, ACCOUNT, TODAY + 1, 5, 0);
  t.same(dayHeld(leases, ACCOUNT), { dayNumber: TODAY + 1, used: 0, unused: 5 });
  clock.wall -= 1;
  t.equal(day.take(ACCOUNT), TODAY + 1, 'a clock behind the authority goes by its day');
  t.end();
});

void t.test('taken or taken back: each call goes to one, whoever is first', (t) => {
  for (let step = 0; ; step++) {
    const { day, leases } = createWorld(1);
    let taken: number | undefined;
    let back = 0;
    const reached = interruptAt(
      step,
      () => (taken = day.take(ACCOUNT)),
      () => (back = takeBackDay(leases, ACCOUNT)),
    );
    if (!reached) break;
    t.equal((taken === undefined ? 0 : 1) + back, 1, `step ${step}`);
    t.same(dayHeld(leases, ACCOUNT), { dayNumber: TODAY, used: 1 - back, unused: 0 });
  }
  for (let step = 0; ; step++) {
    const { day, leases } = createWorld(2);
    let taken: number | undefined;
    let back = 0;
    const reached = interruptAt(
      step,
      () => (back = takeBackDay(leases, ACCOUNT)),
      () => (taken = day.take(ACCOUNT)),
    );
    if (!reached) break;
    const used = taken === undefined ? 0 : 1;
    t.same(dayHeld(leases, ACCOUNT), { dayNumber: TODAY, used, unused: 0 }, `step ${step}`);
    t.equal(used + back, 2);
  }
  t.end();
});

void t.test('an account that is opened holds nothing', (t) => {
  const { day, leases } = createWorld(3);
  day.set(ACCOUNT);
  t.equal(day.take(ACCOUNT), undefined);
  t.equal(takeBackDay(leases, ACCOUNT), 0);
  t.same(dayHeld(leases, ACCOUNT), { dayNumber: 0, used: 0, unused: 0 });
  t.end();
});
