/**
 * `tollgate keys …`: creates, lists, shows, limits, disables, enables, rotates and deletes keys over the
 * admin interface. program.ts adds the commands. Names of commands and options are public, and so is what
 * `--json` prints: the responses of the admin interface (admin/views.ts), unchanged.
 *
 * Must hold: both, whether a gateway runs or not. Test: unit/cli/key-commands.
 */
import { Argument, type Command } from 'commander';
import type { CreatedKeyView, KeyView, RotatedKeyView } from '../admin/views.js';
import { listAll, withAdminClient } from './admin-client.js';
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
import { changedLimitsOf } from './group-commands.js';
import { printFields, printJson, printLine, printTable, timeText } from './output.js';
import { addLimitOptions, limitsOf, quotaFields } from './quota-text.js';
import type { Column } from './table.js';

const KEY_COLUMNS: readonly Column<KeyView>[] = [
  { title: 'NAME', text: ({ name }) => name, align: 'left', cut: true },
  { title: 'ID', text: ({ id }) => id, align: 'left' },
  { title: 'ACCOUNT', text: ({ account_name: name }) => name, align: 'left', cut: true },
  { title: 'KEY', text: ({ prefix }) => prefix, align: 'left' },
  { title: 'ACTIVE', text: activeText, align: 'left' },
  { title: 'LAST USED', text: lastUsedText, align: 'left' },
  { title: 'CREATED', text: ({ created }) => timeText(created), align: 'left' },
];

/** `secretOrPrefix`: the whole key if it is new. Limits are listed only if the key has them. */
function keyFields(key: KeyView, secretOrPrefix: string): (readonly [string, string])[] {
  const fields: (readonly [string, string])[] = [
    ['name', key.name],
    ['id', key.id],
    ['account', `${key.account_name} (${key.account})`],
    ['active', activeText(key)],
    ['created', timeText(key.created)],
    ['last used', lastUsedText(key)],
    ['expires', key.expires === null ? 'never' : timeText(key.expires)],
  ];
  fields.push(...quotaFields(key.quotas));
  if (key.private) fields.push(['private', 'yes: no contents of its calls are kept']);
  if (key.replaced_by !== null) fields.push(['replaced by', key.replaced_by]);
  fields.push(['key', secretOrPrefix]);
  return fields;
}

function activeText({ active, expired }: KeyView): string {
  if (!active) return 'no';
  return expired ? 'expired' : 'yes';
}

function lastUsedText({ last_used: lastUsed }: KeyView): string {
  return lastUsed === null ? 'never' : timeText(lastUsed);
}

const KEY_ARGUMENT = "the key's id, or its name if no other account has a key of that name";

interface CreateOptions {
  readonly account: string;
  readonly name: string;
  readonly expires?: number;
  readonly expiresIn?: number;
  readonly private?: true;
}

