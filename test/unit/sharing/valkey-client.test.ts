/** The client against a real server: every call ends in time, whatever happens to server and network. */
import { EventEmitter, once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import {
  ValkeyClient,
  ValkeyError,
  ValkeyPeers,
  scriptOf,
  type ValkeyClientOptions,
} from '#src/sharing/valkey-client.js';
import { freePort } from '../../support/free-port.js';
import { eventually } from '../../support/gateway.js';
import { startSentinel } from '../../support/redis-sentinel.js';
import { startCluster } from '../../support/redis-cluster.js';
import { NO_REDIS, startRedis } from '../../support/redis-server.js';
import { startWire } from '../../support/tcp-proxy.js';

function open(t: Test, url: string, more: Partial<ValkeyClientOptions> = {}): ValkeyClient {
  const client = new ValkeyClient({ url, name: 'test', deadlineMs: 2_000, ...more });
  t.teardown(() => client.close());
  return client;
}

const up = (client: ValkeyClient): Promise<unknown> =>
  eventually('a connection', () => client.command(undefined, ['PING']));
const told = (client: ValkeyClient, what: RegExp): Promise<unknown> =>
  eventually(String(what), () => (what.test(client.lastError ?? '') ? true : undefined));
const unreachable = (client: ValkeyClient): Promise<unknown> =>
  eventually('no connection', async () =>
    (await codeOf(client.command('a', ['GET', 'a']))) === 'offline' ? true : undefined,
  );
const codeOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'none',
    (error: unknown) => (error instanceof ValkeyError ? error.code : String(error)),
  );

void t.test('no call is late because this thread stood still', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const client = open(t, server.url, { deadlineMs: 1_000 });
  await up(client);
  for (const stallMs of [500, 1_100]) {
    // The server replies after 0.2 s. The library sends in a later turn of the event loop, after the stall.
    const call = client.command('a', ['BLPOP', 'a', '0.2']);
    const endMs = performance.now() + stallMs;
    while (performance.now() < endMs);
    t.equal(await codeOf(call), 'none', `${stallMs} ms`);
  }
});

void t.test('scripts and commands', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const client = open(t, server.url);
  await up(client);
  const script = scriptOf("return {KEYS[1], ARGV[1], #KEYS, redis.call('INCR', KEYS[1])}");
  t.same(await client.run(script, ['{a}n', '{a}m'], ['x']), ['{a}n', 'x', 2, 1], 'not known to the server');
  t.same(
    await client.run(script, ['{a}n', '{a}m'], ['x']),
    ['{a}n', 'x', 2, 2],
    'known to it, and run once each',
  );
  await server.command('SCRIPT', 'FLUSH');
  t.same(await client.run(script, ['{a}n'], ['x']), ['{a}n', 'x', 1, 3], 'forgotten by it');
  const bytes = Buffer.from([0, 255, 13, 10, 36]);
  await client.command('b', ['SET', 'b', bytes]);
  t.same(await client.command('b', ['GET', 'b'], { binary: true }), bytes);
  t.equal(await client.command('c', ['GET', 'c']), null);
  t.equal(client.lastError, undefined);
  const wrong = client.run(scriptOf("return redis.error_reply('OOM no room')"), ['k'], []);
  await t.rejects(wrong, { code: 'refused', message: /^OOM no room/ });
  t.match(client.lastError, /OOM/);
});

void t.test('without a server, and with one that comes back', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const client = open(t, server.url);
  await up(client);
  const pending = t.rejects(client.command('a', ['BLPOP', 'a', '0']), {
    code: 'unreachable',
    message: /closed|ECONN|EPIPE/,
  });
  await server.kill();
  await pending;
  await unreachable(client);
  t.match(client.lastError, /closed|ECONN|EPIPE/);
  await t.rejects(client.command('a', ['GET', 'a']), { code: 'offline', message: /closed|ECONN|EPIPE/ });
  await server.restart();
  await up(client);
  t.equal(client.lastError, undefined);
  client.close();
  t.equal(await codeOf(client.command('a', ['GET', 'a'])), 'offline');
});

