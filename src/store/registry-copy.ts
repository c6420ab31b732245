/**
 * This host's replica of the registry that hosts share: its position in the shared log, the rows that it
 * takes over, and the export of all rows. The replication (sharing/registry-log.ts, registry-reseed.ts) uses
 * it on the main thread.
 *
 *     meta  'registry_position'  → epoch, version and id of the last change, and the epochs before
 *           'registry_partial'   → true while all rows are being taken over
 *           'host_id'            → the name by which other hosts know this data directory
 *
 * Not in the replica: a host's own charges, uses and stored responses, and tables that follow from others
 * (names, slots).
 *
 * Must hold: a position is set in the transaction of the rows that it stands for, and `take` knows every
 * RecordedTable, or two hosts at one position differ (test/unit/sharing/registry-log.test.ts,
 * test/unit/store/registry-copy.retain.test.ts).
 */
import { randomUUID } from 'node:crypto';
import type { Key } from 'lmdb';
import { Type, type Static } from 'typebox';
import { schemaCheck } from '../core/schema-check.js';
import type { AccountRecord } from '../registry/account-record.js';
import { type GroupRows, readGroup } from './group-rows.js';
import { type KeyRows, readKey } from './key-rows.js';
import { type OperatorChanges, readChange } from './operator-changes.js';
import { readOperator } from './operator-rows.js';
import { damaged, locationOf, readAccount, readCredit, readCreditRequest } from './record-codec.js';
import type { RecordedTable, Table, WrittenRow } from './row-recorder.js';
import { StoreError } from './store-file.js';
import {
  CHANGES_BEFORE,
  CHANGES_HEAD,
  GROUP_SLOTS_USED,
  KEY_SLOTS_USED,
  UNREADABLE,
  type Tables,
} from './tables.js';

export const REGISTRY_POSITION = 'registry_position';
const HOST_ID = 'host_id';
export const REGISTRY_PARTIAL = 'registry_partial';

const Position = Type.Object({
  epoch: Type.String(),
  version: Type.Integer({ minimum: 0 }),
  /** Id of the change that made the version; empty for the first version. */
  lastId: Type.String(),
  /** Earlier epochs and their last versions, oldest first. */
  history: Type.Array(Type.Tuple([Type.String(), Type.Integer({ minimum: 0 })])),
});
export const isPosition = schemaCheck('Position', Position);

/** Two copies at the same position have the same rows. */
export type RegistryPosition = Readonly<Static<typeof Position>>;

/** A row as hosts send it to each other, as JSON. */
export interface RegistryRow {
  readonly table: RecordedTable;
  readonly key: number | string | readonly (number | string)[];
  /** Null if the row is removed. */
  readonly value: unknown;
}

type Check = (value: unknown, location: string) => unknown;

const unlessRemoved =
  (read: Check): Check =>
  (value, location) =>
    value === null ? undefined : read(value, location);

/** Rows of these tables are written as they come, if this does not throw. */
const CHECKS: Partial<Readonly<Record<RecordedTable, Check>>> = {
  group_slots_free: () => undefined,
  credits: readCredit,
  credit_requests: readCreditRequest,
  key_slots_free: () => undefined,
  operators: unlessRemoved(readOperator),
  operator_changes: unlessRemoved(readChange),
};

/** The tables of which operators can delete rows. */
const DELETABLE: readonly RecordedTable[] = [
  'groups',
  'group_slots_free',
  'keys',
  'key_slots_free',
  'operators',
];

/** The rows that are not written as they come: the store's (store.ts makes a RegistryCopy of itself). */
interface CopiedRows {
  readonly groups: GroupRows;
  readonly keys: KeyRows;
  readonly changes: OperatorChanges;
  putAccount(record: AccountRecord): void;
}

export class RegistryCopy {
  readonly #tables: Tables;
  /** In the order in which `take` can write their rows. */
  readonly #byName: Readonly<Partial<Record<RecordedTable, Table<Key>>>>;
  readonly #store: CopiedRows;

