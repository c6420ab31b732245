/**
 * The commands and statements of docs/exports.md, as they stand there: with Debian's Postgres, ClickHouse's
 * engine, the AWS command line at an S3, and pyarrow as the judge of Parquet files. Each must have every call
 * and every row of usage, with money to the pico-unit. A tool that is not there is skipped by name.
 */
import { execFile, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import t, { type Test } from 'tap';
import type { CallView } from '#src/admin/call-routes.js';
import type { UsageRowView } from '#src/admin/views.js';
import { CallWriter } from '#src/call-log/call-writer.js';
import { CALLS_FOLDER } from '#src/call-log/segment-files.js';
import { SystemClock } from '#src/core/clock.js';
import { picoUnitsOfExact } from '#src/core/money.js';
import { eventually, startGateway, TEST_MODEL, temporaryFolder, testSettings } from '../support/gateway.js';
import { randomCall } from '../support/stored-calls.js';
import { randomOf } from '../support/random.js';

const execute = promisify(execFile);
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
const STORED_CALLS = 2_500;

const tools = resolve('build/tools/exports-python');
const NO_PYTHON = existsSync(join(tools, 'installed.txt'))
  ? {}
  : { skip: 'no ClickHouse engine, pyarrow and S3: test/setup-tools.sh exports' };
const POSTGRES_FOLDER = '/usr/lib/postgresql';
const postgresRelease = existsSync(POSTGRES_FOLDER) ? readdirSync(POSTGRES_FOLDER).sort().at(-1) : undefined;
const NO_POSTGRES = postgresRelease === undefined ? { skip: 'no Postgres: test/setup-tools.sh exports' } : {};

/** The blocks of a section of the page, of one language. */
function blocksOf(section: string, language: string): string[] {
  const page = readFileSync('docs/exports.md', 'utf8');
  const [, text = ''] = page.split(`\n## ${section}\n`);
  const [own = ''] = text.split('\n## ');
  return [...own.matchAll(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 'gs'))].map(([, block]) => block!);
}

/** What must come out: by id, the cost in pico-units and the error. An empty text is no error in CSV. */
type Wanted = readonly (readonly [id: string, cost: string | null, error: string | null])[];
type Rows = readonly (readonly (string | null)[])[];
const comparable = (rows: Rows): Wanted =>
  rows
    .map(([id, cost, error]) => {
      const amount = cost === null || cost === undefined ? null : String(picoUnitsOfExact(cost));
      return [id!, amount, error === '' ? null : (error ?? null)] as const;
    })
    .sort(([left], [right]) => (left < right ? -1 : 1));

