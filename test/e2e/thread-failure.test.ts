/**
 * Threads that fail by an exception nobody caught: they are replaced, their calls end unbilled, every other
 * call goes on.
 */
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startBed } from '../support/bed.js';
import { eventually, temporaryFolder, TEST_MODEL, type Gateway } from '../support/gateway.js';
import { steered } from '../support/mock.js';
import { SlowReader } from '../support/slow-reader.js';

const PRELOAD = join(process.cwd(), 'test/fixtures/fault-preload.mjs');

async function startFaultyBed(t: Test, settings: Readonly<Record<string, unknown>>) {
  const faults = temporaryFolder(t);
  const bed = await startBed(t, settings, {
    env: { NODE_OPTIONS: `--import=${PRELOAD}`, TOLLGATE_TEST_FAULTS: faults },
  });
  const { key, accountId } = await bed.gateway.admin.customer();
  return { ...bed, key, account: accountId, faults };
}

interface Status {
  readonly pid: number;
  readonly listeners: number;
  readonly workers: number;
  readonly calls_in_flight: number;
}

const statusOf = async (gateway: Gateway): Promise<Status> =>
  (await gateway.admin.send('GET', '/admin/v1/status')).json() as Status;

type FaultyBed = Awaited<ReturnType<typeof startFaultyBed>>;

/** Threads that face the network cannot make code from strings. */
async function checkNoCode(t: Test, { gateway, key, faults }: FaultyBed, workers: number): Promise<void> {
  // A body above the threshold starts a counter thread.
  t.equal((await gateway.chat(key, 'x'.repeat(100_000))).status, 200);
  const codes = Object.fromEntries(
    readdirSync(faults)
      .filter((file) => file.endsWith('.code'))
      .map((file) => [file, readFileSync(join(faults, file), 'utf8')]),
  );
  t.equal(Object.keys(codes).length, 3 + workers, 'two listeners, the workers, a counter thread');
  for (const [file, code] of Object.entries(codes)) t.equal(code, 'disallowed', file);
}

const bothListeners = (gateway: Gateway): Promise<true> =>
  eventually('both listeners are there', async () =>
    (await statusOf(gateway)).listeners === 2 ? true : undefined,
  );

/** A listener that fails is replaced, and what its calls held is released. */
async function failListener(t: Test, { gateway, key, faults, mock }: FaultyBed): Promise<void> {
  const { accountId: account, key: own } = await gateway.admin.customer();
  const pid = gateway.pid();
  // Enough calls that some are on each listener: the kernel spreads connections over both.
  const CALLS = 24;
  const outcomes = Array.from({ length: CALLS }, () =>
    // A busy machine needs seconds until all wait at the mock and the listener has failed.
    gateway.chat(own, steered('first_byte_ms=8000')).then(
      (answer) => answer.status,
      () => 'cut' as const,
    ),
  );
  await eventually('all calls reach the mock', async () =>
    (await mock.stats()).open === CALLS ? true : undefined,
  );
  writeFileSync(join(faults, 'listener-0.throw'), '');
  const ended = await Promise.all(outcomes);
  const cut = ended.filter((outcome) => outcome === 'cut').length;
  t.ok(cut > 0 && cut < CALLS, `${cut} of ${CALLS} calls were on the listener that failed`);
  t.equal(ended.filter((outcome) => outcome === 200).length, CALLS - cut, 'every other call went on');

  await bothListeners(gateway);
  const view = await gateway.admin.account(account);
  t.equal(view.held, '0.00', 'nothing is held');
  t.equal(view.calls_today, CALLS - cut, 'the calls that were cut were given back');
  t.equal((await statusOf(gateway)).calls_in_flight, 0);
  for (let call = 0; call < CALLS; call += 1) t.equal((await gateway.chat(key, 'after')).status, 200);
  t.equal(gateway.pid(), pid, 'the process is the same');
}

/** A listener that dies in the place of another is replaced too. */
async function failSuccessor(t: Test, { gateway, key, faults }: FaultyBed): Promise<void> {
  const pid = gateway.pid();
  writeFileSync(join(faults, 'listener-0.throw-at-start'), '');
  writeFileSync(join(faults, 'listener-0.throw'), '');
  await eventually('the first successor has died', () =>
    existsSync(join(faults, 'listener-0.throw-at-start')) ? undefined : true,
  );
  await bothListeners(gateway);
  for (let call = 0; call < 8; call += 1) t.equal((await gateway.chat(key, 'after')).status, 200);
  t.equal(gateway.pid(), pid, 'the process is the same');
}

for (const workers of [2, 0])
  void t.test(`listeners, workers: ${workers}`, async (t) => {
    const bed = await startFaultyBed(t, { listen: { listeners: 2 }, workers });
    await t.test('and workers cannot make code from strings', (t) => checkNoCode(t, bed, workers));
    await t.test('one that fails is replaced, and what its calls held is released', (t) =>
      failListener(t, bed),
    );
    if (workers > 0)
      await t.test('one that dies in the place of another is replaced too', (t) => failSuccessor(t, bed));
    t.equal(await bed.gateway.stop(), 0);
  });

