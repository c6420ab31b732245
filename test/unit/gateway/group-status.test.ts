/** The status document of several processes. */
import t from 'tap';
import { addStatus, endedStatus, statusDocument } from '#src/gateway/group-status.js';
import type { ProcessStatus } from '#src/gateway/messages.js';
import { OUTCOMES, type Outcome } from '#src/telemetry/metrics-layout.js';

const outcomes = (ok: number): Record<Outcome, number> =>
  Object.fromEntries(OUTCOMES.map((outcome) => [outcome, outcome === 'ok' ? ok : 0])) as Record<
    Outcome,
    number
  >;

/** Of the process of that place, which has had `calls` calls. */
function statusOf(place: number, calls: number, more: Partial<ProcessStatus> = {}): ProcessStatus {
  const histogram = { bounds: [1, 2], counts: [calls, 0, 1] };
  const figures = {
    outcomes: outcomes(calls),
    tokens: { prompt: calls * 4, cached: calls, completion: calls * 2 },
    cost_pico_units: BigInt(calls) * 10n ** 12n,
    duration_ms: histogram,
    first_token_ms: histogram,
  };
  const upstream = { model: 'm', name: 'host:1', priority: 1, weight: 1 };
  return {
    ...figures,
    version: '1.0.0',
    node: 'v20',
    pid: 1_000 + place,
    process: place,
    ready: true,
    uptime_seconds: place,
    listeners: 1,
    workers: 2,
    calls_in_flight: 3,
    accounts: 5,
    limits: { calls_in_flight: 100, accounts: 10, keys: 20 },
    refusals: { rate_limit_exceeded: calls },
    overhead_ms: histogram,
    models: [{ id: 'm', ...figures }],
    upstreams: [
      {
        ...upstream,
        calls_in_flight: 1,
        breaker: 'closed',
        attempts: calls,
        failures: 1,
        last_failure: { kind: 'timeout', at: 1_000 - place },
        last_errors: [
          { at: 1_000 - place, kind: 'timeout', status: null, error: null, request_id: `req_${place}` },
        ],
        quotas: [{ quota: 'requests_per_minute', limit: 10, used: calls }],
        waiting_calls: 2,
      },
    ],
    credentials: [
      {
        name: 'aws',
        ok: calls !== 7,
        expires_at: 2_000 - place,
        renewals: calls,
        failures: 1,
        last_error: null,
      },
    ],
    threads: [{ name: 'main', event_loop_delay_ms_p99: 1, heap_bytes: 2 }],
    store: { ok: true, last_error: null, unflushed_accounts: 1 },
    sharing: null,
    ...more,
  };
}

const plain = (document: object): unknown => JSON.parse(JSON.stringify(document));

void t.test('of one: its own figures', (t) => {
  const own = statusOf(0, 5);
  t.match(plain(statusDocument(own, [own], undefined)), {
    pid: 1_000,
    outcomes: { ok: 5 },
    cost: '5.00',
    models: [{ id: 'm', cost: '5.00', outcomes: { ok: 5 } }],
    threads: [{ name: 'main' }],
    processes: [{ process: 0, pid: 1_000, ready: true }],
  });
  t.end();
});

void t.test('of several, with one that has ended', (t) => {
  const own = statusOf(0, 5);
  const broken = { ok: false, last_error: 'no space', unflushed_accounts: 2 };
  const [upstream] = own.upstreams;
  const other = statusOf(4, 7, {
    ready: false,
    store: broken,
    upstreams: [{ ...upstream!, breaker: 'open' }],
    models: [{ ...own.models[0]!, id: 'n' }],
  });
  const gone = endedStatus(
    statusOf(1, 100, { upstreams: [upstream!, { ...upstream!, name: 'host:2', breaker: 'open' }] }),
  );
  const document = plain(statusDocument(own, [own, other], addStatus(gone, gone)));
  t.match(document, {
    pid: 1_000,
    ready: true,
    uptime_seconds: 0,
    listeners: 2,
    workers: 4,
    calls_in_flight: 6,
    limits: { calls_in_flight: 200, accounts: 10, keys: 20 },
    outcomes: { ok: 212 },
    refusals: { rate_limit_exceeded: 212 },
    tokens: { prompt: 848, cached: 212, completion: 424 },
    cost: '212.00',
    duration_ms: { bounds: [1, 2], counts: [212, 0, 4] },
    overhead_ms: { bounds: [1, 2], counts: [212, 0, 4] },
    models: [
      { id: 'm', cost: '205.00', outcomes: { ok: 205 } },
      { id: 'n', cost: '5.00' },
    ],
    upstreams: [
      {
        name: 'host:1',
        calls_in_flight: 2,
        breaker: 'open',
        attempts: 20,
        failures: 4,
        last_failure: { at: 1_000 },
        last_errors: [{ request_id: 'req_0' }, { request_id: 'req_0' }],
      },
    ],
    credentials: [{ name: 'aws', ok: false, expires_at: 1_996, renewals: 12, failures: 2, last_error: null }],
    threads: [{ name: '0/main' }, { name: '4/main' }],
    store: { ok: false, last_error: 'no space', unflushed_accounts: 3 },
    processes: [
      { process: 0, pid: 1_000, ready: true, calls_in_flight: 3 },
      { process: 4, pid: 1_004, ready: false },
    ],
  });
  t.equal(
    (document as { upstreams: unknown[] }).upstreams.length,
    1,
    'what is not in the settings is not shown',
  );
  t.end();
});

