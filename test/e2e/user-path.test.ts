/**
 * A new user's path on a fresh data directory, with commands alone; callers' requests are the only other
 * thing.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { runCommand, type CommandEnd } from '../support/command.js';
import { checkError } from '../support/error-answer.js';
import { eventually, startGateway, temporaryFolder, TEST_MODEL } from '../support/gateway.js';
import { startMock, steered } from '../support/mock.js';

const fileOf = (upstream: string): string => `
models:
  - id: ${TEST_MODEL}
    price: { input: '1.5', output: '2.25' }
    upstreams: [{ url: '${upstream}' }]
plans:
  - { id: free, requests_per_minute: 60, calls_per_day: 1000 }
  - { id: paid, requests_per_minute: 1000000, calls_per_day: 1000000000 }
`;

/** Long enough for a call after the command has ended, on a machine that does other things too. */
const GRACE = '10s';

void t.test('from the first file to the last key', async (t) => {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const run = (...args: string[]): Promise<CommandEnd> => runCommand(folder, args);
  const done = async <View>(...args: string[]): Promise<View> => {
    const end = await run(...args, '--json');
    t.equal(end.code, 0, `${args.join(' ')} ${end.stderr}`);
    return end.json() as View;
  };

  const config = fileOf(mock.url);
  writeFileSync(join(folder, 'tollgate.yaml'), config);
  t.match(await run('config', 'check'), { code: 0, stdout: /fine \(models: 1, plans: 2\)/ });
  t.match(await run('status'), {
    code: 1,
    stderr: /^No gateway serves from .*tollgate serve.*--data.*--admin-url/,
  });
  const gateway = await startGateway(t, { folder, config });
  t.match(await run('health'), { code: 0, stdout: 'ready\n' });
  t.match((await run('plans', 'list')).stdout, /^PLAN +PER MINUTE .*\nfree +60 +1000 /);
  t.match((await run('models', 'list')).stdout, new RegExp(`\n${TEST_MODEL} +tollgate +1\\.50 `));

  await done('accounts', 'create', 'acme', '--plan', 'free');
  const credit = ['accounts', 'credit', 'acme', '10.00', '--note', 'first'];
  t.match(await done(...credit), { balance: '10.00' });
  t.match(await done('accounts', 'debit', 'acme', '2.50'), { balance: '7.50' });
  const once = ['accounts', 'credit', 'acme', '5.00', '--idempotency-key', 'invoice-1'];
  t.match(await done(...once), { balance: '12.50' });
  t.match(await done(...once), { balance: '12.50' }, 'a repetition is not booked');
  const amounts = ['10.00', '-2.50', '5.00'].map((amount) => ({ amount }));
  t.match((await done<{ data: object[] }>('accounts', 'credits', 'acme')).data, amounts);
  t.match(
    (await run('accounts', 'credits', 'acme')).stdout,
    /^TIME +AMOUNT +NOTE\n.* 10\.00 +first\n.* -2\.50\n/,
  );
  t.match(await done('accounts', 'list', '--search', 'CM'), { data: [{ name: 'acme' }], next: null });
  const { id, key } = await done<{ id: string; key: string }>(
    ...['keys', 'create', '--account', 'acme', '--name', 'laptop'],
  );

  const call = (used: string) =>
    gateway.chat(used, steered('prompt_tokens=2&completion_tokens=4'), { max_tokens: 4 });
  const first = await call(key);
  t.equal(first.status, 200, first.body);
  t.equal(first.headers['x-ratelimit-limit'], '60');
  // Two tokens at 1.5 and four at 2.25 per million.
  const usage = await eventually('the call in the books', async () => {
    const { data } = await done<{ data: unknown[] }>('usage', '--account', 'acme', '--by', 'key');
    return data.length > 0 ? data : undefined;
  });
  t.match(usage, [
    {
      key: id,
      key_name: 'laptop',
      account_name: 'acme',
      calls: 1,
      prompt_tokens: 2,
      completion_tokens: 4,
      cost: '0.000012',
    },
  ]);
  const [head = '', line = ''] = (
    await run('usage', '--account', 'acme', '--by', 'key', '--csv')
  ).stdout.split(/\r?\n/);
  t.match(head, /^key,calls,.*,cost,/);
  t.ok(line.startsWith(`${id},1,`) && line.includes(',0.000012,'), line);
  const tableOf = async (by: string) => (await run('usage', '--by', by)).stdout;
  t.match(await tableOf('key'), new RegExp(`^KEY +ACCOUNT +ID +.*\nlaptop +acme +${id} +1 +0 `));
  t.match(await tableOf('account'), /^ACCOUNT +ID +.*\nacme +acct_.{16} +1 +0 /);
  t.match((await run('usage', '--by', 'model')).stdout, new RegExp(`^MODEL .*\n${TEST_MODEL} +1 +0 `));

  t.match(await run('accounts', 'disable', 'acme'), { code: 2, stderr: /give --yes/ });
  t.equal((await call(key)).status, 200, 'nobody confirmed');
  t.match(await done('accounts', 'disable', 'acme', '--yes'), { active: false });
  checkError(t, await call(key), 'key_disabled', 'disabled');
  t.match(await done('accounts', 'enable', 'acme'), { active: true });
  t.equal((await call(key)).status, 200, 'enabled');

  t.match(await done('accounts', 'set-plan', 'acme', '--plan', 'paid'), { plan: 'paid' });
  const after = await call(key);
  t.equal(after.headers['x-ratelimit-limit'], '1000000', 'the new plan');
  // This call and the one before, and earlier ones that are not a minute old.
  t.ok(Number(after.headers['x-ratelimit-remaining']) <= 999_998, 'what was used of the minute stays used');

  const rotated = await done<{ id: string; key: string }>('keys', 'rotate', 'laptop', '--grace', GRACE);
  t.equal((await call(rotated.key)).status, 200, 'the new key');
  t.equal((await call(key)).status, 200, 'the old key within grace');
  const refused = await eventually('the end of the grace', async () => {
    const answer = await call(key);
    return answer.status === 200 ? undefined : answer;
  });
  checkError(t, refused, 'key_disabled', 'the old key after it');
  t.match(refused.body, /expired/);
  t.equal((await call(rotated.key)).status, 200, 'the new key still');

  t.match((await run('status')).stdout, /\ncalls +[\d.]+ +\d+ .*\n[^]*\nok +[\d.]+ +\d+\n/);
  t.match(await done('keys', 'delete', rotated.id, '--yes'), { deleted: true });
  checkError(t, await call(rotated.key), 'invalid_api_key', 'deleted');
  t.equal(await gateway.stop(), 0);
  t.match(await run('audit'), { code: 0, stdout: /The books balance\./ });
});
