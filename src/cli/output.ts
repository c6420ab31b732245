/**
 * What commands print. How they end is the entry's: an action that throws has been refused.
 *
 * Tables are loaded when one is printed: the widths of characters take 0.05 s, which `serve` and `health` have no use for.
 */
import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { type Command, InvalidArgumentError } from 'commander';
import type { Column } from './table.js';

/** A command was understood, but cannot be done; the message says why and is all that the operator is shown. Exit code 1. */
export class CommandError extends Error {
  readonly code = 'refused';
}

/** A command was not given what it needs. Exit code 2. */
export class Misuse extends Error {
  readonly code = 'misused';
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

export function printLine(text: string): void {
  process.stdout.write(`${text}\n`);
}

/**
 * A table with a title line; `none` is printed in place of an empty one. Fits a terminal, and says so on standard error
 * where something had to be cut; elsewhere nothing is.
 */
export async function printTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  none: string,
): Promise<void> {
  if (rows.length === 0) {
    printLine(none);
    return;
  }
  const { tableText } = await import('./table.js');
  const { lines, narrowed } = tableText(
    columns,
    rows,
    process.stdout.isTTY ? process.stdout.columns : undefined,
  );
  process.stdout.write(`${lines.join('\n')}\n`);
  if (narrowed)
    process.stderr.write('Wider than this terminal: --json, or the output of a pipe, has all of it.\n');
}

/** One item as lines of `name  value`. */
export async function printFields(fields: readonly (readonly [string, string])[]): Promise<void> {
  const { pad, visible, widthOf } = await import('./table.js');
  const width = Math.max(...fields.map(([name]) => widthOf(name)));
  for (const [name, value] of fields) printLine(`${pad(name, width, 'left')}  ${visible(value)}`);
}

/** `2025-01-31 12:00:00Z` of Unix seconds. */
export function timeText(seconds: number): string {
  return new Date(seconds * 1_000).toISOString().replace('T', ' ').replace('.000', '');
}

export function yesNo(value: boolean): string {
  return value ? 'yes' : 'no';
}

/** Refuses an empty word, which a shell makes of a variable that is not set. */
export function nonEmpty(text: string): string {
  if (text === '') throw new InvalidArgumentError('It is empty.');
  return text;
}

/** A parser of an argument: a whole number between two bounds. */
export function wholeNumberFrom(minimum: number, maximum: number): (text: string) => number {
  return (text) => {
    if (/^\d{1,15}$/.test(text) && Number(text) >= minimum && Number(text) <= maximum) return Number(text);
    throw new InvalidArgumentError(`Want a whole number from ${minimum} to ${maximum}.`);
  };
}

/** The last lines of a command's help. */
export function exampleText(...lines: string[]): string {
  return `\nExample:\n${lines.map((line) => `  tollgate ${line}`).join('\n')}`;
}

/* Asks before what cannot be undone, or stops callers. */

export interface ConfirmationOptions {
  readonly yes?: boolean;
}

export function addConfirmation(command: Command): Command {
  return command.option('--yes', 'do not ask');
}

/**
 * Returns where `--yes` was given, or a person at a terminal says yes. Throws `Misuse` where nobody is there to ask, and
 * `Refusal` for any other response.
 */
export async function confirm(question: string, { yes }: ConfirmationOptions): Promise<void> {
  if (yes === true) return;
  if (!process.stdin.isTTY)
    throw new Misuse('Nobody is here to confirm: give --yes to go on without asking.');
  // The question goes where output is not captured.
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    // Ctrl-D at a terminal rejects; at another end of the input the question would wait for ever.
    const answer = await Promise.race([
      terminal.question(`${question} [y/N] `).catch(() => ''),
      once(terminal, 'close').then(() => ''),
    ]);
    if (!/^y(es)?$/i.test(answer.trim())) throw new CommandError('Nothing was changed.');
  } finally {
    terminal.close();
  }
}
