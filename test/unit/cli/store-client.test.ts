/** Commands in a folder without books, which may be a wrong one. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { checkRefused, commandFolder } from './support.js';

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

void t.test('sums and exports of books that are not there are refused, and make none', async (t) => {
  const { folder, run } = commandFolder(t);
  const reason = /^There are no books in .*nope\. If a gateway has others, name their folder \(--data, /;
  for (const command of [
    ['usage'],
    ['usage', '--csv'],
    ['export', 'usage', '--day', '2025-01-31', '--format', 'csv'],
    ['export', 'calls', '--day', '2025-01-31', '--format', 'parquet'],
  ])
    checkRefused(t, await run(...command, '--data', 'nope'), reason);
  t.notOk(existsSync(join(folder, 'nope')));
});

void t.test('a reload without a gateway makes no books', async (t) => {
  const { folder, run } = commandFolder(t);
  for (const command of [['reload'], ['reload', '--dry-run'], ['reload', '--restart', '--json']])
    checkRefused(t, await run(...command, '--data', 'nope'), /^There are no books in .*nope\. If a gateway /);
  t.notOk(existsSync(join(folder, 'nope')));
});
