/**
 * Captures which rows of the registry a transaction writes. tables.ts makes a RowRecorder, which watches the
 * tables; store.ts and change-feed.ts call `record`. The change feed and the operators' change log are made
 * from the rows, and hosts send them to each other. Main thread.
 *
 * Must hold: each table that an operator's change writes is watched, except indexes (names, slots), which
 * follow from the watched tables; others never reach other processes and hosts
 * (test/unit/store/change-feed.shared-changes.test.ts; test/unit/sharing/registry-log.test.ts). A watched
 * table throws if it is written while nothing is recorded, so no row misses the feed and the log.
 */
import type { Database, Key } from 'lmdb';
import { invariant } from '../core/errors.js';

/**
 * The tables that an operator's change writes. Calls write to other tables. The compiler sees that
 * registry-copy.ts copies each to other hosts.
 */
export type RecordedTable =
  | 'meta'
  | 'groups'
  | 'group_slots_free'
  | 'accounts'
  | 'credits'
  | 'credit_requests'
  | 'keys'
  | 'key_slots_free'
  | 'operators'
  | 'operator_changes';

/** One write, with key and value as they are on disk. */
export interface WrittenRow {
  readonly table: RecordedTable;
  readonly key: Key;
  /** Undefined if the row was removed. */
  readonly value: unknown;
  /** The value before the write; undefined for a new row. */
  readonly former: unknown;
}

/**
 * A table, with the methods of lmdb that the store uses. Those that write assert a transaction (tables.ts).
 * Values are `unknown`: each reader checks what it reads against its schema. lmdb gives each table its name
 * and the path of its file, which its types lack; error messages name rows by them.
 */
export type Table<TableKey extends Key> = Pick<
  Database<unknown, TableKey>,
  'get' | 'getKeys' | 'getKeysCount' | 'getRange' | 'putSync' | 'removeSync' | 'clearSync'
> & {
  readonly name: string;
  readonly path: string;
};

export class RowRecorder {
  /** The rows of the innermost `record` that runs; undefined if no `record` runs. */
  #rows: WrittenRow[] | undefined;

  /** Whether rows are recorded now. */
  get isRecording(): boolean {
    return this.#rows !== undefined;
  }

  /**
   * Runs `work`. Returns its result and the rows that it wrote, in their order. If this call runs within
   * another `record` (`Store.commit` within SharedChanges), the outer call gets the rows too, unless `work`
   * throws. Call it in a transaction of its own (`Environment.write`), which is undone if `work` throws.
   */
  record<Result>(work: () => Result): { readonly result: Result; readonly rows: readonly WrittenRow[] } {
    const outerRows = this.#rows;
    const rows: WrittenRow[] = [];
    this.#rows = rows;
    try {
      const result = work();
      if (outerRows !== undefined) for (const row of rows) outerRows.push(row);
      return { result, rows };
    } finally {
      this.#rows = outerRows;
    }
  }

  /**
   * Replaces `putSync` and `removeSync` of `table`: from now on `record` gets its rows, and they throw if no
   * `record` runs. `recordedKeys`: the only keys whose rows are recorded; by default all are. Such keys must
   * be texts, because `===` compares them. Returns `table`. Call `watch` once for each table, or each row is
   * recorded twice.
   */
  watch<TableKey extends Key>(table: Table<TableKey>, recordedKeys?: readonly TableKey[]): Table<TableKey> {
    const name = table.name as RecordedTable;
    const put: (key: TableKey, value: unknown) => unknown = table.putSync.bind(table);
    const remove: (key: TableKey) => unknown = table.removeSync.bind(table);
    // Returns the list that a write of the key is added to; undefined if the write is not recorded.
    const rowsFor = (key: TableKey): WrittenRow[] | undefined => {
      if (recordedKeys !== undefined && !recordedKeys.includes(key)) return undefined;
      invariant(this.#rows !== undefined, 'rows of the registry are written while they are recorded');
      return this.#rows;
    };
    return Object.assign(table, {
      putSync: (key: TableKey, value: unknown): unknown => {
        rowsFor(key)?.push({ table: name, key, value, former: table.get(key) });
        return put(key, value);
      },
      removeSync: (key: TableKey): unknown => {
        // A removal that finds no row is not recorded: the readers of rows need `value` or `former`.
        const rows = rowsFor(key);
        if (rows !== undefined) {
          const former = table.get(key);
          if (former !== undefined) rows.push({ table: name, key, value: undefined, former });
        }
        return remove(key);
      },
    });
  }
}
