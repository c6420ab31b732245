/**
 * `tollgate accounts …`. What they need is loaded when one of them runs.
 */
import type { Command } from 'commander';
import type { AccountView } from '../admin/views.js';
import {
  addPlaceOptions,
  listAll,
  withAdminClient,
  type AdminClient,
  type PlaceOptions,
} from './admin-client.js';
import { nonEmpty, printFields, printJson, printTable, timeText, type Column } from './output.js';

export function addAccountCommands(program: Command): void {
  const accounts = program
    .command('accounts')
    .description('Create, list, credit, move and disable accounts.');

  addPlaceOptions(accounts.command('create').description('Create an account.'))
    .argument('<name>', 'unique name', nonEmpty)
    .requiredOption('--plan <plan>', 'a plan of the settings', nonEmpty)
    .option('--credit <amount>', 'first credit, such as 10.00', nonEmpty)
    .action((name: string, options: PlaceOptions & { plan: string; credit?: string }) =>
      show(options, (client) => {
        const { plan, credit } = options;
        return client.call('POST', '/accounts', { name, plan, ...(credit === undefined ? {} : { credit }) });
      }),
    );

  addPlaceOptions(accounts.command('list').description('List all accounts.')).action(
    (options: PlaceOptions) =>
      withAdminClient(options, async (client) => {
        const data = await listAll<AccountView>(client, '/accounts');
        if (options.json) printJson({ data, next: null });
        else printTable(COLUMNS, data, 'There are no accounts: see "accounts create --help".');
      }),
  );

  addPlaceOptions(accounts.command('show').description('Show an account.'))
    .argument('<account>', 'id or name', nonEmpty)
    .action((account: string, options: PlaceOptions) =>
      show(options, (client) => client.call('GET', pathOf(account))),
    );

  addPlaceOptions(
    accounts.command('credit').description('Add to the balance, or take away with a negative amount.'),
  )
    .argument('<account>', 'id or name', nonEmpty)
    .argument('<amount>', 'such as 10.00; to take away: credit acme -- -2.50', nonEmpty)
    .option('--note <text>', 'why, for the journal of the account; at most 500 characters')
    .action((account: string, amount: string, options: PlaceOptions & { note?: string }) =>
      show(options, (client) => {
        const note = options.note === undefined ? {} : { note: options.note };
        return client.call('POST', `${pathOf(account)}/credit`, { amount, ...note });
      }),
    );

  addPlaceOptions(accounts.command('set-plan').description('Move an account to another plan.'))
    .argument('<account>', 'id or name', nonEmpty)
    .requiredOption('--plan <plan>', 'a plan of the settings', nonEmpty)
    .action((account: string, options: PlaceOptions & { plan: string }) =>
      show(options, (client) => client.call('POST', `${pathOf(account)}/set-plan`, { plan: options.plan })),
    );

  for (const [word, description] of [
    ['disable', 'Refuse all keys of an account.'],
    ['enable', 'Take the keys of a disabled account again.'],
  ] as const) {
    addPlaceOptions(accounts.command(word).description(description))
      .argument('<account>', 'id or name', nonEmpty)
      .action((account: string, options: PlaceOptions) =>
        show(options, (client) => client.call('POST', `${pathOf(account)}/${word}`)),
      );
  }
}

const COLUMNS: readonly Column<AccountView>[] = [
  { title: 'NAME', text: ({ name }) => name, align: 'left' },
  { title: 'ID', text: ({ id }) => id, align: 'left' },
  { title: 'PLAN', text: ({ plan }) => plan, align: 'left' },
  { title: 'ACTIVE', text: ({ active }) => yesNo(active), align: 'left' },
  { title: 'BALANCE', text: ({ balance }) => balance, align: 'right' },
  { title: 'HELD', text: ({ held }) => held, align: 'right' },
  { title: 'SPENT', text: ({ spent }) => spent, align: 'right' },
  { title: 'CALLS TODAY', text: ({ calls_today }) => String(calls_today), align: 'right' },
  { title: 'CREATED', text: ({ created }) => timeText(created), align: 'left' },
];

/** Every other command answers with the account as it is then. */
function show(options: PlaceOptions, call: (client: AdminClient) => Promise<unknown>): Promise<void> {
  return withAdminClient(options, async (client) => {
    const account = (await call(client)) as AccountView;
    if (options.json) printJson(account);
    else printFields(fieldsOf(account));
  });
}

function fieldsOf(account: AccountView): (readonly [string, string])[] {
  return [
    ['name', account.name],
    ['id', account.id],
    ['plan', account.plan],
    ['active', yesNo(account.active)],
    ['balance', account.balance],
    ['held', account.held],
    ['spent', account.spent],
    ['credited', account.credited],
    ['uncovered', account.uncovered],
    ['calls today', String(account.calls_today)],
    ['requests this minute', String(account.requests_this_minute)],
    ['created', timeText(account.created)],
  ];
}

function pathOf(account: string): string {
  return `/accounts/${encodeURIComponent(account)}`;
}

function yesNo(value: boolean): string {
  return value ? 'yes' : 'no';
}
