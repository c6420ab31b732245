/**
 * Servers of the bench's own that serve as contenders, each a script in a process of its own.
 */
import type { Scope } from '../../../test/support/mock.js';
import { startChild } from '../../support/child.js';
import { processTree } from '../../support/proc.js';
import type { Contender } from './contender.js';

const READY_TIMEOUT_MS = 20_000;

/** `script`, a file beside this one, says on which port it listens. Ended with the bench. */
export async function startServerScript(
  scope: Scope,
  name: string,
  script: string,
  args: readonly string[],
): Promise<Pick<Contender, 'port' | 'pids'>> {
  const child = await startChild({
    name,
    args: [new URL(script, import.meta.url).pathname, ...args],
    ready: /listening on (\d+)\n/,
    readyTimeoutMs: READY_TIMEOUT_MS,
  });
  scope.teardown(() => child.signal('SIGKILL'));
  return { port: Number(child.ready[1]), pids: () => processTree(child.pid) };
}
