/**
 * Samples of several processes as one page: what adds up, what is the largest, what stays apart; and what
 * goes on at an end.
 */
import t from 'tap';
import type { MetricFamily, Sample } from '#src/telemetry/metrics-source.js';
import {
  addEnded,
  endedSnapshot,
  mergeFamily,
  type MemberSnapshot,
  type MetricsSnapshot,
} from '#src/telemetry/metrics-snapshot.js';

type Family = Pick<MetricFamily, 'name' | 'type' | 'across'>;
const family = (name: string, type: Family['type'], across?: Family['across']): Family => ({
  name,
  type,
  across,
});

const COUNTER = family('calls_total', 'counter');
const GAUGE = family('in_flight', 'gauge');
const LAG = family('lag', 'gauge', 'max');
const HEAP = family('heap', 'gauge', 'each');
const SPENT = family('spent_total', 'counter', 'one');

const sample = (value: number, labels: Record<string, string> = {}): Sample => ({ value, labels });

function reading(samples: Readonly<Record<string, readonly Sample[]>>): MetricsSnapshot {
  return [COUNTER, GAUGE, LAG, HEAP, SPENT].map(({ name, type, across }) => ({
    name,
    type,
    across,
    samples: samples[name] ?? [],
  }));
}

const member = (slot: number, families: MetricsSnapshot): MemberSnapshot => ({
  slot,
  own: slot === 0,
  families,
});

const valuesOf = (samples: readonly Sample[]) => samples.map(({ value, labels }) => [value, labels]);

void t.test('each family in its own way', (t) => {
  const members = [
    member(
      0,
      reading({
        calls_total: [sample(1, { a: 'x', b: 'y' }), sample(5, { a: 'z' })],
        in_flight: [sample(2)],
        lag: [sample(3)],
        heap: [sample(10, { thread: 'main' })],
        spent_total: [sample(7)],
      }),
    ),
    member(
      3,
      reading({
        // Labels that are shared, or in another order, are the same labels.
        calls_total: [{ value: 2, labels: { b: 'y' }, sharedLabels: { a: 'x' } }],
        in_flight: [sample(4)],
        lag: [sample(1)],
        heap: [sample(20, { thread: 'main' })],
        spent_total: [sample(9)],
      }),
    ),
  ];
  const ended = reading({ calls_total: [sample(100, { a: 'x', b: 'y' }), sample(50, { a: 'gone' })] });
  const merged = (one: Family) => valuesOf(mergeFamily(one, members, ended));
  t.same(merged(COUNTER), [
    [103, { a: 'x', b: 'y' }],
    [5, { a: 'z' }],
    [50, { a: 'gone' }],
  ]);
  t.same(merged(GAUGE), [[6, {}]]);
  t.same(merged(LAG), [[3, {}]]);
  t.same(merged(HEAP), [
    [10, { thread: 'main', process: '0' }],
    [20, { thread: 'main', process: '3' }],
  ]);
  t.same(merged(SPENT), [[7, {}]], 'of the one that makes the page');
  t.same(merged(family('of_another_version', 'gauge')), []);
  t.end();
});

void t.test('what goes on when processes end: what they alone had counted', (t) => {
  const first = endedSnapshot(
    reading({
      calls_total: [sample(1, { a: 'x' })],
      in_flight: [sample(2)],
      lag: [sample(3)],
      heap: [sample(4)],
      spent_total: [sample(5)],
    }),
  );
  t.same(
    first.map(({ name }) => name),
    ['calls_total'],
  );
  const second = endedSnapshot(reading({ calls_total: [sample(10, { a: 'x' }), sample(20, { a: 'y' })] }));
  const sum = addEnded(addEnded([], first), second);
  t.same(valuesOf(mergeFamily(COUNTER, [], sum)), [
    [11, { a: 'x' }],
    [20, { a: 'y' }],
  ]);
  t.end();
});

void t.test('the parts of a histogram stay apart', (t) => {
  const histogram = family('time', 'histogram');
  const parts = (counts: readonly number[]): MetricsSnapshot => [
    {
      ...histogram,
      samples: counts.map((value, at) => ({
        value,
        labels: at === 0 ? { le: '1' } : {},
        metricName: at === 0 ? 'time_bucket' : 'time_count',
      })),
    },
  ];
  const merged = mergeFamily(histogram, [member(0, parts([1, 2])), member(1, parts([10, 20]))], []);
  t.same(
    merged.map(({ metricName, value }) => [metricName, value]),
    [
      ['time_bucket', 11],
      ['time_count', 22],
    ],
  );
  t.end();
});
