/** `config check` beside the books: what a reload or a start would say because of them. */
import { spawnSync } from 'node:child_process';
import { appendFileSync, chmodSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { storePath } from '#src/store/store-file.js';
import { commandFolder, SETTINGS } from './support.js';

const MAIN = join(process.cwd(), 'dist/cli/main.js');
const WITHOUT_PAID = SETTINGS.replace(/^ {2}- \{ id: paid.*\n/m, '');

void t.test('accounts on a plan that the file lacks are named', async (t) => {
  const { folder, run } = commandFolder(t);
  t.match(await run('config', 'check'), { code: 0, stderr: '', stdout: /fine/ }, 'no books');
  t.notOk(readdirSync(folder).includes('data'), 'and none are made');
  for (const name of ['a', 'b', 'c', 'd', 'e', 'f', 'g'])
    await run('accounts', 'create', name, '--plan', name === 'g' ? 'free' : 'paid');
  t.match(await run('config', 'check'), { code: 0, stderr: '', stdout: /fine \(models: 1, plans: 2\)/ });

  writeFileSync(join(folder, 'tollgate.yaml'), WITHOUT_PAID);
  const warning =
    'plans: paid is missing, and accounts are on it (6: a, b, c, d, e and 1 more): a reload that removes it is refused, and a start disables them. Move them first (accounts set-plan), or keep the plan.';
  t.match(await run('config', 'check'), { code: 0, stderr: `Warning: ${warning}\n`, stdout: /fine/ });
  t.match((await run('config', 'check', '--json')).json(), { ok: true, problems: [], warnings: [warning] });
  t.match(await run('config', 'check', '--data', 'elsewhere'), { code: 0, stderr: '' }, 'of other books');
});

void t.test('books that are more than the file has room for', async (t) => {
  const { folder, run } = commandFolder(t);
  await run('accounts', 'create', 'acme', '--plan', 'free');
  for (const name of ['a', 'b', 'c']) {
    await run('groups', 'create', name);
    await run('keys', 'create', '--account', 'acme', '--name', name);
  }
  appendFileSync(join(folder, 'tollgate.yaml'), 'limits: { groups: 2, keys: 2 }\n');
  const end = await run('config', 'check');
  t.match(end, { code: 1, stdout: '' });
  t.same(end.stderr.trim().split('\n'), [
    'limits.keys: 2, and the books need at least 3',
    'limits.groups: 2, and the books need at least 3',
  ]);
  t.match((await run('config', 'check', '--json')).json(), { ok: false, problems: { length: 2 } });
});

void t.test('books that cannot be looked at', async (t) => {
  const { folder, run } = commandFolder(t);
  await run('accounts', 'create', 'acme', '--plan', 'paid');
  const path = storePath(join(folder, 'data'));
  writeFileSync(join(folder, 'tollgate.yaml'), WITHOUT_PAID);
  rmSync(`${path}-lock`);
  const before = readdirSync(join(folder, 'data'));
  t.match(await run('config', 'check'), { code: 0, stderr: '' }, 'nobody has opened this copy yet');
  t.same(readdirSync(join(folder, 'data')), before, 'and no file is made, which another user may not open');
  // root may read every folder: then nobody runs this command, if nobody may read the program.
  const isRoot = process.geteuid!() === 0;
  const nobody = { ...(isRoot ? { uid: 65_534, gid: 65_534 } : {}), cwd: folder, encoding: 'utf8' } as const;
  chmodSync(folder, 0o755);
  chmodSync(join(folder, 'data'), isRoot ? 0o700 : 0o000);
  if (spawnSync(process.execPath, [MAIN, '--version'], nobody).status === 0)
    t.match(spawnSync(process.execPath, [MAIN, 'config', 'check'], nobody), {
      status: 0,
      stderr: /^Warning: the books were not looked at: .*cannot be read: permission denied/,
    });
  chmodSync(join(folder, 'data'), 0o700);
  writeFileSync(`${path}-lock`, '');
  writeFileSync(path, 'no store');
  t.match(await run('config', 'check'), {
    code: 0,
    stderr: /^Warning: the books were not looked at: .*not a store of Tollgate/,
  });
});
