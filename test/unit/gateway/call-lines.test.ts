/**
 * Lines of the access log and records of calls: what is in them, and that they are JSON whatever names hold.
 */
import t from 'tap';
import { decimalOf } from '#src/core/money.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { accessLine, callRecordOf } from '#src/gateway/call-lines.js';
import { IdNames } from '#src/gateway/id-names.js';
import { quotaCode } from '#src/core/quotas-left.js';
import { QUOTA_NAMES, QUOTA_SCOPES } from '#src/core/quotas.js';
import { violation } from '#src/protocol/request-rules.js';
import { unknownModel } from '#src/request/rejections.js';
import type { EndedCall } from '#src/telemetry/call-ring-layout.js';
import { StoppedClock } from '../store/support.js';

const RECORD: EndedCall = {
  request: 48,
  door: 1,
  endedMs: asWallMs(Date.UTC(2025, 0, 31, 12)),
  outcome: 'ok',
  begun: true,
  stream: true,
  cache: undefined,
  account: asAccountIndex(2),
  key: asKeyIndex(7),
  model: 0,
  upstream: 3,
  usage: {
    promptTokens: 9,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    reasoningTokens: 0,
    answered: 1,
    completionTokens: 12,
    source: 0,
    charged: asPicoUnits(8_550_000n),
  },
  firstTokenMs: 310.4,
  durationMs: 640.20004,
  queuedMs: 0,
  admittedMs: 0.5,
  quotas: {
    minute: 59,
    inFlight: 7,
    perDay: 999,
    balance: 1_500_000_000_000,
    others: [
      quotaCode(QUOTA_SCOPES.indexOf('key'), QUOTA_NAMES.indexOf('spend_per_day')),
      7,
      2_000_000_000,
      quotaCode(QUOTA_SCOPES.indexOf('group'), QUOTA_NAMES.indexOf('tokens_per_minute')),
      4,
      90,
      quotaCode(QUOTA_SCOPES.indexOf('model'), QUOTA_NAMES.indexOf('requests_per_minute')),
      0,
      3,
    ],
  },
  attempts: [
    {
      upstream: 3,
      model: 1,
      status: 0,
      code: 'connect',
      startMs: 1,
      durationMs: 2,
      error: 'ECONNREFUSED: nobody',
    },
    { upstream: 4, model: 1, status: 200, code: undefined, startMs: 4, durationMs: 600, error: '' },
  ],
  error: '',
};

const names = {
  ids: new IdNames(
    { findAccountId: (index) => `acct_${index}`, findKeyId: (index) => `key_${index}` },
    new StoppedClock(),
  ),
  modelIdOf: () => 'a "quoted" m\u00f6del',
  groupNameOf: (group: number) => `group ${group}`,
  upstreamNameOf: (slot: number) => (slot === 3 ? 'api.example.com' : undefined),
  requestPrefixOf: (listener: number) => `req_${listener}-`,
};
const textOf = (record: Partial<EndedCall>): string =>
  accessLine(callRecordOf(names, 1, { ...RECORD, ...record }), 1);
const parsed = (record: Partial<EndedCall>): unknown => JSON.parse(textOf(record));

void t.test('a call is one line with all that is known of it', (t) => {
  t.same(parsed({}), {
    level: 'info',
    time: '2025-01-31T12:00:00.000Z',
    thread: 'listener-1',
    pid: process.pid,
    request_id: 'req_1-1c',
    route: '/v1/messages',
    account: 'acct_2',
    key: 'key_7',
    model: 'a "quoted" m\u00f6del',
    answered_model: 'a "quoted" m\u00f6del',
    upstream: 'api.example.com',
    stream: true,
    cache: null,
    status: 200,
    code: null,
    prompt_tokens: 9,
    cached_tokens: 0,
    cache_write_tokens: 0,
    cache_write_1h_tokens: 0,
    completion_tokens: 12,
    reasoning_tokens: 0,
    source: 'reported',
    cost: '0.00000855',
    first_token_ms: 310.4,
    duration_ms: 640.2,
    queued_ms: 0,
    message: 'call',
  });
  t.end();
});

