import t from 'tap';
import { checkMisused, checkRefused, commandFolder, makeBooks } from './support.js';

void t.test('a key’s life without a gateway', async (t) => {
  const { run } = commandFolder(t);
  await run('accounts', 'create', 'acme', '--plan', 'free');
  t.match(await run('keys', 'list'), { code: 0, stdout: 'There are no keys: see "keys create --help".\n' });
  const made = (await run('keys', 'create', '--account', 'acme', '--name', 'ci', '--json')).json() as {
    id: string;
    key: string;
    prefix: string;
  };
  t.match(made, { id: /^key_/, name: 'ci', key: /^sk-[A-Za-z0-9_-]{43}$/, active: true });
  const { key, ...view } = made;
  t.same((await run('keys', 'list', '--json')).json(), { data: [view], next: null });
  t.same((await run('keys', 'list', '--account', 'acme', '--json')).json(), { data: [view], next: null });
  t.match((await run('keys', 'disable', 'ci', '--json')).json(), { active: false });
  t.match((await run('keys', 'enable', made.id, '--json')).json(), { active: true });
  checkMisused(t, await run('keys', 'delete', 'ci'), /^Nobody is here to confirm: give --yes/);
  t.same((await run('keys', 'delete', 'ci', '--yes', '--json')).json(), { id: made.id, deleted: true });
  checkRefused(t, await run('keys', 'delete', 'ci', '--yes'), /^there is no key ci/);
  t.notMatch((await run('keys', 'list')).stdout, key);
});

void t.test('what people see', async (t) => {
  const { run } = commandFolder(t);
  await run('accounts', 'create', 'acme', '--plan', 'free');
  const { stdout } = await run('keys', 'create', '--account', 'acme', '--name', 'laptop');
  const [, key] = /^key +(sk-[A-Za-z0-9_-]{43})$/m.exec(stdout) ?? [];
  t.match(
    stdout,
    /^name {7}laptop\nid {9}key_.{16}\naccount {4}acme \(acct_.{16}\)\nactive {5}yes\ncreated {4}.*\nlast used {2}never\nexpires {4}never\n/,
  );
  t.match(stdout, /\nKeep the key now: it cannot be shown again\.\n$/);
  const prefix = `${key!.slice(0, 7)}…`;
  const table = (await run('keys', 'list')).stdout.split('\n');
  t.equal(table[0], 'NAME    ID                    ACCOUNT  KEY       ACTIVE  LAST USED  CREATED');
  t.match(table[1], new RegExp(`^laptop  key_.{16}  acme     ${prefix}  yes     never      \\d{4}-`));
  const disabled = (await run('keys', 'disable', 'laptop')).stdout;
  t.match(disabled, /^active {5}no$/m);
  t.ok(disabled.includes(`key        ${prefix}\n`), 'its beginning and not the key');
  t.match((await run('keys', 'delete', 'laptop', '--yes')).stdout, /^Deleted key_.{16}\.\n$/);
});

void t.test('refusals end with 1, misuse with 2', async (t) => {
  const { folder, run } = commandFolder(t);
  await makeBooks(folder);
  checkRefused(
    t,
    await run('keys', 'create', '--account', 'nobody', '--name', 'x'),
    /^there is no account nobody/,
  );
  checkRefused(t, await run('keys', 'list', '--account', 'nobody'), /^there is no account nobody/);
  checkRefused(t, await run('keys', 'disable', 'x'), /^there is no key x/);
  checkMisused(
    t,
    await run('keys', 'create', '--account', 'acme'),
    /required option '--name <name>' not specified/,
  );
  checkMisused(t, await run('keys', 'create', '--account', '', '--name', 'x'), /It is empty/);
  checkMisused(t, await run('keys', 'delete', '--yes'), /missing required argument 'key'/);
  checkMisused(t, await run('keys'), /Usage: tollgate keys/);
  const help = await run('keys', 'delete', '--help');
  t.match(help, { code: 0, stdout: /--yes/ });
});

