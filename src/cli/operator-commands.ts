/** `tollgate operators …`: who has a token for the admin interface, and with which role. */
import { type Command, Option } from 'commander';
import type { CreatedOperatorView, OperatorView } from '../admin/operator-routes.js';
import { ROLES } from '../core/roles.js';
import { withAdminClient } from './admin-client.js';
import {
  addConfirmation,
  addDataOptions,
  confirm,
  type ConfirmationOptions,
  type DataOptions,
  durationSeconds,
  exampleText,
  momentSeconds,
  nonEmpty,
} from './options.js';
import { printFields, printJson, printLine, printTable, timeText } from './output.js';
import type { Column } from './table.js';

const COLUMNS: readonly Column<OperatorView>[] = [
  { title: 'NAME', text: ({ name }) => name, align: 'left', cut: true },
  { title: 'ID', text: ({ id }) => id, align: 'left' },
  { title: 'ROLE', text: ({ role }) => role, align: 'left' },
  { title: 'ACTIVE', text: activeText, align: 'left' },
  { title: 'EXPIRES', text: expiresText, align: 'left' },
  { title: 'LAST USED', text: lastUsedText, align: 'left' },
];

function activeText({ active, expired }: OperatorView): string {
  if (!active) return 'no';
  return expired ? 'expired' : 'yes';
}

function expiresText({ expires }: OperatorView): string {
  return expires === null ? 'never' : timeText(expires);
}

function lastUsedText({ last_used: lastUsed }: OperatorView): string {
  return lastUsed === null ? 'never' : timeText(lastUsed);
}

async function printOperator(
  operator: OperatorView,
  more: readonly (readonly [string, string])[],
): Promise<void> {
  await printFields([
    ['name', operator.name],
    ['id', operator.id],
    ['role', operator.role],
    ['active', activeText(operator)],
    ['created', timeText(operator.created)],
    ['expires', expiresText(operator)],
    ['last used', lastUsedText(operator)],
    ...more,
  ]);
}

interface Expiry {
  readonly expires?: number;
  readonly expires_in?: number;
}

/** Parses a duration, such as 90d, or a moment. A bare number is a moment. */
function expiry(text: string): Expiry {
  return /^\d+[smhd]$/.test(text) ? { expires_in: durationSeconds(text) } : { expires: momentSeconds(text) };
}

const ARGUMENT = "the operator's id or name";
const EXPIRES = '--expires <when>';
const EXPIRES_TEXT = 'reject the token after 24h, 90d …, or from a moment on: 2030-01-31, 2030-01-31T12:00Z';

function roleOption(): Option {
  return new Option('--role <role>', 'what the operator may do').choices([...ROLES]).makeOptionMandatory();
}

export function addOperatorCommands(program: Command): void {
  const operators = program
    .command('operators')
    .description(
      'Create, list, show, change, disable and delete operators: named tokens for the admin interface.',
    );

  addDataOptions(
    operators
      .command('create')
      .description(
        'Create an operator. Its token is shown only once; set it as TOLLGATE_ADMIN_TOKEN, or sign in with it.',
      ),
  )
    .argument('<name>', 'letters, digits and . _ @ + -; unique', nonEmpty)
    .addOption(roleOption())
    .option(EXPIRES, EXPIRES_TEXT, expiry)
    .addHelpText('after', exampleText('operators create ann --role support --expires 90d'))
    .action((name: string, options: DataOptions & { role: string; expires?: Expiry }) =>
      printToken(options, '/operators', { name, role: options.role, ...options.expires }),
    );

  addDataOptions(operators.command('list').description('List operators by name.'))
    .addHelpText('after', exampleText('operators list'))
    .action((options: DataOptions) =>
      withAdminClient(options, async (client) => {
        const page = (await client.call('GET', '/operators')) as { data: OperatorView[] };
        if (options.json) printJson(page);
        else await printTable(COLUMNS, page.data, 'There are no operators: see "operators create --help".');
      }),
    );

  addDataOptions(operators.command('show').description('Show an operator.'))
    .argument('<operator>', ARGUMENT, nonEmpty)
    .addHelpText('after', exampleText('operators show ann'))
    .action((operator: string, options: DataOptions) => show(options, 'GET', pathOf(operator)));

  addDataOptions(
    operators.command('set-role').description('Change the role of an operator, from its next request on.'),
  )
    .argument('<operator>', ARGUMENT, nonEmpty)
    .addOption(roleOption())
    .addHelpText('after', exampleText('operators set-role ann --role finance'))
    .action((operator: string, options: DataOptions & { role: string }) =>
      show(options, 'POST', `${pathOf(operator)}/set-role`, { role: options.role }),
    );

  addDataOptions(
    operators
      .command('rotate')
      .description(
        'Replace the token by a new one, which is shown only once. The old token is rejected at once.',
      ),
  )
    .argument('<operator>', ARGUMENT, nonEmpty)
    .option(EXPIRES, `${EXPIRES_TEXT}; as the old one by default`, expiry)
    .addHelpText('after', exampleText('operators rotate ann --expires 90d'))
    .action((operator: string, options: DataOptions & { expires?: Expiry }) =>
      printToken(options, `${pathOf(operator)}/rotate`, options.expires ?? {}),
    );

  for (const [word, description] of [
    ['disable', 'Reject the token of an operator from now on, and end its sessions.'],
    ['enable', 'Accept the token of a disabled operator again.'],
  ] as const) {
    addDataOptions(operators.command(word).description(description))
      .argument('<operator>', ARGUMENT, nonEmpty)
      .addHelpText('after', exampleText(`operators ${word} ann`))
      .action((operator: string, options: DataOptions) =>
        show(options, 'POST', `${pathOf(operator)}/${word}`),
      );
  }

  addConfirmation(
    addDataOptions(
      operators.command('delete').description('Delete an operator permanently, and ask before.'),
    ),
  )
    .argument('<operator>', ARGUMENT, nonEmpty)
    .addHelpText('after', exampleText('operators delete ann --yes'))
    .action(async (operator: string, options: DataOptions & ConfirmationOptions) => {
      await confirm(`Delete operator ${operator} permanently?`, options);
      await withAdminClient(options, async (client) => {
        const response = (await client.call('DELETE', pathOf(operator))) as { id: string };
        if (options.json) printJson(response);
        else printLine(`Deleted ${response.id}.`);
      });
    });
}

/** Calls the admin interface and prints the operator that it responds with. */
function show(options: DataOptions, method: 'GET' | 'POST', path: string, body?: object): Promise<void> {
  return withAdminClient(options, async (client) => {
    const operator = (await client.call(method, path, body)) as OperatorView;
    if (options.json) printJson(operator);
    else await printOperator(operator, []);
  });
}

/** The same of a response with a new token. */
function printToken(options: DataOptions, path: string, body: object): Promise<void> {
  return withAdminClient(options, async (client) => {
    const created = (await client.call('POST', path, body)) as CreatedOperatorView;
    if (options.json) {
      printJson(created);
      return;
    }
    await printOperator(created, [['token', created.token]]);
    printLine('Keep the token now: it cannot be shown again.');
  });
}

function pathOf(operator: string): string {
  return `/operators/${encodeURIComponent(operator)}`;
}
