/**
 * Records which rows of the registry a transaction writes. The change feed is made from them, and hosts send
 * them to each other. Main thread.
 *
 * Tables that only repeat the same in another order (names, slots) are not recorded: they follow from these.
 */
import type { Database, Key } from 'lmdb';

/**
 * Tables that an operator's change writes. Accounting, uses of keys and stored responses are not among them.
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
  | 'operators';

/** As it is on disk. */
export interface WrittenRow {
  readonly table: RecordedTable;
  readonly key: Key;
  /** Undefined if the row was removed. */
  readonly value: unknown;
  /** What it was before; undefined for a new row. */
  readonly former: unknown;
}

/** Whoever reads a value checks it. */
export type Table<TableKey extends Key> = Database<unknown, TableKey>;

export class RowRecorder {
  #rows: WrittenRow[] | undefined;
  #hasMissed = false;

  /**
   * Runs `work` inside a transaction; returns what it returns and the rows that it wrote, in their order. Not
   * nested.
   */
  record<Result>(work: () => Result): { readonly result: Result; readonly rows: readonly WrittenRow[] } {
    const rows: WrittenRow[] = [];
    this.#rows = rows;
    try {
      return { result: work(), rows };
    } finally {
      this.#rows = undefined;
    }
  }

  /** Whether rows were written since the last call while nothing was recorded. */
  takeMissed(): boolean {
    const hasMissed = this.#hasMissed;
    this.#hasMissed = false;
    return hasMissed;
  }

  /**
   * Returns the table. From now on its writes are recorded; if `keysKept` is given, only those of these keys.
   */
  watch<TableKey extends Key>(
    name: RecordedTable,
    table: Table<TableKey>,
    keysKept?: readonly TableKey[],
  ): Table<TableKey> {
    const put: (key: TableKey, value: unknown) => unknown = table.putSync.bind(table);
    const remove: (key: TableKey) => unknown = table.removeSync.bind(table);
    const recorded = (key: TableKey): WrittenRow[] | undefined => {
      if (keysKept !== undefined && !keysKept.includes(key)) return undefined;
      this.#hasMissed ||= this.#rows === undefined;
      return this.#rows;
    };
    return Object.assign(table, {
      putSync: (key: TableKey, value: unknown): unknown => {
        recorded(key)?.push({ table: name, key, value, former: table.get(key) });
        return put(key, value);
      },
      removeSync: (key: TableKey): unknown => {
        const rows = recorded(key);
        if (rows !== undefined) {
          const former = table.get(key);
          if (former !== undefined) rows.push({ table: name, key, value: undefined, former });
        }
        return remove(key);
      },
    });
  }
}
