/**
 * The coordinator of hosts does what every coordinator does, on a real server: with one partition and with
 * several.
 */
import { inspect } from 'node:util';
import t, { type Test } from 'tap';
import { Calendar } from '#src/core/calendar.js';
import { asPicoUnits, asWallMs, type PicoUnits } from '#src/core/units.js';
import { dayNumberOf, endOfDay } from '#src/ledger/day.js';
import {
  type VersionedTotal,
  type LeaseAsk,
  STOCK_KINDS,
  STOCK_NAMES,
  type StockAsk,
  type StockName,
} from '#src/sharing/coordinator.js';
import { MemoryCoordinator } from '../../support/memory-coordinator.js';
import { coordinatorKeys, packed } from '#src/sharing/valkey-codec.js';
import { MONEY_BASE, QUARANTINE_MS } from '#src/sharing/valkey-lua.js';
import { ManualClock } from '../../fixtures/manual-clock.js';
import { authorityConformance, identity } from '../../support/authority-conformance.js';
import { startCluster } from '../../support/redis-cluster.js';
import { NO_REDIS, startRedis } from '../../support/redis-server.js';
import { eventually } from '../../support/gateway.js';
import { NAMESPACE, TestHost, ValkeyWorld } from '../../support/valkey-world.js';
import { exchangePlain } from '../../support/plain-asks.js';
import { newSeed, randomOf } from '../../support/random.js';

/** `url` is that of a server, or of a Cluster whose servers share the partitions. */
function conformance(t: Test, url: string, flush: () => Promise<unknown>, partitions: number): void {
  authorityConformance(t, 'valkey', async () => {
    await flush();
    const world = new ValkeyWorld(() => url, partitions);
    const hosts = new Map<string, TestHost>();
    const hostOf = (name: string): TestHost => {
      const host = hosts.get(name) ?? new TestHost();
      hosts.set(name, host);
      return host;
    };
    return {
      connect: (node) => world.connect(node, hostOf(node.host)),
      spend: (name, subject, amount) => {
        hostOf(name).spend(subject, amount);
        return Promise.resolve();
      },
      credit: (subject, amount) => world.credit(subject, amount),
      clock: {
        advance: (ms) => {
          world.nowMs += ms;
        },
        turnWall: (ms) => {
          world.nowMs += ms;
        },
        setBeforeMidnight: (ms) => {
          world.nowMs = endOfDay(dayNumberOf(asWallMs(world.nowMs))) - ms;
        },
      },
      close: () => {
        world.close();
        return Promise.resolve();
      },
    };
  });
}

/** So many that each server of the Cluster has some. */
const CLUSTER_PARTITIONS = 6;

for (const partitions of [1, 3]) {
  void t.test(`conformance, ${partitions} partitions`, NO_REDIS, async (t) => {
    const server = await startRedis(t);
    conformance(t, server.url, () => server.command('FLUSHALL'), partitions);
  });
}

void t.test('conformance, a Cluster of three servers', NO_REDIS, async (t) => {
  const cluster = await startCluster(t);
  conformance(t, cluster.url, cluster.flush, CLUSTER_PARTITIONS);
  await t.test('all of them have some of it', async (t) => {
    const sizes = await Promise.all(cluster.servers.map(({ command }) => command('DBSIZE')));
    t.notOk(sizes.includes(':0'), sizes.join(' '));
  });
});

const ROUNDS = 1_500;
const DAY_MS = 86_400_000;

