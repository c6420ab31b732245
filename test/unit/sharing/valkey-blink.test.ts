/**
 * The server is restarted, or another one takes over: if it lost nothing that a node was granted, it grants
 * again as soon as all have shown their marks; if it did, nothing before a quarantine. Never does it grant
 * again what somebody holds.
 */
import { inspect } from 'node:util';
import t, { type Test } from 'tap';
import { CoordinatorLost, type Coordinator, type LeaseReply } from '#src/sharing/coordinator.js';
import { QUARANTINE_MS, SERVER_CHECK_MS } from '#src/sharing/valkey-lua.js';
import { identity } from '../../support/authority-conformance.js';
import { eventually } from '../../support/gateway.js';
import { NO_REDIS, startRedis, type RedisServer } from '../../support/redis-server.js';
import { startWire, type Wire } from '../../support/tcp-proxy.js';
import { TestHost, ValkeyWorld } from '../../support/valkey-world.js';

const LIMIT = 10;
const ALWAYS = ['--appendonly', 'yes', '--appendfsync', 'always'];

async function permits(node: Coordinator, most: number): Promise<LeaseReply['minute']> {
  const minute = { limit: LIMIT, least: most, most, forMs: 16_000, returned: [] };
  const { replies } = await node.exchange([{ scope: 'acct_1', minute }]);
  return replies[0]!.minute;
}

const reasonOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'none',
    (error: unknown) => (error instanceof CoordinatorLost ? error.reason : inspect(error)),
  );

/** Goes over connections that broke; time stands still. */
function answerOf(node: Coordinator): Promise<string> {
  return eventually('an answer of the server', async () => {
    const reason = await reasonOf(node.exchange([]));
    return reason === 'unreachable' || reason === 'failing' || reason === 'deadline' ? undefined : reason;
  });
}

interface Fleet {
  readonly world: ValkeyWorld;
  readonly first: Coordinator;
  readonly second: Coordinator;
  /** That of each node. */
  readonly wires: readonly [Wire, Wire];
  /** From now on the node's connections lead to this server. */
  readonly turn: (node: 0 | 1, server: RedisServer) => void;
  readonly connect: (name: string, server: RedisServer) => Promise<Coordinator>;
}

/** Two nodes, which have been there for so long that a restart is checked. */
async function startFleet(t: Test, server: RedisServer): Promise<Fleet> {
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const ports = [server.port, server.port];
  const wires = [await startWire(t, () => ports[0]!), await startWire(t, () => ports[1]!)] as const;
  const nodes: Coordinator[] = [];
  for (const [at, wire] of wires.entries()) {
    const client = world.client(`redis://127.0.0.1:${wire.port}`);
    nodes.push(await world.connect(identity('ab'[at]!), new TestHost(), { client }));
  }
  const [first, second] = nodes as [Coordinator, Coordinator];
  for (const node of nodes) await node.join();
  world.nowMs += QUARANTINE_MS;
  for (const node of [...nodes, ...nodes]) await node.exchange([]);
  return {
    world,
    first,
    second,
    wires,
    turn: (node, { port }) => {
      ports[node] = port;
      world.nowMs += SERVER_CHECK_MS;
      wires[node].set('cut');
      wires[node].set('open');
    },
    connect: (name, { url }) => world.connect(identity(name), new TestHost(), { client: world.client(url) }),
  };
}

void t.test(
  'a process that is new is lent something as soon as another one was heard',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t, ALWAYS);
    const { world, first } = await startFleet(t, server);
    let changes = 0;
    const other = await world.connect(identity('c'), new TestHost(), {
      onMembershipChanged: () => (changes += 1),
    });
    await other.join();
    for (const node of [first, first, other]) await node.exchange([]);
    changes = 0;
    const fresh = await world.connect(identity('d'), new TestHost());
    await fresh.join();
    t.equal(await reasonOf(fresh.exchange([])), 'checking');
    await other.exchange([]);
    t.equal(changes, 1, 'the other one is told to be heard again');
    t.equal(await reasonOf(fresh.exchange([])), 'checking', 'nobody knows whether it has heard of that');
    await other.exchange([]);
    t.equal(await reasonOf(fresh.exchange([])), 'none');
    t.equal(changes, 1);
  },
);

