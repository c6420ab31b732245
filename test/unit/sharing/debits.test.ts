/** The node of debits joins at the start and leaves in the end: a server awaits each node that it knows. */
import t from 'tap';
import { asPicoUnits, asWallMs } from '#src/core/units.js';
import { CoordinatorLost, type Coordinator } from '#src/sharing/coordinator.js';
import { DebitService } from '#src/sharing/debits.js';
import { QUARANTINE_MS, SERVER_CHECK_MS } from '#src/sharing/valkey-lua.js';
import { identity } from '../../support/authority-conformance.js';
import { eventually } from '../../support/gateway.js';
import { NO_REDIS, startRedis } from '../../support/redis-server.js';
import { TestHost, ValkeyWorld } from '../../support/valkey-world.js';

const nobody = (): void => undefined;

/** Records what is called; `join` fails so many times first. */
function recorded(failures: number): { readonly calls: string[]; readonly coordinator: Coordinator } {
  const calls: string[] = [];
  const call = (name: string): Promise<void> => {
    calls.push(name);
    return Promise.resolve();
  };
  const coordinator: Coordinator = {
    join: async () => {
      await call('join');
      if (failures-- > 0) throw new CoordinatorLost('unreachable', 'no server');
      return asWallMs(1);
    },
    exchange: async (asks) => {
      await call('exchange');
      const balance = { granted: 1n, remaining: 1n, heldByOthers: false, freeInMs: 0, period: 0 };
      return { wallMs: asWallMs(1), replies: asks.map(() => ({ stocks: { balance } })) };
    },
    view: () => Promise.resolve([]),
    leave: () => call('leave'),
    close: () => call('close'),
  };
  return { calls, coordinator };
}

void t.test('a start joins, and tries again', async (t) => {
  const { calls, coordinator } = recorded(1);
  const debits = new DebitService(coordinator, nobody);
  await debits.start();
  t.same(calls, ['join', 'join']);
  await debits.close();
  t.same(calls.slice(2), ['leave', 'close']);
});

void t.test('an end while the server is away', async (t) => {
  const { calls, coordinator } = recorded(Infinity);
  const debits = new DebitService(coordinator, nobody);
  const started = debits.start();
  await debits.close();
  await started;
  t.same(calls, ['join', 'close'], 'nothing is left behind');
});

void t.test('an end while a join is under way', async (t) => {
  const { calls, coordinator } = recorded(0);
  const debits = new DebitService(coordinator, nobody);
  void debits.start();
  await debits.close();
  t.same(calls, ['join', 'leave', 'close']);
});

void t.test('an end while a change with debits is written frees nothing of it', async (t) => {
  const { calls, coordinator } = recorded(0);
  const debits = new DebitService(coordinator, nobody);
  await debits.start();
  let written = nobody;
  const change = debits.during([{ accountId: 'acct_a', amount: asPicoUnits(1n) }], async () => {
    await new Promise<void>((resolve) => (written = resolve));
  });
  await eventually('its money is leased', () => Promise.resolve(calls.includes('exchange') || undefined));
  await debits.close();
  t.same(calls, ['join', 'exchange', 'close'], 'the place is kept with the money');
  written();
  await change;
});

void t.test('money is given back after a change, whichever exchange or reply is lost', async (t) => {
  const change = (fails: boolean): Promise<string> =>
    fails ? Promise.reject(new Error('no change')) : Promise.resolve('changed');
  for (const lost of [1, 2]) {
    for (const isCarriedOut of [true, false]) {
      for (const fails of [true, false]) {
        const { coordinator } = recorded(0);
        const held = new Map<string, bigint>();
        let exchanges = 0;
        const exchange: Coordinator['exchange'] = async (asks) => {
          exchanges += 1;
          if (exchanges !== lost || isCarriedOut)
            for (const { scope, stocks } of asks) held.set(scope, stocks!.balance!.most);
          if (exchanges === lost) throw new CoordinatorLost('deadline', 'no reply');
          return coordinator.exchange(asks);
        };
        const debits = new DebitService({ ...coordinator, exchange }, nobody);
        await debits.start();
        const asked = ['acct_a', 'acct_b'].map((accountId) => ({ accountId, amount: asPicoUnits(5n) }));
        const end = debits.during(asked, () => change(fails)).catch((error: unknown) => String(error));
        t.match(await end, lost === 1 ? /CoordinatorLost/ : fails ? /no change/ : 'changed');
        const isFree = (): true | undefined =>
          (held.size > 0 && [...held.values()].every((amount) => amount === 0n)) || undefined;
        await eventually('all is given back', () => Promise.resolve(isFree()));
        const exchangesBefore = exchanges;
        await debits.during([{ accountId: 'acct_a', amount: asPicoUnits(1n) }], () => change(false));
        t.equal(exchanges - exchangesBefore, 2, 'nothing is given back again');
        await debits.close();
      }
    }
  }
});

void t.test('an end ends the tries to give back', async (t) => {
  const { calls, coordinator } = recorded(0);
  const exchange: Coordinator['exchange'] = (asks) =>
    asks[0]!.stocks!.balance!.most > 0n
      ? coordinator.exchange(asks)
      : Promise.reject(new CoordinatorLost('unreachable', 'no server'));
  const debits = new DebitService({ ...coordinator, exchange }, nobody);
  await debits.start();
  const debit = { accountId: 'acct_a', amount: asPicoUnits(1n) };
  t.equal(await debits.during([debit], () => Promise.resolve('changed')), 'changed');
  await debits.close();
  t.same(calls, ['join', 'exchange', 'leave', 'close'], 'its end gives the money back');
});

void t.test('a server that was restarted does not wait for a node of debits', NO_REDIS, async (t) => {
  const server = await startRedis(t, ['--appendonly', 'yes', '--appendfsync', 'always']);
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const reasonOf = (node: Coordinator): Promise<string> =>
    node.exchange([]).then(
      () => 'none',
      (error: unknown) => (error instanceof CoordinatorLost ? error.reason : String(error)),
    );
  /** With its debits, which begin at once. */
  const startHost = async (name: string, host = new TestHost()) => {
    const calls = await world.connect(identity(name), host);
    const node = await world.connect(identity(name, 1_000_000), host);
    const debits = new DebitService(node, nobody);
    await calls.join();
    await debits.start();
    return { calls, node, debits, host };
  };
  const [stays, leaves, dies] = [await startHost('a'), await startHost('b'), await startHost('c')];
  const nodes = [stays.calls, stays.node, leaves.calls, leaves.node, dies.calls, dies.node];
  world.nowMs += QUARANTINE_MS;
  for (const node of [...nodes, ...nodes]) t.equal(await reasonOf(node), 'none');

  await leaves.calls.leave();
  await leaves.debits.close();
  const next = await startHost('c', dies.host);
  const living = [stays.calls, stays.node, next.calls, next.node];
  for (const node of [...living, ...living]) t.equal(await reasonOf(node), 'none');

  await server.restart();
  world.nowMs += SERVER_CHECK_MS;
  /** Over the connections that broke. */
  const answerOf = (node: Coordinator): Promise<string> =>
    eventually('an answer of the server', async () => {
      const reason = await reasonOf(node);
      return ['unreachable', 'failing', 'deadline'].includes(reason) ? undefined : reason;
    });
  for (const node of living.slice(1)) t.equal(await answerOf(node), 'checking', 'one has not been asked');
  for (const node of living) t.equal(await answerOf(node), 'none');
});
