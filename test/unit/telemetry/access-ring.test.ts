/**
 * The access log's ring: records come out as they went in, a full ring drops and counts, successes are
 * sampled.
 */
import t from 'tap';
import { DOOR_NAMES } from '#src/core/door-names.js';
import { asAccountIndex, asKeyIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import {
  AccessReader,
  AccessWriter,
  createAccessRing,
  type AccessRecord,
} from '#src/telemetry/access-ring.js';
import { LogSwitch, createLogSwitch } from '#src/telemetry/log.js';
import { OUTCOMES } from '#src/telemetry/metrics-layout.js';

const NOTHING_KNOWN: AccessRecord = {
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
};
const ALL_KNOWN: AccessRecord = {
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
};

function bed() {
  const ring = createAccessRing();
  const control = new LogSwitch(createLogSwitch());
  control.access = true;
  control.samplePercent = 100;
  const reader = new AccessReader(ring);
  const drained = (): AccessRecord[] => {
    const records: AccessRecord[] = [];
    reader.drain((record) => void records.push(record));
    return records;
  };
  return { ring, control, writer: new AccessWriter(ring, control), reader, drained };
}

void t.test('records come out as they went in, whatever is left out', (t) => {
  const { writer, drained } = bed();
  const records = [ALL_KNOWN, NOTHING_KNOWN, ...OUTCOMES.map((outcome) => ({ ...ALL_KNOWN, outcome }))];
  for (const record of records) writer.append(record);
  t.same(drained(), records);
  t.same(drained(), []);
  t.end();
});

void t.test('a full ring drops and counts, and takes again what comes when it was drained', (t) => {
  const { ring, control, writer, reader, drained } = bed();
  const appended = 30_000;
  for (let request = 0; request < appended; request++) writer.append({ ...NOTHING_KNOWN, request });
  const dropped = reader.takeDropped();
  t.equal(reader.takeDropped(), 0);
  const requests = drained().map(({ request }) => request);
  t.ok(requests.length >= 16_384, `${requests.length} fit`);
  t.equal(requests.length + dropped, appended);
  t.same([requests[0], requests.at(-1)], [0, requests.length - 1], 'the oldest stay');
  // A listener that takes the place of one that died goes on behind it.
  const next = new AccessWriter(ring, control);
  next.append({ ...ALL_KNOWN, request: 77 });
  t.same(
    drained().map(({ request }) => request),
    [77],
  );
  t.end();
});

void t.test('of what went well a share is wanted, of the rest all, and nothing while it is off', (t) => {
  const { control, writer } = bed();
  const wanted = (outcome: AccessRecord['outcome'], calls: number): number =>
    Array.from({ length: calls }, () => writer.wants(outcome)).filter(Boolean).length;
  t.equal(wanted('ok', 50), 50);
  control.samplePercent = 7;
  t.equal(wanted('ok', 1_000), 70);
  t.equal(wanted('client_gone', 20), 20);
  t.equal(wanted('provider_unavailable', 20), 20);
  control.samplePercent = 0;
  t.equal(wanted('ok', 1_000), 0);
  t.equal(wanted('rate_limit_exceeded', 20), 20);
  control.access = false;
  t.equal(wanted('rate_limit_exceeded', 20), 0);
  t.end();
});
