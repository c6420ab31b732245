import t from 'tap';
import { statsOf, type StatusView } from '#src/cli/status-stats.js';
import { frameOf, type FrameLine, type FrameSize } from '#src/cli/status-frame.js';
import { widthOf } from '#src/cli/table.js';

const STATUS: StatusView = {
  version: '0.1.0',
  node: 'v20.20.1',
  pid: 4_242,
  ready: true,
  uptime_seconds: 3_661,
  listeners: 2,
  workers: 2,
  calls_in_flight: 137,
  limits: { calls_in_flight: 20_000 },
  outcomes: { ok: 1_200, rate_limit_exceeded: 33, client_gone: 2, insufficient_quota: 1, overloaded: 1 },
  tokens: { prompt: 24_000, cached: 100, completion: 5_000 },
  cost: '1.25',
  duration_ms: { bounds: [10, 100], counts: [90, 10, 0] },
  upstreams: ['a'.repeat(60), 'b', '日本語'].map((model, at) => ({
    model,
    name: 'api.example.com',
    priority: 1,
    weight: 1,
    calls_in_flight: 1,
    breaker: at === 1 ? 'half_open' : 'closed',
    attempts: 10,
    failures: at,
    last_failure: null,
  })),
  threads: Array.from({ length: 6 }, (_, at) => ({
    name: `listener-${at}`,
    event_loop_delay_ms_p99: 10.4,
    heap_bytes: 12 * 1024 * 1024,
  })),
  store: { ok: true, last_error: null, unflushed_accounts: 0 },
};

function frame(status: StatusView, size: FrameSize): FrameLine[] {
  return frameOf(status, statsOf(undefined, { status, atMs: 0 }), size);
}

void t.test('every size of a terminal is kept, and what is missing is told', (t) => {
  const whole = frame(STATUS, { columns: 200, rows: 100 });
  t.notOk(
    whole.some(({ text }) => text.includes('…')),
    'nothing is missing where there is room',
  );
  for (const columns of [20, 40, 60, 80, 120, 200]) {
    for (let rows = 1; rows <= whole.length + 10; rows++) {
      const lines = frame(STATUS, { columns, rows });
      if (lines.length > rows) t.fail(`${lines.length} lines in ${rows} rows`);
      const widest = Math.max(...lines.map(({ text }) => widthOf(text)));
      if (widest > columns) t.fail(`${widest} wide in ${columns} columns`);
      const cut = lines.length < whole.length && columns === 200;
      if (cut && !lines.some(({ text }) => text.startsWith('… '))) t.fail(`${rows} rows: nothing is told`);
    }
  }
  t.end();
});

void t.test('what it shows', (t) => {
  const lines = frame(STATUS, { columns: 80, rows: 50 });
  const texts = lines.map(({ text }) => text);
  t.equal(texts[0], 'Tollgate 0.1.0  ready  up 01:01:01  Node v20.20.1  process 4242');
  t.equal(texts[1], 'in flight 137 of 20,000  listeners 2  workers 2  books ok');
  t.match(texts[4], /^calls +– +1,237 +whole call +5\.6 ms +10 ms +91 ms$/);
  t.match(texts[8], /^cost +– +1\.250000$/);
  t.match(texts.join('\n'), /\nrate_limit_exceeded +– +33\n/);
  t.match(
    texts.join('\n'),
    /\na{8}a*… +api\.example\.com .*\nb +api\.example\.com +1 +1 +half open +10 +1\n/,
  );
  t.same(
    lines.filter(({ style }) => style === 'alarm').map(({ text }) => text.slice(0, 2)),
    ['b '],
    'a breaker that is not closed',
  );
  t.end();
});

void t.test('trouble stands out, and an empty document is a screen too', (t) => {
  const broken = frame(
    { ready: false, store: { ok: false, last_error: 'ENOSPC\u{1b}[2J', unflushed_accounts: 3 } },
    { columns: 80, rows: 24 },
  );
  t.same(
    broken.filter(({ style }) => style === 'alarm').map(({ text }) => text),
    ['Tollgate –  not ready  up –  Node –  process –', '3 accounts wait: ENOSPC\u{fffd}[2J'],
  );
  const empty = frame({}, { columns: 80, rows: 24 });
  t.match(empty.map(({ text }) => text).join('\n'), /^Tollgate –  –  up –/);
  t.end();
});

void t.test('what is not well of sharing', (t) => {
  const size = { columns: 120, rows: 50 };
  const alarms = (sharing: StatusView['sharing']): string[] =>
    frame({ ...STATUS, upstreams: [], sharing: sharing ?? null }, size)
      .filter(({ style }) => style === 'alarm')
      .map(({ text }) => text);
  const well = { state: 'connected', reason: null, lost_seconds: 0 } as const;
  t.same(alarms(null), []);
  t.same(alarms({ ...well, registry: { state: 'following', reason: null } }), []);
  const registry = { state: 'lost', reason: 'no connection' } as const;
  t.same(alarms({ state: 'quarantine', reason: 'it has\u001b[2J lost', lost_seconds: 1_200, registry }), [
    'shared limits quarantine for 1,200 s: it has\ufffd[2J lost',
    'shared accounts and keys lost: no connection',
  ]);
  t.end();
});