void t.test(
  'the first client of a process to be back shortens the pauses of the others',
  NO_REDIS,
  async (t) => {
    const server = await startRedis(t);
    let refused = 0;
    const refuser = createServer((socket) => {
      refused += 1;
      socket.destroy();
    });
    refuser.listen(0, '127.0.0.1');
    await once(refuser, 'listening');
    t.teardown(() => refuser.close());
    const peers = new ValkeyPeers();
    let connections = 0;
    const first = open(t, server.url, { peers, random: () => 0, onConnected: () => (connections += 1) });
    // Their pauses are some seconds long.
    const slow = open(t, server.url, { peers, random: () => 50 });
    const refusedOne = open(t, `redis://127.0.0.1:${(refuser.address() as AddressInfo).port}`, {
      peers,
      random: () => 50,
    });
    await Promise.all([up(first), up(slow)]);
    t.equal(connections, 1);
    await server.kill();
    await Promise.all([unreachable(first), unreachable(slow)]);
    await server.restart();
    await up(first);
    const sinceMs = performance.now();
    await up(slow);
    t.ok(performance.now() - sinceMs < 2_000, 'it did not wait for its own pause');
    t.equal(connections, 2);

    const [before, beganMs] = [refused, performance.now()];
    for (let breaks = 0; breaks < 5; breaks++) {
      await server.command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      await unreachable(first);
      await up(first);
    }
    const tries = refused - before;
    const most = 1 + (performance.now() - beganMs) / 95;
    t.ok(tries > 0 && tries <= most, `${tries} of ${most.toFixed(1)} tries`);
    refusedOne.close();
    t.notOk(peers.clients.has(refusedOne));
  },
);

void t.test('a server that stands still, and a wire that is held', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const wire = await startWire(t, () => server.port);
  const client = open(t, `redis://127.0.0.1:${wire.port}`);
  await up(client);
  for (const [halt, go] of [
    [() => server.stop(), () => server.resume()],
    [() => wire.set('held'), () => wire.set('open')],
  ] as const) {
    halt();
    const first = client.command('a', ['INCR', 'a'], { deadlineMs: 50 });
    t.equal(await codeOf(first), 'late');
    t.equal(await codeOf(client.command('a', ['INCR', 'a'])), 'offline', 'its followers do not wait as long');
    go();
    await up(client);
  }
});

void t.test('a reply that came while this process stood still is not late', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const client = open(t, server.url);
  await up(client);
  server.stop();
  const reply = client.command('still', ['INCR', 'still'], { deadlineMs: 200 });
  for (let turns = 0; turns < 3; turns++) await new Promise(setImmediate);
  server.resume();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 600);
  t.equal(await reply, 1);
});

void t.test('a wrong password, and the right one', NO_REDIS, async (t) => {
  const server = await startRedis(t, ['--requirepass', 'right']);
  const wrong = open(t, server.url, { password: 'wrong' });
  await told(wrong, /WRONGPASS/);
  t.equal(await codeOf(wrong.command('a', ['GET', 'a'])), 'offline');
  t.notMatch(wrong.lastError, /wrong\b/);
  await up(open(t, server.url, { password: 'right' }));
  await up(open(t, server.url, { username: 'default', password: 'right' }));
});

void t.test('pauses grow, are bounded and are never the same for all', NO_REDIS, async (t) => {
  const server = await startRedis(t);
  const wire = await startWire(t, () => server.port);
  const clients = Array.from({ length: 50 }, () => open(t, `redis://127.0.0.1:${wire.port}`));
  await Promise.all(clients.map(up));
  const before = wire.connections;
  wire.set('cut');
  await Promise.all(clients.map(unreachable));
  wire.set('open');
  await Promise.all(clients.map(up));
  t.equal(wire.connections - before, clients.length, 'one connection each');
});