void t.test('random asks are answered as the reference does, to the last pico-unit', NO_REDIS, async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const below = (end: number): number => Math.floor(next() * end);
  // Some around what a double holds, some around the base of the two halves.
  const amount = (): bigint => {
    const bits = BigInt(below(62));
    const value = (1n << bits) + BigInt(below(3)) - 1n;
    return below(4) === 0 ? (value / MONEY_BASE) * MONEY_BASE + BigInt(below(2)) : value;
  };
  const server = await startRedis(t);
  // The reference forgets no silent node.
  const world = new ValkeyWorld(() => server.url, 1, { nodeExpiryMs: Number.MAX_SAFE_INTEGER });
  t.teardown(() => world.close());
  const clock = new ManualClock(world.nowMs, world.nowMs);
  const reference = new MemoryCoordinator(clock);
  const hosts = new Map(['a', 'b'].map((host) => [host, new TestHost()]));
  const live = async (place: string) => {
    const node = identity(place.slice(0, 1), Number(place.slice(2)));
    const real = await world.connect(node, hosts.get(node.host));
    const model = reference.connect(node);
    await Promise.all([real.join(), model.join()]);
    return { place, real, model, used: new Map<string, bigint>() };
  };
  const nodes = await Promise.all(['a:0', 'a:1', 'b:0'].map(live));
  const credited = new Map<string, bigint>();
  const lent: { tick: number; count: number }[] = [];
  let version = 0;
  const calendar = new Calendar();
  const day = calendar.dayAt(world.nowMs).number;
  const month = calendar.monthAt(world.nowMs).number;
  let daysAhead = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const subject = `acct_${below(3)}`;
    if (below(20) === 0) {
      const added = asPicoUnits(amount() / 8n);
      credited.set(subject, (credited.get(subject) ?? 0n) + added);
      if (credited.get(subject)! > 9n * 10n ** 18n) break;
      reference.setCredited(subject, asPicoUnits(credited.get(subject)!));
      await world.credit(subject, added);
    }
    const at = below(nodes.length);
    if (below(60) === 0) nodes[at] = await live(nodes[at]!.place);
    const { real, model, used } = nodes[at]!;
    const most = below(30);
    const some = (end: number): number => (below(2) === 0 ? 0 : below(end));
    const stocks = STOCK_NAMES.filter(() => below(3) === 0).map((name): [StockName, StockAsk] => {
      if (name === 'balance') {
        const mostMoney = amount();
        const spent = { totalPicoUnits: asPicoUnits(amount() / 16n), version: (version += below(3) - 1) };
        const host = at === 2 ? 'b' : 'a';
        hosts.get(host)!.setSpent(subject, spent);
        reference.reportSpent(host, subject, spent);
        const least = below(2) === 0 ? 0n : mostMoney / 2n;
        return [name, { limit: 0n, period: 0, used: 0n, unused: amount() / 16n, least, most: mostMoney }];
      }
      const isLarge = name.startsWith('tokens') || name.startsWith('spend');
      const times = isLarge ? 1_000_000_007n : 1n;
      const ask = { least: BigInt(some(most + 1)) * times, most: BigInt(most) * times };
      const kind = STOCK_KINDS[name];
      const limit = (kind === 'flight' ? 20n : 200n) * times;
      const unused = BigInt(below(9)) * times;
      if (kind === 'flight') return [name, { limit, period: 0, used: 0n, unused, ...ask }];
      if (kind === 'period') {
        const ofNow = name.endsWith('_day') ? day + below(20) - 18 : month + below(4) - 2;
        // By the node's calendar, which is as far off as the server's was lately.
        const period = below(4) === 0 ? ofNow + below(60) : ofNow;
        return [name, { limit, period, used: BigInt(below(40)) * times, unused, ...ask }];
      }
      const key = `${subject} ${name}`;
      const grown = (used.get(key) ?? 0n) + (below(2) === 0 ? 0n : BigInt(below(20)) * times);
      used.set(key, grown);
      return [name, { limit, period: 0, used: grown, unused, ...ask }];
    });
    if (below(80) === 0) {
      const ahead = daysAhead === 0 ? 1 + below(50) : 0;
      clock.advance((ahead - daysAhead) * DAY_MS);
      world.nowMs += (ahead - daysAhead) * DAY_MS;
      daysAhead = ahead;
    }
    const ask: LeaseAsk = {
      scope: subject,
      ...(below(2) === 0
        ? {
            minute: {
              limit: 40,
              least: some(most + 1),
              most,
              forMs: below(20_000),
              returned: lent.splice(0, below(3)),
              ...(below(3) === 0 ? {} : { order: { number: round, heardNumber: round - below(12) } }),
            },
          }
        : {}),
      stocks: Object.fromEntries(stocks),
    };
    const [got, want] = await Promise.all([real.exchange([ask]), model.exchange([ask])]);
    const told = got.replies[0]!;
    if (!t.same(told, want.replies[0], `round ${round}`)) {
      t.comment(inspect(ask, { depth: 4 }));
      break;
    }
    if (told.minute !== undefined && told.minute.granted > 1)
      lent.push({ tick: told.minute.tick, count: 1 + below(told.minute.granted) });
    if (below(3) === 0) {
      const ms = below(below(20) === 0 ? 90_000 : 2_000);
      clock.advance(ms);
      world.nowMs += ms;
    }
  }
  const subjects = ['acct_0', 'acct_1', 'acct_2', 'acct_3'];
  const { real, model } = nodes[0]!;
  const nothing = { period: 0, used: 0n, unused: 0n };
  const slots = [0, 1, 2];
  // The last report of the host may have been older than the one that counts.
  hosts.get('a')!.forgetSpent();
  const views = (await model.view(subjects, slots)).map((view) => ({
    ...view,
    stocks: { balance: nothing, ...view.stocks },
  }));
  t.same(await real.view(subjects, slots), views);
});