void t.test('the recipes of docs/exports.md', async (t) => {
  const gateway = await startGateway(t, { config: testSettings('echo:') });
  const { key } = await gateway.admin.customer();
  for (let call = 0; call < 3; call++) t.equal((await gateway.chat(key, 'Good day')).status, 200);
  t.equal((await gateway.chat('sk-wrong', 'Good day')).status, 401);
  const random = randomOf(11);
  const day = new Date().toISOString().slice(0, '2025-01-31'.length);
  const writer = new CallWriter({
    folder: join(gateway.folder, 'data', CALLS_FOLDER),
    retention: { keepHours: 72, keepBytes: 1e9, processes: 1 },
    clock: new SystemClock(),
    log: { error: () => undefined, warn: () => undefined, info: () => undefined, record: () => undefined },
  });
  for (let number = 0; number < STORED_CALLS; number++)
    writer.append(
      randomCall(random, number, Date.parse(`${day}T00:00:00Z`) + number, {
        accounts: 3,
        models: 2,
        upstreams: 2,
      }),
    );
  writer.close();
  t.equal(await gateway.stop(), 0, 'all calls are in the books, and none comes between two exports');

  const programs = join(gateway.folder, 'programs');
  mkdirSync(programs);
  const program = (name: string, text: string): void => {
    writeFileSync(join(programs, name), `#!/bin/sh\n${text}\n`);
    chmodSync(join(programs, name), 0o755);
  };
  program('tollgate', `exec ${process.execPath} ${resolve('dist/cli/main.js')} "$@"`);
  program(
    'clickhouse-client',
    `exec ${tools}/bin/python ${resolve('test/exports/clickhouse_client.py')} "$@"`,
  );
  const env: Record<string, string | undefined> = {
    ...process.env,
    PATH: `${programs}:${tools}/bin:${process.env.PATH}`,
    day,
    CLICKHOUSE_FOLDER: join(gateway.folder, 'clickhouse'),
    AWS_ACCESS_KEY_ID: 'someone',
    AWS_SECRET_ACCESS_KEY: 'something',
    AWS_DEFAULT_REGION: 'us-east-1',
  };
  const run = async (file: string, args: readonly string[]): Promise<Buffer> => {
    const options = { cwd: gateway.folder, env, maxBuffer: OUTPUT_BYTES_MAX, encoding: 'buffer' as const };
    return (await execute(file, args, options)).stdout;
  };
  const shell = (text: string) => run('bash', ['-euo', 'pipefail', '-c', text]);
  const json = async (file: string, args: readonly string[]): Promise<Rows> =>
    JSON.parse((await run(file, args)).toString()) as Rows;

  const linesOf = (text: Buffer): unknown[] =>
    text
      .toString()
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as unknown);
  const exported = await shell('tollgate export calls --day $day');
  const calls = linesOf(exported) as CallView[];
  t.equal(calls.length, STORED_CALLS + 4);
  const wantedCalls = comparable(calls.map(({ request_id: id, cost, error }) => [id, cost, error]));
  const inAll = wantedCalls.reduce((sum, [, cost]) => sum + BigInt(cost ?? 0), 0n);
  t.ok(inAll > BigInt(Number.MAX_SAFE_INTEGER), 'no float has the sum');
  const [usage] = linesOf(await shell('tollgate export usage --day $day')) as [UsageRowView];
  t.match(usage, { model: TEST_MODEL, calls: 3 });
  const wantedUsage = [
    [usage.hour, usage.key, picoUnitsOfExact(usage.cost), usage.calls, usage.prompt_tokens],
  ];

  await t.test('Parquet', NO_PYTHON, async (t) => {
    for (const block of blocksOf('Parquet', 'sh')) await shell(block);
    const read = (name: string, columns: string) =>
      json(join(tools, 'bin/python'), [
        '-c',
        `import json, pyarrow.parquet as p
t = p.read_table('${name}-${day}.parquet')
print(json.dumps([[None if v is None else str(v) for v in row.values()] for row in t.select(${columns}).to_pylist()]))`,
      ]);
    t.same(comparable(await read('calls', '["request_id","cost","error"]')), wantedCalls);
    const attempts = await read('calls', '["request_id","attempts","stream","time"]');
    const first = calls[0]!;
    const [, list, stream, time] = attempts.find(([id]) => id === first.request_id)!;
    t.same(JSON.parse(list!), first.attempts);
    t.equal(stream, first.stream ? 'True' : 'False');
    t.equal(Date.parse(time!), Date.parse(first.time));
    const rows = await read('usage', '["hour","key","cost","calls","prompt_tokens"]');
    t.same(rows.map(readUsage), wantedUsage);
    await shell('tollgate export calls --day 1999-01-01 --format parquet > calls-none.parquet');
    const none = await json(join(tools, 'bin/python'), [
      '-c',
      "import pyarrow.parquet as p; t = p.read_table('calls-none.parquet'); print([t.num_rows, len(t.schema)])",
    ]);
    t.same(none, [0, Object.keys(first).length], 'a day without calls has the columns too');
    const chdb =
      "SELECT sum(cost), count() FROM file('calls-*.parquet', Parquet) FORMAT JSONCompactStringsEachRow";
    const [sum, count] = JSON.parse(
      (
        await run('clickhouse-client', [
          '--query',
          chdb.replace('calls-*', join(gateway.folder, `calls-${day}`)),
        ])
      ).toString(),
    ) as [string, string];
    t.same(
      [picoUnitsOfExact(sum), Number(count)],
      [inAll, calls.length],
      'ClickHouse adds up without rounding',
    );
  });

  await t.test('ClickHouse', NO_PYTHON, async (t) => {
    for (const block of blocksOf('ClickHouse', 'sql')) await run('clickhouse-client', ['--query', block]);
    // Twice: an export can be repeated.
    for (let turn = 0; turn < 2; turn++) for (const block of blocksOf('ClickHouse', 'sh')) await shell(block);
    const read = async (query: string): Promise<Rows> =>
      linesOf(
        await run('clickhouse-client', ['--query', `${query} FORMAT JSONCompactStringsEachRow`]),
      ) as unknown as Rows;
    const rows = await read(
      "SELECT request_id, ifNull(toString(cost), '-'), ifNull(error, '') FROM calls FINAL",
    );
    t.same(
      comparable(rows.map(([id, cost, error]) => [id!, cost === '-' ? null : cost!, error!])),
      wantedCalls,
    );
    const usageRows = await read(
      "SELECT formatDateTime(hour, '%Y-%m-%dT%H:%i:%SZ'), key, cost, calls, prompt_tokens FROM usage FINAL",
    );
    t.same(usageRows.map(readUsage), wantedUsage);
    t.same(await read('SELECT host FROM usage FINAL'), [[hostname()]], 'of several hosts each has its rows');
  });

  await t.test('Postgres', NO_POSTGRES, async (t) => {
    await startPostgres(t, env);
    for (const block of blocksOf('Postgres', 'sql')) await run('psql', ['-qc', block]);
    for (const block of blocksOf('Postgres', 'sh')) await shell(block.replace('-d yesterday', `-d ${day}`));
    const query = (text: string) => json('psql', ['-Atc', text]);
    const rows = await query('select json_agg(json_build_array(request_id, cost::text, error)) from calls');
    t.same(comparable(rows), wantedCalls);
    const objects = await query(
      "select json_agg(json_build_array(call->>'request_id', call->>'cost', call->>'error')) from calls_json",
    );
    t.same(comparable(objects), wantedCalls);
    const usageRows = await query(
      `select json_agg(json_build_array(to_char(hour at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), key, cost::text, calls, prompt_tokens)) from usage`,
    );
    t.same(usageRows.map(readUsage), wantedUsage);
    t.same(
      await query('select json_agg(host) from usage'),
      [hostname()],
      'of several hosts each has its rows',
    );
  });

  await t.test('S3', NO_PYTHON, async (t) => {
    env.AWS_ENDPOINT_URL = await startS3(t);
    await shell('aws s3 mb s3://bucket');
    for (const block of blocksOf('S3', 'sh')) await shell(block);
    const calls = await shell('aws s3 cp s3://bucket/tollgate/calls/$(hostname)/$day.jsonl.gz -');
    t.same(gunzipSync(calls), exported);
    const file = await shell('aws s3 cp s3://bucket/tollgate/usage/$(hostname)/$day.parquet -');
    t.same(file, await shell('tollgate export usage --day $day --format parquet'));
  });
});

