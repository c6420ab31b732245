/** Which connections are used again, against bare sockets that response what they like. */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import type { Clock } from '#src/core/clock.js';
import { asMonotonicMs, asWallMs } from '#src/core/units.js';
import { freeBody } from '#src/http1/body-memory.js';
import type { HttpHandler } from '#src/http1/http-client.js';
import { Http1Client } from '#src/http1/client.js';
import type { UpstreamTarget } from '#src/upstream/target.js';
import { eventually } from '../../support/gateway.js';
import { targetOf } from '../../fixtures/upstream-server.js';

class HandClock implements Clock {
  nowMs = 1_000;
  monotonicMs = () => asMonotonicMs(this.nowMs);
  wallMs = () => asWallMs(this.nowMs);
}

interface Outcome {
  readonly text: string;
  readonly fault: string | undefined;
  readonly repeatable: boolean | undefined;
}

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n';
const GOOD = `${OK}\r\nok`;

/** A server whose `answer` gets each request, once its head is there, and the number of its connection. */
async function worldOf(t: Test, answer: (socket: Socket, connection: number, request: string) => void) {
  const clock = new HandClock();
  const client = new Http1Client({ clock, version: '1' });
  const sockets: Socket[] = [];
  const requests: string[] = [];
  const server = createServer((socket) => {
    const connection = sockets.push(socket);
    socket.on('error', () => undefined);
    let request = '';
    socket.on('data', (bytes: Buffer) => {
      request += bytes.toString('latin1');
      if (!request.includes('\r\n\r\n')) return;
      requests.push(request);
      answer(socket, connection, request);
      request = '';
    });
  });
  server.listen(0, 'localhost');
  await once(server, 'listening');
  t.teardown(async () => {
    await client.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const target = targetOf(`http://localhost:${port}`, { totalTimeoutMs: 1e9, connectTimeoutMs: 1e9 });
  const call = (
    changes: Partial<UpstreamTarget> = {},
    body: string | Uint8Array = '{}',
    requestId = 'r',
    headers: readonly string[] = [],
  ) => {
    const ended = new Promise<Outcome>((resolve) => {
      let text = '';
      const handler: HttpHandler = {
        onStart: () => undefined,
        onData: (bytes) => (text += Buffer.from(bytes).toString()),
        onEnd: () => resolve({ text, fault: undefined, repeatable: undefined }),
        onError: ({ code, message, repeatable }) =>
          resolve({ text, fault: `${code} ${message}`, repeatable }),
      };
      client.start({ ...target, ...changes }, body, requestId, handler, headers);
    });
    return ended;
  };
  /** A call that is aborted at once: the connection that it opens stays unused. */
  const abortedCall = (): void => {
    const nothing = (): void => undefined;
    const handler = { onStart: nothing, onData: nothing, onEnd: nothing, onError: nothing };
    client.start(target, '{}', 'r', handler).abort();
  };
  return { call, abortedCall, clock, sockets, requests, port };
}

/** What came with a response is seen after the turn that brought it. */
const turns = async (): Promise<void> => {
  for (let count = 0; count < 3; count++) await new Promise((resolve) => setImmediate(resolve));
};

void t.test('the request as it stands on the wire', async (t) => {
  const { call, requests, port } = await worldOf(t, (socket) => socket.write(GOOD));
  t.equal((await call({ path: '/v1/x?y=z' }, '{"a":"é"}')).text, 'ok');
  t.equal(
    requests[0],
    `POST /v1/x?y=z HTTP/1.1\r\nhost: localhost:${port}\r\nconnection: keep-alive\r\ncontent-type: application/json\r\n` +
      'accept-encoding: identity\r\nuser-agent: tollgate/1\r\nauthorization: Bearer sk-provider-secret\r\n' +
      'x-request-id: r\r\ncontent-length: 10\r\n\r\n' +
      Buffer.from('{"a":"é"}').toString('latin1'),
  );
});

void t.test('nothing that ends a line gets into a head', async (t) => {
  const { call, requests } = await worldOf(t, (socket) => socket.write(GOOD));
  const evil = 'x\r\nevil: 1';
  for (const [changes, requestId] of [
    [{ path: '/a b' }, 'r'],
    [{ path: `/${evil}` }, 'r'],
    [{ key: evil }, 'r'],
    [{ headers: { x: 'a\nb' } }, 'r'],
    [{ headers: { x: 'a\0b' } }, 'r'],
    [{ headers: { 'x y': 'a' } }, 'r'],
    [{ headers: { '': 'a' } }, 'r'],
    [{}, evil],
    [{}, 'é'],
  ] as const) {
    const { fault, repeatable } = await call(changes, '{}', requestId);
    t.match(fault, /HTTP1_UNSENDABLE/, JSON.stringify([changes, requestId]));
    t.equal(repeatable, true);
  }
  for (const headers of [['x', 'a\nb'], ['x y', 'a'], ['x'], ['x', 'a', 'y']])
    t.match((await call({}, '{}', 'r', headers)).fault, /HTTP1_UNSENDABLE/, headers.join());
  t.equal(requests.length, 0);
  t.equal((await call()).text, 'ok');
});

void t.test('a connection is used again', async (t) => {
  const cases: Record<string, string> = {
    'after a length': GOOD,
    'after chunks': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: y\r\n\r\n',
    'after an error': GOOD.replace('200', '500'),
    'after an informational answer': `HTTP/1.1 103 Early\r\n\r\n${GOOD}`,
    'after an empty answer': 'HTTP/1.1 204 No\r\n\r\n',
  };
  for (const [name, answer] of Object.entries(cases)) {
    const { call, sockets } = await worldOf(t, (socket) => socket.write(answer));
    for (let count = 0; count < 3; count++) {
      t.equal((await call()).fault, undefined, name);
      await turns();
    }
    t.equal(sockets.length, 1, name);
  }
});

void t.test('and is not', async (t) => {
  const cases: Record<string, string> = {
    'where it says close': `${OK}Connection: close\r\n\r\nok`,
    'after HTTP/1.0': GOOD.replace('HTTP/1.1', 'HTTP/1.0'),
    'with more than the answer': `${GOOD}HTTP/1.1 200 OK\r\n`,
    'with a body where none may be': 'HTTP/1.1 204 No\r\n\r\nok',
    'where it is kept for less than the time on the way': `${OK}Keep-Alive: timeout=2\r\n\r\nok`,
  };
  for (const [name, answer] of Object.entries(cases)) {
    const { call, sockets } = await worldOf(t, (socket) => socket.write(answer));
    for (let count = 0; count < 3; count++) {
      t.equal((await call()).fault, undefined, name);
      await turns();
    }
    t.equal(sockets.length, 3, name);
  }
});

void t.test('an idle connection that speaks is closed', async (t) => {
  const { call, sockets } = await worldOf(t, (socket, connection) =>
    socket.write(connection === 1 ? GOOD : GOOD.replace('ok', 'no')),
  );
  t.equal((await call()).text, 'ok');
  await turns();
  const [first] = sockets;
  const closed = once(first!, 'close');
  first!.write(GOOD);
  await closed;
  t.equal((await call()).text, 'no', 'the answer that nobody asked for was given to nobody');
});

void t.test('how long it is kept', async (t) => {
  for (const [keepAlive, keptMs] of [
    ['', 4_000],
    ['Keep-Alive: timeout=10\r\n', 8_000],
    ['Keep-Alive: timeout=999\r\n', 30_000],
  ] as const) {
    const { call, clock, sockets } = await worldOf(t, (socket) => socket.write(`${OK}${keepAlive}\r\nok`));
    await call();
    await turns();
    clock.nowMs += keptMs - 1;
    await call();
    await turns();
    t.equal(sockets.length, 1, `${keepAlive}: within the time`);
    clock.nowMs += keptMs;
    await call();
    t.equal(sockets.length, 2, `${keepAlive}: no longer`);
    await turns();
    const closed = once(sockets[1]!, 'close');
    clock.nowMs += keptMs + 1;
    await closed;
    t.pass('closed without a call');
  }
});

void t.test('how long one is kept that opened for a call which left: not until it had to open', async (t) => {
  for (const [idleMs, connections] of [
    [3_999, 1],
    [4_000, 2],
  ] as const) {
    const { call, abortedCall, clock, sockets } = await worldOf(t, (socket) => socket.write(GOOD));
    abortedCall();
    await eventually('it opens', () => (sockets.length === 1 ? true : undefined));
    await turns();
    clock.nowMs += idleMs;
    t.equal((await call()).text, 'ok');
    t.equal(sockets.length, connections, `after ${idleMs} ms`);
  }
});

void t.test('a server that closes a kept connection under a request', async (t) => {
  const { call, requests } = await worldOf(t, (socket, connection) => {
    if (requests.length === 1) socket.write(GOOD);
    else if (requests.length === 2) socket.end();
    else if (requests.length === 3) socket.end(connection === 2 ? 'HTTP/1.1 2' : '');
    else socket.end();
  });
  t.equal((await call()).text, 'ok');
  await turns();
  t.match(await call(), { fault: /HTTP1_CLOSED/, repeatable: true }, 'it had served before');
  t.match(await call(), { fault: /HTTP1_CLOSED/, repeatable: false }, 'it had begun to answer');
  t.match(await call(), { fault: /HTTP1_CLOSED/, repeatable: false }, 'it was new');
});

void t.test('a server that closes a connection which it has kept without a request', async (t) => {
  for (const answer of ['', 'HTTP/1.1 408 Late\r\nConnection: close\r\n\r\n']) {
    const { call, abortedCall, sockets } = await worldOf(t, (socket) => socket.end(answer));
    abortedCall();
    await eventually('it opens', () => (sockets.length === 1 ? true : undefined));
    await turns();
    t.match(await call(), { fault: /HTTP1_CLOSED/, repeatable: true }, `answer ${answer}`);
  }
});

void t.test('a server that closes right behind an answer that did not say so', async (t) => {
  const { call, requests } = await worldOf(t, (socket) => socket.end(GOOD));
  for (let count = 1; count <= 20; count++) {
    t.match(await call(), { text: 'ok', fault: undefined });
    await eventually('the end is seen', () => (requests.length === count ? true : undefined));
    await turns();
    await turns();
  }
});

void t.test('a large body comes whole; an early answer ends it', async (t) => {
  const body = Buffer.alloc(10 * 1024 * 1024, 'a');
  const { call } = await worldOf(t, (socket) => {
    socket.removeAllListeners('data');
    socket.on('data', () => {
      if (socket.bytesRead > body.length) socket.write(GOOD);
    });
  });
  t.equal((await call({}, body)).text, 'ok');
  const early = await worldOf(t, (socket, connection) => {
    if (connection === 1) socket.pause();
    socket.write(GOOD);
  });
  t.match(await early.call({}, body), { text: 'ok', fault: undefined });
  early.sockets[0]!.resume();
  await once(early.sockets[0]!, 'close');
  t.ok(early.sockets[0]!.bytesRead < body.length, 'the rest was not sent');
  t.equal((await early.call()).text, 'ok');
  t.equal(early.sockets.length, 2, 'nor was anything else, on that connection');
});

void t.test(
  'the memory of a request that an early response overtakes is not freed until it is written',
  async (t) => {
    const body = Buffer.alloc(10 * 1024 * 1024, 'a');
    const { call, sockets } = await worldOf(t, (socket) => {
      socket.pause();
      // The head and a part of the body: the call goes on.
      socket.write(`${OK}\r\no`);
    });
    const response = call({}, body);
    await eventually('the request is on its way', () => (sockets.length === 1 ? true : undefined));
    await turns();
    freeBody(body);
    t.equal(body.length, 10 * 1024 * 1024, 'a part of it is still to be written');
    let read = 0;
    sockets[0]!.removeAllListeners('data');
    sockets[0]!.on('data', (bytes: Buffer) => {
      read += bytes.length;
      t.ok(bytes.includes('a') && !bytes.includes('\0'), 'of the body alone', { bail: true });
      if (read > 9 * 1024 * 1024) sockets[0]!.write('k');
    });
    sockets[0]!.resume();
    t.match(await response, { text: 'ok', fault: undefined });
    await turns();
    freeBody(body);
    t.equal(body.length, 'transfer' in ArrayBuffer.prototype ? 0 : 10 * 1024 * 1024);
  },
);

void t.test('many calls over few connections, which close at times', async (t) => {
  const { call, sockets } = await worldOf(t, (socket, connection) =>
    setImmediate(() => socket.write(connection % 3 === 0 ? `${OK}Connection: close\r\n\r\nok` : GOOD)),
  );
  const outcomes = await Promise.all(Array.from({ length: 100 }, () => call({ connectionsMax: 3 })));
  t.ok(outcomes.every(({ text }) => text === 'ok'));
  t.equal(sockets.filter(({ destroyed }) => !destroyed).length <= 3, true);
});