void t.test('a rotated key begins with what the one before had used, once', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const host = new TestHost();
  const node = await world.connect(identity('a'), host);
  await node.join();
  let dayNumber = dayNumberOf(asWallMs(world.nowMs));
  host.inherited.set('key_new', { minuteUsed: 6, dayNumber, dayCalls: 15, takenMs: asWallMs(world.nowMs) });
  const ask = async (most: number) => {
    const { answers } = await exchangePlain(node, [
      {
        scope: 'key_new',
        limits: { requestsPerMinute: 10, callsPerDay: 20, callsInFlight: 0 },
        minute: { least: most, most, forMs: 0, returned: [] },
        day: { dayNumber, used: 0, unused: 0, least: most, most },
      },
    ]);
    return answers[0]!;
  };
  t.match(await ask(6), { minute: { granted: 0, remaining: 4 }, day: { granted: 0, remaining: 5 } });
  t.match(await ask(3), { minute: { granted: 3, remaining: 1 }, day: { granted: 3, remaining: 2 } });
  world.nowMs += 62_000;
  t.match(await ask(3), { minute: { granted: 3 }, day: { granted: 3, remaining: 2 } }, 'said anew, not used');
  world.nowMs = endOfDay(dayNumber);
  dayNumber += 1;
  t.match(await ask(20), { day: { granted: 20, dayNumber } });

  const quotas = {
    dayNumber,
    monthNumber: 682,
    minuteTokens: 1,
    tokensPerDay: 2,
    callsPerMonth: 3,
    tokensPerMonth: 70,
    spendPerDay: 5,
    spendPerMonth: 6,
  };
  host.inherited.set('key_newer', {
    minuteUsed: 0,
    dayNumber,
    dayCalls: 0,
    takenMs: asWallMs(world.nowMs),
    quotas,
  });
  const wants = { limit: 100n, used: 0n, unused: 0n, least: 1n, most: 1n };
  const { replies } = await node.exchange([
    {
      scope: 'key_newer',
      stocks: {
        tokens_per_day: { ...wants, period: dayNumber },
        spend_per_day: { ...wants, period: dayNumber },
        calls_per_month: { ...wants, period: 682 },
        tokens_per_month: { ...wants, period: 682 },
        spend_per_month: { ...wants, period: 683 },
      },
    },
  ]);
  t.match(replies[0]!.stocks, {
    tokens_per_day: { granted: 1n, remaining: 97n },
    spend_per_day: { granted: 1n, remaining: 94n },
    calls_per_month: { granted: 1n, remaining: 96n },
    tokens_per_month: { granted: 1n, remaining: 29n },
    spend_per_month: { granted: 1n, remaining: 99n },
  });
});

void t.test(
  'a look knows what its own host has written by now, and of others what they told',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = new ValkeyWorld(() => server.url);
    t.teardown(() => world.close());
    const host = new TestHost();
    const here = await world.connect(identity('a', 0), host);
    const beside = await world.connect(identity('a', 1), host);
    const there = await world.connect(identity('b', 0));
    for (const node of [here, beside, there]) await node.join();
    // Beyond the base of the two halves, so that the difference borrows.
    const subject = 'acct_1';
    const lent = 5n * MONEY_BASE;
    const spent = 2n * MONEY_BASE + 1n;
    await world.credit(subject, asPicoUnits(lent));
    const money = { outstanding: asPicoUnits(0n), least: asPicoUnits(lent), most: asPicoUnits(lent) };
    const limits = { requestsPerMinute: 0, callsPerDay: 0, callsInFlight: 0 };
    await exchangePlain(here, [{ scope: subject, limits, money }]);
    const seen = async (node: typeof here) => {
      const [view] = await node.view([subject]);
      return [view!.spent, view!.stocks.balance!.unused];
    };
    t.same(await seen(beside), [0n, lent]);
    host.spend(subject, spent);
    for (const node of [here, beside]) t.same(await seen(node), [spent, lent - spent]);
    t.same(await seen(there), [0n, lent], 'not told yet');
    const nothing = asPicoUnits(0n);
    const outstanding = asPicoUnits(lent - spent);
    await exchangePlain(here, [
      { scope: subject, limits, money: { outstanding, least: nothing, most: nothing } },
    ]);
    for (const node of [here, beside, there]) t.same(await seen(node), [spent, lent - spent]);
    // A charge is taken back: nobody has it in a lease.
    host.spend(subject, -1n);
    t.same(await seen(here), [spent - 1n, lent - spent]);
  },
);

