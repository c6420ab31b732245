/**
 * `tollgate export`: writes the calls or the usage of one day, for other programs, as lines or Parquet
 * (docs/exports.md). program.ts adds the command, which reads from the admin interface page by page.
 *
 * Must hold: if the gateway fails halfway, or cannot read all calls, the output is cut off and the exit code
 * is not 0 (test/e2e/export.test.ts); in a folder without a store nothing is written
 * (test/unit/cli/store-client.test.ts). Each field of CallView and UsageRowView is exported: without its kind
 * (COLUMN_KINDS) or its place among the columns (AllOf) it does not compile.
 */
import { once } from 'node:events';
import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import type { CallView } from '../admin/call-routes.js';
import type { UsageRowView } from '../admin/views.js';
import { type CsvCell, csvOf } from '../core/csv.js';
import { parseMomentMs } from '../core/clock.js';
import { type AdminClient, eachPage, unreadText, withAdminClient } from './admin-client.js';
import { CALL_CSV_FIELDS, csvCellsOf } from './call-text.js';
import { addAdminOptions, type AdminOptions, exampleText } from './options.js';
import { CommandError, Misuse } from './output.js';

const FORMATS = ['jsonl', 'csv', 'parquet'] as const;

interface ExportOptions extends AdminOptions {
  readonly day: string;
  readonly format: (typeof FORMATS)[number];
}

export function addExportCommand(program: Command): void {
  addAdminOptions(
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
      new Option('--format <format>', 'lines of JSON, CSV, or an Apache Parquet file')
        .choices([...FORMATS])
        .default('jsonl'),
    )
    .addHelpText(
      'after',
      exampleText(
        'export usage --day 2025-01-31 --format csv > usage.csv',
        'export calls --day 2025-01-31 --format parquet > calls.parquet',
      ),
    )
    .action(async (rowKind: 'calls' | 'usage', options: ExportOptions) => {
      const { day, format } = options;
      if (format === 'parquet' && process.stdout.isTTY)
        throw new Misuse('A Parquet file is no text for a terminal: redirect it, such as > calls.parquet.');
      await withAdminClient(options, (client) => exportRows(client, rowKind, day, format));
    });
}

/** Rejects a day that is in no calendar, such as 2025-02-30. */
function dayOf(text: string): string {
  if (/^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(parseMomentMs(text))) return text;
  throw new InvalidArgumentError('Want a day such as 2025-01-31.');
}

type Format = ExportOptions['format'];

async function exportRows(
  client: AdminClient,
  rowKind: 'calls' | 'usage',
  day: string,
  format: Format,
): Promise<void> {
  const input = { query: { from: day, to: day } };
  const writerOf =
    <Row>({ write }: Output<Row>) =>
    (rows: readonly Row[], unread: readonly string[]): Promise<void> => {
      if (unread.length > 0) throw new CommandError(unreadText(unread));
      return write(rows);
    };
  if (rowKind === 'calls') {
    const output = await outputOf(format, CALL_CSV_FIELDS, csvCellsOf, CALL_COLUMNS);
    await eachPage(client, 'GET /calls', input, writerOf(output));
    await output.end();
  } else {
    const usageCells = (row: UsageRowView): CsvCell[] => USAGE_CELLS.map((name) => row[name]);
    const output = await outputOf(format, USAGE_CELLS, usageCells, USAGE_COLUMNS);
    await eachPage(client, 'GET /usage/rows', input, writerOf(output));
    await output.end();
  }
}

/**
 * Takes rows page by page. `write` resolves when the reader of the output can take more, so memory holds few
 * pages. If a request for a page fails, `end` is not called: no program reads a Parquet file without its end.
 */
interface Output<Row> {
  readonly write: (rows: readonly Row[]) => Promise<void>;
  readonly end: () => Promise<void>;
}

/**
 * `csvColumns`: the titles of the CSV. `cellsOfRow` returns a row's values in that order. `allColumns`: those
 * of Parquet. Lines of JSON have each row as it came.
 */
async function outputOf<Row extends object>(
  format: Format,
  csvColumns: readonly ColumnName[],
  cellsOfRow: (row: Row) => CsvCell[],
  allColumns: readonly ColumnName[],
): Promise<Output<Row>> {
  if (format === 'parquet') {
    // Imported only if needed, so that other commands start fast.
    const { ParquetFile } = await import('./parquet.js');
    const kinds = allColumns.map((name) => [name, COLUMN_KINDS[name]] as const);
    const file = new ParquetFile<Row>(process.stdout, Object.fromEntries(kinds));
    return { write: (rows) => file.write(rows), end: () => file.end() };
  }
  const print = async (text: string): Promise<void> => {
    if (text !== '' && !process.stdout.write(text)) await once(process.stdout, 'drain');
  };
  if (format === 'csv') await print(csvOf(csvColumns, []));
  return {
    write: (rows) =>
      print(
        format === 'csv'
          ? csvOf(undefined, rows.map(cellsOfRow))
          : rows.map((row) => `${JSON.stringify(row)}\n`).join(''),
      ),
    end: () => Promise.resolve(),
  };
}

/** Fields of a call that are lists. CALL_CSV_FIELDS of call-commands.ts has all others. */
const CALL_LIST_FIELDS = ['attempts', 'quotas'] as const satisfies readonly (keyof CallView)[];

/** A list of names, or `never`, to which no list can be assigned, if it lacks a field of Row. */
type AllOf<Row, Names extends readonly (keyof Row)[]> = keyof Row extends Names[number] ? Names : never;

const CALL_COLUMNS: AllOf<CallView, readonly [...typeof CALL_CSV_FIELDS, ...typeof CALL_LIST_FIELDS]> = [
  ...CALL_CSV_FIELDS,
  ...CALL_LIST_FIELDS,
];

/** What the column of a field may be: whether a text is money or a time, the type of the field cannot say. */
type KindOf<Value> = Value extends null
  ? never
  : Value extends string
    ? 'text' | 'time' | 'money'
    : Value extends number
      ? 'integer' | 'float'
      : Value extends boolean
        ? 'boolean'
        : 'json';

/** The types of Parquet columns, of calls and of usage. A field without its kind does not compile. */
const COLUMN_KINDS = {
  time: 'time',
  request_id: 'text',
  route: 'text',
  hour: 'time',
  account: 'text',
  account_name: 'text',
  key: 'text',
  key_name: 'text',
  model: 'text',
  answered_model: 'text',
  upstream: 'text',
  stream: 'boolean',
  cache: 'text',
  status: 'integer',
  code: 'text',
  calls: 'integer',
  failed_calls: 'integer',
  estimated_calls: 'integer',
  fallback_calls: 'integer',
  prompt_tokens: 'integer',
  cached_tokens: 'integer',
  cache_write_tokens: 'integer',
  cache_write_1h_tokens: 'integer',
  completion_tokens: 'integer',
  reasoning_tokens: 'integer',
  source: 'text',
  cost: 'money',
  uncovered: 'money',
  first_token_ms: 'float',
  duration_ms: 'float',
  queued_ms: 'float',
  admitted_ms: 'float',
  error: 'text',
  attempts: 'json',
  quotas: 'json',
} as const satisfies {
  readonly [Name in keyof (CallView & UsageRowView)]: KindOf<(CallView & UsageRowView)[Name]>;
};
type ColumnName = keyof typeof COLUMN_KINDS;

/** The columns of usage. Their names and order are public: a new column comes last. */
const USAGE_CELLS = [
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

const USAGE_COLUMNS: AllOf<UsageRowView, typeof USAGE_CELLS> = USAGE_CELLS;
