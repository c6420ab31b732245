/**
 * AuditRun: one run of the audit. It has the snapshot of the store that all checks read, the bounds of
 * slots, the list of differences that the checks find, and the checks of slots and names that accounts,
 * groups and keys share. audit.ts makes an AuditRun for each audit and gives it to one check after the
 * other. Main thread of a command.
 *
 * Must hold: a check never throws because of a row; it adds a difference and goes on. Otherwise one damaged
 * row hides all others (test/unit/store/audit.test.ts). So checks read rows by `rows` and `rowsOfSlot`, which
 * check the keys. AUDITED_TABLES names each table that the audit checks, because the audit can read no other,
 * and the audit checks each of them (test/unit/store/audit.audited-tables.test.ts).
 */
import { existsSync } from 'node:fs';
import type { Database, RootDatabase, Transaction } from 'lmdb';
import { decimalOf } from '../core/money.js';
import { Environment } from './environment.js';
import { rowName } from './record-codec.js';
import type { Table } from './row-recorder.js';
import { assertNotEmpty, noBooks, OPTIONS, StoreError, storePath } from './store-file.js';
import { TABLE, assertFormat, type Tables } from './tables.js';

/**
 * The tables that a snapshot opens, by their names in LMDB, as in tables.ts, each with what its keys are made
 * of. Left out are tables that can be made again, or that nothing refers to: the response cache, the feed of
 * changes, the history, the notices.
 */
const KEY_PARTS = {
  meta: ['string'],
  accounts: ['string'],
  account_slots: ['number'],
  account_names: ['string'],
  credits: ['number', 'number'],
  credit_requests: ['number', 'string'],
  spending: ['number'],
  usage: ['number', 'number', 'string', 'string'],
  keys: ['string'],
  key_slots: ['number'],
  key_ids: ['number'],
  key_slots_free: ['number', 'number'],
  keys_of_account: ['number', 'number'],
  key_names: ['string', 'string'],
  key_uses: ['number'],
  groups: ['string'],
  group_slots: ['number'],
  group_names: ['string'],
  group_slots_free: ['number', 'number'],
  group_members: ['string', 'number', 'number'],
  operators: ['string'],
  operator_changes: ['number'],
  quota_uses: ['string', 'number', 'string'],
  flushes: ['number'],
  answers: ['number', 'string'],
  answer_ages: ['number', 'number', 'string'],
} as const;
// The compiler sees parts that are not those of the table's keys.
KEY_PARTS satisfies { readonly [Name in TableName]: PartsOf<TableKeys[Name]> };

type TableName = keyof typeof KEY_PARTS;
export const AUDITED_TABLES = Object.keys(KEY_PARTS) as readonly TableName[];

/** The name of a table's field in Tables: of `key_slots` it is `keySlots`. */
type CamelCase<Name extends string> = Name extends `${infer FirstWord}_${infer OtherWords}`
  ? `${FirstWord}${Capitalize<CamelCase<OtherWords>>}`
  : Name;
/** The type of that table's keys; `never` for a name that Tables lacks. */
type KeyOf<Name> = Name extends keyof Tables
  ? Tables[Name] extends Table<infer TableKey>
    ? TableKey
    : never
  : never;

/** The type of each table's keys. */
type TableKeys = { readonly [Name in TableName]: KeyOf<CamelCase<Name>> };

type PartOf<Value> = Value extends string ? 'string' : 'number';
type PartsOf<TableKey> = TableKey extends readonly unknown[]
  ? { readonly [Index in keyof TableKey]: PartOf<TableKey[Index]> }
  : readonly [PartOf<TableKey>];

/** Whether a key on disk has the type that its table gives it. */
function isKeyOf<Name extends TableName>(name: Name, key: unknown): key is TableKeys[Name] {
  const parts: readonly string[] = KEY_PARTS[name];
  if (parts.length === 1) return typeof key === parts[0];
  if (!Array.isArray(key) || key.length !== parts.length) return false;
  return key.every((value, index) => typeof value === parts[index]);
}

