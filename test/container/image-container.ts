/**
 * A container of the image, by namespaces alone: its entry is process 1, its user the image's, its files
 * read-only but for the data volume. The network is the machine's, so that the test can call it and it the
 * mock upstream.
 */
import { execFile, spawn } from 'node:child_process';
import { chownSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { within, type Exit } from '../../bench/support/child.js';
import { temporaryFolder } from '../support/gateway.js';
import type { Scope } from '../support/mock.js';
import type { BuiltImage } from './image-store.js';

const run = promisify(execFile);

/** The start is measured by the test; this is for one that hangs. */
const READY_TIMEOUT_MS = 120_000;
/** A command in the container: starts Node, asks the gateway, ends. */
const COMMAND_TIMEOUT_MS = 120_000;
const READY = /Serving +http:\/\/127\.0\.0\.1:(\d+)\/v1\n +Admin +http:\/\/127\.0\.0\.1:(\d+)\n/;

export interface ContainerEnd {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Container {
  /** Process 1, by its number outside. */
  readonly pid: number;
  readonly port: number;
  readonly adminPort: number;
  /** From the call of the runtime until the banner. */
  readonly readyMs: number;
  readonly exit: Promise<Exit>;
  output(): string;
  /** A command beside process 1, as `docker exec` runs it. */
  exec(command: readonly string[]): Promise<ContainerEnd>;
  /** To process 1 alone, as `docker stop` sends it. */
  signal(signal: NodeJS.Signals): void;
}

export interface ContainerOptions {
  /** Of /etc/tollgate/tollgate.yaml; without them the folder is empty. */
  readonly settings?: object | undefined;
  /** Of the data volume; a new one without it. */
  readonly volume?: string | undefined;
}

/**
 * A folder that stands for the data volume, as an engine makes it from the image: with its owner and mode.
 */
export function makeVolume(t: Scope, image: BuiltImage): string {
  const volume = join(temporaryFolder(t), 'volume');
  mkdirSync(volume, { mode: 0o700 });
  const [uid, gid] = image.config.User.split(':').map(Number);
  chownSync(volume, uid!, gid!);
  return volume;
}

export async function startContainer(
  t: Scope,
  image: BuiltImage,
  { settings, volume = makeVolume(t, image) }: ContainerOptions,
): Promise<Container> {
  const { config, root } = image;
  const configFolder = join(temporaryFolder(t), 'config');
  mkdirSync(configFolder);
  if (settings !== undefined) writeFileSync(join(configFolder, 'tollgate.yaml'), JSON.stringify(settings));
  // Free ports, because the network is the machine's.
  const environment = [...config.Env, 'TOLLGATE_PORT=0', 'TOLLGATE_ADMIN_PORT=0'];

  const startedMs = performance.now();
  const runtime = spawn(
    'unshare',
    [
      ...['--mount', '--pid', '--fork', '--kill-child', '--', 'test/container/enter.sh'],
      ...[root, configFolder, volume, config.User, config.WorkingDir],
      ...[...environment, '--', ...config.Entrypoint, ...config.Cmd],
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  // Its end takes process 1 along, and that the others.
  t.teardown(() => runtime.kill('SIGKILL'));
  let output = '';
  let readyMs = 0;
  const exit = new Promise<Exit>((resolve) => {
    runtime.once('error', () => resolve({ code: null, signal: null }));
    runtime.once('close', (code, signal) => resolve({ code, signal }));
  });
  const ready = new Promise<RegExpExecArray>((resolve, reject) => {
    const hear = (text: string): void => {
      output += text;
      const match = READY.exec(output);
      if (match === null || readyMs > 0) return;
      readyMs = performance.now() - startedMs;
      resolve(match);
    };
    runtime.stdout.setEncoding('utf8').on('data', hear);
    runtime.stderr.setEncoding('utf8').on('data', hear);
    void exit.then(({ code, signal }) =>
      reject(new Error(`ended early, ${code ?? signal ?? 'not started'}`)),
    );
  });
  const match = await within(ready, READY_TIMEOUT_MS, 'the container').catch((error: unknown) => {
    throw new Error(`the container does not serve:\n${output}`, { cause: error });
  });
  const pid = Number(readFileSync(`/proc/${runtime.pid!}/task/${runtime.pid!}/children`, 'utf8'));
  return {
    pid,
    port: Number(match[1]),
    adminPort: Number(match[2]),
    readyMs,
    exit,
    output: () => output,
    exec: (command) => execIn(pid, config.User, config.WorkingDir, config.Env, command),
    signal: (signal) => void process.kill(pid, signal),
  };
}

async function execIn(
  pid: number,
  user: string,
  folder: string,
  environment: readonly string[],
  command: readonly string[],
): Promise<ContainerEnd> {
  const [uid, gid] = user.split(':');
  const inside = ['/usr/bin/env', '-i', '-C', folder, ...environment, ...command];
  const args = [
    `--target=${pid}`,
    '--mount',
    '--pid',
    '--root',
    `--setuid=${uid!}`,
    `--setgid=${gid!}`,
    ...inside,
  ];
  try {
    const { stdout, stderr } = await run('nsenter', args, { timeout: COMMAND_TIMEOUT_MS });
    return { code: 0, stdout, stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: unknown; stdout: string; stderr: string };
    if (typeof code !== 'number') throw error;
    return { code, stdout, stderr };
  }
}
