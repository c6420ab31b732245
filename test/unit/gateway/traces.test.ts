/** What the environment says about exporters, as far as nothing is exported. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { startTraces } from '#src/gateway/traces.js';
import { ExportBudget, SPANS_IN_FLIGHT_MAX } from '#src/telemetry/export-budget.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import type { SpanBatch } from '#src/telemetry/span-record.js';
import { eventually } from '../../support/gateway.js';
import { ListLog } from '../store/support.js';

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };

/** The lines of the log, and their fields. Nothing may be exported. */
function saidOf(env: Record<string, string>) {
  const log = new ListLog();
  const traces = startTraces(env, { accountIdOf: () => null, metrics: createMetrics(1, 1), stripe: 0, log });
  if (traces !== undefined) throw new Error('a thread that exports was started');
  return { lines: log.lines, fields: log.fields };
}

void t.test('an exporter that is not known here is named in the log', (t) => {
  for (const exporter of ['console', 'otlp,console', 'jaeger']) {
    const { lines, fields } = saidOf({ ...ENDPOINT, OTEL_TRACES_EXPORTER: exporter });
    t.equal(lines.length, 1, exporter);
    t.match(lines[0], /^warn OTEL_TRACES_EXPORTER: only otlp or none/);
    t.same(fields, [{ exporter }]);
  }
  const { lines } = saidOf({ ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none', OTEL_LOGS_EXPORTER: 'console' });
  t.equal(lines.length, 1);
  t.match(lines[0], /^warn OTEL_LOGS_EXPORTER: only otlp or none/);
  t.end();
});

void t.test('who wants no export hears nothing', (t) => {
  const envs: readonly Record<string, string>[] = [
    {},
    { OTEL_TRACES_EXPORTER: 'otlp' },
    { ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none', OTEL_LOGS_EXPORTER: 'none' },
    { ...ENDPOINT, OTEL_SDK_DISABLED: 'true', OTEL_TRACES_EXPORTER: 'console' },
  ];
  for (const env of envs) t.same(saidOf(env).lines, [], JSON.stringify(env));
  t.end();
});

void t.test('another protocol is named, also if the variable of the signal is empty', async (t) => {
  const log = new ListLog();
  const env = { ...ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: '' };
  const metrics = createMetrics(1, 1);
  const traces = startTraces(env, { accountIdOf: () => null, metrics, stripe: 0, log })!;
  await traces.close();
  t.match(log.lines, [/^warn OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: only http\/json/]);
  t.same(log.fields, [{ protocol: 'grpc' }]);
});

void t.test('spans that cannot be unpacked are counted, and the thread goes on', async (t) => {
  const log = new ListLog();
  const metrics = createMetrics(1, 1);
  const traces = startTraces(ENDPOINT, { accountIdOf: () => null, metrics, stripe: 0, log })!;
  const { port } = traces.newOutlet()!;
  for (const failed of [3, 6]) {
    port.postMessage({ count: 3, bytes: Uint8Array.of(0xc1) } satisfies SpanBatch);
    await eventually(
      'the count',
      () => traces.spanCounts?.failed === failed || log.lines.length > 0 || undefined,
    );
    t.match(traces.spanCounts, { exported: 0, failed, dropped: 0 });
  }
  await traces.close();
  t.same(log.lines, [], 'the thread has not failed');
});

void t.test('the end does not wait for a thread that has failed', async (t) => {
  const log = new ListLog();
  const metrics = createMetrics(1, 1);
  const traces = startTraces(ENDPOINT, { accountIdOf: () => null, metrics, stripe: 0, log })!;
  const spans = traces.newOutlet()!;
  new ExportBudget(spans.budget).take(5);
  // Stands for a fault of the thread itself: not even a batch that cannot be unpacked.
  spans.port.postMessage(null);
  await eventually('the failure', () => log.lines.length > 0 || undefined);
  t.match(log.lines[0], /^error the thread that exports to OpenTelemetry failed/);
  const budget = new ExportBudget(spans.budget);
  t.same(traces.spanCounts, { exported: 0, failed: 5, dropped: 0 }, 'what was on its way');
  t.equal(budget.isUsedUp, true, 'nothing is packed any more');
  t.equal(budget.take(1), false);
  t.equal(budget.take(SPANS_IN_FLIGHT_MAX), false);
  t.same(traces.spanCounts, { exported: 0, failed: 5, dropped: 1 + SPANS_IN_FLIGHT_MAX });
  const late = new AbortController();
  const end = await Promise.race([
    Promise.all([traces.close(), traces.close()]).then(() => 'ended'),
    sleep(2_000, 'late', { signal: late.signal }),
  ]);
  late.abort();
  t.equal(end, 'ended');
  t.notOk(process.getActiveResourcesInfo().includes('Timeout'), 'nothing keeps the process');
});
