/**
 * `tollgate accounts credit | debit | credits`: the money of an account. account-commands.ts adds the
 * commands; they call the admin interface.
 *
 * Must hold: a command that is repeated with its `--idempotency-key` is recorded once, or an account gets
 * money twice (test/e2e/credit-commands.test.ts).
 */
import { InvalidArgumentError, type Command } from 'commander';
import { addAdminCommand, showList } from './admin-command.js';
import { accountPath, showAccount } from './account-commands.js';
import { addDataOptions, type DataOptions, exampleText, nonEmpty } from './options.js';
import { printTable, timeText } from './output.js';
import type { Column } from './table.js';

interface CreditOptions extends DataOptions {
  readonly note?: string;
  readonly idempotencyKey?: string;
}

export function addCreditCommands(accounts: Command): void {
  addCreditOptions(
    accounts
      .command('credit')
      .description('Add to the balance, or take away with a negative amount.')
      .argument('<account>', 'id or name', nonEmpty)
      .argument('<amount>', 'such as 10.00; to take away: credit acme -- -2.50', nonEmpty),
  )
    .addHelpText(
      'after',
      exampleText('accounts credit acme 10.00 --note "invoice 17" --idempotency-key invoice-17'),
    )
    .action((account: string, amount: string, options: CreditOptions) => credit(account, amount, options));

  addCreditOptions(
    accounts
      .command('debit')
      .description('Take from the balance, at most all of it.')
      .argument('<account>', 'id or name', nonEmpty)
      .argument('<amount>', 'such as 2.50', positive),
  )
    .addHelpText('after', exampleText('accounts debit acme 2.50 --note "refund of invoice 17"'))
    .action((account: string, amount: string, options: CreditOptions) =>
      credit(account, `-${amount}`, options),
    );

  addAdminCommand(accounts, 'credits', 'List the credits and debits, oldest first.', 'accounts credits acme')
    .argument('<account>', 'id or name', nonEmpty)
    .action((account: string, options: DataOptions) =>
      showList(options, `${accountPath(account)}/credits`, (data: readonly CreditView[]) =>
        printTable(COLUMNS, data, 'Nothing was credited yet.'),
      ),
    );
}

/** One entry of the account's journal. */
interface CreditView {
  readonly amount: string;
  readonly note: string;
  /** Unix seconds. */
  readonly created: number;
}

const COLUMNS: readonly Column<CreditView>[] = [
  { title: 'TIME', text: ({ created }) => timeText(created), align: 'left' },
  { title: 'AMOUNT', text: ({ amount }) => amount, align: 'right' },
  { title: 'NOTE', text: ({ note }) => note, align: 'left', cut: true },
];

function addCreditOptions(command: Command): Command {
  return addDataOptions(command)
    .option('--note <text>', 'why, for the journal of the account; at most 500 characters')
    .option(
      '--idempotency-key <text>',
      'a word of your own: the same command with the same word is booked once',
      nonEmpty,
    );
}

function credit(account: string, amount: string, options: CreditOptions): Promise<void> {
  const { note, idempotencyKey } = options;
  const body = { amount, note, idempotency_key: idempotencyKey };
  return showAccount(options, 'POST', `${accountPath(account)}/credit`, body);
}

/** Parses an amount above 0: a debit of a negative amount would be a credit. */
function positive(text: string): string {
  if (text.startsWith('-')) throw new InvalidArgumentError('Want an amount without its minus.');
  return nonEmpty(text);
}