async function startReplica(t: Test, master: RedisServer): Promise<RedisServer> {
  const replica = await startRedis(t, ['--replicaof', '127.0.0.1', String(master.port)]);
  await eventually('a replica that follows', async () => {
    const text = await replica.command('INFO', 'replication');
    return text.includes('master_link_status:up') ? true : undefined;
  });
  return replica;
}

async function caughtUp(master: RedisServer, replica: RedisServer): Promise<void> {
  const offset = async (server: RedisServer, word: string): Promise<string | undefined> =>
    new RegExp(`^${word}:(.*?)\r?$`, 'm').exec(await server.command('INFO', 'replication'))?.[1];
  await eventually('a replica that has all', async () =>
    (await offset(master, 'master_repl_offset')) === (await offset(replica, 'slave_repl_offset'))
      ? true
      : undefined,
  );
}

/** With `everysec` a server holds its log back while a disk is busy, for 2 seconds at most. */
async function written(server: RedisServer): Promise<void> {
  await eventually('a log that is written', async () =>
    (await server.command('INFO', 'persistence')).includes('aof_buffer_length:0\r\n') ? true : undefined,
  );
}

for (const fsync of ['always', 'everysec'])
  void t.test(`killed and started with its log, fsync ${fsync}`, NO_REDIS, async (t) => {
    const server = await startRedis(t, [...ALWAYS.slice(0, 3), fsync]);
    const { world, first, second } = await startFleet(t, server);
    t.match(await permits(first, 6), { granted: 6 });
    await written(server);
    await server.restart();
    world.nowMs += SERVER_CHECK_MS;
    t.equal(await answerOf(first), 'checking', 'the other one has not been asked');
    t.equal(await answerOf(first), 'checking');
    t.equal(await answerOf(second), 'none', 'it was the last');
    t.equal(await answerOf(first), 'none');
    t.match(await permits(second, 5), { granted: 0, remaining: 4 }, 'six are granted');
    t.match(await permits(second, 4), { granted: 4 });
    await written(server);
    await server.restart();
    world.nowMs += SERVER_CHECK_MS;
    t.equal(await answerOf(second), 'checking', 'once more');
    t.equal(await answerOf(first), 'none');
  });

void t.test('a young server is not checked', NO_REDIS, async (t) => {
  const server = await startRedis(t, ALWAYS);
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const node = await world.connect(identity('a'));
  await node.join();
  await permits(node, 6);
  await server.restart();
  world.nowMs += SERVER_CHECK_MS;
  t.equal(await answerOf(node), 'quarantine');
});

void t.test('started with an older copy: who held something finds it', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const { world, first, second } = await startFleet(t, server);
  await server.command('SAVE');
  t.match(await permits(second, 6), { granted: 6 });
  await server.restart();
  world.nowMs += SERVER_CHECK_MS;
  t.equal(await answerOf(first), 'checking', 'it has lost nothing of this one');
  t.equal(await answerOf(second), 'quarantine');
  t.equal(await answerOf(first), 'quarantine');
  world.nowMs += QUARANTINE_MS - 1;
  t.equal(await answerOf(first), 'quarantine');
  world.nowMs += 1;
  t.equal(await answerOf(second), 'none');
  t.match(await permits(first, LIMIT), { granted: LIMIT });
});

void t.test('a replica that has all takes over', NO_REDIS, async (t) => {
  const master = await startRedis(t);
  const replica = await startReplica(t, master);
  const { first, second, turn } = await startFleet(t, master);
  t.match(await permits(first, 6), { granted: 6 });
  await caughtUp(master, replica);
  await master.kill();
  await replica.command('REPLICAOF', 'NO', 'ONE');
  for (const node of [0, 1] as const) turn(node, replica);
  t.equal(await answerOf(second), 'checking');
  t.equal(await answerOf(first), 'none');
  t.match(await permits(second, 5), { granted: 0, remaining: 4 });
});