void t.test(
  'a charge that is flushed while an ask is on its way is counted, twice for a moment',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = new ValkeyWorld(() => server.url);
    t.teardown(() => world.close());
    const host = new TestHost();
    let flush = (): void => undefined;
    const creditedOf = (): { totalPicoUnits: PicoUnits; version: number } => ({
      totalPicoUnits: asPicoUnits(100n),
      version: 1,
    });
    const spentOf = (subject: string): VersionedTotal | undefined => {
      // As late as can be: what was asked says that the money is outstanding.
      flush();
      return host.books.spentOf(subject);
    };
    const node = await world.connect(identity('host'), host, {
      accounting: { ...host.books, spentOf, creditedOf },
    });
    await node.join();
    const remaining = async (outstanding: bigint): Promise<bigint> => {
      const money = { outstanding: asPicoUnits(outstanding), least: asPicoUnits(0n), most: asPicoUnits(0n) };
      const { answers } = await exchangePlain(node, [
        { scope: 'acct_a', limits: { requestsPerMinute: 0, callsPerDay: 0, callsInFlight: 0 }, money },
      ]);
      return answers[0]!.money!.remaining;
    };
    t.equal(await remaining(40n), 60n, 'held by calls');
    flush = () => {
      flush = () => undefined;
      host.spend('acct_a', 40n);
    };
    t.equal(await remaining(40n), 20n, 'twice, and never not at all');
    t.equal(await remaining(0n), 60n, 'once with the next ask');
  },
);

void t.test('what a former version counted is taken over, once its nodes have ended', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const client = world.client();
  const { meta, nodes, awaited, of } = coordinatorKeys(NAMESPACE, 0);
  const day = dayNumberOf(asWallMs(world.nowMs));
  const write = (key: string, field: string, value: unknown) =>
    client.command(undefined, ['HSET', key, field, packed(value)]);
  await eventually('a connection', () => client.command(undefined, ['PING']));
  // Its nodes have used 7 calls of the day.
  await write(of('acct_1')[0], 's', { dc: [day, 7, 0, 0, 0] });
  await write(nodes, 'old:0', ['life', 7, world.nowMs, 'epoch', 0, 0, 0]);
  for (const [field, value] of Object.entries({ epoch: 'epoch', checked: 0, until: 0, lost: 0, fresh: 0 }))
    await client.command(undefined, ['HSET', meta, field, String(value)]);
  const node = await world.connect(identity('a'));
  await t.rejects(node.join(), { reason: 'failing', message: /old:0 .* another version/ });
  // It leaves.
  await client.command(undefined, ['HDEL', nodes, 'old:0']);
  await client.command(undefined, ['SREM', awaited, 'old:0']);
  await node.join();
  world.nowMs += QUARANTINE_MS;
  const stock = { period: day, used: 0n, unused: 0n, least: 1n, most: 9n };
  const { replies } = await node.exchange([
    { scope: 'acct_1', stocks: { calls_per_day: { limit: 10n, ...stock } } },
  ]);
  t.match(replies[0]!.stocks!.calls_per_day, { granted: 1n, remaining: 2n });
});

void t.test(
  'a view goes by the time that asks go by, also after servers with other clocks',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const world = new ValkeyWorld(() => server.url);
    t.teardown(() => world.close());
    const node = await world.connect(identity('a'));
    await node.join();
    // As after takeovers by servers whose clocks were ahead, each by less than a second.
    await server.command('HSET', coordinatorKeys(NAMESPACE, 0).meta, 'skew', '5000');
    const minute = { limit: 10, least: 4, most: 4, forMs: 0, returned: [] };
    await node.exchange([{ scope: 'acct_a', minute }]);
    t.match(await node.view(['acct_a']), [{ minute: { weighing: 4, unexpired: 4 } }]);
  },
);

void t.test('hosts that differ in the number of partitions do not run together', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const [one, two] = [1, 2].map((partitions) => {
    const world = new ValkeyWorld(() => server.url, partitions);
    t.teardown(() => world.close());
    return world;
  }) as [ValkeyWorld, ValkeyWorld];
  for (const world of [one, two]) await world.credit('acct_a', asPicoUnits(100n));
  const hosts = [new TestHost(), new TestHost()] as const;
  const first = await one.connect(identity('a'), hosts[0]);
  await first.join();
  const other = await two.connect(identity('b'), hosts[1]);
  await t.rejects(other.join(), {
    reason: 'failing',
    message: 'a:0 (host:process) has sharing.partitions 1, and this host 2: want the same on all hosts',
  });
  await first.exchange([]);
  await first.leave();
  await other.join();
  // What any host has spent of a scope may be on record in another partition.
  await t.rejects(other.exchange([]), { code: 'authority_lost', reason: 'quarantine' });
  const again = await one.connect({ ...identity('a'), incarnation: 'again' }, hosts[0]);
  await t.rejects(again.join(), {
    reason: 'failing',
    message: /b:0 .* has sharing.partitions 2, and this host 1/,
  });
});
