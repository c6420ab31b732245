/**
 * A row at the server of sharing that cannot be read costs its own scope alone: in exchanges, in looks, when
 * an ended life's leases are freed, and when leases are reported after a loss. A node whose row cannot be
 * read is as one that was lost. A damaged record of the host's own store costs its own scope alone too.
 */
import t, { type Test } from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { coordinatorKeys, packed } from '#src/sharing/valkey-codec.js';
import { ValkeyClient, type ValkeyArgument } from '#src/sharing/valkey-client.js';
import { QUARANTINE_MS } from '#src/sharing/valkey-lua.js';
import type { HostAccounting } from '#src/sharing/host-accounting.js';
import { StoreError } from '#src/store/store-file.js';
import { identity } from '../../support/authority-conformance.js';
import { exchangePlain, type PlainAsk } from '../../support/plain-asks.js';
import { NO_REDIS, startRedis } from '../../support/redis-server.js';
import { NAMESPACE, TestHost, ValkeyWorld } from '../../support/valkey-world.js';

const ask = (scope: string, unused = 0, most = 5): PlainAsk => ({
  scope,
  limits: { requestsPerMinute: 100, callsPerDay: 100 },
  minute: { least: 1, most: 1, returned: [], forMs: 0 },
  day: { dayNumber: 0, used: 0, unused, least: 0, most },
  money: { outstanding: 0n, least: 1n, most: 10n },
});
const lossOf = (reason: string) => ({ code: 'authority_lost', reason });
const [BAD, GOOD] = ['acct_bad', 'acct_good'];

function clientOf(t: Test, url: string): ValkeyClient {
  const client = new ValkeyClient({ url, name: 'test', deadlineMs: 5_000 });
  t.teardown(() => client.close());
  return client;
}

void t.test('rows of scopes', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const keys = coordinatorKeys(NAMESPACE, 0);
  const [counts, money] = keys.of(BAD);
  const client = clientOf(t, server.url);
  const command = (...args: ValkeyArgument[]) => client.command(undefined, args, { binary: true });
  /** As many as a row can be damaged in ways that can be told. */
  const damages: Record<string, () => Promise<unknown>> = {
    'counts of all': () => command('HSET', counts, 's', 'no record'),
    'a stock of all': () => command('HSET', counts, 's', packed({ dc: 7 })),
    'the minute of all': () => command('HSET', counts, 'm', packed(['x', 1])),
    "the node's own": () => command('HSET', counts, 'p:a:0', packed([[], false])),
    // Calls of a day that no calendar has reached yet: all records of the scope are to be written anew.
    "a stock of the node's own, and a mistaken day": () =>
      command(
        ...['HSET', counts, 's', packed({ dc: [99_999, 0, 10, 0, 0] })],
        ...['p:b:0', packed([[], false, { dc: [99_999, 5, 0] }])],
        ...['p:a:0', packed([[], false, { dc: [99_999, 5, 'x'] }])],
      ),
    'a part of a count of all': () => command('HSET', counts, 's', packed({ dc: [0, 0.5, 0, 5, 0] })),
    'no number in a count of all': () => command('HSET', counts, 's', packed({ dc: [0, NaN, 0, 5, 0] })),
    'a part of a pico-unit': () => command('HSET', money, 'a', packed([0, 1_000, 1, 0, 0.5, 0, 10])),
    'another type': async () => {
      await command('DEL', counts);
      await command('SET', counts, 'x');
    },
    'money of all': () => command('HSET', money, 'a', packed('x')),
    'money of the host': () => command('HSET', money, 'h:a', packed(7)),
    'money of the node': () => command('HSET', money, 'n:a:0', 'no record'),
  };
  for (const [name, damage] of Object.entries(damages)) {
    await t.test(name, async (t) => {
      await server.command('FLUSHALL');
      const world = new ValkeyWorld(() => server.url);
      t.teardown(() => world.close());
      const [a, b] = [new TestHost(), new TestHost()];
      for (const scope of [BAD, GOOD]) await world.credit(scope, asPicoUnits(1_000n));
      const first = await world.connect(identity('a'), a);
      const other = await world.connect(identity('b'), b);
      await first.join();
      await other.join();
      const { answers: before } = await exchangePlain(first, [ask(BAD), ask(GOOD)]);
      t.match(before, [{ day: { granted: 5 } }, { day: { granted: 5 } }]);
      a.spend(BAD, 3n);
      await damage();
      const rows = async () => [await command('DUMP', counts), await command('DUMP', money)];
      const damaged = await rows();

      const { answers } = await exchangePlain(first, [ask(BAD, 5), ask(GOOD, 5)]);
      t.match(answers[0], {
        isUnknown: true,
        minute: { granted: 0 },
        day: { granted: 0 },
        money: { granted: 0n, heldByOthers: true },
      });
      t.match(answers[1], { minute: { granted: 1 }, day: { granted: 5 }, money: { granted: 10n } });
      t.same(await rows(), damaged, 'nobody writes it anew');
      await exchangePlain(first, [ask(BAD, 5)]);
      t.match(world.log.lines, [{ level: 'error', fields: { scope: BAD, rows: `${counts} ${money}` } }]);
      t.equal(world.log.lines.length, 1, 'told once');
      const seen = (await first.view([BAD, GOOD], [0])).map(({ scope }) => scope);
      t.ok(seen.includes(GOOD), 'others can be looked at');
      await exchangePlain(other, [ask(BAD)]);

      const next = await world.connect({ ...identity('a'), incarnation: 'next' }, a);
      await next.join();
      const { answers: after } = await exchangePlain(next, [ask(GOOD, 0, 100)]);
      t.match(after, [{ day: { remaining: 67, heldByOthers: false } }], 'the ended life holds nothing');

      // What docs/sharing.md says.
      await command('DEL', counts, money, keys.meta, keys.nodes);
      for (const node of [next, other]) {
        await t.rejects(exchangePlain(node, []), lossOf('unknown_node'));
        await node.join();
      }
      await t.rejects(exchangePlain(next, []), lossOf('quarantine'));
      world.nowMs += QUARANTINE_MS;
      for (const node of [other, next]) await exchangePlain(node, []);
      const { answers: freed } = await exchangePlain(other, [
        { ...ask(BAD), money: { outstanding: 0n, least: 1n, most: 10_000n } },
      ]);
      t.match(freed, [{ money: { granted: 250n, remaining: 747n } }], 'what others have spent is known');
      t.match(freed, [{ day: { granted: 5 } }], 'who asked meanwhile does not report all as used');
    });
  }
});

