/**
 * What commands print. How they end is the entry's: an action that throws has been refused.
 */
import { InvalidArgumentError } from 'commander';

/** A command was understood, but cannot be done; the message says why and is all that the operator is shown. */
export class Refusal extends Error {
  readonly code = 'refused';
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

export function printLine(text: string): void {
  process.stdout.write(`${text}\n`);
}

export interface Column<Row> {
  readonly title: string;
  readonly text: (row: Row) => string;
  /** Numbers stand under each other's last digit. */
  readonly align: 'left' | 'right';
}

/** A table with a title line; `none` is printed in place of an empty one. */
export function printTable<Row>(columns: readonly Column<Row>[], rows: readonly Row[], none: string): void {
  if (rows.length === 0) {
    printLine(none);
    return;
  }
  const lines = [
    columns.map(({ title }) => title),
    ...rows.map((row) => columns.map(({ text }) => text(row))),
  ];
  const widths = columns.map((_, at) => Math.max(...lines.map((line) => widthOf(line[at]!))));
  for (const line of lines) {
    const cells = line.map((cell, at) => pad(cell, widths[at]!, columns[at]!.align));
    printLine(cells.join('  ').trimEnd());
  }
}

/** One item as lines of `name  value`. */
export function printFields(fields: readonly (readonly [string, string])[]): void {
  const width = Math.max(...fields.map(([name]) => widthOf(name)));
  for (const [name, value] of fields) printLine(`${pad(name, width, 'left')}  ${value}`);
}

/** `2025-01-31 12:00:00Z` of Unix seconds. */
export function timeText(seconds: number): string {
  return new Date(seconds * 1_000).toISOString().replace('T', ' ').replace('.000', '');
}

/** Refuses an empty word, which a shell makes of a variable that is not set. */
export function nonEmpty(text: string): string {
  if (text === '') throw new InvalidArgumentError('It is empty.');
  return text;
}

function pad(text: string, width: number, align: 'left' | 'right'): string {
  const space = ' '.repeat(width - widthOf(text));
  return align === 'left' ? text + space : space + text;
}

/** Characters and not UTF-16 units; good enough for a column of names. */
function widthOf(text: string): number {
  return Array.from(text).length;
}
