/**
 * Settings that change while the gateway serves: by command, by signal, by the file itself.
 */
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  constants,
  openSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startBed, type Bed } from '../support/bed.js';
import { runCommand } from '../support/command.js';
import { checkError } from '../support/error-answer.js';
import { eventually, temporaryFolder, testSettings, TEST_MODEL, TEST_PRICE } from '../support/gateway.js';
import type { Answer } from '../support/http.js';
import { steered, type Scope } from '../support/mock.js';
import { chunksOf, eventData, isDone, openStream, readRest } from '../support/sse.js';

interface ReloadAnswer {
  readonly dry_run: boolean;
  readonly applied: readonly string[];
  readonly restart_needed: readonly string[];
}

/** Tokens of prompt and answer. */
const ONE_AND_ONE = 'prompt_tokens=1&completion_tokens=1';
const PRELOAD = join(process.cwd(), 'test/fixtures/fault-preload.mjs');

type Settings = NonNullable<Parameters<typeof testSettings>[1]>;

class ReloadBed {
  readonly bed: Bed;

  constructor(bed: Bed) {
    this.bed = bed;
  }

  get file(): string {
    return join(this.bed.gateway.folder, 'tollgate.yaml');
  }

  /** Replaces the file as a whole. */
  write(settings: Settings | string): void {
    const text =
      typeof settings === 'string' ? settings : JSON.stringify(testSettings(this.bed.mock.url, settings));
    writeFileSync(`${this.file}.new`, text);
    renameSync(`${this.file}.new`, this.file);
  }

  ask(body: object = {}): Promise<Answer> {
    return this.bed.gateway.admin.send('POST', '/admin/v1/reload', body);
  }

  async reload(settings: Settings): Promise<ReloadAnswer> {
    this.write(settings);
    const answer = await this.ask();
    if (answer.status !== 200) throw new Error(answer.body);
    return answer.json() as ReloadAnswer;
  }

  chat(key: string, more: object = {}): Promise<Answer> {
    return this.bed.gateway.chat(key, steered(ONE_AND_ONE), { max_tokens: 1, ...more });
  }

  /** What the account has spent, once nothing is held. */
  spent(accountId: string): Promise<string> {
    return eventually('nothing held', async () => {
      const { held, spent } = await this.bed.gateway.admin.account(accountId);
      return held === '0.00' ? spent : undefined;
    });
  }
}

async function startReloadBed(t: Scope, settings: Settings = {}, env: Record<string, string> = {}) {
  const bed = await startBed(t, settings, { env });
  return { ...bed, reloads: new ReloadBed(bed), customer: await bed.gateway.admin.customer() };
}

const model = (url: string, more: object = {}): object => ({
  id: TEST_MODEL,
  price: TEST_PRICE,
  max_output_tokens: 1_000,
  upstreams: [{ url }],
  ...more,
});

let bed: ReturnType<typeof startReloadBed> | undefined;
/** For tests that begin and end with plans and models of their own; the second ends it. */
const sharedBed = (): ReturnType<typeof startReloadBed> => (bed ??= startReloadBed(t));

void t.test(
  'a price: the next call pays the new one, a stream that runs the one it was admitted at',
  async (t) => {
    const { reloads, gateway, mock } = await sharedBed();
    const { key, accountId } = await gateway.admin.customer();
    const { incoming } = await openStream(gateway.port, key, {
      model: TEST_MODEL,
      stream: true,
      max_tokens: 40,
      messages: [{ role: 'user', content: steered(`${ONE_AND_ONE}&chunks=20&chunk_ms=100`) }],
    });
    const price = { input: '10', output: '20' };
    t.same(await reloads.reload({ models: [model(mock.url, { price, owned_by: 'mock' })], plans: [] }), {
      dry_run: false,
      applied: [`models.${TEST_MODEL}.price`, 'models.hidden-model (removed)'],
      restart_needed: [],
    });
    t.notOk(incoming.readableEnded, 'the stream runs still');
    t.equal((await reloads.chat(key)).status, 200);
    const text = await readRest(incoming);
    t.ok(eventData(text).some(isDone), 'the stream ended well');
    t.ok(chunksOf(text).length >= 20);
    // 1.5 + 2.25 and 10 + 20 millionths.
    t.equal(await reloads.spent(accountId), '0.00003375');
    t.match((await gateway.admin.send('GET', '/admin/v1/models')).json(), {
      data: [{ id: TEST_MODEL, price: { input: '10.00', output: '20.00' } }],
    });
  },
);

