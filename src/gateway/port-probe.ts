/**
 * The port that all listeners of a gateway will share. Main thread, before they start.
 *
 * Listeners share their port with SO_REUSEPORT, and so would a second gateway that somebody starts by mistake: both would
 * get a part of the calls and neither would say a word. A bind without that option fails where anybody listens. µWS does
 * not set it where the kernel is to choose the port (0), so that choice is made here too.
 */
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';

const ADVICE = {
  listen: 'listen.host and listen.port (TOLLGATE_HOST, TOLLGATE_PORT)',
  admin: 'admin.host and admin.port (TOLLGATE_ADMIN_HOST, TOLLGATE_ADMIN_PORT)',
};

/**
 * `port`, or a free one where it is 0. Throws an Error that names the address where it can't be listened on, and the
 * settings of `section` that choose it.
 */
export async function findPort(host: string, port: number, section: keyof typeof ADVICE): Promise<number> {
  const server = createServer();
  try {
    server.listen({ host, port, exclusive: true });
    await once(server, 'listening');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new Error(
      `Cannot listen on ${host}:${port} (${code}). Stop what uses the port, or set ${ADVICE[section]}.`,
      { cause: error },
    );
  }
  const found = (server.address() as AddressInfo).port;
  server.close();
  await once(server, 'close');
  return found;
}
