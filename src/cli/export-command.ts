/**
 * `tollgate export`: writes the calls or the usage of one day, for other programs, as lines or Parquet
 * (docs/exports.md). program.ts adds the command, which reads from the admin interface page by page.
 *
 * Must hold: if the gateway fails halfway, or cannot read all calls, the output is cut off and the exit code
 * is not 0 (test/e2e/export.test.ts); in a folder without a store nothing is written
 * (test/unit/cli/store-client.test.ts).
 */
import { once } from 'node:events';
import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import { parseMomentMs } from '../core/clock.js';
import { addAdminCommand } from './admin-command.js';
import { type AdminClient, type RequestInput, withAdminClient } from './admin-client.js';
import { eachPage, type ItemOf, unreadText } from './admin-lists.js';
import { CALL_COLUMNS, type ColumnsOf, csvTextOf, USAGE_COLUMNS } from './export-columns.js';
import type { AdminOptions } from './options.js';
import { CommandError, Misuse } from './output.js';

const FORMATS = ['jsonl', 'csv', 'parquet'] as const;

interface ExportOptions extends AdminOptions {
  readonly day: string;
  readonly format: (typeof FORMATS)[number];
}

export function addExportCommand(program: Command): void {
  addAdminCommand(
    program,
    'export',
    'Write the calls or the usage of one day (UTC) to standard output.',
    'export usage --day 2025-01-31 --format csv > usage.csv',
    'export calls --day 2025-01-31 --format parquet > calls.parquet',
  )
    .addArgument(
      new Argument('<what>', 'calls: those that call_log has kept; usage: the rows of the books').choices([
        'calls',
        'usage',
      ]),
    )
    .requiredOption('--day <day>', 'such as 2025-01-31', dayOf)
    .addOption(
      new Option('--format <format>', 'lines of JSON, CSV, or an Apache Parquet file')
        .choices([...FORMATS])
        .default('jsonl'),
    )
    .action(async (rowKind: 'calls' | 'usage', options: ExportOptions) => {
      const { day, format } = options;
      if (format === 'parquet' && process.stdout.isTTY)
        throw new Misuse('A Parquet file is no text for a terminal: redirect it, such as > calls.parquet.');
      const input = { query: { from: day, to: day } };
      await withAdminClient(options, (client) =>
        rowKind === 'calls'
          ? exportRows(client, 'GET /calls', input, CALL_COLUMNS, format)
          : exportRows(client, 'GET /usage/rows', input, USAGE_COLUMNS, format),
      );
    });
}

/** Rejects a day that is in no calendar, such as 2025-02-30. */
function dayOf(text: string): string {
  if (/^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(parseMomentMs(text))) return text;
  throw new InvalidArgumentError('Want a day such as 2025-01-31.');
}

type ExportRoute = 'GET /calls' | 'GET /usage/rows';

async function exportRows<Route extends ExportRoute>(
  client: AdminClient,
  route: Route,
  input: RequestInput<Route>,
  columns: ColumnsOf<ItemOf<Route>>,
  format: ExportOptions['format'],
): Promise<void> {
  const output = await outputOf<ItemOf<Route>>(format, columns);
  await eachPage(client, route, input, (rows, unread) => {
    if (unread.length > 0) throw new CommandError(unreadText(unread));
    return output.write(rows);
  });
  await output.end();
}

/**
 * Takes rows page by page. `write` resolves when the reader of the output can take more, so memory holds few
 * pages. If a request for a page fails, `end` is not called: no program reads a Parquet file without its end.
 */
interface Output<Row> {
  readonly write: (rows: readonly Row[]) => Promise<void>;
  readonly end: () => Promise<void>;
}

/** Lines of JSON have each row as it came, CSV and Parquet the `columns`. */
async function outputOf<Row extends object>(
  format: ExportOptions['format'],
  columns: ColumnsOf<Row>,
): Promise<Output<Row>> {
  if (format === 'parquet') {
    // Imported only if needed, so that other commands start fast.
    const { ParquetFile } = await import('./parquet.js');
    const file = new ParquetFile<Row>(process.stdout, columns);
    return { write: (rows) => file.write(rows), end: () => file.end() };
  }
  const print = async (text: string): Promise<void> => {
    if (text !== '' && !process.stdout.write(text)) await once(process.stdout, 'drain');
  };
  if (format === 'csv') await print(csvTextOf(columns, [], { titles: true }));
  return {
    write: (rows) =>
      print(
        format === 'csv'
          ? csvTextOf(columns, rows, { titles: false })
          : rows.map((row) => `${JSON.stringify(row)}\n`).join(''),
      ),
    end: () => Promise.resolve(),
  };
}
