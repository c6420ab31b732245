/** Usage summed up by what is asked for. */
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import {
  NO_USAGE,
  reportUsage,
  USAGE_GROUPS,
  type UsageQuestion,
  type UsageRange,
  type UsageRecord,
} from '#src/registry/usage-report.js';

const HOUR = 482_000;

function row(account: number, hour: number, keyId: string, modelId: string, calls: number): UsageRecord {
  const totals = { ...NO_USAGE, calls, cost: asPicoUnits(BigInt(calls)) };
  return { account: asAccountIndex(account), hour, keyId, modelId, ...totals };
}

const ROWS = [
  row(0, HOUR, 'key_a', 'small', 1),
  row(0, HOUR, 'key_a', 'large', 2),
  row(0, HOUR + 24, 'key_b', 'small', 4),
  row(1, HOUR, 'key_c', 'small', 8),
  row(1, HOUR + 1, 'key_c', 'large', 16),
];

function report(question: Partial<UsageQuestion>, rows: Iterable<UsageRecord> = ROWS): [string, number][] {
  const whole = { account: undefined, keyId: undefined, modelId: undefined, fromHour: 0, toHour: HOUR * 2 };
  const usages = function* (range: UsageRange): Generator<UsageRecord> {
    for (const record of rows) {
      if (range.account !== undefined && record.account !== range.account) continue;
      if (record.hour >= range.fromHour && record.hour <= range.toHour) yield record;
    }
  };
  return reportUsage({ ...whole, by: 'model', ...question }, usages, (account) => `acct_${9 - account}`).map(
    ({ name, calls }) => [name, calls],
  );
}

void t.test('by each group, in the order of names', (t) => {
  const day = new Date(HOUR * 3_600_000).toISOString().slice(0, 10);
  const next = new Date((HOUR + 24) * 3_600_000).toISOString().slice(0, 10);
  const wanted: Record<(typeof USAGE_GROUPS)[number], [string, number][]> = {
    account: [
      ['acct_8', 24],
      ['acct_9', 7],
    ],
    key: [
      ['key_a', 3],
      ['key_b', 4],
      ['key_c', 24],
    ],
    model: [
      ['large', 18],
      ['small', 13],
    ],
    day: [
      [day, 27],
      [next, 4],
    ],
    hour: [
      [String(HOUR * 3_600), 11],
      [String((HOUR + 1) * 3_600), 16],
      [String((HOUR + 24) * 3_600), 4],
    ],
  };
  for (const by of USAGE_GROUPS) t.same(report({ by }), wanted[by], by);
  t.end();
});

void t.test('filters, alone and together', (t) => {
  t.same(report({ account: asAccountIndex(0) }), [
    ['large', 2],
    ['small', 5],
  ]);
  t.same(report({ keyId: 'key_c' }), [
    ['large', 16],
    ['small', 8],
  ]);
  t.same(report({ modelId: 'small', by: 'key' }), [
    ['key_a', 1],
    ['key_b', 4],
    ['key_c', 8],
  ]);
  t.same(report({ account: asAccountIndex(1), modelId: 'large', fromHour: HOUR + 1, by: 'account' }), [
    ['acct_8', 16],
  ]);
  t.same(report({ keyId: 'key_a', account: asAccountIndex(1) }), []);
  t.same(report({ fromHour: HOUR + 1, toHour: HOUR + 1 }), [['large', 16]]);
  t.end();
});

void t.test('rows that are read have a bound', (t) => {
  const many = function* (): Generator<UsageRecord> {
    for (let at = 0; at <= 100_000; at++) yield row(0, HOUR, `key_${at % 3}`, 'small', 1);
  };
  t.throws(() => report({ by: 'key' }, many()), {
    code: 'invalid_parameters',
    message: /^more than 100000 rows would have to be read/,
  });
  t.end();
});
