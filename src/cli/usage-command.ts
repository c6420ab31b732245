/**
 * `tollgate usage`: sums of calls, tokens and cost. program.ts adds the command, which calls the admin
 * interface; the gateway computes the sums.
 *
 * Must hold: in a folder without a store the command fails and makes none, because a wrong folder would look
 * like a folder without calls (test/unit/cli/store-client.test.ts). The sums, columns and CSV:
 * test/e2e/user-path.test.ts.
 */
import { Option, type Command } from 'commander';
import type { UsageView } from '../admin/views.js';
import type { UsageDimension } from '../registry/usage-report.js';
import { addAdminCommand } from './admin-command.js';
import { type AdminClient, withAdminClient } from './admin-client.js';
import { readList } from './admin-lists.js';
import { type AdminOptions, parseNonEmpty } from './options.js';
import { Misuse, printJson, printTable, timeText } from './output.js';
import type { Column } from './table.js';

/**
 * What lines can be grouped by. A line has the field of the chosen name. Only the type of USAGE_DIMENSIONS
 * (registry/usage-report.ts) is imported, because the value would load the registry.
 */
const LINES_BY = ['account', 'key', 'model', 'day', 'hour'] as const satisfies readonly UsageDimension[];

interface UsageOptions extends AdminOptions {
  readonly account?: string;
  readonly key?: string;
  readonly model?: string;
  readonly from?: string;
  readonly to?: string;
  readonly by: (typeof LINES_BY)[number];
  readonly csv?: boolean;
}

export function addUsageCommand(program: Command): void {
  addAdminCommand(
    program,
    'usage',
    'Sum up calls, tokens and cost, up to the last call that has ended.',
    'usage --account acme --from 2025-01-01 --to 2025-01-31 --by model',
    'usage --by account --csv',
  )
    .option('--account <account>', 'of this account (id or name)', parseNonEmpty)
    .option('--key <key>', 'of this key (id or name)', parseNonEmpty)
    .option('--model <model>', 'of this model (id or alias)', parseNonEmpty)
    .option(
      '--from <time>',
      'a day such as 2025-01-31 (UTC), or Unix seconds; by default all there is',
      parseNonEmpty,
    )
    .option('--to <time>', 'the same; the day belongs to it', parseNonEmpty)
    .addOption(new Option('--by <what>', 'a line for each').choices([...LINES_BY]).default('day'))
    .option('--csv', 'print CSV')
    .action(showUsage);
}

/**
 * How long the gateway may take. A large store has millions of rows, of which a gateway reads some 50,000 a
 * second besides its other work. Below the 300 s after which Node's fetch gives up by itself.
 */
const REPORT_TIMEOUT_MS = 290_000;

async function showUsage(options: UsageOptions): Promise<void> {
  if (options.csv === true && options.json === true) throw new Misuse('Give one of --json and --csv.');
  const show = async (client: AdminClient): Promise<void> => {
    const { account, key, model, from, to, by } = options;
    const query = { account, key, model, from, to, by };
    if (options.csv === true) {
      process.stdout.write(await client.csv('GET /usage', { query: { ...query, format: 'csv' } }));
      return;
    }
    const list = await readList(client, 'GET /usage', { query });
    if (options.json === true) printJson(list);
    else await printTable(columnsOf(by), list.data, 'Nothing was called.');
  };
  await withAdminClient(options, show, { timeoutMs: REPORT_TIMEOUT_MS });
}

function columnsOf(by: UsageOptions['by']): Column<UsageView>[] {
  const nameText = (line: UsageView): string => {
    const value = line[by];
    // A number is an hour, in Unix seconds. All other names are texts.
    return typeof value === 'number' ? timeText(value) : String(value);
  };
  const isNamed = by === 'account' || by === 'key';
  return [
    ...nameColumnsOf(by),
    { title: isNamed ? 'ID' : capitals(by), text: nameText, cut: by === 'model' },
    { title: 'CALLS', text: ({ calls }) => String(calls), align: 'right' },
    { title: 'FAILED', text: ({ failed_calls }) => String(failed_calls), align: 'right' },
    { title: 'PROMPT', text: ({ prompt_tokens }) => String(prompt_tokens), align: 'right' },
    { title: 'CACHED', text: ({ cached_tokens }) => String(cached_tokens), align: 'right' },
    { title: 'CACHE WRITE', text: ({ cache_write_tokens }) => String(cache_write_tokens), align: 'right' },
    { title: 'COMPLETION', text: ({ completion_tokens }) => String(completion_tokens), align: 'right' },
    { title: 'REASONING', text: ({ reasoning_tokens }) => String(reasoning_tokens), align: 'right' },
    { title: 'COST', text: ({ cost }) => cost, align: 'right' },
    { title: 'UNCOVERED', text: ({ uncovered }) => uncovered, align: 'right' },
  ];
}

function capitals<Name extends string>(name: Name): Uppercase<Name> {
  return name.toUpperCase() as Uppercase<Name>;
}

/**
 * Returns the columns with the names of a line's account and key. A key without a name was deleted. An
 * account without a name is not in this host's store, which may have been restored from an older copy.
 */
function nameColumnsOf(by: UsageOptions['by']): Column<UsageView>[] {
  const key: Column<UsageView> = {
    title: 'KEY',
    text: ({ key_name: name }) => name ?? '(deleted)',
    cut: true,
  };
  const account: Column<UsageView> = {
    title: 'ACCOUNT',
    text: ({ account_name: name }) => name ?? '',
    cut: true,
  };
  if (by === 'key') return [key, account];
  return by === 'account' ? [account] : [];
}