void t.test('numbers and times are those of JSON', (t) => {
  t.match(textOf({}), /^[\x20-\x7e]+$/, 'one line of ASCII');
  const base = Date.UTC(2025, 11, 31, 23, 59, 59);
  for (const ms of [0, 0.5, 1, 9, 10, 99.9, 100, 999, 1_000, 86_400_000]) {
    const endedMs = asWallMs(base + ms);
    t.match(parsed({ endedMs }), { time: new Date(endedMs).toISOString() }, `${ms} ms`);
  }
  for (const ms of [0, 0.0004, 0.001, 0.01, 0.1, 1, 1.5, 9.999, 9.9999, 123.456, 120, 3_600_000.25, 1e10]) {
    const rounded = Math.round(ms * 1_000) / 1_000;
    t.match(parsed({ durationMs: ms, firstTokenMs: ms }), { duration_ms: rounded, first_token_ms: rounded });
  }
  const random = Array.from({ length: 300 }, (_, at) => BigInt(Math.floor(Math.random() * 10 ** (at % 16))));
  t.comment(`random amounts ${random.join(' ')}`);
  const amounts = [
    0n,
    1n,
    10n,
    999n,
    1_000n,
    10n ** 9n,
    10n ** 10n,
    10n ** 12n,
    10n ** 12n + 1n,
    2n ** 53n,
    -5n,
  ];
  for (const amount of [...amounts, 2n ** 53n - 1n, 2n ** 60n, ...random]) {
    const usage = { ...RECORD.usage!, charged: asPicoUnits(amount) };
    t.match(parsed({ usage }), { cost: decimalOf(amount) });
  }
  for (const tokens of [0, 1, 9, 10, 11, 99, 100, 4_096, 2 ** 31 - 1, 2 ** 31, 2 ** 53]) {
    const usage = {
      ...RECORD.usage!,
      promptTokens: tokens,
      cachedTokens: tokens,
      cacheWriteTokens: 0,
      cacheWrite1hTokens: 0,
      reasoningTokens: 0,
      completionTokens: tokens,
    };
    t.match(parsed({ usage }), { prompt_tokens: tokens, cached_tokens: tokens, completion_tokens: tokens });
  }
  t.end();
});

void t.test('each call of a key is told as it was, whatever the last one was', (t) => {
  const kinds: readonly Partial<EndedCall>[] = [
    {},
    { stream: false },
    { cache: 'hit' },
    { cache: 'miss' },
    { begun: false, outcome: 'overloaded' },
    { outcome: 'client_gone' },
    { upstream: undefined },
    { model: undefined },
    { account: asAccountIndex(4) },
    { key: asKeyIndex(8) },
  ];
  const apart = kinds.map((kind) => textOf({ ...kind, key: kind.key ?? asKeyIndex(100) }));
  t.equal(new Set(apart).size, kinds.length);
  for (const [at, first] of kinds.entries()) {
    for (const [other, second] of kinds.entries()) {
      t.equal(textOf({ ...first, key: first.key ?? asKeyIndex(100) }), apart[at]);
      t.equal(textOf({ ...second, key: second.key ?? asKeyIndex(100) }), apart[other]);
    }
  }
  t.end();
});

void t.test('an id that could not be read, or is of another key by now, is asked for again', (t) => {
  const clock = new StoppedClock();
  let id: string | undefined;
  const ids = new IdNames({ findAccountId: () => 'acct_1', findKeyId: () => id }, clock);
  const keyAt = (endedMs: number): unknown => {
    const line = accessLine(callRecordOf({ ...names, ids }, 0, { ...RECORD, endedMs: asWallMs(endedMs) }), 0);
    return (JSON.parse(line) as { key: unknown }).key;
  };
  t.equal(keyAt(0), null);
  id = 'key_a';
  t.equal(keyAt(1), 'key_a');
  id = 'key_b';
  t.equal(keyAt(2), 'key_a');
  clock.nowMs += 3_600_001;
  ids.forgetOld();
  t.equal(keyAt(3_600_002), 'key_b');
  t.end();
});

void t.test('what is not known is null', (t) => {
  const nothing = {
    account: undefined,
    key: undefined,
    model: undefined,
    upstream: undefined,
    usage: undefined,
    firstTokenMs: undefined,
  };
  t.match(parsed({ ...nothing, outcome: 'invalid_api_key', begun: false, stream: false }), {
    account: null,
    key: null,
    model: null,
    upstream: null,
    stream: false,
    status: 401,
    code: 'invalid_api_key',
    prompt_tokens: null,
    source: null,
    cost: null,
    first_token_ms: null,
  });
  t.match(parsed({ upstream: 9 }), { upstream: null });
  t.end();
});

