/**
 * An upstream that ends its connection while the response is paused: the call ends or fails, and the thread
 * lives.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { Http1Client } from '#src/http1/client.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const BODY = `data: ${'x'.repeat(2_000)}\n\n`;
const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n';
const ANSWERS = {
  'a length': `${HEAD}content-length: ${BODY.length}\r\n\r\n${BODY}`,
  'a length, and is cut': `${HEAD}content-length: ${BODY.length + 1}\r\n\r\n${BODY}`,
  chunks: `${HEAD}transfer-encoding: chunked\r\n\r\n${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`,
  'chunks, and is cut': `${HEAD}transfer-encoding: chunked\r\n\r\n${BODY.length.toString(16)}\r\n${BODY}`,
  'no length': `${HEAD}\r\n${BODY}`,
};

for (const [name, answer] of Object.entries(ANSWERS)) {
  for (const ending of ['FIN', 'reset'] as const) {
    void t.test(`an answer with ${name}, then ${ending}`, async (t) => {
      let letEnd: () => void = () => undefined;
      const server = createServer((socket) => {
        socket.on('error', () => undefined);
        socket.on('data', () => {
          socket.write(answer);
          if (ending === 'FIN') socket.end();
          else letEnd = () => socket.resetAndDestroy();
        });
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const client = new Http1Client({ clock: new SystemClock(), version: '1.2.3' });
      t.teardown(async () => {
        await client.close();
        server.close();
      });
      let bytes = 0;
      const outcome = await new Promise<string>((resolve) => {
        const call = client.start(
          targetOf(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
          '{}',
          'req_1',
          {
            onStart: () => undefined,
            onData: (chunk) => {
              bytes += chunk.length;
              call.pause();
              letEnd();
              setTimeout(() => call.resume(), 200).unref();
            },
            onEnd: () => resolve('end'),
            onError: ({ code }) => resolve(code),
          },
        );
      });
      t.equal(bytes, BODY.length);
      if (ending === 'FIN' && !name.endsWith('cut')) t.equal(outcome, 'end');
      else if (ending === 'FIN') t.not(outcome, 'end');
      else t.comment(`ended with ${outcome}`);
    });
  }
}
