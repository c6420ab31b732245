/** Traces: carried from the caller to the upstream, and exported to a receiver that speaks OTLP. */
import { join } from 'node:path';
import t from 'tap';
import { startBed } from '../support/bed.js';
import {
  KIND_CLIENT,
  KIND_SERVER,
  STATUS_ERROR,
  startCollector,
  type ReceivedSpan,
} from '../support/collector.js';
import { eventually, startGateway, TEST_MODEL, TEST_PRICE, testSettings } from '../support/gateway.js';
import { scrape } from '../support/metrics.js';
import { startMock, steered } from '../support/mock.js';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const TRACEPARENT = `00-${TRACE}-${PARENT}-01`;
/** Says which threads have loaded OpenTelemetry. */
const WATCHED = {
  NODE_OPTIONS: `--import=${join(process.cwd(), 'test/fixtures/opentelemetry-watch.mjs')}`,
};
/** Within an entry of the log: what is written beside it becomes one, of several threads perhaps the same. */
const LOADED = /opentelemetry: \d+ modules/g;
const SECRET = 'sk-provider-secret-0123456789';

let count = 0;
/** Another trace for each call. */
function nextTrace(): string {
  count += 1;
  return `${TRACE.slice(0, 24)}${count.toString(16).padStart(8, '0')}`;
}

const kindOf = (spans: readonly ReceivedSpan[], kind: number): ReceivedSpan[] =>
  spans
    .filter((span) => span.kind === kind)
    .sort((left, right) => Number(BigInt(left.startTimeUnixNano) - BigInt(right.startTimeUnixNano)));

const bodyOf = (prompt: string, more: object = {}) => ({
  model: TEST_MODEL,
  messages: [{ role: 'user', content: prompt }],
  ...more,
});

void t.test('without an exporter the trace of the caller is carried, and nothing is loaded', async (t) => {
  const { mock, gateway } = await startBed(t, {}, { env: WATCHED });
  const { key } = await gateway.admin.customer();
  const carried = async (headers: Record<string, string>) => {
    const answer = await gateway.request(key, { body: bodyOf('Hello'), headers });
    t.equal(answer.status, 200);
    const { traceparent, tracestate } = (await mock.stats()).last!.headers;
    return [traceparent, tracestate];
  };
  t.same(await carried({ traceparent: TRACEPARENT }), [TRACEPARENT, undefined]);
  t.same(await carried({ traceparent: TRACEPARENT, tracestate: 'a=1 , b@c=2' }), [TRACEPARENT, 'a=1,b@c=2']);
  t.same(await carried({ traceparent: TRACEPARENT, tracestate: 'A=1' }), [TRACEPARENT, undefined]);
  t.same(await carried({ traceparent: `${TRACEPARENT}-x`, tracestate: 'a=1' }), [undefined, undefined]);
  t.same(await carried({ tracestate: 'a=1' }), [undefined, undefined], 'a state alone says nothing');
  t.same(await carried({}), [undefined, undefined]);

  t.same(
    (await scrape(gateway.admin.port)).samples.filter(({ name }) => name === 'tollgate_spans_total'),
    [],
  );
  t.equal(await gateway.stop(), 0);
  t.notMatch(gateway.log().join('\n'), LOADED);
});

