/** What is told of a call: overhead is what neither the client's upload nor the upstream took. */
import t from 'tap';
import { asCallId } from '#src/channel/open-calls.js';
import type { Clock } from '#src/core/clock.js';
import { asMonotonicMs, asPicoUnits } from '#src/core/units.js';
import { NO_PLAN_INDEX } from '#src/registry/catalog.js';
import { admit } from '#src/request/admit.js';
import { authenticate } from '#src/request/authenticate.js';
import type { ChatExchange } from '#src/request/chat-exchange.js';
import { settle, type Settled } from '#src/request/settle.js';
import type { EndedCall } from '#src/telemetry/call-ring-layout.js';
import { CallRingReader } from '#src/telemetry/call-ring-reader.js';
import { NO_MODEL, OTHER_MODEL, modelSlotOf } from '#src/telemetry/metrics-layout.js';
import { bed } from './exchange-bed.js';
import { chatCall, knownCaller, openHouse } from './support.js';

/** Admits the exchange as a call of the first model. Returns what it was charged. */
function charge(exchange: ChatExchange, stream: boolean, clock: Clock): Settled {
  const house = openHouse();
  exchange.caller = knownCaller(house).caller;
  exchange.isStream = stream;
  admit(exchange, chatCall({ stream }), house.listener);
  const usage = {
    promptTokens: 9,
    cachedTokens: 1,
    cacheWriteTokens: 5,
    cacheWrite1hTokens: 2,
    reasoningTokens: 3,
    completionTokens: 4,
    source: 'reported',
  } as const;
  return settle(exchange, usage, { ...house.listener, clock });
}

void t.test('a stream: to its first piece', (t) => {
  const { clock, exchange, reader } = bed();
  const settled = charge(exchange, true, clock);
  clock.ms += 300;
  exchange.bodyRead();
  clock.ms += 70;
  exchange.responseBegun();
  clock.ms += 5_000;
  exchange.charged(settled, 50);
  exchange.finish('ok');
  const model = reader.model(modelSlotOf(0));
  t.equal(reader.overheadMs(true).sum, 20);
  t.equal(reader.overheadMs(false).sum, 0);
  t.equal(model.firstTokenMs.sum, 370);
  t.equal(model.durationMs.sum, 5_370);
  t.equal(model.inputTokens.sum, 9);
  t.equal(model.costPicoUnits, settled.charged);
  t.end();
});

void t.test('a whole answer: to its end', (t) => {
  const { clock, exchange, reader } = bed();
  const settled = charge(exchange, false, clock);
  exchange.bodyRead();
  clock.ms += 33;
  exchange.charged(settled, 30);
  exchange.finish('ok');
  t.equal(reader.overheadMs(false).sum, 3);
  t.equal(reader.model(modelSlotOf(0)).firstTokenMs.sum, 0, 'its first token is not known');
  t.end();
});

void t.test('what does not count toward latencies', (t) => {
  for (const outcome of ['client_gone', 'provider_unavailable'] as const) {
    const { clock, exchange, reader } = bed();
    const settled = charge(exchange, true, clock);
    exchange.bodyRead();
    exchange.responseBegun();
    if (outcome === 'client_gone') exchange.charged(settled, 1);
    exchange.finish(outcome);
    const model = reader.model(modelSlotOf(0));
    t.equal(
      model.durationMs.counts.every((count) => count === 0),
      true,
      outcome,
    );
    t.equal(
      reader.doors(modelSlotOf(0))[0]!.broken.get('provider_unavailable'),
      outcome === 'client_gone' ? 0 : 1,
    );
    t.equal(reader.doors(modelSlotOf(0))[0]!.outcomes.get('client_gone'), outcome === 'client_gone' ? 1 : 0);
    t.equal(model.inputTokens.sum, outcome === 'client_gone' ? 9 : 0, 'who leaves pays');
  }
  t.end();
});

void t.test('a charge that was taken back never was', (t) => {
  const { clock, exchange, reader } = bed();
  const settled = charge(exchange, false, clock);
  exchange.charged({ ...settled, charged: asPicoUnits(5n) }, 1);
  exchange.reversed();
  exchange.finish('internal_error');
  const model = reader.model(modelSlotOf(0));
  t.equal(model.costPicoUnits, 0n);
  t.equal(model.inputTokens.sum, 0);
  t.equal(reader.doors(modelSlotOf(0))[0]!.outcomes.get('internal_error'), 1);
  t.end();
});

void t.test('calls without a model', (t) => {
  const { exchange, reader } = bed();
  exchange.finish('model_not_found');
  t.equal(reader.doors(OTHER_MODEL)[0]!.outcomes.get('model_not_found'), 1);
  const other = bed();
  other.exchange.finish('invalid_api_key');
  t.equal(other.reader.doors(NO_MODEL)[0]!.outcomes.get('invalid_api_key'), 1);
  t.end();
});

void t.test('what the access log is told of a stream and of a refusal', (t) => {
  const { clock, exchange, control, logged } = bed();
  control.writesAccessLog = true;
  control.samplePercent = 100;
  const settled = charge(exchange, true, clock);
  clock.ms += 70;
  exchange.responseBegun();
  clock.ms += 5_000;
  exchange.charged(settled, 50);
  exchange.finish('ok');
  t.match(logged(), [
    {
      request: 1,
      endedMs: clock.ms,
      outcome: 'ok',
      begun: true,
      stream: true,
      account: exchange.caller!.account,
      key: exchange.caller!.key,
      model: 0,
      usage: {
        promptTokens: 9,
        cachedTokens: 1,
        cacheWriteTokens: 5,
        cacheWrite1hTokens: 2,
        reasoningTokens: 3,
        completionTokens: 4,
        source: 0,
        charged: settled.charged,
      },
      firstTokenMs: 70,
      durationMs: 5_070,
    },
  ]);
  const other = bed(7);
  other.control.writesAccessLog = true;
  other.exchange.finish('invalid_api_key');
  const [refused] = other.logged();
  t.match(refused, { request: 7, outcome: 'invalid_api_key', begun: false, stream: false });
  for (const field of ['account', 'key', 'model', 'upstream', 'usage', 'firstTokenMs'] as const)
    t.equal(refused![field], undefined, field);
  t.end();
});

