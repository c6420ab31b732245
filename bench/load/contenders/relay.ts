/**
 * The gateway's two threads and the link between them with nothing checked or counted: what its platform
 * costs.
 */
import type { Scope } from '../../../test/support/mock.js';
import { openCall, type Contender } from './contender.js';
import { startServerScript } from './server-script.js';

export async function startRelay(scope: Scope, upstreamPort: number): Promise<Contender> {
  const server = await startServerScript(scope, 'relay', './relay/server.js', [String(upstreamPort)]);
  return { name: 'relay', ...server, callOf: openCall };
}
