import t from 'tap';
import { checkMisused, checkRefused, commandFolder } from './support.js';

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
  checkRefused(t, await run('keys', 'delete', 'ci'), /^Nobody is here to confirm: give --yes/);
  t.same((await run('keys', 'delete', 'ci', '--yes', '--json')).json(), { id: made.id, deleted: true });
  checkRefused(t, await run('keys', 'delete', 'ci', '--yes'), /^there is no key ci/);
  t.notMatch((await run('keys', 'list')).stdout, key);
});

void t.test('what people see', async (t) => {
  const { run } = commandFolder(t);
  await run('accounts', 'create', 'acme', '--plan', 'free');
  const { stdout } = await run('keys', 'create', '--account', 'acme', '--name', 'laptop');
  const [, key] = /^key +(sk-[A-Za-z0-9_-]{43})$/m.exec(stdout) ?? [];
  t.match(stdout, /^name {5}laptop\nid {7}key_.{16}\naccount {2}acct_.{16}\nactive {3}yes\ncreated {2}/);
  t.match(stdout, /\nKeep the key now: it cannot be shown again\.\n$/);
  const prefix = `${key!.slice(0, 7)}…`;
  const table = (await run('keys', 'list')).stdout.split('\n');
  t.equal(table[0], 'NAME    ID                    ACCOUNT                KEY       ACTIVE  CREATED');
  t.match(table[1], new RegExp(`^laptop  key_.{16}  acct_.{16}  ${prefix}  yes     \\d{4}-`));
  const disabled = (await run('keys', 'disable', 'laptop')).stdout;
  t.match(disabled, /^active {3}no$/m);
  t.ok(disabled.includes(`key      ${prefix}\n`), 'its beginning and not the key');
  t.match((await run('keys', 'delete', 'laptop', '--yes')).stdout, /^Deleted key_.{16}\.\n$/);
});

void t.test('refusals end with 1, misuse with 2', async (t) => {
  const { run } = commandFolder(t);
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
