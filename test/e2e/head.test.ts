/**
 * HEAD: the response of a GET without its body on the paths that are read, a refusal without a body on the
 * others, and the gateway goes on.
 */
import t from 'tap';
import { eventually } from '../support/gateway.js';
import { startBed } from '../support/bed.js';
import { RawConnection } from '../support/raw-connection.js';
import { request } from '../support/http.js';

/** Without a key. */
const STATUSES = { '/': 404, '/v1/models': 401, '/v1/models/echo': 401, '/v1/chat/completions': 405 };
const PATHS = Object.keys(STATUSES) as (keyof typeof STATUSES)[];

const heads = (received: string): string[] => received.split('\r\n\r\n');

void t.test('HEAD has no body', async (t) => {
  const { gateway } = await startBed(t);
  const pid = gateway.pid();
  for (const path of PATHS) {
    const answer = await request({ port: gateway.port, method: 'HEAD', path });
    t.equal(answer.status, STATUSES[path], path);
    t.equal(answer.body, '');
    t.match(answer.headers['content-length'], /^[1-9]\d{1,3}$/);
  }
  // The same on one connection: what came is four heads and nothing else, so no body and no second answer.
  const connection = await RawConnection.open(gateway.port);
  for (const [at, path] of PATHS.entries()) {
    connection.send(`HEAD ${path} HTTP/1.1\r\nHost: test\r\n\r\n`);
    await eventually(`answer ${at}`, () =>
      heads(connection.pending()).length === at + 2 ? true : undefined,
    );
  }
  const received = heads(connection.pending());
  t.equal(received.pop(), '');
  for (const head of received) t.match(head, /^HTTP\/1\.1 40[145] [^]*\r\ncontent-length: \d+/i);
  connection.close();
  const { key } = await gateway.admin.customer({ credit: '1.00' });
  for (const path of [
    '/v1/models',
    '/v1/models/mock-model',
    '/v1/models/none',
    '/v1/models/',
    '/openapi.json',
  ]) {
    const got = await gateway.request(key, { method: 'GET', path });
    const head = await gateway.request(key, { method: 'HEAD', path });
    t.equal(head.status, got.status, path);
    t.equal(head.body, '');
    t.equal(head.headers['content-length'], String(Buffer.byteLength(got.body)));
  }
  const put = await gateway.request(key, { method: 'PUT', path: '/v1/models' });
  t.equal(put.headers.allow, 'GET, HEAD');
  t.match(
    (await gateway.request(key, { method: 'GET', path: '/v1/models/' })).body,
    /name of a model is missing/,
  );

  // A head that can be read in two ways ends its connection, here too.
  const wrong = await RawConnection.open(gateway.port);
  wrong.send(
    'HEAD / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: x\r\n\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n',
  );
  await wrong.closed;
  t.notMatch(wrong.pending(), / 404 /);
  const alone = await RawConnection.open(gateway.port);
  alone.send('HEAD / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: x\r\n\r\n');
  const begunMs = Date.now();
  await alone.closed;
  t.match(alone.pending(), /^HTTP\/1\.1 400 /);
  t.ok(Date.now() - begunMs < 7_000, 'at once, and not by the timeout of µWS');
  t.equal(gateway.pid(), pid, 'the process is the same');
  t.equal(await gateway.stop(), 0);
});
