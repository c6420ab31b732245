/**
 * Reads the settings of `serve` in a process of its own, which runs `serve-command.ts` and ends. So the
 * supervisor never loads what that takes (Commander, YAML, TypeBox: 20 MB resident), neither at its start nor
 * at a reload. serve.ts calls it, in the supervisor process.
 *
 * Must hold: that process ends, or is ended after a time limit (test/e2e/refused-start.test.ts,
 * test/e2e/reload.test.ts).
 */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { ConfigError } from '../config/config-error.js';
import type { LoadedSettings } from '../config/load.js';
import { SETTINGS_PROCESS_VARIABLE } from './runtime-support.js';

/** What the process sends. */
export type ReadSettings =
  | { readonly kind: 'loaded'; readonly loaded: LoadedSettings }
  | { readonly kind: 'refused'; readonly problems: readonly string[] };

/** The process has ended without settings: it has printed why, or the help. */
export class SettingsUnread extends Error {
  readonly exitCode: number;

  constructor(exitCode: number | null, signal: string | null) {
    super(
      `the settings could not be read: the process that reads them ended (${signal ?? `exit code ${exitCode ?? 0}`})`,
    );
    this.exitCode = exitCode ?? 1;
  }
}

const ENTRY = new URL('../cli/main.js', import.meta.url);
/** It takes half a second. A file that never ends, such as a pipe, must not hold up later reloads. */
const READ_MS_MAX = 120_000;

/** Reads the settings with the arguments of this process. Rejects with ConfigError or SettingsUnread. */
export function readSettings(): Promise<LoadedSettings> {
  const child = fork(fileURLToPath(ENTRY), process.argv.slice(2), {
    env: { ...process.env, [SETTINGS_PROCESS_VARIABLE]: '1' },
    serialization: 'advanced',
    timeout: READ_MS_MAX,
  });
  return new Promise((resolve, reject) => {
    child.once('message', (read: ReadSettings) => {
      if (read.kind === 'loaded') resolve(read.loaded);
      else reject(new ConfigError(read.problems));
    });
    child.once('error', reject);
    // After its last message, unlike 'exit'.
    child.once('close', (exitCode, signal) => reject(new SettingsUnread(exitCode, signal)));
  });
}
