/**
 * The least that an HTTP server on µWebSockets.js can do: what refusals are compared with.
 */
import type { Scope } from '../../../test/support/mock.js';
import { JSON_HEADERS, type Contender } from './contender.js';
import { startServerScript } from './server-script.js';

export async function startBare(scope: Scope): Promise<Contender> {
  const server = await startServerScript(scope, 'bare handler', './bare-server.js', []);
  return { name: 'bare', ...server, callOf: ({ status }) => ({ path: `/${status}`, headers: JSON_HEADERS }) };
}
