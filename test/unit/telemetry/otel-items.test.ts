/** What collectors are told of calls and attempts: names, times, status and attributes of their spans. */
import { SpanKind, SpanStatusCode } from '@opentelemetry/api';
import { resourceFromAttributes } from '@opentelemetry/resources';
import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { otelSpanOf } from '#src/telemetry/otel-items.js';
import {
  SPAN_OF_ATTEMPT,
  SPAN_OF_CALL,
  type AttemptSpanRecord,
  type CallSpanRecord,
  type SpanRecord,
  spanTokensOf,
} from '#src/telemetry/span-record.js';

const call: CallSpanRecord = {
  kind: SPAN_OF_CALL,
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  spanId: '00f067aa0ba902b7',
  parentSpanId: null,
  flags: 3,
  traceState: '',
  startMs: 1.000001,
  endMs: 2_000.25,
  firstTokenMs: null,
  outcome: 'ok',
  status: 200,
  requestId: 'req_3fQx0aZcW8Lk-1c',
  door: 'chat',
  account: asAccountIndex(1),
  model: 'gpt-4o-mini',
  answeredModel: null,
  provider: 'openai',
  stream: false,
  tokens: spanTokensOf({
    promptTokens: 9,
    cachedTokens: 0,
    cacheWriteTokens: 3,
    cacheWrite1hTokens: 2,
    completionTokens: 12,
    reasoningTokens: 5,
  }),
  costPicoUnits: 8_550_000n,
  queuedMs: 0,
};
const attempt: AttemptSpanRecord = {
  kind: SPAN_OF_ATTEMPT,
  traceId: call.traceId,
  spanId: '00f067aa0ba902b8',
  parentSpanId: call.spanId,
  flags: 1,
  traceState: '',
  startMs: 3.5,
  endMs: 999.9999,
  firstByteMs: 4.25,
  error: null,
  status: 200,
  requestId: call.requestId,
  door: 'chat',
  origin: 'https://api.example.com',
  model: 'm',
  responseModel: 'm-2025',
  provider: 'p',
  earlierAttempts: 0,
  stream: true,
};

const around = {
  resource: resourceFromAttributes({ 'service.name': 'gate' }),
  scope: { name: 'tollgate', version: '1.2.3' },
  offsetMs: 1_763_800_000_000.125,
  accountIdOf: (account: number) => (account === 1 ? 'acct_abc' : undefined),
};
const spanOf = (record: SpanRecord) => otelSpanOf(record, around);

const CALL_ATTRIBUTES = {
  'http.request.method': 'POST',
  'http.route': '/v1/chat/completions',
  'url.path': '/v1/chat/completions',
  'http.response.status_code': 200,
  'gen_ai.operation.name': 'chat',
  'gen_ai.provider.name': 'openai',
  'gen_ai.request.model': 'gpt-4o-mini',
  'gen_ai.request.stream': false,
  'gen_ai.usage.input_tokens': 9,
  'gen_ai.usage.cache_read.input_tokens': 0,
  'gen_ai.usage.cache_creation.input_tokens': 3,
  'gen_ai.usage.output_tokens': 12,
  'gen_ai.usage.reasoning.output_tokens': 5,
  'tollgate.request.id': 'req_3fQx0aZcW8Lk-1c',
  'tollgate.account.id': 'acct_abc',
  'tollgate.cost': 0.00000855,
};
const ATTEMPT_ATTRIBUTES = {
  'gen_ai.operation.name': 'chat',
  'gen_ai.provider.name': 'p',
  'gen_ai.request.model': 'm',
  'gen_ai.request.stream': true,
  'gen_ai.response.model': 'm-2025',
  'http.request.method': 'POST',
  'http.response.status_code': 200,
  'server.address': 'api.example.com',
  'server.port': 443,
  'tollgate.request.id': 'req_3fQx0aZcW8Lk-1c',
};

/** `all` without the names in `without`, and with `more`. */
function but(all: object, without: readonly string[], more: object = {}): object {
  return { ...Object.fromEntries(Object.entries(all).filter(([name]) => !without.includes(name))), ...more };
}

