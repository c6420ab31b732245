/** `tollgate accounts …`, over the admin interface. Commands that move money are in credit-commands.ts. */
import type { Command } from 'commander';
import type { AccountView } from '../admin/views.js';
import { listAll, queryOf, withAdminClient, withQuery, type AdminClient } from './admin-client.js';
import { addCreditCommands } from './credit-commands.js';
import {
  addConfirmation,
  addDataOptions,
  confirm,
  type ConfirmationOptions,
  type DataOptions,
  exampleText,
  nonEmpty,
} from './options.js';
import { Misuse, printFields, printJson, printTable, timeText, yesNo } from './output.js';
import { quotaFields } from './quota-text.js';
import type { Column } from './table.js';

interface ListOptions extends DataOptions {
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

  addDataOptions(accounts.command('create').description('Create an account.'))
    .argument('<name>', 'unique name', nonEmpty)
    .requiredOption('--plan <plan>', 'a plan of the settings', nonEmpty)
    .option('--credit <amount>', 'first credit, such as 10.00', nonEmpty)
    .option('--group <group>', 'the group that it is in (id or name)', nonEmpty)
    .addHelpText(
      'after',
      exampleText(
        'accounts create acme --plan free --credit 10.00',
        'accounts create ann --plan free --group research',
      ),
    )
    .action((name: string, options: DataOptions & { plan: string; credit?: string; group?: string }) =>
      showAccount(options, (client) => {
        const { plan, credit, group } = options;
        // JSON.stringify leaves out the options that are undefined.
        return client.call('POST', '/accounts', { name, plan, credit, group });
      }),
    );

  addDataOptions(accounts.command('list').description('List accounts, all of them by default.'))
    .option('--search <text>', 'those with this in their name or id', nonEmpty)
    .option('--plan <plan>', 'those on this plan', nonEmpty)
    .option('--group <group>', 'those in this group (id or name), or in one below it', nonEmpty)
    .addHelpText('after', exampleText('accounts list --search acme', 'accounts list --plan free --json'))
    .action((options: ListOptions) =>
      withAdminClient(options, async (client) => {
        const { search, plan, group } = options;
        const path = withQuery('/accounts', queryOf({ search, plan, group }));
        const data = await listAll<AccountView>(client, path);
        if (options.json) printJson({ data, next: null });
        else await printTable(columnsOf(data), data, noneOf(options));
      }),
    );

  addDataOptions(accounts.command('show').description('Show an account with its live counters.'))
    .argument('<account>', 'id or name', nonEmpty)
    .addHelpText('after', exampleText('accounts show acme'))
    .action((account: string, options: DataOptions) =>
      showAccount(options, (client) => client.call('GET', accountPath(account))),
    );

  addCreditCommands(accounts);

  addDataOptions(accounts.command('set-plan').description('Move an account to another plan.'))
    .argument('<account>', 'id or name', nonEmpty)
    .requiredOption('--plan <plan>', 'a plan of the settings', nonEmpty)
    .addHelpText('after', exampleText('accounts set-plan acme --plan paid'))
    .action((account: string, options: DataOptions & { plan: string }) =>
      showAccount(options, (client) =>
        client.call('POST', `${accountPath(account)}/set-plan`, { plan: options.plan }),
      ),
    );

  addDataOptions(
    accounts
      .command('set-group')
      .description('Move an account to another group. What it has used stays used in the former one.'),
  )
    .argument('<account>', 'id or name', nonEmpty)
    .option('--group <group>', 'id or name', nonEmpty)
    .option('--none', 'in no group')
    .addHelpText(
      'after',
      exampleText('accounts set-group acme --group research', 'accounts set-group acme --none'),
    )
    .action((account: string, options: DataOptions & { group?: string; none?: true }) => {
      const { group, none } = options;
      if ((group === undefined) === (none === undefined)) throw new Misuse('Give --group or --none.');
      return showAccount(options, (client) =>
        client.call('POST', `${accountPath(account)}/set-group`, { group: group ?? null }),
      );
    });