void t.test(
  'a damaged row of another node leaves nothing behind that its node was granted',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    const client = clientOf(t, server.url);
    const [, money] = coordinatorKeys(NAMESPACE, 0).of(BAD);
    const nodeExpiryMs = 900_000;
    const world = new ValkeyWorld(() => server.url, 1, { nodeExpiryMs });
    t.teardown(() => world.close());
    await world.credit(BAD, asPicoUnits(10n));
    const host = new TestHost();
    const killed = await world.connect(identity('a', 1), host);
    const node = await world.connect(identity('a', 0), host);
    const other = await world.connect(identity('b'));
    for (const each of [killed, node, other]) await each.join();
    for (const each of [node, other, killed]) await each.exchange([]);
    const wants = (slots: number, most: bigint): PlainAsk => ({
      scope: BAD,
      limits: { callsInFlight: 10 },
      slots: { outstanding: 0, least: slots, most: slots },
      ...(most > 0n && { money: { outstanding: 0n, least: most, most } }),
    });
    t.match((await exchangePlain(killed, [wants(1, 10n)])).answers, [{ money: { granted: 10n } }]);
    world.nowMs += 3 * nodeExpiryMs;
    await client.command(undefined, ['HSET', money, 'n:a:1', 'no record']);
    // It is short of money, so the killed node's row is read, which cannot be.
    t.match((await exchangePlain(node, [wants(9, 10n)])).answers, [{ isUnknown: true }]);
    const next = await world.connect({ ...identity('a', 0), incarnation: 'next' }, host);
    await next.join();
    t.match((await exchangePlain(other, [wants(9, 0n)])).answers, [{ slots: { granted: 9 } }]);
  },
);

