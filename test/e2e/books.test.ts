/**
 * The books: usage on disk is what the responses said, a restart keeps minute, day and money, and with
 * `durability: commit` a response that has ended has its charge on disk whatever happens next.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { decimalOf, picoUnitsOf } from '#src/core/money.js';
import { Store } from '#src/store/store.js';
import { startBed } from '../support/bed.js';
import {
  HIDDEN_MODEL,
  TEST_MODEL,
  eventually,
  startGateway,
  temporaryFolder,
  testSettings,
  type Gateway,
} from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';

/** Pico-units a token: TEST_PRICE per million tokens. */
const INPUT = 1_500_000n;
const CACHED = 750_000n;
const OUTPUT = 2_250_000n;

const FAULTS = join(process.cwd(), 'test/fixtures/fault-preload.mjs');

interface UsageView {
  readonly calls: number;
  readonly failed_calls: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly cost: string;
  readonly [group: string]: unknown;
}

async function usageOf(gateway: Gateway, query: string): Promise<UsageView[]> {
  const answer = await gateway.admin.send('GET', `/admin/v1/usage?${query}`);
  if (answer.status !== 200) throw new Error(answer.body);
  return (answer.json() as { data: UsageView[] }).data;
}

const costOf = ([prompt, cached, completion]: readonly number[]): bigint =>
  BigInt(prompt! - cached!) * INPUT + BigInt(cached!) * CACHED + BigInt(completion!) * OUTPUT;

const prompt = ([prompt, cached, completion]: readonly number[]): string =>
  steered(`prompt_tokens=${prompt}&cached_tokens=${cached}&completion_tokens=${completion}`);

void t.test('usage is the sum of the answers, and agrees with the account', async (t) => {
  const { gateway } = await startBed(t, { flush_interval_ms: 50, listen: { listeners: 2 } });
  const customer = await gateway.admin.customer();
  const other = await gateway.admin.customer();
  const usages = Array.from({ length: 30 }, (_, n) => [10 + n, n, 100 - n]);
  const answers = await Promise.all(
    usages.map((usage, n) =>
      gateway.chat(customer.key, prompt(usage), {
        stream: n % 2 === 0,
        model: n < 10 ? TEST_MODEL : HIDDEN_MODEL,
      }),
    ),
  );
  for (const { status } of answers) t.equal(status, 200);
  for (let n = 0; n < 3; n++) t.equal((await gateway.chat(customer.key, steered('status=500'))).status, 502);
  t.equal((await gateway.chat(other.key, prompt([1, 0, 1]))).status, 200);

  const rows = await eventually('all calls in the books', async () => {
    const found = await usageOf(gateway, `account=${customer.accountId}&by=model`);
    return found.reduce((sum, { calls }) => sum + calls, 0) === 33 ? found : undefined;
  });
  const sum = (from: number, to: number, at: number): number =>
    usages.slice(from, to).reduce((total, usage) => total + usage[at]!, 0);
  const line = (from: number, to: number) => ({
    prompt_tokens: sum(from, to, 0),
    cached_tokens: sum(from, to, 1),
    completion_tokens: sum(from, to, 2),
    cost: decimalOf(usages.slice(from, to).reduce((total, usage) => total + costOf(usage), 0n)),
    uncovered: '0.00',
    estimated_calls: 0,
    fallback_calls: 0,
    cache_write_tokens: 0,
    cache_write_1h_tokens: 0,
    reasoning_tokens: 0,
  });
  t.same(rows, [
    { model: HIDDEN_MODEL, calls: 20, failed_calls: 0, ...line(10, 30) },
    { model: TEST_MODEL, calls: 13, failed_calls: 3, ...line(0, 10) },
  ]);
  t.equal((await gateway.admin.account(customer.accountId)).spent, line(0, 30).cost);
  t.match(await usageOf(gateway, `account=${customer.accountId}&by=key`), [
    { key: customer.keyId, calls: 33, ...line(0, 30) },
  ]);
  const total = await eventually('the call of the other account in the books', async () => {
    const all = await usageOf(gateway, 'by=day');
    const calls = all.reduce((sum, { calls }) => sum + calls, 0);
    return calls >= 34 ? calls : undefined;
  });
  t.equal(total, 34, 'with the other account');
  t.same(await usageOf(gateway, 'by=hour&to=2020-01-01'), []);
  for (const query of ['by=week', 'from=yesterday', 'what=1'])
    t.equal((await gateway.admin.send('GET', `/admin/v1/usage?${query}`)).status, 400, query);
  t.equal((await gateway.admin.send('GET', '/admin/v1/usage?account=nobody')).status, 404);
  t.equal(await gateway.stop(), 0);
});