void t.test(
  'a plan raised and lowered within a minute keeps what was used; in use it cannot go',
  async (t) => {
    const plan = (rpm: number): Settings => ({
      plans: [{ id: 'small', requests_per_minute: rpm, calls_per_day: 100 }],
    });
    const { reloads, gateway } = await sharedBed();
    await reloads.reload(plan(3));
    const { key, accountId } = await gateway.admin.customer({ plan: 'small' });
    const remaining = async (): Promise<unknown> => {
      const { status, headers } = await reloads.chat(key);
      return [status, headers['x-ratelimit-limit'], headers['x-ratelimit-remaining']];
    };
    t.same(await remaining(), [200, '3', '2']);
    t.same(await remaining(), [200, '3', '1']);
    await reloads.reload(plan(5));
    t.same(await remaining(), [200, '5', '2']);
    await reloads.reload(plan(3));
    t.same(await remaining(), [429, '3', '0']);
    await reloads.reload(plan(4));
    t.same(await remaining(), [200, '4', '0']);
    t.same(await remaining(), [429, '4', '0']);

    reloads.write({});
    const refused = await reloads.ask();
    checkError(t, refused, 'invalid_parameters', 'in use');
    t.match(refused.body, /plans: small is not there any more, and accounts are on it \(1\)/);
    t.same(await remaining(), [429, '4', '0'], 'the old settings stay');
    await gateway.admin.send('POST', `/admin/v1/accounts/${accountId}/set-plan`, { plan: 'ample' });
    t.same((await reloads.reload({})).applied, ['plans.small (removed)']);
    t.equal((await reloads.chat(key)).status, 200);
    const gone = await gateway.admin.send('POST', `/admin/v1/accounts/${accountId}/set-plan`, {
      plan: 'small',
    });
    t.match([gone.status, gone.body], [400, /settings' plans \(ample\)/]);
    t.equal(await gateway.stop(), 0);
  },
);

void t.test('models come and go and come back; a restart finds the same books', async (t) => {
  const { reloads, gateway, mock, customer } = await startReloadBed(t, { listen: { listeners: 2 } });
  const { key, accountId } = customer;
  const listed = async (): Promise<unknown> => {
    const answer = await gateway.request(key, { method: 'GET', path: '/v1/models' });
    return (answer.json() as { data: { id: string }[] }).data.map(({ id }) => id);
  };
  const both = { listen: { listeners: 2 } };
  const more = { ...both, models: [model(mock.url), model(mock.url, { id: 'new', aliases: ['newest'] })] };
  t.match((await reloads.reload(more)).applied, [
    /owned_by$/,
    'models.hidden-model (removed)',
    'models.new (added)',
  ]);
  t.same(await listed(), [TEST_MODEL, 'new']);
  for (let call = 0; call < 20; call++)
    t.equal((await reloads.chat(key, { model: call % 2 ? 'new' : 'newest' })).status, 200);
  checkError(t, await reloads.chat(key, { model: 'hidden-model' }), 'model_not_found', 'removed');
  await reloads.reload(both);
  checkError(t, await reloads.chat(key, { model: 'new' }), 'model_not_found', 'removed in turn');
  t.equal((await reloads.chat(key, { model: 'hidden-model' })).status, 200, 'back');
  t.same(await listed(), [TEST_MODEL, 'hidden-model']);
  const spent = await reloads.spent(accountId);
  const usage = async (): Promise<unknown> =>
    (await gateway.admin.send('GET', '/admin/v1/usage?by=model')).json();
  await eventually('the flush', async () =>
    JSON.stringify(await usage()).includes('hidden-model') ? true : undefined,
  );
  t.match(await usage(), {
    data: [
      { model: 'hidden-model', calls: 1 },
      { model: 'new', calls: 20 },
    ],
  });
  t.equal(await gateway.stop(), 0);
  const audit = await runCommand(gateway.folder, ['audit']);
  t.equal(audit.code, 0, audit.stdout + audit.stderr);
  t.match((await runCommand(gateway.folder, ['accounts', 'show', accountId, '--json'])).json(), { spent });
});

void t.test('the command: what changes first, then applied, then what is wrong with its line', async (t) => {
  const { reloads, gateway, customer } = await startReloadBed(t, { low_balance: 'refuse', workers: 1 });
  const run = (...args: string[]) => runCommand(gateway.folder, ['reload', ...args]);
  await eventually('the gateway to be found', async () => ((await run()).code === 0 ? true : undefined));
  t.match(await run(), { code: 0, stdout: 'nothing has changed\n' });
  reloads.write({ low_balance: 'clamp', workers: 2, listen: { port: 1 }, data: './data' });
  const dry = await run('--dry-run');
  t.match(dry, {
    code: 0,
    stdout: 'would apply  low_balance: refuse -> clamp\nneeds a restart  workers: 1 -> 2\n',
  });
  t.same((await run('--dry-run', '--json')).json(), {
    dry_run: true,
    applied: ['low_balance'],
    restart_needed: ['workers'],
    changes: [
      { setting: 'low_balance', before: 'refuse', after: 'clamp' },
      { setting: 'workers', before: '1', after: '2' },
    ],
  });
  t.match(await run(), { code: 0, stdout: 'applied  low_balance\nneeds a restart  workers\n' });
  t.match(await run(), { code: 0, stdout: 'needs a restart  workers\n' }, 'told again');

  const wrong =
    '\nmodels: []\nplans:\n  - { id: ample, requests_per_minute: 0, calls_per_day: 1 }\nlimitz: 1\n';
  reloads.write(wrong);
  const lines = [
    /tollgate\.yaml:2: models: /,
    /tollgate\.yaml:4: plans\[0\]\.requests_per_minute: /,
    /tollgate\.yaml:5: limitz: /,
  ];
  const refused = await run();
  t.equal(refused.code, 1);
  t.match(refused.stderr.trim().split('\n'), lines);
  const direct = await reloads.ask();
  checkError(t, direct, 'invalid_parameters', 'a wrong file');
  const { message } = (direct.json() as { error: { message: string } }).error;
  t.match(message.split('\n'), lines, 'the gateway says the same as config check');
  t.equal((await reloads.chat(customer.key)).status, 200, 'the old settings stay');
  checkError(t, await reloads.ask({ dry: true }), 'invalid_parameters', 'an unknown field');
  t.equal(await gateway.stop(), 0);
  const refusals = gateway.log().filter((line) => line.includes('settings not reloaded'));
  t.equal(refusals.length, 1, 'logged once');
  reloads.write({});
  t.match(await run(), { code: 1, stderr: /^No gateway runs on this data directory/ });
});

void t.test('SIGHUP: a new key in a file reaches the upstream with the next call', async (t) => {
  const folder = temporaryFolder(t);
  const keyFile = join(folder, 'key');
  writeFileSync(keyFile, 'sk-first\n');
  const { gateway, mock, customer, reloads } = await startReloadBed(t, { upstream: { key_file: keyFile } });
  const seen = async (): Promise<unknown> => {
    t.equal((await reloads.chat(customer.key)).status, 200);
    return (await mock.stats()).last?.headers.authorization;
  };
  t.equal(await seen(), 'Bearer sk-first');
  writeFileSync(keyFile, 'sk-second\n');
  process.kill(gateway.child.pid, 'SIGHUP');
  await eventually(
    'the reload',
    () =>
      gateway.log().some((line) => line.includes('"origin":"SIGHUP"') && line.includes('upstreams[0].key')) ||
      undefined,
  );
  t.equal(await seen(), 'Bearer sk-second');
  t.notOk(
    gateway.log().some((line) => /sk-(first|second)/.test(line)),
    'no key in the log',
  );
  t.equal(await gateway.stop(), 0);
});

void t.test('a stop while a reload reads a file that has no end', async (t) => {
  const keyFile = join(temporaryFolder(t), 'key');
  writeFileSync(keyFile, 'sk-first\n');
  const { gateway } = await startReloadBed(t, { upstream: { key_file: keyFile } });
  rmSync(keyFile);
  execFileSync('mkfifo', [keyFile]);
  process.kill(gateway.child.pid, 'SIGHUP');
  const writer = await eventually('it is read', () => {
    try {
      return openSync(keyFile, constants.O_WRONLY | constants.O_NONBLOCK);
    } catch {
      // Nobody has opened it yet.
      return undefined;
    }
  });
  t.teardown(() => closeSync(writer));
  const stoppedMs = performance.now();
  t.equal(await gateway.stop(), 0);
  // A reading that nobody ends lasts for minutes.
  t.ok(performance.now() - stoppedMs < 50_000);
});

void t.test('watch: a file that is replaced takes effect by itself, a wrong one does not', async (t) => {
  const { gateway, customer, reloads } = await startReloadBed(t, { watch: true });
  reloads.write('models: 1\n');
  await eventually(
    'the refusal',
    () => gateway.log().some((line) => line.includes('settings not reloaded')) || undefined,
  );
  t.equal((await reloads.chat(customer.key)).status, 200);
  reloads.write({ watch: true, models: [model(reloads.bed.mock.url, { id: 'other' })] });
  await eventually('the new model', async () =>
    (await reloads.chat(customer.key, { model: 'other' })).status === 200 ? true : undefined,
  );
  reloads.write({ watch: false });
  await eventually('the old ones', async () =>
    (await reloads.chat(customer.key)).status === 200 ? true : undefined,
  );
  t.equal(await gateway.stop(), 0);
  t.equal(gateway.log().filter((line) => line.includes('settings reloaded')).length, 2);
});

void t.test(
  'a worker, a listener and a gateway that are replaced after a reload have the new settings',
  async (t) => {
    const faults = temporaryFolder(t);
    const { gateway, mock, customer, reloads } = await startReloadBed(
      t,
      { listen: { listeners: 1 } },
      { NODE_OPTIONS: `--import=${PRELOAD}`, TOLLGATE_TEST_FAULTS: faults },
    );
    const { key } = customer;
    t.equal((await reloads.chat(key)).status, 200);
    const models = [model(mock.url, { id: 'new', upstreams: [{ url: mock.url, model: 'its-name-there' }] })];
    await reloads.reload({ models });
    const served = async (): Promise<true | undefined> => {
      if ((await reloads.chat(key, { model: 'new' })).status !== 200) return undefined;
      t.match((await mock.stats()).last?.body, /"its-name-there"/);
      checkError(t, await reloads.chat(key), 'model_not_found', 'the old model');
      return true;
    };
    t.ok(await served());
    const fail = async (thread: string, message: RegExp): Promise<void> => {
      const name = readdirSync(faults).find((file) => file.startsWith(thread))!;
      writeFileSync(join(faults, name.replace('.code', '.throw')), '');
      await eventually(
        `${thread} is replaced`,
        () => gateway.log().some((line) => message.test(line)) || undefined,
      );
    };
    // With workers: 0 the worker dies with its listener, which is next.
    if (!process.env.TOLLGATE_TEST_WORKERS?.includes('"workers":0'))
      await fail('pool-', /upstream worker died/);
    await eventually('a new worker', served);
    await fail('listener-', /listener is being replaced/);
    await eventually('a new listener', served);
    const pid = gateway.pid();
    process.kill(pid, 'SIGKILL');
    await eventually('a new gateway', async () => (gateway.pid() === pid ? undefined : await served()));
    t.same((await reloads.ask()).json(), { dry_run: false, applied: [], restart_needed: [] });
    t.equal(await gateway.stop(), 0);
    t.ok(readFileSync(reloads.file).length > 0);
  },
);