void t.test('sharing of several: the worst state, and sums', (t) => {
  const sharing = (more: object) => ({
    with: 'hosts' as const,
    state: 'connected' as const,
    reason: null,
    lost_seconds: 0,
    exchange_ms: { bounds: [1], counts: [2, 1] },
    exchange_failures: 1,
    leased_subjects: 3,
    waiting_requests: 1,
    registry: { state: 'following' as const, reason: null },
    ...more,
  });
  const own = statusOf(0, 5, { sharing: sharing({}) });
  const lost = { state: 'quarantine', reason: 'it has lost its data', lost_seconds: 7 };
  const registry = { state: 'lost', reason: 'no connection' };
  const other = statusOf(1, 5, { sharing: sharing({ ...lost, registry }) });
  const gone = endedStatus(statusOf(2, 5, { sharing: sharing({ state: 'lost', reason: 'x' }) }));
  t.match(plain(statusDocument(own, [own, other], gone)), {
    sharing: {
      with: 'hosts',
      ...lost,
      exchange_ms: { bounds: [1], counts: [6, 3] },
      exchange_failures: 3,
      leased_subjects: 6,
      waiting_requests: 2,
      registry,
    },
  });
  t.match(plain(statusDocument(statusOf(0, 1), [statusOf(0, 1)], undefined)), { sharing: null });
  t.end();
});

void t.test('quotas of an upstream are added by their name', (t) => {
  const quotaOf = (quota: string, used: number) => ({ quota, limit: 10, used });
  const [upstream] = statusOf(0, 1).upstreams;
  const statusWith = (place: number, ...quotas: ReturnType<typeof quotaOf>[]): ProcessStatus =>
    statusOf(place, 1, { upstreams: [{ ...upstream!, quotas }] });
  const [requests, calls, tokens] = ['requests_per_minute', 'calls_per_day', 'tokens_per_minute'];
  // During a reload, processes have other settings: in the second one a quota is gone, and another is new.
  const own = statusWith(0, quotaOf(requests, 1), quotaOf(calls, 2));
  const other = statusWith(1, quotaOf(calls, 5), quotaOf(tokens, 7));
  t.same(statusDocument(own, [own, other], endedStatus(other)).upstreams[0]!.quotas, [
    quotaOf(requests, 1),
    quotaOf(calls, 7),
    quotaOf(tokens, 7),
  ]);
  t.end();
});

void t.test('a histogram of another version, with other bounds, loses no call and makes none faster', (t) => {
  const own = statusOf(0, 0, { overhead_ms: { bounds: [1, 5, 10], counts: [1, 1, 1, 1] } });
  const sumWith = (bounds: readonly number[], counts: readonly number[]): unknown =>
    addStatus(own, statusOf(1, 0, { overhead_ms: { bounds, counts } })).overhead_ms;
  t.same(sumWith([1, 5, 10], [4, 3, 2, 1]), { bounds: [1, 5, 10], counts: [5, 4, 3, 2] });
  t.same(sumWith([0.5, 1, 2, 20], [1, 1, 1, 1, 1]), { bounds: [1, 5, 10], counts: [3, 2, 1, 3] });
  t.same(sumWith([5], [3, 4]), { bounds: [1, 5, 10], counts: [1, 4, 1, 5] });
  t.same(sumWith([], [7]), { bounds: [1, 5, 10], counts: [1, 1, 1, 8] });
  t.end();
});