void t.test('a long prompt is charged at its own prices, all of it, and held at them', async (t) => {
  const long = [
    { above: 50, input: '3', output: '4.5' },
    { above: 100, input: '6', output: '9', cached_input: '3' },
  ];
  const { gateway } = await startBed(t, {
    flush_interval_ms: 50,
    model: { price: { input: '1.5', output: '2.25', cached_input: '0.75', long } },
  });
  const customer = await gateway.admin.customer();
  const micro = 1_000_000n;
  const usages: readonly (readonly [number[], bigint])[] = [
    [[50, 20, 10], 30n * INPUT + 20n * CACHED + 10n * OUTPUT],
    [[51, 20, 10], 51n * 3n * micro + (10n * 9n * micro) / 2n],
    [[101, 20, 10], 81n * 6n * micro + 20n * 3n * micro + 10n * 9n * micro],
  ];
  let spent = 0n;
  for (const [usage, cost] of usages)
    for (const stream of [false, true]) {
      t.equal((await gateway.chat(customer.key, prompt(usage), { stream })).status, 200);
      spent += cost;
      t.match(
        await gateway.admin.account(customer.accountId),
        { spent: decimalOf(spent), held: '0.00' },
        `${usage.join()}, ${stream ? 'streamed' : 'whole'}`,
      );
    }
  const [row] = await eventually('all calls in the books', async () => {
    const rows = await usageOf(gateway, `account=${customer.accountId}`);
    return rows[0]?.calls === 6 ? rows : undefined;
  });
  t.match(row, { cost: decimalOf(spent), uncovered: '0.00' });

  // A thousand tokens of output at 9 are held for any prompt: 4,096 tokens beside its body are believed.
  const poor = await gateway.admin.customer({ credit: '0.008' });
  t.equal((await gateway.chat(poor.key, prompt([10, 0, 1]))).status, 403);
  t.equal(await gateway.stop(), 0);
});

/** A gateway over the same data folder again, with the same settings. */
async function restart(
  t: Test,
  gateway: Gateway,
  how: 'SIGTERM' | 'SIGKILL',
  config: object,
): Promise<Gateway> {
  if (how === 'SIGTERM') t.equal(await gateway.stop(), 0);
  else await killAll(gateway);
  return startGateway(t, { folder: gateway.folder, config });
}

/** The supervisor first, so that it starts no other; the gateway at once after it. */
async function killAll(gateway: Gateway): Promise<void> {
  const pid = gateway.pid();
  gateway.child.signal('SIGKILL');
  process.kill(pid, 'SIGKILL');
  await eventually('the gateway is gone', () => {
    try {
      process.kill(pid, 0);
      return undefined;
    } catch {
      return true;
    }
  });
}

