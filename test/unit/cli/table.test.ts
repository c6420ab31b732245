import t from 'tap';
import { cutTo, pad, tableText, widthOf, type Column } from '#src/cli/table.js';
import { visible } from '#src/core/wrong-input.js';

type Row = readonly [name: string, amount: string];
const COLUMNS: readonly Column<Row>[] = [
  { title: 'NAME', text: ([name]) => name, cut: true },
  { title: 'AMOUNT', text: ([, amount]) => amount, align: 'right' },
];

void t.test('columns stand under each other by what a terminal shows', (t) => {
  const rows: Row[] = [
    ['日本語', '1.00'],
    ['e\u{301}te\u{301}', '100.00'],
    ['👩‍👩‍👧', '0.000000000001'],
    ['plain', '-2.50'],
  ];
  t.same(tableText(COLUMNS, rows, undefined), {
    lines: [
      'NAME            AMOUNT',
      '日本語            1.00',
      'e\u{301}te\u{301}             100.00',
      '👩‍👩‍👧      0.000000000001',
      'plain            -2.50',
    ],
    narrowed: false,
  });
  t.end();
});

void t.test('a narrow terminal takes from names and tells so', (t) => {
  const rows: Row[] = [['a name that is long', '1000000.00']];
  t.same(tableText(COLUMNS, rows, 31).narrowed, false, 'fits exactly');
  t.same(tableText(COLUMNS, rows, 30), {
    lines: ['NAME                    AMOUNT', 'a name that is lo…  1000000.00'],
    narrowed: true,
  });
  t.same(
    tableText(COLUMNS, rows, 20).lines,
    ['NAME          AMOUNT', 'a name …  1000000.00'],
    'names go first',
  );
  const least = tableText(COLUMNS, rows, 15);
  t.same(least.lines, ['NAME          …', 'a name …  1000…'], 'then the end of the line');
  t.equal(least.narrowed, true);
  t.end();
});

void t.test('names cannot steer the terminal', (t) => {
  const { lines } = tableText(COLUMNS, [['a\u{1b}[2J\nb\u{202e}c', '1']], undefined);
  t.equal(lines[1], 'a\u{fffd}[2J\u{fffd}b\u{fffd}c       1');
  t.equal(visible('Müller & 日本'), 'Müller & 日本');
  t.equal(visible('a\u061cb\u200ec\u200fd\ud800'), 'a\ufffdb\ufffdc\ufffdd\ufffd');
  t.equal(visible('👩\u200d👧'), '👩\u200d👧', 'joined characters stay joined');
  t.end();
});

void t.test('cut and padded', (t) => {
  t.equal(cutTo(visible('日本語'), 6), '日本語');
  t.equal(cutTo(visible('日本語'), 5), '日本…');
  t.equal(cutTo(visible('日本語'), 4), '日…', 'half a character is none');
  t.equal(cutTo(visible('👩‍👩‍👧👩‍👩‍👧'), 3), '👩‍👩‍👧…');
  t.equal(widthOf(visible('')), 0);
  t.equal(pad(visible('日'), 3, 'right'), ' 日');
  t.equal(pad(visible('too long'), 3), 'too long');
  t.end();
});
