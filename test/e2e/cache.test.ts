/**
 * The response cache: an equal request gets the response of the first, byte for byte, and no upstream is
 * asked; whom it is kept from, what clears it, and what a hit costs.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI from 'openai';
import t, { type Test } from 'tap';
import { startBed, type Bed } from '../support/bed.js';
import { runCommand } from '../support/command.js';
import {
  type Gateway,
  HIDDEN_MODEL,
  eventually,
  knownEverywhere,
  startGateway,
  temporaryFolder,
  TEST_MODEL,
  testSettings,
} from '../support/gateway.js';
import {
  callAt,
  DOOR_ENV,
  hasStreams,
  isFree,
  modelsOf,
  startDoorMocks,
  WAYS,
  wayName,
} from '../support/doors.js';
import type { Answer } from '../support/http.js';
import { startMock, steered } from '../support/mock.js';
import { SlowReader } from '../support/slow-reader.js';

const ON = { cache: { ttl_seconds: 600 }, flush_interval_ms: 50 };
const LOOSE_PLAN = { id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 };
const EQUAL_CALLS = 100;
/** An equal call waits for a minute at most. */
const HELD_UP_SECONDS_MAX = 20;

const cacheOf = ({ headers }: Answer): unknown => headers['x-tollgate-cache'];

/** `again` is what was answered before, and says so. */
function checkHit(t: Test, first: Answer, again: Answer): void {
  t.equal(again.status, 200, again.body);
  t.equal(cacheOf(again), 'hit');
  t.match(again.headers.age, /^\d+$/);
  t.equal(again.body, first.body);
  t.equal(again.headers['content-type'], first.headers['content-type']);
  t.equal(again.headers['idempotent-replayed'], undefined);
  t.not(again.headers['x-request-id'], first.headers['x-request-id'], 'a request of its own');
}

async function storedBytes({ admin }: Gateway): Promise<number> {
  const { body } = await admin.send('GET', '/metrics');
  return Number(/tollgate_cache_stored_bytes (\d+)/.exec(body)?.[1]);
}

/** A call that no other test makes. */
let prompts = 0;
const fresh = (steering = 'bytes=40'): string => steered(steering, `prompt ${(prompts += 1)}`);

async function startCached(
  t: Test,
  settings: object = {},
): Promise<Bed & { key: string; accountId: string }> {
  const bed = await startBed(t, { ...ON, ...settings });
  return { ...bed, ...(await bed.gateway.admin.customer()) };
}

