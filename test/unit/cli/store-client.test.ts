/** Commands in a folder without books, which may be a wrong one. */
import { appendFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { checkRefused, commandFolder, makeBooks } from './support.js';

void t.test('books that a command makes are told, once', async (t) => {
  const { folder, run } = commandFolder(t);
  const first = await run('accounts', 'create', 'acme', '--plan', 'free', '--data', 'nope', '--json');
  t.match(first, {
    code: 0,
    stderr: `There are no books in ${join(folder, 'nope')}: they are made now. If a gateway has others, `,
  });
  t.match(first.json(), { name: 'acme' }, 'standard output is as ever');
  t.match(await run('accounts', 'list', '--data', 'nope'), { code: 0, stderr: '', stdout: /acme/ });
});

/** Each command that could open books. Only `create` of what stands alone makes them. */
const OTHERS: readonly (readonly string[])[] = [
  ['accounts', 'list'],
  ['accounts', 'list', '--json'],
  ['accounts', 'show', 'acme'],
  ['accounts', 'credits', 'acme'],
  ['accounts', 'credit', 'acme', '1'],
  ['accounts', 'debit', 'acme', '1'],
  ['accounts', 'set-plan', 'acme', '--plan', 'paid'],
  ['accounts', 'set-group', 'acme', '--none'],
  ['accounts', 'disable', 'acme', '--yes'],
  ['keys', 'create', '--account', 'acme', '--name', 'laptop'],
  ['keys', 'list'],
  ['keys', 'show', 'laptop'],
  ['keys', 'rotate', 'laptop'],
  ['keys', 'delete', 'laptop', '--yes'],
  ['groups', 'list'],
  ['groups', 'tree'],
  ['groups', 'set-limits', 'research', '--calls-per-day', '1'],
  ['operators', 'list'],
  ['operators', 'show', 'ann'],
  ['changes', 'list'],
  ['changes', 'verify'],
  ['calls', 'list'],
  ['calls', 'list', '--csv'],
  ['calls', 'show', 'req_1'],
  ['usage'],
  ['usage', '--csv'],
  ['export', 'usage', '--day', '2025-01-31', '--format', 'csv'],
  ['export', 'calls', '--day', '2025-01-31', '--format', 'parquet'],
  ['audit'],
  ['audit', '--json'],
  ['reload'],
  ['reload', '--dry-run'],
  ['reload', '--restart', '--json'],
];

void t.test('books that are not there are told, and only what begins them makes them', async (t) => {
  const { folder, run } = commandFolder(t);
  const reason = /^There are no books in .*nope\. Start the gateway once, .*--data, TOLLGATE_DATA.*--config/;
  for (const command of OTHERS) checkRefused(t, await run(...command, '--data', 'nope'), reason);
  t.notOk(existsSync(join(folder, 'nope')));
});

void t.test('the first books of a host that shares come from the other hosts alone', async (t) => {
  const { folder, run } = commandFolder(t);
  appendFileSync(
    join(folder, 'tollgate.yaml'),
    'sharing: { url: "redis://127.0.0.1:1", on_authority_loss: equal_share, hosts: 2 }\n',
  );
  checkRefused(t, await run('accounts', 'create', 'acme', '--plan', 'free'), /^There are no books in /);
  t.notOk(existsSync(join(folder, 'data')));
});

void t.test('commands that begin books', async (t) => {
  const { run } = commandFolder(t);
  for (const [data, ...command] of [
    ['a', 'accounts', 'create', 'acme', '--plan', 'free'],
    ['b', 'groups', 'create', 'research'],
    ['c', 'operators', 'create', 'ann', '--role', 'admin'],
  ])
    t.match(await run(...command, '--data', data!), {
      code: 0,
      stderr: /^There are no books in .* made now/,
    });
});

void t.test('a rejected command leaves no books, and removes none', async (t) => {
  const { folder, run } = commandFolder(t);
  const rejected: readonly (readonly [reason: RegExp, ...command: string[]])[] = [
    [/plan/, 'accounts', 'create', 'acme', '--plan', 'fre'],
    [/credit/, 'accounts', 'create', 'acme', '--plan', 'free', '--credit', 'ten'],
    [/group/, 'accounts', 'create', 'acme', '--plan', 'free', '--group', 'research'],
    [/group/, 'groups', 'create', 'research', '--parent', 'none-such'],
    [/name/, 'operators', 'create', 'a b', '--role', 'admin'],
  ];
  for (const [reason, ...command] of rejected) {
    checkRefused(t, await run(...command, '--data', 'new'), reason);
    for (const file of ['tollgate.lmdb', 'tollgate.lmdb-lock'])
      t.notOk(existsSync(join(folder, 'new', file)), `${file} after ${command.join(' ')}`);
    checkRefused(t, await run('accounts', 'list', '--data', 'new'), /^There are no books in /);
  }
  t.match(await run('accounts', 'create', 'first', '--plan', 'free', '--data', 'new'), { code: 0 });
  for (const [reason, ...command] of rejected)
    checkRefused(t, await run(...command, '--data', 'new'), reason);
  t.match(await run('accounts', 'list', '--data', 'new'), { code: 0, stdout: /first/ });
});

void t.test('the catalogue is in the settings, and is listed without books', async (t) => {
  const { folder, run } = commandFolder(t);
  for (const [command, ids] of [
    ['models', ['small']],
    ['plans', ['free', 'paid']],
  ] as const) {
    const early = await run(command, 'list', '--json');
    t.match(early, { code: 0, stderr: '' });
    t.same(
      (early.json() as { data: { id: string }[] }).data.map(({ id }) => id),
      ids,
    );
    const table = (await run(command, 'list')).stdout;
    t.notOk(existsSync(join(folder, 'data')), 'no books are made');
    await makeBooks(folder);
    t.equal((await run(command, 'list', '--json')).stdout, early.stdout, 'as with books');
    t.equal((await run(command, 'list')).stdout, table);
    rmSync(join(folder, 'data'), { recursive: true });
  }
});
