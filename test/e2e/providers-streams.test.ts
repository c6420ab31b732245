/**
 * Slow readers, clients that leave and long answers, at each provider beside `openai`: the provider is not
 * read further than its caller, its connections end with their callers', and memory is that of `openai`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { rssBytes } from '../../bench/support/proc.js';
import { openaiWater, startFountain, type Fountain, type Water } from '../support/fountain.js';
import { eventually, startGateway, type Gateway } from '../support/gateway.js';
import { modelAt, PROVIDER_ENV, PROVIDER_MODELS, type ProviderModel } from '../support/provider-bed.js';
import type { Dialect } from '../support/provider-dialects.js';
import { FORMS } from '../support/provider-forms.js';
import { SlowReader } from '../support/slow-reader.js';

const READERS = 32;
const STREAM_BYTES = 16_000_000;
const EVENT_CHARS = 25_000;
/** With its frame just below the longest that is taken. */
const WHOLE_CHARS = 15_000_000;
const WHOLE_READERS = 4;
/** What a stream may take from its provider: buffers of four sockets (7.7 MB seen), and the call's window. */
const TAKEN_BYTES_MAX = 12_000_000;
const STILL_MS = 1_500;
/** More than in leaving-clients.test.ts, because other tests keep the processors busy meanwhile. */
const LAST_ABORT_MS_MAX = 3_000;
const DIRECT_TIMES = 10;
/**
 * A collector leaves more or less of what it could free. Seen over rest: 156 to 200 MB for 200 streams, with
 * openai 156 to 171; 43 to 301 for the whole answers, with openai 45 to 54. Of four answers of 15 MB the
 * translation has the bytes, the text and what it writes, at times of all four.
 */
const GROWTH_TIMES_MAX = 1.5;
const STREAM_GROWTH_BYTES_MORE = 1_500_000 * READERS;
const WHOLE_GROWTH_BYTES_MORE = 300_000_000;

const openai: ProviderModel = {
  id: 'at-openai',
  provider: 'openai',
  model: 'gpt-4o',
  upstream: { key: '${PROVIDER_KEY}' },
  signsThinking: false,
};

function waterOf({ provider, model }: ProviderModel): Water {
  const text = (chars: number): string => 'w'.repeat(chars);
  const dialect = FORMS.find((form) => form.provider === provider && form.model === model)?.dialect;
  if (dialect === undefined) return openaiWater(STREAM_BYTES, text(WHOLE_CHARS));
  const answerOf = (chars: number): Parameters<Dialect['whole']>[0] => ({
    name: 'long',
    blocks: [{ kind: 'text', text: text(chars) }],
    stop: dialect.stops[0],
    usage: {},
  });
  return {
    streamType: dialect.streamType,
    stream: dialect.stream(answerOf(STREAM_BYTES), EVENT_CHARS),
    whole: JSON.stringify(dialect.whole(answerOf(WHOLE_CHARS))),
  };
}

interface Figures {
  readonly streamsGrownBytes: number;
  readonly wholeGrownBytes: number;
}

const bodyOf = (model: string, stream: boolean): object => ({
  model,
  stream,
  messages: [{ role: 'user', content: 'Hello' }],
});

const begun = (readers: readonly SlowReader[]): Promise<true> =>
  eventually('a first byte for all', () => readers.every(({ readBytes }) => readBytes > 0) || undefined);

/** All leave; milliseconds until the upstream has seen the last one go. */
async function leaveAll(readers: readonly SlowReader[], fountain: Fountain): Promise<number> {
  const leftMs = performance.now();
  for (const reader of readers) reader.leave();
  await eventually('the end of all upstream calls', () => (fountain.open === 0 ? true : undefined));
  return performance.now() - leftMs;
}