void t.test('hits and misses', async (t) => {
  const bed = await startCached(t, { listen: { listeners: 2 } });
  const { gateway, mock, key, accountId } = bed;

  await t.test('a whole response and a stream', async (t) => {
    await mock.resetStats();
    for (const more of [{}, { stream: true }, { stream: true, stream_options: { include_usage: true } }]) {
      const prompt = fresh('chunks=300&bytes=90000');
      const first = await gateway.chat(key, prompt, more);
      t.equal(cacheOf(first), 'miss');
      t.equal(first.headers.age, undefined);
      // Several connections, so that both listeners get some.
      for (let n = 0; n < 4; n++) checkHit(t, first, await gateway.chat(key, prompt, more));
    }
    t.equal((await mock.stats()).requests, 3);
  });

  await t.test('a hit is not charged and counts toward the minute alone', async (t) => {
    const customer = await gateway.admin.customer();
    const prompt = fresh();
    const first = await gateway.chat(customer.key, prompt);
    const { spent } = await gateway.admin.account(customer.accountId);
    checkHit(t, first, await gateway.chat(customer.key, prompt));
    t.match(await gateway.admin.account(customer.accountId), {
      spent,
      held: '0.00',
      calls_today: 1,
      requests_this_minute: 2,
    });
  });

  await t.test('the same request in other words', async (t) => {
    const content = fresh();
    const first = await gateway.chat(key, content, { temperature: 0.5 });
    const send = (body: string): Promise<Answer> => gateway.request(key, { body });
    const messages = `[ {"role" : "user", "content" :${JSON.stringify(content)}} ]`;
    checkHit(
      t,
      first,
      await send(`{ "temperature": 0.5, "user":"u", "messages":${messages},\n"model":"${TEST_MODEL}" }`),
    );
    for (const other of [
      `{"temperature":0.50,"messages":${messages},"model":"${TEST_MODEL}"}`,
      `{"temperature":0.5,"messages":${messages},"model":"${TEST_MODEL}","seed":1}`,
      `{"temperature":0.5,"messages":[{"content":${JSON.stringify(content)},"role":"user"}],"model":"${TEST_MODEL}"}`,
      `{"temperature":0.5,"messages":${messages},"model":"${TEST_MODEL}","max_tokens":9}`,
    ])
      t.equal(cacheOf(await send(other)), 'miss', other);
  });

  await t.test('accounts do not share', async (t) => {
    const other = await gateway.admin.customer();
    const prompt = fresh();
    const ours = await gateway.chat(key, prompt);
    // Each listener knows the request by its bytes.
    for (let n = 0; n < 4; n++) checkHit(t, ours, await gateway.chat(key, prompt));
    const theirs = await gateway.chat(other.key, prompt);
    t.equal(cacheOf(theirs), 'miss');
    for (let n = 0; n < 4; n++) {
      checkHit(t, theirs, await gateway.chat(other.key, prompt));
      checkHit(t, ours, await gateway.chat(key, prompt));
    }
  });

  await t.test('what a request says of the cache', async (t) => {
    const prompt = fresh();
    const body = { model: TEST_MODEL, messages: [{ role: 'user', content: prompt }] };
    const says = (directive: string): Promise<Answer> =>
      gateway.request(key, { body, headers: { 'cache-control': directive } });
    await mock.resetStats();
    t.equal(cacheOf(await says('no-store')), undefined);
    t.equal(cacheOf(await gateway.chat(key, prompt)), 'miss', 'it was not written');
    t.equal(cacheOf(await says('max-age=0, No-Store')), undefined, 'nor is it read');
    t.equal(cacheOf(await says('no-cache')), 'miss');
    t.equal(cacheOf(await gateway.chat(key, prompt)), 'hit');
    const keyed = await gateway.request(key, { body, headers: { 'idempotency-key': 'its own' } });
    t.equal(cacheOf(keyed), undefined, 'an Idempotency-Key passes by the cache');
    t.equal((await mock.stats()).requests, 5);
  });

  await t.test('errors are not kept, nor are streams that break', async (t) => {
    for (const [steering, more] of [
      ['status=400', {}],
      ['status=500', {}],
      ['fault=reset-mid&chunks=8', { stream: true }],
      ['fault=error-event&chunks=8', { stream: true }],
    ] as const) {
      const prompt = fresh(steering);
      const call = (): Promise<Answer | undefined> => gateway.chat(key, prompt, more).catch(() => undefined);
      await call();
      const again = await call();
      t.not(again && cacheOf(again), 'hit', steering);
    }
  });

  await t.test('many equal calls at once are one', async (t) => {
    await mock.resetStats();
    for (const more of [{}, { stream: true }]) {
      const prompt = fresh('first_byte_ms=700&chunks=4');
      const answers = await Promise.all(
        Array.from({ length: EQUAL_CALLS }, () => gateway.chat(key, prompt, more)),
      );
      t.same([...new Set(answers.map(({ status, body }) => `${status} ${body}`))].length, 1);
      t.equal(answers.filter((answer) => cacheOf(answer) === 'hit').length, EQUAL_CALLS - 1);
    }
    t.equal((await mock.stats()).requests, 2);
  });

  await t.test('if the first fails or leaves, the others go on', async (t) => {
    await mock.resetStats();
    const failing = fresh('first_byte_ms=500&status=400');
    const answers = await Promise.all(Array.from({ length: 5 }, () => gateway.chat(key, failing)));
    t.same(
      answers.map(({ status }) => status),
      [400, 400, 400, 400, 400],
    );
    t.equal((await mock.stats()).requests, 5);
    const slow = fresh('first_byte_ms=800');
    const left = new AbortController();
    const body = JSON.stringify({ model: TEST_MODEL, messages: [{ role: 'user', content: slow }] });
    const first = fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body,
      signal: left.signal,
    }).catch(() => undefined);
    await eventually('the first is upstream', async () =>
      (await mock.stats()).requests === 6 ? true : undefined,
    );
    const second = gateway.chat(key, slow);
    setTimeout(() => left.abort(), 200);
    await first;
    t.equal((await second).status, 200);
  });

  await t.test('the openai package, whole and as a stream', async (t) => {
    const client = new OpenAI({ apiKey: key, baseURL: `${gateway.url}/v1`, maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: fresh('chunks=5') }];
    const whole = async () => {
      const { data, response } = await client.chat.completions
        .create({ model: TEST_MODEL, messages })
        .withResponse();
      return { text: data.choices[0]!.message.content, cache: response.headers.get('x-tollgate-cache') };
    };
    const { text } = await whole();
    t.same(await whole(), { text, cache: 'hit' });
    const streamed = async (): Promise<string> => {
      let joined = '';
      const stream = await client.chat.completions.create({ model: TEST_MODEL, messages, stream: true });
      for await (const chunk of stream) joined += chunk.choices[0]?.delta.content ?? '';
      return joined;
    };
    t.equal(await streamed(), await streamed());
  });

  await t.test('what operators see, and clearing', async (t) => {
    const prompt = fresh();
    await gateway.chat(key, prompt);
    t.equal(cacheOf(await gateway.chat(key, prompt)), 'hit');
    const clear = await runCommand(gateway.folder, ['cache', 'clear', '--model', TEST_MODEL]);
    t.equal(clear.code, 0, clear.stderr);
    t.match(clear.stdout, TEST_MODEL);
    t.equal(cacheOf(await gateway.chat(key, prompt)), 'miss');
    t.equal(cacheOf(await gateway.chat(key, prompt)), 'hit');
    const cleared = await gateway.admin.send('POST', '/admin/v1/cache/clear', {});
    t.equal(cleared.status, 200, cleared.body);
    t.equal(cacheOf(await gateway.chat(key, prompt)), 'miss');
    t.equal((await gateway.admin.send('POST', '/admin/v1/cache/clear', { model: 'none' })).status, 400);
    const { body: page } = await gateway.admin.send('GET', '/metrics');
    t.match(page, new RegExp(`tollgate_cache_requests_total\\{model="${TEST_MODEL}",result="hit"\\} \\d+`));
    t.match(page, /tollgate_cache_entries 1\n/);
    t.match(page, /tollgate_cache_stored_bytes \d+/);
  });
  t.match(await gateway.admin.account(accountId), { held: '0.00' });
  t.equal(await gateway.stop(), 0);
});

