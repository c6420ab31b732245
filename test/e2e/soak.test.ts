/**
 * Streams for a while over a network that delays, throttles and resets: every response is accounted for,
 * memory is flat, nothing is held or in flight at the end. 10 s by default, 300 by `npm run test:soak`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { createServer, connect, type AddressInfo, type Socket } from 'node:net';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { rssBytes } from '../../bench/support/proc.js';
import { TEST_MODEL, eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';
import { chunksOf, eventData, isWholeText, openStream, readRest, textOf } from '../support/sse.js';

const SECONDS = Number(process.env.TOLLGATE_SOAK_SECONDS ?? 10);
const SEED = Number(process.env.TOLLGATE_SOAK_SEED ?? 20_261_120);
const STREAMS = 500;
const CHUNKS = 40;
const MIB = 1024 * 1024;
/** From where memory is at work to the end. */
const GROWTH_BYTES_MAX = 96 * MIB;
/**
 * Memory is at work after a quarter of the time and so many streams, and as many follow: a busy machine takes
 * longer.
 */
const WARM_STREAMS = 3 * STREAMS;

/** Mulberry32. Source: Tommy Ettinger, public domain. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Tally {
  whole: number;
  /** Ended by an error event, or refused with 502. */
  failed: number;
  /** Left by the client. */
  left: number;
  wrong: string[];
}

/**
 * A TCP relay in front of `port`: one connection in 40 is reset after a while, chunks wait up to 20 ms, some
 * crawl.
 */
async function startTroubledNetwork(t: Test, port: number, random: () => number): Promise<number> {
  const sockets = new Set<Socket>();
  const relay = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    const isSlow = random() < 0.1;
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('data', (bytes) => {
        from.pause();
        const waitMs = isSlow ? 20 + random() * 60 : random() * 20;
        setTimeout(() => {
          if (to.destroyed) return;
          to.write(bytes);
          from.resume();
        }, waitMs);
      });
      from.on('error', () => undefined);
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
    if (random() < 1 / 40) setTimeout(() => far.resetAndDestroy(), random() * 3_000);
  });
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  t.teardown(() => {
    relay.close();
    for (const socket of sockets) socket.destroy();
  });
  return (relay.address() as AddressInfo).port;
}

async function oneStream(gateway: Gateway, key: string, random: () => number, tally: Tally): Promise<void> {
  const query = `chunks=${CHUNKS}&bytes=2000&chunk_ms=${Math.floor(random() * 20)}&prompt_tokens=10&completion_tokens=100`;
  const body = { model: TEST_MODEL, messages: [{ role: 'user', content: steered(query) }], stream: true };
  const { incoming, outgoing } = await openStream(gateway.port, key, body);
  if (random() < 0.02) {
    await sleep(random() * 200);
    outgoing.destroy();
    incoming.on('error', () => undefined);
    tally.left += 1;
    return;
  }
  const text = await readRest(incoming);
  const data = eventData(text);
  const chunks = chunksOf(text);
  if (chunks.at(-1)?.error !== undefined) tally.failed += 1;
  else if (data.at(-1) === '[DONE]' && isWholeText(textOf(chunks), CHUNKS)) tally.whole += 1;
  else tally.wrong.push(text.slice(-200));
}

void t.test(`${STREAMS} streams for ${SECONDS} s`, { timeout: (SECONDS + 600) * 1_000 }, async (t) => {
  t.comment(`seed ${SEED}`);
  const random = randomOf(SEED);
  const mock = await startMock(t);
  const port = await startTroubledNetwork(t, mock.port, random);
  const gateway = await startGateway(t, { config: testSettings(`http://127.0.0.1:${port}/v1`) });
  const { key, accountId } = await gateway.admin.customer({ credit: '100000.00' });
  const tally: Tally = { whole: 0, failed: 0, left: 0, wrong: [] };
  const endMs = performance.now() + SECONDS * 1_000;
  const client = async (): Promise<void> => {
    while (performance.now() < endMs || tally.whole < 2 * WARM_STREAMS) {
      await oneStream(gateway, key, random, tally).catch((error: unknown) => {
        if (String(error).startsWith('Error: answered 502')) tally.failed += 1;
        else tally.wrong.push(String(error));
      });
    }
  };
  const clients = Array.from({ length: STREAMS }, client);
  await sleep((SECONDS * 1_000) / 4);
  while (tally.whole < WARM_STREAMS) await sleep(100);
  const warmBytes = rssBytes(gateway.pid());
  await Promise.all(clients);
  const endBytes = rssBytes(gateway.pid());
  const { whole, failed, left, wrong } = tally;
  t.comment(`${whole} whole, ${failed} failed, ${left} left by the client, ${wrong.length} otherwise`);
  t.comment(
    `resident ${Math.round(warmBytes / MIB)} MiB when all was at work, ${Math.round(endBytes / MIB)} at the end`,
  );
  t.same(wrong.slice(0, 3), [], 'every answer is whole, an error, or left');
  t.ok(whole > STREAMS && failed > 0 && left > 0, 'all kinds were seen');
  t.ok(endBytes - warmBytes < GROWTH_BYTES_MAX, 'memory is flat');

  interface Status {
    readonly calls_in_flight: number;
    readonly outcomes: Readonly<Record<string, number>>;
  }
  const status = await eventually('no call in flight', async () => {
    const now = (await gateway.admin.send('GET', '/admin/v1/status')).json() as Status;
    return now.calls_in_flight === 0 ? now : undefined;
  });
  const account = await gateway.admin.account(accountId);
  t.equal(Number(account.held), 0, 'nothing is held');
  // One that left with its last bytes on the way may count as whole there.
  const ok = status.outcomes.ok ?? 0;
  t.ok(ok >= whole && ok <= whole + left, `the gateway counts ${ok} whole`);
  // A whole response costs what the mock reports; one that was left costs its prompt at most like a whole
  // one's and more.
  const wholeCost = (10 * 1.5 + 100 * 2.25) / 1e6;
  const spent = Number(account.spent);
  t.ok(spent >= whole * wholeCost - 1e-9, `charged ${spent} for ${whole} whole answers at ${wholeCost}`);
  t.ok(spent <= whole * wholeCost + left * 0.01, 'and for those that were left, not for the failed');
  await eventually('no call is open upstream', async () => (await mock.stats()).open === 0 || undefined);
  t.equal(await gateway.stop(), 0);
});
