/** What is exported: bounded whatever the collector does, and every item of it accounted for. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { emptyResource } from '@opentelemetry/resources';
import type { LogRecordExporter } from '@opentelemetry/sdk-logs';
import type { SpanExporter } from '@opentelemetry/sdk-trace';
import t from 'tap';
import { otelSpanOf } from '#src/telemetry/otel-items.js';
import { LogRecordExport, QUEUE_ITEMS_MAX, SpanExport } from '#src/telemetry/span-export.js';
import { createExportBudget, ExportBudget, SPANS_IN_FLIGHT_MAX } from '#src/telemetry/export-budget.js';
import { packSpans } from '#src/telemetry/span-codec.js';
import { numberedSpan as record } from '../../support/numbered-spans.js';
import { FakeLog } from '../../fixtures/upstream-server.js';

const SPANS = 20_000;
/** As in span-export.ts. */
const BATCH_SPANS = 512;

void t.test('batches that cannot be unpacked are counted, and leave the budget whole', (t) => {
  const room = new ExportBudget(createExportBudget());
  const log = new FakeLog();
  const exporter: SpanExporter = { export: () => undefined, shutdown: () => Promise.resolve() };
  const reader = new SpanExport(room, log, exporter);
  const good = packSpans([record(1), record(2)]);
  const damaged = [
    Uint8Array.of(0xc1),
    Uint8Array.of(7),
    new Uint8Array(0),
    good.slice(0, -9),
    packSpans([]),
  ];
  for (const bytes of damaged) {
    t.ok(room.take(2));
    t.same(reader.read({ count: 2, bytes }), []);
  }
  t.match(room.counts(), { exported: 0, failed: 2 * damaged.length, dropped: 0 });
  t.equal(log.lines.length, 1, 'one line tells of them');
  t.same(reader.read({ count: 2, bytes: good }), [record(1), record(2)], 'the next batch is read');
  t.ok(room.take(SPANS_IN_FLIGHT_MAX), 'nothing is on its way');
  t.end();
});

const KINDS = [
  [
    'spans',
    (room: ExportBudget, log: FakeLog, exporter: SpanExporter) => new SpanExport(room, log, exporter),
    { spanContext: () => ({ traceId: '1', spanId: '1', traceFlags: 1 }), resource: {} },
  ],
  [
    'log records',
    (room: ExportBudget, log: FakeLog, exporter: SpanExporter) =>
      new LogRecordExport(room, log, {
        ...exporter,
        forceFlush: () => Promise.resolve(),
      } as unknown as LogRecordExporter),
    { resource: {} },
  ],
] as const;

for (const [what, open, item] of KINDS)
  void t.test(`20,000 ${what} for a collector that does not answer, then fails`, async (t) => {
    const room = new ExportBudget(createExportBudget());
    const log = new FakeLog();
    const held: (() => void)[] = [];
    let fails = true;
    const exporter: SpanExporter = {
      export: (_spans, done) => {
        const answer = () =>
          done(
            fails
              ? { code: ExportResultCode.FAILED, error: new Error('refused') }
              : { code: ExportResultCode.SUCCESS },
          );
        held.push(answer);
      },
      shutdown: () => Promise.resolve(),
    };
    const spans = open(room, log, exporter) as { offer(item: unknown): void; close(): Promise<void> };
    for (let index = 0; index < SPANS; index += 1) spans.offer(item);
    // The processor of log records exports in a later turn.
    await new Promise((resolve) => setTimeout(resolve, 0));
    const { dropped } = room.counts();
    t.ok(dropped > 0 && dropped <= SPANS - QUEUE_ITEMS_MAX, `${dropped} are dropped`);
    held.shift()!();
    await new Promise((resolve) => setImmediate(resolve));
    fails = false;
    const closed = spans.close();
    let waiting = SPANS;
    void closed.then(() => (waiting = 0));
    for (; waiting > 0; waiting -= 1) {
      held.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    }
    const counts = room.counts();
    t.ok(counts.failed > 0 && counts.exported > 0);
    t.equal(counts.dropped + counts.failed + counts.exported, SPANS, 'each is counted once');
    t.same(
      log.lines.map(({ message }) => message),
      [`${what} could not be exported; calls are not affected`, `${what} are exported again`],
      'one line tells of it, and one of its end',
    );
  });

for (const [what, openExport, item] of KINDS)
  void t.test(`the end of ${what} waits for each batch, also if others have failed`, async (t) => {
    const room = new ExportBudget(createExportBudget());
    const held: ((result: ExportResult) => void)[] = [];
    const exporter: SpanExporter = {
      export: (_spans, done) => held.push(done),
      shutdown: () => Promise.resolve(),
    };
    const spans = openExport(room, new FakeLog(), exporter) as {
      offer(item: unknown): void;
      close(): Promise<void>;
    };
    const items = 4 * BATCH_SPANS;
    for (let index = 0; index < items; index += 1) spans.offer(item);
    let isClosed = false;
    const closed = spans.close().then(() => (isClosed = true));
    const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    await nextTurn();
    // The processor of spans has sent one batch before the end and sends the others at once; the one of log
    // records sends one after another. The first to be answered fails, and the oldest is answered last.
    for (let answered = 0; answered < 4; answered += 1) {
      for (let turn = 0; held.length === 0 && turn < 100; turn += 1) await nextTurn();
      const { exported, failed } = room.counts();
      t.notOk(isClosed, `no end after ${exported + failed} of ${items} items`);
      held.pop()?.(
        answered === 0
          ? { code: ExportResultCode.FAILED, error: new Error('refused') }
          : { code: ExportResultCode.SUCCESS },
      );
      await nextTurn();
    }
    await closed;
    t.match(room.counts(), { exported: items - BATCH_SPANS, failed: BATCH_SPANS, dropped: 0 });
    spans.offer(item);
    t.equal(room.counts().dropped, 1, 'what comes after the end is counted too');
  });

void t.test('a full queue is sent at the end, whole', async (t) => {
  let requests = 0;
  const server = createServer((request, response) => {
    requests += 1;
    // So that all requests are there at once.
    request.resume().on('end', () => setTimeout(() => response.writeHead(200).end(), 200));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  process.env.OTEL_EXPORTER_OTLP_ENDPOINT = `http://127.0.0.1:${port}`;
  t.teardown(() => delete process.env.OTEL_EXPORTER_OTLP_ENDPOINT);
  const room = new ExportBudget(createExportBudget());
  const spans = new SpanExport(room, new FakeLog());
  const environment = {
    resource: emptyResource(),
    scope: { name: 'tollgate', version: '1' },
    offsetMs: 0,
    accountIdOf: () => undefined,
  };
  const span = otelSpanOf(record(1), environment);
  for (let index = 0; index < QUEUE_ITEMS_MAX; index += 1) spans.offer(span);
  await spans.close();
  t.match(room.counts(), { exported: QUEUE_ITEMS_MAX, failed: 0, dropped: 0 });
  t.equal(requests, QUEUE_ITEMS_MAX / BATCH_SPANS);
});
