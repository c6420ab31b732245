/**
 * Hosts as an operator sees them, and one that is forgotten: nobody waits for it, what it was granted is
 * free.
 */
import t, { type Test } from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { CoordinatorLost, type Coordinator } from '#src/sharing/coordinator.js';
import { HostDirectory } from '#src/sharing/host-directory.js';
import { coordinatorKeys } from '#src/sharing/valkey-codec.js';
import { QUARANTINE_MS, SILENT_MS } from '#src/sharing/valkey-lua.js';
import { identity } from '../../support/authority-conformance.js';
import { eventually } from '../../support/gateway.js';
import { NO_REDIS, startRedis, type RedisServer } from '../../support/redis-server.js';
import { NAMESPACE, TestHost, ValkeyWorld } from '../../support/valkey-world.js';
import { exchangePlain, type PlainReply } from '../../support/plain-asks.js';

/** One lies in each of two partitions. */
const SUBJECTS = ['acct_1', 'acct_2', 'acct_3', 'acct_4'];
const LIMITS = { requestsPerMinute: 10, callsPerDay: 10, callsInFlight: 4 };
const pico = asPicoUnits;

async function askMoney(node: Coordinator, subject: string, money: bigint): Promise<PlainReply> {
  const { answers } = await exchangePlain(node, [
    {
      scope: subject,
      limits: LIMITS,
      slots: { outstanding: 0, least: 1, most: 4 },
      money: { outstanding: pico(0n), least: pico(money), most: pico(money) },
    },
  ]);
  return answers[0]!;
}

const reasonOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'none',
    (error: unknown) => (error instanceof CoordinatorLost ? error.reason : String(error)),
  );

interface Place {
  readonly server: RedisServer;
  readonly world: ValkeyWorld;
  /** As the host `a` sees it. */
  readonly directory: HostDirectory;
}

async function openPlace(t: Test, partitions: number): Promise<Place> {
  const server = await startRedis(t);
  const world = new ValkeyWorld(() => server.url, partitions);
  t.teardown(() => world.close());
  for (const subject of SUBJECTS) await world.credit(subject, pico(100n));
  const client = world.client();
  await eventually('a connection', () => client.command(undefined, ['PING']));
  const timeInsteadMs = (): number => world.nowMs;
  const directory = new HostDirectory({ client, namespace: NAMESPACE, partitions, host: 'a', timeInsteadMs });
  return { server, world, directory };
}

void t.test(
  'a silent host: what it was lent is free, what it told to have spent is not',
  NO_REDIS,
  async (t) => {
    const { world, directory } = await openPlace(t, 2);
    const here = await world.connect(identity('a'));
    const host = new TestHost();
    const gone = await world.connect(identity('b', 1), host);
    await here.join();
    await gone.join();
    for (const subject of SUBJECTS) await askMoney(gone, subject, 60n);
    host.spend('acct_1', 10n);
    await askMoney(gone, 'acct_1', 0n);
    await askMoney(gone, 'acct_1', 60n);
    const heardMs = world.nowMs;
    t.same(await directory.list(), [
      { id: 'a', isSelf: true, state: 'heard', heardMs },
      { id: 'b', isSelf: false, state: 'heard', heardMs },
    ]);

    await t.rejects(directory.forget('b'), {
      code: 'invalid_parameters',
      message: /host b is alive.* 0 s ago/,
    });
    await t.rejects(directory.forget('a'), { code: 'invalid_parameters', message: /the one that answers/ });
    await t.rejects(directory.forget('c'), { code: 'not_found', message: /there is no host c/ });
    world.nowMs += SILENT_MS - 1;
    await t.rejects(directory.forget('b'), { message: /19 s ago/ });
    world.nowMs += 1;
    t.match(await directory.list(), [{ state: 'silent' }, { state: 'silent', heardMs }]);
    t.match((await askMoney(here, 'acct_2', 41n)).money, { granted: 0n, remaining: 40n }, 'still held');

    await directory.forget('b');
    t.match(await directory.list(), [{ id: 'a' }]);
    t.match((await askMoney(here, 'acct_1', 91n)).money, { granted: 0n, remaining: 90n });
    for (const subject of SUBJECTS.slice(1)) {
      t.match(await askMoney(here, subject, 100n), { money: { granted: 100n } }, subject);
    }
    await t.rejects(directory.forget('b'), { code: 'not_found' }, 'it is not there twice');

    // It was only cut off: it comes back, and tells what it has spent.
    t.equal(await reasonOf(gone.exchange([])), 'unknown_node');
    host.spend('acct_1', 20n);
    await gone.join();
    t.match((await askMoney(gone, 'acct_1', 71n)).money, { granted: 0n, remaining: 70n });
    t.match(await directory.list(), [{ id: 'a' }, { id: 'b', state: 'heard' }]);
  },
);

void t.test(
  'a forgotten host that was only cut off says at once what it still holds',
  NO_REDIS,
  async (t) => {
    const { world, directory } = await openPlace(t, 2);
    const here = await world.connect(identity('a'));
    const cutOff = await world.connect(identity('b'));
    await here.join();
    await cutOff.join();
    for (const subject of SUBJECTS) await askMoney(cutOff, subject, 60n);
    world.nowMs += SILENT_MS;
    await directory.forget('b');
    // As a heartbeat does it, which asks for nothing.
    t.equal(await reasonOf(cutOff.exchange([])), 'unknown_node');
    await cutOff.join();
    for (const subject of SUBJECTS) {
      const { money } = await askMoney(here, subject, 41n);
      t.match(money, { granted: 0n, remaining: 40n }, 'it holds the other 60');
    }
    const before = await here.view(SUBJECTS);
    await cutOff.join();
    t.same(await here.view(SUBJECTS), before, 'to join again counts nothing twice');
  },
);

