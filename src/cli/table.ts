/** Tables as lines of text, by the width that a terminal gives each character. Pure. */
import stringWidth from 'string-width';

export interface Column<Row> {
  readonly title: string;
  readonly text: (row: Row) => string;
  /** Numbers stand under each other's last digit. */
  readonly align: 'left' | 'right';
  /** Loses its end first on a narrow terminal: names and notes before ids and amounts, which are nothing without it. */
  readonly cut?: boolean;
}

export interface TableText {
  readonly lines: readonly string[];
  /** Whether something lost its end, which `…` shows. */
  readonly narrowed: boolean;
}

const GAP = '  ';
/** Less than this of a name tells nothing. */
const CUT_COLUMNS_MIN = 8;
/** What would move a terminal's cursor, or turn the direction of writing: names come from whoever made them. */
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;
const PLAIN = /^[ -~]*$/;

/** A title line and one for each row. `terminalColumns` is undefined where there is no terminal, and nothing is cut. */
export function tableText<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  terminalColumns: number | undefined,
): TableText {
  const lines = [
    columns.map(({ title }) => title),
    ...rows.map((row) => columns.map(({ text }) => visible(text(row)))),
  ];
  const wanted = columns.map((_, at) => lines.reduce((most, line) => Math.max(most, widthOf(line[at]!)), 0));
  const widths = narrowed(columns, wanted, terminalColumns ?? Infinity);
  const room = terminalColumns ?? Infinity;
  return {
    lines: lines.map((line) => {
      const cells = line.map((cell, at) => pad(cutTo(cell, widths[at]!), widths[at]!, columns[at]!.align));
      // Broken by the terminal, a table is none.
      return cutTo(cells.join(GAP).trimEnd(), room);
    }),
    narrowed: totalOf(wanted) > room,
  };
}

/** Takes from the widest column that may be cut until the line fits, or nothing more can be taken. */
function narrowed<Row>(columns: readonly Column<Row>[], wanted: readonly number[], room: number): number[] {
  const widths = [...wanted];
  for (let over = totalOf(widths) - room; over > 0; over--) {
    let widest = -1;
    columns.forEach(({ cut }, at) => {
      const width = widths[at]!;
      if (cut === true && width > CUT_COLUMNS_MIN && width > (widths[widest] ?? 0)) widest = at;
    });
    if (widest === -1) break;
    widths[widest]! -= 1;
  }
  return widths;
}

function totalOf(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, 0) + GAP.length * (widths.length - 1);
}

/** The text on one line, with what cannot be shown as `�`. */
export function visible(text: string): string {
  return PLAIN.test(text) ? text : text.replace(CONTROL, '\u{fffd}');
}

/** Columns of a terminal that the text takes. */
export function widthOf(text: string): number {
  return PLAIN.test(text) ? text.length : stringWidth(text, { countAnsiEscapeCodes: false });
}

export function pad(text: string, width: number, align: 'left' | 'right'): string {
  const space = ' '.repeat(Math.max(width - widthOf(text), 0));
  return align === 'left' ? text + space : space + text;
}

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** The text, or as much of its beginning as leaves room for `…`. */
export function cutTo(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let kept = '';
  let used = 1;
  for (const { segment } of graphemes.segment(text)) {
    used += widthOf(segment);
    if (used > width) break;
    kept += segment;
  }
  return `${kept}…`;
}
