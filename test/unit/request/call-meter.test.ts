/** What is told of a call: overhead is what neither the client's upload nor the upstream took. */
import t from 'tap';
import type { Clock } from '#src/core/clock.js';
import { asMonotonicMs, asPicoUnits, asWallMs } from '#src/core/units.js';
import { CallMeter } from '#src/request/call-meter.js';
import { CallContext } from '#src/request/context.js';
import { admit } from '#src/request/admit.js';
import { settle, type Settled } from '#src/request/settle.js';
import { createAccessRing, type AccessRecord } from '#src/telemetry/access-layout.js';
import { AccessReader, AccessWriter } from '#src/telemetry/access-ring.js';
import { LogSwitch } from '#src/telemetry/log.js';
import { ListenerMetrics } from '#src/telemetry/listener-metrics.js';
import { NO_MODEL, OTHER_MODEL, createMetrics, modelSlotOf } from '#src/telemetry/metrics-layout.js';
import { MetricsReader } from '#src/telemetry/metrics-reader.js';
import { chatCall, knownCaller, openHouse } from './support.js';

class HeldClock implements Clock {
  ms = 1_000;
  monotonicMs = () => asMonotonicMs(this.ms);
  wallMs = () => asWallMs(this.ms);
}

function bed() {
  const buffers = createMetrics(1, 1);
  const clock = new HeldClock();
  const ring = createAccessRing();
  const control = new LogSwitch(buffers.log);
  const { channel: link } = openHouse().parts;
  const accessLog = new AccessWriter(ring, control);
  const meter = new CallMeter({ metrics: new ListenerMetrics(buffers, 0), clock, accessLog, channel: link });
  const logged = (): AccessRecord[] => {
    const records: AccessRecord[] = [];
    new AccessReader(ring).drain((record) => void records.push(record));
    return records;
  };
  return { clock, meter, reader: new MetricsReader(buffers), control, logged };
}

/** A call of the first model that was charged. */
function charged(stream: boolean): { context: CallContext; settled: Settled } {
  const house = openHouse();
  const context = knownCaller(house);
  admit(context, chatCall({ stream }), house.parts);
  const usage = { promptTokens: 3, cachedTokens: 1, completionTokens: 2, source: 'reported' } as const;
  return { context, settled: settle(context, usage, house.parts) };
}

void t.test('a stream: to its first piece', (t) => {
  const { clock, meter, reader } = bed();
  const { context, settled } = charged(true);
  clock.ms += 300;
  meter.bodyRead();
  clock.ms += 70;
  meter.responseBegun();
  clock.ms += 5_000;
  meter.charged(settled, 50);
  meter.ended('ok', context);
  const model = reader.model(modelSlotOf(0));
  t.equal(reader.overheadMs(true).sum, 20);
  t.equal(reader.overheadMs(false).sum, 0);
  t.equal(model.firstTokenMs.sum, 370);
  t.equal(model.durationMs.sum, 5_370);
  t.equal(model.inputTokens.sum, 3);
  t.equal(model.costPicoUnits, Number(settled.charged));
  t.end();
});

void t.test('a whole answer: to its end', (t) => {
  const { clock, meter, reader } = bed();
  const { context, settled } = charged(false);
  meter.bodyRead();
  clock.ms += 33;
  meter.charged(settled, 30);
  meter.ended('ok', context);
  t.equal(reader.overheadMs(false).sum, 3);
  t.equal(reader.model(modelSlotOf(0)).firstTokenMs.sum, 0, 'its first token is not known');
  t.end();
});

void t.test('what does not count toward latencies', (t) => {
  for (const outcome of ['client_gone', 'provider_unavailable'] as const) {
    const { meter, reader } = bed();
    const { context, settled } = charged(true);
    meter.bodyRead();
    meter.responseBegun();
    if (outcome === 'client_gone') meter.charged(settled, 1);
    meter.ended(outcome, context);
    const model = reader.model(modelSlotOf(0));
    t.equal(
      model.durationMs.counts.every((count) => count === 0),
      true,
      outcome,
    );
    t.equal(model.broken.get('provider_unavailable'), outcome === 'client_gone' ? 0 : 1);
    t.equal(model.told.get('client_gone'), outcome === 'client_gone' ? 1 : 0);
    t.equal(model.inputTokens.sum, outcome === 'client_gone' ? 3 : 0, 'who leaves pays');
  }
  t.end();
});

void t.test('a charge that was taken back never was', (t) => {
  const { meter, reader } = bed();
  const { context, settled } = charged(false);
  meter.charged({ ...settled, charged: asPicoUnits(5n) }, 1);
  meter.reversed();
  meter.ended('internal_error', context);
  const model = reader.model(modelSlotOf(0));
  t.equal(model.costPicoUnits, 0);
  t.equal(model.inputTokens.sum, 0);
  t.equal(model.told.get('internal_error'), 1);
  t.end();
});

void t.test('calls without a model', (t) => {
  const { meter, reader } = bed();
  meter.ended('model_not_found', new CallContext('req_test', 1));
  t.equal(reader.model(OTHER_MODEL).told.get('model_not_found'), 1);
  const other = bed();
  other.meter.ended('invalid_api_key', new CallContext('req_test', 1));
  t.equal(other.reader.model(NO_MODEL).told.get('invalid_api_key'), 1);
  t.end();
});

void t.test('what the access log is told of a stream and of a refusal', (t) => {
  const { clock, meter, control, logged } = bed();
  control.access = true;
  control.samplePercent = 100;
  const { context, settled } = charged(true);
  clock.ms += 70;
  meter.responseBegun();
  clock.ms += 5_000;
  meter.charged(settled, 50);
  meter.ended('ok', context);
  t.match(logged(), [
    {
      request: 1,
      endedMs: clock.ms,
      outcome: 'ok',
      begun: true,
      stream: true,
      account: context.caller!.account,
      key: context.caller!.key,
      model: 0,
      usage: { promptTokens: 3, cachedTokens: 1, completionTokens: 2, source: 0, charged: settled.charged },
      firstTokenMs: 70,
      durationMs: 5_070,
    },
  ]);
  const other = bed();
  other.control.access = true;
  other.meter.ended('invalid_api_key', new CallContext('req_test', 7));
  const [refused] = other.logged();
  t.match(refused, { request: 7, outcome: 'invalid_api_key', begun: false, stream: false });
  for (const field of ['account', 'key', 'model', 'upstream', 'usage', 'firstTokenMs'] as const)
    t.equal(refused![field], undefined, field);
  t.end();
});
