/**
 * What the codecs of rows have in common: the schemas of fields, the number of the format, how a row is
 * packed, checked and read, and how errors name it. Rows are maps packed by msgpackr, each with the number of
 * its format first. account-codec.ts, usage-codec.ts and limits-codec.ts have the records of accounts; the
 * records of keys, groups, operators, quota use and stored responses are in the files of their tables. The
 * files of src/store alone pack records. Main thread.
 *
 * Money is decimal text of whole pico-units, because a packed integer comes back as a number or a bigint
 * depending on its size. A row that does not fit its schema was written by a newer program or is damaged: its
 * reader throws, says which, and never guesses.
 *
 * Must hold: names and meanings of fields are on disk for ever. A new field is `Type.Optional`, so that the
 * same reader reads records of earlier formats, and FORMAT is raised, so that an older Tollgate rejects the
 * store instead of calling it damaged. But in an upgrade without a stop (`reload --restart`), processes of
 * the former version have the store open beside those of the new one, and they can read no row whose format
 * is above theirs. So a program that raises FORMAT must not be started in that way, and its changelog
 * says so. Test: test/unit/store/record-codec.rows-on-disk.test.ts (rows word for word).
 */
import type { Key, RangeOptions } from 'lmdb';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { schemaCheck } from '../core/schema-check.js';
import { clipped } from '../core/wrong-input.js';
import type { Table } from './row-recorder.js';
import { StoreError } from './store-file.js';

/** Format of the store, and of the records that are written now. Earlier records keep theirs. */
export const FORMAT = 5;

/** An object that has no fields but `fields`: a row with another field is damaged. */
export function closedObject<Fields extends Type.TProperties>(fields: Fields): Type.TObject<Fields> {
  return Type.Object(fields, { additionalProperties: false });
}

/** The format of a record. Formats differ only in fields that may be absent, so one schema reads all. */
export const Format = Type.Integer({ minimum: 1, maximum: FORMAT });
/** The slot of an account, key or group. */
export const Slot = Type.Integer({ minimum: 0 });
export const Count = Type.Integer({ minimum: 0 });
/** Unix milliseconds. */
export const Moment = Type.Integer();
/** Pico-units, as decimal text. */
export const Money = Type.String({ pattern: '^-?(0|[1-9][0-9]{0,18})$' });
/** SHA-256, in hexadecimal. */
export const Digest = Type.String({ pattern: '^[0-9a-f]{64}$' });

/** LMDB orders a key with it after the keys with any slot, number or moment in its place. */
export const AFTER_ALL_NUMBERS = Number.MAX_SAFE_INTEGER;

/**
 * Checks and unpacks a row. Throws StoreError `damaged`, or `newer` if its format is above FORMAT. `location`
 * names the record in the message.
 */
export type RowReader<Row> = (stored: unknown, location: string) => Row;

/**
 * Returns the reader of the rows that fit `schema`. `unpack` may throw a StoreError too. Call it as a module
 * is loaded, once for each schema: `name` is as `schemaCheck` has it.
 */
export function rowReader<Schema extends Type.TSchema, Row>(
  name: string,
  schema: Schema,
  unpack: (stored: Static<Schema>, location: string) => Row,
): RowReader<Row> {
  return readerOf(schemaCheck(name, schema), unpack);
}

function readerOf<Stored, Row>(
  isStored: (value: unknown) => value is Stored,
  unpack: (stored: Stored, location: string) => Row,
): RowReader<Row> {
  return (stored, location) => {
    if (!isStored(stored)) throw rowErrorOf(stored, location);
    return unpack(stored, location);
  };
}

/**
 * The fields of a row as its codec packs them: each field of the schema is named, so that the compiler sees
 * one that was forgotten, and an optional one without a value is undefined.
 */
type PackedRow<Stored> = {
  [Name in keyof Stored]-?: object extends Pick<Stored, Name> ? Stored[Name] | undefined : Stored[Name];
};

/** Packs and reads the rows of a table. */
interface RowCodec<Row, Stored> {
  /**
   * Returns the row. Throws an Error if it does not fit the schema, which is a bug: the transaction is then
   * undone, and no damaged row is on disk.
   */
  readonly pack: (record: Row) => Stored;
  readonly read: RowReader<Row>;
}

/** How much of a wrong row an error shows. */
const SHOWN_CHARS_MAX = 300;

/**
 * Returns the codec of rows that operators change, which are few. `pack` names each field, and takes the
 * fields out of the record one by one, with `NoFields` for the rest: a field that is added to the record then
 * does not compile before the codec knows it. A field that is undefined is left out of the row. Call it as
 * `rowReader`.
 */
