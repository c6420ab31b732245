/**
 * Limits of upstreams: what a provider's key gets is within them, in any 60 seconds, whoever calls. Calls
 * wait for room, and are told when there is some.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { knownEverywhere, startGateway, TEST_MODEL, TEST_PRICE, type Gateway } from '../support/gateway.js';
import { startHosts } from '../support/hosts.js';
import { startProvider } from '../support/limited-provider.js';
import { NO_REDIS } from '../support/redis-server.js';

// Most of it is waiting for minutes to pass.
t.jobs = 3;

const MINUTE_MS = 60_000;
const KEY = 'sk-one';
const PROCESSES = 2;
/** Of a limit, under full pressure. */
const USED_LEAST = 0.9;
/** Three times a wait in the queue: a quarter of the callers is in it at any time, and uses what is free. */
const REFUSED_PAUSE_MS = 300;

interface UpstreamView {
  readonly model: string;
  readonly name: string;
  readonly quotas: readonly { readonly quota: string; readonly limit: number; readonly used: number }[];
  readonly waiting_calls: number;
}

async function start(
  t: Test,
  upstreams: readonly object[],
  more: { readonly models?: readonly object[]; readonly [setting: string]: unknown } = {},
): Promise<{ gateway: Gateway; key: string }> {
  const { models = [], ...settings } = more;
  const model = { price: TEST_PRICE, max_output_tokens: 100 };
  const gateway = await startGateway(t, {
    config: {
      models: [{ id: TEST_MODEL, ...model, upstreams }, ...models.map((other) => ({ ...model, ...other }))],
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
      workers: 2,
      ...settings,
    },
    env: { KEY, OTHER_KEY: 'sk-two' },
  });
  const { key } = await gateway.admin.customer();
  await knownEverywhere(gateway, key);
  return { gateway, key };
}

async function upstreamsOf(gateway: Gateway): Promise<readonly UpstreamView[]> {
  const { upstreams } = (await gateway.admin.send('GET', '/admin/v1/status')).json() as {
    upstreams: UpstreamView[];
  };
  return upstreams;
}

/** The statuses that twelve callers at each gateway get in somewhat more than a minute and a half. */
async function hammer(gateways: readonly Gateway[], key: string): Promise<ReadonlySet<number>> {
  const untilMs = performance.now() + MINUTE_MS * 1.6;
  const statuses = new Set<number>();
  const caller = async (gateway: Gateway): Promise<void> => {
    while (performance.now() < untilMs) {
      const { status } = await gateway.chat(key, 'Hello');
      statuses.add(status);
      if (status !== 200) await sleep(REFUSED_PAUSE_MS);
    }
  };
  await Promise.all(gateways.flatMap((gateway) => Array.from({ length: 12 }, () => caller(gateway))));
  return statuses;
}

const at = (url: string, more: object = {}): object => ({ url, key: '${KEY}', ...more });

void t.test('a call that finds no room waits for it, or is told when there is some', async (t) => {
  const provider = await startProvider(t);
  const { gateway, key } = await start(t, [at(provider.url, { requests_per_minute: 3, queue_ms: 300 })]);
  for (let n = 0; n < 3; n++) t.equal((await gateway.chat(key, 'Hello')).status, 200);
  const sentMs = performance.now();
  const refused = await gateway.chat(key, 'Hello');
  const refusedMs = performance.now();
  t.equal(refused.status, 503, refused.body);
  t.ok(refusedMs - sentMs >= 300, 'it has waited');
  t.match(refused.json(), { error: { code: 'overloaded', message: /requests_per_minute/ } });
  const seconds = Number(refused.headers['retry-after']);
  t.ok(seconds > 50 && seconds <= 62, `after ${seconds} s`);
  t.same((await upstreamsOf(gateway))[0]?.quotas, [{ quota: 'requests_per_minute', limit: 3, used: 3 }]);
  const page = (await gateway.admin.send('GET', '/metrics')).body;
  t.match(page, /tollgate_upstream_quota_used_ratio\{[^}]*quota="requests_per_minute"[^}]*\} 1\n/);
  t.match(page, /tollgate_upstream_queue_refused_total\{model="mock-model"\} 1\n/);
  await sleep(refusedMs + seconds * 1_000 - performance.now());
  t.equal((await gateway.chat(key, 'Hello')).status, 200, 'the Retry-After was true');
  t.equal(provider.calls.length, 4);
});

void t.test('calls in flight are bounded, the others wait their turn', async (t) => {
  const provider = await startProvider(t, { answerMs: 100 });
  const { gateway, key } = await start(t, [at(provider.url, { calls_in_flight: 2, queue_ms: 30_000 })]);
  const answers = await Promise.all(Array.from({ length: 20 }, () => gateway.chat(key, 'Hello')));
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
  t.equal(provider.mostInFlight(KEY), 2);
  t.match((await upstreamsOf(gateway))[0], { quotas: [{ limit: 2, used: 0 }], waiting_calls: 0 });
});

void t.test('keys of one provider pool their limits, and then the next priority serves', async (t) => {
  const provider = await startProvider(t);
  const { gateway, key } = await start(t, [
    at(provider.url, { requests_per_minute: 2, queue_ms: 0 }),
    at(provider.url, { key: '${OTHER_KEY}', requests_per_minute: 3, queue_ms: 0 }),
    at(provider.url, { key: undefined, priority: 2, requests_per_minute: 1, queue_ms: 0 }),
  ]);
  const statuses: number[] = [];
  for (let n = 0; n < 7; n++) statuses.push((await gateway.chat(key, 'Hello')).status);
  t.same(statuses, [200, 200, 200, 200, 200, 200, 503]);
  const of = (wanted: string): number => provider.calls.filter((call) => call.key === wanted).length;
  t.same([of(KEY), of('sk-two'), of('')], [2, 3, 1]);
  t.equal(provider.calls.at(-1)?.key, '', 'the second priority last');
});

