/** Asks before what cannot be undone, or stops callers. */
import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { Misuse, Refusal } from './output.js';

export interface ConfirmationOptions {
  readonly yes?: boolean;
}

export function addConfirmation(command: Command): Command {
  return command.option('--yes', 'do not ask');
}

/**
 * Returns where `--yes` was given, or a person at a terminal says yes. Throws `Misuse` where nobody is there to ask, and
 * `Refusal` for any other answer.
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
    if (!/^y(es)?$/i.test(answer.trim())) throw new Refusal('Nothing was changed.');
  } finally {
    terminal.close();
  }
}
