import t from 'tap';
import type { GroupView } from '#src/admin/views.js';
import { statsOf, type StatusView } from '#src/cli/status-stats.js';
import { statusText } from '#src/cli/status-text.js';
import { widthOf } from '#src/cli/table.js';
import { visible } from '#src/core/wrong-input.js';
import type { CredentialStatus } from '#src/telemetry/status-document.js';

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
    last_errors: [],
    quotas: [],
    waiting_calls: 0,
  })),
  threads: Array.from({ length: 6 }, (_, at) => ({
    name: `listener-${at}`,
    event_loop_delay_ms_p99: 10.4,
    heap_bytes: 12 * 1024 * 1024,
  })),
  store: { ok: true, last_error: null, unflushed_accounts: 0 },
};

function linesOf(status: StatusView, columns: number): string[] {
  const text = statusText(status, statsOf(undefined, { status, atMs: 0 }), columns);
  return text.replace(/\n$/, '').split('\n');
}

/** Values that come whole or not at all. */
const WHOLE = new Set(['duration_ms', 'quotas']);

/** Copies of the value, each without one member of an object at any depth. */
function withoutEachMember(value: unknown): unknown[] {
  if (typeof value !== 'object' || value === null) return [];
  if (Array.isArray(value))
    return value.flatMap((item, at) =>
      withoutEachMember(item).map((less) => (value as unknown[]).with(at, less)),
    );
  return Object.entries(value).flatMap(([name, member]) => [
    Object.fromEntries(Object.entries(value).filter(([other]) => other !== name)),
    ...(WHOLE.has(name) ? [] : withoutEachMember(member)).map((less) => ({ ...value, [name]: less })),
  ]);
}

void t.test('no line is wider than the terminal, and nothing is cut if there is room', (t) => {
  const whole = linesOf(STATUS, 200);
  t.notOk(
    whole.some((line) => line.includes('…')),
    'nothing is cut',
  );
  for (let columns = 20; columns <= 200; columns++) {
    const widest = Math.max(...linesOf(STATUS, columns).map((line) => widthOf(visible(line))));
    if (widest > columns) t.fail(`${widest} wide in ${columns} columns`);
  }
  t.same(linesOf(STATUS, Infinity), whole, 'a pipe has no width');
  t.end();
});

void t.test('what it shows', (t) => {
  const lines = linesOf(STATUS, 80);
  t.equal(lines[0], 'Tollgate 0.1.0  ready  up 01:01:01  Node v20.20.1  process 4242');
  t.equal(lines[1], 'in flight 137 of 20,000  listeners 2  workers 2  books ok');
  t.match(lines[4], /^calls +– +1,237 +whole call +5\.6 ms +10 ms +91 ms$/);
  t.match(lines[8], /^cost +– +1\.250000$/);
  t.match(lines.join('\n'), /\nrate_limit_exceeded +– +33\n/);
  t.match(
    lines.join('\n'),
    /\na{8}a*… +api\.example\.com .*\nb +api\.example\.com +1 +1 +half open +10 +1\n/,
  );
  const limited = STATUS.upstreams!.map((upstream, at) => ({
    ...upstream,
    quotas: at === 0 ? [] : [{ quota: 'requests_per_minute', limit: 1_000, used: at === 1 ? 996 : 250 }],
    waiting_calls: at === 2 ? 7 : 0,
  }));
  t.match(
    linesOf({ ...STATUS, upstreams: limited }, 120).join('\n'),
    / USED\n.* 10 +0 +-\nb .* 99 %\n.* 25 %, 7 wait\n/,
  );
  const quotas = [
    { quota: 'calls_in_flight', limit: 1_000, used: 0 },
    { quota: 'requests_per_minute', limit: 1_000, used: 1 },
  ];
  const little = STATUS.upstreams!.map((upstream) => ({ ...upstream, quotas }));
  t.match(linesOf({ ...STATUS, upstreams: little }, 120).join('\n'), / USED\n.* under 1 %\n/);
  t.match(linesOf(STATUS, 60).join('\n'), /\ncost .*\n +P50 +P90 +P99\nwhole call /, 'times below counters');
  t.end();
});

void t.test('trouble is told in the head, and an empty document is a text too', (t) => {
  const store = { ok: false, last_error: 'ENOSPC\u{1b}[2J', unflushed_accounts: 3 };
  t.same(linesOf({ ready: false, store }, 80).slice(0, 4), [
    'Tollgate –  not ready  up –  Node –  process –',
    'in flight –  listeners –  workers –  books not written',
    '3 accounts wait: ENOSPC\u{fffd}[2J',
    '',
  ]);
  t.match(linesOf({}, 80).join('\n'), /^Tollgate –  –  up –/);
  t.end();
});