void t.test('models that name one url and key share its limit, unless it is by model', async (t) => {
  const provider = await startProvider(t);
  const shared = at(provider.url, { requests_per_minute: 2, queue_ms: 0 });
  const byModel = at(`${provider.url}/x`, { requests_per_minute: 1, queue_ms: 0, quota_scope: 'model' });
  const { gateway, key } = await start(t, [shared], {
    models: [
      // Its own limit is left out: that of the key holds.
      { id: 'second', upstreams: [at(provider.url, { queue_ms: 0 })] },
      { id: 'third', upstreams: [byModel] },
      { id: 'fourth', upstreams: [byModel] },
    ],
  });
  const call = async (model: string): Promise<number> => (await gateway.chat(key, 'Hello', { model })).status;
  t.same(
    [await call(TEST_MODEL), await call('second'), await call('second'), await call(TEST_MODEL)],
    [200, 200, 503, 503],
  );
  t.same([await call('third'), await call('fourth'), await call('third')], [200, 200, 503]);
});

void t.test('tokens are held by what a call may use, and settled to what it used', async (t) => {
  const provider = await startProvider(t, {
    answerMs: 200,
    tokens: { prompt: 20, completion: 30 },
    // The third call fails.
    statusOf: (call) => (call === 2 ? 500 : 200),
  });
  const { gateway, key } = await start(t, [
    at(provider.url, { tokens_per_minute: 500, queue_ms: 0, breaker_failures: 0 }),
  ]);
  const call = (more: object): Promise<number> =>
    gateway.chat(key, 'Hello', more).then(({ status }) => status);
  const beyond = await gateway.chat(key, 'x'.repeat(500));
  t.equal(beyond.status, 400, beyond.body);
  t.match(beyond.json(), { error: { code: 'invalid_parameters', message: /500 a minute/ } });
  // Each may use some 200: two fit at a time.
  const four = await Promise.all([100, 100, 100, 100].map((tokens) => call({ max_tokens: tokens })));
  t.same(four.sort(), [200, 200, 503, 503]);
  t.match((await upstreamsOf(gateway))[0], { quotas: [{ limit: 500, used: 100 }] }, 'what was used counts');
  t.equal(await call({ max_tokens: 100 }), 502, 'a failure of the provider');
  t.match((await upstreamsOf(gateway))[0], { quotas: [{ used: 100 }] }, 'which used nothing');
});

void t.test(
  'in any 60 seconds a key gets no more, from all workers and processes',
  { timeout: 600_000 },
  async (t) => {
    const TOKENS = 50;
    const provider = await startProvider(t, { answerMs: 20, tokens: { prompt: 20, completion: 30 } });
    const REQUESTS_MAX = 300;
    const TOKENS_MAX = 5_000;
    const { gateway, key } = await start(
      t,
      [
        at(provider.url, { requests_per_minute: REQUESTS_MAX, queue_ms: 100, calls_in_flight: 6 }),
        at(provider.url, { key: '${OTHER_KEY}', priority: 2, tokens_per_minute: TOKENS_MAX, queue_ms: 100 }),
      ],
      { processes: PROCESSES },
    );
    const statuses = await hammer([gateway], key);
    t.same([...statuses].sort(), [200, 503]);
    const requests = provider.mostInMinute(KEY, 'beganMs', () => 1);
    t.ok(requests <= REQUESTS_MAX, `${requests} requests of ${REQUESTS_MAX}`);
    t.ok(requests >= REQUESTS_MAX * USED_LEAST, `${requests} requests of ${REQUESTS_MAX}`);
    t.ok(provider.mostInFlight(KEY) <= 6);
    const tokens = provider.mostInMinute('sk-two', 'endedMs', () => TOKENS);
    t.ok(tokens <= TOKENS_MAX, `${tokens} tokens of ${TOKENS_MAX}`);
    t.ok(tokens >= TOKENS_MAX * USED_LEAST, `${tokens} tokens of ${TOKENS_MAX}`);
  },
);

void t.test('two hosts keep the limits of a key together', { timeout: 600_000, ...NO_REDIS }, async (t) => {
  const provider = await startProvider(t, { answerMs: 20, tokens: { prompt: 20, completion: 30 } });
  const limits = { requests_per_minute: 300, tokens_per_minute: 12_000, calls_in_flight: 8 };
  // Without a key the url alone is the scope.
  const upstream = { url: provider.url, ...limits, queue_ms: 100 };
  const { hosts } = await startHosts(t, { count: 2, settings: { upstream } });
  const gateways = hosts.map(({ gateway }) => gateway);
  const { key } = await gateways[0]!.admin.customer();
  for (const gateway of gateways) await knownEverywhere(gateway, key);
  const statuses = await hammer(gateways, key);
  t.same([...statuses].sort(), [200, 503]);
  const requests = provider.mostInMinute('', 'beganMs', () => 1);
  const tokens = provider.mostInMinute('', 'endedMs', (call) => call.tokens);
  t.ok(requests <= 300, `${requests} requests of 300`);
  t.ok(tokens <= 12_000, `${tokens} tokens of 12000`);
  t.ok(provider.mostInFlight('') <= 8, `${provider.mostInFlight('')} at a time`);
  t.ok(Math.max(requests / 300, tokens / 12_000) >= USED_LEAST, 'most of it can be used');
});