for (const durability of ['interval', 'commit'] as const) {
  void t.test(`hits that cost something, ${durability}`, async (t) => {
    const mock = await startMock(t);
    const settings = testSettings(mock.url, { ...ON, durability }) as { models: object[] };
    const price = { input: '1', output: '1', cached_response: '0.25' };
    const models = settings.models.map((model) => ({ ...model, price }));
    const gateway = await startGateway(t, { config: { ...settings, models } });
    const { key, accountId } = await gateway.admin.customer();
    const prompt = fresh();
    const first = await gateway.chat(key, prompt, { max_tokens: 100 });
    t.equal(first.status, 200, first.body);
    const spent = Number((await gateway.admin.account(accountId)).spent);
    for (let n = 1; n <= 3; n++) {
      checkHit(t, first, await gateway.chat(key, prompt, { max_tokens: 100 }));
      const account = await gateway.admin.account(accountId);
      t.equal(Number(account.spent).toFixed(9), (spent + n * 0.25).toFixed(9));
      t.match(account, { held: '0.00', calls_today: n + 1 });
    }
    t.equal((await mock.stats()).requests, 1);
    const poor = await gateway.admin.customer({ credit: '0.1' });
    const small = fresh();
    t.equal((await gateway.chat(poor.key, small, { max_tokens: 100 })).status, 200);
    t.equal((await gateway.chat(poor.key, small, { max_tokens: 100 })).status, 403, 'a hit is dearer');
    t.equal(await gateway.stop(), 0);
    const audit = await runCommand(gateway.folder, ['audit']);
    t.equal(audit.code, 0, audit.stdout + audit.stderr);
  });
}

void t.test('accounts share with scope all', async (t) => {
  const { gateway, key, mock } = await startCached(t, {
    cache: { ttl_seconds: 600, scope: 'all' },
    plans: [{ id: 'elsewhere', requests_per_minute: 100, calls_per_day: 100, models: [HIDDEN_MODEL] }],
  });

  await t.test('if their plan has the model', async (t) => {
    const other = await gateway.admin.customer();
    await mock.resetStats();
    const prompt = fresh();
    const first = await gateway.chat(key, prompt);
    checkHit(t, first, await gateway.chat(other.key, prompt));
    for (let n = 0; n < 3; n++) checkHit(t, first, await gateway.chat(other.key, prompt));
    const outside = await gateway.admin.customer({ plan: 'elsewhere' });
    const refused = await gateway.chat(outside.key, prompt);
    t.match(refused.body, /"code":"model_not_found"/, 'a plan without the model gets no hit');
    t.equal(cacheOf(refused), undefined);
    t.equal((await mock.stats()).requests, 1);
  });

  await t.test('a caller that does not read holds up no equal call of another', async (t) => {
    const other = await gateway.admin.customer();
    for (const [name, bytes] of [
      ['too long to be kept', 16_000_000],
      ['not too long', 1_000_000],
    ] as const) {
      await mock.resetStats();
      const prompt = fresh(`chunks=1000&bytes=${bytes}`);
      const body = { model: TEST_MODEL, messages: [{ role: 'user', content: prompt }], stream: true };
      const lazy = new SlowReader(gateway.port, key, body, 0);
      await eventually('its call', async () => ((await mock.stats()).requests === 1 ? true : undefined));
      const sentMs = performance.now();
      const answer = await gateway.chat(other.key, prompt, { stream: true });
      const seconds = (performance.now() - sentMs) / 1_000;
      t.match(answer, { status: 200, body: /\[DONE\]/ }, name);
      t.ok(seconds < HELD_UP_SECONDS_MAX, `${name}: ${seconds} s`);
      lazy.leave();
    }
  });
  t.equal(await gateway.stop(), 0);
});