async function checkStreams(t: Test, gateway: Gateway, fountain: Fountain, id: string): Promise<number> {
  const { key, accountId } = await gateway.admin.customer({ credit: '100000.00' });
  const read = (port: number): SlowReader[] =>
    Array.from({ length: READERS }, () => new SlowReader(port, key, bodyOf(id, true), 1_024));
  const direct = read(Number(new URL(fountain.origin).port));
  await begun(direct);
  const directMs = await leaveAll(direct, fountain);

  const restBytes = rssBytes(gateway.pid());
  const before = fountain.sentBytes;
  const readers = read(gateway.port);
  await begun(readers);
  let sentBytes = 0;
  await eventually('the provider waits', async () => {
    const now = fountain.sentBytes;
    await sleep(STILL_MS);
    // The readers' own pace goes on.
    if (fountain.sentBytes - now > READERS * 10 * 1_024) return undefined;
    sentBytes = now - before;
    return true;
  });
  const grownBytes = rssBytes(gateway.pid()) - restBytes;
  t.equal(fountain.open, READERS, 'nobody is cut');
  const takenMb = sentBytes / READERS / 1e6;
  t.ok(
    sentBytes < READERS * TAKEN_BYTES_MAX,
    `${takenMb.toFixed(1)} MB of each stream have left the provider`,
  );

  const lastMs = await leaveAll(readers, fountain);
  t.comment(`last abort after ${lastMs.toFixed(0)} ms, without a gateway ${directMs.toFixed(0)} ms`);
  t.ok(lastMs < LAST_ABORT_MS_MAX + DIRECT_TIMES * directMs, 'the provider is told at once');
  const spent = await eventually('nothing held', async () => {
    const account = await gateway.admin.account(accountId);
    return Number(account.held) === 0 ? Number(account.spent) : undefined;
  });
  const wholes = (READERS * STREAM_BYTES * 2.25) / 1e6;
  t.ok(spent > 0 && spent < wholes, `charged ${spent} for what was relayed`);
  return grownBytes;
}

async function checkWholes(t: Test, gateway: Gateway, id: string): Promise<number> {
  const { key } = await gateway.admin.customer({ credit: '100000.00' });
  const restBytes = rssBytes(gateway.pid());
  const bodies = await Promise.all(
    Array.from({ length: WHOLE_READERS }, () => gateway.request(key, { body: bodyOf(id, false) })),
  );
  const grownBytes = rssBytes(gateway.pid()) - restBytes;
  for (const { status, body } of bodies) {
    t.equal(status, 200);
    t.ok(body.length > WHOLE_CHARS, `${body.length} characters`);
  }
  return grownBytes;
}

async function figuresOf(t: Test, model: ProviderModel): Promise<Figures> {
  const fountain = await startFountain(t, waterOf(model));
  const url = model.provider === 'openai' ? fountain.url : fountain.origin;
  const gateway = await startGateway(t, {
    config: {
      models: [modelAt(model, url)],
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    },
    env: PROVIDER_ENV,
  });
  const streamsGrownBytes = await checkStreams(t, gateway, fountain, model.id);
  const wholeGrownBytes = await checkWholes(t, gateway, model.id);
  t.comment(
    `${READERS} slow streams ${(streamsGrownBytes / 1e6).toFixed(0)} MB over rest, ` +
      `${WHOLE_READERS} whole answers ${(wholeGrownBytes / 1e6).toFixed(0)} MB`,
  );
  t.equal(await gateway.stop(), 0);
  return { streamsGrownBytes, wholeGrownBytes };
}

void t.test('slow readers, leaving clients and long answers of providers', async (t) => {
  let base: Figures | undefined;
  await t.test(openai.id, async (t) => {
    base = await figuresOf(t, openai);
  });
  for (const model of PROVIDER_MODELS)
    await t.test(model.id, async (t) => {
      const { streamsGrownBytes, wholeGrownBytes } = await figuresOf(t, model);
      const isBounded = (name: string, grownBytes: number, baseBytes: number, moreBytes: number): void => {
        // Memory that is freed meanwhile makes the growth at openai negative.
        const mostBytes = GROWTH_TIMES_MAX * Math.max(baseBytes, 0) + moreBytes;
        const megabytes = [grownBytes, mostBytes].map((bytes) => Math.round(bytes / 1e6));
        t.ok(grownBytes < mostBytes, `${name} took ${megabytes.join(' of at most ')} MB`);
      };
      isBounded('streams', streamsGrownBytes, base!.streamsGrownBytes, STREAM_GROWTH_BYTES_MORE);
      isBounded('whole answers', wholeGrownBytes, base!.wholeGrownBytes, WHOLE_GROWTH_BYTES_MORE);
    });
});
