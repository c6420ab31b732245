/**
 * Tables as CSV (RFC 4180), safe to open in a spreadsheet. Pure; main thread.
 */

/**
 * A text that begins so would be run as a formula by a spreadsheet: it gets an apostrophe before it (OWASP, CSV injection).
 * Numbers are written as they are, so that a negative one stays a number.
 */
const FORMULA_START = /^[=+\-@\t\r]/;
const TO_QUOTE = /[",\r\n]/;

export type CsvCell = string | number;

/** A line of names, then one for each row; every line ends with CR LF. */
export function csvOf(names: readonly string[], rows: readonly (readonly CsvCell[])[]): string {
  return [names, ...rows].map((row) => `${row.map(cellText).join(',')}\r\n`).join('');
}

function cellText(cell: CsvCell): string {
  if (typeof cell === 'number') return String(cell);
  const safe = FORMULA_START.test(cell) && !isDecimal(cell) ? `'${cell}` : cell;
  return TO_QUOTE.test(safe) || safe.startsWith("'") ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Money is text here and a number there. */
function isDecimal(text: string): boolean {
  return /^-?\d+(\.\d+)?$/.test(text);
}