interface Row<Name extends TableName> {
  readonly key: TableKeys[Name];
  readonly value: unknown;
}

/** A table whose keys begin with a slot. */
type TableBySlot = 'credits' | 'credit_requests' | 'usage';

/**
 * A read-only snapshot of the store at one moment. All reads are of one transaction, so they agree with each
 * other however long they take, beside a running gateway too. Until `close`, LMDB does not reuse the pages
 * that a gateway frees, so the file grows as long as a snapshot is open.
 */
export class StoreSnapshot {
  readonly path: string;
  readonly format: number;
  readonly #environment: Environment;
  readonly #transaction: Transaction;
  readonly #tables = new Map<TableName, Database<unknown> | undefined>();

  /** Throws StoreError if there is no store, or none that can be read. */
  constructor(dataPath: string) {
    this.path = storePath(dataPath);
    // First, because given an empty file to read, lmdb 3.5.6 ends the process with a segmentation fault.
    assertNotEmpty(this.path);
    if (!existsSync(this.path)) throw noBooks(dataPath);
    this.#environment = new Environment(this.path, { ...OPTIONS, readOnly: true });
    try {
      // Tables are opened first, because opening a table ends an open transaction.
      this.#environment.openTables((root) => {
        for (const name of AUDITED_TABLES) this.#openTable(root, name);
      });
      this.#transaction = this.#environment.root.useReadTransaction();
      const format = this.get('meta', 'format');
      // Throws unless the format is a number.
      assertFormat(this.path, format);
      this.format = format as number;
    } catch (error) {
      void this.#environment.close();
      throw error;
    }
  }

  /** Undefined if there is no such row, also for a text of a damaged row that is longer than any key. */
  get<Name extends TableName>(name: Name, key: TableKeys[Name]): unknown {
    try {
      return this.#tables.get(name)?.get(key, { transaction: this.#transaction });
    } catch (error) {
      // lmdb 3.5.6 throws it for a key that does not fit its buffer of some 4,000 bytes.
      if (error instanceof RangeError) return undefined;
      throw error;
    }
  }

  /**
   * Yields all rows, or those from `start` to before `end`, ordered by key. Iterate before `close`. Bounds
   * are for a TableBySlot: `[slot]` comes before all of the slot's keys. The type of a key is not checked:
   * AuditRun does so.
   */
  *rows<Name extends TableName>(
    name: Name,
    start?: readonly number[],
    end?: readonly number[],
  ): Generator<Row<Name>> {
    const table = this.#tables.get(name);
    if (table === undefined) return;
    const range = table.getRange({
      ...(start === undefined ? {} : { start: [...start] }),
      ...(end === undefined ? {} : { end: [...end] }),
      transaction: this.#transaction,
    });
    for (const { key, value } of range) yield { key: key as TableKeys[Name], value };
  }

  /** The last key of the table; undefined if the table has no rows. */
  lastKey<Name extends TableName>(name: Name): TableKeys[Name] | undefined {
    const range = { reverse: true, limit: 1, transaction: this.#transaction };
    for (const key of this.#tables.get(name)?.getKeys(range) ?? []) return key as TableKeys[Name];
    return undefined;
  }

  async close(): Promise<void> {
    this.#transaction.done();
    await this.#environment.close();
  }

  /**
   * A table may be missing after a crash, or in a store of an earlier version, and then has no rows. lmdb
   * returns undefined for a missing table, and its types do not say so.
   */
  #openTable(root: RootDatabase, name: TableName): void {
    this.#tables.set(name, root.openDB(name, TABLE));
  }
}

/** How many differences are listed. If there are so many, they have one cause: others are only counted. */
const DIFFERENCES_MAX = 1_000;

export interface Difference {
  /** Id of the account; null if the difference is about no account, or about a missing account. */
  readonly account: string | null;
  /** For example `record 7 of table spending`. */
  readonly location: string;
  /** What was compared: `spent`, `the row`, `the owner of slot 7`. */
  readonly what: string;
  /** The value that was found, and the value that the other records imply; amounts are decimal. */
  readonly is: string;
  readonly shouldBe: string;
}

