/**
 * Finds the port of the listeners and of the admin interface. gateway-start.ts and AdminService call it, on
 * the main thread of a gateway process, before they listen.
 *
 * Must hold: gateways that are not of one process group never share an address. Otherwise each would get some
 * of the calls, without an error.
 */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ListenOptions, type Server } from 'node:net';

/** The settings that choose an address, for error messages. */
const ADVICE = {
  listen: 'listen.host and listen.port (TOLLGATE_HOST, TOLLGATE_PORT)',
  admin: 'admin.host and admin.port (TOLLGATE_ADMIN_HOST, TOLLGATE_ADMIN_PORT)',
};

/**
 * Where a free port is looked for. The kernel takes ports from 32,768 on for connections that leave this
 * machine, and could take one there between its check and the time when the listeners open it.
 */
const FREE_PORT_MIN = 20_000;
const FREE_PORT_END = 32_768;

/** How many ports are tried if any will do. */
const PORT_TRIES_MAX = 20;

/**
 * A port that no other gateway of this machine takes at that host, until `release` is called or the process
 * ends. Call `release` when the port is open.
 */
interface FoundPort {
  readonly port: number;
  readonly release: () => void;
}

/**
 * Checks that nobody listens on `port`. Listeners share their port with SO_REUSEPORT, and a second gateway
 * that was started by mistake would share it too. A bind without that option fails if anybody listens. If
 * `port` is 0, a port is chosen here at random, because µWS would open a port 0 without the option.
 *
 * Two gateways that start at the same time do not listen yet, so neither finds the other by its bind. So each
 * also binds a name for the address: an abstract Unix socket, which only Linux has. Overlapping addresses
 * such as 0.0.0.0 and 127.0.0.1 have different names, because one name for all would reject gateways on two
 * addresses of a machine. The kernel does not spread calls over such addresses: the narrower one gets them.
 *
 * Returns `port`, or a free port if it is 0. If the address cannot be bound, throws an Error that names it
 * and the settings of `section` that choose it.
 */
export async function findPort(host: string, port: number, section: keyof typeof ADVICE): Promise<FoundPort> {
  for (let tries = 1; ; tries++) {
    const isLast = port !== 0 || tries === PORT_TRIES_MAX;
    const foundPort = port === 0 ? randomInt(FREE_PORT_MIN, FREE_PORT_END) : port;
    const portProbe = createServer();
    const portError = await bind(portProbe, { host, port: foundPort });
    if (portError === 'EADDRINUSE' && !isLast) continue;
    if (portError !== undefined) throw cannotListen(host, port, portError, section);
    // The name is bound before the probe closes. A gateway that has released the name by then listens, so the
    // probe's bind would have failed.
    const nameHolder = createServer().unref();
    // The port comes first in the name, because long names are cut.
    const nameError = await bind(nameHolder, { path: `\0tollgate-${foundPort}-${host}` });
    portProbe.close();
    await once(portProbe, 'close');
    // Any other error means that this system has no such names. Then only the port is checked.
    if (nameError !== 'EADDRINUSE') return { port: foundPort, release: () => nameHolder.close() };
    if (isLast) throw cannotListen(host, port, nameError, section);
  }
}

/** Makes the server listen. Resolves with the error's code, or with undefined if it listens. */
async function bind(server: Server, address: ListenOptions): Promise<string | undefined> {
  try {
    server.listen(address);
    await once(server, 'listening');
    return undefined;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
}

function cannotListen(host: string, port: number, code: string, section: keyof typeof ADVICE): Error {
  const address = host.includes(':') ? `[${host}]` : host;
  const remedy = Object.hasOwn(REMEDIES, code) ? REMEDIES[code]! : 'See that this machine has the address';
  return new Error(`Cannot listen on ${address}:${port} (${code}). ${remedy}, or set ${ADVICE[section]}.`);
}

/** What helps, beside another address, by the code of the error; for other codes see `cannotListen`. */
const REMEDIES: Readonly<Record<string, string>> = {
  EADDRINUSE: 'Stop what uses the port',
  EACCES: 'A port below 1024 wants root or the capability CAP_NET_BIND_SERVICE: grant it',
  ENOTFOUND: 'The name has no address: see that it is spelled right',
  EAI_AGAIN: 'The name cannot be resolved: see that DNS works here',
  EAFNOSUPPORT: 'This machine has no IPv6: enable it',
};
