/** A port is of one gateway, also while it starts and does not listen yet. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import t from 'tap';
import { findPort } from '#src/gateway/find-port.js';

const HOST = '127.0.0.1';
/** Where Linux begins to take ports for connections, unless it is told otherwise. */
const KERNELS_FIRST_PORT = 32_768;
const ONLY_LINUX = process.platform === 'linux' ? false : 'abstract sockets are of Linux';

void t.test(
  'of two that start on a port at the same time one is refused',
  { skip: ONLY_LINUX },
  async (t) => {
    const first = await findPort(HOST, 0, 'listen');
    await t.rejects(findPort(HOST, first.port, 'listen'), {
      message: `Cannot listen on ${HOST}:${first.port} (EADDRINUSE). Stop what uses the port, or set listen.host and listen.port (TOLLGATE_HOST, TOLLGATE_PORT).`,
    });
    first.release();
    const second = await findPort(HOST, first.port, 'admin');
    t.equal(second.port, first.port, 'after its release it is free');
    second.release();
  },
);

void t.test('a port that somebody listens on is refused, held or not', async (t) => {
  const server = createServer().listen(0, HOST);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await t.rejects(findPort(HOST, port, 'admin'), { message: /EADDRINUSE.*admin\.port/ });
  server.close();
});

void t.test('an address of IPv6 is told with brackets', async (t) => {
  // Of the addresses for examples (RFC 3849): no machine has it, with IPv6 or without.
  await t.rejects(findPort('2001:db8::1', 80, 'listen'), {
    message: /^Cannot listen on \[2001:db8::1\]:80 \(E/,
  });
});

void t.test('the advice fits the error', async (t) => {
  // Of the addresses for examples (RFC 5737).
  await t.rejects(findPort('192.0.2.1', 80, 'listen'), {
    message:
      /\(EADDRNOTAVAIL\)\. See that this machine has the address, or set listen\.host and listen\.port /,
  });
  // No server is asked: a label has at most 63 characters.
  await t.rejects(findPort(`${'a'.repeat(64)}.invalid`, 80, 'admin'), {
    message: /\((ENOTFOUND|EAI_AGAIN)\)\. The name .*, or set admin\.host and admin\.port /,
  });
});

void t.test('ports that are found at the same time differ', async (t) => {
  const found = await Promise.all(Array.from({ length: 200 }, () => findPort(HOST, 0, 'listen')));
  const ports = found.map(({ port }) => port);
  t.equal(new Set(ports).size, found.length);
  t.ok(Math.max(...ports) < KERNELS_FIRST_PORT, 'and no connection that leaves this machine gets one');
  for (const { release } of found) release();
});
