/**
 * What compose.hosts.yaml brings up, without an engine: Debian's HAProxy and Redis in place of the images,
 * two gateways, and the very files of deploy/ with nothing changed in them but addresses.
 */
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { parse } from 'yaml';
import { freePort } from '../support/free-port.js';
import { eventually, startGateway, temporaryFolder, type Gateway } from '../support/gateway.js';
import { request, type Answer } from '../support/http.js';
import { scrape } from '../support/metrics.js';
import { startMock, steered, type Mock } from '../support/mock.js';
import { NO_REDIS, startRedis } from '../support/redis-server.js';
import { NO_HAPROXY } from './haproxy.js';

const MODEL = 'gpt-4o-mini';
const PASSWORD = 'a-word';
/** Of the plan in tollgate.hosts.yaml. */
const PER_MINUTE = 60;
const MINUTE_MS = 60_000;
const SHARE = 0.9;
/** All of them at the right one of two by luck: once in 2^16 times. */
const REPEATED = 8;
/** Connections of the balancer's own, which is not to want more descriptors than this machine gives. */
const BALANCER_CONNECTIONS = '500';

interface Hosts {
  readonly mock: Mock;
  readonly gateways: readonly Gateway[];
  chat(
    key: string,
    prompt: string,
    more?: object,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Answer>;
}

const deployed = (name: string): string => readFileSync(`deploy/${name}`, 'utf8');

/** What the file says the server is started with. */
function valkeyWords(): readonly string[] {
  const { services } = parse(deployed('compose.hosts.yaml'), { merge: true }) as {
    services: { valkey: { command: readonly [string, string, string] } };
  };
  const words = services.valkey.command[2].split(' ').slice('exec valkey-server'.split(' ').length);
  return words.map((word) => (word === '"$$VALKEY_PASSWORD"' ? PASSWORD : word));
}

async function startHosts(t: Test): Promise<Hosts> {
  const mock = await startMock(t, ['--chunks', '3']);
  const redis = await startRedis(t, valkeyWords());
  const config = deployed('tollgate.hosts.yaml')
    .replace('https://api.openai.com/v1', mock.url)
    .replace('redis://valkey:6379/0', redis.url);
  const gateways = [];
  for (let index = 0; index < 2; index++) {
    const env = { OPENAI_API_KEY: 'a-key', VALKEY_PASSWORD: PASSWORD };
    gateways.push(await startGateway(t, { config, env }));
  }
  const balancer = await freePort();
  // Containers have an address each and the same ports; here it is the other way round.
  const addressed = gateways.reduce(
    (text, { port, admin }, index) =>
      text.replaceAll(`gateway-${index + 1}:8080`, `127.0.0.1:${port} port ${admin.port}`),
    deployed('haproxy.cfg').replace('bind :8080', `bind 127.0.0.1:${balancer}`),
  );
  const file = join(temporaryFolder(t), 'haproxy.cfg');
  writeFileSync(file, addressed);
  const child = spawn('haproxy', ['-db', '-n', BALANCER_CONNECTIONS, '-f', file], { stdio: 'ignore' });
  t.teardown(() => child.kill('SIGKILL'));
  await eventually('an answer through the balancer', async () => {
    const { status } = await request({ port: balancer, path: '/v1/models' });
    return status === 401 ? true : undefined;
  });
  const chat: Hosts['chat'] = (key, prompt, more = {}, headers = {}) =>
    request({
      port: balancer,
      path: '/v1/chat/completions',
      headers: { authorization: `Bearer ${key}`, ...headers },
      body: { model: MODEL, messages: [{ role: 'user', content: prompt }], ...more },
    });
  return { mock, gateways, chat };
}

/** A key of an account of its own that both gateways know. */
async function customer({ gateways }: Hosts): Promise<string> {
  const { key } = await gateways[0]!.admin.customer({ plan: 'free', credit: '100.00' });
  await eventually('the key at the other gateway', async () => {
    const { status } = await gateways[1]!.request(key, { method: 'GET', path: '/v1/models' });
    return status === 200 ? true : undefined;
  });
  return key;
}

async function answered({ admin }: Gateway): Promise<number> {
  const { samples } = await scrape(admin.port);
  return samples
    .filter(({ name, labels }) => name === 'tollgate_requests_total' && labels.status === '200')
    .reduce((sum, { value }) => sum + value, 0);
}

async function limits(t: Test, hosts: Hosts): Promise<void> {
  const key = await customer(hosts);
  const before = await Promise.all(hosts.gateways.map(answered));
  const began = performance.now();
  const statuses: number[] = [];
  // The look at /v1/models was a request as well.
  while (statuses.length < 2 * PER_MINUTE) {
    const answers = await Promise.all(Array.from({ length: 6 }, () => hosts.chat(key, 'Hello')));
    statuses.push(...answers.map(({ status }) => status));
  }
  const tookMs = performance.now() - began;
  const admitted = statuses.filter((status) => status === 200).length;
  t.comment(`${admitted} of ${statuses.length} in ${tookMs.toFixed(0)} ms`);
  t.same([...new Set(statuses)].sort(), [200, 429]);
  // In more than a minute more may be admitted, by right.
  const most = PER_MINUTE * Math.ceil(tookMs / MINUTE_MS);
  t.ok(admitted <= most, 'both together stay within the limit of one');
  t.ok(admitted >= SHARE * PER_MINUTE, 'which is not halved either');
  const after = await Promise.all(hosts.gateways.map(answered));
  after.forEach((count, index) => t.ok(count > before[index]!, `gateway-${index + 1} served callers`));
}

async function streams(t: Test, hosts: Hosts): Promise<void> {
  const key = await customer(hosts);
  const answer = await hosts.chat(key, steered('chunk_ms=50'), { stream: true });
  t.equal(answer.status, 200);
  t.match(answer.headers['content-type'], 'text/event-stream');
  t.ok(answer.body.endsWith('data: [DONE]\n\n'), 'whole');
}

async function repeats(t: Test, hosts: Hosts): Promise<void> {
  const key = await customer(hosts);
  await hosts.mock.resetStats();
  for (let call = 0; call < REPEATED; call++) {
    for (let time = 0; time < 3; time++) {
      const { status } = await hosts.chat(key, 'Hello', {}, { 'idempotency-key': `call-${call}` });
      t.equal(status, 200);
    }
  }
  t.equal((await hosts.mock.stats()).requests, REPEATED, 'the other gateway would have asked once more');
}

async function drains(t: Test, hosts: Hosts): Promise<void> {
  const [streaming, calling] = [await customer(hosts), await customer(hosts)];
  // The second goes where there are fewer: each gateway has one.
  const prompt = steered('chunks=30&chunk_ms=100');
  const streams: Promise<Answer>[] = [];
  for (const begun of [1, 2]) {
    streams.push(hosts.chat(streaming, prompt, { stream: true }));
    await eventually('a stream', async () => ((await hosts.mock.stats()).open === begun ? true : undefined));
  }
  const left = new AbortController();
  const leaving = hosts.gateways[0]!.stop().finally(() => left.abort());
  const statuses = [];
  // Some after it has left, and not so many that the plan's limit is met.
  for (let after = 0; after < 5 && statuses.length < PER_MINUTE - 10; after += left.signal.aborted ? 1 : 0) {
    statuses.push((await hosts.chat(calling, 'Hello')).status);
    await sleep(100);
  }
  t.equal(await leaving, 0);
  t.same(
    [...new Set(statuses)],
    [200],
    `none of ${statuses.length} calls failed while one of two gateways left`,
  );
  for (const stream of streams)
    t.ok((await stream).body.endsWith('data: [DONE]\n\n'), 'nor a stream that had begun');
}

const missing = { ...NO_REDIS, ...NO_HAPROXY };
void t.test('two gateways behind one port', missing, async (t) => {
  const hosts = await startHosts(t);
  await t.test('share their limits', (t) => limits(t, hosts));
  await t.test('stream', (t) => streams(t, hosts));
  await t.test('repeat an answer with its Idempotency-Key', (t) => repeats(t, hosts));
  await t.test('leave one after the other', (t) => drains(t, hosts));
});
