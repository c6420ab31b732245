/**
 * Readers slower than their upstream: what is held for them, how long they may take, what they are billed,
 * and that they harm nobody else.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { rssBytes } from '../../bench/support/proc.js';
import { startFountain, type Fountain } from '../support/fountain.js';
import { TEST_MODEL, eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { SlowReader } from '../support/slow-reader.js';

const MIB = 1024 * 1024;
const READERS = 200;
const ANSWER_BYTES = 50_000_000;
/** Longer than the 12 s after which µWS cuts a connection that it believes to be dead. */
const HOLD_MS = 14_000;
/**
 * All readers begin at once and their windows are filled, 1.4 GB through the gateway: seconds, on a busy
 * machine a minute.
 */
const BEGIN_MS_MAX = 300_000;
/**
 * Over rest. Windows, what was read ahead and text for counting are 95 MB by their own bounds; a collector
 * and malloc leave up to 30 MB beside them on Node 20 and 100 on Node 24 of Debian 13. The responses are
 * 10 GB.
 */
const GROWTH_BYTES_MAX = 200_000_000;
const PROBES = 200;
/** Over one and a half of what they take at a gateway without readers in the same moments. */
const PROBE_DELAY_MS_MAX = 25;
/** Another process can spoil one of them; what the readers spoil is spoilt each time. */
const PROBE_ROUNDS_MAX = 10;
const IDLE_TIMEOUT_MS = 3_000;
/** A reader that is not cut for stalling would be so only by the calls' longest duration, of minutes. */
const CUT_LATE_MS_MAX = 30_000;

const STREAM = { model: TEST_MODEL, messages: [{ role: 'user', content: 'Hello' }], stream: true };

/** p99 of small calls at each gateway, one after the other and the gateways in turn. */
async function probeP99Ms(callers: readonly (readonly [Gateway, string])[]): Promise<number[]> {
  const tookMs = callers.map((): number[] => []);
  for (let index = 0; index < PROBES; index += 1) {
    for (const [caller, [gateway, key]] of callers.entries()) {
      const startMs = performance.now();
      await gateway.chat(key, 'Hello');
      tookMs[caller]!.push(performance.now() - startMs);
    }
  }
  return tookMs.map((ms) => ms.sort((a, b) => a - b)[Math.floor(PROBES * 0.99)]!);
}

const streamsEnd = (fountain: Fountain): Promise<boolean> =>
  eventually('the end of all streams', () => (fountain.open === 0 ? true : undefined));

const spentOf = (gateway: Gateway, accountId: string): Promise<number> =>
  eventually('nothing held', async () => {
    const { held, spent } = await gateway.admin.account(accountId);
    return Number(held) === 0 && Number(spent) > 0 ? Number(spent) : undefined;
  });

void t.test(`${READERS} readers of 1 KB/s of a fast ${ANSWER_BYTES}-byte answer`, async (t) => {
  const fountain = await startFountain(t, ANSWER_BYTES);
  const start = () => startGateway(t, { config: testSettings(fountain.url) });
  const [gateway, resting] = await Promise.all([start(), start()]);
  const { key, accountId } = await gateway.admin.customer({ credit: '100000.00' });
  const callers = [
    [gateway, key],
    [resting, (await resting.admin.customer()).key],
  ] as const;
  await probeP99Ms(callers);
  const restBytes = rssBytes(gateway.pid());
  const readers = Array.from({ length: READERS }, () => new SlowReader(gateway.port, key, STREAM, 1_024));
  await eventually(
    'a first byte for all',
    () => (readers.every(({ readBytes }) => readBytes > 0) ? true : undefined),
    BEGIN_MS_MAX,
  );
  await sleep(HOLD_MS);
  /** The least of the rounds so far. */
  let [busyMs, restMs] = [Infinity, Infinity];
  const isHarmed = (): boolean => busyMs >= 1.5 * restMs + PROBE_DELAY_MS_MAX;
  for (let round = 0; round < PROBE_ROUNDS_MAX && isHarmed(); round += 1) {
    const [ofBusy, ofResting] = await probeP99Ms(callers);
    [busyMs, restMs] = [Math.min(busyMs, ofBusy!), Math.min(restMs, ofResting!)];
  }
  const grownBytes = rssBytes(gateway.pid()) - restBytes;
  t.comment(`p99 of small calls ${restMs.toFixed(1)} ms, with the readers ${busyMs.toFixed(1)} ms`);
  t.comment(`${Math.round(grownBytes / MIB)} MiB over the ${Math.round(restBytes / MIB)} MiB at rest`);
  t.comment(`${(fountain.sentBytes / READERS / MIB).toFixed(1)} MiB a reader have left the upstream`);
  t.equal(readers.filter(({ isClosed }) => isClosed).length, 0, 'nobody was cut who reads');
  t.equal(fountain.open, READERS, 'the upstream waits');
  t.ok(grownBytes < GROWTH_BYTES_MAX);
  t.notOk(isHarmed(), 'others are not harmed');
  for (const reader of readers) reader.leave();
  await streamsEnd(fountain);
  t.ok(await spentOf(gateway, accountId), 'what was relayed is charged, nothing is held');
  t.same(await Promise.all([gateway.stop(), resting.stop()]), [0, 0]);
});

void t.test('how long a reader may take', async (t) => {
  const streamBytes = 12_000_000;
  const fountain = await startFountain(t, streamBytes);
  const limits = { client_idle_timeout_ms: IDLE_TIMEOUT_MS };
  const config = testSettings(fountain.url, { limits, low_balance: 'refuse' });
  const gateway = await startGateway(t, { config });

  await t.test('one that stalls is cut, the upstream stopped, what was relayed billed', async (t) => {
    const { key, accountId } = await gateway.admin.customer({ credit: '1000.00' });
    const startMs = performance.now();
    const reader = new SlowReader(gateway.port, key, STREAM, 0);
    await eventually('the stream', () => (fountain.open === 1 ? true : undefined));
    await streamsEnd(fountain);
    const tookMs = performance.now() - startMs;
    t.ok(
      tookMs >= IDLE_TIMEOUT_MS && tookMs < IDLE_TIMEOUT_MS + CUT_LATE_MS_MAX,
      `cut after ${Math.round(tookMs)} ms`,
    );
    const wholeAnswer = (streamBytes / 4) * 2.25e-6;
    const spent = await spentOf(gateway, accountId);
    t.ok(spent > 0 && spent < wholeAnswer, `charged ${spent} for the part that was relayed`);
    reader.leave();
  });

  await t.test('one that takes long between reads gets all of it', async (t) => {
    const { key } = await gateway.admin.customer({ credit: '1000.00' });
    const reader = new SlowReader(gateway.port, key, STREAM, 800_000, true);
    await eventually('the end of the answer', () =>
      reader.readBytes > streamBytes && reader.text().endsWith('0\r\n\r\n') ? true : undefined,
    ).catch(() => undefined);
    // Two chunks may share the last event: whether a full socket takes more is tried with a few of its bytes.
    const text = reader.text().replaceAll(/\r\n[0-9a-f]+\r\n/g, '');
    t.ok(text.includes('data: [DONE]\n\n'), `${reader.readBytes} bytes, to the end`);
    t.notOk(reader.isClosed);
    reader.leave();
  });

  t.equal(await gateway.stop(), 0);
});
