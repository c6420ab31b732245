/** What calls use of an account, beside what was leased of it. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { byAccount, useOf, type CallsUse } from '#src/sharing/sharing-stats.js';

const units = (amount: number) => asPicoUnits(BigInt(amount));

const VIEW = {
  scope: 'acct_a',
  minuteUsed: 30,
  dayNumber: 20_000,
  dayUsed: 90,
  callsInFlight: 120,
  moneyOutstanding: units(189),
  spent: units(50),
};

const USE: CallsUse = {
  account: 'acct_a',
  callsInFlight: 12,
  held: units(60),
  minuteUnused: 4,
  dayNumber: 20_000,
  dayUnused: 5,
};

void t.test('each process tells its own calls', (t) => {
  const other = { ...USE, account: 'acct_b' };
  t.same(
    [...byAccount([USE, other, { ...USE, callsInFlight: 1 }])],
    [
      ['acct_a', [USE, { ...USE, callsInFlight: 1 }]],
      ['acct_b', [other]],
    ],
  );
  t.end();
});

void t.test('what was lent and is not used is leased', (t) => {
  const { dayNumber, spent } = VIEW;
  t.same(
    useOf(VIEW),
    {
      ...{ dayNumber, spent, minuteUsed: 30, dayCalls: 90, callsInFlight: 0, held: 0n },
      leased: { minute: 0, dayCalls: 0, callsInFlight: 120, money: 189n },
    },
    'of a key, or by other hosts',
  );
  t.same(useOf(VIEW, [USE, { ...USE, callsInFlight: 8, held: units(40), minuteUnused: 3, dayUnused: 0 }]), {
    ...{ dayNumber, spent, minuteUsed: 23, dayCalls: 85, callsInFlight: 20, held: 100n },
    leased: { minute: 7, dayCalls: 5, callsInFlight: 100, money: 89n },
  });
  t.match(
    useOf(VIEW, [USE, { ...USE, dayNumber: dayNumber - 1 }]),
    { dayCalls: 85, leased: { dayCalls: 5 } },
    'calls of another day',
  );
  t.match(
    useOf(VIEW, [{ ...USE, callsInFlight: 121, held: units(190), minuteUnused: 31, dayUnused: 91 }]),
    {
      ...{ minuteUsed: 0, dayCalls: 0, callsInFlight: 121, held: 190n },
      leased: { minute: 30, dayCalls: 90, callsInFlight: 0, money: 0n },
    },
    'what the authority knows is older, or newer',
  );
  t.end();
});
