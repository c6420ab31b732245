/**
 * The course of the figures: what each span holds, how long it is kept, what a restart and a clock do to it.
 */
import t from 'tap';
import {
  History,
  HISTORY_RINGS,
  type HistorySpan,
  RING_NAMES,
  type RingName,
  type StatusStats,
} from '#src/telemetry/history.js';
import type { CallStats } from '#src/telemetry/status-document.js';

const START = 1_700_000_100;

function callFigures(calls: number): CallStats {
  return {
    outcomes: { ok: calls, invalid_api_key: 0 },
    tokens: { prompt: 10 * calls, cached: 0, completion: 2 * calls },
    cost: (calls * 0.25).toFixed(2),
    duration_ms: { bounds: [10, 20], counts: [0, calls, 0] },
    first_token_ms: { bounds: [10], counts: [0, 0] },
  };
}

function figures(calls: number, more: Partial<StatusStats> = {}): StatusStats {
  return { ...callFigures(calls), calls_in_flight: 0, refusals: {}, models: [], ...more };
}

void t.test('the rings go from the finest to the coarsest, and spans lie in one span of the next', (t) => {
  const seconds = RING_NAMES.map((ring) => HISTORY_RINGS[ring].seconds);
  for (const [ring, coarser] of seconds.slice(1).entries()) {
    t.ok(coarser > seconds[ring]!, 'coarser, so none has the seconds of another');
    t.equal(coarser % seconds[ring]!, 0);
  }
  t.end();
});

void t.test('a span holds what came in it', (t) => {
  const history = new History();
  t.same(history.add(figures(5), START), [], 'what came before is nobody’s');
  t.same(history.add(figures(6, { calls_in_flight: 7 }), START + 1), []);
  const models = [{ id: 'm', ...callFigures(8) }];
  const [ended, ...others] = history.add(figures(8, { refusals: { no_key: 2 }, models }), START + 2);
  t.same(others, []);
  const grown = (calls: number) => ({
    outcomes: { ok: calls },
    tokens: [10 * calls, 0, 2 * calls],
    cost: 0.25 * calls,
    duration: { 1: calls },
  });
  t.same(ended, {
    ring: '5m',
    span: { start: START, in_flight: 7, ...grown(3), refusals: { no_key: 2 }, models: { m: grown(8) } },
  });
  t.same(history.add(figures(8, { refusals: { no_key: 2 }, models }), START + 4)[0]?.span, {
    start: START + 2,
    in_flight: 0,
  });
  t.same(
    history.spans('5m').map(({ start }) => start),
    [START, START + 2],
  );
  t.end();
});

void t.test('every ring has all calls of its time, and no more spans than its own', (t) => {
  const history = new History();
  const periods = 60 * 60 * 25;
  const midnight = START - (START % 300);
  for (let at = 0; at <= periods; at += 2) history.add(figures(at), midnight + at);
  for (const ring of RING_NAMES) {
    const { seconds, spans } = HISTORY_RINGS[ring];
    const kept = history.spans(ring);
    t.equal(kept.length, spans, ring);
    for (const span of kept) if (span.outcomes?.ok !== seconds) t.fail(`${ring}: ${JSON.stringify(span)}`);
    t.equal(kept.at(-1)!.start, midnight + periods - (periods % seconds) - seconds);
  }
  t.end();
});

void t.test('sums that begin anew, a clock that is set back, a pause', (t) => {
  const history = new History();
  history.add(figures(100), START);
  const [anew] = history.add(figures(3), START + 2);
  t.same(anew?.span.outcomes, { ok: 3 }, 'after a restart everything is new');
  t.same(history.add(figures(4), START - 100), [], 'set back');
  t.same(history.add(figures(5), START - 98), [], 'no span comes before one that was told');
  const pause = history.add(figures(9), START + 600).find(({ ring }) => ring === '5m');
  t.equal(pause, undefined, 'of a span that had begun before');
  history.add(figures(10), START + 602);
  t.same(
    history.spans('5m').map(({ start }) => start),
    [START, START + 600],
  );
  t.end();
});

