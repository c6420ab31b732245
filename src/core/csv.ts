/**
 * Writes CSV (RFC 4180) that is safe to open in a spreadsheet. The admin interface, the commands and the
 * console call it. Pure; any thread and the browser.
 *
 * Must hold: a spreadsheet reads no text as a formula, and a CSV reader gets every other text back as it was
 * (test/unit/core/csv.test.ts).
 */

/** Null makes an empty cell. */
export type CsvCell = string | number | null;

/**
 * A spreadsheet runs a text that begins with one of these characters as a formula. So an apostrophe is
 * written before such a text (OWASP, CSV injection), and CSV readers get the apostrophe too. Numbers, and
 * texts that are decimal numbers, are written unchanged, so that `-1` stays a number.
 */
const FORMULA_START = /^[=+\-@\t\r\n＝＋－＠]/;
/** A text with one of these characters must stand in quotes (RFC 4180). */
const NEEDS_QUOTES = /[",\r\n]/;

/** Returns a line of the columns' `names`, if given, then a line for each row. Every line ends with CR LF. */
export function csvOf(names: readonly string[] | undefined, rows: readonly (readonly CsvCell[])[]): string {
  return [...(names === undefined ? [] : [names]), ...rows]
    .map((row) => `${row.map(cellText).join(',')}\r\n`)
    .join('');
}

function cellText(cell: CsvCell): string {
  if (typeof cell !== 'string') return cell === null ? '' : String(cell);
  const safe = FORMULA_START.test(cell) && !isDecimal(cell) ? `'${cell}` : cell;
  // OWASP advises quotes around a text with the apostrophe as well.
  return NEEDS_QUOTES.test(safe) || safe.startsWith("'") ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Views have money as a decimal text, which a spreadsheet should read as a number. */
function isDecimal(text: string): boolean {
  return /^-?\d+(\.\d+)?$/.test(text);
}
