/** HTTPS upstreams: kept connections, private certificates, and what is not trusted. */
import { once } from 'node:events';
import { createServer as createTlsServer } from 'node:https';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import t from 'tap';
import { answerOf, targetOf, USAGE } from '../../fixtures/upstream-server.js';
import { selfSigned } from '../../fixtures/upstream-certificate.js';
import { REPORTED, turn, world } from '../../fixtures/upstream-world.js';

const made = selfSigned();

void t.test('HTTPS', { skip: made === undefined ? 'openssl is not installed' : false }, async (t) => {
  const { key, certificate } = made!;
  let connections = 0;
  const server = createTlsServer({ key, cert: certificate }, (request, response) => {
    request.resume();
    request.on('end', () => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(answerOf(USAGE));
    });
  });
  server.on('secureConnection', () => connections++);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;

  await t.test('with its certificate given it serves, over one kept connection', async (t) => {
    const { run } = await world(t, [targetOf(origin, { ca: certificate })]);
    for (let count = 0; count < 5; count++) {
      t.strictSame((await run()).usage, REPORTED);
      await turn();
    }
    t.equal(connections, 1);
  });

  await t.test('a certificate that nobody trusts ends the call before a byte of it was sent', async (t) => {
    const { run, log } = await world(t, [targetOf(origin)]);
    const { error } = await run();
    t.equal(error?.code, 'provider_unavailable');
    t.match(log.lines[0]?.fields.cause, /SELF_SIGNED/);
  });

  await t.test('a certificate for another name is refused', async (t) => {
    const { run, log } = await world(t, [
      targetOf(origin.replace('127.0.0.1', 'localhost'), { ca: certificate }),
    ]);
    t.equal((await run()).error?.code, 'provider_unavailable');
    t.match(log.lines[0]?.fields.cause, /ALTNAME/);
  });
});

void t.test('what speaks no TLS, or nothing at all, ends in time', async (t) => {
  const sockets = new Set<Socket>();
  let reply = 'HTTP/1.1 400 Bad Request\r\n\r\n';
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
    socket.on('data', () => reply !== '' && socket.end(reply));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { run, log } = await world(t, [targetOf(origin, { connectTimeoutMs: 200 })]);
  t.equal((await run()).error?.code, 'provider_unavailable');
  reply = '';
  t.match((await run()).error?.message, /could not be reached in time/);
  t.ok(log.lines.length > 0);
  while (sockets.size > 0) await turn();
});
