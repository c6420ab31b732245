/**
 * The access log of a running gateway: a line for each call, served or refused, that agrees with the bill;
 * switched on and off while it serves; and nothing secret in it, nor in any other line, whatever is sent.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { runCommand } from '../support/command.js';
import { startBed, type Bed } from '../support/bed.js';
import { TEST_MODEL, eventually, testSettings } from '../support/gateway.js';
import { steered } from '../support/mock.js';

interface Line {
  readonly [field: string]: unknown;
  readonly request_id: string;
  readonly cost: string | null;
}

/** In prompts, answers, keys, headers, paths and bad bodies; must be nowhere. */
const SECRET = 'Xq7MarkerOfASecret';

function accessLines({ gateway }: Bed): Line[] {
  return gateway
    .log()
    .map((line) => JSON.parse(line) as Line)
    .filter(({ message }) => message === 'call');
}

const linesOf = (bed: Bed, count: number): Promise<Line[]> =>
  eventually(`${count} lines`, () => {
    const lines = accessLines(bed);
    return lines.length >= count ? lines : undefined;
  });

/** Sends `text` as it is, and resolves when the connection has ended. */
function sendRaw(port: number, text: string): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.end(text));
    socket.once('close', () => resolve()).once('error', () => undefined);
    socket.resume();
  });
}

void t.test('every call is a line: who, where, what it cost, how long it took', async (t) => {
  const bed = await startBed(t, {
    access_log: { enabled: true },
    plans: [{ id: 'slow', requests_per_minute: 1, calls_per_day: 10 }],
  });
  const { gateway } = bed;
  const customer = await gateway.admin.customer({ credit: '10.00' });
  const limited = await gateway.admin.customer({ plan: 'slow', credit: '1.00' });
  const answers = [
    await gateway.chat(customer.key, steered('prompt_tokens=7&cached_tokens=3&completion_tokens=9')),
    await gateway.chat(customer.key, steered('prompt_tokens=1&completion_tokens=2'), { stream: true }),
    await gateway.chat(customer.key, steered('status=500')),
    await gateway.chat(customer.key, 'hello', { model: 'unknown' }),
    await gateway.chat('sk-nobody', 'hello'),
    await gateway.chat(limited.key, steered('prompt_tokens=1&completion_tokens=1')),
    await gateway.chat(limited.key, 'hello'),
  ];
  const lines = await linesOf(bed, answers.length);
  t.same(
    lines.map(({ request_id: id }) => id),
    answers.map(({ headers }) => headers['x-request-id']),
  );
  t.same(
    lines.map(({ status }) => status),
    answers.map(({ status }) => status),
  );
  t.same(
    lines.map(({ code }) => code),
    [null, null, 'provider_unavailable', 'model_not_found', 'invalid_api_key', null, 'rate_limit_exceeded'],
  );
  const upstream = `127.0.0.1:${bed.mock.port}`;
  const [whole, streamed, failed, unknown, nobody, , refused] = lines;
  const common = { level: 'info', account: customer.accountId, key: /^key_/, thread: 'listener-0' };
  t.match(whole, {
    ...common,
    model: TEST_MODEL,
    upstream,
    stream: false,
    prompt_tokens: 7,
    cached_tokens: 3,
    completion_tokens: 9,
    source: 'reported',
    first_token_ms: null,
  });
  t.match(streamed, { ...common, stream: true, completion_tokens: 2, first_token_ms: Number });
  t.match(failed, { ...common, upstream, source: null, cost: null });
  t.match(unknown, { ...common, model: null, upstream: null });
  t.match(nobody, { account: null, key: null, model: null });
  t.match(refused, { account: limited.accountId, model: null });
  for (const { duration_ms: ms } of lines) t.ok(Number(ms) >= 0 && Number(ms) < 60_000);
  const bill = decimalOf(lines.reduce((sum, { cost }) => sum + (picoUnitsOf(cost ?? '0.00') ?? 0n), 0n));
  const spent = await Promise.all(
    [customer, limited].map(async ({ accountId }) =>
      picoUnitsOf((await gateway.admin.account(accountId)).spent),
    ),
  );
  t.equal(bill, decimalOf(spent.reduce<bigint>((sum, each) => sum + (each ?? 0n), 0n)));
});