export interface AuditBounds {
  /** How many slots a gateway has (`limits.accounts`, `limits.keys`, `limits.groups`). */
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly groupsMax: number;
}

/** What a comparison is about. */
interface AuditedRow {
  readonly account: string | null;
  readonly location: string;
}

interface SlotRecord {
  readonly id: string;
  readonly index: number;
  readonly name: string;
}

/** A bigint is an amount, in pico-units. */
type Compared = bigint | number | string | undefined;

export class AuditRun {
  readonly snapshot: StoreSnapshot;
  readonly bounds: AuditBounds;
  readonly #differences: Difference[] = [];
  /** Counts all differences, listed or not. */
  #differencesCount = 0;
  /** The account slot that `accountIdOf` has looked up last (-1: none yet), and its account's id. */
  #lastSlot = -1;
  #lastAccountId: string | undefined;

  constructor(snapshot: StoreSnapshot, bounds: AuditBounds) {
    this.snapshot = snapshot;
    this.bounds = bounds;
  }

  /** The first differences, in the order in which they were found. */
  get differences(): readonly Difference[] {
    return this.#differences;
  }

  get differencesCount(): number {
    return this.#differencesCount;
  }

  /** Yields all rows of the table. Reports each whose key is of another table's type, and leaves it out. */
  *rows<Name extends TableName>(table: Name): Generator<Row<Name>> {
    for (const row of this.snapshot.rows(table)) {
      if (isKeyOf(table, row.key)) yield row;
      else {
        const location = rowName(table, row.key);
        this.addDifference({ account: null, location }, 'the key', 'damaged', 'a key of this table');
      }
    }
  }

  /** Yields the rows of one slot. Leaves out damaged keys without a report: `rows` reports them. */
  *rowsOfSlot<Name extends TableBySlot>(table: Name, slot: number): Generator<Row<Name>> {
    for (const row of this.snapshot.rows(table, [slot], [slot + 1])) if (isKeyOf(table, row.key)) yield row;
  }

  /** `account` is the id of the account that the row is about; null if the row is about none. */
  rowAt<Name extends TableName>(
    table: Name,
    key: TableKeys[Name],
    account: string | null = null,
  ): AuditedRow {
    return { account, location: rowName(table, key) };
  }