export function addKeyCommands(program: Command): void {
  const keys = program
    .command('keys')
    .description('Create, list, show, limit, disable, rotate and delete the API keys of accounts.');

  addLimitOptions(
    addDataOptions(
      keys
        .command('create')
        .description(
          'Create a key, with limits of its own within those of its account. It is shown only once.',
        ),
    )
      .requiredOption('--account <account>', 'id or name', nonEmpty)
      .requiredOption('--name <name>', 'what the key is for; unique in the account', nonEmpty)
      .option('--expires-in <duration>', 'reject it after 90s, 15m, 24h, 30d …', durationSeconds)
      .option('--expires <time>', 'reject it from then on: 2030-01-31, 2030-01-31T12:00Z', momentSeconds)
      .option('--private', 'keep no contents of its calls, whatever call_log.contents says'),
    'set',
  )
    .addHelpText('after', exampleText('keys create --account acme --name laptop --expires-in 30d'))
    .action((options: DataOptions & CreateOptions) =>
      withAdminClient(options, async (client) => {
        const created = (await client.call('POST', '/keys', {
          account: options.account,
          name: options.name,
          // JSON.stringify leaves out the options that are undefined.
          expires: options.expires,
          expires_in: options.expiresIn,
          private: options.private,
          ...limitsOf(options),
        })) as CreatedKeyView;
        if (options.json) printJson(created);
        else await printNewKey(created);
      }),
    );

  addDataOptions(keys.command('show').description('Show a key and when it was last used.'))
    .argument('<key>', KEY_ARGUMENT, nonEmpty)
    .addHelpText('after', exampleText('keys show laptop'))
    .action((key: string, options: DataOptions) => showKey(options, 'GET', pathOf(key)));

  addDataOptions(
    keys
      .command('rotate')
      .description(
        'Replace a key by a new one, which is shown only once. The old key is still accepted for an hour, or for --grace.',
      ),
  )
    .argument('<key>', KEY_ARGUMENT, nonEmpty)
    .option(
      '--grace <duration>',
      'how long the old key is still accepted, 1h by default; 0: it is rejected at once, as after a leak',
      durationSeconds,
    )
    .addHelpText('after', exampleText('keys rotate laptop --grace 24h'))
    .action((key: string, options: DataOptions & { grace?: number }) =>
      withAdminClient(options, async (client) => {
        const { grace } = options;
        const rotated = (await client.call('POST', `${pathOf(key)}/rotate`, { grace })) as RotatedKeyView;
        if (options.json) {
          printJson(rotated);
          return;
        }
        await printNewKey(rotated);
        // A key that has been rotated has a time of expiry, unless it has expired.
        const { id, expired, expires } = rotated.replaces;
        printLine(
          expired ? `${id} is rejected from now on.` : `${id} is accepted until ${timeText(expires!)}.`,
        );
      }),
    );

  addLimitOptions(
    addDataOptions(
      keys
        .command('set-limits')
        .description('Change limits of a key. Limits that are not named stay, and so does what was used.'),
    ).argument('<key>', KEY_ARGUMENT, nonEmpty),
    'change',
  )
    .addHelpText('after', exampleText('keys set-limits laptop --tokens-per-day 100000 --calls-per-day none'))
    .action((key: string, options: DataOptions) =>
      showKey(options, 'POST', `${pathOf(key)}/set-limits`, changedLimitsOf(options)),
    );

  addDataOptions(keys.command('list').description('List keys, those of all accounts by default.'))
    .option('--account <account>', 'of this account alone (id or name)', nonEmpty)
    .addHelpText('after', exampleText('keys list --account acme'))
    .action((options: DataOptions & { account?: string }) =>
      withAdminClient(options, async (client) => {
        const { account } = options;
        const query = account === undefined ? '' : `?account=${encodeURIComponent(account)}`;
        const data = await listAll<KeyView>(client, `/keys${query}`);
        if (options.json) printJson({ data, next: null });
        else await printTable(KEY_COLUMNS, data, 'There are no keys: see "keys create --help".');
      }),
    );

  addDataOptions(
    keys
      .command('set-private')
      .description(
        'Say whether contents of the calls of a key may be kept, if call_log.contents keeps them.',
      ),
  )
    .argument('<key>', KEY_ARGUMENT, nonEmpty)
    .addArgument(new Argument('<private>', 'yes: none are kept').choices(['yes', 'no']))
    .addHelpText('after', exampleText('keys set-private laptop yes'))
    .action((key: string, word: 'yes' | 'no', options: DataOptions) =>
      showKey(options, 'POST', `${pathOf(key)}/set-private`, { private: word === 'yes' }),
    );

  for (const [action, description] of [
    ['disable', 'Reject a key from now on.'],
    ['enable', 'Accept a disabled key again.'],
  ] as const) {
    addDataOptions(keys.command(action).description(description))
      .argument('<key>', KEY_ARGUMENT, nonEmpty)
      .addHelpText('after', exampleText(`keys ${action} laptop`))
      .action((key: string, options: DataOptions) => showKey(options, 'POST', `${pathOf(key)}/${action}`));
  }

  addConfirmation(
    addDataOptions(keys.command('delete').description('Delete a key permanently, and ask before.')),
  )
    .argument('<key>', KEY_ARGUMENT, nonEmpty)
    .addHelpText('after', exampleText('keys delete laptop --yes'))
    .action(async (key: string, options: DataOptions & ConfirmationOptions) => {
      await confirm(`Delete key ${key} permanently?`, options);
      await withAdminClient(options, async (client) => {
        const response = (await client.call('DELETE', pathOf(key))) as { id: string };
        if (options.json) printJson(response);
        else printLine(`Deleted ${response.id}.`);
      });
    });
}

/** Calls the admin interface and prints the key that it responds with. */
function showKey(options: DataOptions, method: 'GET' | 'POST', path: string, body?: object): Promise<void> {
  return withAdminClient(options, async (client) => {
    const key = (await client.call(method, path, body)) as KeyView;
    if (options.json) printJson(key);
    else await printFields(keyFields(key, key.prefix));
  });
}

async function printNewKey(created: CreatedKeyView): Promise<void> {
  await printFields(keyFields(created, created.key));
  printLine('Keep the key now: it cannot be shown again.');
}

function pathOf(key: string): string {
  return `/keys/${encodeURIComponent(key)}`;
}
