/**
 * Bytes over TLS: all sockets of a thread share one read buffer, TLS ones too; pauses hold; sessions are
 * taken up again.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import t from 'tap';
import { SystemClock } from '#src/core/clock.js';
import { Http1Client } from '#src/http1/client.js';
import { selfSigned } from '../../fixtures/upstream-certificate.js';
import { targetOf } from '../../fixtures/upstream-server.js';

const made = selfSigned();
const BODY_BYTES = 4 * 1024 * 1024;
const CALLS = 4;
/** Pauses are as many as pieces, and each lasts a turn. */
const PIECES_PAUSED = 50;

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

void t.test('TLS', { skip: made === undefined ? 'openssl is not installed' : false }, async (t) => {
  const { key, certificate } = made!;
  const resumed: boolean[] = [];
  const server = createServer({ key, cert: certificate }, (request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      if (request.url === '/close') response.setHeader('connection', 'close');
      response.end(Buffer.concat(parts));
    });
  });
  server.on('secureConnection', (socket: TLSSocket) => resumed.push(socket.isSessionReused()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = new Http1Client({ clock: new SystemClock(), version: '1' });
  t.teardown(async () => {
    await client.close();
    server.closeAllConnections();
    server.close();
  });
  const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;

  /** What comes back, or the fault. */
  const echo = (body: Uint8Array, path = '/'): Promise<Buffer | string> =>
    new Promise((resolve) => {
      const pieces: Uint8Array[] = [];
      const call = client.start(targetOf(origin, { ca: certificate, path }), body, 'r', {
        onStart: () => undefined,
        onData: (piece) => {
          pieces.push(piece);
          if (pieces.length > PIECES_PAUSED) return;
          call.pause();
          setImmediate(() => call.resume());
        },
        onEnd: () => resolve(Buffer.concat(pieces)),
        onError: ({ code, message }) => resolve(`${code} ${message}`),
      });
    });

  await t.test('large bodies both ways at once, paused at each piece', async (t) => {
    const bodies = Array.from({ length: CALLS }, (_, call) =>
      Buffer.alloc(BODY_BYTES, `${call} of ${CALLS}, a text that no block is a multiple of. `),
    );
    const echoes = await Promise.all(bodies.map((body) => echo(body)));
    for (const [call, body] of bodies.entries()) {
      const got = echoes[call]!;
      if (typeof got === 'string') t.fail(got);
      else t.equal(sha256(got), sha256(body), `call ${call}`);
    }
  });

  await t.test('a further connection takes up the session of the last', async (t) => {
    await echo(Buffer.from('a'), '/close');
    const before = resumed.length;
    t.equal(String(await echo(Buffer.from('b'), '/close')), 'b');
    // Idle connections of the calls before are used first.
    while (resumed.length === before) {
      await new Promise((resolve) => setImmediate(resolve));
      t.equal(String(await echo(Buffer.from('c'), '/close')), 'c');
    }
    t.equal(resumed.at(-1), true);
    t.equal(resumed[0], false, 'the first had none');
  });
});
