/** What is written beside the log becomes entries of the log, bounded. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { logStrayOutput } from '#src/supervisor/stray-output.js';

interface Entry {
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

async function entriesOf(script: string): Promise<Entry[]> {
  const entries: Entry[] = [];
  const note = (message: string, fields: Readonly<Record<string, unknown>> = {}): void =>
    void entries.push({ message, fields });
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'ignore', 'pipe'] });
  logStrayOutput(child.stderr, child.pid!, { error: note, warn: note, info: note, record: note });
  await once(child, 'close');
  return entries;
}

void t.test('a burst is one entry', async (t) => {
  const [entry, ...more] = await entriesOf(
    `process.stderr.write('Write error: '); process.stderr.write('No space left\\n  at é\\n')`,
  );
  t.same(more, []);
  t.equal(entry!.message, 'a gateway wrote to standard error');
  t.equal(entry!.fields.text, 'Write error: No space left\n  at é');
  t.type(entry!.fields.gateway, 'number');
});

void t.test('a megabyte is 8 KB and the number of the rest', async (t) => {
  const entries = await entriesOf(`process.stderr.write('x'.repeat(1e6))`);
  const told = entries.map(({ fields }) => fields as { text: string; droppedChars?: number });
  t.ok(
    told.every(({ text }) => text.length <= 8 * 1024),
    'each is bounded',
  );
  const chars = told.reduce((sum, { text, droppedChars = 0 }) => sum + text.length + droppedChars, 0);
  t.equal(chars, 1e6, 'nothing goes uncounted');
  t.ok(told.length <= 3, `${told.length} entries`);
});

void t.test('silence is no entry', async (t) => t.same(await entriesOf(''), []));
