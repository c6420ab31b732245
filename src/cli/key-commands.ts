/**
 * `tollgate keys …`. What they need is loaded when one of them runs.
 */
import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import type { KeyView } from '../admin/views.js';
import { addPlaceOptions, listAll, withAdminClient, type PlaceOptions } from './admin-client.js';
import {
  nonEmpty,
  printFields,
  printJson,
  printLine,
  printTable,
  Refusal,
  timeText,
  type Column,
} from './output.js';

export function addKeyCommands(program: Command): void {
  const keys = program
    .command('keys')
    .description('Make, list, disable and delete the API keys of accounts.');

  addPlaceOptions(keys.command('create').description('Make a key. It is shown this once.'))
    .requiredOption('--account <account>', 'id or name', nonEmpty)
    .requiredOption('--name <name>', 'what the key is for', nonEmpty)
    .action((options: PlaceOptions & { account: string; name: string }) =>
      withAdminClient(options, async (client) => {
        const { account, name } = options;
        const created = (await client.call('POST', '/keys', { account, name })) as KeyView & { key: string };
        if (options.json) {
          printJson(created);
          return;
        }
        printFields(fieldsOf(created, created.key));
        printLine('Keep the key now: it cannot be shown again.');
      }),
    );

  addPlaceOptions(keys.command('list').description('List keys, those of all accounts by default.'))
    .option('--account <account>', 'of this account alone (id or name)', nonEmpty)
    .action((options: PlaceOptions & { account?: string }) =>
      withAdminClient(options, async (client) => {
        const { account } = options;
        const query = account === undefined ? '' : `?account=${encodeURIComponent(account)}`;
        const data = await listAll<KeyView>(client, `/keys${query}`);
        if (options.json) printJson({ data, next: null });
        else printTable(COLUMNS, data, 'There are no keys: see "keys create --help".');
      }),
    );

  for (const [word, description] of [
    ['disable', 'Refuse a key from now on.'],
    ['enable', 'Take a disabled key again.'],
  ] as const) {
    addPlaceOptions(keys.command(word).description(description))
      .argument('<key>', "the key's id, or its name where that is unique", nonEmpty)
      .action((key: string, options: PlaceOptions) =>
        withAdminClient(options, async (client) => {
          const changed = (await client.call('POST', `${pathOf(key)}/${word}`)) as KeyView;
          if (options.json) printJson(changed);
          else printFields(fieldsOf(changed, changed.prefix));
        }),
      );
  }

  addPlaceOptions(keys.command('delete').description('Delete a key for good.'))
    .argument('<key>', "the key's id, or its name where that is unique", nonEmpty)
    .option('--yes', 'do not ask')
    .action(async (key: string, options: PlaceOptions & { yes?: boolean }) => {
      if (options.yes !== true) await confirm(`Delete key ${key} for good?`);
      await withAdminClient(options, async (client) => {
        const answer = (await client.call('DELETE', pathOf(key))) as { id: string };
        if (options.json) printJson(answer);
        else printLine(`Deleted ${answer.id}.`);
      });
    });
}

const COLUMNS: readonly Column<KeyView>[] = [
  { title: 'NAME', text: ({ name }) => name, align: 'left' },
  { title: 'ID', text: ({ id }) => id, align: 'left' },
  { title: 'ACCOUNT', text: ({ account }) => account, align: 'left' },
  { title: 'KEY', text: ({ prefix }) => prefix, align: 'left' },
  { title: 'ACTIVE', text: ({ active }) => (active ? 'yes' : 'no'), align: 'left' },
  { title: 'CREATED', text: ({ created }) => timeText(created), align: 'left' },
];

/** `shown` is the key itself when it is new, else its beginning. */
function fieldsOf(key: KeyView, shown: string): (readonly [string, string])[] {
  return [
    ['name', key.name],
    ['id', key.id],
    ['account', key.account],
    ['active', key.active ? 'yes' : 'no'],
    ['created', timeText(key.created)],
    ['key', shown],
  ];
}

/** Throws `Refusal` unless a person at a terminal says yes. */
async function confirm(question: string): Promise<void> {
  if (!process.stdin.isTTY)
    throw new Refusal('Nobody is here to confirm: give --yes to delete without asking.');
  // The question goes where output is not captured.
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await terminal.question(`${question} [y/N] `);
    if (!/^y(es)?$/i.test(answer.trim())) throw new Refusal('Nothing was deleted.');
  } finally {
    terminal.close();
  }
}

function pathOf(key: string): string {
  return `/keys/${encodeURIComponent(key)}`;
}
