/**
 * Writes rows as an Apache Parquet file to a stream, for `tollgate export --format parquet`
 * (export-command.ts), in the process of the command. hyparquet-writer makes the bytes; this file decides
 * what type each column has, and when a row group is written.
 *
 * Must hold: money is decimal(38,12), so that readers can add up columns exactly; at most one row group is in
 * memory (test/unit/cli/parquet.test.ts; in test/exports/recipes.test.ts other programs read the files).
 */
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import type { SchemaElement } from 'hyparquet-writer';
import { ByteWriter, ParquetWriter } from 'hyparquet-writer';
import { invariant } from '../core/errors.js';
import { picoUnitsOfExact } from '../core/money.js';

/** The type of a column. `json`: lists as JSON text, because their items differ from row to row. */
export type ParquetKind = 'text' | 'time' | 'integer' | 'float' | 'boolean' | 'money' | 'json';

/** Some 40 MB of a busy day's calls. Readers want row groups of tens of thousands of rows. */
const GROUP_ROWS_MAX = 50_000;
/** Characters of the texts in a row group: rows with long errors and many attempts have 3,000 each. */
const GROUP_CHARS_MAX = 32 * 1024 * 1024;

const TYPES: Readonly<Record<ParquetKind, Omit<SchemaElement, 'name'>>> = {
  text: { type: 'BYTE_ARRAY', converted_type: 'UTF8' },
  json: { type: 'BYTE_ARRAY', converted_type: 'UTF8' },
  time: { type: 'INT64', converted_type: 'TIMESTAMP_MILLIS' },
  integer: { type: 'INT64' },
  float: { type: 'DOUBLE' },
  boolean: { type: 'BOOLEAN' },
  // With a scale of 12 the integer is pico-units.
  money: {
    type: 'FIXED_LEN_BYTE_ARRAY',
    type_length: 16,
    converted_type: 'DECIMAL',
    precision: 38,
    scale: 12,
  },
};

/** A value as hyparquet-writer takes it: 64-bit integers and decimals as bigint. */
type Value = string | number | bigint | boolean | null;

/** The casts are safe: the compiler compares each kind with its field (KindOf of export-columns.ts). */
function valueOf(kind: ParquetKind, value: unknown): Value {
  if (value === null || value === undefined) return null;
  switch (kind) {
    case 'integer':
      return BigInt(value as number);
    case 'time':
      return BigInt(Date.parse(value as string));
    case 'money':
      return picoUnitsOfExact(value as string);
    case 'json':
      return JSON.stringify(value);
    default:
      return value as Value;
  }
}

/**
 * Writes rows, which are objects with the names of the columns as fields. `write` and `end` reject if the
 * call before has not resolved, and after `end`.
 */
export class ParquetFile<Row extends object> {
  readonly #output: Writable;
  readonly #bytes = new ByteWriter();
  readonly #writer: ParquetWriter;
  readonly #columns: readonly { readonly name: string; readonly kind: ParquetKind; values: Value[] }[];
  /** Characters of the texts in `#columns`. */
  #chars = 0;
  /** While `write` or `end` runs, and after `end`. */
  #isClosed = false;

  /** `kinds`: the columns by name, in their order. */
  constructor(output: Writable, kinds: Readonly<Record<string, ParquetKind>>) {
    this.#output = output;
    this.#columns = Object.entries(kinds).map(([name, kind]) => ({ name, kind, values: [] }));
    this.#writer = new ParquetWriter({
      writer: this.#bytes,
      schema: [
        { name: 'root', num_children: this.#columns.length },
        ...this.#columns.map(({ name, kind }) => ({
          name,
          ...TYPES[kind],
          repetition_type: 'OPTIONAL' as const,
        })),
      ],
      createdBy: 'tollgate',
    });
  }

  /** Takes rows. Writes each row group that is full, and waits for the reader of the output. */
  async write(rows: readonly Row[]): Promise<void> {
    this.#close();
    for (const row of rows) {
      for (const { name, kind, values } of this.#columns) {
        const value = valueOf(kind, (row as Readonly<Record<string, unknown>>)[name]);
        if (typeof value === 'string') this.#chars += value.length;
        values.push(value);
      }
      if (this.#rowCount >= GROUP_ROWS_MAX || this.#chars >= GROUP_CHARS_MAX) await this.#writeGroup();
    }
    this.#isClosed = false;
  }

  /** Writes the last row group and the index of the file, without which no program reads the file. */
  async end(): Promise<void> {
    this.#close();
    if (this.#rowCount > 0) await this.#writeGroup();
    await this.#writer.finish();
    await this.#send();
  }

  #close(): void {
    invariant(!this.#isClosed, 'one write at a time, and none after the end');
    this.#isClosed = true;
  }

  /** Rows that wait for their row group. */
  get #rowCount(): number {
    return this.#columns[0]!.values.length;
  }

  async #writeGroup(): Promise<void> {
    await this.#writer.write({
      // No index of pages, because the indexes of all groups would stay in memory until the end.
      columnData: this.#columns.map(({ name, values }) => ({ name, data: values, offsetIndex: false })),
      rowGroupSize: this.#rowCount,
    });
    for (const column of this.#columns) column.values = [];
    this.#chars = 0;
    await this.#send();
  }

  async #send(): Promise<void> {
    // A copy, because ByteWriter reuses its memory for the next group.
    const bytes = this.#bytes.getBytes().slice();
    this.#bytes.index = 0;
    if (bytes.length > 0 && !this.#output.write(bytes)) await once(this.#output, 'drain');
  }
}
