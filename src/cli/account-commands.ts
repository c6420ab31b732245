/**
 * `tollgate accounts …`: accounts and their plans, balances, credits and quotas. program.ts adds the
 * commands, which call the admin interface. Process of a command.
 *
 * Must hold: names of commands and options are public (test/unit/cli/account-commands.test.ts). A repeated
 * command gives no money twice: `credit` with its `--idempotency-key` (test/e2e/credit-commands.test.ts), and
 * `create --credit`, because names are unique.
 */
import { type Command, InvalidArgumentError } from 'commander';
import type { AccountView, CreditView } from '../admin/views.js';
import { addAdminCommand, ItemCommands, showList, showView } from './admin-command.js';
import { type AdminOptions, exampleText, parseNonEmpty } from './options.js';
import { Misuse, printFields, printTable, timeText, yesNo } from './output.js';
import { quotaFields } from './quota-text.js';
import type { Column } from './table.js';

interface ListOptions extends AdminOptions {
  readonly search?: string;
  readonly plan?: string;
  readonly group?: string;
}

export function addAccountCommands(program: Command): void {
  const accounts = program
    .command('accounts')
    .description('Create, list, credit, move and disable accounts.')
    .addHelpText(
      'after',
      exampleText('accounts create acme --plan free --credit 10.00', 'accounts list --search acme'),
    );
  const account = new ItemCommands<AccountView>(accounts, 'account', 'id or name', printAccount);
  // `--help` lists the commands in this order.
  addCreateCommand(accounts);
  addListCommand(accounts);
  account.add('show', 'GET /accounts/{account}', 'Show an account with its live counters.', [
    'accounts show acme',
  ]);
  addCreditCommands(accounts, account);
  addMoveCommands(account);
  addStatusCommands(account);
}

function addCreateCommand(accounts: Command): void {
  addAdminCommand(
    accounts,
    'create',
    'Create an account.',
    'accounts create acme --plan free --credit 10.00',
    'accounts create ann --plan free --group research',
  )
    .argument('<name>', 'unique name', parseNonEmpty)
    .requiredOption('--plan <plan>', 'a plan of the settings', parseNonEmpty)
    .option('--credit <amount>', 'first credit, such as 10.00', parseNonEmpty)
    .option('--group <group>', 'the group that it is in (id or name)', parseNonEmpty)
    .action(
      (
        name: string,
        { plan, credit, group, ...options }: AdminOptions & { plan: string; credit?: string; group?: string },
      ) =>
        // JSON.stringify leaves out the options that are undefined.
        showView(options, 'POST /accounts', { body: { name, plan, credit, group } }, printAccount, {
          missingStore: 'create',
        }),
    );
}

function addListCommand(accounts: Command): void {
  addAdminCommand(
    accounts,
    'list',
    'List accounts, all of them by default.',
    'accounts list --search acme',
    'accounts list --plan free --json',
  )
    .option('--search <text>', 'those with this in their name or id', parseNonEmpty)
    .option('--plan <plan>', 'those on this plan', parseNonEmpty)
    .option('--group <group>', 'those in this group (id or name), or in one below it', parseNonEmpty)
    .action((options: ListOptions) => {
      const { search, plan, group } = options;
      return showList(options, 'GET /accounts', { query: { search, plan, group } }, (data) =>
        printTable(columnsOf(data), data, emptyTextOf(options)),
      );
    });
}

/** Adds `set-plan` and `set-group`. */
function addMoveCommands(account: ItemCommands<AccountView>): void {
  account.add(
    'set-plan',
    'POST /accounts/{account}/set-plan',
    'Move an account to another plan.',
    ['accounts set-plan acme --plan paid'],
    {
      configure: (command) =>
        command.requiredOption('--plan <plan>', 'a plan of the settings', parseNonEmpty),
      bodyOf: ({ plan }: { plan: string }) => ({ plan }),
    },
  );
  account.add(
    'set-group',
    'POST /accounts/{account}/set-group',
    'Move an account to another group. What it has used stays used in the former one.',
    ['accounts set-group acme --group research', 'accounts set-group acme --none'],
    {
      configure: (command) =>
        command.option('--group <group>', 'id or name', parseNonEmpty).option('--none', 'in no group'),
      bodyOf: ({ group, none }: { group?: string; none?: true }) => {
        if ((group === undefined) === (none === undefined)) throw new Misuse('Give --group or --none.');
        return { group: group ?? null };
      },
    },
  );
}

/** Adds `disable` and `enable`. */
function addStatusCommands(account: ItemCommands<AccountView>): void {
  account.add(
    'disable',
    'POST /accounts/{account}/disable',
    'Reject all calls of an account, after a confirmation.',
    ['accounts disable acme --yes'],
    { question: (reference) => `Reject all calls of account ${reference}?` },
  );
  account.add('enable', 'POST /accounts/{account}/enable', 'Accept the keys of a disabled account again.', [
    'accounts enable acme',
  ]);
}

const GROUP_COLUMN: Column<AccountView> = {
  title: 'GROUP',
  text: ({ group_name: name }) => name ?? '',
  cut: true,
};

/** Adds GROUP_COLUMN after the column titled PLAN, if an account is in a group. */
function columnsOf(accounts: readonly AccountView[]): readonly Column<AccountView>[] {
  if (accounts.every(({ group }) => group === null)) return ACCOUNT_COLUMNS;
  return ACCOUNT_COLUMNS.flatMap((column) => (column.title === 'PLAN' ? [column, GROUP_COLUMN] : [column]));
}