void t.test('many equal calls at once are one, also with a response of a megabyte', async (t) => {
  const { gateway, key, mock } = await startCached(t, { listen: { listeners: 1 } });
  const prompt = fresh('first_byte_ms=3000&bytes=1000000');
  const answers = await Promise.all(Array.from({ length: 200 }, () => gateway.chat(key, prompt)));
  t.equal(answers.filter((answer) => cacheOf(answer) === 'hit').length, 199);
  t.equal(new Set(answers.map(({ status, body }) => `${status} ${body}`)).size, 1);
  t.equal((await mock.stats()).requests, 1);
  t.equal(await gateway.stop(), 0);
});

void t.test('hits by every door, whole and as a stream', async (t) => {
  const { originOf, mocks } = await startDoorMocks(t);
  const config = { models: modelsOf(originOf), plans: [LOOSE_PLAN], ...ON };
  const gateway = await startGateway(t, { env: DOOR_ENV, config });
  const { key } = await gateway.admin.customer();
  for (const way of WAYS.filter((one) => !isFree(one)))
    for (const stream of hasStreams(way) ? [false, true] : [false]) {
      const call = (): Promise<Answer> => callAt(gateway, key, way, 'Hello', { stream });
      const first = await call();
      t.equal(cacheOf(first), 'miss', `${wayName(way)}: ${first.body.slice(0, 200)}`);
      checkHit(t, first, await call());
    }
  const stats = await Promise.all(mocks.map((mock) => mock.stats()));
  const asked = stats.reduce((sum, { requests }) => sum + requests, 0);
  const calls = WAYS.filter((way) => !isFree(way)).reduce((sum, way) => sum + (hasStreams(way) ? 2 : 1), 0);
  t.equal(asked, calls, 'each upstream was asked once');
  t.equal(await gateway.stop(), 0);
});

void t.test('responses outlive a stop and a kill, and a change of the upstreams ends them', async (t) => {
  const folder = temporaryFolder(t);
  const mock = await startMock(t);
  const config = (settings: object = {}) => testSettings(mock.url, { ...ON, ...settings });
  const before = await startGateway(t, { folder, config: config() });
  const { key } = await before.admin.customer();
  const prompt = fresh();
  const first = await before.chat(key, prompt);
  t.equal(await before.stop(), 0);

  const second = await startGateway(t, { folder, config: config() });
  checkHit(t, first, await second.chat(key, prompt));
  const other = fresh();
  const bytes = await storedBytes(second);
  const killed = await second.chat(key, other);
  await eventually('it is on disk', async () => ((await storedBytes(second)) > bytes ? true : undefined));
  process.kill(second.pid(), 'SIGKILL');
  await second.child.stop('SIGKILL', 10_000);

  const third = await startGateway(t, { folder, config: config() });
  checkHit(t, killed, await third.chat(key, other));
  const file = JSON.stringify(config({ upstream: { idle_timeout_ms: 54_321 } }));
  writeFileSync(join(folder, 'tollgate.yaml'), file);
  t.equal((await third.admin.send('POST', '/admin/v1/reload', {})).status, 200);
  t.equal(cacheOf(await third.chat(key, other)), 'miss', 'the upstream has another timeout');
  t.equal(cacheOf(await third.chat(key, other)), 'hit');
  t.equal(await third.stop(), 0);
});

void t.test('processes share what is on disk', { timeout: 300_000 }, async (t) => {
  const { gateway, mock } = await startBed(t, { ...ON, processes: 2 });
  const { key } = await gateway.admin.customer();
  await knownEverywhere(gateway, key);
  const prompt = fresh();
  const first = await gateway.chat(key, prompt);
  await eventually('it is on disk', async () => ((await storedBytes(gateway)) > 0 ? true : undefined));
  await mock.resetStats();
  for (let n = 0; n < 30; n++) checkHit(t, first, await gateway.chat(key, prompt));
  t.equal((await mock.stats()).requests, 0);
  t.equal((await gateway.admin.send('POST', '/admin/v1/cache/clear', {})).status, 200);
  const after = await Promise.all(Array.from({ length: 30 }, () => gateway.chat(key, prompt)));
  t.ok(after.some((answer) => cacheOf(answer) === 'miss'));
  t.ok((await mock.stats()).requests >= 1 && (await mock.stats()).requests <= 2, 'one call a process');
  t.equal(await gateway.stop(), 0);
});
