/**
 * `tollgate keys …`: creates, lists, shows, limits, disables, enables, rotates and deletes keys over the
 * admin interface. program.ts adds the commands. Names of commands and options are public, and so is what
 * `--json` prints: the responses of the admin interface (admin/views.ts), unchanged.
 *
 * Must hold: responses are the same whether a gateway runs or not. Who disables or deletes a key is told of
 * the former one, if that is still accepted (test/unit/cli/key-commands.test.ts).
 */
import { Argument, type Command } from 'commander';
import type { CreatedKeyView, KeyView } from '../admin/views.js';
import { addAdminCommand, ItemCommands, showList, showView } from './admin-command.js';
import { type AdminClient } from './admin-client.js';
import { readList } from './admin-lists.js';
import { type AdminOptions, durationSeconds, lifeSeconds, momentSeconds, parseNonEmpty } from './options.js';
import { activeText, printFields, printLine, printTable, timeOrNever, timeText } from './output.js';
import { addLimitOptions, CHANGE_OF_LIMITS, limitsOf, quotaFields } from './quota-text.js';
import type { Column } from './table.js';

const KEY_COLUMNS: readonly Column<KeyView>[] = [
  { title: 'NAME', text: ({ name }) => name, cut: true },
  { title: 'ID', text: ({ id }) => id },
  { title: 'ACCOUNT', text: ({ account_name: name }) => name, cut: true },
  { title: 'KEY', text: ({ prefix }) => prefix },
  { title: 'ACTIVE', text: activeText },
  { title: 'LAST USED', text: ({ last_used: used }) => timeOrNever(used) },
  { title: 'CREATED', text: ({ created }) => timeText(created) },
];

/** Adds EXPIRES_COLUMN after the column titled ACTIVE, if a key expires: keys that were rotated do. */
function columnsOf(keys: readonly KeyView[]): readonly Column<KeyView>[] {
  if (keys.every(({ expires }) => expires === null)) return KEY_COLUMNS;
  return KEY_COLUMNS.flatMap((column) => (column.title === 'ACTIVE' ? [column, EXPIRES_COLUMN] : [column]));
}

const EXPIRES_COLUMN: Column<KeyView> = {
  title: 'EXPIRES',
  text: ({ expires }) => timeOrNever(expires),
};

/** `secretOrPrefix`: the whole key if it is new. Quotas are listed only if the key has limits. */
function keyFields(key: KeyView, secretOrPrefix: string): (readonly [string, string])[] {
  return [
    ['name', key.name],
    ['id', key.id],
    ['account', `${key.account_name} (${key.account})`],
    ['active', activeText(key)],
    ['created', timeText(key.created)],
    ['last used', timeOrNever(key.last_used)],
    ['expires', timeOrNever(key.expires)],
    ...quotaFields(key.quotas),
    ...(key.private ? [['private', 'yes: no contents of its calls are kept'] as const] : []),
    ...(key.replaced_by === null ? [] : [['replaced by', key.replaced_by] as const]),
    ['key', secretOrPrefix],
  ];
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
  const key = new ItemCommands<KeyView>(keys, 'key', KEY_ARGUMENT, printKey);
  // `--help` lists the commands in this order.
  addCreateCommand(keys);
  key.add('show', 'GET /keys/{key}', 'Show a key and when it was last used.', ['keys show laptop']);
  addRotateCommand(keys);
  key.add(
    'set-limits',
    'POST /keys/{key}/set-limits',
    'Change limits of a key. Limits that are not named stay, and so does what was used.',
    ['keys set-limits laptop --tokens-per-day 100000 --calls-per-day none'],
    CHANGE_OF_LIMITS,
  );
  addListCommand(keys);
  key.add(
    'set-private',
    'POST /keys/{key}/set-private',
    'Say whether contents of the calls of a key may be kept, if call_log.contents keeps them.',
    ['keys set-private laptop yes'],
    {
      configure: (command) =>
        command.addArgument(new Argument('<private>', 'yes: none are kept').choices(['yes', 'no'])),
      bodyOf: (_, [isPrivate]) => ({ private: isPrivate === 'yes' }),
    },
  );
  key.add('disable', 'POST /keys/{key}/disable', 'Reject a key from now on.', ['keys disable laptop'], {
    remarksOf: formerKeyRemarks,
  });
  key.add('enable', 'POST /keys/{key}/enable', 'Accept a disabled key again.', ['keys enable laptop']);
  key.addDelete(
    'DELETE /keys/{key}',
    'Delete a key permanently, and ask before.',
    'keys delete laptop --yes',
    formerKeyRemarks,
  );
}