function readUsage([hour, key, cost, calls, tokens]: readonly (string | null)[]): unknown[] {
  const time = new Date(hour!).toISOString().replace('.000', '');
  return [time, key, picoUnitsOfExact(cost!), Number(calls), Number(tokens)];
}

/** A cluster of its own on a socket in a folder of its own; `env` names it to clients. */
async function startPostgres(t: Test, env: Record<string, string | undefined>): Promise<void> {
  const folder = temporaryFolder(t);
  const bin = join(POSTGRES_FOLDER, postgresRelease!, 'bin');
  // It refuses to run as root.
  const asItself = process.getuid?.() === 0 ? ['runuser', '-u', 'postgres', '--'] : [];
  const [file, ...args] = [...asItself, join(bin, 'initdb'), '-D', join(folder, 'data'), '-U', 'test', '-A'];
  chmodSync(folder, 0o777);
  await execute(file, [...args, 'trust', '-N', '-E', 'UTF8', '--locale', 'C.UTF-8'], { cwd: folder });
  const options = ['-D', join(folder, 'data'), '-k', folder, '-c', 'listen_addresses=', '-c', 'fsync=off'];
  const [server, ...words] = [...asItself, join(bin, 'postgres'), ...options];
  const child = spawn(server!, words, { cwd: folder, stdio: 'ignore', detached: true });
  t.teardown(async () => {
    process.kill(-child.pid!, 'SIGINT');
    await eventually('the end of Postgres', () => child.exitCode ?? child.signalCode ?? undefined);
  });
  Object.assign(env, { PGHOST: folder, PGUSER: 'test', PGDATABASE: 'postgres' });
  await eventually('an answer of Postgres', () => execute('psql', ['-c', 'select 1'], { env }));
}

/** Returns the address of an S3 in memory. */
async function startS3(t: Test): Promise<string> {
  const child = spawn(join(tools, 'bin/moto_server'), ['-H', '127.0.0.1', '-p', '0'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  t.teardown(() => void child.kill());
  let said = '';
  child.stderr.on('data', (text: Buffer) => (said += text.toString()));
  return eventually('the address of the S3', () => /http:\/\/127\.0\.0\.1:\d+/.exec(said)?.[0]);
}