void t.test('a clock that is set back in the first span after a start', (t) => {
  const history = new History();
  const midnight = START - (START % 300);
  // The run before has seen 100 s of the running span, and told 40 calls.
  const told = { start: midnight, seconds: 100, in_flight: 7, outcomes: { ok: 40 } };
  history.restore('24h', [told], midnight + 100);
  history.add(figures(0), midnight + 102);
  history.add(figures(1), midnight - 600);
  const ended = history.add(figures(2), midnight - 300).find(({ ring }) => ring === '24h');
  t.match(ended!.span, { start: midnight - 600, in_flight: 0, outcomes: { ok: 1 } });
  t.end();
});

void t.test('a clock that was a day ahead and is set right: the charts go on', (t) => {
  const history = new History();
  let calls = 0;
  const minutes = (from: number, count: number): void => {
    for (let at = from; at <= from + count * 60; at += 2) history.add(figures((calls += 1)), at);
  };
  const midnight = START - (START % 300);
  minutes(midnight, 20);
  const before = history.spans('5m').length;
  minutes(midnight + 86_400, 20);
  minutes(midnight + 1_300, 60);
  for (const ring of RING_NAMES) {
    const starts = history.spans(ring).map(({ start }) => start);
    t.same(starts, [...new Set(starts)].sort(), `${ring}: in order`);
    t.ok(starts.at(-1)! < midnight + 86_400, `${ring}: none of tomorrow`);
    t.ok(starts.at(-1)! >= midnight + 1_300 + 3_600 - 2 * HISTORY_RINGS[ring].seconds, `${ring}: up to now`);
  }
  t.ok(before > 0);
  t.end();
});

void t.test('what an earlier life has told is taken up again', (t) => {
  const history = new History();
  const span = (start: number): HistorySpan => ({ start, in_flight: 1, outcomes: { ok: 1 } });
  const now = START - (START % 10);
  const old = now - 3_700;
  history.restore('1h', [span(old), span(now - 20), span(now - 20), span(now - 10), span(now + 10)], now);
  t.same(
    history.spans('1h').map(({ start }) => start),
    [now - 20, now - 10],
    'not old, not twice, not to come',
  );
  history.add(figures(0), now - 10);
  t.notOk(
    history.add(figures(1), now).find(({ ring }) => ring === '1h'),
    'a span in which the earlier life ended stays as it told it',
  );
  t.ok(history.add(figures(2), now + 10).find(({ ring }) => ring === '1h'));
  t.end();
});

void t.test('a gateway that ends in the last second of a span: the next one continues the span', (t) => {
  const before = new History();
  before.add(figures(0), START);
  const running = before.running(figures(9), START + 59).filter(({ ring }) => ring === '6h');
  const after = new History();
  after.restore(
    '6h',
    running.map(({ span }) => span),
    START + 59,
  );
  after.add(figures(0), START + 59);
  const ended = after.add(figures(2), START + 60).find(({ ring }) => ring === '6h');
  t.match(ended?.span, { start: START, outcomes: { ok: 11 } });
  t.equal(ended?.span.seconds, undefined, 'both have seen the whole of it');
  t.end();
});

void t.test('a clock that is set back: the next span has its own calls in flight', (t) => {
  const history = new History();
  history.add(figures(0, { calls_in_flight: 50 }), START + 60);
  history.add(figures(0, { calls_in_flight: 1 }), START);
  const ended = history.add(figures(0, { calls_in_flight: 2 }), START + 2);
  t.match(ended, [{ ring: '5m', span: { start: START, in_flight: 2 } }]);
  t.end();
});

