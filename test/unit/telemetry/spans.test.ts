/** Spans on their way: bounded whatever the exporting side does, and every one of them accounted for. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { emptyResource } from '@opentelemetry/resources';
import type { LogRecordExporter } from '@opentelemetry/sdk-logs';
import type { SpanExporter } from '@opentelemetry/sdk-trace';
import t from 'tap';
import { asAccountIndex } from '#src/core/units.js';
import { otelSpanOf } from '#src/telemetry/otel-items.js';
import { AccountIds, LogRecordExport, QUEUE_ITEMS_MAX, SpanExport } from '#src/telemetry/span-export.js';
import {
  createExportBudget,
  ExportBudget,
  SpanOutbox,
  SPANS_IN_FLIGHT_MAX,
} from '#src/telemetry/span-outbox.js';
import { packSpans, unpackSpans } from '#src/telemetry/span-codec.js';
import { type CallSpanRecord, SPAN_OF_CALL, type SpanBatch } from '#src/telemetry/span-record.js';
import { FakeLog } from '../../fixtures/upstream-server.js';

const SPANS = 20_000;
/** As in span-export.ts. */
const BATCH_SPANS = 512;

const record = (index: number): CallSpanRecord => ({
  kind: SPAN_OF_CALL,
  traceId: index.toString(16).padStart(32, '0'),
  spanId: index.toString(16).padStart(16, '0'),
  parentSpanId: null,
  flags: 1,
  traceState: '',
  startMs: 1.5,
  endMs: 2.25,
  firstTokenMs: null,
  outcome: 'ok',
  status: 200,
  requestId: `r-${index}`,
  door: 'chat',
  account: asAccountIndex(index % 3),
  model: 'm',
  provider: 'p',
  stream: false,
  answeredModel: null,
  tokens: [1, 2, 3, 4, 5],
  costPicoUnits: 2n ** 60n,
  queuedMs: 0,
});

void t.test('20,000 spans that nobody reads', (t) => {
  const { port1, port2 } = new MessageChannel();
  const shared = createExportBudget();
  const room = new ExportBudget(shared);
  const outbox = new SpanOutbox({ port: port1, budget: shared }, packSpans);
  for (let index = 0; index < SPANS; index += 1) outbox.push(record(index));
  outbox.flush();
  t.equal(room.counts().dropped, SPANS - SPANS_IN_FLIGHT_MAX);
  let read = 0;
  for (let got = receiveMessageOnPort(port2); got !== undefined; got = receiveMessageOnPort(port2)) {
    const spans = unpackSpans((got.message as SpanBatch).bytes);
    if (read === 0) t.same(spans[0], record(0), 'a span arrives as it was sent');
    read += spans.length;
    room.giveBack(spans.length);
  }
  t.equal(read, SPANS_IN_FLIGHT_MAX);
  outbox.push(record(1));
  outbox.flush();
  t.ok(receiveMessageOnPort(port2), 'and there is room again');
  port1.close();
  t.end();
});

void t.test('threads that die with a batch not sent, or cannot pack one, leave the budget whole', (t) => {
  const { port1, port2 } = new MessageChannel();
  const shared = createExportBudget();
  const room = new ExportBudget(shared);
  for (let thread = 0; thread < 200; thread += 1) {
    const dying = new SpanOutbox({ port: port1, budget: shared }, packSpans);
    for (let index = 0; index < 100; index += 1) dying.push(record(index));
  }
  let packs = 0;
  const failing = new SpanOutbox({ port: port1, budget: shared }, (spans) => {
    packs += 1;
    if (packs <= 200) throw new Error('cannot be packed');
    return packSpans(spans);
  });
  for (let batch = 0; batch < 200; batch += 1) {
    for (let index = 0; index < 100; index += 1) failing.push(record(index));
    t.throws(() => failing.flush(), /cannot be packed/);
  }
  failing.push(record(7));
  failing.flush();
  const received = receiveMessageOnPort(port2)?.message as SpanBatch;
  t.same(unpackSpans(received.bytes), [record(7)], 'what could not be packed is not tried again');
  room.giveBack(1);
  t.ok(room.take(SPANS_IN_FLIGHT_MAX), 'nothing is on its way');
  t.equal(room.counts().dropped, 0);
  port1.close();
  t.end();
});

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

void t.test('batches wait for the ids of their accounts, in order', async (t) => {
  const asked: number[][] = [];
  const ready: number[] = [];
  const ids = new AccountIds(
    (accounts) => asked.push([...accounts]),
    (records) => ready.push(records.length),
  );
  ids.add([record(0), record(1)]);
  ids.add([record(0)]);
  ids.add([record(2), record(2), record(2)]);
  t.same([asked, ready], [[[0, 1]], []]);
  ids.onIds([
    [asAccountIndex(0), 'acct_0'],
    [asAccountIndex(1), null],
  ]);
  t.same(
    [asked, ready],
    [
      [[0, 1], [2]],
      [2, 1],
    ],
  );
  t.same([ids.idOf(asAccountIndex(0)), ids.idOf(asAccountIndex(1))], ['acct_0', undefined]);
  ids.onIds([[asAccountIndex(2), 'acct_2']]);
  t.same(ready, [2, 1, 3]);
  ids.forget();
  ids.add([record(0)]);
  t.same(asked.at(-1), [0], 'what was forgotten is asked again');
  await ids.releaseAll(1);
  t.same(ready, [2, 1, 3, 1], 'at the end they go without');
});
