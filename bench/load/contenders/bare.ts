/**
 * The least that an HTTP server on µWebSockets.js can do: what refusals are compared with.
 */
import type { Scope } from '../../../test/support/mock.js';
import { startChild } from '../../support/child.js';
import { processTree } from '../../support/proc.js';
import { JSON_HEADERS, type Contender } from './contender.js';

const READY_TIMEOUT_MS = 20_000;

export async function startBare(scope: Scope): Promise<Contender> {
  const child = await startChild({
    name: 'bare handler',
    args: [new URL('./bare-server.js', import.meta.url).pathname],
    ready: /listening on (\d+)\n/,
    readyTimeoutMs: READY_TIMEOUT_MS,
  });
  scope.teardown(() => child.signal('SIGKILL'));
  return {
    name: 'bare',
    port: Number(child.ready[1]),
    pids: () => processTree(child.pid),
    callOf: ({ status }) => ({ path: `/${status}`, headers: JSON_HEADERS }),
  };
}
