/**
 * The server is lost, or loses its data: never more than the limits is granted, and what a host has spent is
 * never granted again.
 */
import { inspect } from 'node:util';
import t, { type Test } from 'tap';
import { Calendar } from '#src/core/calendar.js';
import { asPicoUnits } from '#src/core/units.js';
import { CoordinatorLost, type Coordinator } from '#src/sharing/coordinator.js';
import { coordinatorKeys } from '#src/sharing/valkey-codec.js';
import { QUARANTINE_MS } from '#src/sharing/valkey-lua.js';
import { identity } from '../../support/authority-conformance.js';
import { eventually } from '../../support/gateway.js';
import { NO_REDIS, startRedis, type RedisServer } from '../../support/redis-server.js';
import { startWire } from '../../support/tcp-proxy.js';
import { NAMESPACE, TestHost, ValkeyWorld } from '../../support/valkey-world.js';
import { exchangePlain, type PlainAsk, type PlainReply } from '../../support/plain-asks.js';

const SUBJECT = 'acct_1';
const LIMITS = { requestsPerMinute: 10, callsPerDay: 10, callsInFlight: 4 };
const pico = asPicoUnits;

interface Wants {
  readonly minute?: number;
  readonly day?: number;
  readonly used?: number;
  readonly dayNumber?: number;
  readonly slots?: number;
  readonly inUse?: number;
  readonly money?: bigint;
  readonly holds?: bigint;
}

async function ask(node: Coordinator, wants: Wants): Promise<PlainReply> {
  const { minute, day, used = 0, dayNumber = 0, slots, inUse = 0, money, holds = 0n } = wants;
  const asked: PlainAsk = {
    scope: SUBJECT,
    limits: LIMITS,
    ...(minute === undefined ? {} : { minute: { least: minute, most: minute, forMs: 0, returned: [] } }),
    ...(day === undefined ? {} : { day: { dayNumber, used, unused: 0, least: day, most: day } }),
    ...(slots === undefined ? {} : { slots: { outstanding: inUse, least: slots, most: slots } }),
    ...(money === undefined
      ? {}
      : { money: { outstanding: pico(holds), least: pico(money), most: pico(money) } }),
  };
  const { answers } = await exchangePlain(node, [asked]);
  return answers[0]!;
}

const reasonOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'none',
    (error: unknown) => (error instanceof CoordinatorLost ? error.reason : inspect(error)),
  );

async function worldOf(t: Test, urlOf: () => string): Promise<ValkeyWorld> {
  const world = new ValkeyWorld(urlOf);
  t.teardown(() => world.close());
  await world.credit(SUBJECT, pico(100n));
  return world;
}

/** Joins as soon as its connection is back. */
const rejoin = (node: Coordinator): Promise<unknown> => eventually('a join', () => node.join());

/** The server comes back, and time has gone on. */
async function until(world: ValkeyWorld, node: Coordinator, reason: string): Promise<void> {
  let last = 'nothing';
  for (let tries = 0; tries < 400; tries++) {
    world.nowMs += 25;
    last = await reasonOf(node.exchange([]));
    if (last === reason) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`never ${reason}, but ${last}`);
}

/** What a server says of its replication, by the names that it gives it. */
async function replicationOf(server: RedisServer): Promise<Partial<Record<string, string>>> {
  const text = await server.command('INFO', 'replication');
  return Object.fromEntries(text.split('\r\n').map((line) => line.split(':', 2) as [string, string]));
}

