/**
 * The columns of exported calls and usage: the name of each field, in the public order, with its kind.
 * export-command.ts and `calls list --csv` (call-commands.ts) write them. Pure.
 *
 * Must hold: names and order are public, so a new column comes last (test/e2e/export.test.ts,
 * test/e2e/call-record.test.ts). Each field of CallView and UsageRowView is a column: one that is missing, or
 * of a kind that its type cannot be, does not compile.
 */
import type { CallView } from '../admin/call-routes.js';
import type { UsageRowView } from '../admin/views.js';
import { type CsvCell, csvOf } from '../core/csv.js';
import type { ParquetKind } from './parquet.js';

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

export type ColumnsOf<Row> = { readonly [Name in keyof Row]: KindOf<Row[Name]> & ParquetKind };

export const CALL_COLUMNS = {
  time: 'time',
  request_id: 'text',
  route: 'text',
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
  prompt_tokens: 'integer',
  cached_tokens: 'integer',
  cache_write_tokens: 'integer',
  cache_write_1h_tokens: 'integer',
  completion_tokens: 'integer',
  reasoning_tokens: 'integer',
  source: 'text',
  cost: 'money',
  first_token_ms: 'float',
  duration_ms: 'float',
  queued_ms: 'float',
  admitted_ms: 'float',
  error: 'text',
  attempts: 'json',
  quotas: 'json',
} as const satisfies ColumnsOf<CallView>;

export const USAGE_COLUMNS = {
  hour: 'time',
  account: 'text',
  account_name: 'text',
  key: 'text',
  key_name: 'text',
  model: 'text',
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
  cost: 'money',
  uncovered: 'money',
} as const satisfies ColumnsOf<UsageRowView>;

/** Returns a line of CSV for each row, after one of titles if `titles` is set. Leaves out lists (`json`). */
export function csvTextOf<Row extends object>(
  columns: ColumnsOf<Row>,
  rows: readonly Row[],
  { titles }: { readonly titles: boolean },
): string {
  const names = Object.entries<ParquetKind>(columns).flatMap(([name, kind]) =>
    kind === 'json' ? [] : [name],
  );
  // The kinds say that all other values are these (KindOf).
  const cellsOf = (row: Readonly<Record<string, CsvCell | boolean>>): CsvCell[] =>
    names.map((name) => {
      const value = row[name]!;
      return typeof value === 'boolean' ? String(value) : value;
    });
  return csvOf(titles ? names : undefined, (rows as readonly Parameters<typeof cellsOf>[0][]).map(cellsOf));
}
