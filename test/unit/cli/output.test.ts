import t from 'tap';
import type { Test } from 'tap';
import {
  printError,
  printFields,
  printJson,
  printLine,
  printTable,
  timeText,
  visibleLines,
} from '#src/cli/output.js';

async function printed(t: Test, print: () => void | Promise<void>): Promise<string> {
  const write = t.capture(process.stdout, 'write', () => true);
  await print();
  const text = write.args().flat().join('');
  write.restore();
  return text;
}

const COLUMNS = [
  { title: 'NAME', text: ([name]: readonly [string, string]) => name },
  { title: 'N', text: ([, count]: readonly [string, string]) => count, align: 'right' },
] as const;

void t.test('tables', async (t) => {
  const rows = [
    ['𝛼ß', '1'],
    ['longer name', '1000'],
    ['', ''],
  ] as const;
  t.equal(
    await printed(t, () => printTable(COLUMNS, rows, 'none')),
    'NAME            N\n𝛼ß              1\nlonger name  1000\n\n',
  );
  t.equal(await printed(t, () => printTable(COLUMNS, [], 'none')), 'none\n');
});

void t.test('no text controls the terminal', async (t) => {
  const escaping = 'acme\u{1b}[2J\r\u{202e}';
  const shown = 'acme\u{fffd}[2J\u{fffd}\u{fffd}';
  t.equal(await printed(t, () => printLine(escaping)), `${shown}\n`);
  t.equal(await printed(t, () => printFields([[' ', escaping]])), `   ${shown}\n`);
  t.match(await printed(t, () => printTable(COLUMNS, [[escaping, '1']], '')), shown);
  t.equal(visibleLines(`${escaping}\n${escaping}`), `${shown}\n${shown}`);
  const write = t.capture(process.stderr, 'write', () => true);
  printError(`${escaping}\n`);
  t.same(write.args().flat(), [`${shown}\n\n`]);
  write.restore();
});

void t.test('fields, JSON, times', async (t) => {
  t.equal(
    await printed(t, () =>
      printFields([
        ['id', 'x'],
        ['longer', 'y'],
      ]),
    ),
    'id      x\nlonger  y\n',
  );
  t.equal(await printed(t, () => printJson({ a: [1, null] })), '{"a":[1,null]}\n');
  t.equal(timeText(1_738_324_800), '2025-01-31 12:00:00Z');
  t.equal(timeText(0), '1970-01-01 00:00:00Z');
});
