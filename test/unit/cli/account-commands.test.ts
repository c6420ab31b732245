import t from 'tap';
import { checkMisused, checkRefused, commandFolder, makeBooks } from './support.js';

/** Times and ids differ from run to run. */
const steady = (text: string): string =>
  text
    .replaceAll(/acct_.{16}/g, 'acct_0123456789abcdef')
    .replaceAll(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ/g, '2025-01-31 12:00:00Z');

void t.test('an account’s life without a gateway', async (t) => {
  const { folder, run } = commandFolder(t);
  await makeBooks(folder);
  t.match(await run('accounts', 'list'), {
    code: 0,
    stdout: /^There are no accounts: see "accounts create --help"\.\n$/,
  });
  t.same((await run('accounts', 'list', '--json')).json(), { data: [], next: null });

  const made = await run('accounts', 'create', 'acme', '--plan', 'free', '--credit', '10.00', '--json');
  t.match(made, { code: 0, stderr: '' });
  const account = made.json() as { id: string };
  t.match(account, { id: /^acct_/, name: 'acme', plan: 'free', balance: '10.00', active: true });
  t.same((await run('accounts', 'show', 'acme', '--json')).json(), account);
  t.same((await run('accounts', 'show', account.id, '--json')).json(), account);

  t.match((await run('accounts', 'credit', 'acme', '0.5', '--json')).json(), { balance: '10.50' });
  t.match((await run('accounts', 'credit', 'acme', '--json', '--', '-2.50')).json(), { balance: '8.00' });
  t.match((await run('accounts', 'credit', 'acme', '-1', '--note', 'fee', '--json')).json(), {
    balance: '7.00',
  });
  t.match((await run('accounts', 'set-plan', 'acme', '--plan', 'paid', '--json')).json(), { plan: 'paid' });
  t.match((await run('accounts', 'disable', 'acme', '--yes', '--json')).json(), { active: false });
  t.match((await run('accounts', 'enable', 'acme', '--json')).json(), { active: true });
});

void t.test('what people see', async (t) => {
  const { run } = commandFolder(t);
  const shown = await run('accounts', 'create', 'acme', '--plan', 'free', '--credit', '1234.5');
  t.equal(
    steady(shown.stdout),
    [
      'name                  acme',
      'id                    acct_0123456789abcdef',
      'plan                  free',
      'active                yes',
      'balance               1234.50',
      'held                  0.00',
      'spent                 0.00',
      'credited              1234.50',
      'uncovered             0.00',
      'calls today           0',
      'requests this minute  0',
      'calls in flight       0',
      'created               2025-01-31 12:00:00Z',
      '',
    ].join('\n'),
  );
  await run('accounts', 'create', 'Müller & Söhne', '--plan', 'paid');
  await run('accounts', 'disable', 'Müller & Söhne', '--yes');
  const table = await run('accounts', 'list');
  t.equal(
    steady(table.stdout),
    [
      'NAME            ID                     PLAN  ACTIVE  BALANCE  HELD  SPENT  CALLS TODAY  CREATED',
      'acme            acct_0123456789abcdef  free  yes     1234.50  0.00   0.00            0  2025-01-31 12:00:00Z',
      'Müller & Söhne  acct_0123456789abcdef  paid  no         0.00  0.00   0.00            0  2025-01-31 12:00:00Z',
      '',
    ].join('\n'),
  );
});

void t.test('refusals end with 1, misuse with 2', async (t) => {
  const { run } = commandFolder(t);
  await run('accounts', 'create', 'acme', '--plan', 'free', '--credit', '1');
  checkRefused(t, await run('accounts', 'create', 'acme', '--plan', 'free'), /^name must be unique/);
  checkRefused(
    t,
    await run('accounts', 'create', 'x', '--plan', 'gold'),
    /^plan must be one of .*\(free, paid\), got gold/,
  );
  checkRefused(
    t,
    await run('accounts', 'create', 'x', '--plan', 'free', '--credit', 'ten'),
    /^credit must be a decimal/,
  );
  checkRefused(t, await run('accounts', 'show', 'nobody'), /^there is no account nobody/);
  checkRefused(
    t,
    await run('accounts', 'credit', 'acme', '--', '-1.01'),
    /^amount must not take more than the balance of 1\.00/,
  );
  const unread = await run('accounts', 'list', '--config', 'gone.yaml');
  t.match(unread, { code: 1, stdout: '', stderr: /^[^\n]*gone\.yaml[^\n]*\nTo reach a gateway[^\n]*\n$/ });
  checkMisused(t, await run('accounts', 'create', 'x'), /required option '--plan <plan>' not specified/);
  checkMisused(t, await run('accounts', 'create', '', '--plan', 'free'), /It is empty/);
  checkMisused(t, await run('accounts', 'credit', 'acme'), /missing required argument 'amount'/);
  checkMisused(t, await run('accounts', 'show', 'acme', '--loud'), /unknown option '--loud'/);
  checkMisused(t, await run('accounts', 'sell', 'acme'), /unknown command 'sell'/);
  checkMisused(t, await run('accounts'), /Usage: tollgate accounts/);
  t.match((await run('accounts', 'list', '--json')).json(), { data: { length: 1 } });
});

void t.test('help tells each command, and ends with 0', async (t) => {
  const { run } = commandFolder(t);
  const all = await run('accounts', '--help');
  t.match(all, { code: 0, stderr: '' });
  for (const word of ['create', 'list', 'show', 'credit', 'set-plan', 'disable', 'enable'])
    t.match(all.stdout, word);
  const credit = await run('accounts', 'credit', '--help');
  t.match(credit.stdout, /credit acme -- -2\.50/);
  for (const option of ['--config', '--data', '--json', '--note']) t.match(credit.stdout, option);
});