void t.test('the log of a listener that fails is true of calls that were charged before', async (t) => {
  const { gateway, key, account, faults, mock } = await startFaultyBed(t, {
    listen: { listeners: 1 },
    // All that the sockets do not take waits in the listener, and the worker is done with the call.
    limits: { stream_buffer_bytes: 16_777_216 },
  });
  const body = { model: TEST_MODEL, messages: [{ role: 'user', content: steered('bytes=10000000') }] };
  const reader = new SlowReader(gateway.port, key, body, 4_096);
  t.teardown(() => reader.leave());
  const charged = await eventually('the whole response is charged', async () => {
    const view = await gateway.admin.account(account);
    return reader.readBytes > 0 && view.held === '0.00' && view.spent !== '0.00' ? view : undefined;
  });
  const open = gateway.chat(key, steered('fault=stall-before')).then(
    (answer) => answer.status,
    () => 'cut' as const,
  );
  await eventually('the other call reaches the mock', async () =>
    (await mock.stats()).open > 0 ? true : undefined,
  );
  t.notOk(reader.isClosed, 'its client is still reading');
  writeFileSync(join(faults, 'listener-0.throw'), '');
  t.equal(await open, 'cut');
  reader.leave();
  const lines = await eventually('another listener serves', async () => {
    const { status } = await gateway.chat(key, 'after').catch(() => ({ status: 0 }));
    return status === 200 ? gateway.log() : undefined;
  });
  const view = await gateway.admin.account(account);
  t.ok(Number(view.spent) > Number(charged.spent), 'the response that was being read stays charged');
  t.equal(view.calls_today, 2, 'and counts, as does the call after it');
  const [failed, ...others] = lines.filter((line) => line.includes('listener failed and is being replaced'));
  t.same(others, []);
  t.notMatch(failed, /its calls were cut and not billed/, 'one of them was billed');
  t.match(failed, /calls that were not charged yet are not billed/);
  const released = lines.filter((line) => line.includes('calls were cut with their listener and not billed'));
  t.match(released, [/"calls":1\b/], 'the main thread counts the other one alone');
  t.equal(await gateway.stop(), 0);
});

void t.test('a worker that fails takes no call of a gateway that has time', async (t) => {
  const { gateway, key, faults, mock } = await startFaultyBed(t, { workers: 1 });
  const calls = [1, 2, 3].map(() => gateway.chat(key, steered('first_byte_ms=5000')));
  await eventually('the calls reach the mock', async () =>
    (await mock.stats()).open === calls.length ? true : undefined,
  );
  const worker = readdirSync(faults).find((file) => file.startsWith('pool-'))!;
  writeFileSync(join(faults, worker.replace('.code', '.throw')), '');
  await eventually('the worker dies', () =>
    gateway.log().some((line) => line.includes('upstream worker died')) ? true : undefined,
  );
  for (const { status } of await Promise.all(calls)) t.equal(status, 200);
  t.equal(await gateway.stop(), 0);
});

void t.test(
  'an upstream worker that fails is replaced; its calls end as internal_error, unbilled; then the process',
  async (t) => {
    const { gateway, key, account, faults, mock } = await startFaultyBed(t, {
      workers: 1,
      workers_from_load_percent: 0,
    });
    t.equal((await gateway.chat(key, 'before')).status, 200);
    const { spent } = await gateway.admin.account(account);

    const hanging = gateway.chat(key, steered('fault=stall-before'));
    await eventually('the call reaches the mock', async () =>
      (await mock.stats()).open > 0 ? true : undefined,
    );
    const worker = readdirSync(faults)
      .find((file) => file.startsWith('pool-'))!
      .replace('.code', '');
    writeFileSync(join(faults, `${worker}.throw`), '');
    const answer = await hanging;
    t.equal(answer.status, 500);
    t.match(answer.json(), { error: { type: 'server_error', code: 'internal_error' } });

    const after = await eventually('a new worker serves', async () => {
      const next = await gateway.chat(key, 'after');
      return next.status === 200 ? next : undefined;
    });
    t.equal(after.status, 200);
    const view = await gateway.admin.account(account);
    t.equal(view.held, '0.00', 'the hold is back');
    t.equal(view.calls_today, 2, 'the call that failed was given back');
    t.not(view.spent, spent);

    // The supervisor starts another process for one that dies.
    const pid = gateway.pid();
    process.kill(pid, 'SIGKILL');
    await eventually('another process serves on the same port', async () => {
      if (gateway.pid() === pid) return undefined;
      return (await gateway.chat(key, 'once more')).status === 200 ? true : undefined;
    });
    t.equal(await gateway.stop(), 0);
  },
);

void t.test('a gateway ends although a listener stands still, and says what that may cost', async (t) => {
  const { gateway, faults } = await startFaultyBed(t, { listen: { listeners: 2 }, drain_timeout_ms: 100 });
  writeFileSync(join(faults, 'listener-0.block'), '');
  await eventually('it stands still', () =>
    existsSync(join(faults, 'listener-0.block')) ? undefined : true,
  );
  t.equal(await gateway.stop(), 1);
  const line = gateway.log().find((each) => each.includes('listeners did not end in time'));
  t.match(JSON.parse(line ?? '{}'), { level: 'error', listeners: '0' });
});
