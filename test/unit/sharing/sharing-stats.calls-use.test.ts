/** What calls use of an account, beside what was leased of it. */
import t from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import type { ProcessView, ScopeView } from '#src/sharing/coordinator.js';
import { groupByScope, useOf, type CallsUse } from '#src/sharing/sharing-stats.js';

const DAY = 20_000;
const spent = asPicoUnits(50n);

/** Two processes of this host, and others: they were granted 90 calls of the day and reported 60. */
const VIEW: ScopeView = {
  scope: 'acct_a',
  minute: { weighing: 30, unexpired: 20 },
  stocks: {
    calls_per_day: { period: DAY, used: 60n, unused: 30n },
    calls_in_flight: { period: 0, used: 0n, unused: 120n },
    balance: { period: 0, used: 0n, unused: 189n },
  },
  processes: [0, 1].map((slot): ProcessView => ({
    slot,
    minute: { weighing: 12, unexpired: 8, number: 7 },
    used: { calls_per_day: 20n, calls_in_flight: 0n },
  })),
  spent,
};

interface Uses {
  readonly slot?: number;
  readonly slots: bigint;
  readonly money: bigint;
  readonly minute: number;
  /** Calls of the day that the process was granted and has not used; it has used what it has reported. */
  readonly day: bigint;
  readonly dayUsed?: bigint;
  readonly dayNumber?: number;
  readonly heardNumber?: number;
}

function use(uses: Uses, scope = 'acct_a'): CallsUse {
  const { slot = 0, slots, money, minute, day, dayUsed = 20n, dayNumber = DAY, heardNumber = 7 } = uses;
  const held = (amount: bigint) => ({ period: 0, granted: amount, used: 0n, available: 0n });
  return {
    scope,
    slot,
    minute: { unused: minute, heardNumber },
    stocks: {
      calls_in_flight: held(slots),
      balance: held(money),
      calls_per_day: { period: dayNumber, granted: dayUsed + day, used: dayUsed, available: day },
    },
  };
}

const FIRST: Uses = { slots: 12n, money: 60n, minute: 4, day: 5n };
const SECOND: Uses = { slot: 1, slots: 8n, money: 40n, minute: 3, day: 0n };

void t.test('each process tells its own calls', (t) => {
  const [first, second] = [use(FIRST), use({ ...FIRST, slots: 1n })];
  const other = use(FIRST, 'acct_b');
  t.same(
    [...groupByScope([first, other, second])],
    [
      ['acct_a', [first, second]],
      ['acct_b', [other]],
    ],
  );
  t.end();
});

void t.test('what was lent and is not used is leased', (t) => {
  const known = (calls?: CallsUse[]) => {
    const { quotas, minute, ...use } = useOf(VIEW, calls);
    return { ...use, minuteUsed: Number(minute.used), day: quotas.get('calls_per_day') };
  };
  t.same(
    known(),
    {
      ...{ dayNumber: DAY, spent, minuteUsed: 10, dayCalls: 60, callsInFlightHere: 0, heldHere: 0n },
      leased: { minute: 20, dayCalls: 30, callsInFlight: 120, money: 189n },
      day: { period: DAY, used: 60n, held: 0n, leased: 30n, leasedByOthers: 30n },
    },
    'nobody here says what is used of it',
  );
  // Of the minute, the two have used 12 - 4 and 12 - 3; 6 permits are of others, of which 4 are valid.
  t.same(known([use(FIRST), use(SECOND)]), {
    ...{ dayNumber: DAY, spent, minuteUsed: 19, dayCalls: 60, callsInFlightHere: 20, heldHere: 100n },
    leased: { minute: 11, dayCalls: 30, callsInFlight: 100, money: 89n },
    day: { period: DAY, used: 60n, held: 0n, leased: 30n, leasedByOthers: 25n },
  });
  t.match(
    useOf(VIEW, [use(FIRST), use({ ...SECOND, dayNumber: DAY - 1, dayUsed: 90n })]),
    { dayCalls: 60, leased: { dayCalls: 30 } },
    'calls of another day',
  );
  t.match(
    useOf(VIEW, [use({ ...FIRST, slots: 121n, money: 190n, minute: 31, day: 91n })]),
    { callsInFlightHere: 121, heldHere: 190n, leased: { callsInFlight: 0, money: 0n } },
    'what the authority knows is older, or newer',
  );
  t.end();
});

void t.test('what is told as used was used, whatever happens between the two readings', (t) => {
  // Read first: the process has used 23 calls of the day and all of its permits.
  const before = use({ ...FIRST, dayUsed: 23n, day: 0n, minute: 0 });
  const own = (more: Partial<ProcessView>): ScopeView => ({
    ...VIEW,
    processes: [{ ...VIEW.processes[0]!, ...more }, VIEW.processes[1]!],
  });
  const dayOf = (view: ScopeView) => useOf(view, [before]).quotas.get('calls_per_day');
  t.match(dayOf(VIEW), { used: 63n, leased: 27n }, 'it has not reported three');
  const granted = own({});
  t.match(
    dayOf({ ...granted, stocks: { ...VIEW.stocks, calls_per_day: { period: DAY, used: 60n, unused: 45n } } }),
    { used: 63n, leased: 42n },
    'it was granted fifteen more',
  );
  t.match(
    dayOf({
      ...own({ used: { calls_per_day: 26n } }),
      stocks: { ...VIEW.stocks, calls_per_day: { period: DAY, used: 66n, unused: 24n } },
    }),
    { used: 66n, leased: 24n },
    'it has reported six since',
  );
  t.match(
    dayOf({
      ...VIEW,
      stocks: { ...VIEW.stocks, calls_per_day: { period: DAY, used: 63n, unused: 27n } },
      processes: [],
    }),
    { used: 63n, leased: 27n },
    'it has ended, and is counted among those that have',
  );
  const minuteOf = (more: Partial<ProcessView['minute']>) =>
    Number(useOf(own({ minute: { ...VIEW.processes[0]!.minute, ...more } }), [before]).minute.used);
  // 2 expired permits of others, 4 of the second process, and the 12 of the first.
  t.equal(minuteOf({}), 18);
  t.equal(minuteOf({ number: 8 }), 10, 'it has asked since: nobody knows which of its permits are used');
  t.end();
});