void t.test('the status is the one that was sent', (t) => {
  t.match(parsed({ outcome: 'provider_unavailable', begun: true }), {
    status: 200,
    code: 'provider_unavailable',
  });
  t.match(parsed({ outcome: 'provider_unavailable', begun: false }), { status: 502 });
  t.match(parsed({ outcome: 'client_gone', begun: false }), { status: null, code: 'client_gone' });
  t.match(parsed({ outcome: 'client_gone', begun: true }), { status: 200 });
  t.match(parsed({ outcome: 'ok', begun: false }), { status: 200 });
  t.end();
});

void t.test(
  'a record has the names of attempts and quotas, and no more digits of money than are known',
  (t) => {
    const { quotas, attempts, error, admittedMs } = callRecordOf(names, 1, RECORD);
    t.same([error, admittedMs], [null, 0.5]);
    t.match(attempts, [
      { upstream: 'api.example.com', status: null, code: 'connect', error: 'ECONNREFUSED: nobody' },
      { upstream: null, status: 200, code: null, error: null },
    ]);
    t.same(quotas, [
      { scope: 'account', id: 'acct_2', quota: 'balance', left: 1_500_000_000_000n },
      { scope: 'account', id: 'acct_2', quota: 'calls_in_flight', left: 7 },
      { scope: 'account', id: 'acct_2', quota: 'calls_per_day', left: 999 },
      { scope: 'account', id: 'acct_2', quota: 'requests_per_minute', left: 59 },
      { scope: 'key', id: 'key_7', quota: 'spend_per_day', left: 2_000_000_000_000n },
      { scope: 'group', id: 'group 4', quota: 'tokens_per_minute', left: 90 },
      { scope: 'model', id: names.modelIdOf(), quota: 'requests_per_minute', left: 3 },
    ]);
    const rich = { ...RECORD.quotas!, balance: 3e18 + 4_096 };
    t.equal(callRecordOf(names, 1, { ...RECORD, quotas: rich }).quotas[0]!.left, 3_000_000_000_000_004_000n);
    t.same(callRecordOf(names, 1, { ...RECORD, quotas: undefined }).quotas, []);
    t.equal(callRecordOf(names, 1, { ...RECORD, error: 'no' }).error, 'no');
    t.end();
  },
);

void t.test('a key that a caller sent in the place of something else is not in the record', (t) => {
  const key = `sk-${'aB3_-'.repeat(8)}xyz`;
  const hidden = `sk-${'*'.repeat(43)}`;
  const shownOf = (text: string): (string | null)[] => {
    const [attempt] = RECORD.attempts;
    const ended = { ...RECORD, error: text, attempts: [{ ...attempt!, error: text }] };
    const { error, attempts } = callRecordOf(names, 1, ended);
    return [error, attempts[0]!.error];
  };
  const unknown = unknownModel(key).message;
  t.match(unknown, key, 'the caller itself is told');
  t.same(shownOf(unknown), Array(2).fill(unknown.replace(key, hidden)));
  t.same(shownOf(`got "tgop_${key.slice(3)}"`), Array(2).fill(`got "tgop_${'*'.repeat(43)}"`));
  // The rest of a key that is clipped could be guessed.
  t.notMatch(shownOf(violation('temperature', 'be a number', key)).join(), /sk-a/);
  t.match(shownOf(violation('temperature', 'be a number', key)).join(), /got "sk-\*{37}…"/);
  t.match(shownOf(unknownModel(`${'m'.repeat(80)}${key}`).message).join(), /m"?sk-\*{17}…"/);
  const basic = Buffer.from(`user:${key}`).toString('base64');
  for (const text of [basic, `${'m'.repeat(40)} ${basic}`])
    t.notMatch(shownOf(unknownModel(text).message).join(), basic.slice(8, 40));
  const harmless = unknownModel('sk-model-of-mine').message;
  t.same(shownOf(harmless), [harmless, harmless]);
  t.end();
});