void t.test('spans of calls and attempts', async (t) => {
  const collector = await startCollector(t);
  const mock = await startMock(t);
  const gateway = await startGateway(t, {
    config: testSettings(mock.url, { upstream: { key: '${PROVIDER_KEY}', model: 'their-model' } }),
    env: {
      ...WATCHED,
      PROVIDER_KEY: SECRET,
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_SERVICE_NAME: 'gate',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
    },
  });
  const { key, accountId } = await gateway.admin.customer();

  await t.test('a whole answer', async (t) => {
    const trace = nextTrace();
    const headers = { traceparent: `00-${trace}-${PARENT}-01`, tracestate: 'vendor=x' };
    const answer = await gateway.request(key, { body: bodyOf('Tell me a secret word'), headers });
    t.equal(answer.status, 200);
    const spans = await collector.trace(trace, 2);
    const [call] = kindOf(spans, KIND_SERVER) as [ReceivedSpan];
    const [attempt] = kindOf(spans, KIND_CLIENT) as [ReceivedSpan];
    const { usage } = answer.json() as { usage: { prompt_tokens: number; completion_tokens: number } };
    const cost =
      usage.prompt_tokens * Number(TEST_PRICE.input) + usage.completion_tokens * Number(TEST_PRICE.output);
    t.match(call, {
      name: 'POST /v1/chat/completions',
      parentSpanId: PARENT,
      traceState: 'vendor=x',
      events: [],
      resource: { 'service.name': 'gate', 'deployment.environment.name': 'test' },
      attributes: {
        'http.request.method': 'POST',
        'http.route': '/v1/chat/completions',
        'http.response.status_code': 200,
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': 'mock',
        'gen_ai.request.model': TEST_MODEL,
        'gen_ai.usage.input_tokens': usage.prompt_tokens,
        'gen_ai.usage.output_tokens': usage.completion_tokens,
        'tollgate.request.id': answer.headers['x-request-id'],
        'tollgate.account.id': accountId,
      },
    });
    t.ok(Math.abs(Number(call.attributes['tollgate.cost']) * 1e6 - cost) < 1e-6, `cost ${cost}`);
    t.notOk('gen_ai.usage.input_tokens' in attempt.attributes, 'tokens are told once');
    t.match(attempt, {
      name: 'chat their-model',
      parentSpanId: call.spanId,
      events: [],
      attributes: {
        'gen_ai.request.model': 'their-model',
        'gen_ai.response.model': 'their-model',
        'http.response.status_code': 200,
        'server.address': '127.0.0.1',
        'server.port': mock.port,
        'tollgate.request.id': answer.headers['x-request-id'],
      },
    });
    t.notOk('error.type' in call.attributes || 'error.type' in attempt.attributes);
    t.ok(BigInt(call.startTimeUnixNano) <= BigInt(attempt.startTimeUnixNano), 'the call begins first');
    t.ok(
      Math.abs(Number(BigInt(call.startTimeUnixNano) / 1_000_000n) - Date.now()) < 60_000,
      'times are Unix times',
    );
    const sent = (await mock.stats()).last!.headers;
    t.equal(
      sent.traceparent,
      `00-${trace}-${attempt.spanId}-01`,
      'the attempt is the parent of what comes behind',
    );
    t.equal(sent.tracestate, 'vendor=x');
  });

  await t.test('a stream', async (t) => {
    const trace = nextTrace();
    const answer = await gateway.request(key, {
      body: bodyOf('Hello', { stream: true }),
      headers: { traceparent: `00-${trace}-${PARENT}-01` },
    });
    t.equal(answer.status, 200);
    const spans = await collector.trace(trace, 2);
    const [call] = kindOf(spans, KIND_SERVER) as [ReceivedSpan];
    const [attempt] = kindOf(spans, KIND_CLIENT) as [ReceivedSpan];
    t.equal(call.attributes['gen_ai.request.stream'], true);
    t.same(
      [call.events.map(({ name }) => name), attempt.events.map(({ name }) => name)],
      [['first_token'], ['first_byte']],
    );
    const first = BigInt(call.events[0]!.timeUnixNano);
    t.ok(first >= BigInt(call.startTimeUnixNano) && first <= BigInt(call.endTimeUnixNano));
  });

  await t.test('without a parent', async (t) => {
    const before = collector.spans.length;
    t.equal(
      (await gateway.request(key, { body: bodyOf('Hello'), headers: { traceparent: '00-junk' } })).status,
      200,
    );
    const spans = await eventually('two spans', () =>
      collector.spans.length >= before + 2 ? collector.spans.slice(before) : undefined,
    );
    const [call] = kindOf(spans, KIND_SERVER) as [ReceivedSpan];
    t.notOk(call.parentSpanId, 'a root');
    t.match(call.traceId, /^[0-9a-f]{32}$/);
    t.equal((await mock.stats()).last!.headers.traceparent?.slice(0, 35), `00-${call.traceId}`);
  });

  await t.test('what the caller left out of its sample is carried and not recorded', async (t) => {
    const trace = nextTrace();
    const headers = { traceparent: `00-${trace}-${PARENT}-00` };
    t.equal((await gateway.request(key, { body: bodyOf('Hello'), headers })).status, 200);
    t.match(
      (await mock.stats()).last!.headers.traceparent,
      new RegExp(`^00-${trace}-(?!${PARENT})[0-9a-f]{16}-00$`),
    );
    const after = nextTrace();
    const sampled = { traceparent: `00-${after}-${PARENT}-01` };
    t.equal((await gateway.request(key, { body: bodyOf('Hello'), headers: sampled })).status, 200);
    await collector.trace(after, 2);
    t.same(
      collector.spans.filter(({ traceId }) => traceId === trace),
      [],
    );
  });

  await t.test('failures', async (t) => {
    const refused = nextTrace();
    await gateway.request(key, {
      body: bodyOf('Hello', { temperature: 3 }),
      headers: { traceparent: `00-${refused}-${PARENT}-01` },
    });
    const [refusal] = (await collector.trace(refused, 1)) as [ReceivedSpan];
    t.match(refusal.attributes, { 'http.response.status_code': 400, 'error.type': 'invalid_parameters' });
    t.not(refusal.status.code, STATUS_ERROR, "the caller's fault is no error of a server");

    const failed = nextTrace();
    const answer = await gateway.request(key, {
      body: bodyOf(steered('status=503')),
      headers: { traceparent: `00-${failed}-${PARENT}-01` },
    });
    t.equal(answer.status, 502);
    const spans = await collector.trace(failed, 2);
    const [call] = kindOf(spans, KIND_SERVER) as [ReceivedSpan];
    const [attempt] = kindOf(spans, KIND_CLIENT) as [ReceivedSpan];
    t.match(call, {
      status: { code: STATUS_ERROR },
      attributes: { 'http.response.status_code': 502, 'error.type': 'provider_unavailable' },
    });
    t.match(attempt, {
      status: { code: STATUS_ERROR },
      attributes: {
        'http.response.status_code': 503,
        'error.type': '503',
        'tollgate.upstream.failure': 'status',
      },
    });
  });

  await t.test('who has no key writes nothing', async (t) => {
    const trace = nextTrace();
    await gateway.request('sk-wrong', {
      body: bodyOf('x'),
      headers: { traceparent: `00-${trace}-${PARENT}-01` },
    });
    const after = nextTrace();
    await gateway.request(key, { body: bodyOf('x'), headers: { traceparent: `00-${after}-${PARENT}-01` } });
    await collector.trace(after, 2);
    t.same(
      collector.spans.filter(({ traceId }) => traceId === trace),
      [],
    );
  });

  const last = nextTrace();
  await gateway.request(key, { body: bodyOf('x'), headers: { traceparent: `00-${last}-${PARENT}-01` } });
  t.equal(await gateway.stop(), 0);
  const loaded = gateway.log().join('\n').match(LOADED) ?? [];
  t.equal(loaded.length, 1, 'one thread has loaded OpenTelemetry');
  t.equal(collector.spans.filter(({ traceId }) => traceId === last).length, 2, 'a stop sends what is left');
  t.notMatch(
    collector.bodies.join(),
    new RegExp(`${SECRET}|${key}|secret word|Hello`),
    'no contents, no keys',
  );
});