void t.test('a span that was not seen from its beginning says how long it was seen', (t) => {
  const history = new History();
  const midnight = START - (START % 300);
  // One call a second. The run begins 221 s after the span of five minutes has, and is away for a while.
  for (let at = 221; at <= 600; at += 2) history.add(figures(at), midnight + at);
  for (let at = 960; at <= 1_800; at += 2) history.add(figures(at), midnight + at);
  const seen = (ring: '1h' | '6h' | '24h') =>
    history
      .spans(ring)
      .map(({ start, seconds, outcomes }) => [start - midnight, outcomes?.ok, seconds])
      .filter(([, , seconds], index) => index === 0 || seconds !== undefined);
  t.same(seen('24h'), [
    [0, 80, 80],
    [300, 659, 659],
    [900, 240, 240],
  ]);
  t.same(seen('6h'), [
    [180, 20, 20],
    [540, 419, 419],
  ]);
  t.same(seen('1h')[0], [220, 10, undefined], 'the status is read at any moment of two seconds');
  for (const ring of ['1h', '6h', '24h'] as const) {
    for (const { outcomes, seconds = HISTORY_RINGS[ring].seconds } of history.spans(ring))
      t.ok(Math.abs(outcomes!.ok! / seconds - 1) <= 0.2, `${ring}: no dip and no peak`);
  }
  t.end();
});

void t.test('models of one span are bounded: those with most calls', (t) => {
  const history = new History();
  const models = Array.from({ length: 50 }, (_, index) => ({ id: `m-${index}`, ...callFigures(index) }));
  history.add(figures(0), START);
  const [ended] = history.add(figures(0, { models }), START + 2);
  const names = Object.keys(ended?.span.models ?? {});
  t.equal(names.length, 20);
  t.equal(names[0], 'm-49');
  t.end();
});

void t.test('a gateway that dies every few minutes has all its calls in all rings', (t) => {
  const midnight = START - (START % 300);
  /** By ring and by the start of the span, as the disk has them. */
  const rows = new Map<string, [RingName, HistorySpan]>();
  const onDisk = (ring: RingName): HistorySpan[] =>
    [...rows.values()].flatMap(([of, span]) => (of === ring ? [span] : []));
  let served = 0;
  /** Lives `seconds` with a call a second, and reads the status every two seconds. */
  const live = (from: number, seconds: number): void => {
    const history = new History();
    for (const ring of ['1h', '6h', '24h'] as const) history.restore(ring, onDisk(ring), from);
    for (let at = from; at <= from + seconds; at += 2) {
      const stats = figures(at - from, {
        calls_in_flight: 3,
        refusals: { no_key: at - from },
        models: [{ id: 'm', ...callFigures(at - from) }],
      });
      const written = history.add(stats, at).filter(({ ring }) => HISTORY_RINGS[ring].onDisk);
      if (written.length > 0) written.push(...history.running(stats, at));
      for (const { ring, span } of written) rows.set(`${ring} ${span.start}`, [ring, span]);
    }
    served += seconds;
  };
  // 170 s each, 4 s for the start: for hours no life sees a span of five minutes from end to end.
  const lives = 40;
  for (let life = 0; life < lives; life++) live(midnight + 3 + life * 174, 170);
  for (const ring of ['6h', '24h'] as const) {
    const spans = onDisk(ring);
    const sum = (of: (span: HistorySpan) => number | undefined): number =>
      spans.reduce((before, span) => before + (of(span) ?? 0), 0);
    const calls = sum(({ outcomes }) => outcomes?.ok);
    t.ok(calls <= served && calls >= served - lives * 12, `${ring}: ${calls} of ${served}`);
    t.equal(
      sum(({ models }) => models?.m?.outcomes?.ok),
      calls,
    );
    t.equal(
      sum(({ refusals }) => refusals?.no_key),
      calls,
    );
    t.equal(
      sum(({ tokens }) => tokens?.[0]),
      10 * calls,
    );
    t.equal(
      sum(({ duration }) => duration?.[1]),
      calls,
    );
    t.ok(spans.every((span) => span.in_flight === 3));
    const { seconds } = HISTORY_RINGS[ring];
    for (const span of spans) {
      const rate = span.outcomes!.ok! / (span.seconds ?? seconds);
      t.ok(Math.abs(rate - 1) < 0.05, `${ring}: ${span.start - midnight}: ${rate} a second`);
    }
  }
  t.end();
});
