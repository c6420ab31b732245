/**
 * `tollgate keys …`. What they need is loaded when one of them runs.
 */
import type { Command } from 'commander';
import type { CreatedKeyView, KeyView, RotatedKeyView } from '../admin/key-view.js';
import { listAll, withAdminClient } from './admin-client.js';
import { addConfirmation, confirm, type ConfirmationOptions } from './confirmation.js';
import { durationSeconds, momentSeconds, wholeNumber } from './key-arguments.js';
import { KEY_COLUMNS, keyFields } from './key-text.js';
import { exampleText, nonEmpty, printFields, printJson, printLine, printTable, timeText } from './output.js';
import { addPlaceOptions, type PlaceOptions } from './place.js';

const KEY_ARGUMENT = "the key's id, or its name where that is unique";

interface CreateOptions {
  readonly account: string;
  readonly name: string;
  readonly expires?: number;
  readonly expiresIn?: number;
  readonly requestsPerMinute?: number;
  readonly callsPerDay?: number;
}

export function addKeyCommands(program: Command): void {
  const keys = program
    .command('keys')
    .description('Make, list, show, disable, rotate and delete the API keys of accounts.');

  addPlaceOptions(keys.command('create').description('Make a key. It is shown this once.'))
    .requiredOption('--account <account>', 'id or name', nonEmpty)
    .requiredOption('--name <name>', 'what the key is for; no other key of the account has it', nonEmpty)
    .option('--expires-in <duration>', 'refuse it after 90s, 15m, 24h, 30d …', durationSeconds)
    .option('--expires <moment>', 'refuse it from then on: 2030-01-31, 2030-01-31T12:00Z', momentSeconds)
    .option('--requests-per-minute <n>', "less than the plan's", wholeNumber)
    .option('--calls-per-day <n>', "less than the plan's", wholeNumber)
    .addHelpText('after', exampleText('keys create --account acme --name laptop --expires-in 30d'))
    .action((options: PlaceOptions & CreateOptions) =>
      withAdminClient(options, async (client) => {
        const created = (await client.call('POST', '/keys', {
          account: options.account,
          name: options.name,
          // What was not given is undefined, and not in the JSON.
          expires: options.expires,
          expires_in: options.expiresIn,
          requests_per_minute: options.requestsPerMinute,
          calls_per_day: options.callsPerDay,
        })) as CreatedKeyView;
        if (options.json) printJson(created);
        else await printNewKey(created);
      }),
    );

  addPlaceOptions(keys.command('show').description('Show a key and when it was last used.'))
    .argument('<key>', KEY_ARGUMENT, nonEmpty)
    .addHelpText('after', exampleText('keys show laptop'))
    .action((key: string, options: PlaceOptions) =>
      withAdminClient(options, async (client) => {
        const shown = (await client.call('GET', pathOf(key))) as KeyView;
        if (options.json) printJson(shown);
        else await printFields(keyFields(shown, shown.prefix));
      }),
    );

  addPlaceOptions(
    keys
      .command('rotate')
      .description(
        'Put a new key in the place of another, which is still taken for an hour, or for --grace. It is shown this once.',
      ),
  )
    .argument('<key>', KEY_ARGUMENT, nonEmpty)
    .option(
      '--grace <duration>',
      'how long the former one is still taken, 1h by default; 0: it is refused at once, as after a leak',
      durationSeconds,
    )
    .addHelpText('after', exampleText('keys rotate laptop --grace 24h'))
    .action((key: string, options: PlaceOptions & { grace?: number }) =>
      withAdminClient(options, async (client) => {
        const { grace } = options;
        const rotated = (await client.call('POST', `${pathOf(key)}/rotate`, { grace })) as RotatedKeyView;
        if (options.json) {
          printJson(rotated);
          return;
        }
        await printNewKey(rotated);
        const { id, expired, expires } = rotated.replaces;
        printLine(expired ? `${id} is refused from now on.` : `${id} is taken until ${timeText(expires!)}.`);
      }),
    );

  addPlaceOptions(keys.command('list').description('List keys, those of all accounts by default.'))
    .option('--account <account>', 'of this account alone (id or name)', nonEmpty)
    .addHelpText('after', exampleText('keys list --account acme'))
    .action((options: PlaceOptions & { account?: string }) =>
      withAdminClient(options, async (client) => {
        const { account } = options;
        const query = account === undefined ? '' : `?account=${encodeURIComponent(account)}`;
        const data = await listAll<KeyView>(client, `/keys${query}`);
        if (options.json) printJson({ data, next: null });
        else await printTable(KEY_COLUMNS, data, 'There are no keys: see "keys create --help".');
      }),
    );

  for (const [word, description] of [
    ['disable', 'Refuse a key from now on.'],
    ['enable', 'Take a disabled key again.'],
  ] as const) {
    addPlaceOptions(keys.command(word).description(description))
      .argument('<key>', KEY_ARGUMENT, nonEmpty)
      .addHelpText('after', exampleText(`keys ${word} laptop`))
      .action((key: string, options: PlaceOptions) =>
        withAdminClient(options, async (client) => {
          const changed = (await client.call('POST', `${pathOf(key)}/${word}`)) as KeyView;
          if (options.json) printJson(changed);
          else await printFields(keyFields(changed, changed.prefix));
        }),
      );
  }

  addConfirmation(
    addPlaceOptions(keys.command('delete').description('Delete a key for good, and ask before.')),
  )
    .argument('<key>', KEY_ARGUMENT, nonEmpty)
    .addHelpText('after', exampleText('keys delete laptop --yes'))
    .action(async (key: string, options: PlaceOptions & ConfirmationOptions) => {
      await confirm(`Delete key ${key} for good?`, options);
      await withAdminClient(options, async (client) => {
        const answer = (await client.call('DELETE', pathOf(key))) as { id: string };
        if (options.json) printJson(answer);
        else printLine(`Deleted ${answer.id}.`);
      });
    });
}

async function printNewKey(created: CreatedKeyView): Promise<void> {
  await printFields(keyFields(created, created.key));
  printLine('Keep the key now: it cannot be shown again.');
}

function pathOf(key: string): string {
  return `/keys/${encodeURIComponent(key)}`;
}
