/**
 * Processes as in containers that share a volume: each in a PID namespace of its own, in which numbers begin
 * at 1 and nobody else's process is seen. Only root, or a user who may make namespaces, can start them;
 * elsewhere tests skip by name.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import type { CommandEnd } from './command.js';
import type { Gateway } from './gateway.js';

const OWN_PROCESSES = ['--pid', '--fork', '--mount-proc', '--kill-child'];

/** Says `skip` to tap, by name, where there are no namespaces. */
export const NO_CONTAINERS =
  spawnSync('unshare', [...OWN_PROCESSES, '--net', 'true']).status === 0
    ? {}
    : { skip: 'no PID namespaces: wants root and util-linux' };

/** Starts the command line after it in a container that shares the network of this process. */
export const CONTAINER: readonly string[] = ['unshare', ...OWN_PROCESSES];
/** As CONTAINER, and with a network of its own, from which no port of another container is reached. */
export const CONTAINER_APART: readonly string[] = [...CONTAINER, '--net'];

/** SIGTERM to a gateway that CONTAINER has started, as `docker stop` sends it; resolves when it has ended. */
export async function stopContained({ child }: Gateway): Promise<void> {
  // `unshare` itself ignores the signal. Its one child is the container's first process.
  const [first] = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'latin1').split(' ');
  process.kill(Number(first), 'SIGTERM');
  await child.exit;
}

/** A command that ends by itself has long done so. */
const COMMAND_TIMEOUT_MS = 120_000;

/** Runs a `tollgate` command by `launcher`, in `folder`, with the data in `data` under it. */
export async function runInContainer(
  launcher: readonly string[],
  folder: string,
  args: readonly string[],
): Promise<CommandEnd> {
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const [file = '', ...rest] = [...launcher, process.execPath, main, ...args];
  const command = spawn(file, rest, {
    cwd: folder,
    env: {
      ...process.env,
      TOLLGATE_CONFIG: undefined,
      TOLLGATE_DATA: undefined,
      TOLLGATE_ADMIN_TOKEN: undefined,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: COMMAND_TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  const [[code], stdout, stderr] = await Promise.all([
    once(command, 'close') as Promise<[number | null]>,
    text(command.stdout),
    text(command.stderr),
  ]);
  return { code: code ?? -1, stdout, stderr, json: () => JSON.parse(stdout) as unknown };
}
