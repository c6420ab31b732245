/**
 * A process of a host that has ended without leaving: what its nodes hold at the server of sharing is free as
 * soon as another process of the host looks, once, and nothing of a process that runs.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { CoordinatorLost, type Coordinator, type NodeIdentity } from '#src/sharing/coordinator.js';
import { EndedNodes } from '#src/sharing/ended-nodes.js';
import { openLeaseFile, type LeaseFile } from '#src/sharing/lease-file.js';
import { SYSTEM_TIMERS } from '#src/sharing/lease-terms.js';
import { LeaseNodes } from '#src/sharing/lmdb-coordinator.js';
import { coordinatorKeys } from '#src/sharing/valkey-codec.js';
import type { ValkeyClient } from '#src/sharing/valkey-client.js';
import { QUARANTINE_MS, SILENT_MS } from '#src/sharing/valkey-lua.js';
import { identityOf } from '#src/store/process-identity.js';
import { FakeLog } from '../../fixtures/upstream-server.js';
import { identity } from '../../support/authority-conformance.js';
import { eventually } from '../../support/gateway.js';
import { exchangePlain, type PlainReply } from '../../support/plain-asks.js';
import { NO_REDIS, startRedis, type RedisServer } from '../../support/redis-server.js';
import { NAMESPACE, TestHost, ValkeyWorld } from '../../support/valkey-world.js';

const ACCOUNTS = ['acct_1', 'acct_2', 'acct_3', 'acct_4'];
const LIMITS = { requestsPerMinute: 10, callsPerDay: 10, callsInFlight: 4 };
const PARTITIONS = 2;

async function ask(node: Coordinator, scope: string, money: bigint, slots = 0, day = 0) {
  const { answers } = await exchangePlain(node, [
    {
      scope,
      limits: LIMITS,
      slots: { outstanding: 0, least: slots, most: slots },
      day: { dayNumber: 0, used: 0, unused: 0, least: day, most: day },
      money: { outstanding: asPicoUnits(0n), least: asPicoUnits(money), most: asPicoUnits(money) },
    },
  ]);
  return answers[0]!;
}

const reasonOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'none',
    (error: unknown) => (error instanceof CoordinatorLost ? error.reason : String(error)),
  );

interface World {
  readonly server: RedisServer;
  readonly world: ValkeyWorld;
  readonly host: TestHost;
  readonly file: LeaseFile;
  readonly log: FakeLog;
  readonly client: ValkeyClient;
  readonly endedBy: (client: ValkeyClient) => EndedNodes;
  /** A node of another process of the host. */
  readonly join: (node: NodeIdentity, pid: number, equalShares?: number) => Promise<Coordinator>;
  readonly places: () => Promise<string>;
}

async function openWorld(t: Test): Promise<World> {
  const server = await startRedis(t);
  const world = new ValkeyWorld(() => server.url, PARTITIONS);
  const file = openLeaseFile(t.testdir());
  t.teardown(async () => {
    world.close();
    await file.environment.close();
  });
  for (const account of ACCOUNTS) await world.credit(account, asPicoUnits(100n));
  const [host, log, client] = [new TestHost(), new FakeLog(), world.client()];
  await eventually('a connection', () => client.command(undefined, ['PING']));
  return {
    ...{ server, world, host, file, log, client },
    endedBy: (client) =>
      new EndedNodes({
        ...{ client, namespace: NAMESPACE, host: 'a', partitions: PARTITIONS, file, log },
        accounting: host.books,
        timers: SYSTEM_TIMERS,
        timeInsteadMs: () => world.nowMs,
      }),
    join: async (node, pid, equalShares = 0) => {
      file.environment.write(() => new LeaseNodes(file).join(node, identityOf(pid)!));
      const joined = await world.connect(node, host, { equalShares });
      await joined.join();
      return joined;
    },
    places: async () => {
      const counts = [0, 1].map((at) => server.command('HLEN', coordinatorKeys(NAMESPACE, at).nodes));
      return (await Promise.all(counts)).join(' ').replaceAll(':', '');
    },
  };
}

