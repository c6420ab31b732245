/** Hosts that share accounts and keys over a real server. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { eventually, temporaryFolder } from '../../support/gateway.js';
import { NO_REDIS, startRedis, type RedisServer } from '../../support/redis-server.js';
import { registryKeys } from '#src/sharing/valkey-codec.js';
import { RegistryHost } from './registry-host.js';
import { newSeed } from '../../support/random.js';

const none = asPicoUnits(0n);
const one = asPicoUnits(1n);

async function joinedHosts(
  t: Test,
  url: string,
  count: number,
  candidatesWaitMs?: number,
): Promise<RegistryHost[]> {
  const hosts = Array.from({ length: count }, (_, at) => openHost(t, url, `host${at}`, candidatesWaitMs));
  await Promise.all(hosts.map((host) => host.log.join()));
  return hosts;
}

function openHost(t: Test, url: string, name: string, candidatesWaitMs?: number): RegistryHost {
  const host = new RegistryHost(temporaryFolder(t), url, name, candidatesWaitMs);
  t.teardown(() => host.close());
  return host;
}

async function assertAllEqual(t: Test, hosts: readonly RegistryHost[], what: string): Promise<void> {
  const newest = Math.max(...hosts.map(({ store }) => store.copy.position()!.version));
  await eventually(what, async () => {
    await Promise.resolve();
    const equal = hosts.every((host) => host.store.copy.position()?.version === newest);
    return equal ? true : undefined;
  });
  const [first] = hosts;
  const expected = first!.rows();
  for (const host of hosts) t.ok(host.rows() === expected, `${what}: all have the same rows`);
  const chain = await first!.store.operatorChanges.verify();
  t.same(chain.problems, [], `${what}: the chain of changes is whole`);
  t.ok(chain.rows > 0);
}

void t.test('random changes on four hosts at once end the same on all', NO_REDIS, async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const redis = await startRedis(t);
  const hosts = await joinedHosts(t, redis.url, 4);
  await hosts[0]!.change(({ accounts }) => accounts.create({ name: 'all', planId: 'free', credit: none }));
  let credited = 0n;
  let rejected = 0;
  const startedMs = performance.now();
  await Promise.all(
    hosts.map(async (host, at) => {
      let state = (seed + at * 7_919) | 1;
      const random = (below: number): number => {
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        return (state >>> 0) % below;
      };
      for (let operation = 0; operation < 20; operation++) {
        const names = host.store.listAccounts(0, 1_000).items.map(({ name }) => name);
        const keys = host.store.keys.list(undefined, 0, 1_000).items.map(({ id }) => id);
        const name = names[random(names.length)] ?? 'all';
        const key = keys[random(Math.max(1, keys.length))] ?? 'none';
        const groups = host.store.groups.list(0, 100).items;
        const group = random(3) === 0 ? undefined : groups[random(Math.max(1, groups.length))]?.name;
        // Names that hosts fight for.
        const fresh = `a${random(30)}`;
        const operations = [
          () => host.change(({ accounts }) => accounts.create({ name: fresh, planId: 'free', credit: none })),
          () => host.change(({ accounts }) => accounts.setPlan(name, 'paid')),
          () => host.change(({ accounts }) => accounts.setActive(name, random(2) === 0)),
          () => host.change(({ keys }) => keys.create({ account: name, name: `k${random(8)}` })),
          () => host.change(({ keys }) => keys.setActive(key, random(2) === 0)),
          () => host.change(({ keys }) => keys.rotate(key, 60)),
          () => host.change(({ keys }) => keys.delete(key)),
          () => host.change(({ operators }) => operators.create({ name: `o${random(5)}`, role: 'viewer' })),
          () => host.change(({ operators }) => operators.rotate(`o${random(5)}`, {})),
          () => host.change(({ operators }) => operators.delete(`o${random(5)}`)),
          () => host.change(({ groups }) => groups.create({ name: `g${random(8)}`, parent: group })),
          () =>
            host.change(({ groups }) => groups.setLimits(group ?? 'none', { tokensPerDay: 1 + random(9) })),
          () => host.change(({ groups }) => groups.delete(group ?? 'none')),
          () => host.change(({ accounts }) => accounts.setGroup(name, group)),
          () =>
            host.change((registry) =>
              registry.createInBulk([
                { name: `${fresh}b`, planId: 'paid', credit: one, keys: [{ name: 'x' }, { name: 'y' }] },
              ]),
            ),
          async () => {
            await host.change(({ credits }) => credits.add('all', one, 'one'));
            credited += 1n;
          },
        ];
        try {
          await operations[random(operations.length)]!();
        } catch (error) {
          const { code } = error as { readonly code?: string };
          if (!['invalid_parameters', 'not_found', 'conflict'].includes(code ?? '')) throw error;
          rejected++;
        }
      }
    }),
  );
  t.comment(`80 changes, ${rejected} refused, ${((performance.now() - startedMs) / 80).toFixed(1)} ms each`);
  await assertAllEqual(t, hosts, 'after the storm');
  t.equal(hosts[3]!.store.findAccountByName('all')!.credited, credited, 'every credit once');
  const names = hosts[3]!.store.keys
    .list(undefined, 0, 1_000)
    .items.filter(({ replacedById }) => replacedById === undefined)
    .map(({ accountId, name }) => `${accountId} ${name}`);
  t.equal(new Set(names).size, names.length, 'no account has two keys of one name');
  t.ok(rejected < 60, 'most were made');

  const late = openHost(t, redis.url, 'late');
  await late.log.join();
  await assertAllEqual(t, [...hosts, late], 'a host that joins empty');
  await redis.command('XTRIM', await logKey(redis), 'MAXLEN', '0');
  const later = openHost(t, redis.url, 'later');
  await later.log.join();
  await assertAllEqual(t, [...hosts, later], 'and one where the log holds nothing');
});

void t.test('of hosts that make a key of one name at once, one makes it', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const hosts = await joinedHosts(t, redis.url, 4);
  await hosts[0]!.change(({ accounts }) => accounts.create({ name: 'a', planId: 'free', credit: none }));
  await assertAllEqual(t, hosts, 'the account');
  for (let round = 0; round < 5; round++) {
    const made = await Promise.allSettled(
      hosts.map((host) => host.change(({ keys }) => keys.create({ account: 'a', name: `k${round}` }))),
    );
    const refusals = made.flatMap((outcome) =>
      outcome.status === 'rejected' ? [outcome.reason as Error] : [],
    );
    t.equal(refusals.length, 3);
    for (const rejection of refusals)
      t.match(rejection, { code: 'invalid_parameters', message: /^name must be unique/ });
  }
});

void t.test('a disabled key is known on every host within a second', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const hosts = await joinedHosts(t, redis.url, 3);
  const [first] = hosts;
  await first!.change(({ accounts }) => accounts.create({ name: 'a', planId: 'free', credit: none }));
  const latenciesMs: number[] = [];
  for (let round = 0; round < 5; round++) {
    const { record } = await first!.change(({ keys }) => keys.create({ account: 'a', name: `k${round}` }));
    await first!.change(({ keys }) => keys.setActive(record.id, false));
    const sinceMs = performance.now();
    for (const host of hosts) {
      await eventually('the disabled key', async () => {
        await Promise.resolve();
        return host.store.keys.find(record.id)?.active === false ? true : undefined;
      });
    }
    latenciesMs.push(performance.now() - sinceMs);
  }
  t.comment(`slowest ${Math.max(...latenciesMs).toFixed(1)} ms`);
  // A second where the machine does nothing else; the order of five rounds is what a loss would break.
  t.ok(latenciesMs.sort((a, b) => a - b)[2]! < 5_000);
});

void t.test('a host with accounts of its own is refused, and nothing is mixed', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const own = openHost(t, redis.url, 'own');
  own.registry.accounts.create({ name: 'first', planId: 'free', credit: none });
  await own.log.join();
  t.ok(own.store.copy.position(), 'the first one seeds the server');
  const other = openHost(t, redis.url, 'other');
  other.registry.accounts.create({ name: 'second', planId: 'free', credit: none });
  await t.rejects(other.log.join(), { code: 'registry_diverged', message: /accounts of its own/ });
  t.same(
    other.store.listAccounts(0, 10).items.map(({ name }) => name),
    ['second'],
  );
});

void t.test('a host that changed its copy alone does not mix it with the others', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const [host] = await joinedHosts(t, redis.url, 1);
  await host!.change(({ accounts }) => accounts.create({ name: 'a', planId: 'free', credit: none }));
  const { store, registry } = host!;
  store.commit(() => registry.accounts.find('a'));
  t.throws(() => registry.accounts.create({ name: 'a', planId: 'free', credit: none }));
  store.putAccounting({ spendings: new Map(), usages: [] });
  t.ok(store.copy.position(), 'what changes no account and no key is its own affair');
  for (const client of host!.clients) client.close();
  await host!.log.close();
  registry.accounts.setActive('a', false);
  t.equal(store.copy.position(), undefined, 'and so it is one with accounts of its own');
});

void t.test('what was acknowledged outlives kill -9 of its host', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const [host] = await joinedHosts(t, redis.url, 1);
  await host!.change(({ accounts }) => accounts.create({ name: 'a', planId: 'free', credit: none }));
  const program = fileURLToPath(new URL('registry-host.js', import.meta.url));
  let acknowledged = 0n;
  for (const killAfter of [1, 15]) {
    const child = spawn(process.execPath, [program, temporaryFolder(t), redis.url], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      if (output.includes(`${killAfter}\n`)) child.kill('SIGKILL');
    });
    await once(child, 'close');
    acknowledged += BigInt(output.split('\n').filter((line) => line !== '').length);
    await eventually('the credits', async () => {
      await host!.change(({ accounts }) => accounts.setActive('a', true));
      return host!.store.findAccountByName('a')!.credited >= acknowledged ? true : undefined;
    });
    const { credited } = host!.store.findAccountByName('a')!;
    t.ok(credited <= acknowledged + 1n, 'at most the one that was not acknowledged yet is there too');
    acknowledged = credited;
  }
});

void t.test('a server that comes back empty gets the newest copy', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  // Long enough for hosts to notice, and to come back, on a busy machine.
  const hosts = await joinedHosts(t, redis.url, 2, 3_000);
  const [first, second] = hosts as [RegistryHost, RegistryHost];
  await first.change(({ accounts }) => accounts.create({ name: 'a', planId: 'free', credit: one }));
  await assertAllEqual(t, hosts, 'before');
  await redis.kill();
  await t.rejects(
    first.change(({ credits }) => credits.add('a', one, '')),
    { message: /^Nothing was changed|^It is not known whether/ },
  );
  t.equal(first.registry.accounts.find('a').record.credited, one, 'reading goes on');
  await redis.restart();
  // A host that knows nothing comes at the worst moment.
  const fresh = openHost(t, redis.url, 'fresh', 3_000);
  await fresh.log.join();
  await eventually('the registry', async () => {
    await second.change(({ credits }) => credits.add('a', one, '')).catch(() => undefined);
    return second.store.findAccountByName('a')!.credited > one ? true : undefined;
  });
  const { epoch, history } = second.store.copy.position()!;
  t.equal(history.length, 1, 'one new epoch');
  t.not(epoch, history[0]![0]);
  await assertAllEqual(t, [...hosts, fresh], 'after');
});

void t.test('a copy that a stale server does not know is kept apart', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const hosts = await joinedHosts(t, redis.url, 2);
  const [first, second] = hosts as [RegistryHost, RegistryHost];
  await first.change(({ accounts }) => accounts.create({ name: 'a', planId: 'free', credit: one }));
  await assertAllEqual(t, hosts, 'before');
  // As after a failover to a replica that had not heard of the last change, when another host went on from
  // there.
  for (const client of second.clients) client.close();
  await second.log.close();
  const { version, epoch, history } = second.store.copy.position()!;
  second.store.shared.commitAgreed(() => {
    second.store.copy.setPosition({ version, lastId: 'another', epoch, history });
  });
  const again = new RegistryHost(temporaryFolder(t), redis.url, 'again');
  t.teardown(() => again.close());
  again.store.shared.commitAgreed(() => {
    for (const row of second.store.copy.rows()) again.store.copy.apply(row);
    again.store.copy.setPosition({ version, lastId: 'another', epoch, history });
  });
  await t.rejects(again.log.join(), { code: 'registry_diverged', message: /has lost changes/ });
  await t.rejects(
    again.change(({ credits }) => credits.add('a', one, '')),
    { code: 'overloaded' },
  );
  t.equal(again.store.findAccountByName('a')!.credited, one);
});

void t.test('a change that this host cannot write to its disk is told as made', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const hosts = await joinedHosts(t, redis.url, 2);
  const [first, second] = [hosts[0]!, hosts[1]!];
  await first.change(({ accounts }) => accounts.create({ name: 'a', planId: 'free', credit: none }));
  await assertAllEqual(t, hosts, 'before');
  const { shared } = first.store;
  const take = shared.commitAgreed.bind(shared);
  shared.commitAgreed = () => {
    throw Object.assign(new Error('No space left on device'), { code: 28 });
  };
  const credit = (): Promise<unknown> => first.change(({ credits }) => credits.add('a', one, ''));
  await t.rejects(credit(), {
    code: 'conflict',
    message: /^The change is made/,
    retryAfterSeconds: undefined,
  });
  await eventually('the other host has it', async () => {
    await Promise.resolve();
    return second.store.findAccountByName('a')!.credited === one ? true : undefined;
  });
  await t.rejects(credit(), { code: 'overloaded', message: /^Nothing was changed/ });
  shared.commitAgreed = take;
  await assertAllEqual(t, hosts, 'the disk has room again');
  t.equal(first.store.findAccountByName('a')!.credited, one);
});

async function logKey(redis: RedisServer): Promise<string> {
  const state = await redis.command('HGET', '{test:0}:registry', 'epoch');
  return `{test:0}:registry:log:${state}`;
}

void t.test('a damaged record of the shared registry', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const hosts = await joinedHosts(t, redis.url, 2);
  const [first] = hosts;
  await first!.change(({ accounts }) => accounts.create({ name: 'all', planId: 'free', credit: none }));
  await assertAllEqual(t, hosts, 'a change');
  const { epoch, version, lastId } = first!.store.copy.position()!;
  const { state, logOf, rowsOf } = registryKeys('test');
  const words = ['id', 'damaged', 'after', lastId, 'rows', '[['];
  await redis.command('XADD', logOf(epoch), `${version + 1}-0`, ...words);
  await redis.command('HSET', state, 'version', String(version + 1), 'last', 'damaged');
  await eventually('the next version', () =>
    Promise.resolve(hosts.every(({ store }) => store.copy.position()?.version === version + 1) || undefined),
  );
  await first!.change(({ accounts }) => accounts.setActive('all', false));
  await assertAllEqual(t, hosts, 'a change after one that nobody can read');
  for (const { lines } of hosts) t.equal(lines.lines.filter((line) => line.includes('is damaged')).length, 1);

  await redis.command('HSET', rowsOf(epoch), '["operators","x"]', '{');
  await t.rejects(openHost(t, redis.url, 'empty').log.join(), {
    code: 'refused',
    message: /"operators","x"/,
  });
  await first!.change(({ accounts }) => accounts.setActive('all', true));
  await assertAllEqual(t, hosts, 'those that have a copy go on');
});

void t.test(
  'a damaged position of the shared registry is named, and nothing goes by it',
  NO_REDIS,
  async (t) => {
    const redis = await startRedis(t);
    const hosts = await joinedHosts(t, redis.url, 2);
    const [first] = hosts;
    const change = (active: boolean) => first!.change(({ accounts }) => accounts.setActive('all', active));
    await first!.change(({ accounts }) => accounts.create({ name: 'all', planId: 'free', credit: none }));
    await assertAllEqual(t, hosts, 'a change');
    const { state } = registryKeys('test');
    for (const [field, damaged] of [
      ['version', 'x'],
      ['version', '1.5'],
      ['history', '{}'],
      ['history', '[["e"]]'],
    ] as const) {
      const sound = await redis.command('HGET', state, field);
      await redis.command('HSET', state, field, damaged);
      const named = RegExp(`record ${state} at the sharing server is damaged`.replace(/[{}]/g, '.'));
      await eventually(`${field} ${damaged}`, () =>
        change(false).then(
          () => undefined,
          (error: unknown) => named.test(String(error)) || undefined,
        ),
      );
      await redis.command('HSET', state, field, sound);
      await eventually('sound again', () =>
        change(true).then(
          () => true,
          () => undefined,
        ),
      );
      await assertAllEqual(t, hosts, 'all go on');
    }
  },
);
