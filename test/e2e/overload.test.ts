/**
 * More than the gateway may take: calls beyond its bounds are refused at once, and file descriptors that run
 * out harm nobody for longer than they are missing.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { processTree } from '../../bench/support/proc.js';
import { startBed } from '../support/bed.js';
import { TEST_MODEL, eventually, knownEverywhere, type Gateway } from '../support/gateway.js';
import { keepAliveAgent } from '../support/http.js';
import { steered, type Mock } from '../support/mock.js';
import { RawConnection } from '../support/raw-connection.js';
import { openStream } from '../support/sse.js';

const CALLS_MAX = 30;
const ACCOUNT_CALLS_MAX = 20;
const REJECTIONS = 200;
/**
 * In the middle of many, over twice what the list of models takes between them: a refusal waits for nothing.
 */
const REFUSAL_MS_MAX = 5;
/** Accounts that have made no call, so none has a lease: of each process some. */
const FRESH_ACCOUNTS = 12;
/** A listener looks once in a second at the latest. */
const NOTICED_MS = 2_500;
const SLOW = { model: TEST_MODEL, messages: [{ role: 'user', content: steered('chunks=100&chunk_ms=200') }] };

const openCalls = (mock: Mock, count: number): Promise<boolean> =>
  eventually(`${count} open calls`, async () => ((await mock.stats()).open === count ? true : undefined));

const descriptors = (pid: number): number => readdirSync(`/proc/${pid}/fd`).length;

function limitDescriptors(pid: number, count: number): void {
  execFileSync('prlimit', ['--pid', String(pid), `--nofile=${count}:`]);
}

const nothingHeld = (gateway: Gateway, accountId: string): Promise<boolean> =>
  eventually('nothing held', async () =>
    Number((await gateway.admin.account(accountId)).held) === 0 ? true : undefined,
  );

void t.test('calls in flight are bounded, for an account and for all', async (t) => {
  const { gateway, mock } = await startBed(t, {
    limits: { calls_in_flight: CALLS_MAX, calls_in_flight_per_account: ACCOUNT_CALLS_MAX },
  });
  const first = await gateway.admin.customer();
  const second = await gateway.admin.customer();
  const open = (key: string, count: number) =>
    Promise.all(
      Array.from({ length: count }, () => openStream(gateway.port, key, { ...SLOW, stream: true })),
    );
  const agent = keepAliveAgent(1);
  t.teardown(() => agent.destroy());
  const refused = async (key: string, message: RegExp): Promise<number> => {
    const startMs = performance.now();
    const answer = await gateway.request(key, { body: { ...SLOW, stream: true }, agent });
    const tookMs = performance.now() - startMs;
    t.match(answer, { status: 503, headers: { 'retry-after': /^\d+$/ } });
    t.match(answer.json(), { error: { code: 'overloaded', type: 'server_error', message } });
    return tookMs;
  };

  const streams = await open(first.key, ACCOUNT_CALLS_MAX);
  await refused(first.key, /The account has/);
  streams.push(...(await open(second.key, CALLS_MAX - ACCOUNT_CALLS_MAX)));
  const refusedMs: number[] = [];
  const listedMs: number[] = [];
  for (let index = 0; index < REJECTIONS; index += 1) {
    refusedMs.push(await refused(second.key, /The gateway has/));
    const startMs = performance.now();
    await gateway.request(second.key, { method: 'GET', path: '/v1/models', agent });
    listedMs.push(performance.now() - startMs);
  }
  const [medianMs, usualMs] = [refusedMs, listedMs].map((ms) => ms.sort((a, b) => a - b)[REJECTIONS / 2]!);
  t.comment(`refused in ${medianMs!.toFixed(2)} ms, models listed in ${usualMs!.toFixed(2)} ms`);
  t.ok(medianMs! < REFUSAL_MS_MAX + 2 * usualMs!, 'refused at once');
  t.equal((await mock.stats()).open, CALLS_MAX, 'no refused call reached the upstream');

  for (const { outgoing } of streams) outgoing.destroy();
  await openCalls(mock, 0);
  await nothingHeld(gateway, first.accountId);
  t.equal((await gateway.chat(first.key, 'Hello')).status, 200, 'slots are free again');
  t.equal(await gateway.stop(), 0);
});