void t.test('the master goes on behind a cut, while another one is made master', NO_REDIS, async (t) => {
  const master = await startRedis(t);
  const replica = await startReplica(t, master);
  const { world, first, second, turn } = await startFleet(t, master);
  await caughtUp(master, replica);
  await replica.command('REPLICAOF', 'NO', 'ONE');
  turn(1, replica);
  t.equal(await answerOf(second), 'checking');
  t.match(await permits(first, 6), { granted: 6 }, 'the old one grants to those that hear it alone');
  for (let times = 0; times < 3; times++) t.equal(await answerOf(second), 'checking');
  world.nowMs += QUARANTINE_MS + 1;
  t.equal(await answerOf(second), 'quarantine', 'the other one has to say what it holds');
  t.equal(await answerOf(second), 'quarantine', 'however long that takes');
  t.match(await permits(first, LIMIT), { granted: LIMIT });
  turn(0, replica);
  t.equal(await answerOf(first), 'quarantine', 'which is more than the new one knows');
  t.equal(await answerOf(second), 'quarantine');
  world.nowMs += QUARANTINE_MS;
  await answerOf(first);
  t.match(await permits(second, LIMIT), { granted: LIMIT });
});

void t.test('who has promised the new master gets nothing of the old one unchecked', NO_REDIS, async (t) => {
  const master = await startRedis(t);
  const replica = await startReplica(t, master);
  const { first, second, turn } = await startFleet(t, master);
  t.match(await permits(first, 4), { granted: 4 });
  await caughtUp(master, replica);
  await replica.command('REPLICAOF', 'NO', 'ONE');
  turn(1, replica);
  t.equal(await answerOf(second), 'checking');
  turn(1, master);
  t.equal(await answerOf(second), 'checking', 'the old one may have been overtaken');
  t.match(await reasonOf(first.exchange([])), 'none', 'it was not: the other one has promised its new term');
  t.match(await permits(second, 6), { granted: 6 });
  // The new one has a promise of each of them from before, which counts no more.
  turn(0, replica);
  t.equal(await answerOf(first), 'quarantine', 'it was heard elsewhere since');
  turn(1, replica);
  t.equal(await answerOf(second), 'quarantine');
});

void t.test('a life that has begun meanwhile cannot say what the one before heard', NO_REDIS, async (t) => {
  const server = await startRedis(t, ALWAYS);
  const { world, first } = await startFleet(t, server);
  await server.restart();
  world.nowMs += SERVER_CHECK_MS;
  t.equal(await answerOf(first), 'checking');
  const next = await world.connect(identity('b'));
  await eventually('a join', () => next.join());
  t.equal(await answerOf(first), 'quarantine');
});

void t.test('a new host is granted something when another one has heard of it', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const { first, connect } = await startFleet(t, server);
  const third = await connect('c', server);
  await third.join();
  t.equal(await reasonOf(permits(third, 1)), 'checking');
  await first.exchange([]);
  t.equal(await reasonOf(permits(third, 1)), 'checking', 'nobody knows whether the reply came');
  await first.exchange([]);
  t.match(await permits(third, 6), { granted: 6 });
});

void t.test('a server that has lost a join is told by the one that heard of it', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const { world, first, second, connect } = await startFleet(t, server);
  await server.command('SAVE');
  const third = await connect('c', server);
  await third.join();
  await first.exchange([]);
  await first.exchange([]);
  t.match(await permits(third, 6), { granted: 6 });
  await server.restart();
  world.nowMs += SERVER_CHECK_MS;
  t.equal(await answerOf(second), 'checking');
  t.equal(await answerOf(first), 'quarantine', 'and the third one is not asked');
});

void t.test('a new host among silent ones waits for a quarantine', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const { world, connect } = await startFleet(t, server);
  const third = await connect('c', server);
  await third.join();
  world.nowMs += QUARANTINE_MS - 1;
  t.equal(await reasonOf(permits(third, 1)), 'checking');
  world.nowMs += 1;
  t.match(await permits(third, 1), { granted: 1 });
});

void t.test('the time goes on where the former server stopped', NO_REDIS, async (t) => {
  const server = await startRedis(t, ALWAYS);
  const { world, first, second } = await startFleet(t, server);
  let aheadMs = 0;
  const third = await world.connect(identity('c'), new TestHost(), {
    timeInsteadMs: () => world.nowMs + aheadMs,
  });
  await third.join();
  for (const node of [first, first, third]) await node.exchange([]);
  t.match(await permits(third, 10), { granted: 10 });
  await server.restart();
  world.nowMs += SERVER_CHECK_MS;
  // All nodes see the new clock, which is ahead of the former one.
  aheadMs = 700;
  for (const node of [first, second]) t.equal(await answerOf(node), 'checking');
  t.equal(await answerOf(third), 'none');
  t.ok(
    Number(await server.command('HGET', '{test:0}:meta', 'skew')) <= SERVER_CHECK_MS,
    'the least difference counts',
  );
});