const ACCOUNT_COLUMNS: readonly Column<AccountView>[] = [
  { title: 'NAME', text: ({ name }) => name, cut: true },
  { title: 'ID', text: ({ id }) => id },
  { title: 'PLAN', text: ({ plan }) => plan, cut: true },
  {
    title: 'ACTIVE',
    text: ({ active, plan_missing }) => (plan_missing === true ? 'no plan' : yesNo(active)),
  },
  { title: 'BALANCE', text: ({ balance }) => balance, align: 'right' },
  { title: 'HELD', text: ({ held }) => held, align: 'right' },
  { title: 'SPENT', text: ({ spent }) => spent, align: 'right' },
  { title: 'CALLS TODAY', text: ({ calls_today }) => String(calls_today), align: 'right' },
  { title: 'CREATED', text: ({ created }) => timeText(created) },
];

function emptyTextOf({ search, plan, group }: ListOptions): string {
  return search === undefined && plan === undefined && group === undefined
    ? 'There are no accounts: see "accounts create --help".'
    : 'No account matches.';
}

function printAccount(account: AccountView): Promise<void> {
  return printFields([
    ['name', account.name],
    ['id', account.id],
    ['plan', account.plan],
    ...(account.group_name === null ? [] : [['group', account.group_name] as const]),
    [
      'active',
      account.plan_missing === true
        ? `no: the plan ${account.plan} is not in the settings; put it back, or use accounts set-plan`
        : yesNo(account.active),
    ],
    ['balance', account.balance],
    ['held', account.held],
    ['spent', account.spent],
    ['credited', account.credited],
    ['uncovered', account.uncovered],
    ['calls today', String(account.calls_today)],
    ['requests this minute', String(account.requests_this_minute)],
    ['calls in flight', String(account.calls_in_flight)],
    ...quotaFields(otherQuotasOf(account)),
    ...leasedFields(account),
    ['created', timeText(account.created)],
  ]);
}

/** The quotas that every plan has. `printAccount` prints each in a field of its own. */
const COUNTED_QUOTAS = ['requests_per_minute', 'calls_per_day', 'calls_in_flight'];

function otherQuotasOf({ quotas }: AccountView): AccountView['quotas'] {
  return Object.fromEntries(Object.entries(quotas).filter(([name]) => !COUNTED_QUOTAS.includes(name)));
}

/** Returns the field of what processes have leased; empty if processes do not share the account. */
function leasedFields({ leased }: AccountView): (readonly [string, string])[] {
  if (leased === undefined) return [];
  const { balance, calls_today: callsToday, requests_this_minute: requests, calls_in_flight: calls } = leased;
  const counts = `${callsToday} calls today, ${requests} requests this minute, ${calls} calls in flight`;
  return [['leased in advance', `${balance} of the balance, ${counts}`]];
}

function addCreditCommands(accounts: Command, account: ItemCommands<AccountView>): void {
  account.add(
    'credit',
    'POST /accounts/{account}/credit',
    'Add to the balance, or take away with a negative amount, as debit does.',
    ['accounts credit acme 10.00 --note "invoice 17" --idempotency-key invoice-17'],
    {
      configure: (command) =>
        addCreditOptions(command).argument(
          '<amount>',
          'such as 10.00; to take away: credit acme -- -2.50',
          parseNonEmpty,
        ),
      bodyOf: (options: CreditOptions, [amount = '']) => creditOf(amount, options),
    },
  );
  account.add(
    'debit',
    'POST /accounts/{account}/credit',
    'Take from the balance, at most all of it.',
    ['accounts debit acme 2.50 --note "refund of invoice 17"'],
    {
      configure: (command) => addCreditOptions(command).argument('<amount>', 'such as 2.50', unsignedAmount),
      bodyOf: (options: CreditOptions, [amount = '']) => creditOf(`-${amount}`, options),
    },
  );
  addAdminCommand(accounts, 'credits', 'List the credits and debits, oldest first.', 'accounts credits acme')
    .argument('<account>', 'id or name', parseNonEmpty)
    .action((account: string, options: AdminOptions) =>
      showList(options, 'GET /accounts/{account}/credits', { id: account }, (data) =>
        printTable(CREDIT_COLUMNS, data, 'Nothing was credited yet.'),
      ),
    );
}

const CREDIT_COLUMNS: readonly Column<CreditView>[] = [
  { title: 'TIME', text: ({ created }) => timeText(created) },
  { title: 'AMOUNT', text: ({ amount }) => amount, align: 'right' },
  { title: 'NOTE', text: ({ note }) => note, cut: true },
];

interface CreditOptions {
  readonly note?: string;
  readonly idempotencyKey?: string;
}

function addCreditOptions(command: Command): Command {
  return command
    .option('--note <text>', 'why, for the journal of the account; at most 500 characters')
    .option(
      '--idempotency-key <text>',
      'a word of your own: the same command with the same word is booked once',
      parseNonEmpty,
    );
}

function creditOf(amount: string, { note, idempotencyKey }: CreditOptions): object {
  return { amount, note, idempotency_key: idempotencyKey };
}

/** Rejects a minus, because `debit` adds one and sends a credit. The route checks the rest of the amount. */
function unsignedAmount(text: string): string {
  if (text.startsWith('-')) throw new InvalidArgumentError('Want an amount without its minus.');
  return parseNonEmpty(text);
}
