/**
 * The course of the busiest accounts: what a process tells of each span, and how what several tell is summed
 * up.
 */
import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import {
  AccountHistory,
  accountSeries,
  ACCOUNTS_OF_SPAN_MAX,
  type AccountSpan,
  busiestAccounts,
} from '#src/telemetry/account-history.js';
import { TopAccounts, type CountedCall } from '#src/telemetry/top-accounts.js';
import { HISTORY_RINGS, RING_NAMES } from '#src/telemetry/history.js';
import { StoppedClock } from '../store/support.js';

const START = 1_700_000_100 - (1_700_000_100 % 300);

const call = (account: number, more: Partial<CountedCall> = {}): CountedCall => ({
  account: asAccountIndex(account),
  outcome: 'served',
  promptTokens: 10,
  cachedTokens: 1,
  completionTokens: 2,
  charged: 5n,
  ...more,
});
const figures = (calls: number) => ({
  calls,
  prompt: 10 * calls,
  cached: calls,
  completion: 2 * calls,
  costPicoUnits: 5 * calls,
});

/** A process, and its clock in seconds. */
function processAt(seconds: number) {
  const clock = new StoppedClock();
  clock.nowMs = seconds * 1_000;
  const tally = new TopAccounts((account) => (account === 99 ? null : `acct_${account}`), clock);
  return { tally, goTo: (next: number) => (clock.nowMs = next * 1_000) };
}

void t.test('a call is in one span of each length, told once that has ended', (t) => {
  const { tally, goTo } = processAt(START);
  tally.count(call(1));
  tally.count(call(1, { outcome: 'internal_error' }));
  tally.count(call(2));
  tally.count(call(99));
  t.same(tally.read().spans, [], 'nothing has ended');
  goTo(START + 2);
  const accounts = { acct_1: figures(2), acct_2: figures(1) };
  t.same(tally.read().spans, [{ ring: '5m', span: { start: START, accounts } }]);
  t.same(tally.read(), tally.read(), 'said again it is the same');
  tally.count(call(1));
  tally.count(
    call(2, { outcome: 'reversed', promptTokens: -10, cachedTokens: -1, completionTokens: -2, charged: -5n }),
  );
  goTo(START + 300);
  const told = tally.read().spans;
  t.same(
    told.map(({ ring, span }) => [ring, span.start]),
    RING_NAMES.map((ring) => [ring, START + (ring === '5m' ? 2 : 0)]),
  );
  const whole = { acct_1: figures(3), acct_2: { ...figures(0), calls: 1 } };
  for (const { ring, span } of told.slice(1)) t.same(span.accounts, whole, ring);
  t.end();
});

void t.test('before its end a process tells of the spans that run', (t) => {
  const { tally, goTo } = processAt(START);
  tally.count(call(1));
  goTo(START + 2);
  tally.count(call(1));
  const { source, spans } = tally.readLast();
  t.equal(source, tally.read().source);
  t.same(tally.readLast().spans, spans, 'said again it is the same');
  t.same(
    spans.map(({ ring, span: { start, accounts } }) => [ring, start, accounts.acct_1?.calls]),
    [
      ['5m', START, 2],
      ['5m', START + 2, undefined],
      ['1h', START, 2],
      ['6h', START, 2],
      ['24h', START, 2],
    ],
    'a call that was noted after the last reading is of the span that ran then',
  );
  t.end();
});

void t.test('of many accounts the busiest are told', (t) => {
  const { tally, goTo } = processAt(START);
  for (let account = 100; account < 300; account++) {
    for (let calls = 0; calls < account; calls += 50) tally.count(call(account));
  }
  for (let calls = 0; calls < 10; calls++) tally.count(call(7));
  goTo(START + 2);
  const [told] = tally.read().spans;
  const names = Object.keys(told?.span.accounts ?? {});
  t.equal(names.length, ACCOUNTS_OF_SPAN_MAX);
  t.equal(names[0], 'acct_7');
  t.end();
});

