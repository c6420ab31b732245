/** Calls as OpenTelemetry log records, exported to a receiver that speaks OTLP. */
import t from 'tap';
import { startBed } from '../support/bed.js';
import { type ReceivedLogRecord, startCollector } from '../support/collector.js';
import { eventually, startGateway, TEST_MODEL, testSettings } from '../support/gateway.js';
import { scrape } from '../support/metrics.js';
import { startMock, steered } from '../support/mock.js';

const SECRET = 'sk-provider-secret-0123456789';

void t.test('every ended call is a log record, with the call log off and without spans', async (t) => {
  const collector = await startCollector(t);
  const mock = await startMock(t);
  const gateway = await startGateway(t, {
    config: {
      ...testSettings(mock.url, { upstream: { key: '${PROVIDER_KEY}' } }),
      call_log: { enabled: false },
    },
    env: {
      PROVIDER_KEY: SECRET,
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_TRACES_EXPORTER: 'none',
      OTEL_LOGS_EXPORTER: 'otlp',
      OTEL_SERVICE_NAME: 'gate',
    },
  });
  const { key, accountId } = await gateway.admin.customer();
  const recordOf = (id: string | string[] | undefined): Promise<ReceivedLogRecord> =>
    eventually(`the record of ${String(id)}`, () =>
      collector.logRecords.find(({ attributes }) => attributes['tollgate.request.id'] === id),
    );

  const beganMs = Date.now();
  const good = await gateway.chat(key, 'Tell me a secret word');
  const { usage } = good.json() as { usage: { prompt_tokens: number; completion_tokens: number } };
  const record = await recordOf(good.headers['x-request-id']);
  t.match(record, {
    severityNumber: 9,
    severityText: 'INFO',
    body: 'POST /v1/chat/completions 200',
    eventName: 'tollgate.call',
    scope: 'tollgate',
    resource: { 'service.name': 'gate' },
    attributes: {
      'http.request.method': 'POST',
      'http.route': '/v1/chat/completions',
      'http.response.status_code': 200,
      'gen_ai.operation.name': 'chat',
      'gen_ai.request.model': TEST_MODEL,
      'gen_ai.request.stream': false,
      'gen_ai.usage.input_tokens': usage.prompt_tokens,
      'gen_ai.usage.output_tokens': usage.completion_tokens,
      'tollgate.account.id': accountId,
      'tollgate.usage.source': 'reported',
    },
  });
  t.notOk('error.type' in record.attributes, 'what is not there is left out');
  t.ok(Number(record.attributes['tollgate.cost']) > 0);
  const endedMs = Number(BigInt(record.timeUnixNano) / 1_000_000n);
  t.ok(endedMs >= beganMs - 1 && endedMs <= Date.now(), 'its time is the end of the call');

  const failed = await gateway.chat(key, steered('status=503'));
  const error = await recordOf(failed.headers['x-request-id']);
  t.match(error, {
    severityText: 'ERROR',
    body: 'POST /v1/chat/completions 502 provider_unavailable',
    attributes: { 'error.type': 'provider_unavailable', 'tollgate.error.message': /./ },
  });
  t.match(JSON.stringify(error.attributes['tollgate.attempts']), /"status".*503/);
  const refused = await gateway.chat('sk-wrong', 'Hello');
  t.match(await recordOf(refused.headers['x-request-id']), {
    severityText: 'WARN',
    attributes: { 'http.response.status_code': 401 },
  });

  const MANY = 400;
  await Promise.all(Array.from({ length: MANY }, () => gateway.chat(key, 'Hello')));
  const exported = await eventually('all exported', async () => {
    const { samples } = await scrape(gateway.admin.port);
    return samples.find(
      ({ name, labels, value }) =>
        name === 'tollgate_log_records_total' && labels.state === 'exported' && value >= MANY + 3,
    );
  });
  t.equal(exported.value, MANY + 3, 'each once');
  const last = await gateway.chat(key, 'Hello');
  t.equal(await gateway.stop(), 0);
  await recordOf(last.headers['x-request-id']);
  t.same(collector.spans, []);
  t.equal(
    new Set(collector.logRecords.map(({ attributes }) => attributes['tollgate.request.id'])).size,
    MANY + 4,
  );
  t.notMatch(collector.bodies.join(), new RegExp(`${SECRET}|${key}|secret word`), 'no contents, no keys');
});

void t.test('a collector that fails, hangs or goes holds nothing up', async (t) => {
  for (const mode of ['fail', 'hang', 'gone'] as const) {
    const collector = await startCollector(t);
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_LOGS_EXPORTER: 'otlp' };
    const { gateway } = await startBed(t, {}, { env });
    const { key } = await gateway.admin.customer();
    if (mode === 'gone') collector.close();
    else collector.mode = mode;
    const answers = await Promise.all(Array.from({ length: 20 }, () => gateway.chat(key, 'Hello')));
    t.ok(
      answers.every(({ status }) => status === 200),
      `${mode}: calls are served`,
    );
    if (mode === 'fail')
      await eventually('records that failed', async () =>
        (await scrape(gateway.admin.port)).samples.find(
          ({ name, labels, value }) =>
            name === 'tollgate_log_records_total' && labels.state === 'failed' && value === 20,
        ),
      );
    const beganMs = performance.now();
    t.equal(await gateway.stop(), 0, `${mode}: the stop is clean`);
    t.ok(performance.now() - beganMs < 60_000, 'and bounded');
  }
});

void t.test('without OTEL_LOGS_EXPORTER no record is exported', async (t) => {
  const collector = await startCollector(t);
  const { gateway } = await startBed(t, {}, { env: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url } });
  const { key } = await gateway.admin.customer();
  t.equal((await gateway.chat(key, 'Hello')).status, 200);
  await eventually('spans', () => (collector.spans.length >= 2 ? true : undefined));
  const { samples } = await scrape(gateway.admin.port);
  t.notOk(samples.some(({ name }) => name === 'tollgate_log_records_total'));
  t.equal(await gateway.stop(), 0);
  t.same(collector.logRecords, []);
});
