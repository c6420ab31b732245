/**
 * Portkey's open-source gateway, the nearest product on Node: one process, as its package starts it. It hands
 * on the caller's key and counts nothing. `npm run bench:peers` installs it into a folder of the bench's own.
 */
import { existsSync } from 'node:fs';
import { freePort } from '../../../test/support/free-port.js';
import type { Scope } from '../../../test/support/mock.js';
import { CHAT_PATH, JSON_HEADERS, type Contender } from './contender.js';
import { startProgram } from './program.js';

/** Over the compiled bench: build/bench/load/contenders. */
const SCRIPT = new URL(
  '../../../../bench/peers/node_modules/@portkey-ai/gateway/build/start-server.js',
  import.meta.url,
).pathname;

/** Undefined where it is not installed. */
export async function startPortkey(scope: Scope, upstreamUrl: string): Promise<Contender | undefined> {
  if (!existsSync(SCRIPT)) return undefined;
  const port = await freePort();
  const program = await startProgram(scope, {
    file: process.execPath,
    args: () => [SCRIPT, `--port=${port}`, '--headless'],
    port,
  });
  const headers = {
    ...JSON_HEADERS,
    authorization: 'Bearer none',
    'x-portkey-provider': 'openai',
    'x-portkey-custom-host': upstreamUrl,
  };
  return { name: 'portkey', port, pids: program.pids, callOf: () => ({ path: CHAT_PATH, headers }) };
}
