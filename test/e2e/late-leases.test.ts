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
import { eventually } from '../support/gateway.js';

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

void t.test('calls wait for their leases while a process is held up', { timeout: 120_000 }, async (t) => {
  const { gateway } = await startBed(t, { processes: 2 });
  await eventually('both serve', () =>
    gateway.log().filter((line) => line.includes('"gateway serves"')).length >= 2 ? true : undefined,
  );
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