void t.test('records of the own store', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const host = new TestHost();
  const KEY = 'key_bad';
  let isDamaged = false;
  const damaged = (name: string): never => {
    throw new StoreError('damaged', `record ${name} is damaged`);
  };
  const accounting: HostAccounting = {
    ...host.books,
    creditedOf: () => ({ totalPicoUnits: asPicoUnits(1_000n), version: 1 }),
    spentOf: (scope) => (isDamaged && scope === BAD ? damaged('of spending') : host.books.spentOf(scope)),
    inheritedOf: (scope) => (isDamaged && scope === KEY ? damaged('of keys') : undefined),
  };
  const node = await world.connect(identity('a'), host, { accounting });
  await node.join();
  const minute = { scope: KEY, limits: { requestsPerMinute: 10 }, minute: ask(KEY).minute! };
  const asks = [ask(BAD), minute, ask(GOOD)];
  const granted = { isUnknown: undefined, minute: { granted: 1 } };
  t.match((await exchangePlain(node, asks)).answers, [granted, granted, granted]);

  isDamaged = true;
  for (let times = 0; times < 2; times++) {
    const { answers } = await exchangePlain(node, asks);
    const unknown = { isUnknown: true, minute: { granted: 0 } };
    t.match(answers, [unknown, unknown, { ...granted, money: { granted: 10n } }], 'others go on');
    const looked = await node.view([BAD, GOOD]);
    t.same(
      looked.map(({ scope }) => scope),
      [GOOD],
    );
  }
  t.match(world.log.lines, [
    { level: 'error', fields: { scope: BAD, error: /of spending/ } },
    { level: 'error', fields: { scope: KEY, error: /of keys/ } },
  ]);
  t.equal(world.log.lines.length, 2, 'each is told once');

  // The server has lost all: this host enters, and others are not lent what it may have spent.
  host.spend(BAD, 900n);
  await server.command('FLUSHALL');
  const nothing = { spentOf: () => undefined, accounts: () => [] };
  const other = await world.connect(identity('b'), undefined, { accounting: { ...accounting, ...nothing } });
  await node.join();
  await other.join();
  world.nowMs += QUARANTINE_MS;
  await exchangePlain(node, []);
  const { answers: left } = await exchangePlain(other, [ask(BAD), ask(GOOD)]);
  t.match(left, [
    { isUnknown: true, money: { granted: 0n } },
    { isUnknown: undefined, money: { granted: 10n } },
  ]);
  isDamaged = false;
  // What docs/sharing.md says.
  const keys = coordinatorKeys(NAMESPACE, 0);
  await server.command('DEL', ...keys.of(BAD), keys.meta, keys.nodes);
  for (const each of [node, other]) {
    await t.rejects(exchangePlain(each, []), lossOf('unknown_node'));
    await each.join();
  }
  world.nowMs += QUARANTINE_MS;
  await exchangePlain(other, []);
  const { answers: freed } = await exchangePlain(node, [
    { ...ask(BAD), money: { ...ask(BAD).money!, most: 1n } },
  ]);
  t.match(freed, [{ money: { granted: 1n, remaining: 99n } }], 'what it has spent is known');
  await node.leave();
});

void t.test('rows of nodes', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const keys = coordinatorKeys(NAMESPACE, 0);
  const client = clientOf(t, server.url);
  for (const row of [Buffer.from('no record'), packed({}), packed([1, 'x', false])]) {
    await t.test(row.toString('hex'), async (t) => {
      await server.command('FLUSHALL');
      const world = new ValkeyWorld(() => server.url, 1, { equalShares: 2 });
      t.teardown(() => world.close());
      const [a, b] = await Promise.all([world.connect(identity('a')), world.connect(identity('b'))]);
      for (const node of [a, b]) await node.join();
      await exchangePlain(a, [ask(GOOD)]);
      await client.command(undefined, ['HSET', keys.nodes, 'b:0', row]);
      const { answers } = await exchangePlain(a, [
        {
          scope: GOOD,
          limits: { requestsPerMinute: 10 },
          minute: { least: 1, most: 10, returned: [], forMs: 0 },
        },
      ]);
      t.match(answers, [{ minute: { granted: 1, remaining: 3 } }], 'its equal share is held back');
      await t.rejects(exchangePlain(b, [ask(GOOD)]), lossOf('unknown_node'));
      await b.join();
      await exchangePlain(b, []).catch(() => undefined);
      t.pass('it can join again');
    });
  }
});

void t.test('a record of a node without its marks', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const keys = coordinatorKeys(NAMESPACE, 0);
  const client = clientOf(t, server.url);
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const host = new TestHost();
  const a = await world.connect(identity('a'), host);
  await a.join();
  await exchangePlain(a, [ask(GOOD)]);
  const { epoch } = host.memory.of(0);
  const damage = (incarnation: string) =>
    client.command(undefined, [
      ...['HSET', keys.nodes, 'a:0'],
      packed([incarnation, 1, world.nowMs, epoch, 0, 0, 0]),
    ]);
  await damage(identity('a').incarnation);
  await t.rejects(exchangePlain(a, [ask(GOOD)]), lossOf('unknown_node'));
  await a.join();
  await exchangePlain(a, []).catch(() => undefined);
  world.nowMs += QUARANTINE_MS;
  t.match(
    (await exchangePlain(a, [ask(GOOD, 5)])).answers,
    [{ day: { granted: 5 } }],
    'the same life goes on',
  );
  await damage('another');
  const next = await world.connect({ ...identity('a'), incarnation: 'next' }, host);
  await next.join();
  await exchangePlain(next, []).catch(() => undefined);
  world.nowMs += QUARANTINE_MS;
  t.match((await exchangePlain(next, [ask(GOOD)])).answers, [{ day: { granted: 5 } }], 'and another one');
});