  constructor(tables: Tables, store: CopiedRows) {
    this.#tables = tables;
    this.#byName = {
      groups: tables.groups,
      group_slots_free: tables.groupSlotsFree,
      accounts: tables.accounts,
      credits: tables.credits,
      credit_requests: tables.creditRequests,
      keys: tables.keys,
      key_slots_free: tables.keySlotsFree,
      operators: tables.operators,
      operator_changes: tables.operatorChanges,
    };
    this.#store = store;
  }

  /** The name by which other hosts know this data directory; made once. */
  hostId(): string {
    const { meta, environment } = this.#tables;
    return environment.write(() => {
      const stored = meta.get(HOST_ID);
      if (typeof stored === 'string') return stored;
      const id = randomUUID();
      meta.putSync(HOST_ID, id);
      return id;
    });
  }

  /**
   * Undefined if this store has never shared its registry with other hosts, or has been changed without them
   * since.
   */
  position(): RegistryPosition | undefined {
    // lmdb reads in one transaction for each event-loop turn, which may be older than this call.
    this.#tables.environment.refresh();
    const stored = this.#tables.meta.get(REGISTRY_POSITION);
    if (stored === undefined) return undefined;
    if (!isPosition(stored)) throw damaged(locationOf(this.#tables, 'meta', REGISTRY_POSITION));
    return stored;
  }

  /** Call inside the transaction that brings the rows to this position. */
  setPosition(position: RegistryPosition): void {
    this.#tables.meta.putSync(REGISTRY_POSITION, position);
    this.#tables.meta.removeSync(REGISTRY_PARTIAL);
  }

  /**
   * Call inside a transaction that the other hosts have not agreed on. From now on the registry of this host
   * stands alone, and is never mixed with that of others.
   */
  detach(): void {
    this.#tables.meta.removeSync(REGISTRY_POSITION);
    this.#tables.meta.removeSync(REGISTRY_PARTIAL);
  }

  /**
   * Whether the rows, which have no position, are a part of the shared registry rather than a registry of
   * their own.
   */
  isPartial(): boolean {
    return this.#tables.meta.get(REGISTRY_PARTIAL) === true;
  }

  /** Call inside the first of the transactions that take over all rows. */
  setPartial(): void {
    this.#tables.meta.putSync(REGISTRY_PARTIAL, true);
  }

  /** Whether the registry has no account. */
  isEmpty(): boolean {
    return this.#tables.accounts.getKeysCount({ limit: 1 }) === 0;
  }

  /** Writes the row, inside a transaction. Throws StoreError if this program does not know such a row. */
  take({ table, key, value }: RegistryRow): void {
    const location = `the shared registry: record ${String(key)} of table ${table}`;
    const check = CHECKS[table];
    if (check !== undefined) {
      check(value, location);
      if (value === null) this.#byName[table]!.removeSync(key as Key);
      else this.#byName[table]!.putSync(key as Key, value);
    } else if (table === 'accounts') {
      this.#store.putAccount(readAccount(value, location));
    } else if (table === 'groups') {
      if (value === null) takeOut(this.#store.groups, String(key));
      else this.#takeGroup(value, location);
    } else if (table === 'keys') {
      if (value === null) takeOut(this.#store.keys, String(key));
      else this.#takeKey(value, location);
    } else if (key === CHANGES_HEAD || key === CHANGES_BEFORE) {
      this.#store.changes.takeLink(key, value);
    } else if (key === KEY_SLOTS_USED || key === GROUP_SLOTS_USED) {
      if (!Number.isSafeInteger(value)) throw damaged(location);
      this.#tables.meta.putSync(key, value);
    } else {
      throw new StoreError('newer', `${location} was written by a newer Tollgate: update this one.`);
    }
  }

  /**
   * Returns all rows, in an order in which `take` can write them. They are of one moment only if nothing is
   * awaited meanwhile. Throws StoreError `damaged` at a row that cannot be decoded: it cannot be sent either.
   */
  *rows(): Generator<RegistryRow> {
    for (const name of [KEY_SLOTS_USED, GROUP_SLOTS_USED, CHANGES_HEAD, CHANGES_BEFORE]) {
      const used = this.#tables.meta.get(name);
      if (used !== undefined) yield this.#decoded({ table: 'meta', key: name, value: used });
    }
    for (const [name, table] of Object.entries(this.#byName)) {
      for (const { key, value } of table.getRange())
        yield this.#decoded({ table: name as RecordedTable, key: key as RegistryRow['key'], value });
    }
  }

  #decoded(row: RegistryRow): RegistryRow {
    if (row.value !== UNREADABLE) return row;
    throw damaged(`${this.#tables.path}: record ${String(row.key)} of table ${row.table}`);
  }

  /**
   * Removes what can be deleted (groups, keys, free slots, operators) and is not among `rows`, which are the
   * names that `deletableRow` gives. A copy of an older version may have it. Called inside a transaction.
   */
  retain(rows: ReadonlySet<string>): void {
    for (const table of DELETABLE) {
      for (const key of Array.from(this.#byName[table]!.getKeys()) as RegistryRow['key'][]) {
        const row = { table, key, value: null };
        if (!rows.has(deletableRow(row)!)) this.take(row);
      }
    }
  }

  #takeKey(value: unknown, location: string): void {
    const record = readKey(value, location);
    // Another key had the slot before: what this host has recorded of its use must not count for this one.
    if (this.#store.keys.findId(record.index) !== record.id) {
      this.#tables.keyUses.removeSync(record.index);
      this.#tables.quotaUses.removeSync(['key', record.index, '']);
    }
    this.#store.keys.put(record);
  }

  #takeGroup(value: unknown, location: string): void {
    const record = readGroup(value, location);
    // As for keys: another group may have had the slot before.
    if (this.#tables.groupSlots.get(record.index) !== record.id)
      this.#tables.quotaUses.removeSync(['group', record.index, '']);
    this.#store.groups.put(record);
  }
}

interface Removable<Row> {
  find(id: string): Row | undefined;
  takeOut(record: Row): void;
}

/** Removes the record as another host has deleted it; `KeyRows.takeOut` says what of its slot stays. */
function takeOut<Row>(rows: Removable<Row>, id: string): void {
  const record = rows.find(id);
  if (record !== undefined) rows.takeOut(record);
}

/** A text that identifies the row; undefined if no operator can delete rows of its table. */
export function deletableRow({ table, key }: RegistryRow): string | undefined {
  return DELETABLE.includes(table) ? `${table} ${String(key)}` : undefined;
}

/** Returns the rows as hosts send them. Several rows with one key all count, in their order. */
export function registryRowsOf(rows: readonly WrittenRow[]): RegistryRow[] {
  return rows.map(({ table, key, value }) => ({
    table,
    key: key as RegistryRow['key'],
    value: value === undefined ? null : value,
  }));
}
