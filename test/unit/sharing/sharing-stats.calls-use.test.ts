/** What calls use of an account, beside what was leased of it. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { ScopeView } from '#src/sharing/coordinator.js';
import { byScope, useOf, type CallsUse } from '#src/sharing/sharing-stats.js';

const DAY = 20_000;
const spent = asPicoUnits(50n);

const VIEW: ScopeView = {
  scope: 'acct_a',
  minuteUsed: 30,
  stocks: {
    calls_per_day: { period: DAY, used: 60n, unused: 30n },
    calls_in_flight: { period: 0, used: 0n, unused: 120n },
    balance: { period: 0, used: 0n, unused: 189n },
  },
  spent,
};

interface Uses {
  readonly slots: bigint;
  readonly money: bigint;
  readonly minute: number;
  readonly day: bigint;
  readonly dayNumber?: number;
}

function use({ slots, money, minute, day, dayNumber = DAY }: Uses, scope = 'acct_a'): CallsUse {
  const stock = (held: bigint) => ({ period: 0, held, unused: 0n });
  return {
    scope,
    minuteUnused: minute,
    stocks: {
      calls_in_flight: stock(slots),
      balance: stock(money),
      calls_per_day: { period: dayNumber, held: 0n, unused: day },
    },
  };
}

const FIRST: Uses = { slots: 12n, money: 60n, minute: 4, day: 5n };

void t.test('each process tells its own calls', (t) => {
  const [first, second] = [use(FIRST), use({ ...FIRST, slots: 1n })];
  const other = use(FIRST, 'acct_b');
  t.same(
    [...byScope([first, other, second])],
    [
      ['acct_a', [first, second]],
      ['acct_b', [other]],
    ],
  );
  t.end();
});

void t.test('what was lent and is not used is leased', (t) => {
  const known = (calls?: CallsUse[]) => {
    const { quotas, ...use } = useOf(VIEW, calls);
    return { ...use, day: quotas.get('calls_per_day') };
  };
  t.same(
    known(),
    {
      ...{ dayNumber: DAY, spent, minuteUsed: 30, dayCalls: 90, callsInFlight: 0, held: 0n },
      leased: { minute: 0, dayCalls: 0, callsInFlight: 120, money: 189n },
      day: { period: DAY, used: 90n, held: 0n },
    },
    'of a key, or by other hosts',
  );
  t.same(known([use(FIRST), use({ slots: 8n, money: 40n, minute: 3, day: 0n })]), {
    ...{ dayNumber: DAY, spent, minuteUsed: 23, dayCalls: 85, callsInFlight: 20, held: 100n },
    leased: { minute: 7, dayCalls: 5, callsInFlight: 100, money: 89n },
    day: { period: DAY, used: 85n, held: 0n },
  });
  t.match(
    useOf(VIEW, [use(FIRST), use({ ...FIRST, dayNumber: DAY - 1 })]),
    { dayCalls: 85, leased: { dayCalls: 5 } },
    'calls of another day',
  );
  t.match(
    useOf(VIEW, [use({ slots: 121n, money: 190n, minute: 31, day: 91n })]),
    {
      ...{ minuteUsed: 0, dayCalls: 0, callsInFlight: 121, held: 190n },
      leased: { minute: 30, dayCalls: 90, callsInFlight: 0, money: 0n },
    },
    'what the authority knows is older, or newer',
  );
  t.end();
});