void t.test('restarted empty: nothing for a window, nor before all have reported', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = await worldOf(t, () => server.url);
  const hosts = [new TestHost(), new TestHost()];
  const first = await world.connect(identity('a'), hosts[0]);
  const second = await world.connect(identity('b'), hosts[1]);
  await first.join();
  await second.join();
  await first.exchange([]);
  const { day } = await ask(first, { minute: 6, day: 6, slots: 3, money: 60n });
  await ask(second, { minute: 4, day: 3, slots: 1, money: 30n });
  const { dayNumber } = day!;
  // It spends half of its money, and only its own disk knows that.
  hosts[1]!.spend(SUBJECT, 15n);

  await server.restart();
  await until(world, first, 'unknown_node');
  await rejoin(first);
  t.equal(await reasonOf(ask(first, { minute: 1 })), 'quarantine');
  world.nowMs += QUARANTINE_MS;
  t.equal(await reasonOf(ask(first, { minute: 1 })), 'quarantine', 'the other has not said what it holds');
  await rejoin(second);
  t.match((await ask(first, { minute: 10 })).minute, { granted: 10 }, 'the minute is over');
  t.match(
    (await ask(first, { day: 2, used: 6, dayNumber })).day,
    { granted: 0, remaining: 1 },
    'six and three of ten',
  );
  t.match((await ask(first, { slots: 1, inUse: 3 })).slots, { granted: 0, remaining: 0 });
  // 60 held here; there 30 held and 15 spent, of which 15 are the same: counted twice until it says so.
  t.match((await ask(first, { money: 0n, holds: 60n })).money, { remaining: 0n });
  await ask(second, { money: 0n, holds: 15n });
  t.match((await ask(first, { money: 11n, holds: 60n })).money, { granted: 0n, remaining: 10n });
});

void t.test('restarted empty, and a host that stays away', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = await worldOf(t, () => server.url);
  const host = new TestHost();
  const first = await world.connect(identity('a'), host);
  await first.join();
  const second = await world.connect(identity('b'));
  await second.join();
  await first.exchange([]);
  await ask(second, { money: 60n });
  await server.restart();
  await until(world, first, 'unknown_node');
  // A new life of the first host has it from the disk, not from its memory.
  const next = await world.connect(identity('a'), host);
  await next.join();
  world.nowMs += 10 * QUARANTINE_MS + 1_000_000;
  t.equal(await reasonOf(ask(next, { money: 1n })), 'quarantine');
  t.equal(await reasonOf(ask(next, { money: 1n })), 'quarantine', 'however long: nobody knows what it spent');
  await rejoin(second);
  t.match((await ask(next, { money: 41n })).money, { granted: 0n, remaining: 40n });
});

void t.test('a replica that knew less takes over', NO_REDIS, async (t) => {
  const master = await startRedis(t);
  const replica = await startRedis(t, ['--replicaof', '127.0.0.1', String(master.port)]);
  let port = master.port;
  const wire = await startWire(t, () => port);
  const world = await worldOf(t, () => `redis://127.0.0.1:${wire.port}`);
  const first = await world.connect(identity('a'));
  const second = await world.connect(identity('b'));
  await first.join();
  await second.join();
  await first.exchange([]);
  await ask(first, { minute: 2, money: 10n });
  // WAIT does not help: it is about writes of its own connection.
  await eventually('a replica that has it', async () => {
    const [ours, theirs] = await Promise.all([replicationOf(master), replicationOf(replica)]);
    const hasAll = theirs.slave_repl_offset === ours.master_repl_offset;
    return theirs.master_link_status === 'up' && hasAll ? true : undefined;
  });
  await replica.command('REPLICAOF', 'NO', 'ONE');
  await ask(first, { minute: 4, money: 50n, holds: 10n });
  port = replica.port;
  wire.set('cut');
  wire.set('open');
  await until(world, second, 'quarantine');
  t.equal(await reasonOf(ask(second, { minute: 1 })), 'quarantine', 'who speaks first is lent nothing');
  world.nowMs += QUARANTINE_MS;
  t.equal(await reasonOf(ask(second, { money: 1n })), 'quarantine');
  await until(world, first, 'none');
  t.match((await ask(second, { money: 41n })).money, { granted: 0n, remaining: 40n });
  t.match((await ask(second, { minute: 10 })).minute, { granted: 10 });
});

void t.test('a new host at an empty server is told when others know better', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = await worldOf(t, () => server.url);
  const old = await world.connect(identity('a'));
  await old.join();
  t.match((await ask(old, { minute: 10 })).minute, { granted: 10 }, 'a new installation lends at once');
  await server.restart();
  const fresh = await world.connect(identity('b'));
  await fresh.join();
  await until(world, old, 'unknown_node');
  await rejoin(old);
  t.equal(await reasonOf(ask(fresh, { minute: 1 })), 'quarantine');
});

void t.test('what an ended life charged is told before its lease is freed', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = await worldOf(t, () => server.url);
  const host = new TestHost();
  const old = await world.connect(identity('a', 2), host);
  const other = await world.connect(identity('b'));
  await old.join();
  await other.join();
  await ask(old, { money: 80n });
  host.spend(SUBJECT, 70n);
  const next = await world.connect(identity('a', 2), host);
  await next.join();
  t.match((await ask(other, { money: 31n })).money, { granted: 0n, remaining: 30n });
});

