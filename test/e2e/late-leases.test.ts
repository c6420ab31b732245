/**
 * A process that for seconds does not get at the leases of all, as after a kill -9 at the wrong moment, tells
 * nobody that a limit is used up: its calls wait and are served. The test holds the lock of the file of
 * leases meanwhile (store/environment.ts).
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import t, { type Test } from 'tap';
import { startBed } from '../support/bed.js';
import { eventually, knownEverywhere, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { startMock } from '../support/mock.js';

const ACCOUNTS = 6;
const CALLERS = 24;
/** Longer than any call waits for what others may give back, see sharing/lease-waits.ts. */
const HELD_MS = 2_500;
const SERVED_MS = 2_000;

/** Takes the lock and keeps it until the test has set the word. */
const HOLDER = `
  const { parentPort, workerData } = require('node:worker_threads');
  const gate = require('lmdb').open(workerData.path, { maxDbs: 1, mapSize: 65536, noSync: true, noMetaSync: true });
  gate.transactionSync(() => {
    parentPort.postMessage('held');
    Atomics.wait(workerData.word, 0, 0);
  });
  gate.close();
`;

/** Resolves when the lock is held; returns what frees it. */
async function holdLeases(t: Test, dataFolder: string): Promise<() => Promise<void>> {
  const file = readdirSync(dataFolder).find((name) => /^leases\..*-gate$/.test(name))!;
  const word = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(HOLDER, { eval: true, workerData: { path: join(dataFolder, file), word } });
  const ended = once(worker, 'exit');
  const free = async (): Promise<void> => {
    Atomics.store(word, 0, 1);
    Atomics.notify(word, 0);
    await ended;
  };
  t.teardown(free);
  t.same(await once(worker, 'message'), ['held']);
  return free;
}

const bothServe = (gateway: Gateway): Promise<unknown> =>
  eventually('both serve', () =>
    gateway.log().filter((line) => line.includes('"gateway serves"')).length >= 2 ? true : undefined,
  );

void t.test('calls wait for their leases while a process is held up', { timeout: 120_000 }, async (t) => {
  const { gateway } = await startBed(t, { processes: 2 });
  await bothServe(gateway);
  const customers = await Promise.all(Array.from({ length: ACCOUNTS }, () => gateway.admin.customer()));
  const free = await holdLeases(t, gateway.dataFolder);
  const told: string[] = [];
  let isOver = false;
  const call = async (key: string): Promise<void> => {
    while (!isOver) {
      const { status, body } = await gateway.chat(key, 'Hello');
      told.push(status === 200 ? 'served' : body);
    }
  };
  const callers = customers.flatMap(({ key }) => Array.from({ length: CALLERS }, () => call(key)));
  await sleep(HELD_MS);
  await free();
  await sleep(SERVED_MS);
  isOver = true;
  await Promise.all(callers);
  t.ok(told.length > callers.length, `${told.length} calls`);
  t.same(new Set(told), new Set(['served']));
  t.equal(await gateway.stop(), 0);
});

void t.test('nor is a limit of an upstream said to be used up', { timeout: 120_000 }, async (t) => {
  const [mock, other] = await Promise.all([startMock(t), startMock(t)]);
  const { models, ...settings } = testSettings(mock.url, { processes: 2 }) as { models: object[] };
  const upstreams = [{ url: other.url, requests_per_minute: 1_000, queue_ms: 0 }];
  const limited = { ...models[0], id: 'limited', upstreams };
  const gateway = await startGateway(t, { config: { ...settings, models: [...models, limited] } });
  await bothServe(gateway);
  const { key } = await gateway.admin.customer();
  await knownEverywhere(gateway, key);
  const calls = (model: object): Promise<Awaited<ReturnType<Gateway['chat']>>[]> =>
    Promise.all(Array.from({ length: CALLERS }, () => gateway.chat(key, 'Hello', model)));
  // So that both processes hold leases of the account, and none of the upstream.
  await calls({});
  await calls({});
  const free = await holdLeases(t, gateway.dataFolder);
  const held = calls({ model: 'limited' });
  await sleep(HELD_MS);
  await free();
  const told = (await held).filter(({ status }) => status !== 200).map(({ body }) => body);
  t.ok(told.length > 0, `${told.length} calls were not served in time`);
  t.same(
    told.filter((body) => !/could not (be found|find) out in time/.test(body)),
    [],
  );
  t.equal((await gateway.chat(key, 'Hello', { model: 'limited' })).status, 200, 'then it is served');
  t.equal(await gateway.stop(), 0);
});
