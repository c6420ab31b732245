/**
 * Programs from outside that serve as contenders: looked for, started with a configuration of their own in a
 * temporary folder, and ended with the bench.
 */
import { spawn } from 'node:child_process';
import { accessSync, constants, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { temporaryFolder } from '../../../test/support/gateway.js';
import type { Scope } from '../../../test/support/mock.js';
import { processTree } from '../../support/proc.js';

/** Packages put servers there, which is not on everybody's path. */
const MORE_FOLDERS = ['/usr/sbin', '/usr/local/sbin'];
const READY_TIMEOUT_MS = 10_000;
const POLL_MS = 20;

/** The whole path of a program; undefined where it is not installed. */
export function installed(name: string): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(delimiter), ...MORE_FOLDERS];
  return folders
    .map((folder) => join(folder, name))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
}

export interface Program {
  /** The program and all that it started. */
  readonly pids: () => number[];
}

export interface ProgramOptions {
  readonly file: string;
  /** Text of its configuration file, where it wants one. */
  readonly config?: (folder: string) => string;
  readonly args: (folder: string, configFile: string) => readonly string[];
  readonly port: number;
  /** Beside this process's own. */
  readonly env?: Readonly<Record<string, string>>;
  /** 10 seconds if it is left out. */
  readonly readyTimeoutMs?: number;
}

/**
 * Resolves when something listens on the port; rejects with what the program said where it ends before or is
 * late.
 */
export async function startProgram(scope: Scope, options: ProgramOptions): Promise<Program> {
  const folder = temporaryFolder(scope);
  const configFile = join(folder, 'contender.conf');
  if (options.config !== undefined) writeFileSync(configFile, options.config(folder));
  const child = spawn(options.file, options.args(folder, configFile), {
    cwd: folder,
    env: { ...process.env, ...options.env },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  const end = new Promise<void>((resolve) => {
    child.once('error', () => resolve());
    child.once('close', () => resolve());
  });
  scope.teardown(async () => {
    // On SIGTERM these programs end their workers too.
    child.kill('SIGTERM');
    await end;
  });
  const endMs = performance.now() + (options.readyTimeoutMs ?? READY_TIMEOUT_MS);
  while (!(await listens(options.port))) {
    if (child.pid === undefined || child.exitCode !== null || performance.now() > endMs)
      throw new Error(`${options.file} does not listen on port ${options.port}: ${said}`);
    await sleep(POLL_MS);
  }
  return { pids: () => processTree(child.pid!) };
}