void t.test(
  'a host whose disk is full leases nothing once the list of nodes has changed',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = await worldOf(t, () => server.url);
    const host = new TestHost();
    const first = await world.connect(identity('a'), host);
    await first.join();
    await first.exchange([]);
    const { set } = host.memory;
    host.memory.set = () => {
      throw new Error('ENOSPC: no space left on device, write');
    };
    const second = await world.connect(identity('b'));
    await second.join();
    t.equal(await reasonOf(ask(first, { minute: 1 })), 'failing');
    host.memory.set = set;
    t.match((await ask(first, { minute: 1 })).minute, { granted: 1 }, 'and goes on once it has room');
  },
);

void t.test('a server that is full, that evicts, that stands still', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = await worldOf(t, () => server.url);
  const client = world.client(server.url, 200);
  const node = await world.connect(identity('a'), new TestHost(), { client });
  await node.join();
  await ask(node, { minute: 4 });
  await server.command('CONFIG', 'SET', 'maxmemory', '1');
  t.equal(await reasonOf(ask(node, { minute: 1 })), 'failing');
  await server.command('CONFIG', 'SET', 'maxmemory', '0');
  t.match(
    (await ask(node, { minute: 1 })).minute,
    { granted: 1, remaining: 5 },
    'nothing was done by halves',
  );
  server.stop();
  t.equal(await reasonOf(ask(node, { minute: 1 })), 'deadline');
  t.equal(await reasonOf(ask(node, { minute: 1 })), 'unreachable');
  server.resume();
  await until(world, node, 'none');
  const { minute } = await ask(node, { minute: 0 });
  t.ok(
    minute!.remaining === 5 || minute!.remaining === 4,
    `${minute!.remaining}: an answer that was lost may cost`,
  );
  await server.command('CONFIG', 'SET', 'maxmemory', '100mb');
  await server.command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
  const another = await world.connect(identity('b'));
  await t.rejects(another.join(), { reason: 'failing', message: /allkeys-lru.*want noeviction/ });
});

void t.test('the clock of the server is set forward', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = await worldOf(t, () => server.url);
  let hostMs = world.nowMs;
  const clock = { monotonicMs: () => hostMs as never };
  const node = await world.connect(identity('a'), new TestHost(), { clock });
  await node.join();
  await ask(node, { minute: 10 });
  world.nowMs += 90_000;
  hostMs += 100;
  t.equal(await reasonOf(ask(node, { minute: 10 })), 'quarantine');
  world.nowMs += 1_000;
  hostMs += 1_000;
  t.equal(await reasonOf(ask(node, { minute: 10 })), 'quarantine');
  world.nowMs += QUARANTINE_MS;
  hostMs += QUARANTINE_MS;
  t.match((await ask(node, { minute: 10 })).minute, { granted: 10 });
});

void t.test(
  'a slow answer, and a slow way to the server after it, are no step of the clock',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = await worldOf(t, () => server.url);
    const client = world.client();
    const run = client.run.bind(client);
    let [wayMs, answerMs] = [0, 0];
    client.run = async (...call) => {
      const reply = await run(...call);
      world.nowMs += wayMs + answerMs;
      return reply;
    };
    const node = await world.connect(identity('a'), new TestHost(), {
      client,
      timeInsteadMs: () => world.nowMs + wayMs,
    });
    await node.join();
    answerMs = 900;
    await ask(node, { minute: 5 });
    [wayMs, answerMs] = [900, 0];
    t.equal(await reasonOf(ask(node, { minute: 5 })), 'deadline');
    wayMs = 0;
    t.match((await ask(node, { minute: 5 })).minute, { granted: 5 }, 'and nothing is distrusted');
  },
);

void t.test(
  'slots of a node that was silent for too long are free, its money is not',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = await worldOf(t, () => server.url);
    const gone = await world.connect(identity('a'));
    const other = await world.connect(identity('b'));
    await gone.join();
    await other.join();
    await ask(gone, { slots: 4, money: 60n });
    // Twice the expiry: until the first it begins calls, and these may last for the second.
    world.nowMs += 1_799_000;
    t.match((await ask(other, { slots: 1 })).slots, { granted: 0, heldByOthers: true });
    world.nowMs += 2_000;
    t.match((await ask(other, { slots: 4 })).slots, { granted: 4 });
    t.match((await ask(other, { money: 41n })).money, { granted: 0n, remaining: 40n });
  },
);

