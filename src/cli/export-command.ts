/** `tollgate export`: calls or usage of one day, line by line, for another program: docs/exports.md. */
import { once } from 'node:events';
import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import type { UsageRowView } from '../admin/views.js';
import { type CsvCell, csvOf } from '../core/csv.js';
import { type AdminClient, queryOf, withAdminClient, withQuery } from './admin-client.js';
import { CALL_CELLS, cellsOf, eachCall } from './call-commands.js';
import { addDataOptions, type DataOptions, exampleText } from './options.js';

const FORMATS = ['jsonl', 'csv'] as const;
const PAGE_ROWS = 1_000;

interface ExportOptions extends DataOptions {
  readonly day: string;
  readonly format: (typeof FORMATS)[number];
}

export function addExportCommand(program: Command): void {
  addDataOptions(
    program
      .command('export')
      .description('Write the calls or the usage of one day (UTC) to standard output.')
      .addArgument(
        new Argument('<what>', 'calls: those that call_log has kept; usage: the rows of the books').choices([
          'calls',
          'usage',
        ]),
      ),
  )
    .requiredOption('--day <day>', 'such as 2025-01-31', dayOf)
    .addOption(
      new Option('--format <format>', 'lines of JSON, or CSV').choices([...FORMATS]).default('jsonl'),
    )
    .addHelpText('after', exampleText('export usage --day 2025-01-31 --format csv > usage.csv'))
    .action(async (what: 'calls' | 'usage', options: ExportOptions) => {
      const { day, format } = options;
      await withAdminClient(options, async (client) => {
        const path = withQuery(what === 'calls' ? '/calls' : '/usage/rows', queryOf({ from: day, to: day }));
        if (what === 'calls') {
          const write = writerOf(format, CALL_CELLS, cellsOf);
          await write([]);
          await eachCall(client, path, Infinity, write);
        } else await exportUsage(client, path, format);
      });
    });
}

/** Refuses a day that is in no calendar, such as 2025-02-30. */
function dayOf(text: string): string {
  const ms = /^\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(text) : NaN;
  if (!Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text)) return text;
  throw new InvalidArgumentError('Want a day such as 2025-01-31.');
}

async function exportUsage(
  client: AdminClient,
  path: string,
  format: ExportOptions['format'],
): Promise<void> {
  const write = writerOf(format, ROW_CELLS, (row: UsageRowView) => ROW_CELLS.map((name) => row[name]));
  await write([]);
  for (let cursor: string | undefined; ;) {
    const query = queryOf({ limit: String(PAGE_ROWS), cursor });
    const page = (await client.call('GET', withQuery(path, query))) as {
      data: UsageRowView[];
      next: string | null;
    };
    await write(page.data);
    if (page.next === null) return;
    cursor = page.next;
  }
}

/** Returns what writes a page and waits while the reader of the output is slower. CSV begins with titles. */
function writerOf<Row>(
  format: ExportOptions['format'],
  names: readonly string[],
  cells: (row: Row) => CsvCell[],
): (rows: readonly Row[]) => Promise<void> {
  let isFirst = true;
  return async (rows) => {
    const text =
      format === 'jsonl'
        ? rows.map((row) => `${JSON.stringify(row)}\n`).join('')
        : csvOf(isFirst ? names : undefined, rows.map(cells));
    isFirst = false;
    if (text !== '' && !process.stdout.write(text)) await once(process.stdout, 'drain');
  };
}

const ROW_CELLS = [
  'hour',
  'account',
  'account_name',
  'key',
  'key_name',
  'model',
  'calls',
  'failed_calls',
  'estimated_calls',
  'fallback_calls',
  'prompt_tokens',
  'cached_tokens',
  'cache_write_tokens',
  'cache_write_1h_tokens',
  'completion_tokens',
  'reasoning_tokens',
  'cost',
  'uncovered',
] as const satisfies readonly (keyof UsageRowView)[];
