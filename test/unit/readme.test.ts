/** The README's tables are those that the code makes, and it stays one that is read to its end. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';

/** Of what is written by hand and read from the beginning; the tables that the code makes are looked up. */
const LINES_MAX = 330;
const MADE = /<!-- (\w+): written by npm run docs -->[^]*?<!-- end of \1 -->/g;

void t.test('the tables are up to date', async (t) => {
  const script = join(process.cwd(), 'scripts/write-docs.mjs');
  await t.resolves(
    promisify(execFile)(process.execPath, [script, '--check']),
    'npm run docs changes nothing',
  );
});

void t.test('it can be read', (t) => {
  const text = readFileSync(join(process.cwd(), 'README.md'), 'utf8');
  const lines = text.replace(MADE, '').split('\n');
  t.ok(text.split('\n').length > lines.length, 'tables that the code makes were left out');
  t.ok(lines.length < LINES_MAX, `${lines.length} lines`);
  t.end();
});
