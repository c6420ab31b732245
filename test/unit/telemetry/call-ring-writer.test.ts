/**
 * The ring of ended calls: they come out as they went in, a full ring drops and counts, successes are sampled
 * for the access log, floods of rejections are bounded for the store.
 */
import t from 'tap';
import { DOOR_NAMES } from '#src/core/door-names.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { createCallRing, type EndedCall } from '#src/telemetry/call-ring-layout.js';
import { CallRingReader } from '#src/telemetry/call-ring-reader.js';
import { CallRingWriter } from '#src/telemetry/call-ring-writer.js';
import { CALL_ATTEMPTS_MAX, CALL_ERROR_CHARS_MAX } from '#src/telemetry/call-record.js';
import { LogSwitch, createLogSwitch } from '#src/telemetry/log-switch.js';
import { OUTCOMES } from '#src/telemetry/metrics-layout.js';

const NONE_LOST = { dropped: 0, droppedLogOnly: 0, unstored: 0 };
const NOTHING_KNOWN: EndedCall = {
  request: 1,
  door: 0,
  endedMs: asWallMs(1_700_000_000_000),
  outcome: 'invalid_api_key',
  begun: false,
  stream: false,
  cache: undefined,
  account: undefined,
  key: undefined,
  model: undefined,
  upstream: undefined,
  usage: undefined,
  firstTokenMs: undefined,
  durationMs: 0.25,
  queuedMs: 0,
  admittedMs: undefined,
  quotas: undefined,
  attempts: [],
  error: 'The key is not known.',
};
const ALL_KNOWN: EndedCall = {
  request: 2 ** 40,
  door: DOOR_NAMES.length - 1,
  endedMs: asWallMs(1_700_000_000_000.5),
  outcome: 'ok',
  begun: true,
  stream: true,
  cache: 'hit',
  account: asAccountIndex(0),
  key: asKeyIndex(0),
  model: 0,
  upstream: 0,
  usage: {
    promptTokens: 9,
    cachedTokens: 4,
    cacheWriteTokens: 3,
    cacheWrite1hTokens: 2,
    reasoningTokens: 7,
    answered: 5,
    completionTokens: 12,
    source: 2,
    charged: asPicoUnits(5n),
  },
  firstTokenMs: 0,
  durationMs: 640.125,
  queuedMs: 250,
  admittedMs: 0,
  quotas: { minute: 59, inFlight: 0, perDay: 2 ** 31 - 1, balance: 9e18, others: [258, 3, 2 ** 50, 5, 0, 0] },
  attempts: [
    { upstream: 0, model: 5, status: 0, code: 'connect', startMs: 0, durationMs: 1.5, error: 'ümläut “1”' },
    { upstream: 9, model: 0, status: 200, code: undefined, startMs: 2, durationMs: 600, error: '' },
    { upstream: 9, model: 0, status: 200, code: 'cancelled', startMs: 2, durationMs: 600, error: 'x' },
  ],
  error: 'told 汉字 🙂',
};
const BOTH = { log: true, store: true };

function bed() {
  const ring = createCallRing();
  const control = new LogSwitch(createLogSwitch());
  control.writesAccessLog = true;
  control.samplePercent = 100;
  const reader = new CallRingReader(ring);
  const drained = (): EndedCall[] => {
    const records: EndedCall[] = [];
    reader.drain((record) => void records.push(record));
    return records;
  };
  return { ring, control, writer: new CallRingWriter(ring, control), reader, drained };
}

void t.test('records come out as they went in, whatever is left out', (t) => {
  const { writer, drained } = bed();
  const records = [ALL_KNOWN, NOTHING_KNOWN, ...OUTCOMES.map((outcome) => ({ ...ALL_KNOWN, outcome }))];
  for (const record of records) writer.append(record, BOTH);
  t.same(drained(), records);
  t.same(drained(), []);
  t.end();
});

void t.test('a full ring drops and counts, and takes again what comes when it was drained', (t) => {
  const { ring, control, writer, reader, drained } = bed();
  const appended = 30_000;
  for (let request = 0; request < appended; request++)
    writer.append({ ...NOTHING_KNOWN, error: '', request }, BOTH);
  writer.append({ ...NOTHING_KNOWN, error: '', request: appended }, { log: true, store: false });
  const { dropped, droppedLogOnly } = reader.takeLost();
  t.same(reader.takeLost(), NONE_LOST);
  t.equal(droppedLogOnly, 1, 'counted apart');
  const requests = drained().map(({ request }) => request);
  t.ok(requests.length >= 13_000, `${requests.length} fit`);
  t.equal(requests.length + dropped, appended);
  t.same([requests[0], requests.at(-1)], [0, requests.length - 1], 'the oldest stay');
  // A listener that takes the place of one that died goes on behind it.
  const next = new CallRingWriter(ring, control);
  next.append({ ...ALL_KNOWN, request: 77 }, BOTH);
  t.same(
    drained().map(({ request }) => request),
    [77],
  );
  t.end();
});