void t.test('switched on, sampled, moved to a file and off again while it serves', async (t) => {
  const bed = await startBed(t);
  const { gateway, mock } = bed;
  const customer = await gateway.admin.customer({ credit: '10.00' });
  const path = join(gateway.folder, 'access.ndjson');
  const set = async (settings: object): Promise<void> => {
    writeFileSync(
      join(gateway.folder, 'tollgate.yaml'),
      JSON.stringify(testSettings(mock.url, settings as Parameters<typeof testSettings>[1])),
    );
    t.match((await gateway.admin.send('POST', '/admin/v1/reload', {})).json(), { restart_needed: [] });
  };
  const calls = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at++) await gateway.chat(customer.key, 'hello');
  };
  await calls(3);
  await set({ access_log: { enabled: true, sample_percent: 50 } });
  await calls(6);
  await gateway.chat('sk-nobody', 'hello');
  const sampled = await linesOf(bed, 4);
  t.same(
    sampled.map(({ status }) => status),
    [200, 200, 200, 401],
  );
  await set({ access_log: { enabled: true, path: 'access.ndjson' } });
  await calls(2);
  const fileLines = await eventually('two lines in the file', () => {
    const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1);
    return lines.length >= 2 ? lines : undefined;
  });
  t.match(JSON.parse(fileLines[0]!), { message: 'call', status: 200, account: customer.accountId });
  await set({ log: { level: 'error' } });
  await calls(2);
  await set({});
  t.equal(await gateway.stop(), 0);
  t.equal(accessLines(bed).length, 4);
  t.equal(readFileSync(path, 'utf8').split('\n').length, 3);
  const reloads = gateway.log().filter((line) => line.includes('settings reloaded'));
  t.equal(reloads.length, 3, 'that with the level error is not told');
});

void t.test('by command, until a reload', async (t) => {
  const bed = await startBed(t);
  const { gateway } = bed;
  const customer = await gateway.admin.customer({ credit: '10.00' });
  const log = async (...args: string[]): Promise<unknown> => {
    const { code, stdout, stderr } = await runCommand(gateway.folder, ['log', '--json', ...args]);
    t.equal(code, 0, stderr);
    return JSON.parse(stdout);
  };
  const calls = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at++) await gateway.chat(customer.key, 'hello');
  };
  const asSet = { level: 'info', access_log: false, sample_percent: 100 };
  t.same(await log(), asSet);
  await calls(1);
  t.same(await log('--access-log', 'on', '--sample-percent', '50'), {
    ...asSet,
    access_log: true,
    sample_percent: 50,
  });
  await calls(4);
  await linesOf(bed, 2);
  t.same(await log('--level', 'error'), { level: 'error', access_log: true, sample_percent: 50 });
  await calls(2);
  t.match((await gateway.admin.send('POST', '/admin/v1/reload', {})).json(), { applied: [] });
  t.same(await log(), asSet, 'a reload goes by the settings, though they have not changed');
  await calls(1);
  t.equal(await gateway.stop(), 0);
  t.equal(accessLines(bed).length, 3);
  const told = gateway.log().filter((line) => line.includes('an operator changed what is logged'));
  t.equal(told.length, 2, 'the change to error too: what operators do is written at every level');

  const refused = await runCommand(gateway.folder, ['log', '--level', 'error']);
  t.match(refused, { code: 1, stderr: /No gateway serves from/ });
  for (const args of [
    ['--level', 'debug'],
    ['--access-log', 'yes'],
    ['--sample-percent', '101'],
  ])
    t.match(await runCommand(gateway.folder, ['log', ...args]), { code: 2, stderr: new RegExp(args[1]!) });
});

void t.test('no secret and no content is in any line', async (t) => {
  const bed = await startBed(
    t,
    { access_log: { enabled: true }, upstream: { key: '${UPSTREAM_SECRET}' } },
    { env: { UPSTREAM_SECRET: `${SECRET}-upstream` } },
  );
  const { gateway } = bed;
  const customer = await gateway.admin.customer({ credit: '10.00' });
  const faults = ['status=500', 'status=401', 'status=429', 'status=400', 'status=200', 'usage=missing'];
  for (const fault of faults) {
    const body = encodeURIComponent(`{"error":{"message":"${SECRET} in an answer"}}`);
    await gateway.chat(customer.key, steered(fault, SECRET));
    await gateway.chat(customer.key, steered(fault, SECRET), { stream: true });
    await gateway.chat(customer.key, steered(`${fault}&body=${body}`, SECRET));
    await gateway.chat(customer.key, steered(`${fault}&body=${SECRET}`, SECRET), { stream: true });
  }
  for (const body of [SECRET, `{"model":"${SECRET}"`, `{"model":"${TEST_MODEL}","messages":"${SECRET}"}`])
    await gateway.request(customer.key, { body });
  await gateway.chat(customer.key, SECRET, { model: SECRET });
  await gateway.chat(`sk-${SECRET}`, SECRET);
  await gateway.request(customer.key, { method: 'GET', path: `/v1/models/${SECRET}` });
  await gateway.request(customer.key, { body: {}, headers: { 'idempotency-key': SECRET, 'x-more': SECRET } });
  await sendRaw(gateway.port, `POST /${SECRET} HTTP/1.1\r\nHost: a\r\n${SECRET}\r\n\r\n`);
  await sendRaw(gateway.port, `${SECRET}\r\n\r\n`);
  const answers = 4 * faults.length + 3 + 3;
  await linesOf(bed, answers);
  t.equal(await gateway.stop(), 0);
  const written = gateway.child.stderr() + gateway.child.stdout();
  t.notOk(written.includes(SECRET), 'the marker is nowhere');
  t.notOk(written.includes(customer.key), 'nor is the key');
  t.notOk(written.includes(gateway.admin.token), "nor the operator's");
  t.ok(gateway.log().length >= answers);
});