void t.test('a call', (t) => {
  const span = spanOf(call);
  t.strictSame(span.attributes, CALL_ATTRIBUTES);
  t.match(span, {
    name: 'POST /v1/chat/completions',
    kind: SpanKind.SERVER,
    parentSpanContext: undefined,
    startTime: [1_763_800_000, 1_125_000],
    endTime: [1_763_800_002, 375_000],
    status: { code: SpanStatusCode.UNSET },
    events: [],
    instrumentationScope: { name: 'tollgate', version: '1.2.3' },
  });
  t.equal(span.resource, around.resource);
  const context = { traceId: call.traceId, spanId: call.spanId, traceFlags: 3 };
  t.strictSame(span.spanContext(), context);

  const streamed = spanOf({
    ...call,
    parentSpanId: '00f067aa0ba902b9',
    traceState: 'a=1,b="x\\y"',
    stream: true,
    firstTokenMs: 1.5,
  });
  t.match(streamed.parentSpanContext, { ...context, spanId: '00f067aa0ba902b9', isRemote: true });
  t.equal(streamed.spanContext().traceState?.serialize(), 'a=1,b="x\\y"');
  t.match(streamed.events, [{ name: 'first_token', time: [1_763_800_000, 1_625_000] }]);
  t.strictSame(streamed.attributes, { ...CALL_ATTRIBUTES, 'gen_ai.request.stream': true });
  t.end();
});

void t.test('calls that failed or were not charged', (t) => {
  const tokens = Object.keys(CALL_ATTRIBUTES).filter((name) => /usage|cost/.test(name));
  const failed = spanOf({
    ...call,
    outcome: 'provider_unavailable',
    status: 502,
    tokens: null,
    costPicoUnits: null,
  });
  t.equal(failed.status.code, SpanStatusCode.ERROR);
  t.strictSame(
    failed.attributes,
    but(CALL_ATTRIBUTES, tokens, { 'http.response.status_code': 502, 'error.type': 'provider_unavailable' }),
  );
  const broken = spanOf({ ...call, outcome: 'provider_error', status: 200 });
  t.equal(broken.status.code, SpanStatusCode.ERROR, 'after its 200');
  const rejected = spanOf({ ...call, outcome: 'invalid_parameters', status: 400 });
  t.equal(rejected.status.code, SpanStatusCode.UNSET, "the caller's fault");
  const gone = spanOf({ ...call, outcome: 'client_gone', status: null, model: null, provider: null });
  t.equal(gone.status.code, SpanStatusCode.UNSET);
  const unknown = [
    'http.response.status_code',
    'gen_ai.provider.name',
    'gen_ai.request.model',
    'gen_ai.request.stream',
  ];
  t.strictSame(gone.attributes, but(CALL_ATTRIBUTES, unknown, { 'error.type': 'client_gone' }));
  const nobody = spanOf({ ...call, account: asAccountIndex(2), costPicoUnits: 3_000_000_000_000n });
  t.strictSame(nobody.attributes, but(CALL_ATTRIBUTES, ['tollgate.account.id'], { 'tollgate.cost': 3 }));
  t.end();
});

void t.test('an attempt', (t) => {
  const span = spanOf(attempt);
  t.strictSame(span.attributes, ATTEMPT_ATTRIBUTES);
  t.match(span, {
    name: 'chat m',
    kind: SpanKind.CLIENT,
    parentSpanContext: { spanId: call.spanId, isRemote: false },
    status: { code: SpanStatusCode.UNSET },
    events: [{ name: 'first_byte', time: [1_763_800_000, 4_375_000] }],
  });
  const timeout = spanOf({
    ...attempt,
    error: 'timeout',
    status: null,
    earlierAttempts: 2,
    firstByteMs: null,
    origin: 'echo:',
  });
  t.match(timeout, { status: { code: SpanStatusCode.ERROR }, events: [] });
  t.strictSame(
    timeout.attributes,
    but(ATTEMPT_ATTRIBUTES, ['http.response.status_code', 'server.port'], {
      'error.type': 'timeout',
      'tollgate.upstream.failure': 'timeout',
      'http.request.resend_count': 2,
      'server.address': 'echo',
    }),
  );
  const status = spanOf({ ...attempt, error: 'status', status: 503, origin: 'http://127.0.0.1:4711' });
  t.strictSame(
    status.attributes,
    but(ATTEMPT_ATTRIBUTES, [], {
      'http.response.status_code': 503,
      'error.type': '503',
      'tollgate.upstream.failure': 'status',
      'server.address': '127.0.0.1',
      'server.port': 4_711,
    }),
  );
  t.equal(spanOf({ ...attempt, error: 'cancelled' }).status.code, SpanStatusCode.UNSET);
  const silent = spanOf({ ...attempt, responseModel: null });
  t.strictSame(silent.attributes, but(ATTEMPT_ATTRIBUTES, ['gen_ai.response.model']));
  t.end();
});
