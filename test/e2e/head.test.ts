/**
 * HEAD, which no path of the gateway serves: an answer without a body, on every path, and the gateway goes on.
 */
import t from 'tap';
import { eventually, startGateway } from '../support/gateway.js';
import { RawConnection } from '../support/raw-connection.js';
import { request } from '../support/http.js';

const PATHS = ['/', '/v1/models', '/v1/models/echo', '/v1/chat/completions'];

const heads = (received: string): string[] => received.split('\r\n\r\n');

void t.test('HEAD is refused without a body', async (t) => {
  const gateway = await startGateway(t);
  const pid = gateway.pid();
  for (const path of PATHS) {
    const answer = await request({ port: gateway.port, method: 'HEAD', path });
    t.equal(answer.status, path === '/' ? 404 : 405, path);
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
  for (const head of received) t.match(head, /^HTTP\/1\.1 40[45] [^]*\r\ncontent-length: \d+/i);
  connection.close();
  t.equal(gateway.pid(), pid, 'the process is the same');
  t.equal(await gateway.stop(), 0);
});
