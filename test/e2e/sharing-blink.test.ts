/**
 * Two gateways as two hosts on one Redis that is killed and started with its log, stands still, is cut off by
 * the network, or fails over by Sentinel, under load: how many calls of an account far from its limits are
 * refused, and of one at its limit; no limit is passed, and the books agree. `npm run test:sharing` has four
 * hosts too, and times up to a minute; it prints the table of docs/sharing.md.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { picoUnitsOf } from '#src/core/money.js';
import type { SharingStatus } from '#src/telemetry/status-document.js';
import { mostSurelyWithin } from '../support/call-span.js';
import { CALL_COST } from '../support/crash-load.js';
import { Crowd } from '../support/crowd.js';
import { eventually } from '../support/gateway.js';
import { startHosts, type Host } from '../support/hosts.js';
import { layCables, NO_CABLES } from '../support/network-cables.js';
import { NO_REDIS, startRedis, type RedisServer } from '../support/redis-server.js';
import { startSentinel } from '../support/redis-sentinel.js';
import type { Wire } from '../support/tcp-proxy.js';

const FULL = process.env.TOLLGATE_SHARING_FULL !== undefined;
const SECONDS = FULL ? [1, 5, 15, 60] : [1, 5];
const HOST_COUNTS = FULL ? [2, 4] : [2];
const FAILOVERS = FULL ? 5 : 1;
/** Four hosts do without the longest. */
const SECONDS_MAX = new Map([[4, 15]]);
const MS_PER_SECOND = 1_000;
const MINUTE_MS = 60_000;
/** Of a call, answered or refused. */
const PACE_MS = 100;
const NEAR_LIMIT = 60;
/** Leases are as long as they get by then. */
const WARM_MS = 15_000;
const CALM_MS = WARM_MS;
/** 2 s, if the machine does nothing else. */
const BACK_MS_MAX = 10_000;
const LOG = ['--appendonly', 'yes', '--appendfsync', 'always'];

const SETTINGS = {
  flush_interval_ms: 200,
  plans: [
    { id: 'far', requests_per_minute: 100_000, calls_per_day: 10_000_000 },
    { id: 'near', requests_per_minute: NEAR_LIMIT, calls_per_day: 10_000_000 },
  ],
};

interface Blink {
  readonly name: string;
  /** Resolves with what the row tells besides. */
  readonly begin: () => Promise<string | undefined> | undefined;
  readonly end: () => Promise<void> | void;
  readonly ms: number;
}

const table: string[] = [];

async function connected(hosts: readonly Host[]): Promise<void> {
  await eventually(
    'all hosts have the server',
    async () => {
      for (const { gateway } of hosts) {
        const status = await gateway.admin.send('GET', '/admin/v1/status');
        if ((status.json() as { readonly sharing: SharingStatus }).sharing.state !== 'connected')
          return undefined;
      }
      return true;
    },
    2 * MINUTE_MS,
  );
}

/** The calls that were asked and those that got 503, so far. */
function countOf({ asked, callers }: Crowd): { readonly asked: number; readonly lost: number } {
  return { asked, lost: callers.reduce((sum, { refused }) => sum + (refused.get(503) ?? 0), 0) };
}

/** Under load: one blink after the other. Prints a row of each. */
async function blinks(t: Test, hosts: readonly Host[], all: readonly Blink[]): Promise<void> {
  const { admin } = hosts[0]!.gateway;
  const customers = [await admin.customer({ plan: 'far' }), await admin.customer({ plan: 'near' })];
  for (const { key } of customers)
    for (const { gateway } of hosts)
      await eventually('the key', async () => {
        const { status } = await gateway.request(key, { method: 'GET', path: '/v1/models' });
        return status === 200 ? true : undefined;
      });
  const crowds = customers.map((customer) => new Crowd(hosts, customer, 2, PACE_MS));
  await sleep(WARM_MS);
  for (const { name, begin, end, ms } of all) {
    const before = crowds.map(countOf);
    const besides = (await begin()) ?? '';
    await sleep(ms);
    await end();
    const endedMs = performance.now();
    await sleep(2 * PACE_MS);
    await connected(hosts);
    const backMs = performance.now() - endedMs;
    const [far, near] = crowds.map(countOf).map(({ asked, lost }, at) => {
      const made = asked - before[at]!.asked;
      return `${(((lost - before[at]!.lost) / made) * 100).toFixed(1)} % of ${made}`;
    });
    table.push(
      `| ${hosts.length} hosts | ${name}${besides} | ${far} | ${near} | ${(backMs / MS_PER_SECOND).toFixed(1)} s |`,
    );
    t.comment(table.at(-1)!);
    t.ok(backMs <= BACK_MS_MAX, `${name}: served again after ${backMs.toFixed(0)} ms`);
    if (ms <= 5_000)
      t.equal(countOf(crowds[0]!).lost, before[0]!.lost, `${name}: not noticed far from limits`);
    await sleep(CALM_MS);
  }
  await Promise.all(crowds.map((crowd) => crowd.stop()));
  for (const [at, crowd] of crowds.entries()) {
    const most = mostSurelyWithin(crowd.calls, MINUTE_MS);
    if (at === 1) t.ok(most <= NEAR_LIMIT, `${most} of ${NEAR_LIMIT} in a minute`);
    t.equal(crowd.broken, 0);
    const spent = BigInt(crowd.answered) * CALL_COST;
    await eventually('every call is charged once', async () => {
      const view = await admin.account(customers[at]!.accountId);
      return picoUnitsOf(view.spent) === spent && view.held === '0.00' ? true : undefined;
    });
  }
  t.comment(`${crowds[1]!.answered} near, ${crowds[0]!.answered} far`);
}

