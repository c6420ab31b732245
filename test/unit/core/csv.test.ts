/** CSV that a spreadsheet reads as it was meant. */
import t from 'tap';
import { csvOf } from '#src/core/csv.js';

void t.test('numbers and decimals as they are, text quoted where it must be', (t) => {
  t.equal(csvOf(['a', 'b'], []), 'a,b\r\n');
  t.equal(
    csvOf(
      ['name', 'count', 'cost'],
      [
        ['plain', 1, '0.000000000001'],
        ['a,b', -2, '-3.50'],
        ['say "hi"', 0, '9007199254740993.10'],
        ['two\nlines', 1, '1.00'],
      ],
    ),
    'name,count,cost\r\nplain,1,0.000000000001\r\n"a,b",-2,-3.50\r\n"say ""hi""",0,9007199254740993.10\r\n"two\nlines",1,1.00\r\n',
  );
  t.end();
});

void t.test('no text is a formula', (t) => {
  const ascii = ['=1+1', '+1+1', '-1+1', '@SUM(A1)', '\tx', '\rx', '\n=1', '=cmd|"/c calc"!A1', "-1'2"];
  for (const text of [...ascii, '＝1+1', '＋1', '－1+1', '＠SUM(A1)']) {
    const line = csvOf(['x'], [[text]]).slice('x\r\n'.length, -'\r\n'.length);
    t.equal(line, `"'${text.replaceAll('"', '""')}"`, JSON.stringify(text));
  }
  t.equal(csvOf(['x'], [["'quoted"]]), 'x\r\n"\'quoted"\r\n');
  t.equal(csvOf(['x', 'y'], [[null, -0.5]]), 'x,y\r\n,-0.5\r\n');
  t.end();
});