void t.test(
  'what a node counted of a period that has not begun is kept until its end',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = await worldOf(t, () => server.url);
    const calendar = new Calendar();
    world.nowMs = calendar.monthAt(world.nowMs).startMs + 3_600_000;
    const node = await world.connect(identity('a'));
    await node.join();
    const day = calendar.dayAt(world.nowMs).number + 1;
    const month = calendar.monthAt(world.nowMs).number + 1;
    const want = { limit: 10n, used: 0n, unused: 0n, least: 1n, most: 1n };
    await node.exchange([
      { scope: 'acct_day', stocks: { calls_per_day: { ...want, period: day } } },
      { scope: 'acct_month', stocks: { calls_per_month: { ...want, period: month } } },
    ]);
    const leftOf = async (scope: string): Promise<number> =>
      Number((await server.command('PTTL', coordinatorKeys(NAMESPACE, 0).of(scope)[0])).slice(1));
    const DAY_MS = 86_400_000;
    const [dayEndMs, monthEndMs] = [
      calendar.dayAt(world.nowMs + DAY_MS).startMs + DAY_MS,
      calendar.monthAt(calendar.monthAt(world.nowMs).startMs + 63 * DAY_MS).startMs,
    ];
    await node.exchange([
      {
        scope: 'acct_day',
        stocks: { calls_per_day: { ...want, used: 1n, most: 0n, least: 0n, period: day } },
      },
      {
        scope: 'acct_month',
        stocks: { calls_per_month: { ...want, used: 1n, most: 0n, least: 0n, period: month } },
      },
    ]);
    t.ok((await leftOf('acct_day')) >= dayEndMs - world.nowMs - 1_000);
    t.ok((await leftOf('acct_month')) >= monthEndMs - world.nowMs - 1_000);
  },
);

void t.test(
  'a call that is tried on several upstreams keeps its place for as long as it lasts',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = await worldOf(t, () => server.url);
    const more = { endedAfterMs: () => 900_000 + 1_205_000 };
    const gone = await world.connect(identity('a'), undefined, more);
    const other = await world.connect(identity('b'), undefined, more);
    await gone.join();
    await other.join();
    await ask(gone, { slots: 4 });
    world.nowMs += 2_104_000;
    t.match((await ask(other, { slots: 1 })).slots, { granted: 0, heldByOthers: true });
    world.nowMs += 2_000;
    t.match((await ask(other, { slots: 4 })).slots, { granted: 4 });
  },
);

void t.test('settings of two hosts differ: a silent node has its own time', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = await worldOf(t, () => server.url);
  const longer = { endedAfterMs: () => 900_000 + 1_205_000 };
  const gone = await world.connect(identity('a'), undefined, longer);
  const other = await world.connect(identity('b'));
  await gone.join();
  await other.join();
  await ask(gone, { slots: 4 });
  // By its own settings the other one would not wait for so long.
  world.nowMs += 2_104_000;
  t.match((await ask(other, { slots: 1 })).slots, { granted: 0, heldByOthers: true });
  world.nowMs += 2_000;
  t.match((await ask(other, { slots: 4 })).slots, { granted: 4 });
});

void t.test('a place in flight is on record for as long as its call lasts', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = await worldOf(t, () => server.url);
  const node = await world.connect(identity('a'));
  await node.join();
  const expires = async (): Promise<boolean> =>
    (await server.command('PTTL', coordinatorKeys(NAMESPACE, 0).of(SUBJECT)[0])) !== ':-1';
  await ask(node, { slots: 1 });
  t.notOk(await expires(), 'a call of days, whose end is the next that is reported');
  await ask(node, { slots: 0 });
  t.ok(await expires());
  const tokens = { limit: 10n, period: 0, used: 0n, unused: 0n, least: 1n, most: 1n };
  await node.exchange([{ scope: SUBJECT, stocks: { tokens_per_minute: tokens } }]);
  t.notOk(await expires(), 'and its tokens');
  const next = await world.connect({ ...identity('a'), incarnation: 'next' });
  await next.join();
  t.ok(await expires(), 'until its life has ended');
});
