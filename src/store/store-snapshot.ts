/**
 * A read-only snapshot of the store at one moment. The audit uses it, beside a running gateway too. Main
 * thread of a command.
 *
 * All reads are of one transaction, so they agree with each other however long they take. LMDB does not reuse
 * pages that a gateway frees meanwhile before `close`, so the file grows as long as a snapshot is open.
 *
 * Must hold: TableKeys names each table that the audit checks, with the types of keys of tables.ts; the audit
 * cannot read any other. Test: unit/store/audit; no test compares the list with tables.ts.
 */
import type { Database, Key, RootDatabase, Transaction } from 'lmdb';
import { Environment } from './environment.js';
import { assertStoreFile, OPTIONS, StoreError, storePath } from './store-file.js';
import { TABLE, assertFormat } from './tables.js';

/** The type of each table's keys; see tables.ts. */
export interface TableKeys {
  readonly meta: string;
  readonly accounts: string;
  readonly account_slots: number;
  readonly account_names: string;
  readonly credits: [number, number];
  readonly credit_requests: [number, string];
  readonly spending: number;
  readonly usage: [number, number, string, string];
  readonly keys: string;
  readonly key_slots: number;
  readonly key_ids: number;
  readonly key_slots_free: [number, number];
  readonly keys_of_account: [number, number];
  readonly key_names: [string, string];
  readonly key_uses: number;
  readonly groups: string;
  readonly group_slots: number;
  readonly group_names: string;
  readonly group_slots_free: [number, number];
  readonly group_members: [string, number, number];
  readonly operator_changes: number;
  readonly quota_uses: [string, number, string];
  readonly flushes: number;
  readonly answers: [number, string];
  readonly answer_ages: [number, number, string];
}

export type TableName = keyof TableKeys;

const TABLES: Readonly<Record<TableName, true>> = {
  meta: true,
  accounts: true,
  account_slots: true,
  account_names: true,
  credits: true,
  credit_requests: true,
  spending: true,
  usage: true,
  keys: true,
  key_slots: true,
  key_ids: true,
  key_slots_free: true,
  keys_of_account: true,
  key_names: true,
  key_uses: true,
  groups: true,
  group_slots: true,
  group_names: true,
  group_slots_free: true,
  group_members: true,
  operator_changes: true,
  quota_uses: true,
  flushes: true,
  answers: true,
  answer_ages: true,
};

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
    // Given an empty file to read, lmdb 3.5.6 ends the process with a segmentation fault.
    if (!assertStoreFile(this.path)) {
      throw new StoreError(
        'unreadable',
        `${this.path} is not there, or empty: there are no books. Point \`data\` (TOLLGATE_DATA) at their folder.`,
      );
    }
    this.#environment = new Environment(this.path, { ...OPTIONS, readOnly: true });
    try {
      // Tables are opened first, because opening one ends an open transaction.
      this.#environment.openTables((root) => {
        for (const name of Object.keys(TABLES)) this.#openTable(root, name as TableName);
      });
      this.#transaction = this.#environment.root.useReadTransaction();
      const format = this.get('meta', 'format');
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

  /** Returns all rows, or those from `start` to before `end`, in the order of their keys. */
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
    return `record ${Array.isArray(key) ? key.join('/') : String(key)} of table ${name}`;
  }

  async close(): Promise<void> {
    this.#transaction.done();
    await this.#environment.close();
  }

  /**
   * A table that a crash kept from being made has no rows. lmdb returns undefined for it, and its types do
   * not say so.
   */
  #openTable(root: RootDatabase, name: TableName): void {
    this.#tables.set(name, root.openDB(name, TABLE));
  }
}
