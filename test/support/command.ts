/**
 * Commands as an operator gives them: `tollgate …` as a child process, with what it printed and how it ended.
 */
import { execFile } from 'node:child_process';

export interface CommandEnd {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** Standard output as JSON. */
  json(): unknown;
}

/** A command does one thing and ends; a store that is being written may keep it waiting for a second. */
const COMMAND_TIMEOUT_MS = 120_000;
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

/** Runs in `folder`, where it finds `tollgate.yaml` and `data`. Nobody is at its standard input. */
export function runCommand(
  folder: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<CommandEnd> {
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const surroundings = {
    ...process.env,
    TOLLGATE_CONFIG: undefined,
    TOLLGATE_DATA: undefined,
    TOLLGATE_ADMIN_TOKEN: undefined,
  };
  return new Promise((resolve, reject) => {
    const child = execFile(
      process.execPath,
      [main, ...args],
      {
        cwd: folder,
        env: { ...surroundings, ...env },
        timeout: COMMAND_TIMEOUT_MS,
        maxBuffer: OUTPUT_BYTES_MAX,
      },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        if (typeof code !== 'number') {
          reject(new Error(`tollgate ${args.join(' ')} did not end by itself`, { cause: error }));
          return;
        }
        resolve({ code, stdout, stderr, json: () => JSON.parse(stdout) as unknown });
      },
    );
    child.stdin?.end();
  });
}