void t.test('a forgotten host comes back with all its places, and nobody waits', NO_REDIS, async (t) => {
  const { world, directory } = await openPlace(t, 2);
  const here = await world.connect(identity('a'));
  const host = new TestHost();
  // Each process has a second node, with its fallback quotas.
  const places = await Promise.all([0, 1, 2_000_000].map((slot) => world.connect(identity('b', slot), host)));
  for (const node of [here, ...places]) await node.join();
  for (const node of [here, ...places]) await node.exchange([]);
  for (const node of places) for (const subject of SUBJECTS) await askMoney(node, subject, 20n);
  world.nowMs += SILENT_MS;
  await directory.forget('b');
  for (const node of places) {
    t.equal(await reasonOf(node.exchange([])), 'unknown_node');
    await node.join();
    t.equal(await reasonOf(here.exchange([])), 'none', 'no data counts as lost');
  }
  for (const subject of SUBJECTS) {
    t.match((await askMoney(here, subject, 41n)).money, { granted: 0n, remaining: 40n }, subject);
  }
});

void t.test('a host of which one process stands still is alive', NO_REDIS, async (t) => {
  const { world, directory } = await openPlace(t, 2);
  const here = await world.connect(identity('a'));
  // Whichever of its places is looked at first.
  const places = [];
  for (const slot of [0, 1, 2, 3]) places.push(await world.connect(identity('b', slot)));
  for (const node of [here, ...places]) await node.join();
  for (const [at, node] of places.entries()) await askMoney(node, SUBJECTS[at]!, 60n);
  world.nowMs += SILENT_MS;
  await places[2]!.exchange([]);
  await t.rejects(directory.forget('b'), {
    code: 'invalid_parameters',
    message: /host b is alive.* 0 s ago/,
  });
  for (const subject of SUBJECTS)
    t.match((await askMoney(here, subject, 41n)).money, { granted: 0n, remaining: 40n }, 'still held');
  for (const node of places) t.equal(await reasonOf(node.exchange([])), 'none');
  world.nowMs += SILENT_MS;
  await directory.forget('b');
  for (const subject of SUBJECTS) t.match((await askMoney(here, subject, 100n)).money, { granted: 100n });
});

void t.test('a host that never comes back after a loss of data', NO_REDIS, async (t) => {
  const { server, world, directory } = await openPlace(t, 1);
  const [first, late] = [new TestHost(), new TestHost()];
  const before = await world.connect(identity('a'), first);
  const gone = await world.connect(identity('b'));
  const other = await world.connect(identity('c'), late);
  for (const node of [before, gone, other]) await node.join();
  for (const node of [before, gone, other]) await node.exchange([]);
  await askMoney(gone, 'acct_1', 60n);
  await server.restart();

  const here = await world.connect(identity('a'), first);
  await here.join();
  t.match(await eventually('a list', () => directory.list()), [
    { id: 'a' },
    { id: 'b', state: 'awaited', heardMs: undefined },
    { id: 'c' },
  ]);
  await t.rejects(directory.forget('b'), {
    code: 'overloaded',
    retryAfterSeconds: Math.ceil(QUARANTINE_MS / 1_000),
  });
  world.nowMs += QUARANTINE_MS;
  t.equal(await reasonOf(askMoney(here, 'acct_1', 1n)), 'quarantine');
  await directory.forget('b');
  t.equal(await reasonOf(askMoney(here, 'acct_1', 1n)), 'quarantine', 'another is awaited too');
  // It remembers the forgotten one, which is not awaited again for that.
  const back = await world.connect(identity('c'), late);
  await back.join();
  t.match((await askMoney(here, 'acct_1', 100n)).money, { granted: 100n });
  t.match(await directory.list(), [
    { id: 'a', state: 'heard' },
    { id: 'c', state: 'heard' },
  ]);
  // The next loss does not bring it up again either.
  await back.exchange([]);
  t.same([...late.memory.of(0).places].sort(), ['a:0', 'c:0']);
});

void t.test('the server cannot be asked', NO_REDIS, async (t) => {
  const { server, directory } = await openPlace(t, 1);
  await server.kill();
  await t.rejects(directory.list(), { code: 'overloaded', message: /Hosts cannot be listed/ });
  await t.rejects(directory.forget('b'), { code: 'overloaded', message: /not known whether host b/ });
});

void t.test('a damaged meta of a partition stops no command', NO_REDIS, async (t) => {
  for (const field of ['until', 'places']) {
    const { server, world, directory } = await openPlace(t, 2);
    const here = await world.connect(identity('a'));
    const gone = await world.connect(identity('b'));
    await here.join();
    await gone.join();
    await askMoney(gone, 'acct_1', 60n);
    world.nowMs += SILENT_MS;
    for (const partition of [0, 1])
      await server.command('HSET', coordinatorKeys(NAMESPACE, partition).meta, field, 'x');
    await directory.forget('b');
    t.notOk(
      (await directory.list()).some(({ id }) => id === 'b'),
      field,
    );
    t.equal(await reasonOf(here.exchange([])), 'unknown_node');
    await here.join();
    world.nowMs += QUARANTINE_MS;
    t.match((await askMoney(here, 'acct_1', 100n)).money, { granted: 100n }, field);
  }
});