void t.test('what a partition says of itself', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const keys = coordinatorKeys(NAMESPACE, 0);
  for (const field of ['until', 'checked', 'lost', 'places', 'term', 'skew', 'another type']) {
    await t.test(field, async (t) => {
      await server.command('FLUSHALL');
      const world = new ValkeyWorld(() => server.url);
      t.teardown(() => world.close());
      await world.credit(GOOD, asPicoUnits(1_000n));
      const [a, b] = await Promise.all([world.connect(identity('a')), world.connect(identity('b'))]);
      for (const node of [a, b]) await node.join();
      await exchangePlain(a, [ask(GOOD)]);
      if (field === 'another type') await server.command('SET', keys.meta, 'x');
      else await server.command('HSET', keys.meta, field, 'x');
      for (const node of [a, b]) {
        await t.rejects(exchangePlain(node, []), lossOf('unknown_node'));
        await node.join();
      }
      await t.rejects(exchangePlain(b, [ask(GOOD)]), lossOf('quarantine'), 'it counts as a loss');
      world.nowMs += QUARANTINE_MS;
      await exchangePlain(a, []);
      const { answers } = await exchangePlain(b, [ask(GOOD, 0, 90)]);
      t.match(
        answers,
        [{ day: { granted: 24, remaining: 71 }, money: { granted: 10n, remaining: 980n } }],
        'none twice, and what a holds is counted once',
      );
    });
  }
});

void t.test('a host leaves while a record of its store is damaged', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const host = new TestHost();
  for (const scope of [BAD, GOOD]) await world.credit(scope, asPicoUnits(1_000n));
  let isDamaged = false;
  const accounting: HostAccounting = {
    ...host.books,
    creditedOf: () => ({ totalPicoUnits: asPicoUnits(1_000n), version: 1 }),
    spentOf: (scope) => {
      if (isDamaged && scope === BAD) throw new StoreError('damaged', 'record of spending is damaged');
      return host.books.spentOf(scope);
    },
  };
  const node = await world.connect(identity('a'), host, { accounting });
  const other = await world.connect(identity('b'));
  for (const each of [node, other]) await each.join();
  const all = (scope: string) => ({
    ...ask(scope),
    limits: { requestsPerMinute: 100, callsPerDay: 100, callsInFlight: 10 },
    slots: { outstanding: 0, least: 10, most: 10 },
    money: { outstanding: 0n, least: 1_000n, most: 1_000n },
  });
  await exchangePlain(node, [all(BAD), all(GOOD)]);
  host.spend(BAD, 900n);
  isDamaged = true;
  await node.leave();
  const { answers } = await exchangePlain(other, [all(BAD), all(GOOD)]);
  t.match(answers, [{ money: { granted: 0n, heldByOthers: true } }, { money: { granted: 1_000n } }]);
  t.match(answers, [{ slots: { granted: 10 } }, { slots: { granted: 10 } }], 'no place in flight waits');
  isDamaged = false;
  await other.exchange([]);
  const next = await world.connect({ ...identity('a'), incarnation: 'next' }, host, { accounting });
  await next.join();
  const { answers: after } = await exchangePlain(next, [ask(BAD)]);
  t.match(after, [{ money: { granted: 10n, remaining: 90n } }], 'mended, it is told what was spent');
});

void t.test('a bug is told with its stack, once', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const world = new ValkeyWorld(() => server.url);
  t.teardown(() => world.close());
  const bug = (): never => {
    throw new TypeError('a bug');
  };
  const accounting: HostAccounting = { ...new TestHost().books, creditedOf: bug };
  const node = await world.connect(identity('a'), undefined, { accounting });
  await node.join();
  for (let times = 0; times < 2; times++)
    await t.rejects(exchangePlain(node, [ask(GOOD)]), { ...lossOf('failing'), message: /a bug/ });
  t.match(world.log.lines, [{ level: 'error', fields: { error: 'a bug', stack: /valkey-damage/ } }]);
  t.equal(world.log.lines.length, 1, 'told once');
});
