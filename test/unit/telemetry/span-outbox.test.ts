/** Spans on their way: bounded whatever the exporting side does, and every one of them accounted for. */
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import t from 'tap';
import { createExportBudget, ExportBudget, SPANS_IN_FLIGHT_MAX } from '#src/telemetry/export-budget.js';
import { SpanOutbox } from '#src/telemetry/span-outbox.js';
import { packSpans, unpackSpans } from '#src/telemetry/span-codec.js';
import type { SpanBatch } from '#src/telemetry/span-record.js';
import { numberedSpan as record } from '../../support/numbered-spans.js';

const SPANS = 20_000;

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