  addConfirmation(
    addDataOptions(accounts.command('disable').description('Reject all keys of an account, and ask before.')),
  )
    .argument('<account>', 'id or name', nonEmpty)
    .addHelpText('after', exampleText('accounts disable acme --yes'))
    .action(async (account: string, options: DataOptions & ConfirmationOptions) => {
      await confirm(`Reject all calls of account ${account}?`, options);
      await showAccount(options, (client) => client.call('POST', `${accountPath(account)}/disable`));
    });

  addDataOptions(accounts.command('enable').description('Accept the keys of a disabled account again.'))
    .argument('<account>', 'id or name', nonEmpty)
    .addHelpText('after', exampleText('accounts enable acme'))
    .action((account: string, options: DataOptions) =>
      showAccount(options, (client) => client.call('POST', `${accountPath(account)}/enable`)),
    );
}

const GROUP_COLUMN: Column<AccountView> = {
  title: 'GROUP',
  text: ({ group_name: name }) => name ?? '',
  align: 'left',
  cut: true,
};

/** Operators without groups do not read of them. */
function columnsOf(accounts: readonly AccountView[]): readonly Column<AccountView>[] {
  if (accounts.every(({ group }) => group === null)) return COLUMNS;
  return [...COLUMNS.slice(0, 3), GROUP_COLUMN, ...COLUMNS.slice(3)];
}

const COLUMNS: readonly Column<AccountView>[] = [
  { title: 'NAME', text: ({ name }) => name, align: 'left', cut: true },
  { title: 'ID', text: ({ id }) => id, align: 'left' },
  { title: 'PLAN', text: ({ plan }) => plan, align: 'left', cut: true },
  {
    title: 'ACTIVE',
    text: ({ active, plan_missing }) => (plan_missing ? 'no plan' : yesNo(active)),
    align: 'left',
  },
  { title: 'BALANCE', text: ({ balance }) => balance, align: 'right' },
  { title: 'HELD', text: ({ held }) => held, align: 'right' },
  { title: 'SPENT', text: ({ spent }) => spent, align: 'right' },
  { title: 'CALLS TODAY', text: ({ calls_today }) => String(calls_today), align: 'right' },
  { title: 'CREATED', text: ({ created }) => timeText(created), align: 'left' },
];

function noneOf({ search, plan, group }: ListOptions): string {
  return search === undefined && plan === undefined && group === undefined
    ? 'There are no accounts: see "accounts create --help".'
    : 'No account matches.';
}

/** Calls the admin interface and prints the account that it responds with. */
export function showAccount(
  options: DataOptions,
  call: (client: AdminClient) => Promise<unknown>,
): Promise<void> {
  return withAdminClient(options, async (client) => {
    const account = (await call(client)) as AccountView;
    if (options.json) printJson(account);
    else await printFields(fieldsOf(account));
  });
}

function fieldsOf(account: AccountView): (readonly [string, string])[] {
  return [
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
    ...quotaFields(quotasShownOf(account)),
    ...leasedOf(account),
    ['created', timeText(account.created)],
  ];
}

/** Every plan has these, and lines of their own tell how many are used. */
const TOLD_APART = ['requests_per_minute', 'calls_per_day', 'calls_in_flight'];

function quotasShownOf({ quotas }: AccountView): AccountView['quotas'] {
  return Object.fromEntries(Object.entries(quotas).filter(([name]) => !TOLD_APART.includes(name)));
}

/** Only if processes share the account. */
function leasedOf({ leased }: AccountView): (readonly [string, string])[] {
  if (leased === undefined) return [];
  const { balance, calls_today: ofDay, requests_this_minute: ofMinute, calls_in_flight: calls } = leased;
  const counted = `${ofDay} calls today, ${ofMinute} requests this minute, ${calls} calls in flight`;
  return [['leased in advance', `${balance} of the balance, ${counted}`]];
}

export function accountPath(account: string): string {
  return `/accounts/${encodeURIComponent(account)}`;
}
