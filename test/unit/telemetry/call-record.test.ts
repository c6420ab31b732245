/** The JSON of a call: all its members, whatever names and messages hold, and null for what there was not. */
import t from 'tap';
import { asPicoUnits, asWallMs } from '#src/core/units.js';
import { callJson, callMembers, callView, type CallRecord } from '#src/telemetry/call-record.js';

const CALL: CallRecord = {
  requestPrefix: 'req_3fQx0aZcW8Lk-',
  request: 48,
  endedMs: asWallMs(Date.UTC(2025, 0, 31, 12)),
  route: '/v1/chat/completions',
  account: 'acct_a',
  key: 'key_b',
  model: 'a "quoted" mödel',
  upstream: 'api.example.com',
  stream: true,
  cache: null,
  status: 502,
  code: 'upstream_unavailable',
  usage: undefined,
  firstTokenMs: undefined,
  durationMs: 640.20004,
  queuedMs: 0,
  admittedMs: 0.25,
  error: 'No upstream “took” the call.\n',
  attempts: [
    {
      upstream: 'api.example.com',
      model: 'm',
      status: 500,
      code: 'status_500',
      startMs: 0.5,
      durationMs: 12,
      error: 'the "upstream" failed',
    },
  ],
  quotas: [
    { scope: 'account', id: 'acct_a', quota: 'requests_per_minute', left: 59 },
    { scope: 'group', id: 'gröup', quota: 'spend_per_day', left: 1_500_000_000_000n },
  ],
};

void t.test('every member is there, in ASCII', (t) => {
  const text = callJson(CALL);
  t.match(text, /^[ -~]+$/);
  const view = callView(CALL);
  t.match(view, {
    time: '2025-01-31T12:00:00.000Z',
    request_id: 'req_3fQx0aZcW8Lk-1c',
    model: 'a "quoted" mödel',
    answered_model: null,
    cost: null,
    status: 502,
    code: 'upstream_unavailable',
    first_token_ms: null,
    duration_ms: 640.2,
    admitted_ms: 0.25,
    error: CALL.error,
  });
  t.same(view.attempts, [
    {
      upstream: 'api.example.com',
      model: 'm',
      status: 500,
      code: 'status_500',
      start_ms: 0.5,
      duration_ms: 12,
      error: 'the "upstream" failed',
    },
  ]);
  t.same(view.quotas, [
    { scope: 'account', id: 'acct_a', quota: 'requests_per_minute', left: 59 },
    { scope: 'group', id: 'gröup', quota: 'spend_per_day', left: '1.50' },
  ]);
  t.end();
});

void t.test('a charged call has tokens and cost; what there was not is null', (t) => {
  const usage = {
    promptTokens: 9,
    cachedTokens: 1,
    cacheWriteTokens: 2,
    cacheWrite1hTokens: 3,
    completionTokens: 12,
    reasoningTokens: 4,
    answeredModel: 'other',
    source: 'reported',
    charged: asPicoUnits(8_550_000n),
  };
  const view = callView({ ...CALL, usage, code: null, error: null, admittedMs: undefined, account: null });
  t.match(view, { prompt_tokens: 9, reasoning_tokens: 4, cost: '0.00000855', answered_model: 'other' });
  t.same([view.code, view.error, view.admitted_ms, view.account], [null, null, null, null]);
  const shared = JSON.parse(`{${callMembers(CALL)}}`) as Record<string, unknown>;
  t.same(
    shared,
    Object.fromEntries(Object.keys(shared).map((name) => [name, callView(CALL)[name as keyof typeof view]])),
  );
  t.end();
});
