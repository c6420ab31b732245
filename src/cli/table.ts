/** Formats tables as lines of text, by the width that a terminal gives each character. Pure. */
import stringWidth from 'string-width';

export interface Column<Row> {
  readonly title: string;
  readonly text: (row: Row) => string;
  /** `right` for numbers, so that their last digits are below each other. */
  readonly align: 'left' | 'right';
  /** Whether a narrow terminal may cut its end: of names and notes, never of ids and amounts. */
  readonly cut?: boolean;
}

export interface TableText {
  readonly lines: readonly string[];
  /** Whether anything was cut; `…` shows where. */
  readonly narrowed: boolean;
}

const GAP = '  ';
/** Fewer characters of a name say nothing. */
const CUT_COLUMNS_MIN = 8;
/** Characters that move a terminal's cursor or change the direction of writing. Anybody chooses names. */
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;
const PLAIN = /^[ -~]*$/;

/** A title line, and one line for each row. Without `terminalColumns` nothing is cut. */
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
      // A terminal would break a longer line, and the columns with it.
      return cutTo(cells.join(GAP).trimEnd(), room);
    }),
    narrowed: totalOf(wanted) > room,
  };
}

/** Shrinks the widest column that may be cut, until the line fits or no column can shrink further. */
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

/** The text on one line, with `�` for each control character. */
export function visible(text: string): string {
  return PLAIN.test(text) ? text : text.replace(CONTROL, '\u{fffd}');
}

/** The columns that the text takes on a terminal. */
export function widthOf(text: string): number {
  return PLAIN.test(text) ? text.length : stringWidth(text, { countAnsiEscapeCodes: false });
}

export function pad(text: string, width: number, align: 'left' | 'right'): string {
  const space = ' '.repeat(Math.max(width - widthOf(text), 0));
  return align === 'left' ? text + space : space + text;
}

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** The text, or its beginning and `…`, in at most `width` columns. */
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
