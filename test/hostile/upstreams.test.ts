/**
 * An upstream that sends answers nobody asked for: on a connection at rest, behind a response, while the next
 * request is on its way. No caller gets what was meant for another where that can be known, and an upstream
 * that was caught is not trusted with a second call.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { Http1Client } from '#src/http1/client.js';
import { targetOf } from '../fixtures/upstream-server.js';
import { newSeed } from '../support/random.js';

const isFull = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const SEED = newSeed();
const WORLDS = isFull ? 400 : 60;
const CALLS = 40;

/** mulberry32, public domain. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const answer = (text: string): string =>
  `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`;
const OTHERS = 'text of somebody else';
/** What nobody asked for. */
const STRAYS: readonly string[] = [
  answer(OTHERS),
  answer(OTHERS) + answer(OTHERS),
  `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${OTHERS.length.toString(16)}\r\n${OTHERS}\r\n0\r\n\r\n`,
  `HTTP/1.1 103 Early Hints\r\n\r\n${answer(OTHERS)}`,
  `\r\n${answer(OTHERS)}`,
  answer(OTHERS).slice(0, 30),
  OTHERS,
];

/**
 * When it is sent: with the end of a response, some turns of the loop after it, or before a call in the same
 * turn.
 */
type Moment = 'with the answer' | 'at rest' | 'right before a call';
const MOMENTS: readonly Moment[] = ['with the answer', 'at rest', 'right before a call'];

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function worldOf(t: Test, respond: (socket: Socket, id: string) => void) {
  const sockets: Socket[] = [];
  let unasked = 0;
  const server = createServer((socket) => {
    sockets.push(socket);
    // Else the system holds a stray answer back until the next request acknowledges the last one: then
    // nothing can tell.
    socket.setNoDelay(true);
    socket.on('error', () => undefined);
    let request = '';
    socket.on('data', (bytes: Buffer) => {
      request += bytes.toString('latin1');
      const id = /x-request-id: (\S+)\r\n[^]*\r\n\r\n\{\}$/.exec(request)?.[1];
      if (id === undefined) return;
      request = '';
      respond(socket, id);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = new Http1Client({ clock: new SystemClock(), version: '1', onUnsolicited: () => unasked++ });
  const close = async (): Promise<void> => {
    await client.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  t.teardown(close);
  const target = targetOf(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const call = (id: string): Promise<string> =>
    new Promise((resolve) => {
      let text = '';
      client.start(target, '{}', id, {
        onStart: () => undefined,
        onData: (bytes) => (text += Buffer.from(bytes).toString('latin1')),
        onEnd: () => resolve(text),
        onError: ({ code }) => resolve(`failed: ${code}`),
      });
    });
  return { call, sockets, close, unasked: () => unasked };
}

void t.test(`no call gets an answer that came before it, seed ${SEED}`, async (t) => {
  const random = randomOf(SEED);
  const pick = <Item>(items: readonly Item[]): Item => items[Math.floor(random() * items.length)]!;
  let calls = 0;
  let strays = 0;
  const wrong: string[] = [];
  for (let world = 0; world < WORLDS; world++) {
    // One stray in each world: after it the client is on its guard.
    const stray = pick(STRAYS);
    const moment = pick(MOMENTS);
    const at = 1 + Math.floor(random() * 10);
    const turns = Math.floor(random() * 4);
    let served = 0;
    let sent = 0;
    const { call, sockets, close, unasked } = await worldOf(t, (socket, id) => {
      const isNow = ++served === at && moment === 'with the answer';
      if (isNow) sent++;
      socket.write(isNow ? answer(id) + stray : answer(id));
    });
    for (let index = 0; index < CALLS; index++) {
      if (index === at && moment !== 'with the answer') {
        if (moment === 'at rest') for (let count = 0; count < turns; count++) await turn();
        const socket = sockets.at(-1)!;
        if (!socket.destroyed) {
          socket.write(stray);
          sent++;
        }
        if (moment === 'at rest') for (let count = 0; count < turns; count++) await turn();
      }
      const wide = random() < 0.2 ? 3 : 1;
      const ids = Array.from({ length: wide }, (_, beside) => `w${world}c${index}b${beside}`);
      const texts = await Promise.all(ids.map(call));
      calls += wide;
      for (const [beside, text] of texts.entries())
        if (text !== ids[beside])
          wrong.push(`${moment}, ${JSON.stringify(stray).slice(0, 30)}: ${text} for ${ids[beside]}`);
    }
    strays += sent;
    if (sent > 0 && unasked() === 0)
      wrong.push(`${moment}: nobody noticed ${JSON.stringify(stray).slice(0, 30)}`);
    await close();
  }
  t.ok(strays > WORLDS / 2, 'strays were sent');
  t.strictSame(wrong.slice(0, 5), [], `${wrong.length} wrong of ${calls} calls, ${strays} strays`);
  t.comment(`${calls} calls, ${strays} strays`);
});

void t.test('an upstream that was caught gets one call a connection', async (t) => {
  const { call, sockets, unasked } = await worldOf(t, (socket, id) => {
    socket.write(answer(id));
    // At any moment, also while the next request would be on its way.
    setTimeout(() => socket.destroyed || socket.write(answer(OTHERS)), 1);
  });
  let others = 0;
  for (let index = 0; index < 300; index++) {
    const text = await call(`c${index}`);
    if (text !== `c${index}`) others++;
    if (index % 3 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
  }
  t.comment(`${others} of 300 calls got another's answer, ${sockets.length} connections`);
  t.ok(others <= 1, 'the first may come when nothing can tell; then it is over');
  t.ok(unasked() >= 1);
  t.ok(sockets.length > 290, 'no connection is used again');
});

void t.test('a farewell to a connection at rest, and line ends, are no reason for distrust', async (t) => {
  const farewell = 'HTTP/1.1 408 Request Time-out\r\nContent-Length: 0\r\nConnection: close\r\n\r\n';
  for (const [harmless, keeps] of [
    [farewell, true],
    ['\r\n', true],
    [farewell, false],
  ] as const) {
    const { call, sockets, unasked } = await worldOf(t, (socket, id) => socket.write(answer(id)));
    t.equal(await call('first'), 'first');
    await turn();
    sockets[0]!.write(harmless);
    // In the same turn the request is on its way already, and the farewell is no response to it.
    if (keeps) for (let count = 0; count < 5; count++) await turn();
    t.equal(await call('second'), 'second', harmless);
    t.equal(await call('third'), 'third');
    t.equal(unasked(), 0);
    t.equal(sockets.length, 2, 'that connection is closed, the next is kept');
  }
});
