/**
 * Whether a port is free. Main thread, before the listeners start.
 *
 * Listeners share their port with SO_REUSEPORT, and so would a second gateway that somebody starts by mistake: both would
 * get a part of the calls and neither would say a word. A bind without that option fails where anybody listens.
 */
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Throws an Error that names the address where it can't be listened on. */
export async function assertPortFree(host: string, port: number): Promise<void> {
  if (port === 0) return;
  const server = createServer();
  try {
    server.listen({ host, port, exclusive: true });
    await once(server, 'listening');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    throw new Error(
      `Cannot listen on ${host}:${port} (${code}). Stop what uses the port, or set listen.host and listen.port (TOLLGATE_HOST, TOLLGATE_PORT).`,
      { cause: error },
    );
  }
  server.close();
  await once(server, 'close');
}