void t.test('who stops a rotated key is told of the former one while it is accepted', async (t) => {
  const { run } = commandFolder(t);
  await run('accounts', 'create', 'acme', '--plan', 'free');
  const { id: first } = (
    await run('keys', 'create', '--account', 'acme', '--name', 'ci', '--json')
  ).json() as {
    id: string;
  };
  t.equal((await run('keys', 'disable', 'ci')).stderr, '', 'one key of the name');
  await run('keys', 'enable', 'ci');
  const { id: second } = (await run('keys', 'rotate', 'ci', '--json')).json() as { id: string };
  const remark = (id: string) =>
    new RegExp(`^${id} has the same name and is accepted until \\d{4}-.*Z: .*id\\.\n$`);
  const disabled = await run('keys', 'disable', 'ci', '--json');
  t.match(disabled, { code: 0, stderr: remark(first) });
  t.match(disabled.json(), { id: second, active: false });
  t.equal((await run('keys', 'disable', first)).stderr, '', 'none is accepted any more');
  await run('keys', 'enable', first);
  t.match(await run('keys', 'delete', 'ci', '--yes'), {
    stdout: `Deleted ${second}.\n`,
    stderr: remark(first),
  });
  t.equal((await run('keys', 'delete', 'ci', '--yes')).stderr, '');
});

void t.test('expiry, limits and rotation', async (t) => {
  const { run } = commandFolder(t);
  await run('accounts', 'create', 'acme', '--plan', 'free');
  const create = (...options: string[]) =>
    run('keys', 'create', '--account', 'acme', '--name', 'ci', ...options);
  const limits = ['--requests-per-minute', '5', '--calls-per-day', '7'];
  const made = (await create('--expires', '2100-01-31', ...limits, '--json')).json() as { id: string };
  const expires = Date.UTC(2100, 0, 31) / 1_000;
  t.match(made, { expires, requests_per_minute: 5, calls_per_day: 7, last_used: null, replaced_by: null });
  const shown = (await run('keys', 'show', 'ci')).stdout;
  t.match(
    shown,
    /^expires {14}2100-01-31 00:00:00Z\nrequests per minute {2}0 of 5 \(0 %\)\ncalls per day {8}0 of 7 \(0 %\), resets .*Z\nkey /m,
  );
  t.match((await run('keys', 'show', made.id, '--json')).json(), { id: made.id, expires });

  const rotated = await run('keys', 'rotate', 'ci', '--grace', '30d');
  t.match(rotated.stdout, /^key +sk-[A-Za-z0-9_-]{43}$/m);
  t.match(
    rotated.stdout,
    new RegExp(`\nKeep the key now: .*\n${made.id} is accepted until \\d{4}-.*Z\\.\n$`),
  );
  const second = (await run('keys', 'show', 'ci', '--json')).json() as { id: string };
  t.not(second.id, made.id, 'the name is the new one’s');
  t.match((await run('keys', 'show', made.id)).stdout, new RegExp(`^replaced by +${second.id}$`, 'm'));
  const [, ofFormer, ofSecond] = (await run('keys', 'list')).stdout.match(
    /(?<=ACTIVE  )EXPIRES|(?<= yes {5})(\d{4}|never)/g,
  )!;
  t.match([ofFormer, ofSecond], [/^20\d\d$/, '2100'], 'which of the keys is the name’s');
  const atOnce = (await run('keys', 'rotate', 'ci', '--grace', '0')).stdout;
  t.match(atOnce, `${second.id} is rejected from now on.\n`);
  t.match((await run('keys', 'list')).stdout, new RegExp(`^ci +${second.id} .* expired `, 'm'));
  const third = (await run('keys', 'rotate', 'ci', '--json')).json() as { replaces: { expires: number } };
  const graceSeconds = third.replaces.expires - Date.now() / 1_000;
  t.ok(graceSeconds > 3_400 && graceSeconds <= 3_601, `an hour by default: ${graceSeconds} s`);

  checkRefused(t, await run('keys', 'rotate', made.id), /has been rotated already/);
  checkRefused(
    t,
    await run('keys', 'rotate', 'ci', '--grace', '400d'),
    /^grace must be a whole number of seconds from 0 to 31536000, got 34560000$/m,
  );
  checkRefused(t, await create(), /^name must be unique in the account, and key_\w{16} is named ci already/);
  await run('keys', 'delete', 'ci', '--yes');
  checkRefused(t, await create('--expires', '2001-01-31'), /^expires must be a moment from now/);
  checkRefused(
    t,
    await create('--expires', '2001-01-31T12:00Z'),
    /, got 2001-01-31T12:00:00Z \(980942400 in/,
  );
  checkRefused(t, await create('--expires-in', '1d', '--expires', '2100-01-31'), /exclude each other/);
  checkRefused(t, await create('--requests-per-minute', '0'), /^requests_per_minute /);
  checkMisused(t, await create('--expires-in', 'soon'), /duration such as 90s/);
  checkMisused(t, await create('--expires', 'tomorrow'), /moment such as/);
  checkMisused(t, await create('--calls-per-day', '-5'), /whole number/);
});
