/** What seeding leaves at a real server, whichever way it ends. */
import t, { type Test } from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { versionOf } from '#src/sharing/host-accounting.js';
import { Superseded } from '#src/sharing/registry-contact.js';
import { download, seed, wayTo } from '#src/sharing/registry-reseed.js';
import { RegistryServer } from '#src/sharing/registry-server.js';
import { ValkeyError } from '#src/sharing/valkey-client.js';
import type { RegistryPosition } from '#src/store/registry-copy.js';
import type { Store } from '#src/store/store.js';
import { eventually, temporaryFolder } from '../../support/gateway.js';
import { NO_REDIS, startRedis, type RedisServer } from '../../support/redis-server.js';
import { RegistryHost } from './registry-host.js';

/** More than one batch of rows. */
const ACCOUNTS = 600;
const RANK = 'rank';
const countOf = (values: Iterable<unknown>): number => [...values].length;

/** A server at which something happens after each batch of rows, or after the end of a seeding. */
class DisturbedServer extends RegistryServer {
  afterRows: () => unknown = () => undefined;
  afterFinish: () => unknown = () => undefined;
  afterRead: () => unknown = () => undefined;
  failsToDrop = false;

  override async putRows(...args: Parameters<RegistryServer['putRows']>): Promise<boolean> {
    const put = await super.putRows(...args);
    await this.afterRows();
    return put;
  }

  override async finishSeed(...args: Parameters<RegistryServer['finishSeed']>): Promise<boolean> {
    const done = await super.finishSeed(...args);
    await this.afterFinish();
    return done;
  }

  override async *rows(...args: Parameters<RegistryServer['rows']>): ReturnType<RegistryServer['rows']> {
    for await (const rows of super.rows(...args)) {
      yield rows;
      await this.afterRead();
    }
  }

  override async dropEpoch(epoch: string): Promise<void> {
    if (this.failsToDrop) throw lost();
    await super.dropEpoch(epoch);
  }
}

interface Seeding {
  readonly redis: RedisServer;
  readonly host: RegistryHost;
  readonly server: DisturbedServer;
  /** The keys of rows that the server has. */
  readonly rowKeys: () => Promise<string[]>;
  readonly seed: () => Promise<boolean>;
}

async function prepare(t: Test): Promise<Seeding> {
  const redis = await startRedis(t);
  const host = new RegistryHost(temporaryFolder(t), redis.url, 'host');
  t.teardown(() => host.close());
  host.store.shared.commitAgreed(() => {
    for (let at = 0; at < ACCOUNTS; at++) {
      host.registry.accounts.create({ name: `a${at}`, planId: 'free', credit: asPicoUnits(1n) });
    }
  });
  host.store.commit(() => host.store.copy.detach());
  const [client, waiter] = host.clients;
  const server = new DisturbedServer({ client: client!, waiter: waiter!, namespace: 'test' });
  await eventually('a connection', () =>
    server.reportCopy({ host: 'host', rank: RANK }, { wantsToSeed: true }).catch(() => undefined),
  );
  const rowKeys = async (): Promise<string[]> =>
    (await client!.command(undefined, ['KEYS', '*:rows:*'])) as string[];
  const begin = (): Promise<boolean> => seed(host.store, server, 'host', undefined);
  return { redis, host, server, rowKeys, seed: begin };
}

const lost = (): ValkeyError => new ValkeyError('offline', 'the server is gone');

void t.test('a host that loses its permission in mid-seed leaves no rows', NO_REDIS, async (t) => {
  const { redis, server, rowKeys, ...seeding } = await prepare(t);
  let batches = 0;
  server.afterRows = () => {
    batches++;
    return redis.command('SET', '{test:0}:registry:seeder', 'another');
  };
  t.equal(await seeding.seed(), false);
  t.ok(batches < 3, 'it stops at once');
  t.same(await rowKeys(), []);
});

void t.test('rows of a host that ends, or loses its server, in mid-seed expire', NO_REDIS, async (t) => {
  const { redis, server, rowKeys, ...seeding } = await prepare(t);
  server.afterRows = () => Promise.reject(lost());
  server.failsToDrop = true;
  await t.rejects(seeding.seed(), { code: 'offline' });
  const [left] = await rowKeys();
  t.match(await redis.command('PTTL', left!), /^:[1-9]/);
});

void t.test('a server that loses rows in mid-seed gets no registry without them', NO_REDIS, async (t) => {
  const { redis, server, rowKeys, ...seeding } = await prepare(t);
  server.afterRows = async () => {
    server.afterRows = () => undefined;
    await redis.command('DEL', ...(await rowKeys()));
  };
  t.equal(await seeding.seed(), false);
  t.equal(await server.pull(undefined), undefined);
  t.same(await rowKeys(), []);
});