  /** Adds a difference, or only counts it beyond DIFFERENCES_MAX. */
  addDifference(row: AuditedRow, what: string, is: Compared, shouldBe: Compared): void {
    this.#differencesCount++;
    if (this.#differences.length >= DIFFERENCES_MAX) return;
    this.#differences.push({ ...row, what, is: textOf(is), shouldBe: textOf(shouldBe) });
  }

  /** Adds a difference unless `is` equals `shouldBe`. */
  expect(row: AuditedRow, what: string, is: Compared, shouldBe: Compared): void {
    if (is !== shouldBe) this.addDifference(row, what, is, shouldBe);
  }

  /** Returns the record in `value`. If it is damaged, returns undefined and adds a difference. */
  readOrReport<Name extends TableName, Decoded>(
    reader: (stored: unknown, location: string) => Decoded,
    table: Name,
    key: TableKeys[Name],
    value: unknown,
    account: string | null = null,
  ): Decoded | undefined {
    const row = this.rowAt(table, key, account);
    try {
      return reader(value, row.location);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      const is = error.code === 'newer' ? 'of a newer Tollgate' : 'damaged';
      this.addDifference(row, 'the row', is, 'a row of this format');
      return undefined;
    }
  }

  /**
   * Returns the record under `key`. Undefined if there is none or if it is damaged. Adds no difference for a
   * damaged record: the check that goes through its table calls `readOrReport`, which adds it.
   */
  readIfSound<Name extends TableName, Decoded>(
    reader: (stored: unknown, location: string) => Decoded,
    table: Name,
    key: TableKeys[Name],
  ): Decoded | undefined {
    const stored = this.snapshot.get(table, key);
    if (stored === undefined) return undefined;
    try {
      return reader(stored, '');
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      return undefined;
    }
  }

  /**
   * Checks that each row of `account_slots`, `group_slots`, `key_slots`, `account_names` and `group_names`
   * names a record that has that slot or name, and that each slot of `group_slots_free` and `key_slots_free`
   * has no owner. If row and record differ, the row's key is reported as `shouldBe`. `recordOf` returns the
   * record with an id, `accountOf` the id of its account. There is no `key_names` to check, because several
   * keys may have one name, and no free slots of accounts.
   */
  checkBackReferences<Row extends SlotRecord>(
    kind: 'account' | 'group' | 'key',
    recordOf: (id: string) => Row | undefined,
    accountOf: (record: Row | undefined) => string | null = () => null,
  ): void {
    const { snapshot } = this;
    const follow = <Name extends TableName>(
      table: Name,
      key: TableKeys[Name] & (number | string),
      id: unknown,
      field: 'slot' | 'name',
    ): void => {
      const record = typeof id === 'string' ? recordOf(id) : undefined;
      const row = this.rowAt(table, key, accountOf(record));
      const actual = field === 'slot' ? record?.index : record?.name;
      this.expect(row, `the ${field} of ${kind} ${idIn(id)}`, actual, key);
    };
    for (const { key, value } of this.rows(`${kind}_slots`)) follow(`${kind}_slots`, key, value, 'slot');
    if (kind !== 'key') {
      const names = `${kind}_names` as const;
      for (const { key, value } of this.rows(names)) follow(names, key, value, 'name');
    }
    if (kind === 'account') return;
    for (const { key } of this.rows(`${kind}_slots_free`)) {
      const [, slot] = key;
      const owner = idIn(snapshot.get(`${kind}_slots`, slot));
      const row = this.rowAt(`${kind}_slots_free`, key);
      this.expect(row, `the owner of slot ${slot}, which is free`, owner, undefined);
    }
  }

  /**
   * Checks that the rows of its slot and its name have the record's id, and that the slot is below `max` and
   * the number of slots ever used. For accounts there is no such number. Keys may share a name.
   */
  expectIndexes(
    kind: 'account' | 'group' | 'key',
    row: AuditedRow,
    { id, index, name }: SlotRecord,
    max: number,
  ): void {
    const { snapshot } = this;
    if (index >= max) this.addDifference(row, 'the slot', index, `below limits.${kind}s, ${max}`);
    if (kind !== 'account') {
      const stored = snapshot.get('meta', `${kind}_slots_used`) ?? 0;
      // If the number is damaged, each key or group adds a difference.
      const slotsUsed = typeof stored === 'number' ? stored : 'damaged';
      if (slotsUsed === 'damaged' || !(index < slotsUsed))
        this.addDifference(row, 'the slot', index, `below the number of slots used, ${slotsUsed}`);
    }
    this.expect(row, `the owner of slot ${index}`, idIn(snapshot.get(`${kind}_slots`, index)), id);
    if (kind === 'key') return;
    this.expect(row, `the owner of the name ${name}`, idIn(snapshot.get(`${kind}_names`, name)), id);
  }

  /** Id of the account that has the slot. The last id is kept, because most rows are in order of slots. */
  accountIdOf(slot: number): string | undefined {
    if (slot !== this.#lastSlot) {
      const id = this.snapshot.get('account_slots', slot);
      this.#lastSlot = slot;
      this.#lastAccountId = typeof id === 'string' ? id : undefined;
    }
    return this.#lastAccountId;
  }
}

function textOf(compared: Compared): string {
  if (compared === undefined) return 'nothing';
  return typeof compared === 'bigint' ? decimalOf(compared) : String(compared);
}

/** `value`, which should be an id; the text `damaged` if it is no text. */
export function idIn(value: unknown): string | undefined {
  return typeof value === 'string' || value === undefined ? value : 'damaged';
}
