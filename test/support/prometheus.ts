/**
 * Debian's Prometheus and promtool, where they are installed or test/setup-tools.sh has put them into
 * build/tools.
 */
import { spawn, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually, temporaryFolder } from './gateway.js';
import { request } from './http.js';
import type { Scope } from './mock.js';

const PATHS = [join(process.cwd(), 'build/tools'), ...(process.env.PATH ?? '').split(':')];
const ENVIRONMENT = { ...process.env, PATH: PATHS.join(':') };

export const HAS_PROMTOOL = spawnSync('promtool', ['--version'], { env: ENVIRONMENT }).status === 0;
export const HAS_PROMETHEUS = spawnSync('prometheus', ['--version'], { env: ENVIRONMENT }).status === 0;

export interface ToolEnd {
  readonly status: number | null;
  /** Both outputs. */
  readonly said: string;
}

export function promtool(args: readonly string[], input = ''): ToolEnd {
  const { status, stdout, stderr } = spawnSync('promtool', args, {
    env: ENVIRONMENT,
    input,
    encoding: 'utf8',
  });
  return { status, said: `${stdout}${stderr}` };
}

/** One series of a response: its labels, and the newest value as text. */
export interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [number, string];
}

export interface Prometheus {
  /** The series that the expression gives now; throws where it is refused. */
  query(expression: string): Promise<readonly Series[]>;
  /** Its alerts, and its targets, as its API shows them. */
  api(path: string): Promise<unknown>;
}

/**
 * Starts one that scrapes the admin port every two seconds under the job `tollgate`, with these rules; killed
 * with the test. A scrape may take as long: with one second, one was missed beside three other tests.
 */
export async function startPrometheus(t: Scope, adminPort: number, rulesFile: string): Promise<Prometheus> {
  const folder = temporaryFolder(t);
  const config = join(folder, 'prometheus.yml');
  writeFileSync(
    config,
    JSON.stringify({
      global: { scrape_interval: '2s', evaluation_interval: '1s' },
      rule_files: [rulesFile],
      scrape_configs: [{ job_name: 'tollgate', static_configs: [{ targets: [`127.0.0.1:${adminPort}`] }] }],
    }),
  );
  const child = spawn(
    'prometheus',
    [
      `--config.file=${config}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      '--web.listen-address=127.0.0.1:0',
    ],
    { env: ENVIRONMENT, stdio: ['ignore', 'ignore', 'pipe'] },
  );
  t.teardown(() => child.kill('SIGKILL'));
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  const port = await eventually('Prometheus', () => {
    const match = /Listening on.*address=127\.0\.0\.1:(\d+)/.exec(said);
    return match === null ? undefined : Number(match[1]);
  });
  const api = async (path: string): Promise<unknown> => {
    const answer = await request({ port, path: `/api/v1/${path}` });
    const { status, data, error } = answer.json() as { status: string; data: unknown; error?: string };
    if (status !== 'success') throw new Error(`${path}: ${error ?? answer.body}`);
    return data;
  };
  await eventually('the first scrapes', async () => {
    const { result } = (await api('query?query=count_over_time(up[10s])')) as { result: Series[] };
    return Number(result[0]?.value[1]) >= 3 ? true : undefined;
  });
  return {
    api,
    query: async (expression) =>
      ((await api(`query?query=${encodeURIComponent(expression)}`)) as { result: Series[] }).result,
  };
}
