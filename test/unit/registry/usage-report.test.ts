/** Usage summed up by what is asked for. */
import t from 'tap';
import { asAccountIndex, asPicoUnits } from '#src/core/units.js';
import {
  NO_USAGE,
  USAGE_DIMENSIONS,
  type UsageSelection,
  UsageReport,
  type UsageRow,
} from '#src/registry/usage-report.js';

const HOUR = 482_000;

function row(account: number, hour: number, keyId: string, modelId: string, calls: number): UsageRow {
  const totals = { ...NO_USAGE, calls, cost: asPicoUnits(BigInt(calls)) };
  const accountId = `acct_${9 - account}`;
  return { account: asAccountIndex(account), accountId, hour, keyId, modelId, ...totals };
}

const ROWS = [
  row(0, HOUR, 'key_a', 'small', 1),
  row(0, HOUR, 'key_a', 'large', 2),
  row(0, HOUR + 24, 'key_b', 'small', 4),
  row(1, HOUR, 'key_c', 'small', 8),
  row(1, HOUR + 1, 'key_c', 'large', 16),
];

/** In two pages. */
function report(question: Partial<UsageSelection>, rows: readonly UsageRow[] = ROWS): [string, number][] {
  const made = new UsageReport({ keyId: undefined, modelId: undefined, by: 'model', ...question });
  made.add(rows.slice(0, 2));
  made.add(rows.slice(2));
  return made.lines().map(({ name, calls }) => [name, calls]);
}

void t.test('by each group, in the order of names', (t) => {
  const day = new Date(HOUR * 3_600_000).toISOString().slice(0, 10);
  const next = new Date((HOUR + 24) * 3_600_000).toISOString().slice(0, 10);
  const wanted: Record<(typeof USAGE_DIMENSIONS)[number], [string, number][]> = {
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
  for (const by of USAGE_DIMENSIONS) t.same(report({ by }), wanted[by], by);
  t.end();
});

void t.test('each total is summed', (t) => {
  const names = Object.keys(NO_USAGE) as (keyof typeof NO_USAGE)[];
  const totalsOf = (value: number) =>
    Object.fromEntries(
      names.map((name) => [name, typeof NO_USAGE[name] === 'bigint' ? BigInt(value) : value]),
    );
  const one = { ...row(0, HOUR, 'key_a', 'small', 1), ...totalsOf(1) };
  const made = new UsageReport({ keyId: undefined, modelId: undefined, by: 'model' });
  made.add([one, one]);
  t.same(made.lines(), [{ name: 'small', accountId: undefined, ...totalsOf(2) }]);
  t.end();
});

void t.test('filters, alone and together', (t) => {
  t.same(report({ keyId: 'key_c' }), [
    ['large', 16],
    ['small', 8],
  ]);
  t.same(report({ modelId: 'small', by: 'key' }), [
    ['key_a', 1],
    ['key_b', 4],
    ['key_c', 8],
  ]);
  t.same(report({ keyId: 'key_c', modelId: 'large', by: 'account' }), [['acct_8', 16]]);
  t.same(report({ keyId: 'key_d' }), []);
  t.end();
});

void t.test('lines have a bound, rows have none', (t) => {
  const many = Array.from({ length: 100_001 }, (_, at) => row(0, HOUR, `key_${at}`, 'small', 1));
  t.same(report({ by: 'model' }, many), [['small', 100_001]]);
  t.throws(() => report({ by: 'key' }, many), {
    code: 'invalid_parameters',
    message: /^the report would have more than 100000 lines: give an account/,
  });
  t.equal(report({ by: 'key' }, many.slice(1)).length, 100_000);
  t.end();
});