void t.test('a call that is tried again has a span for each try', async (t) => {
  const collector = await startCollector(t);
  const [bad, good] = [await startMock(t, ['--status', '503']), await startMock(t)];
  const settings = testSettings(bad.url) as { models: { upstreams: object[] }[] };
  settings.models[0]!.upstreams = [
    { url: bad.url, priority: 1 },
    { url: good.url, priority: 2 },
  ];
  const gateway = await startGateway(t, {
    config: settings,
    env: { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}/v1/traces` },
  });
  const { key } = await gateway.admin.customer();
  t.equal(
    (await gateway.request(key, { body: bodyOf('Hello'), headers: { traceparent: TRACEPARENT } })).status,
    200,
  );
  const spans = await collector.trace(TRACE, 3);
  const [call] = kindOf(spans, KIND_SERVER) as [ReceivedSpan];
  const [first, second] = kindOf(spans, KIND_CLIENT) as [ReceivedSpan, ReceivedSpan];
  t.same([first.parentSpanId, second.parentSpanId], [call.spanId, call.spanId]);
  t.match(first.attributes, { 'server.port': bad.port, 'error.type': '503' });
  t.match(second.attributes, { 'server.port': good.port, 'http.request.resend_count': 1 });
  t.equal((await bad.stats()).last!.headers.traceparent, `00-${TRACE}-${first.spanId}-01`);
  t.equal((await good.stats()).last!.headers.traceparent, `00-${TRACE}-${second.spanId}-01`);
  t.equal(await gateway.stop(), 0);
});

void t.test('a collector that fails, hangs or goes holds nothing up', async (t) => {
  for (const modes of [['fail', 'gone'], ['hang']] as const) {
    const collector = await startCollector(t);
    const { gateway } = await startBed(t, {}, { env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url } });
    const { key } = await gateway.admin.customer();
    for (const mode of modes) {
      const before = collector.requests;
      if (mode === 'gone') collector.close();
      else collector.mode = mode;
      const answers = await Promise.all(Array.from({ length: 20 }, () => gateway.chat(key, 'Hello')));
      t.ok(
        answers.every(({ status }) => status === 200),
        `${mode}: calls are served`,
      );
      if (mode !== 'gone')
        await eventually('an export', () => (collector.requests > before ? true : undefined));
      if (mode === 'fail') {
        const failed = await eventually('spans that failed', async () =>
          (await scrape(gateway.admin.port)).samples.find(
            ({ name, labels, value }) =>
              name === 'tollgate_spans_total' && labels.state === 'failed' && value > 0,
          ),
        );
        t.ok(failed.value <= 40, 'are counted');
        await eventually('the failure is logged', () =>
          gateway.log().join('\n').includes('spans could not be exported') ? true : undefined,
        );
      }
    }
    const beganMs = performance.now();
    t.equal(await gateway.stop(), 0, `${modes.join()}: the stop is clean`);
    t.ok(performance.now() - beganMs < 60_000, 'and bounded');
  }
});

void t.test('an endpoint that is no address is refused', async (t) => {
  await t.rejects(
    startGateway(t, { env: { OTEL_EXPORTER_OTLP_ENDPOINT: '127.0.0.1:4318' } }),
    /OTEL_EXPORTER_OTLP_ENDPOINT must be an http or https address/,
  );
});
