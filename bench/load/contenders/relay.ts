/**
 * The gateway's two threads and the link between them with nothing checked or counted: what its platform costs.
 */
import type { Scope } from '../../../test/support/mock.js';
import { startChild } from '../../support/child.js';
import { processTree } from '../../support/proc.js';
import { openCall, type Contender } from './contender.js';

const READY_TIMEOUT_MS = 20_000;

export async function startRelay(scope: Scope, upstreamPort: number): Promise<Contender> {
  const child = await startChild({
    name: 'relay',
    args: [new URL('./relay/server.js', import.meta.url).pathname, String(upstreamPort)],
    ready: /listening on (\d+)\n/,
    readyTimeoutMs: READY_TIMEOUT_MS,
  });
  scope.teardown(() => child.signal('SIGKILL'));
  return {
    name: 'relay',
    port: Number(child.ready[1]),
    pids: () => processTree(child.pid),
    callOf: openCall,
  };
}
