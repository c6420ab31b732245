/**
 * A gateway in a memory cgroup, as a container has one, under many large hostile bodies at once: it is not killed, it answers the small
 * calls of others in time, and the memory comes back.
 */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import t, { type Test } from 'tap';
import { PLAIN_THREAD } from '../../bench/support/plain-node.js';
import type { Flood, FloodEnds } from '../fixtures/body-flood.worker.js';
import { eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { BODY_KINDS, type BodyKind } from '../support/hostile-bodies.js';
import { keepAliveAgent } from '../support/http.js';
import { MachineLag } from '../support/machine-lag.js';
import { MemoryCgroup } from '../support/memory-cgroup.js';
import { startMock } from '../support/mock.js';

const MIB = 1024 * 1024;
const BODY_BYTES = 10 * MIB;
const FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const SMALL_PERIOD_MS = 10;
const SMALL_P99_MS = 100;
const KINDS: readonly BodyKind[] = ['plain', 'escapes', 'model', 'poor', 'paid'];
/** Customers of each kind: no account may take all of the budget. */
const CALLERS = 4;

const CASES = FULL
  ? [
      { mib: 384, count: 200 },
      { mib: 512, count: 200 },
      { mib: 1_024, count: 200 },
    ]
  : [{ mib: 384, count: 60 }];

async function flood(gateway: Gateway, count: number, kinds: readonly BodyKind[]): Promise<FloodEnds> {
  const keysOf = async (kind: BodyKind): Promise<string[]> => {
    const credit = kind === 'poor' ? '0.000001' : '100000.00';
    const customers = Array.from({ length: CALLERS }, () => gateway.admin.customer({ credit }));
    return (await Promise.all(customers)).map(({ key }) => key);
  };
  const keys = Object.fromEntries(
    await Promise.all(BODY_KINDS.map(async (kind) => [kind, await keysOf(kind)])),
  ) as Flood['keys'];
  const worker = new Worker(new URL('../fixtures/body-flood.worker.js', import.meta.url), {
    ...PLAIN_THREAD,
    workerData: { port: gateway.port, bodyBytes: BODY_BYTES, count, kinds, keys } satisfies Flood,
  });
  const [ends] = (await once(worker, 'message')) as [FloodEnds];
  return ends;
}

/** Small calls one after another, at a steady pace, until `isOver`. */
async function smallCalls(
  gateway: Gateway,
  key: string,
  isOver: () => boolean,
): Promise<{ readonly statuses: number[]; readonly p99Ms: number }> {
  const agent = keepAliveAgent(100);
  const tookMs: number[] = [];
  const calls: Promise<number>[] = [];
  while (!isOver()) {
    const beganMs = performance.now();
    calls.push(
      gateway
        .request(key, {
          agent,
          body: { model: 'mock-model', messages: [{ role: 'user', content: 'Hello' }] },
        })
        .then(
          ({ status }) => {
            tookMs.push(performance.now() - beganMs);
            return status;
          },
          () => 0,
        ),
    );
    await sleep(SMALL_PERIOD_MS);
  }
  const statuses = await Promise.all(calls);
  agent.destroy();
  tookMs.sort((left, right) => left - right);
  return { statuses, p99Ms: tookMs[Math.ceil(tookMs.length * 0.99) - 1] ?? Infinity };
}

async function underFlood(t: Test, mib: number, count: number): Promise<void> {
  const group = MemoryCgroup.create(t, mib * MIB);
  if (group === undefined) {
    t.pass('no memory cgroup can be made on this machine', { skip: 'needs root and a memory cgroup' });
    return;
  }
  const mock = await startMock(t);
  const gateway = await startGateway(t, { config: testSettings(mock.url), launcher: group.launcher });
  const pid = gateway.pid();
  const { key } = await gateway.admin.customer();
  const restingMib = group.residentBytes() / MIB;

  let peakMib = 0;
  const watch = setInterval(() => (peakMib = Math.max(peakMib, group.residentBytes() / MIB)), 20);
  t.teardown(() => clearInterval(watch));
  const lag = new MachineLag(gateway.folder);
  let isOver = false;
  const [ends, small] = await Promise.all([
    flood(gateway, count, KINDS).finally(() => (isOver = true)),
    smallCalls(gateway, key, () => isOver),
  ]);
  const lagMs = await lag.end();
  clearInterval(watch);

  t.comment(
    `${mib} MiB, ${count} bodies: resting ${restingMib.toFixed(0)} MiB, peak ${peakMib.toFixed(0)} MiB; ` +
      `${small.statuses.length} small calls, p99 ${small.p99Ms.toFixed(0)} ms, machine late by ${lagMs.toFixed(0)} ms`,
  );
  t.comment(JSON.stringify(ends, undefined, 1));
  t.equal(group.kills(), 0, 'nothing was killed for want of memory');
  t.equal(gateway.pid(), pid, 'the gateway that served before serves now');
  t.ok(peakMib < mib, `resident memory stayed below the limit: ${peakMib.toFixed(0)} MiB`);
  t.ok(
    small.statuses.every((status) => status === 200),
    `all ${small.statuses.length} small calls were answered`,
  );
  t.ok(small.p99Ms <= SMALL_P99_MS + lagMs, `p99 ${small.p99Ms.toFixed(0)} ms, lag ${lagMs.toFixed(0)} ms`);
  const unanswered = Object.keys(ends).filter((how) => !/: (200|400|403|413|503)/.test(how));
  t.strictSame(unanswered, [], 'each body has its answer');
  t.notOk(
    Object.keys(ends).some((how) => /^(poor|model): 200/.test(how)),
    'nobody was served for nothing',
  );
  await eventually('the budget to be free again', async () => {
    const { body } = await gateway.admin.send('GET', '/metrics');
    return /^tollgate_bodies_in_work_bytes 0$/m.test(body) ? true : undefined;
  });
  await eventually('memory to come back', () =>
    group.residentBytes() / MIB < restingMib + (mib - restingMib) * 0.6 ? true : undefined,
  );
  t.comment(`afterwards ${(group.residentBytes() / MIB).toFixed(0)} MiB`);
}

for (const { mib, count } of CASES) {
  void t.test(`${count} hostile bodies of 10 MiB at once in ${mib} MiB`, (t) => underFlood(t, mib, count));
}