/** Servers below a certain age are not checked; this one is older. */
const age = (redis: RedisServer): Promise<string> => redis.command('HSET', '{tollgate:0}:meta', 'grown', '1');

for (const count of HOST_COUNTS) {
  void t.test(`one server, ${count} hosts`, { ...NO_REDIS, timeout: 600_000 }, async (t) => {
    const redis = await startRedis(t, LOG);
    const { hosts } = await startHosts(t, { count, settings: SETTINGS, server: { redis } });
    await age(redis);
    const seconds = SECONDS.filter((s) => s <= (SECONDS_MAX.get(count) ?? s));
    const killed = seconds.map((s) => ({
      name: `killed, started after ${s} s`,
      begin: () => redis.kill().then(() => undefined),
      end: () => redis.restart(),
      ms: s * MS_PER_SECOND,
    }));
    const stopped = seconds.map((s) => ({
      name: `stands still for ${s} s`,
      begin: () => {
        redis.stop();
        return undefined;
      },
      end: () => redis.resume(),
      ms: s * MS_PER_SECOND,
    }));
    await blinks(t, hosts, [...killed, ...stopped]);
  });

  // Cables of real interfaces where they can be had, else wires of loopback.
  for (const network of ['cables', 'wires'] as const) {
    const skips = network === 'cables' ? NO_CABLES : 'skip' in NO_CABLES ? {} : { skip: 'cables are pulled' };
    const name = `a network that is cut, ${network}, ${count} hosts`;
    void t.test(name, { ...skips, ...NO_REDIS, timeout: 900_000 }, async (t) => {
      const cables = network === 'cables' ? layCables(t, count) : undefined;
      const redis = await startRedis(t, LOG, cables);
      const own = cables?.wires(redis.port);
      const server = own === undefined ? { redis } : { redis, wires: own };
      const { hosts } = await startHosts(t, { count, settings: SETTINGS, server });
      await age(redis);
      const cutOff = (name: string, wires: readonly Wire[], s: number): Blink => ({
        name: `${name} for ${s} s`,
        begin: () => {
          for (const wire of wires) wire.set('held');
          return undefined;
        },
        // As a network does whose packets were lost: what was sent meanwhile is sent again, or breaks.
        end: () => wires.forEach((wire) => wire.set('open')),
        ms: s * MS_PER_SECOND,
      });
      const wires = hosts.map(({ wire }) => wire);
      await blinks(
        t,
        hosts,
        SECONDS.flatMap((s) => [
          cutOff('one host is cut off', wires.slice(0, 1), s),
          cutOff('all hosts are cut off', wires, s),
        ]),
      );
    });
  }

  void t.test(`Sentinel, ${count} hosts`, { ...NO_REDIS, timeout: 600_000 }, async (t) => {
    const first = await startRedis(t, LOG);
    const second = await startRedis(t, [...LOG, '--replicaof', '127.0.0.1', String(first.port)]);
    const sentinel = await startSentinel(t, first.port);
    const url = `redis-sentinel://127.0.0.1:${sentinel.port}/0#main`;
    const { hosts } = await startHosts(t, { count, settings: SETTINGS, server: { redis: first, url } });
    await age(first);
    // By Sentinel: until it names the new master, hosts cannot know of it.
    const failOver = async (from: RedisServer, to: RedisServer): Promise<string> => {
      const killedMs = performance.now();
      await from.kill();
      await eventually(
        'a new master',
        async () => ((await sentinel.masterPort()) === to.port ? true : undefined),
        MINUTE_MS,
      );
      return `, named by Sentinel after ${((performance.now() - killedMs) / MS_PER_SECOND).toFixed(1)} s`;
    };
    const name = 'master killed, a replica takes over';
    const all = Array.from({ length: FAILOVERS }, (_, turn): Blink => {
      const [from, to] = turn % 2 === 0 ? [first, second] : [second, first];
      return {
        name,
        begin: () => failOver(from, to),
        // It comes back as a replica, for the next turn.
        end: () => from.restart([...LOG, '--replicaof', '127.0.0.1', String(to.port)]),
        ms: 0,
      };
    });
    await blinks(t, hosts, all);
  });
}

t.teardown(() => {
  for (const line of table) console.error(line);
});
