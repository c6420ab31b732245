/** Compose files as Compose itself reads them: `config` wants no engine. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';

interface Tool {
  readonly file: string;
  readonly args: readonly string[];
  /** Of the Python line, 1.x, which ended before the specification had a project's name. */
  readonly isOld: boolean;
}

const TIMEOUT_MS = 120_000;

/** The plugin, else a program of its own. */
const tool = (
  [
    ['docker', ['compose']],
    ['docker-compose', []],
  ] as const
)
  .map(([file, args]): Tool | undefined => {
    const { status, stdout } = spawnSync(file, [...args, 'version', '--short'], { encoding: 'utf8' });
    return status === 0 ? { file, args, isOld: stdout.startsWith('1.') } : undefined;
  })
  .find((found) => found !== undefined);

/** Says `skip` to tap, by name, where there is no Compose; else undefined. */
export const NO_COMPOSE =
  tool === undefined ? { skip: 'no docker-compose: test/setup-tools.sh compose' } : {};

/** What it makes of text of a file in deploy/: YAML with all that is implied, or what it refuses. */
export function composeConfig(
  text: string,
  environment: Readonly<Record<string, string>> = { OPENAI_API_KEY: 'a-key', VALKEY_PASSWORD: 'a-word' },
): { readonly status: number | null; readonly output: string; readonly refusal: string } {
  const { file, args, isOld } = tool!;
  const { status, stdout, stderr } = spawnSync(
    file,
    [...args, '--project-directory', resolve('deploy'), '--project-name', 'tollgate', '-f', '-', 'config'],
    {
      encoding: 'utf8',
      input: isOld ? text.replace(/^name: .*$/m, '') : text,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, ...environment },
      timeout: TIMEOUT_MS,
    },
  );
  return { status, output: stdout, refusal: stderr };
}

export const deployed = (name: string): string => readFileSync(`deploy/${name}`, 'utf8');
