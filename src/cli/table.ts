/**
 * Formats tables as lines of text. Widths are counted in terminal cells: a letter takes one cell, a Chinese
 * character or an emoji two. output.ts and status-text.ts use the functions, for commands. Pure.
 *
 * Must hold: no name can control the terminal by escape sequences (test/unit/cli/table.test.ts). So all
 * functions take and return VisibleText, and `tableText` makes its own of what columns return.
 */
import stringWidth from 'string-width';
import { visible, type VisibleText } from '../core/wrong-input.js';

export interface Column<Row> {
  /** In capitals, which tell the title line from the rows. */
  readonly title: Uppercase<string>;
  readonly text: (row: Row) => string;
  /** Set for numbers, so that their last digits are aligned. */
  readonly align?: 'right';
  /**
   * Whether the column is shortened first if the terminal is too narrow: set for names and notes. Columns
   * without `cut`, ids and amounts, are cut only if no column with `cut` can shrink further.
   */
  readonly cut?: boolean;
}

interface TableText {
  readonly lines: readonly VisibleText[];
  /** Whether the table was too wide and something was cut; `…` shows where. */
  readonly narrowed: boolean;
}

const GAP = '  ';
/** Cells that a column with `cut` keeps: fewer characters of a name do not identify it. */
const CUT_CELLS_MIN = 8;
/** Each of these characters takes one cell. */
const PRINTABLE_ASCII = /^[ -~]*$/;

/** Makes a title line, and a line of visible text for each row, of at most `widthMax` cells each. */
export function tableText<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  widthMax = Infinity,
): TableText {
  const textRows = [
    columns.map(({ title }) => visible(title)),
    ...rows.map((row) => columns.map(({ text }) => visible(text(row)))),
  ];
  const fullWidths = columns.map((_, index) =>
    textRows.reduce((widest, texts) => Math.max(widest, widthOf(texts[index]!)), 0),
  );
  const widths = shrunkWidths(columns, fullWidths, widthMax);
  return {
    lines: textRows.map((texts) => {
      const padded = texts.map((text, index) => {
        const width = widths[index]!;
        return pad(cutTo(text, width), width, columns[index]!.align);
      });
      // A terminal would wrap a longer line, and the columns would no longer be aligned. So its end is cut.
      return cutTo(padded.join(GAP).trimEnd() as VisibleText, widthMax);
    }),
    narrowed: totalOf(fullWidths) > widthMax,
  };
}

/** Shrinks the widest column with `cut` by one cell, until the line fits or no such column can shrink. */
function shrunkWidths<Row>(
  columns: readonly Column<Row>[],
  fullWidths: readonly number[],
  widthMax: number,
): number[] {
  const widths = [...fullWidths];
  for (let excess = totalOf(widths) - widthMax; excess > 0; excess--) {
    // The index of the widest column that can shrink; -1 if none can.
    let widestIndex = -1;
    columns.forEach(({ cut }, index) => {
      const width = widths[index]!;
      if (cut === true && width > CUT_CELLS_MIN && width > (widths[widestIndex] ?? 0)) widestIndex = index;
    });
    if (widestIndex === -1) break;
    widths[widestIndex]! -= 1;
  }
  return widths;
}

function totalOf(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, 0) + GAP.length * (widths.length - 1);
}

/** Returns how many cells a text takes on a terminal. */
export function widthOf(text: VisibleText): number {
  // `false` is string-width's default: escape sequences have no width. VisibleText has none.
  return PRINTABLE_ASCII.test(text) ? text.length : stringWidth(text, { countAnsiEscapeCodes: false });
}

/** Returns the text, filled up with spaces to `width` cells. `right`: the spaces come before the text. */
export function pad(text: VisibleText, width: number, align?: 'right'): VisibleText {
  const space = ' '.repeat(Math.max(width - widthOf(text), 0));
  return (align === 'right' ? space + text : text + space) as VisibleText;
}

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** Returns the text, or its beginning and `…`, in at most `width` cells, and in one if `width` is less. */
export function cutTo(text: VisibleText, width: number): VisibleText {
  if (widthOf(text) <= width) return text;
  let beginning = '';
  // The sign `…` takes the first cell.
  let usedCells = 1;
  for (const { segment } of graphemes.segment(text)) {
    usedCells += widthOf(segment as VisibleText);
    if (usedCells > width) break;
    beginning += segment;
  }
  return `${beginning}…` as VisibleText;
}