void t.test('a restart keeps minute, day and money', async (t) => {
  const mock = await startMock(t);
  const config = testSettings(mock.url, {
    flush_interval_ms: 20,
    plans: [{ id: 'tight', requests_per_minute: 5, calls_per_day: 4 }],
  });
  let gateway = await startGateway(t, { config });
  const customer = await gateway.admin.customer({ plan: 'tight' });
  let spent = 0n;
  const statuses: number[] = [];
  for (const how of ['SIGTERM', 'SIGKILL'] as const) {
    for (let call = 0; call < 2; call++) {
      statuses.push((await gateway.chat(customer.key, prompt([10, 2, 5]))).status);
      spent += costOf([10, 2, 5]);
    }
    const [row] = await eventually('the charges on disk', async () => {
      const rows = await usageOf(gateway, `account=${customer.accountId}`);
      return rows[0]?.cost === decimalOf(spent) ? rows : undefined;
    });
    t.equal(row!.calls, statuses.length);
    gateway = await restart(t, gateway, how, config);
    t.match(await gateway.admin.account(customer.accountId), {
      spent: decimalOf(spent),
      held: '0.00',
      calls_today: statuses.length,
      requests_this_minute: statuses.length,
    });
  }
  t.same(statuses, [200, 200, 200, 200]);
  t.match((await gateway.chat(customer.key, 'x')).json(), { error: { code: 'daily_limit_exceeded' } });
  t.match((await gateway.chat(customer.key, 'x')).json(), { error: { code: 'rate_limit_exceeded' } });
  t.equal(await gateway.stop(), 0);
});

void t.test('a listener that dies by an exception takes none of its records with it', async (t) => {
  const faults = temporaryFolder(t);
  const { gateway } = await startBed(
    t,
    // No flush before the end.
    { flush_interval_ms: 60_000, listen: { listeners: 1 } },
    { env: { NODE_OPTIONS: `--import=${FAULTS}`, TOLLGATE_TEST_FAULTS: faults } },
  );
  const customer = await gateway.admin.customer();
  const CALLS = 25;
  const callAll = async (): Promise<void> => {
    for (let call = 0; call < CALLS; call++)
      t.equal((await gateway.chat(customer.key, prompt([10, 2, 5]))).status, 200);
  };
  await callAll();
  writeFileSync(join(faults, 'listener-0.throw'), '');
  await eventually('the listener is replaced', () =>
    gateway.log().some((line) => line.includes('listener is being replaced')) ? true : undefined,
  );
  await eventually('another answers', async () => {
    const models = await gateway.request(customer.key, { method: 'GET', path: '/v1/models' });
    return models.status === 200 ? true : undefined;
  });
  await callAll();
  t.equal(await gateway.stop(), 0);
  const config = testSettings('http://127.0.0.1:9/v1');
  const next = await startGateway(t, { folder: gateway.folder, config });
  const spent = decimalOf(BigInt(2 * CALLS) * costOf([10, 2, 5]));
  t.match(await usageOf(next, `account=${customer.accountId}`), [{ calls: 2 * CALLS, cost: spent }]);
  t.equal((await next.admin.account(customer.accountId)).spent, spent);
  t.equal(await next.stop(), 0);
});

/** Blocks this thread, which Atomics.wait may do. */
const blockFor = (ms: number): unknown => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