void t.test('Sentinels tell the master, also when it changes', NO_REDIS, async (t) => {
  const first = await startRedis(t);
  const second = await startRedis(t, ['--replicaof', '127.0.0.1', String(first.port)]);
  const sentinel = await startSentinel(t, first.port);
  const client = open(t, `redis-sentinel://127.0.0.1:${sentinel.port}/0#main`);
  await up(client);
  await client.command('a', ['SET', 'a', '1']);
  await eventually('the replica', async () =>
    (await second.command('GET', 'a')) === '1' ? true : undefined,
  );
  await first.kill();
  await eventually('a new master', () => client.command('a', ['SET', 'a', '2']));
  t.equal(await second.command('GET', 'a'), '2');
});

/** A Sentinel that names whichever master it is told to; with undefined it replies nothing. */
async function startNamer(
  t: Test,
  named: () => { readonly port: number; readonly epoch: number | undefined } | undefined,
): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      const master = named();
      if (master === undefined) return;
      for (const [, command = ''] of bytes.toString().matchAll(/SENTINEL\r\n\$\d+\r\n([A-Z-]+)/g)) {
        const words =
          command === 'MASTER'
            ? ['name', 'main', ...(master.epoch === undefined ? [] : ['config-epoch', String(master.epoch)])]
            : ['127.0.0.1', String(master.port)];
        const texts = words.map((word) => `$${word.length}\r\n${word}\r\n`);
        socket.write(`*${words.length}\r\n${texts.join('')}`);
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

void t.test('a master that lives on is left for the later one alone', NO_REDIS, async (t) => {
  const [first, second] = [await startRedis(t), await startRedis(t)];
  const former = { port: first.port, epoch: 4 };
  let master = former;
  const silent = await startNamer(t, () => undefined);
  const lagging = await startNamer(t, () => former);
  const namer = await startNamer(t, () => master);
  let disturbances = 0;
  const servers = [silent, lagging, namer].map((port) => `127.0.0.1:${port}`).join(',');
  const client = open(t, `redis-sentinel://${servers}/0#main`, {
    onConnectionLost: () => (disturbances += 1),
  });
  await up(client);
  await client.command('a', ['SET', 'a', '1']);
  t.equal(await first.command('GET', 'a'), '1', 'a Sentinel that does not reply is not waited for');
  t.equal(disturbances, 0);
  master = { port: second.port, epoch: 5 };
  const setAtSecond = async (value: string): Promise<true | undefined> => {
    await client.command('a', ['SET', 'a', value]);
    return (await second.command('GET', 'a')) === value ? true : undefined;
  };
  await eventually('the other master', () => setAtSecond('2'), 60_000);
  const before = disturbances;
  t.ok(before >= 1);
  await second.command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await eventually('the other master again', () => setAtSecond('3'), 60_000);
  t.not(await first.command('GET', 'a'), '3', 'the Sentinel that lags was not believed');
});

void t.test('a master that was named without an epoch is left for one with an epoch', NO_REDIS, async (t) => {
  const [first, second] = [await startRedis(t), await startRedis(t)];
  let master: { port: number; epoch: number | undefined } = { port: first.port, epoch: undefined };
  const client = open(t, `redis-sentinel://127.0.0.1:${await startNamer(t, () => master)}/0#main`);
  await up(client);
  await client.command('a', ['SET', 'a', '1']);
  t.equal(await first.command('GET', 'a'), '1');
  master = { port: second.port, epoch: 5 };
  await eventually(
    'the other master',
    async () => {
      await client.command('a', ['SET', 'a', '2']);
      return (await second.command('GET', 'a')) === '2' ? true : undefined;
    },
    15_000,
  );
});

void t.test('one client of a process asks the Sentinels for all', NO_REDIS, async (t) => {
  const master = await startRedis(t);
  let asked = 0;
  const namer = await startNamer(t, () => {
    asked += 1;
    return { port: master.port, epoch: 1 };
  });
  const url = `redis-sentinel://127.0.0.1:${namer}/0#main`;
  const peers = new ValkeyPeers();
  await Promise.all([1, 2, 3, 4].map(() => up(open(t, url, { peers }))));
  await up(open(t, url, { peers }));
  // The two commands of one ask may come apart.
  t.ok(asked <= 2, `${asked}`);
  await master.kill();
  await eventually('it is asked for anew', () => (asked > 2 ? true : undefined));
});

void t.test('a server that a Sentinel names too early is no master yet', NO_REDIS, async (t) => {
  const first = await startRedis(t);
  const second = await startRedis(t, ['--replicaof', '127.0.0.1', String(first.port)]);
  const client = open(
    t,
    `redis-sentinel://127.0.0.1:${await startNamer(t, () => ({ port: second.port, epoch: 1 }))}/0#main`,
  );
  await told(client, /no master yet/);
  await second.command('REPLICAOF', 'NO', 'ONE');
  await up(client);
  await client.command('a', ['SET', 'a', '1']);
  t.equal(await second.command('GET', 'a'), '1');
});

void t.test(
  'why a server is left that is silent from the first is told until the next try has failed',
  async (t) => {
    const silent = await startNamer(t, () => undefined);
    const namer = await startNamer(t, () => ({ port: silent, epoch: 1 }));
    const client = open(t, `redis-sentinel://127.0.0.1:${namer}/0#main`);
    await told(client, /^no connection within 2000 ms$/);
  },
);

void t.test('clients are made in no time, also if each has other options', (t) => {
  const before = process.cpuUsage();
  const clients = Array.from({ length: 20 }, (_, n) => open(t, 'redis://127.0.0.1:1', { name: `test ${n}` }));
  const { user, system } = process.cpuUsage(before);
  for (const client of clients) client.close();
  t.ok(user + system < 200_000, `${user + system} µs`);
  t.end();
});

/**
 * A server that says it is a Cluster by itself, or never replies. `asked` tells of each question. `namedPort`
 * returns the port that the map has of the only master, if that is another one.
 */
async function startMember(t: Test, isSilent: boolean, namedPort?: () => number | undefined) {
  const sockets = new Set<Socket>();
  const asked = new EventEmitter();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => undefined);
    socket.on('data', (data) => {
      const text = data.toString();
      if (!isSilent) {
        const isMap = /slots/i.test(text);
        const named = namedPort?.() ?? port;
        const map = `*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:${named}\r\n$1\r\nx\r\n`;
        const commands = text.match(/\*\d+\r\n/g)?.length ?? 0;
        socket.write('+OK\r\n'.repeat(commands - (isMap ? 1 : 0)) + (isMap ? map : ''));
        if (!isMap) return;
      }
      asked.emit('map');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { url: `redis-cluster://127.0.0.1:${port}`, port, sockets, asked };
}

void t.test('a server that accepts a connection and is silent is left for another connection', async (t) => {
  const member = await startMember(t, false);
  const kinds = {
    server: { scheme: 'redis', withinMs: 2_000 },
    Cluster: { scheme: 'redis-cluster', withinMs: 4_000 },
  };
  for (const [kind, { scheme, withinMs }] of Object.entries(kinds)) {
    // As a proxy whose server is away: it accepts, and brings nothing through while the wire is held.
    const wire = await startWire(t, () => member.port);
    wire.set('held');
    const client = open(t, `${scheme}://127.0.0.1:${wire.port}`);
    await told(client, new RegExp(`^no connection within ${withinMs} ms$`, 'u'));
    t.equal(await codeOf(client.command('a', ['GET', 'a'])), 'offline', kind);
    wire.set('open');
    await up(client);
    t.ok(wire.connections >= 2, kind);
  }
});

void t.test('why no server of a Cluster can be used is told', NO_REDIS, async (t) => {
  const server = await startRedis(t, ['--cluster-enabled', 'yes', '--requirepass', 'right']);
  for (const [port, why] of [
    [await freePort(), /^connect ECONNREFUSED/],
    [server.port, /^WRONGPASS/],
  ] as const) {
    const url = `redis-cluster://127.0.0.1:${port}`;
    let losses = 0;
    const client = open(t, url, { password: 'wrong', onConnectionLost: () => (losses += 1) });
    await eventually('three tries', () => (losses >= 3 ? true : undefined));
    t.match(client.lastError, why);
    await t.rejects(client.command('a', ['GET', 'a']), { code: 'offline', message: why });
  }
});

void t.test('a Cluster whose map names a dead master is asked for its map again', async (t) => {
  let named: number | undefined = await freePort();
  const { url } = await startMember(t, false, () => named);
  const client = open(t, url);
  await told(client, /ECONNREFUSED/);
  t.equal(await codeOf(client.command('a', ['GET', 'a'])), 'offline');
  // A replica has been made the master.
  named = undefined;
  await up(client);
});

void t.test('nothing is told of a connection that was closed while it was made', async (t) => {
  const member = await startMember(t, false);
  for (let turns = 0; turns < 12; turns++) {
    const events: string[] = [];
    const client = open(t, `redis://127.0.0.1:${member.port}`, {
      onConnected: () => events.push('connected'),
      onConnectionLost: () => events.push('lost'),
    });
    for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
    client.close();
    const before = [...events, client.lastError];
    await eventually('no socket', () => (member.sockets.size === 0 ? true : undefined), 3_000);
    await new Promise((resolve) => setTimeout(resolve, 50));
    t.same([...events, client.lastError], before, `closed after ${turns} turns`);
  }
});

void t.test('no connection of a Cluster outlives its client, whenever that is closed', async (t) => {
  for (const isSilent of [true, false]) {
    const { url, sockets, asked } = await startMember(t, isSilent);
    for (let turns = 0; turns < 12; turns++) {
      let disturbed = 0;
      const client = open(t, url, { onConnectionLost: () => (disturbed += 1) });
      await once(asked, 'map');
      for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
      client.close();
      const before = [disturbed, client.lastError];
      const name = `${isSilent ? 'without a reply' : 'with a reply'}, closed ${turns} turns after the question`;
      await eventually(name, () => (sockets.size === 0 ? true : undefined), 3_000);
      // A client that tried again would have done so by now.
      await new Promise((resolve) => setTimeout(resolve, 150));
      t.equal(sockets.size, 0, name);
      t.same([disturbed, client.lastError], before, 'and nothing is told of it');
    }
  }
});

void t.test('a Cluster of one server', NO_REDIS, async (t) => {
  const server = await startRedis(t, ['--cluster-enabled', 'yes']);
  await server.command('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  const client = open(t, `redis-cluster://127.0.0.1:${server.port}`);
  await up(client);
  const script = scriptOf("return redis.call('INCR', KEYS[1])");
  await eventually('slots that are served', () => client.run(script, ['{ns:0}a'], []));
  t.type(await client.run(script, ['{ns:7}a'], []), 'number');
});

void t.test('one server of a Cluster, taken for one that stands alone', NO_REDIS, async (t) => {
  const { servers, url } = await startCluster(t);
  const alone = open(t, servers[0]!.url);
  await up(alone);
  const asked = ['a', 'b', 'c'].map((key) => alone.command(key, ['GET', key]));
  const rejected = (await Promise.allSettled(asked)).filter(({ status }) => status === 'rejected');
  t.ok(rejected.length > 0, 'keys of the other servers');
  for (const { reason } of rejected as PromiseRejectedResult[])
    t.match(reason, { code: 'refused', message: /^MOVED .*sharing\.url wants redis-cluster:/ });
  const client = open(t, url);
  await up(client);
  t.same(await Promise.all(['a', 'b', 'c'].map((key) => client.command(key, ['GET', key]))), [
    null,
    null,
    null,
  ]);
});