export function rowCodec<Schema extends Type.TObject, Row>(
  name: string,
  schema: Schema,
  {
    pack,
    unpack,
  }: {
    readonly pack: (record: Row) => PackedRow<Static<Schema>>;
    readonly unpack: (stored: Static<Schema>, location: string) => Row;
  },
): RowCodec<Row, Static<Schema>> {
  const isStored = schemaCheck(name, schema);
  return {
    pack: (record) => {
      const fields = Object.entries(pack(record)).filter(([, value]) => value !== undefined);
      const stored: unknown = Object.fromEntries(fields);
      if (isStored(stored)) return stored;
      // Without the digest, by which a key or a token is found. JSON shows NaN as null.
      const shown = JSON.stringify({ ...(stored as object), digest: undefined });
      throw new Error(`a row does not fit ${name}, and is not written: ${clipped(shown, SHOWN_CHARS_MAX)}`);
    },
    read: readerOf(isStored, unpack),
  };
}

/** The type of what is left of a record when all of its fields were taken out: `rest satisfies NoFields`. */
export type NoFields = Readonly<Record<string, never>>;

/** Returns the record under `key`; undefined if there is none. Throws as `read`. */
export function findRow<TableKey extends Key, Row>(
  table: Table<TableKey>,
  key: TableKey,
  read: RowReader<Row>,
): Row | undefined {
  const stored = table.get(key);
  return stored === undefined ? undefined : read(stored, locationOf(table, key));
}

/**
 * Returns what `read` returns; if the row cannot be read (`isRowError`), calls `onDamaged` and returns
 * undefined. For rows that only count use and for stored responses, which a flush reads in the transaction of
 * charges: one damaged row of this kind must not stop the charges for ever.
 */
export function unlessDamaged<Row>(
  read: () => Row | undefined,
  onDamaged: (message: string) => void = () => undefined,
): Row | undefined {
  try {
    return read();
  } catch (error) {
    if (!isRowError(error)) throw error;
    onDamaged(error.message);
    return undefined;
  }
}

/** Whether `error` is of one row that cannot be read: it is damaged, or a newer Tollgate wrote it. */
export function isRowError(error: unknown): error is StoreError {
  return error instanceof StoreError && (error.code === 'damaged' || error.code === 'newer');
}

/** Keys and records of a range, or of the whole table. Throws as `read`, at a row that it cannot read. */
export function* rowsIn<TableKey extends Key, Row>(
  table: Table<TableKey>,
  read: RowReader<Row>,
  range?: RangeOptions,
): Generator<[TableKey, Row]> {
  for (const { key, value } of table.getRange(range)) yield [key, read(value, locationOf(table, key))];
}

/** The number under `key`, 0 if there is none. Throws StoreError `damaged`. */
export function countAt(table: Table<string>, key: string): number {
  const count = table.get(key) ?? 0;
  if (!isCount(count)) throw damaged(locationOf(table, key));
  return count;
}

/** Whether the value is a number that `countAt` reads. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** The id under `slot`; undefined if there is none. Throws StoreError `damaged`. */
export function idAt(table: Table<number>, slot: number): string | undefined {
  const id = table.get(slot);
  if (id !== undefined && typeof id !== 'string') throw damaged(locationOf(table, slot));
  return id;
}

/** Names a row in a message. The key may be damaged: `join` alone throws at a symbol. */
export function rowName(table: string, key: Key): string {
  return `record ${Array.isArray(key) ? key.map(String).join('/') : String(key)} of table ${table}`;
}

/** Names a row in an error about it. */
export function locationOf({ path, name }: Pick<Table<Key>, 'path' | 'name'>, key: Key): string {
  return `${path}: ${rowName(name, key)}`;
}

/** The error of a row that its reader does not accept. */
export function damaged(location: string): StoreError {
  return new StoreError('damaged', `${location} is damaged. Restore the store from a backup.`);
}

/** The error of a row that a newer Tollgate wrote. */
export function newer(location: string): StoreError {
  return new StoreError('newer', `${location} was written by a newer Tollgate: update this one.`);
}

/** The error of a row that does not fit its schema: `newer` if its format is later than FORMAT. */
export function rowErrorOf(stored: unknown, location: string): StoreError {
  const format = typeof stored === 'object' && stored !== null && 'format' in stored ? stored.format : 0;
  return Number.isSafeInteger(format) && (format as number) > FORMAT ? newer(location) : damaged(location);
}