void t.test('processes add up, each once, and after all could tell', (t) => {
  const history = new AccountHistory();
  const span = (start: number, calls: number): AccountSpan => ({
    start,
    accounts: { acct_1: figures(calls), [`acct_${calls}`]: figures(calls) },
  });
  const tell = (source: string, start: number, calls: number) => ({
    source,
    spans: [{ ring: '5m' as const, span: span(start, calls) }],
  });
  t.same(history.add([tell('a', START, 3)], START + 2), [], 'the other may not have seen its end');
  t.same(history.add([tell('a', START, 3), tell('b', START, 4)], START + 4), []);
  const [complete, ...others] = history.add([tell('b', START, 4)], START + 6);
  t.same(others, []);
  const sums = { acct_1: figures(7), acct_4: figures(4), acct_3: figures(3) };
  t.same(complete, { ring: '5m', span: { start: START, accounts: sums } });
  t.same(Object.keys(complete!.span.accounts), ['acct_1', 'acct_4', 'acct_3'], 'the busiest first');
  t.same(history.add([tell('c', START, 9)], START + 8), [], 'too late');
  t.same(history.add([tell('c', START + 100, 9)], START + 8), [], 'to come');
  history.add([tell('a', START + 8, 2)], START + 14);
  const spans = history.spans('5m', START + 14);
  t.same(
    spans.map(({ start }) => start),
    [START, START + 8],
  );
  t.same(busiestAccounts(spans)[0], ['acct_1', figures(9)]);
  t.same(accountSeries(spans, 'acct_4'), [
    { start: START, stats: figures(4) },
    { start: START + 8, stats: figures(0) },
  ]);
  const after = (seconds: number): number[] =>
    history.spans('5m', START + seconds).map(({ start }) => start - START);
  t.same(after(304), [0, 8], 'five minutes, and the time to tell of them');
  t.same(after(305), [8]);
  t.same(after(37 * 60), [], 'calls of 37 minutes ago are not of the last five, however little came since');
  t.end();
});

void t.test('a ring has no more spans than its own, and takes an earlier life up again', (t) => {
  const { seconds, spans } = HISTORY_RINGS['1h'];
  const span = (start: number): AccountSpan => ({ start, accounts: { acct_1: figures(1) } });
  const history = new AccountHistory();
  const now = START + 20 * spans * seconds;
  const oldest = now - spans * seconds;
  history.restore('1h', [span(oldest - seconds), span(oldest), span(oldest), span(now + seconds)], now);
  t.same(history.spans('1h', now), [span(oldest)], 'not old, not twice, not to come');
  for (let at = 0; at < 2 * spans; at++) {
    const start = now + at * seconds;
    history.add([{ source: 'a', spans: [{ ring: '1h', span: span(start) }] }], start + seconds + 4);
  }
  const last = now + (2 * spans - 1) * seconds;
  t.equal(history.spans('1h', last + seconds).length, spans);
  t.equal(history.spans('1h', last + seconds).at(-1)?.start, last);
  t.end();
});

void t.test('a clock that was a day ahead and is set right: the accounts have spans again', (t) => {
  const { tally, goTo } = processAt(START);
  const history = new AccountHistory();
  const minutes = (from: number, count: number): void => {
    for (let at = from; at <= from + count * 60; at += 2) {
      goTo(at);
      tally.count(call(1));
      history.add([tally.read()], at);
    }
  };
  const tomorrow = START + 86_400;
  minutes(tomorrow, 20);
  minutes(START + 600, 60);
  const now = START + 600 + 3_600;
  for (const ring of RING_NAMES) {
    const starts = history.spans(ring, now).map(({ start }) => start);
    t.ok(starts.length > 0, ring);
    t.ok(starts.at(-1)! <= now && starts.at(-1)! >= now - 2 * HISTORY_RINGS[ring].seconds - 4, ring);
  }
  t.end();
});

void t.test('spans of rings that only another version has are left out, and cost no other span', (t) => {
  const history = new AccountHistory();
  const span = { start: START, accounts: { acct_1: figures(3) } };
  const spans = ['7d', 'constructor', '__proto__', '1h'].map((ring) => ({ ring: ring as '1h', span }));
  t.same(history.add([{ source: 'newer', spans }], START + 10), []);
  t.same(history.add([], START + 60), [{ ring: '1h', span }]);
  t.end();
});

void t.test('a count that the report of another version lacks is 0', (t) => {
  const history = new AccountHistory();
  const older = { calls: 2, prompt: 20, completion: 4, costPicoUnits: 10 };
  const span = (accounts: object) => [
    { ring: '5m' as const, span: { start: START, accounts: accounts as AccountSpan['accounts'] } },
  ];
  const reports = [
    { source: 'older', spans: span({ acct_1: older }) },
    { source: 'newer', spans: span({ acct_1: { ...figures(3), unknown: 7 } }) },
  ];
  const [complete] = history.add(reports, START + 6);
  t.same(complete?.span.accounts, { acct_1: { ...figures(5), cached: 3 } });
  t.end();
});

void t.test('no account has the name of a member that every object has', (t) => {
  const spans: AccountSpan[] = [{ start: START, accounts: { acct_1: figures(1) } }];
  for (const id of ['constructor', '__proto__', 'toString', ''])
    t.same(accountSeries(spans, id), [{ start: START, stats: figures(0) }], id);
  t.end();
});
