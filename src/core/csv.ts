/**
 * CSV (RFC 4180) that is safe to open in a spreadsheet. The admin interface, commands and the console write
 * it with this. Pure; any thread and the browser.
 *
 * Must hold: no text is read as a formula, and every text reads back. Test: unit/core/csv.
 */

/** Null is an empty cell. */
export type CsvCell = string | number | null;

/**
 * A spreadsheet would run a text that begins so as a formula, also with signs of full width. It gets an
 * apostrophe before it (OWASP, CSV injection). Numbers are written unchanged, so that a negative one stays a
 * number.
 */
const FORMULA_START = /^[=+\-@\t\r\n＝＋－＠]/;
const TO_QUOTE = /[",\r\n]/;

/** A line of names, if they are given, then one for each row; every line ends with CR LF. */
export function csvOf(names: readonly string[] | undefined, rows: readonly (readonly CsvCell[])[]): string {
  return [...(names === undefined ? [] : [names]), ...rows]
    .map((row) => `${row.map(cellText).join(',')}\r\n`)
    .join('');
}

function cellText(cell: CsvCell): string {
  if (typeof cell !== 'string') return cell === null ? '' : String(cell);
  const safe = FORMULA_START.test(cell) && !isDecimal(cell) ? `'${cell}` : cell;
  return TO_QUOTE.test(safe) || safe.startsWith("'") ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Money is text in a view and a number in a spreadsheet. */
function isDecimal(text: string): boolean {
  return /^-?\d+(\.\d+)?$/.test(text);
}
