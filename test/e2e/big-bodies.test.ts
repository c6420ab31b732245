/**
 * Large bodies and long counts keep nobody waiting. The machine has other work, which comes and goes: what is
 * asked for must be seen in one of some rounds, and as much late as everything is at rest is allowed besides.
 * Figures are printed. A thread that stalled would show it in all rounds.
 */
import { readFileSync, readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { startBed } from '../support/bed.js';
import { TEST_MODEL, eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { keepAliveAgent, request } from '../support/http.js';
import { startMock, steered } from '../support/mock.js';
import { openStream } from '../support/sse.js';

const BODY_CHARS = 4_000_000;
/**
 * How many come a second: a translation takes several times the CPU of a body that passes, and the machine
 * has two cores for all. And by how much p99 may grow besides: so many times that beside the same bodies on
 * their way past the gateway. On some machines it is 46 to 49 ms with translations, and 15 to 17 past the
 * gateway.
 */
const LARGE = {
  openai: { perSecond: 10, growthPast: 1 },
  anthropic: { perSecond: 4, growthPast: 2.5 },
} as const;
/**
 * At most 375 small calls, one after the other, beside 5 large bodies at least: if each body holds one up,
 * p99 sees it.
 */
const MEASURE_MS = 1_500;
const SMALL_PAUSE_MS = 4;
const WARM_MS = 500;
const ROUNDS = 8;
const GROWTH_MS_MAX = 10;
const STREAMS = 200;
const CHUNK_MS = 50;
const PROMPT_CHARS = 3_000_000;
/** The count itself takes several hundred. */
const GAP_GROWTH_MS_MAX = 30;
const GAPS_MS = 1_200;

/** Of a counter thread, in upstream/counter-task.ts. */
const COUNTER_NICENESS = 5;

/** Of the process's threads: the 17th field behind the name in parentheses. */
const nicenesses = (pid: number): Set<number> =>
  new Set(
    readdirSync(`/proc/${pid}/task`).map((thread) => {
      const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8');
      return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[16]);
    }),
  );

const p99Of = (values: number[]): number =>
  values.sort((a, b) => a - b)[Math.floor((values.length - 1) * 0.99)]!;

/** A body of some four megabytes, every sixth of its characters outside of ASCII. */
const largeBody = (chars: number, query = 'bytes=20', model = TEST_MODEL): Buffer =>
  Buffer.from(
    JSON.stringify({
      model,
      messages: [{ role: 'user', content: steered(query, 'plain é "quoted" words '.repeat(chars / 23)) }],
    }),
  );

async function smallP99Ms(gateway: Gateway, key: string, measureMs = MEASURE_MS): Promise<number> {
  const agent = keepAliveAgent(1);
  const tookMs: number[] = [];
  const endMs = performance.now() + measureMs;
  const body = { model: TEST_MODEL, messages: [{ role: 'user', content: 'Hello' }] };
  while (performance.now() < endMs) {
    const startMs = performance.now();
    await gateway.request(key, { body, agent });
    tookMs.push(performance.now() - startMs);
    await sleep(SMALL_PAUSE_MS);
  }
  agent.destroy();
  return p99Of(tookMs);
}

/** Runs `round` until it is true, ROUNDS times at most; whether it was. */
async function onceOf(round: () => Promise<boolean>): Promise<boolean> {
  for (let count = 0; count < ROUNDS; count += 1) if (await round()) return true;
  return false;
}

/** Posts `body` to a port `perSecond` times a second while `during` runs; its result. */
async function beside<T>(
  t: Test,
  port: number,
  key: string,
  body: Buffer,
  perSecond: number,
  during: () => Promise<T>,
): Promise<T> {
  const agent = keepAliveAgent(perSecond);
  const headers = { authorization: `Bearer ${key}` };
  const statuses: Promise<number>[] = [];
  const timer = setInterval(() => {
    const answer = request({ port, path: '/v1/chat/completions', headers, body, agent });
    statuses.push(answer.then(({ status }) => status));
  }, 1_000 / perSecond);
  const result = await during();
  clearInterval(timer);
  t.same([...new Set(await Promise.all(statuses))], [200], `${statuses.length} large bodies were served`);
  agent.destroy();
  return result;
}

void t.test('bodies of 4 MB beside small calls', async (t) => {
  const [mock, passedBy] = await Promise.all([startMock(t), startMock(t)]);
  const { models } = testSettings(mock.url) as { models: object[] };
  // The large bodies have upstreams of their own: one that reads 4 MB answers nobody meanwhile.
  const largeMocks = await Promise.all(
    Object.keys(LARGE).map(async (provider) => {
      const largeMock = await startMock(t, ['--provider', provider]);
      const url = provider === 'openai' ? largeMock.url : largeMock.origin;
      const upstreams = [{ provider, url, key: '${SECRET}', model: 'claude-sonnet-4-5' }];
      models.push({ ...models[0], id: `large-${provider}`, upstreams });
      return largeMock;
    }),
  );
  const config = testSettings(mock.url, { models });
  const gateway = await startGateway(t, { config, env: { SECRET: 'sk-upstream-1' } });
  const { key } = await gateway.admin.customer({ credit: '100000.00' });
  await smallP99Ms(gateway, key, WARM_MS);

  for (const [index, [provider, { perSecond, growthPast }]] of Object.entries(LARGE).entries())
    await t.test(`${perSecond} a second, ${provider}`, async (t) => {
      const model = `large-${provider}`;
      const body = largeBody(BODY_CHARS, 'bytes=20', model);
      t.equal((await gateway.request(key, { body })).status, 200);
      const sent = (await largeMocks[index]!.stats()).last!.body;
      if (provider === 'openai')
        t.equal(sent, body.toString().replace(model, 'claude-sonnet-4-5'), 'byte for byte');
      else t.ok(sent.length > BODY_CHARS, 'translated');
      const isSeen = await onceOf(async () => {
        // The same bodies past the gateway take the same cores from clients and upstreams.
        const pastMs = await beside(t, passedBy.port, key, body, perSecond, () => smallP99Ms(gateway, key));
        const throughMs = await beside(t, gateway.port, key, body, perSecond, () => smallP99Ms(gateway, key));
        t.comment(
          `p99 of small calls ${pastMs.toFixed(1)} ms while large ones pass the gateway by, ` +
            `${throughMs.toFixed(1)} ms beside them`,
        );
        return throughMs - pastMs < GROWTH_MS_MAX + growthPast * pastMs;
      });
      t.ok(isSeen, `grows by less than ${GROWTH_MS_MAX} ms`);
    });
  t.equal(await gateway.stop(), 0);
});

void t.test('a model name is replaced in bytes, a clamp lowers max_tokens in bytes', async (t) => {
  const { gateway, mock } = await startBed(t, {
    upstream: { model: 'their/model' },
    low_balance: 'clamp',
  });
  // The prompt's bound is some 4.2 MB × 1.5 a million = 6.3; the output's 1,000 × 2.25 a million.
  const body = largeBody(BODY_CHARS);
  const promptCost = (body.length * 1.5) / 1e6;
  const { key } = await gateway.admin.customer({ credit: (promptCost + 0.001).toFixed(6) });
  t.equal((await gateway.request(key, { body })).status, 200);
  const sent = JSON.parse((await mock.stats()).last!.body) as { model: string; max_tokens: number };
  t.equal(sent.model, 'their/model');
  t.ok(sent.max_tokens > 0 && sent.max_tokens < 1_000, `max_tokens ${sent.max_tokens}`);
  t.same(
    { ...sent, model: TEST_MODEL, max_tokens: undefined },
    { ...(JSON.parse(body.toString()) as object), max_tokens: undefined },
  );
  t.equal(await gateway.stop(), 0);
});

void t.test('a long count beside 200 streams of the same worker', async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer({ credit: '100000.00' });
  const gapsMs: number[] = [];
  const query = `chunks=900&bytes=9000&chunk_ms=${CHUNK_MS}`;
  const streams = await Promise.all(
    Array.from({ length: STREAMS }, async () => {
      const stream = await openStream(gateway.port, key, {
        model: TEST_MODEL,
        messages: [{ role: 'user', content: steered(query) }],
        stream: true,
      });
      let lastMs = performance.now();
      stream.incoming.on('data', () => {
        const nowMs = performance.now();
        gapsMs.push(nowMs - lastMs);
        lastMs = nowMs;
      });
      stream.incoming.on('error', () => undefined);
      return stream;
    }),
  );
  const body = largeBody(PROMPT_CHARS, 'bytes=20&usage=missing');
  // The first count loads the table.
  t.equal((await gateway.request(key, { body })).status, 200);
  const p99GapMs = async (): Promise<number> => {
    gapsMs.length = 0;
    await sleep(GAPS_MS);
    return p99Of(gapsMs.splice(0));
  };
  const isSeen = await onceOf(async () => {
    const restMs = await p99GapMs();
    const answer = gateway.request(key, { body });
    const busyMs = await p99GapMs();
    t.equal((await answer).status, 200);
    t.comment(
      `p99 gap of ${STREAMS} streams ${restMs.toFixed(1)} ms, during the count ${busyMs.toFixed(1)} ms`,
    );
    return busyMs - restMs < GAP_GROWTH_MS_MAX + (restMs - CHUNK_MS);
  });
  t.ok(isSeen, `grows by less than ${GAP_GROWTH_MS_MAX} ms`);
  t.ok(nicenesses(gateway.pid()).has(COUNTER_NICENESS), 'the counter gives way where cores are short');
  for (const { outgoing } of streams) outgoing.destroy();
  await eventually('no call in flight', async () => {
    const status = (await gateway.admin.send('GET', '/admin/v1/status')).json();
    return (status as { calls_in_flight: number }).calls_in_flight === 0 ? true : undefined;
  });
  t.equal(await gateway.stop(), 0);
});