/** A process that can be killed. */
async function processOf(t: Test): Promise<{ pid: number; kill: () => Promise<void> }> {
  const child = spawn('sleep', ['600'], { stdio: 'ignore' });
  t.teardown(() => child.kill('SIGKILL'));
  await once(child, 'spawn');
  const kill = async (): Promise<void> => {
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  return { pid: child.pid!, kill };
}

/** The client with another `run`. */
const clientWith = (client: ValkeyClient, run: ValkeyClient['run']): ValkeyClient =>
  Object.create(client, { run: { value: run } }) as ValkeyClient;

void t.test('what a killed process held is free, once, and what it had spent is not', NO_REDIS, async (t) => {
  const { host, file, log, client, endedBy, join, places } = await openWorld(t);
  const trial = await processOf(t);
  const ended = endedBy(client);
  ended.add(identity('a'));
  const here = await join(identity('a'), process.pid);
  const dead = await join(identity('a', 2), trial.pid);
  for (const account of ACCOUNTS) await ask(dead, account, 60n, 4, 6);
  host.spend('acct_1', 10n);
  await ended.look();
  t.match((await ask(here, 'acct_1', 41n)).money, { granted: 0n }, 'it runs');

  await trial.kill();
  await ended.look();
  t.equal(await places(), '1 1', 'it is no node any more');
  t.same(file.nodes.get('a:2'), undefined);
  t.match(log.lines, [{ level: 'info', fields: { place: 'a:2' } }]);
  // Whatever it had sent before its end comes too late, also if it would join again.
  t.equal(await reasonOf(dead.exchange([])), 'unknown_node');
  const answers: Record<string, PlainReply> = {};
  for (const account of ACCOUNTS)
    answers[account] = await ask(here, account, account === 'acct_1' ? 91n : 100n, 4, 4);
  t.match(answers.acct_1, { money: { granted: 0n, remaining: 90n }, slots: { granted: 4 } });
  for (const account of ACCOUNTS.slice(1))
    t.match(answers[account], { money: { granted: 100n }, slots: { granted: 4 } }, account);
  for (const account of ACCOUNTS)
    t.match(answers[account], { day: { granted: 4, remaining: 0 } }, 'calls of the day count as used');
  await ended.look();
  t.equal(log.lines.length, 1);
  await ended.close();
});

void t.test('a life that has come to the place keeps what it holds', NO_REDIS, async (t) => {
  const { client, endedBy, join, places } = await openWorld(t);
  const former = await processOf(t);
  await join(identity('a', 2), former.pid);
  const here = await join(identity('a'), process.pid);
  await former.kill();
  // It comes between the two questions of a look.
  let next: Coordinator | undefined;
  const run = async (...args: Parameters<ValkeyClient['run']>) => {
    const reply = await client.run(...args);
    if (next === undefined) {
      next = await join({ ...identity('a', 2), incarnation: 'next' }, process.pid);
      for (const account of ACCOUNTS) await ask(next, account, 60n, 4);
    }
    return reply;
  };
  await endedBy(clientWith(client, run)).look();
  await endedBy(client).look();
  t.equal(await reasonOf(next!.exchange([])), 'none');
  t.equal(await places(), '2 2');
  for (const account of ACCOUNTS)
    t.match(await ask(here, account, 41n, 1), { money: { granted: 0n }, slots: { granted: 0 } });
});

void t.test('the server cannot be asked, and then it can', NO_REDIS, async (t) => {
  const { client, endedBy, join, places } = await openWorld(t);
  const former = await processOf(t);
  const dead = await join(identity('a', 2), former.pid);
  await ask(dead, 'acct_1', 60n);
  const here = await join(identity('a'), process.pid);
  await former.kill();
  let replies = 0;
  // One reply more each time, so that it stops after each of its steps once.
  const run = (...args: Parameters<ValkeyClient['run']>) =>
    replies-- > 0 ? client.run(...args) : Promise.reject(new CoordinatorLost('unreachable', 'gone'));
  for (let step = 0; step < 8; step++) {
    replies = step;
    await endedBy(clientWith(client, run)).look();
  }
  await endedBy(client).look();
  t.equal(await places(), '1 1');
  t.match((await ask(here, 'acct_1', 100n)).money, { granted: 100n });
});

void t.test('the equal share of one that was cut off before its end stays held back', NO_REDIS, async (t) => {
  const { world, client, endedBy, join } = await openWorld(t);
  const former = await processOf(t);
  await join(identity('a', 2), former.pid, 2);
  const here = await join(identity('a'), process.pid, 2);
  const permits = async (): Promise<number | undefined> => {
    const minute = { least: 1, most: 10, returned: [], forMs: 0 };
    const { answers } = await exchangePlain(here, [{ scope: 'acct_1', limits: LIMITS, minute }]);
    const { remaining, granted } = answers[0]!.minute!;
    return remaining + granted;
  };
  await former.kill();
  const pass = async (ms: number): Promise<void> => {
    const endMs = world.nowMs + ms;
    while (world.nowMs < endMs) {
      world.nowMs += SILENT_MS / 2;
      await here.exchange([]);
    }
  };
  await pass(SILENT_MS + 1);
  await endedBy(client).look();
  t.equal(await permits(), 5);
  await pass(900_000 + QUARANTINE_MS);
  t.equal(await permits(), 10);
});