void t.test('durability commit: what a listener that fails still holds is charged to nobody', async (t) => {
  const faults = temporaryFolder(t);
  const { gateway, mock } = await startBed(
    t,
    { durability: 'commit', flush_interval_ms: 60_000, listen: { listeners: 1 } },
    { env: { NODE_OPTIONS: `--import=${FAULTS}`, TOLLGATE_TEST_FAULTS: faults } },
  );
  const customer = await gateway.admin.customer();
  t.equal((await gateway.chat(customer.key, prompt([10, 2, 5]))).status, 200);
  const slow = steered('first_byte_ms=2000&prompt_tokens=10&completion_tokens=5');
  const headers = { 'idempotency-key': 'the same' };
  const bodyOf = (stream: boolean) => ({
    model: TEST_MODEL,
    stream,
    messages: [{ role: 'user', content: slow }],
  });
  // Opened before the calls: its lock is to be held before the first response.
  const store = new Store(gateway.dataFolder);
  const ends = [
    gateway.request(customer.key, { body: bodyOf(false) }),
    gateway.request(customer.key, { body: bodyOf(true) }),
    gateway.request(customer.key, { body: bodyOf(false), headers }),
  ];
  await eventually('the calls reach the mock', async () =>
    (await mock.stats()).open === ends.length ? true : undefined,
  );
  const order = join(faults, 'listener-0.throw');
  // Meanwhile the gateway can write nothing. The responses come, and the listener fails while they wait.
  store.commit(() => {
    blockFor(4_000);
    writeFileSync(order, '');
    for (let tries = 0; existsSync(order) && tries < 1_000; tries++) blockFor(20);
    blockFor(200);
  });
  await store.close();
  const [whole, stream, keyed] = await Promise.all(ends);
  t.match([whole!.status, keyed!.status], [500, 500]);
  t.match(stream!.body, /"code":"internal_error"/);
  t.notMatch(stream!.body, /\[DONE\]/);

  const again = await eventually('a successor answers', async () => {
    const answer = await gateway.request(customer.key, { body: bodyOf(false), headers });
    return answer.status === 200 ? answer : undefined;
  });
  t.equal(again.headers['idempotent-replayed'], undefined, 'the key is free again');
  const spent = decimalOf(costOf([10, 2, 5]) + costOf([10, 0, 5]));
  const calls = await eventually('the records of all calls', async () => {
    const answer = await gateway.admin.send('GET', `/admin/v1/calls?account=${customer.accountId}`);
    const { data } = answer.json() as { data: { code: string | null; cost: string | null }[] };
    return data.length === 5 ? data : undefined;
  });
  t.same(
    calls.map(({ code }) => code),
    [null, 'internal_error', 'internal_error', 'internal_error', null],
  );
  t.equal(decimalOf(calls.reduce((sum, { cost }) => sum + picoUnitsOf(cost ?? '0')!, 0n)), spent);
  t.match(await gateway.admin.account(customer.accountId), { spent, held: '0.00', calls_today: 2 });
  t.match(await usageOf(gateway, `account=${customer.accountId}`), [
    { calls: 5, failed_calls: 3, cost: spent },
  ]);
  t.equal(await gateway.stop(), 0);
});

void t.test(
  'durability commit: kill -9 right after an answer has ended, and its charge is there',
  async (t) => {
    const ROUNDS = process.env.TOLLGATE_CRASH_FULL === '1' ? 40 : 8;
    const mock = await startMock(t);
    // No flush by the clock would come in time.
    const config = testSettings(mock.url, { durability: 'commit', flush_interval_ms: 60_000 });
    let gateway = await startGateway(t, { config });
    const customer = await gateway.admin.customer();
    let spent = 0n;
    for (let round = 0; round < ROUNDS; round++) {
      const usage = [10 + round, round, 7];
      const answers = await Promise.all(
        [false, true].map((stream) => gateway.chat(customer.key, prompt(usage), { stream })),
      );
      spent += 2n * costOf(usage);
      gateway = await restart(t, gateway, 'SIGKILL', config);
      for (const { status } of answers) t.equal(status, 200);
      t.match(answers[1]!.body, /data: \[DONE\]\n\n$/);
      t.equal((await gateway.admin.account(customer.accountId)).spent, decimalOf(spent), `round ${round}`);
    }
    const [row] = await usageOf(gateway, `account=${customer.accountId}`);
    t.equal(picoUnitsOf(row!.cost), spent);
    t.equal(await gateway.stop(), 0);
  },
);

void t.test('durability commit: a hundred answers at once, each on disk when it has ended', async (t) => {
  const { gateway } = await startBed(t, { durability: 'commit', flush_interval_ms: 60_000 });
  const customer = await gateway.admin.customer();
  const usage = [20, 0, 20];
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, n) =>
        gateway.chat(customer.key, prompt(usage), { stream: n % 2 === 0 }),
      ),
    );
    t.equal(answers.filter(({ status }) => status === 200).length, 100);
    const [row] = await usageOf(gateway, `account=${customer.accountId}`);
    t.equal(
      picoUnitsOf(row!.cost),
      BigInt(100 * (round + 1)) * costOf(usage),
      'on disk when the answers have ended',
    );
  }
  t.equal(await gateway.stop(), 0);
});