void t.test('what a seeding has put stays, and what it replaces goes with it', NO_REDIS, async (t) => {
  const { redis, host, server, rowKeys, ...seeding } = await prepare(t);
  t.equal(await seeding.seed(), true);
  const [first] = await rowKeys();
  t.equal(await redis.command('PTTL', first!), ':-1');
  t.equal(await redis.command('HLEN', first!), `:${[...host.store.copy.rows()].length}`);
  server.failsToDrop = true;
  await server.reportCopy({ host: 'host', rank: RANK }, { wantsToSeed: true });
  t.equal(await seed(host.store, server, 'host', host.store.copy.position()), true);
  const [second, ...others] = await rowKeys();
  t.not(second, first);
  t.same(others, []);
});

void t.test('a host that does not hear that it has seeded knows its own registry', NO_REDIS, async (t) => {
  const { host, server, ...seeding } = await prepare(t);
  server.afterFinish = () => Promise.reject(lost());
  await t.rejects(seeding.seed(), { code: 'offline' });
  const { copy } = host.store;
  const found = await server.pull(undefined);
  t.equal(wayTo(copy, found!.position, copy.position()), 'equal');
  // A process that ends in the middle of a download leaves the position, and rows of two epochs.
  host.store.shared.commitAgreed(() => copy.setPartial());
  t.equal(wayTo(copy, found!.position, copy.position()), 'older');
});

void t.test(
  'what was reported in an epoch is older than all of the next, however many there were',
  async (t) => {
    let position: RegistryPosition = { epoch: 'first', version: 5, lastId: 'x', history: [] };
    const copy = {
      position: () => position,
      rows: () => [],
      isEmpty: () => false,
      setPosition: (next: RegistryPosition) => (position = next),
    };
    const store = { copy, shared: { commitAgreed: (work: () => void) => work() } } as unknown as Store;
    const server = { finishSeed: () => Promise.resolve(true) } as unknown as RegistryServer;
    for (let epoch = 0; epoch < 40; epoch++) {
      const lost = { ...position, version: position.version + 3 };
      t.ok(await seed(store, server, 'host', position));
      t.ok(versionOf(position) > versionOf(lost), `after epoch ${epoch}`);
    }
    t.ok(Number.isSafeInteger(versionOf(position)));
  },
);

void t.test('a copy of an epoch that ends in mid-download is no copy', NO_REDIS, async (t) => {
  const { redis, host, server, ...seeding } = await prepare(t);
  await seeding.seed();
  const before = host.store.copy.position()!;
  server.afterRead = async () => {
    server.afterRead = () => undefined;
    await server.reportCopy({ host: 'host', rank: RANK }, { wantsToSeed: true });
    t.equal(await seed(host.store, server, 'host', before), true);
  };
  const other = new RegistryHost(temporaryFolder(t), redis.url, 'other');
  t.teardown(() => other.close());
  const failure = await download(other.store, server, before).catch((error: unknown) => error);
  t.ok(failure instanceof Superseded);
  t.equal(other.store.copy.position(), undefined);
  t.equal(other.store.copy.isPartial(), true);
});

void t.test('while a host takes all rows, each has its group when it comes', NO_REDIS, async (t) => {
  const { redis, host, server, ...seeding } = await prepare(t);
  const { registry, store } = host;
  store.shared.commitAgreed(() => {
    const ids = store.listAccounts(0, ACCOUNTS).items.map(({ id }) => id);
    for (const [at, account] of ids.entries()) {
      const parent = registry.groups.create({ name: `p${at}` }).record;
      const child = registry.groups.create({ name: `c${at}`, parent: parent.id }).record;
      registry.accounts.setGroup(account, child.id);
    }
  });
  store.commit(() => store.copy.detach());
  await seeding.seed();
  const other = new RegistryHost(temporaryFolder(t), redis.url, 'other');
  t.teardown(() => other.close());
  let [looks, ungrouped, orphans] = [0, 0, 0];
  server.afterRead = () => {
    looks++;
    for (const { groupId } of other.store.accounts()) if (!other.store.groups.find(groupId!)) ungrouped++;
    for (const { parentId } of other.store.groups.all())
      if (parentId !== undefined && !other.store.groups.find(parentId)) orphans++;
  };
  let most = 0;
  const shared: Pick<Store, 'shared' | 'copy'> = {
    copy: other.store.copy,
    shared: Object.assign(Object.create(other.store.shared) as Store['shared'], {
      commitAgreed: (work: () => void): void => {
        const before = countOf(other.store.groups.all());
        other.store.shared.commitAgreed(work);
        server.afterRead();
        most = Math.max(most, countOf(other.store.groups.all()) - before);
      },
    }),
  };
  await download(shared, server, store.copy.position()!);
  t.equal(most, 1_000, 'no transaction blocks the main thread for long');
  t.ok(looks > 3, `${looks} batches`);
  t.same({ ungrouped, orphans }, { ungrouped: 0, orphans: 0 });
  t.equal(other.rows(), host.rows());
});