function addCreateCommand(keys: Command): void {
  addLimitOptions(
    addAdminCommand(
      keys,
      'create',
      'Create a key, with limits of its own within those of its account. It is shown only once.',
      'keys create --account acme --name laptop --expires-in 30d',
    )
      .requiredOption('--account <account>', 'id or name', parseNonEmpty)
      .requiredOption('--name <name>', 'what the key is for; unique in the account', parseNonEmpty)
      .option('--expires-in <duration>', 'reject it after 90s, 15m, 24h, 30d …', lifeSeconds)
      .option('--expires <time>', 'reject it from then on: 2030-01-31, 2030-01-31T12:00Z', momentSeconds)
      .option('--private', 'keep no contents of its calls, whatever call_log.contents says'),
    'set',
  ).action((options: AdminOptions & CreateOptions) => {
    const { account, name, expires, expiresIn, private: isPrivate } = options;
    // JSON.stringify leaves out the options that are undefined.
    const body = { account, name, expires, expires_in: expiresIn, private: isPrivate, ...limitsOf(options) };
    return showView(options, 'POST /keys', { body }, printNewKey);
  });
}

function addRotateCommand(keys: Command): void {
  addAdminCommand(
    keys,
    'rotate',
    'Replace a key by a new one, which is shown only once. The old key is still accepted for an hour, or for --grace.',
    'keys rotate laptop --grace 24h',
  )
    .argument('<key>', KEY_ARGUMENT, parseNonEmpty)
    .option(
      '--grace <duration>',
      'how long the old key is still accepted, 1h by default; 0: it is rejected at once, as after a leak',
      durationSeconds,
    )
    .action((key: string, { grace, ...options }: AdminOptions & { grace?: number }) =>
      showView(options, 'POST /keys/{key}/rotate', { id: key, body: { grace } }, async (rotated) => {
        await printNewKey(rotated);
        // `expires` is set, because the rotation has given the former key an expiry.
        const { id, expired, expires } = rotated.replaces;
        printLine(
          expired ? `${id} is rejected from now on.` : `${id} is accepted until ${timeText(expires!)}.`,
        );
      }),
    );
}

function addListCommand(keys: Command): void {
  addAdminCommand(keys, 'list', 'List keys, those of all accounts by default.', 'keys list --account acme')
    .option('--account <account>', 'of this account alone (id or name)', parseNonEmpty)
    .action(({ account, ...options }: AdminOptions & { account?: string }) =>
      showList(options, 'GET /keys', { query: { account } }, (views) =>
        printTable(columnsOf(views), views, 'There are no keys: see "keys create --help".'),
      ),
    );
}

/**
 * Returns a line for each other key of that name that is accepted: a rotation leaves the former key valid for
 * its grace, and the name then means the new one. Who stops somebody by the name must know.
 */
async function formerKeyRemarks(client: AdminClient, reference: string): Promise<string[]> {
  const { id, name, account } = await client.call('GET /keys/{key}', { id: reference });
  const { data } = await readList(client, 'GET /keys', { query: { account } });
  const others = data.filter((key) => key.name === name && key.id !== id && key.active && !key.expired);
  return others.map(
    (other) =>
      `${other.id} has the same name and is accepted${other.expires === null ? '' : ` until ${timeText(other.expires)}`}: to reject it too, give its id.`,
  );
}

function printKey(key: KeyView): Promise<void> {
  return printFields(keyFields(key, key.prefix));
}

async function printNewKey(created: CreatedKeyView): Promise<void> {
  await printFields(keyFields(created, created.key));
  printLine('Keep the key now: it cannot be shown again.');
}