void t.test('of what went well a share is wanted, of the rest all, and nothing while it is off', (t) => {
  const { control, writer } = bed();
  const wanted = (outcome: EndedCall['outcome'], calls: number): number =>
    Array.from({ length: calls }, () => writer.chooseLogged(outcome)).filter(Boolean).length;
  t.equal(wanted('ok', 50), 50);
  control.samplePercent = 7;
  t.equal(wanted('ok', 1_000), 70);
  t.equal(wanted('client_gone', 20), 20);
  t.equal(wanted('provider_unavailable', 20), 20);
  control.samplePercent = 0;
  t.equal(wanted('ok', 1_000), 0);
  t.equal(wanted('rate_limit_exceeded', 20), 20);
  control.writesAccessLog = false;
  t.equal(wanted('rate_limit_exceeded', 20), 0);
  t.end();
});

void t.test('no record begins while a plain call is written, and none is published twice', (t) => {
  const { writer, drained } = bed();
  t.throws(() => writer.publish(), /a plain call that was begun/);
  writer.beginPlain(undefined);
  t.throws(() => writer.beginPlain(undefined), /is published before the next record begins/);
  t.throws(() => writer.append(ALL_KNOWN, BOTH), /is published before the next record begins/);
  t.same(drained(), [], 'nothing is published');
  writer.publish();
  t.throws(() => writer.publish(), /a plain call that was begun/);
  writer.append(ALL_KNOWN, BOTH);
  t.equal(drained().length, 2);
  t.end();
});

void t.test('who wants a call is told with it', (t) => {
  const { writer, reader } = bed();
  const wanted = [BOTH, { log: true, store: false }, { log: false, store: true }];
  for (const one of wanted) writer.append(ALL_KNOWN, one);
  const seen: unknown[] = [];
  reader.drain((_, one) => void seen.push(one));
  t.same(seen, wanted);
  t.end();
});

void t.test('long texts and too many attempts are cut, and the records behind them stay whole', (t) => {
  const { writer, drained } = bed();
  const [attempt] = ALL_KNOWN.attempts;
  const attempts = Array.from({ length: 20 }, () => ({ ...attempt!, error: '汉'.repeat(5_000) }));
  writer.append({ ...ALL_KNOWN, attempts, error: '字'.repeat(5_000) }, BOTH);
  writer.append(ALL_KNOWN, BOTH);
  const [long, next] = drained();
  t.equal(long!.attempts.length, CALL_ATTEMPTS_MAX);
  t.same(
    long!.attempts.map(({ error }) => error),
    Array.from({ length: CALL_ATTEMPTS_MAX }, () => '汉'.repeat(200)),
  );
  t.equal(long!.error, '字'.repeat(CALL_ERROR_CHARS_MAX));
  t.same(next, ALL_KNOWN);
  t.end();
});

void t.test('the store gets each admitted call, and of rejected ones so many a second', (t) => {
  const { control, writer, reader } = bed();
  t.equal(writer.chooseStored('admitted', 0), false, 'it is off');
  control.storesCalls = true;
  const stored = (standing: 'admitted' | 'rejected' | 'unknown', nowMs: number): number =>
    Array.from({ length: 5_000 }, () => writer.chooseStored(standing, nowMs)).filter(Boolean).length;
  t.equal(stored('admitted', 10_000), 5_000);
  t.equal(stored('unknown', 10_000), 100);
  t.equal(stored('rejected', 10_500), 1_000, 'callers without a key use up nothing of those with one');
  t.equal(stored('unknown', 10_999), 0);
  t.equal(stored('unknown', 11_000), 100);
  t.equal(stored('rejected', 11_001), 1_000);
  const unstored = 2 * 4_900 + 2 * 4_000 + 5_000;
  t.same(reader.takeLost(), { ...NONE_LOST, unstored }, 'the others are counted');
  t.same(reader.takeLost(), NONE_LOST);
  t.end();
});