void t.test('what is not well of sharing', (t) => {
  const told = (sharing: StatusView['sharing']): string[] => {
    const lines = linesOf({ ...STATUS, sharing: sharing ?? null }, 120);
    return lines.slice(2, lines.indexOf(''));
  };
  const well = { state: 'connected', reason: null, lost_seconds: 0 } as const;
  t.same(told(null), []);
  t.same(told({ ...well, registry: { state: 'following', reason: null } }), []);
  const registry = { state: 'lost', reason: 'no connection' } as const;
  t.same(told({ state: 'quarantine', reason: 'it has\u001b[2J lost', lost_seconds: 1_200, registry }), [
    'shared limits quarantine for 1,200 s: it has\ufffd[2J lost',
    'shared accounts and keys lost: no connection',
  ]);
  t.end();
});

void t.test('documents of other versions, in which any member may be missing', (t) => {
  const document: StatusView = {
    ...STATUS,
    sharing: {
      ...{ state: 'lost', reason: 'no connection', lost_seconds: 3 },
      registry: { state: 'lost', reason: 'no connection' },
    },
    upstreams: STATUS.upstreams!.map((upstream) => ({
      ...upstream,
      quotas: [{ quota: 'requests_per_minute', limit: 8, used: 2 }],
    })),
    credentials: [
      { name: 'entra', ok: true, expires_at: 1_735_689_600, renewals: 1, failures: 0, last_error: null },
    ],
    store: { ok: false, last_error: 'ENOSPC', unflushed_accounts: 3 },
    groups: [
      {
        ...{ id: 'grp_1', name: 'free', parent: null, path: ['free'], accounts: 3, groups: 0, created: 0 },
        quotas: { calls_per_day: { limit: 8, used: 2, held: 0, left: 6, resets_at: null } },
      },
    ],
  };
  for (const without of withoutEachMember(document)) {
    const text = linesOf(without as StatusView, 200).join('\n');
    t.notMatch(text, /undefined|NaN|\[object/);
  }
  const [credential] = document.credentials!;
  const silent: Partial<CredentialStatus> = { ...credential };
  delete (silent as { last_error?: unknown }).last_error;
  t.match(
    linesOf({ ...document, credentials: [silent, credential!] }, 120).join('\n'),
    / LAST ERROR\nentra .* –\nentra .* -\n/,
  );
  const [upstream] = document.upstreams!;
  // JSON leaves out what is undefined.
  const older = JSON.parse(JSON.stringify({ ...upstream, quotas: undefined })) as typeof upstream;
  t.match(linesOf({ ...document, upstreams: [older!, upstream!] }, 120).join('\n'), / USED\n.* –\n.* 25 %\n/);
  t.same(
    linesOf({ ...STATUS, sharing: { state: 'connected' } }, 120)[2],
    'shared accounts and keys –: the gateway has another version, which does not tell',
  );
  t.end();
});

void t.test('groups by their fullest quota', (t) => {
  const groupOf = (name: string, quotas: GroupView['quotas']): GroupView => ({
    ...{ id: 'grp_1', name, parent: null, path: ['firm', name], accounts: 3, groups: 0, created: 0 },
    quotas,
  });
  const count = (limit: number, used: number, held: number) => ({
    ...{ limit, used, held },
    left: limit - used - held,
    resets_at: null,
  });
  const money = (limit: string, used: string) => ({
    ...{ limit, used, held: '0.00', left: '0.00' },
    resets_at: null,
  });
  const groups = [
    groupOf('free', {}),
    groupOf('odd', { spend_per_day: money('1.00', '0.57') }),
    groupOf('calm', { calls_per_day: count(100, 10, 0) }),
    groupOf('new', { spend_per_day: money('250.00', '0.000012') }),
    groupOf('idle', { calls_per_day: count(100, 0, 0) }),
    groupOf('busy', { calls_per_day: count(100, 1, 0), tokens_per_month: count(1_000, 700, 100) }),
  ];
  const lines = linesOf({ ...STATUS, groups }, 200);
  const from = lines.findIndex((line) => line.startsWith('GROUP'));
  t.match(lines.slice(from + 1, from + 6), [
    /^firm \/ busy +3 +80 % +tokens_per_month/,
    /^firm \/ odd +3 +57 % +spend_per_day/,
    /^firm \/ calm +3 +10 %/,
    /^firm \/ new +3 +under 1 % +spend_per_day/,
    /^firm \/ idle +3 +0 %/,
  ]);
  t.notOk(lines.some((line) => line.includes('free')));
  t.notOk(linesOf(STATUS, 200).some((line) => line.startsWith('GROUP')));
  t.end();
});
