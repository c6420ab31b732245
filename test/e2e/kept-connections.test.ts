/** What a response says of its connection, and that it is true. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { startBed } from '../support/bed.js';
import { RawConnection } from '../support/raw-connection.js';

const KEPT_SECONDS = 7;
/** The parser looks once in 4 s, so where in its turn a connection comes to rest matters. */
const CONNECTIONS = 9;
const STAGGER_MS = 500;

void t.test('a kept connection is kept for as long as it was told', async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer();
  const chat = (more: object): string => {
    const body = JSON.stringify({ model: 'mock-model', messages: [{ role: 'user', content: 'x' }], ...more });
    return `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  };
  const get = (path: string, more = ''): string =>
    `GET ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\n${more}\r\n`;
  const kinds: readonly (readonly [number, string])[] = [
    [200, chat({})],
    [200, chat({ stream: true })],
    [400, chat({ model: '' })],
    [200, get('/v1/models')],
    [404, get('/v1/models/none')],
    [200, get('/openapi.json')],
    [404, get('/nothing')],
    [405, get('/v1/chat/completions')],
    [401, get('/v1/models').replace(key, 'sk-wrong')],
  ];
  await Promise.all(
    Array.from({ length: CONNECTIONS }, async (_, at) => {
      await sleep(at * STAGGER_MS);
      const connection = await RawConnection.open(gateway.port);
      const [status, request] = kinds[at]!;
      for (const round of ['first', 'after its rest']) {
        connection.socket.write(request);
        const answer = await connection.answer();
        t.equal(answer.status, status, `${round}: ${request.slice(0, 40)}`);
        t.equal(answer.headers.get('keep-alive'), `timeout=${KEPT_SECONDS}`);
        t.equal(answer.headers.get('connection'), undefined);
        if (round === 'first') await sleep(KEPT_SECONDS * 1_000);
      }
      connection.socket.destroy();
    }),
  );
});

void t.test('a response that ends its connection promises nothing', async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer();
  const body = JSON.stringify({ model: 'mock-model', messages: [{ role: 'user', content: 'x' }] });
  const connection = await RawConnection.open(gateway.port);
  connection.socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ntransfer-encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
  );
  const answer = await connection.answer();
  t.equal(answer.status, 200);
  t.match(answer.headers.get('connection'), /close/i);
  t.equal(answer.headers.get('keep-alive'), undefined);
  await connection.closed;
});
