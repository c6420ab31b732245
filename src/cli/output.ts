/**
 * Prints the results of commands, and declares the two errors that commands throw, and the exit codes.
 * program.ts prints the message of an error and sets its exit code. A command that fails after it has printed
 * a result sets EXIT_FAILED itself.
 *
 * Must hold:
 * - No text controls the terminal: names come from callers, messages from upstreams. So all that a command
 *   prints goes through this file or status-text.ts, except JSON, CSV, YAML and Parquet
 *   (test/unit/cli/output.test.ts, test/unit/cli/program.test.ts).
 * - table.ts, which takes 0.05 s to load, is imported only when a table is printed
 *   (test/unit/bundle.test.ts).
 * - To a pipe nothing of a table is cut (test/unit/cli/output.test.ts).
 */
import type { KeyView } from '../admin/views.js';
import { visible } from '../core/wrong-input.js';
import type { Column } from './table.js';

/** Exit codes are public: scripts and schedulers read them. */
export const EXIT_FAILED = 1;
export const EXIT_USAGE = 2;

/**
 * The command cannot be done: EXIT_FAILED. Because the error has a `code`, of whatever text, program.ts
 * prints its message and no stack.
 */
export class CommandError extends Error {
  readonly code = 'refused';
}

/** The command line is wrong: EXIT_USAGE. */
export class Misuse extends Error {
  readonly code = 'misused';
}

/** Prints the value as one line of JSON, on standard output. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Prints one line on standard output. A line break in the text is shown as `�`. */
export function printLine(text: string): void {
  process.stdout.write(`${visible(text)}\n`);
}

/** Prints an error, a warning or a remark on standard error; the text may have several lines. */
export function printError(text: string): void {
  process.stderr.write(`${visibleLines(text)}\n`);
}

/** As `visible`, but the line breaks stay. */
export function visibleLines(text: string): string {
  return text.split('\n').map(visible).join('\n');
}

/**
 * Prints a table with a title line, or `emptyText` if there are no rows. On a terminal the table is cut to
 * the terminal's width, and standard error says so; to a pipe nothing is cut.
 */
export async function printTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  emptyText: string,
): Promise<void> {
  if (rows.length === 0) {
    printLine(emptyText);
    return;
  }
  const { tableText } = await import('./table.js');
  const { lines, narrowed } = tableText(columns, rows, terminalWidth());
  process.stdout.write(`${lines.join('\n')}\n`);
  if (narrowed)
    process.stderr.write('Wider than this terminal: --json, or the output of a pipe, has all of it.\n');
}

/** Returns how many cells a line has; Infinity if standard output is no terminal or its width is unknown. */
export function terminalWidth(): number {
  return (process.stdout.isTTY && process.stdout.columns) || Infinity;
}

/** Prints one item as lines of `name  value`. */
export async function printFields(fields: readonly (readonly [string, string])[]): Promise<void> {
  const { pad, widthOf } = await import('./table.js');
  const names = fields.map(([name]) => visible(name));
  const width = Math.max(...names.map(widthOf));
  fields.forEach(([, value], index) => printLine(`${pad(names[index]!, width)}  ${value}`));
}

/** Returns whole Unix seconds as text: `2025-01-31 12:00:00Z`. */
export function timeText(seconds: number): string {
  return new Date(seconds * 1_000).toISOString().replace('T', ' ').replace('.000', '');
}

/** Returns `timeText`; `never` for null. */
export function timeOrNever(seconds: number | null): string {
  return seconds === null ? 'never' : timeText(seconds);
}

/** Returns whether a key or an operator's token is accepted now, in a word. */
export function activeText({ active, expired }: Pick<KeyView, 'active' | 'expired'>): string {
  return expired ? 'expired' : yesNo(active);
}

export function yesNo(value: boolean): string {
  return value ? 'yes' : 'no';
}
