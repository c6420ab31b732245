/**
 * schemathesis, a Python package, reads the gateway's two OpenAPI documents and sends what they allow and
 * what they forbid: nothing is answered with a 5xx, nor with a status or a type that the document does not
 * have, and the JSON of the admin interface keeps its schemas. TOLLGATE_HOSTILE_FULL=1 runs longer.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import t, { type Test } from 'tap';
import { startBed } from '../support/bed.js';
import { temporaryFolder } from '../support/gateway.js';
import { newSeed } from '../support/random.js';

const PROGRAM = resolve('build/tools/judges-python/bin/schemathesis');
const CONFIG = resolve('test/judges/schemathesis.toml');
const SKIP = existsSync(PROGRAM) ? false : 'no Python of the judges: test/setup-tools.sh judges';
const SECONDS = process.env.TOLLGATE_HOSTILE_FULL === undefined ? 20 : 300;
/** The program ends what it is at; imports take seconds on a busy machine. */
const LATE_MS = 60_000;
const CHECKS = 'not_a_server_error,status_code_conformance,content_type_conformance';
const OUTPUT_CHARS = 6_000;
const CASES_MIN = 50;
/** A stream of events. */
const ENDLESS = '/admin/v1/live';

/** Judges a document; fails with what was found. `checks`: beside CHECKS. */
async function judged(
  t: Test,
  url: string,
  token: string,
  more: { checks?: string; excluded?: string } = {},
): Promise<void> {
  let result = await run(t, url, token, { ...more, seconds: SECONDS });
  // On a busy machine it has hardly begun by then.
  if (result.count <= CASES_MIN) result = await run(t, url, token, { ...more, seconds: 5 * SECONDS });
  const { code, count, output } = result;
  t.ok(count > CASES_MIN, `${count} requests`);
  if (code !== 0) t.comment(output.slice(-OUTPUT_CHARS));
  t.equal(code, 0, 'it has found nothing');
}

async function run(
  t: Test,
  url: string,
  token: string,
  { seconds, checks = '', excluded }: { seconds: number; checks?: string; excluded?: string },
): Promise<{ code: number | null; count: number; output: string }> {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const options = {
    header: `Authorization: Bearer ${token}`,
    checks: CHECKS + checks,
    'max-time': String(seconds),
    seed: String(seed),
    phases: 'examples,coverage,fuzzing',
    'generation-database': 'none',
    'suppress-health-check': 'all',
    'request-timeout': '20',
    ...(excluded !== undefined && { 'exclude-path': excluded }),
  };
  const given = Object.entries(options).map(([name, value]) => `--${name}=${value}`);
  const args = ['--config-file', CONFIG, '--no-color', 'run', url, '--continue-on-failure', ...given];
  const child = spawn(PROGRAM, args, {
    // It writes what it found there.
    cwd: temporaryFolder(t),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: seconds * 1_000 + LATE_MS,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (part: Buffer) => (output += part.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  const [, count = '0'] = /(\d+) generated/.exec(output) ?? [];
  return { code, count: Number(count), output };
}

void t.test('the public document', { skip: SKIP, timeout: 600_000 }, async (t) => {
  const { gateway } = await startBed(t);
  const { key } = await gateway.admin.customer({ credit: '1000000.00' });
  await judged(t, `${gateway.url}/openapi.json`, key);
  t.equal(await gateway.stop(), 0);
  t.notMatch(gateway.log().join('\n'), /inside of the gateway|invariant/);
});

void t.test('the document of the admin interface', { skip: SKIP, timeout: 600_000 }, async (t) => {
  const { gateway } = await startBed(t);
  await gateway.admin.customer();
  await judged(t, `http://127.0.0.1:${gateway.admin.port}/admin/v1/openapi.json`, gateway.admin.token, {
    checks: ',response_schema_conformance',
    excluded: ENDLESS,
  });
  t.equal(await gateway.stop(), 0);
  t.notMatch(gateway.log().join('\n'), /inside of the gateway|invariant/);
});