void t.test(
  'a call of a known key is found by account and key, whatever authentication says of the key',
  (t) => {
    const house = openHouse();
    const { keys, ledger } = house.listener;
    const { key, keyIndex, account } = house;
    const planIndex = ledger.planIndexOf(account);
    const nothing = (): void => undefined;
    // What is wrong with the key, and how that ends.
    const cases: readonly (readonly [string, () => void, () => void])[] = [
      ['disabled', () => keys.setActive(keyIndex, false), () => keys.setActive(keyIndex, true)],
      ['no account', () => ledger.setActive(account, false), () => ledger.setActive(account, true)],
      ['no plan', () => ledger.setPlan(account, NO_PLAN_INDEX), () => ledger.setPlan(account, planIndex)],
      ['expired', () => keys.setExpiry(keyIndex, 1), nothing],
    ];
    for (const [name, begin, end] of cases) {
      const { exchange, control, logged } = bed();
      control.storesCalls = true;
      begin();
      const rejection = authenticate(exchange, `Bearer ${key}`, house.listener);
      end();
      t.equal(rejection?.code, 'key_disabled', name);
      t.equal(exchange.caller, undefined, 'no later phase takes it for a caller');
      exchange.sentError = rejection;
      exchange.finish('key_disabled');
      t.match(
        logged(),
        [{ outcome: 'key_disabled', account, key: keyIndex, error: rejection!.message }],
        name,
      );
    }
    t.end();
  },
);

/** A call that the store wants and that went well at its only attempt, until `end`. */
function served(isLogged: boolean, stream: boolean, end: (exchange: ChatExchange) => void) {
  const { clock, exchange, control, ring, table } = bed(9);
  control.storesCalls = true;
  control.writesAccessLog = isLogged;
  control.samplePercent = 100;
  clock.ms += 0.3;
  const settled = charge(exchange, stream, clock);
  const { slot } = exchange.admission!;
  exchange.admission = { ...exchange.admission!, admittedMs: clock.monotonicMs() };
  const id = asCallId(2 ** 20 + slot);
  table.begin(id);
  table.recordUpstream(id, 5, 0, asMonotonicMs(clock.ms + 0.25));
  table.recordQueued(id, 3);
  exchange.quotasLeft = { minute: 4, inFlight: 7, perDay: 2, balance: 2 ** 60, others: [258, 3, 2 ** 50] };
  clock.ms += 70;
  if (stream) exchange.responseBegun();
  clock.ms += 640.125;
  exchange.charged({ ...settled, settledMs: clock.monotonicMs(), settledWallMs: clock.wallMs() }, 50);
  exchange.addServingAttempt();
  clock.ms += 3;
  end(exchange);
  const plain: number[] = [];
  const records: EndedCall[] = [];
  const atStart = Atomics.load(new Int32Array(ring.ring), 0);
  new CallRingReader(ring).drain(
    (record) => void records.push(record),
    () => void plain.push(1),
  );
  Atomics.store(new Int32Array(ring.ring), 0, atStart);
  if (plain.length > 0) new CallRingReader(ring).drain((record) => void records.push(record));
  t.equal(records.length, 1);
  return { isPlain: plain.length > 0, record: records[0]! };
}

void t.test('a plain call is recorded as any other, to a microsecond', (t) => {
  for (const stream of [true, false]) {
    const plain = served(false, stream, (exchange) => exchange.finish('ok'));
    const whole = served(true, stream, (exchange) => exchange.finish('ok'));
    t.same([plain.isPlain, whole.isPlain], [true, false]);
    const rounded = JSON.parse(JSON.stringify(whole.record, exact), exact) as object;
    t.same(JSON.parse(JSON.stringify(plain.record, exact), exact), {
      ...rounded,
      // The caller of each has an account of its own.
      account: plain.record.account,
      key: plain.record.key,
    });
    t.match(plain.record, {
      request: 9,
      upstream: 5,
      queuedMs: 3,
      firstTokenMs: stream ? 70.3 : undefined,
      durationMs: 713.425,
      admittedMs: 0.3,
      attempts: [{ upstream: 5, status: 200, code: undefined, error: '' }],
    });
  }
  t.end();
});

void t.test('a call that went well until after its charge tells its attempt', (t) => {
  const left = served(false, true, (exchange) => {
    exchange.clientGone = true;
    exchange.finish('client_gone');
  });
  t.match(left, { isPlain: false, record: { outcome: 'client_gone' } });
  t.match(left.record.attempts, [{ upstream: 5, status: 200, code: undefined }]);
  const uncommitted = served(false, false, (exchange) => {
    exchange.reversed();
    exchange.sentError = { code: 'internal_error', message: 'told' };
    exchange.finish('internal_error');
  });
  t.match(uncommitted, {
    isPlain: false,
    record: { outcome: 'internal_error', usage: undefined, error: 'told' },
  });
  t.match(uncommitted.record.attempts, [{ upstream: 5, status: 200, code: undefined }]);
  t.end();
});

/** Times as whole microseconds, and amounts as texts. */
function exact(_: string, value: unknown): unknown {
  if (typeof value === 'bigint') return String(value);
  return typeof value === 'number' && value < 2 ** 40 ? Math.round(value * 1_000) / 1_000 : value;
}
