/** A ChatExchange over real shared buffers, and what it records there. */
import type { HttpResponse } from 'uWebSockets.js';
import { CallTable, createCallTable } from '#src/channel/call-table.js';
import { ListenerChannel } from '#src/channel/listener-channel.js';
import type { Clock } from '#src/core/clock.js';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { SlotArray } from '#src/core/slot-array.js';
import { BodyBudget, createBodyBudget } from '#src/request/body-budget.js';
import { ContentsGatherer } from '#src/request/call-contents.js';
import { ChatExchange } from '#src/request/chat-exchange.js';
import type { IntakeContext, Swept } from '#src/request/context.js';
import { createCallRing, type EndedCall } from '#src/telemetry/call-ring-layout.js';
import { CallRingReader } from '#src/telemetry/call-ring-reader.js';
import { CallRingWriter } from '#src/telemetry/call-ring-writer.js';
import { LogSwitch } from '#src/telemetry/log-switch.js';
import { ContentsBudget, createContentsBudget } from '#src/telemetry/contents-budget.js';
import { ListenerMetrics } from '#src/telemetry/metrics-writers.js';
import { createMetrics } from '#src/telemetry/metrics-layout.js';
import { MetricsReader } from '#src/telemetry/metrics-reader.js';
import { openHouse } from './support.js';

class HeldClock implements Clock {
  ms = 1_000;
  monotonicMs = () => asMonotonicMs(this.ms);
  wallMs = () => asWallMs(this.ms);
}

export function bed(requestNumber = 1) {
  const table = new CallTable(createCallTable(20, 64));
  const buffers = createMetrics(1, 1);
  const clock = new HeldClock();
  const ring = createCallRing();
  const control = new LogSwitch(buffers.log);
  const letGo: Uint8Array[] = [];
  const sweeps = new SlotArray<Swept>();
  const listener = {
    ...openHouse().listener,
    channel: new ListenerChannel(table, { first: 0, count: 4 }),
    clock,
    metrics: new ListenerMetrics(buffers, 0),
    callRing: new CallRingWriter(ring, control),
    cache: {
      endSending: (bytes: Uint8Array) => {
        letGo.push(bytes);
      },
    },
    bodies: new BodyBudget(createBodyBudget(1, 4), 0),
    contents: new ContentsGatherer({
      budget: new ContentsBudget(createContentsBudget()),
      keys: { isPrivate: () => false },
      clock,
      send: () => undefined,
    }),
    sweeps,
    connections: { endsConnections: false, onCallBegun: () => undefined, onCallEnded: () => undefined },
  };
  const exchange = new ChatExchange(
    {} as HttpResponse,
    'req_test',
    requestNumber,
    '',
    false,
    listener as unknown as IntakeContext,
  );
  const logged = (): EndedCall[] => {
    const records: EndedCall[] = [];
    new CallRingReader(ring).drain((record) => void records.push(record));
    return records;
  };
  const reader = new MetricsReader(buffers);
  return { clock, exchange, reader, control, logged, table, ring, letGo, sweeps };
}
