/**
 * Readers that are slow and clients that leave, by each door and at each kind of upstream: what is held for
 * them is bounded, the upstream waits or is stopped at once, and what came is charged.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { rssBytes } from '../../bench/support/proc.js';
import { picoUnitsOf } from '#src/core/money.js';
import {
  callOf,
  costOf,
  DOOR_ENV,
  hasStreams,
  modelsOf,
  pathOf,
  startDoorMocks,
  steeringOf,
  WAYS,
  wayName,
  type Speech,
  type Way,
} from '../support/doors.js';
import { SPEECH } from '../support/door-speech.js';
import { settledAccount } from '../support/fault-cells.js';
import { startFountain, type Fountain } from '../support/fountain.js';
import { eventually, startGateway } from '../support/gateway.js';
import { SlowReader } from '../support/slow-reader.js';

const MIB = 1024 * 1024;
const READERS = 12;
const STREAM_BYTES = 30 * MIB;
const DELTA_CHARS = 25_000;
const HOLD_MS = 3_000;
/**
 * Of all readers, over rest: windows, what was read ahead, text for counting, and the heaps of threads that
 * have moved so much, which are most of it (140 to 220 MiB with 20 readers as with 60). The streams are
 * 2.1 GB.
 */
const GROWTH_BYTES_MAX = 320 * MIB;
/** A reader's share that has left the upstream: windows, and the buffers of four sockets. */
const SENT_BYTES_MAX = 20 * MIB;
const SAID = { text: 'hi there', prompt: 7, output: 3 };
/** An upstream call that is not aborted lasts longer. */
const ABORT_MS_MAX = 10_000;
const SLOW = steeringOf('&first_byte_ms=60000');

const STREAMING = WAYS.filter(hasStreams);
const PLANS = [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }];

void t.test('slow readers', { timeout: 180_000 }, async (t) => {
  const fountains = new Map<Speech, Fountain>();
  for (const { speech } of STREAMING) {
    if (fountains.has(speech)) continue;
    const { stream, delta } = SPEECH[speech];
    const [first, rest] = stream!(SAID);
    const event = delta!('w'.repeat(DELTA_CHARS));
    const text = first + event.repeat(Math.ceil(STREAM_BYTES / event.length)) + rest;
    const water = { streamType: 'text/event-stream', stream: Buffer.from(text), whole: '{}' };
    fountains.set(speech, await startFountain(t, water));
  }
  const gateway = await startGateway(t, {
    env: DOOR_ENV,
    config: {
      models: modelsOf(({ speech }) => fountains.get(speech)?.origin ?? 'http://127.0.0.1:1'),
      plans: PLANS,
    },
  });
  const open = (): number => [...fountains.values()].reduce((sum, fountain) => sum + fountain.open, 0);
  const sent = (): number => [...fountains.values()].reduce((sum, fountain) => sum + fountain.sentBytes, 0);

  const begin = async (way: Way): Promise<{ way: Way; accountId: string; readers: SlowReader[] }> => {
    const { key, accountId } = await gateway.admin.customer({ credit: '1000.00' });
    const body = callOf(way, 'Hello', { stream: true });
    const readers = Array.from(
      { length: READERS },
      () => new SlowReader(gateway.port, key, body, 1_024, true, {}, pathOf(way)),
    );
    await eventually(`a first byte for all: ${wayName(way)}`, () =>
      readers.every(({ readBytes }) => readBytes > 0) ? true : undefined,
    );
    return { way, accountId, readers };
  };
  // What the threads load with their first streams is not the readers'.
  for (const { readers } of [await begin(STREAMING[0]!)]) for (const reader of readers) reader.leave();
  await eventually('the end of the first', () => (open() === 0 ? true : undefined));
  const restBytes = rssBytes(gateway.pid());
  const before = sent();
  const groups = await Promise.all(STREAMING.map(begin));
  await sleep(HOLD_MS);
  const grownBytes = rssBytes(gateway.pid()) - restBytes;
  const sentBytes = (sent() - before) / (STREAMING.length * READERS);
  t.comment(`${Math.round(grownBytes / MIB)} MiB over ${Math.round(restBytes / MIB)} MiB at rest`);
  t.comment(`${(sentBytes / MIB).toFixed(1)} MiB a reader have left the upstream`);
  t.ok(grownBytes < GROWTH_BYTES_MAX, 'what is held for them is bounded');
  t.ok(sentBytes < SENT_BYTES_MAX, 'the upstream waits');
  t.equal(open(), STREAMING.length * READERS, 'nobody was cut who reads');
  for (const { way, readers } of groups)
    for (const reader of readers) {
      t.equal(reader.isClosed, false, wayName(way));
      t.match(reader.text(), /^HTTP\/1\.1 200 OK\r\n/, wayName(way));
      reader.leave();
    }
  await eventually('each upstream is stopped', () => (open() === 0 ? true : undefined), ABORT_MS_MAX);
  const whole = (STREAM_BYTES / 4) * READERS;
  for (const { way, accountId } of groups) {
    const { spent, calls_today: calls } = await settledAccount(gateway, accountId, wayName(way));
    const paid = picoUnitsOf(spent)!;
    t.ok(paid > costOf(way, [0, 0]) * BigInt(READERS), `${wayName(way)}: charged ${spent}`);
    t.ok(paid < costOf(way, [whole, whole]), `${wayName(way)}: for what was relayed`);
    t.equal(calls, READERS, 'a call of the day each');
  }
  t.equal(await gateway.stop(), 0);
});

void t.test('clients that leave before their response', { timeout: 120_000 }, async (t) => {
  const { originOf, mocks } = await startDoorMocks(t);
  const gateway = await startGateway(t, {
    env: DOOR_ENV,
    config: { models: modelsOf(originOf), plans: PLANS },
  });
  const open = async (): Promise<number> => {
    const stats = await Promise.all(mocks.map((mock) => mock.stats()));
    return stats.reduce((sum, one) => sum + one.open, 0);
  };
  const clients: { way: Way; accountId: string; reader: SlowReader }[] = [];
  for (const way of WAYS.filter(({ kind }) => kind !== 'counted'))
    for (const stream of hasStreams(way) ? [false, true] : [false]) {
      const { key, accountId } = await gateway.admin.customer();
      const body = callOf(way, SLOW, { stream });
      const reader = new SlowReader(gateway.port, key, body, 65_536, false, {}, pathOf(way));
      clients.push({ way, accountId, reader });
    }
  await eventually('all calls at their upstreams', async () =>
    (await open()) === clients.length ? true : undefined,
  );
  for (const { reader } of clients) reader.leave();
  await eventually(
    'each upstream call is stopped',
    async () => ((await open()) === 0 ? true : undefined),
    ABORT_MS_MAX,
  );
  for (const { way, accountId } of clients) {
    const { spent } = await settledAccount(gateway, accountId, wayName(way));
    const paid = picoUnitsOf(spent)!;
    // Of moderations nothing is counted; the others pay for their prompt.
    const least = way.door === 'moderations' ? costOf(way, [0, 0]) : costOf(way, [5, 0]);
    t.ok(paid >= least && paid <= costOf(way, [120, 0]), `${wayName(way)}: charged ${spent}`);
  }
  t.equal(await gateway.stop(), 0);
  t.notMatch(gateway.log().join('\n'), /inside of the gateway|invariant/);
});
