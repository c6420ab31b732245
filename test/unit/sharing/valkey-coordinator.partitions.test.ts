/** What a coordinator does if one of its partitions fails, or replies with nonsense. */
import t from 'tap';
import { identity } from '../../support/authority-conformance.js';
import { TestHost, ValkeyWorld } from '../../support/valkey-world.js';
import { ListLog } from '../store/support.js';
import { type ValkeyClient, ValkeyError } from '#src/sharing/valkey-client.js';
import { packed, unpacked } from '#src/sharing/valkey-codec.js';

/** A server of two partitions whose replies are made by `reply`. */
function connect(reply: (partition: number) => Promise<unknown>, log = new ListLog()) {
  const world = new ValkeyWorld(() => 'redis://localhost', 2);
  const client = {
    command: () => Promise.resolve('PONG'),
    run: (_script: unknown, [key]: readonly string[]) => reply(key!.includes(':0}') ? 0 : 1),
    close: () => undefined,
  } as unknown as ValkeyClient;
  return world.connect(identity('a'), undefined, { client, log });
}

void t.test('a join is over when all of its calls are', async (t) => {
  let release = (): void => undefined;
  const slow = new Promise<void>((resolve) => (release = resolve));
  const coordinator = await connect(async (partition) => {
    if (partition === 0) throw new ValkeyError('offline', 'no connection');
    await slow;
    throw new ValkeyError('late', 'no reply');
  });
  let isOver = false;
  const join = coordinator.join().finally(() => (isOver = true));
  join.catch(() => undefined);
  for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
  t.notOk(isOver, 'another call is under way, and the next join would overlap it');
  release();
  await t.rejects(join, { code: 'authority_lost', reason: 'unreachable' }, 'the first loss');
});

void t.test('a bug in one partition is logged although another partition was lost first', async (t) => {
  const log = new ListLog();
  const coordinator = await connect((partition) => {
    const error = partition === 0 ? new ValkeyError('offline', 'no connection') : new TypeError('a bug');
    return Promise.reject(error);
  }, log);
  await t.rejects(coordinator.join(), { code: 'authority_lost', reason: 'unreachable' }, 'the first loss');
  t.match(log.lines, [/a bug of the gateway/]);
});

void t.test('nonsense is a loss, whatever was asked', async (t) => {
  for (const nonsense of [null, 7, 'OK', [], {}, [7]]) {
    const coordinator = await connect(() => Promise.resolve(packed(nonsense)));
    const what = JSON.stringify(nonsense);
    const calls: Record<string, () => Promise<unknown>> = {
      join: () => coordinator.join(),
      exchange: () => coordinator.exchange([{ scope: 'acct_1', stocks: {} }]),
      leave: () => coordinator.leave(),
    };
    for (const [name, call] of Object.entries(calls))
      await t.rejects(call(), { code: 'authority_lost' }, `${name}: ${what}`);
    // A row that cannot be read costs its own scope alone, so some of this is an empty view.
    const view = coordinator.view(['acct_1'], [0]).catch((error: unknown) => error);
    t.ok(
      Array.isArray(await view) || ((await view) as { code?: string }).code === 'authority_lost',
      `view: ${what}`,
    );
  }
});

void t.test(
  'a node promises only what is on its disk, also if its disk knows of a later promise',
  async (t) => {
    const host = new TestHost();
    const later = { term: 7, server: 'later' };
    const memory = { ...host.memory, promiseTerm: () => later };
    const sent: unknown[] = [];
    const client = {
      command: () => Promise.resolve('PONG'),
      run: (_script: unknown, _keys: unknown, argv: readonly Uint8Array[]) => {
        sent.push((unpacked(argv[2]!) as { readonly promised: unknown }).promised);
        return Promise.resolve(packed({ status: 'term', wanted: { term: 5, server: 'former' } }));
      },
    } as unknown as ValkeyClient;
    const world = new ValkeyWorld(() => 'redis://localhost');
    const coordinator = await world.connect(identity('a'), host, { client, memory });
    await t.rejects(coordinator.join(), { code: 'authority_lost', reason: 'failing' });
    t.same(sent, [{ term: 0, server: '' }, later]);
  },
);
