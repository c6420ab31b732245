/**
 * A gateway in a memory cgroup, as a container has one, under many large hostile bodies at once: it is not
 * killed, it answers the small calls of others in time, and the memory comes back. That bound catches what
 * keeps 1 MiB of each body, and in the full form 70 KB. What stays of small calls, e2e/call-memory.test.ts
 * looks at.
 */
import { once } from 'node:events';
import type { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import t, { type Test } from 'tap';
import type { Flood, FloodEnds, FloodJob } from '../fixtures/body-flood.worker.js';
import { eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { BODY_KINDS, type BodyKind } from '../support/hostile-bodies.js';
import { keepAliveAgent } from '../support/http.js';
import { MachineLag } from '../support/machine-lag.js';
import { MemoryCgroup } from '../support/memory-cgroup.js';
import { scrape } from '../support/metrics.js';
import { startMock } from '../support/mock.js';

const MIB = 1024 * 1024;
const BODY_BYTES = 10 * MIB;
const FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
/**
 * What may stay of it, in the full form: some seconds later, when V8 has looked at its threads. 64 MiB stayed
 * in the arenas of glibc.
 */
const STAYS_MIB_MAX = 40;
const SMALL_PERIOD_MS = 10;
/**
 * Of the calls made while the bodies come: 0.4 to 1.8 s, so nearly their worst. Of three bursts of 200 bodies
 * in 512 MiB, whose sender has a low priority, since its processor is not the gateway's, the median was 30 to
 * 90 ms, and 100 to 190 when a listener read and rejected all that came in a turn of its event loop.
 */
const SMALL_P99_MS = 100;
const BURSTS = 3;
const SENDER_NICENESS = 19;
const SMALL_CONNECTIONS = 20;
/** Of an upstream of its own: the other one reads bodies of 10 MiB, for which its small calls wait. */
const SMALL_MODEL = 'small-model';
/** Customers of each kind: no account may take all of the budget. */
const CALLERS = 4;

const CASES = FULL
  ? [
      { mib: 384, count: 200 },
      { mib: 512, count: 200 },
      { mib: 1_024, count: 200 },
    ]
  : [{ mib: 384, count: 60 }];

interface Burst {
  /** Of the small calls; 0 without a response. */
  readonly statuses: readonly number[];
  readonly p99Ms: number;
  readonly lagMs: number;
}

const told = (ms: readonly number[]): string => ms.map((one) => one.toFixed(0)).join(', ');

async function customersOf(gateway: Gateway): Promise<FloodJob['keys']> {
  const keysOf = async (kind: BodyKind): Promise<string[]> => {
    const credit = kind === 'poor' ? '0.000001' : '100000.00';
    const customers = Array.from({ length: CALLERS }, () => gateway.admin.customer({ credit }));
    return (await Promise.all(customers)).map(({ key }) => key);
  };
  const entries = BODY_KINDS.map(async (kind) => [kind, await keysOf(kind)]);
  return Object.fromEntries(await Promise.all(entries)) as FloodJob['keys'];
}

/** A sender that has made its bodies. */
async function startSender(t: Test, port: number, keys: FloodJob['keys']): Promise<Worker> {
  const worker = new Worker(new URL('../fixtures/body-flood.worker.js', import.meta.url), {
    workerData: {
      port,
      bodyBytes: BODY_BYTES,
      kinds: BODY_KINDS,
      keys,
      niceness: SENDER_NICENESS,
    } satisfies FloodJob,
  });
  t.teardown(() => worker.terminate());
  await once(worker, 'message');
  return worker;
}

async function flood(sender: Worker, count: number, atOnce: number): Promise<FloodEnds> {
  sender.postMessage({ count, atOnce } satisfies Flood);
  const [ends] = (await once(sender, 'message')) as [FloodEnds];
  return ends;
}

async function smallCall(gateway: Gateway, key: string, agent: Agent): Promise<number> {
  const body = { model: SMALL_MODEL, messages: [{ role: 'user', content: 'Hello' }] };
  return (await gateway.request(key, { agent, body })).status;
}

/** Small calls one after another, at a steady pace, until `isOver`. */
async function smallCalls(
  gateway: Gateway,
  key: string,
  agent: Agent,
  isOver: () => boolean,
): Promise<{ readonly statuses: number[]; readonly p99Ms: number }> {
  const tookMs: number[] = [];
  const calls: Promise<number>[] = [];
  while (!isOver()) {
    const beganMs = performance.now();
    calls.push(
      smallCall(gateway, key, agent).then(
        (status) => {
          tookMs.push(performance.now() - beganMs);
          return status;
        },
        () => 0,
      ),
    );
    await sleep(SMALL_PERIOD_MS);
  }
  const statuses = await Promise.all(calls);
  tookMs.sort((left, right) => left - right);
  return { statuses, p99Ms: tookMs[Math.ceil(tookMs.length * 0.99) - 1] ?? Infinity };
}

async function underFlood(t: Test, mib: number, count: number): Promise<void> {
  const group = MemoryCgroup.create(t, mib * MIB);
  if (group === undefined) {
    t.pass('no memory cgroup can be made on this machine', { skip: 'needs root and a memory cgroup' });
    return;
  }
  const [mock, smallMock] = await Promise.all([startMock(t), startMock(t)]);
  const { models } = testSettings(mock.url) as { models: object[] };
  const smallModel = { ...models[0], id: SMALL_MODEL, upstreams: [{ url: smallMock.url }] };
  const config = testSettings(mock.url, { models: [...models, smallModel] });
  const gateway = await startGateway(t, { config, launcher: group.launcher });
  const pid = gateway.pid();
  const { key } = await gateway.admin.customer();
  const restingMib = group.residentBytes() / MIB;

  let peakMib = 0;
  const watch = setInterval(() => (peakMib = Math.max(peakMib, group.residentBytes() / MIB)), 20);
  t.teardown(() => clearInterval(watch));
  const sender = await startSender(t, gateway.port, await customersOf(gateway));
  const bursts: Burst[] = [];
  const ends: Record<string, number> = {};
  for (let burst = 0; burst < BURSTS; burst++) {
    // Connections that there are: a burst of new ones overflows the kernel's queue, and whoever waits there
    // waits for a second. Of this burst: one that has been idle for 8 s may end while a call is sent on it.
    const agent = keepAliveAgent(SMALL_CONNECTIONS);
    t.teardown(() => agent.destroy());
    await Promise.all(Array.from({ length: SMALL_CONNECTIONS }, () => smallCall(gateway, key, agent)));
    const lag = new MachineLag(gateway.folder);
    let isOver = false;
    const small = smallCalls(gateway, key, agent, () => isOver);
    const burstEnds = await flood(sender, count, count).finally(() => (isOver = true));
    for (const [how, times] of Object.entries(burstEnds)) ends[how] = (ends[how] ?? 0) + times;
    const { statuses, p99Ms } = await small;
    bursts.push({ statuses, p99Ms, lagMs: await lag.end() });
  }
  const statuses = bursts.flatMap((burst) => burst.statuses);
  const loops = (await scrape(gateway.admin.port)).samples
    .filter(({ name }) => name === 'tollgate_event_loop_delay_max_seconds')
    .map(({ labels, value }) => `${labels.thread ?? ''} ${(value * 1_000).toFixed(0)}`);
  // So few at a time that each is read, and not refused for want of memory.
  const readEnds = await flood(sender, 2 * BODY_KINDS.length, 1);
  clearInterval(watch);

  t.comment(
    `${mib} MiB, ${count} bodies: resting ${restingMib.toFixed(0)} MiB, peak ${peakMib.toFixed(0)} MiB; ` +
      `${statuses.length} small calls, p99 ${told(bursts.map(({ p99Ms }) => p99Ms))} ms, ` +
      `machine late by ${told(bursts.map(({ lagMs }) => lagMs))} ms`,
  );
  t.comment(`event loops late by at most, in ms: ${loops.join(', ')}`);
  t.comment(`at once: ${JSON.stringify(ends)}`);
  t.comment(`one by one: ${JSON.stringify(readEnds)}`);
  t.equal(group.kills(), 0, 'nothing was killed for want of memory');
  t.equal(gateway.pid(), pid, 'the gateway that served before serves now');
  t.ok(peakMib < mib, `resident memory stayed below the limit: ${peakMib.toFixed(0)} MiB`);
  t.ok(
    statuses.every((status) => status === 200),
    `all ${statuses.length} small calls were answered`,
  );
  // A call passes five threads of three processes, each of which may come as late as the machine has it.
  const overLagMs = bursts.map(({ p99Ms, lagMs }) => p99Ms - 5 * lagMs).sort((left, right) => left - right);
  const medianMs = overLagMs[Math.floor(BURSTS / 2)]!;
  t.ok(medianMs <= SMALL_P99_MS, `p99 ${medianMs.toFixed(0)} ms beyond the lag, within ${SMALL_P99_MS}`);
  t.notOk(
    Object.keys(readEnds).some((how) => how.includes('503')),
    'whoever is alone is not told 503',
  );
  const unanswered = (of: FloodEnds): string[] =>
    Object.keys(of).filter((how) => !/: (200|400|403|413|503)/.test(how));
  t.strictSame(unanswered(readEnds), [], 'each body has its answer');
  // Beyond what is read and thrown away in a second a refusal ends its connection, and a client that still
  // writes may not see it.
  const cut = unanswered(ends).filter(
    (how) => !/: (write EPIPE|read ECONNRESET|write ECONNRESET|closed)$/.test(how),
  );
  t.strictSame(cut, [], 'nobody hangs');
  t.notOk(
    Object.keys({ ...ends, ...readEnds }).some((how) => /^(poor|model): 200/.test(how)),
    'nobody was served for nothing',
  );
  await eventually('the budget to be free again', async () => {
    const { body } = await gateway.admin.send('GET', '/metrics');
    return /^tollgate_bodies_in_work_bytes 0$/m.test(body) ? true : undefined;
  });
  const stayMibMax = FULL ? STAYS_MIB_MAX : (mib - restingMib) * 0.6;
  await eventually(
    'memory to come back',
    () => (group.residentBytes() / MIB < restingMib + stayMibMax ? true : undefined),
    60_000,
  );
  t.comment(`afterwards ${(group.residentBytes() / MIB).toFixed(0)} MiB`);
}

t.setTimeout(CASES.length * 120_000);
for (const { mib, count } of CASES) {
  void t.test(`${count} hostile bodies of 10 MiB at once in ${mib} MiB`, { timeout: 120_000 }, (t) =>
    underFlood(t, mib, count),
  );
}
