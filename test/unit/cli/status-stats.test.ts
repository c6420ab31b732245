import t from 'tap';
import { statsOf, type StatusView } from '#src/cli/status-stats.js';

const SAMPLE: StatusView = {
  pid: 7,
  uptime_seconds: 10,
  outcomes: { ok: 100, rate_limit_exceeded: 200, overloaded: 0 },
  tokens: { prompt: 1_000, completion: 10 },
  cost: '1.5',
  duration_ms: { bounds: [10, 100], counts: [90, 10, 0] },
};

void t.test('rates are differences over the time between two answers', (t) => {
  const latest: StatusView = {
    ...SAMPLE,
    uptime_seconds: 12,
    outcomes: { ok: 150, rate_limit_exceeded: 200, overloaded: 3 },
    tokens: { prompt: 1_500, completion: 10 },
    cost: '2.5',
    duration_ms: { bounds: [10, 100], counts: [90, 14, 6] },
  };
  const figures = statsOf({ status: SAMPLE, atMs: 1_000 }, { status: latest, atMs: 3_000 });
  t.match(figures, {
    calls: { perSecond: 26.5, total: 353 },
    prompt: { perSecond: 250, total: 1_500 },
    cached: { perSecond: undefined, total: undefined },
    completion: { perSecond: 0 },
    cost: { perSecond: 0.5, total: 2.5 },
    outcomes: [
      { code: 'rate_limit_exceeded', perSecond: 0 },
      { code: 'ok', perSecond: 25 },
      { code: 'overloaded', perSecond: 1.5 },
    ],
  });
  // Of the ten calls since: four between 10 and 100 ms, six above.
  t.same(figures.duration, [
    { ms: 100, above: true },
    { ms: 100, above: true },
    { ms: 100, above: true },
  ]);
  t.end();
});

void t.test('percentiles lie in their bucket', (t) => {
  const { duration, overhead } = statsOf(undefined, { status: SAMPLE, atMs: 0 });
  // The 50th of 100 is the 50th of 90 between 0 and 10; the 99th is the 9th of 10 between 10 and 100.
  t.same(duration, [
    { ms: 50 / 9, above: false },
    { ms: 10, above: false },
    { ms: 91, above: false },
  ]);
  t.same(overhead, [undefined, undefined, undefined]);
  const empty = { ...SAMPLE, duration_ms: { bounds: [1], counts: [0, 0] } };
  t.same(statsOf(undefined, { status: empty, atMs: 0 }).duration, [undefined, undefined, undefined]);
  t.end();
});

void t.test('a first answer, and one of another gateway, tell no rates', (t) => {
  const { calls } = statsOf(undefined, { status: SAMPLE, atMs: 0 });
  t.same(calls, { perSecond: undefined, total: 300 });
  for (const former of [
    { ...SAMPLE, pid: 8 },
    { ...SAMPLE, uptime_seconds: 11 },
  ]) {
    const figures = statsOf({ status: former, atMs: 0 }, { status: SAMPLE, atMs: 1_000 });
    t.equal(figures.calls.perSecond, undefined);
    t.same(figures.duration[1], { ms: 10, above: false }, 'and everything so far counts');
  }
  t.same(statsOf(undefined, { status: {}, atMs: 0 }).calls, { perSecond: undefined, total: undefined });
  t.end();
});
