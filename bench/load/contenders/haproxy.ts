/**
 * HAProxy as a plain reverse proxy in one thread: like nginx it checks and counts nothing.
 */
import { freePort } from '../../../test/support/free-port.js';
import type { Scope } from '../../../test/support/mock.js';
import { openCall, type Contender } from './contender.js';
import { installed, startProgram } from './program.js';

/** Idle connections to the upstream are let go before it ends them, half of them every time. */
const configOf = (port: number, upstreamPort: number): string => `
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
  http-reuse always
frontend clients
  bind 127.0.0.1:${port}
  default_backend mock
backend mock
  server mock 127.0.0.1:${upstreamPort} pool-purge-delay 1500ms
`;

/** Undefined where HAProxy is not installed. */
export async function startHaproxy(scope: Scope, upstreamPort: number): Promise<Contender | undefined> {
  const file = installed('haproxy');
  if (file === undefined) return undefined;
  const port = await freePort();
  const program = await startProgram(scope, {
    file,
    config: () => configOf(port, upstreamPort),
    args: (_folder, configFile) => ['-db', '-f', configFile],
    port,
  });
  return { name: 'haproxy', port, pids: program.pids, callOf: openCall };
}
