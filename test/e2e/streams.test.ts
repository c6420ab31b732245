/**
 * Streams: many at once, cut anywhere, broken, unread. Nothing is lost, repeated or reordered, and memory
 * comes back.
 */
import t from 'tap';
import { rssBytes } from '../../bench/support/proc.js';
import { startBed } from '../support/bed.js';
import { TEST_MODEL, eventually, type Gateway } from '../support/gateway.js';
import { steered } from '../support/mock.js';
import {
  chunksOf,
  eventData,
  isWholeStream,
  isWholeText,
  openStream,
  readRest,
  textOf,
} from '../support/sse.js';

const STREAMS = 1_000;
/** Each is work for four processes: as many as it takes for what is lost or repeated to show. */
const CHUNKS = 25;
const ROUNDS = 7;
/** From the second round to the fourth: what the allocator and the collector leave lying about. */
const GROWTH_BYTES_MAX = 48 * 1024 * 1024;
/** After the first round, over rest: buffers of 1,000 sockets and a heap that has grown once. */
const FIRST_ROUND_BYTES_MAX = 250 * 1024 * 1024;

const call = (query: string, more: object = {}): object => ({
  model: TEST_MODEL,
  messages: [{ role: 'user', content: steered(query) }],
  stream: true,
  ...more,
});

async function streamed(gateway: Gateway, key: string, body: object): Promise<string> {
  const { incoming } = await openStream(gateway.port, key, body);
  return readRest(incoming);
}

void t.test('streams', async (t) => {
  const { gateway, mock } = await startBed(t, { workers: 2, listen: { listeners: 2 } });
  const { key } = await gateway.admin.customer({ credit: '10000.00' });

  await t.test('headers, order, usage only if asked for', async (t) => {
    const { incoming } = await openStream(gateway.port, key, call('chunks=7'));
    t.match(incoming.headers, {
      'content-type': /^text\/event-stream/,
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
      'x-request-id': /./,
      'x-ratelimit-remaining': /^\d+$/,
    });
    const plain = await readRest(incoming);
    t.ok(isWholeText(textOf(chunksOf(plain)), 7));
    t.equal(eventData(plain).at(-1), '[DONE]');
    t.same(
      chunksOf(plain).filter(({ usage }) => usage !== undefined && usage !== null),
      [],
    );
    t.ok(
      chunksOf(plain).every(({ choices }) => choices?.length === 1),
      'no chunk without a choice',
    );
    const body = await streamed(gateway, key, call('chunks=7', { stream_options: { include_usage: true } }));
    t.match(chunksOf(body).at(-1), { choices: [], usage: { prompt_tokens: Number } });
    const off = await streamed(gateway, key, call('chunks=7', { stream_options: { include_usage: false } }));
    t.equal(chunksOf(off).length, chunksOf(plain).length);
    const { last } = await mock.stats();
    t.match(JSON.parse(last!.body), { stream_options: { include_usage: true } }, 'upstream is always asked');
  });

  await t.test('cut at any byte, with either line end', async (t) => {
    const whole = chunksOf(await streamed(gateway, key, call('chunks=5')));
    for (const split of [1, 2, 3, 7, 64, 199, 1_000]) {
      for (const crlf of [0, 1]) {
        const body = await streamed(gateway, key, call(`chunks=5&split=${split}&event_crlf=${crlf}`));
        t.same(chunksOf(body), whole, `split ${split}, crlf ${crlf}`);
        t.equal(eventData(body).at(-1), '[DONE]');
      }
    }
  });

  await t.test('a stream that breaks ends with an error event and without [DONE]', async (t) => {
    // Apart from each other: good events that come with a bad one, before any has gone down, are held back
    // with it.
    for (const query of ['fault=reset-mid&chunk_ms=20', 'fault=error-event&chunk_ms=20']) {
      const data = eventData(await streamed(gateway, key, call(`chunks=10&${query}`)));
      t.notOk(data.includes('[DONE]'), query);
      t.match(
        JSON.parse(data.at(-1)!),
        { error: { type: 'provider_error', code: 'provider_unavailable' } },
        query,
      );
      t.ok(data.length > 5, 'what came before is there');
    }
    for (const query of ['fault=broken-sse&chunk_ms=20', 'fault=no-done', 'usage=late', 'usage=missing']) {
      const body = await streamed(gateway, key, call(`chunks=10&${query}`));
      t.match(body, /w4 /, `${query} comes to an end`);
    }
    t.equal((await gateway.chat(key, 'Hello')).status, 200);
  });

  await t.test('a reader that stops pauses the upstream, and misses nothing', async (t) => {
    await mock.resetStats();
    const totalBytes = 60_000_000;
    const chunks = 2_000;
    const { incoming } = await openStream(gateway.port, key, call(`bytes=${totalBytes}&chunks=${chunks}`));
    let before = -1;
    const sentBytes = await eventually('the upstream to be still', async () => {
      const now = (await mock.stats()).sentBytes;
      const still = now > 0 && now === before;
      before = now;
      return still ? now : undefined;
    });
    t.comment(`${sentBytes} of ${totalBytes} bytes left the upstream before it was paused`);
    t.ok(sentBytes < totalBytes / 2);
    t.equal((await gateway.chat(key, 'Hello')).status, 200, 'others go on');
    const text = textOf(chunksOf(await readRest(incoming)));
    t.ok(isWholeText(text, chunks));
    t.equal(text.length, totalBytes);
  });

  await t.test(`${STREAMS} at once, ${CHUNKS} chunks each`, async (t) => {
    const query = `chunks=${CHUNKS}&bytes=2000&chunk_ms=40`;
    const restingBytes = rssBytes(gateway.pid());
    const afterBytes: number[] = [];
    for (let round = 1; round <= ROUNDS; round += 1) {
      await mock.resetStats();
      let openMax = 0;
      const watch = setInterval(() => {
        void mock.stats().then(({ open }) => (openMax = Math.max(openMax, open)));
      }, 100);
      const bodies = await Promise.all(
        Array.from({ length: STREAMS }, () => streamed(gateway, key, call(query))),
      );
      clearInterval(watch);
      const broken = bodies.filter((body) => !isWholeStream(body, CHUNKS));
      t.equal(broken.length, 0, `round ${round}: every chunk in order, none missing, none twice`);
      t.ok(openMax > STREAMS / 2, `round ${round}: ${openMax} were open at once`);
      await eventually('the end of all calls', async () =>
        (await mock.stats()).open === 0 ? true : undefined,
      );
      afterBytes.push(rssBytes(gateway.pid()));
    }
    const mib = [restingBytes, ...afterBytes].map((bytes) => Math.round(bytes / 1024 / 1024));
    t.comment(`resident MiB at rest and after each round: ${mib.join(', ')}`);
    t.ok(afterBytes[0]! - restingBytes < FIRST_ROUND_BYTES_MAX);
    // The heaps find their size in the first rounds; 16 KB left of each stream would show in the last three.
    t.ok(afterBytes[6]! - afterBytes[3]! < GROWTH_BYTES_MAX, 'no growth from round to round');
  });

  t.equal(await gateway.stop(), 0);
});
