/**
 * Two hosts with a store each, as the settings put them together: one balance, to the last pico-unit. And
 * what they tell the server of how long they may have calls.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { asAccountIndex, asPicoUnits, asWallMs } from '#src/core/units.js';
import { loadSettings } from '#src/config/load.js';
import type { Settings } from '#src/config/schema.js';
import type { Coordinator } from '#src/sharing/coordinator.js';
import { openHostCoordinators, type HostCoordinators } from '#src/sharing/open-hosts.js';
import { ValkeyClient } from '#src/sharing/valkey-client.js';
import { coordinatorKeys, unpacked } from '#src/sharing/valkey-codec.js';
import { REGISTRY_POSITION } from '#src/store/registry-copy.js';
import { Store } from '#src/store/store.js';
import { openTables, type Tables } from '#src/store/tables.js';
import { eventually, temporaryFolder } from '../../support/gateway.js';
import { NO_REDIS, startRedis } from '../../support/redis-server.js';
import { exchangePlain, type PlainReply } from '../../support/plain-asks.js';

const ACCOUNT = 'acct_0000000000000001';
const INDEX = asAccountIndex(0);
const NO_LIMITS = { requestsPerMinute: 0, callsPerDay: 0, callsInFlight: 0 };
const CLOCK = new SystemClock();

interface Host {
  readonly store: Store;
  readonly nodes: HostCoordinators;
  credit(amount: bigint, version: number): void;
  flush(spent: bigint): void;
  /** Damages rows of the store. */
  damage(put: (tables: Tables) => void): Promise<void>;
}

function hostOf(t: Test, url: string, name: string, modelsInForce?: () => Settings['models']): Host {
  const folder = temporaryFolder(t);
  const data = join(folder, 'data');
  mkdirSync(data);
  const store = new Store(data);
  const { settings } = loadSettings({ data }, { environment: {}, workingDirectory: folder });
  const sharing = {
    url,
    namespace: 'test',
    on_authority_loss: 'refuse',
    node_expiry_seconds: 900,
    partitions: 2,
  } as const;
  const nodes = openHostCoordinators({
    settings: { ...settings, sharing },
    modelsInForce: modelsInForce ?? (() => settings.models),
    host: name,
    slot: 0,
    store,
    clock: CLOCK,
    log: { warn: () => undefined, error: () => undefined },
  });
  t.teardown(async () => {
    await nodes.calls.close();
    await nodes.debits.close();
    await store.close();
  });
  const mark = store.newFlushMark(0, name);
  return {
    store,
    nodes,
    damage: async (put) => {
      const tables = openTables(data);
      tables.environment.write(() => put(tables));
      await tables.environment.close();
    },
    credit: (amount, version) =>
      store.shared.commitAgreed(() => {
        const credited = asPicoUnits(amount);
        store.putAccount({
          index: INDEX,
          id: ACCOUNT,
          name: 'a',
          planId: 'p',
          active: true,
          createdMs: asWallMs(0),
          credited,
        });
        store.copy.setPosition({ epoch: 'e', version, lastId: String(version), history: [] });
      }),
    flush: (spent) => {
      const putMark = mark.begin();
      const day = { dayNumber: 0, dayCalls: 0, minuteUsed: 0, takenMs: asWallMs(0) };
      const row = { spent: asPicoUnits(spent), uncovered: asPicoUnits(0n), ...day };
      store.commit(() => {
        store.putAccounting({ spendings: new Map([[INDEX, row]]), usages: [] });
        putMark();
      });
    },
  };
}

async function money(node: Coordinator, outstanding: bigint, want: bigint): Promise<PlainReply['money']> {
  const [least, held] = [asPicoUnits(want), asPicoUnits(outstanding)];
  const ask = { scope: ACCOUNT, limits: NO_LIMITS, money: { outstanding: held, least, most: least } };
  return (await exchangePlain(node, [ask])).answers[0]!.money;
}

void t.test('what hosts are credited, hold and have spent', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const [first, second] = [hostOf(t, server.url, 'a'), hostOf(t, server.url, 'b')];
  const total = 2_999_999_999_999_999_999n;
  for (const host of [first, second]) host.credit(total, 5);
  for (const { nodes } of [first, second]) {
    await eventually('a join', () => nodes.calls.join());
    await eventually('a join', () => nodes.debits.join());
  }
  t.match(await money(first.nodes.calls, 0n, total - 100n), { granted: total - 100n, remaining: 100n });
  first.flush(total - 150n);
  t.match(await money(first.nodes.calls, 50n, 0n), { remaining: 100n });
  // An operator takes 60 out, on the second host: first it is leased, then less is credited, then it is given
  // back.
  t.match(await money(second.nodes.debits, 0n, 60n), { granted: 60n, remaining: 40n });
  second.credit(total - 60n, 6);
  t.match(
    await money(second.nodes.debits, 0n, 0n),
    { remaining: 40n },
    'credited went down as the lease ended',
  );
  t.match(
    await money(first.nodes.calls, 50n, 41n),
    { granted: 0n, remaining: 40n },
    'an older copy does not count',
  );
  t.match(await money(first.nodes.calls, 50n, 40n), { granted: 40n, remaining: 0n });
  first.flush(total - 155n);
  t.match(await money(first.nodes.calls, 90n, 0n), { remaining: 5n }, 'a reversal');
});

void t.test('damaged rows that name an account or a version keep no host out', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const host = hostOf(t, server.url, 'a');
  host.credit(1_000n, 5);
  host.flush(400n);
  await host.damage(({ accountSlots }) => accountSlots.putSync(INDEX, { no: 'id' }));
  await eventually('a join', () => host.nodes.calls.join());
  t.match(await money(host.nodes.calls, 0n, 100n), { granted: 100n, remaining: 500n }, 'all is reported');
  await host.damage(({ meta }) => meta.putSync(REGISTRY_POSITION, 'no position'));
  t.match(await money(host.nodes.calls, 100n, 500n), { granted: 500n, remaining: 0n });
  await host.nodes.calls.leave();
});

/** The item ENDED_AFTER of a node's record, see valkey-lua.ts. */
const ENDED_AFTER = 15;

void t.test(
  'a reload does not shorten how long the server takes a node to have calls',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const modelsWith = (timeoutMs: number): Settings['models'] =>
      [
        { id: 'm', fallbacks: [], upstreams: [{ total_timeout_ms: timeoutMs, queue_ms: 0 }] },
      ] as unknown as Settings['models'];
    let models = modelsWith(3_000_000);
    const { nodes } = hostOf(t, server.url, 'a', () => models);
    const client = new ValkeyClient({ url: server.url, name: 'test', deadlineMs: 5_000 });
    t.teardown(() => client.close());
    await eventually('a join', () => nodes.calls.join());
    const endedAfterMs = async (): Promise<unknown> => {
      await nodes.calls.exchange([]);
      const key = coordinatorKeys('test', 0).nodes;
      const record = await client.command(key, ['HGET', key, 'a:0'], { binary: true });
      return (unpacked(record as Buffer) as unknown[])[ENDED_AFTER];
    };
    const first = (await endedAfterMs()) as number;
    t.ok(first > 900_000 + 3_000_000, `${first}: until it expires, and for as long as a call lasts`);
    models = modelsWith(1_000);
    t.equal(await endedAfterMs(), first, 'calls go on by the settings that they began with');
    models = modelsWith(4_000_000);
    t.equal(await endedAfterMs(), first + 1_000_000);
  },
);