void t.test('file descriptors run out', async (t) => {
  const { gateway, mock } = await startBed(t);
  const { key, accountId } = await gateway.admin.customer();
  t.equal((await gateway.chat(key, 'Hello')).status, 200);
  const pid = gateway.pid();
  const restCount = descriptors(pid);
  limitDescriptors(pid, restCount + 20);

  const body = JSON.stringify({ ...SLOW, stream: true });
  const connections: RawConnection[] = [];
  const answers: string[] = [];
  for (let index = 0; index < 60; index += 1) {
    // The kernel takes the connection into its backlog, whether the gateway can accept it or not.
    const connection = await RawConnection.open(gateway.port);
    connection.send(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    connections.push(connection);
    answers.push('');
    connection.socket.on(
      'data',
      (bytes: Buffer) => (answers[index] = answers[index]! + bytes.toString('latin1')),
    );
  }
  const statuses = await eventually('an answer for all', () => {
    const heads = answers.map((text) => text.split('\r\n\r\n', 1)[0]!);
    return heads.every(Boolean) ? heads.map((head) => head.slice(9, 12)) : undefined;
  });
  t.equal(gateway.pid(), pid, 'it lives');
  const refused = answers.filter((text) => text.startsWith('HTTP/1.1 503'));
  t.comment(`${statuses.length - refused.length} streams, ${refused.length} refused`);
  t.same([...new Set(statuses)].sort(), ['200', '503'], 'served, or told to come again');
  for (const text of refused) {
    if (!/retry-after: \d+\r\n/i.test(text) || !text.includes('"code":"overloaded"')) t.fail(text);
  }

  for (const connection of connections) connection.socket.destroy();
  await openCalls(mock, 0);
  const answer = await eventually('service', async () => {
    const { status } = await gateway.chat(key, 'Hello');
    return status === 200 ? status : undefined;
  });
  t.equal(answer, 200, 'it serves again');
  t.equal(gateway.pid(), pid, 'the same process');
  await nothingHeld(gateway, accountId);
  const leftCount = await eventually('closed sockets', () => {
    const count = descriptors(pid);
    return count <= restCount + 20 ? count : undefined;
  });
  t.comment(`${restCount} descriptors before, ${leftCount} after`);
  t.same(
    gateway.log().filter((line) => line.includes('being replaced')),
    [],
  );
  t.equal(await gateway.stop(), 0);
});

void t.test('file descriptors run out where processes share the limits', async (t) => {
  const { gateway } = await startBed(t, { processes: 2 });
  await eventually('two processes that serve', () =>
    gateway.log().filter((line) => line.includes('"gateway serves"')).length === 2 ? true : undefined,
  );
  const keys = await Promise.all(
    Array.from({ length: FRESH_ACCOUNTS }, async () => (await gateway.admin.customer()).key),
  );
  for (const key of keys) await knownEverywhere(gateway, key);
  const body = JSON.stringify({ model: TEST_MODEL, messages: [{ role: 'user', content: 'Hello' }] });
  const callOf = (key: string): string =>
    `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  const kept: RawConnection[] = [];
  for (const key of keys) {
    const connection = await RawConnection.open(gateway.port);
    connection.send(`GET /v1/models HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer ${key}\r\n\r\n`);
    t.equal((await connection.answer()).status, 200);
    kept.push(connection);
  }
  const pids = processTree(gateway.child.pid);
  for (const pid of pids) limitDescriptors(pid, 4);
  await sleep(NOTICED_MS);
  // No account has made a call: each must ask for a lease of its minute.
  const statuses = await Promise.all(
    kept.map(async (connection, index) => {
      connection.send(callOf(keys[index]!));
      const { status } = await connection.answer();
      await connection.closed;
      return status;
    }),
  );
  t.same([...new Set(statuses)], [503], 'each is told to come again');
  for (const pid of pids) limitDescriptors(pid, 4_096);
  await eventually('service', async () => {
    const { status } = await gateway.chat(keys[0]!, 'Hello');
    return status === 200 ? status : undefined;
  });
  t.same(
    gateway.log().filter((line) => line.includes('being replaced')),
    [],
  );
  t.equal(await gateway.stop(), 0);
});
