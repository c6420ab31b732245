/**
 * A read-only snapshot of the store at one moment. The audit (audit-run.ts) reads it, beside a running
 * gateway too. Main thread of a command.
 *
 * All reads are of one transaction, so they agree with each other however long they take. Until `close`, LMDB
 * does not reuse the pages that a gateway frees, so the file grows as long as a snapshot is open.
 *
 * Must hold: AUDITED_TABLES names each table that the audit checks, because the audit can read no other, and
 * the audit checks each of them (test/unit/store/audit.audited-tables.test.ts).
 */
import type { Database, Key, RootDatabase, Transaction } from 'lmdb';
import { Environment } from './environment.js';
import { assertStoreFile, OPTIONS, StoreError, storePath } from './store-file.js';
import { rowName } from './record-codec.js';
import type { Table } from './row-recorder.js';
import { TABLE, assertFormat, type Tables } from './tables.js';

/**
 * The tables that a snapshot opens, by their names in LMDB, as in tables.ts. Left out are tables that can be
 * made again, or that nothing refers to: the response cache, the feed of changes, the history, the notices.
 */
export const AUDITED_TABLES = [
  'meta',
  'accounts',
  'account_slots',
  'account_names',
  'credits',
  'credit_requests',
  'spending',
  'usage',
  'keys',
  'key_slots',
  'key_ids',
  'key_slots_free',
  'keys_of_account',
  'key_names',
  'key_uses',
  'groups',
  'group_slots',
  'group_names',
  'group_slots_free',
  'group_members',
  'operators',
  'operator_changes',
  'quota_uses',
  'flushes',
  'answers',
  'answer_ages',
] as const;

export type TableName = (typeof AUDITED_TABLES)[number];

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
export type TableKeys = { readonly [Name in TableName]: KeyOf<CamelCase<Name>> };

export interface Row<Name extends TableName> {
  readonly key: TableKeys[Name];
  readonly value: unknown;
}

export class StoreSnapshot {
  readonly path: string;
  readonly format: number;
  readonly #environment: Environment;
  readonly #transaction: Transaction;
  readonly #tables = new Map<TableName, Database<unknown> | undefined>();

  /** Throws StoreError if there is no store, or none that can be read. */
  constructor(dataPath: string) {
    this.path = storePath(dataPath);
    // False for a missing or empty file: given an empty file to read, lmdb 3.5.6 ends the process with a
    // segmentation fault.
    if (!assertStoreFile(this.path)) {
      throw new StoreError(
        'unreadable',
        `${this.path} is not there, or empty: there are no books. Point \`data\` (TOLLGATE_DATA) at their folder.`,
      );
    }
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

  /** Undefined if there is no such row. */
  get<Name extends TableName>(name: Name, key: TableKeys[Name]): unknown {
    return this.#tables.get(name)?.get(key, { transaction: this.#transaction });
  }

  /**
   * Yields all rows, or those from `start` to before `end`, ordered by key. Iterate before `close`. Bounds
   * are for tables whose keys begin with a slot: `[slot]` comes before all of the slot's keys.
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

  /** Names a row in a message. */
  locationOf(name: TableName, key: Key): string {
    return rowName(name, key);
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
