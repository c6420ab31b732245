/**
 * This host's copy of the registry that hosts share: its position in the log of changes, how rows of other
 * hosts are written here (_applied_), and how all rows are read for other hosts. store.ts makes the object;
 * sharing/registry-log.ts, registry-reseed.ts and host-accounting.ts use it. Main thread.
 *
 *     meta  'registry_position'  → epoch, version and id of the last change, and the epochs before
 *           'registry_partial'   → true while a download of all rows is unfinished
 *           'host_id'            → the name by which other hosts know this data directory
 *
 * The copy has no charges, uses and stored responses, which belong to one host, and no indexes (names,
 * slots), which each host makes of the rows.
 *
 * Must hold, or two hosts at one position differ: a position is set in the transaction of the last rows that
 * it stands for (test/unit/sharing/registry-log.test.ts). If `retain` is to remove rows of a table, the table
 * is in DELETABLE (test/unit/store/registry-copy.retain.test.ts). That `rows` and `apply` know each
 * RecordedTable, the compiler sees.
 */
import { randomUUID } from 'node:crypto';
import type { Key } from 'lmdb';
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { schemaCheck } from '../core/schema-check.js';
import type { AccountRecord } from '../registry/account-record.js';
import { type GroupRows, readGroup } from './group-rows.js';
import { type KeyRows, readKey } from './key-rows.js';
import { readChange } from './change-chain.js';
import type { OperatorChanges } from './operator-changes.js';
import { readOperator } from './operator-rows.js';
import { quotaUseKeyOf } from './quota-use-rows.js';
import { readAccount, readCredit, readCreditRequest } from './account-codec.js';
import { damaged, isCount, locationOf, newer } from './record-codec.js';
import type { RecordedTable, Table, WrittenRow } from './row-recorder.js';
import {
  CHANGES_BEFORE,
  CHANGES_HEAD,
  GROUP_SLOTS_USED,
  KEY_SLOTS_USED,
  UNREADABLE,
  type Tables,
} from './tables.js';

/** Names of rows of `meta`, as the header lists them. audit.ts reads two of them. */
export const REGISTRY_POSITION = 'registry_position';
export const REGISTRY_PARTIAL = 'registry_partial';
const HOST_ID = 'host_id';

const Position = Type.Object({
  epoch: Type.String(),
  version: Type.Integer({ minimum: 0 }),
  /** Id of the change that made this version; empty for the first version. */
  lastId: Type.String(),
  /** Earlier epochs and their last versions, oldest first, by which registry-reseed.ts compares copies. */
  history: Type.Array(Type.Tuple([Type.String(), Type.Integer({ minimum: 0 })])),
});
export const isPosition = schemaCheck('Position', Position);

/** Where a copy is in the log of changes. Two copies at the same position have the same rows. */
export type RegistryPosition = Readonly<Static<typeof Position>>;

/** A row as hosts send it to each other, as JSON. */
export interface RegistryRow {
  readonly table: RecordedTable;
  readonly key: number | string | readonly (number | string)[];
  /** Null if the row is removed. */
  readonly value: unknown;
}

type RowKey = RegistryRow['key'];

/** Throws as a RowReader if the table can have no such row. */
type Check = (key: RowKey, value: unknown, location: string) => void;

const isPair = (key: RowKey): key is readonly [number | string, number | string] =>
  Array.isArray(key) && key.length === 2;
/** Of a slot or a moment, and a slot or a number. */
const isCountPair = (key: RowKey): boolean => isPair(key) && isCount(key[0]) && isCount(key[1]);

function assertRow(isSound: boolean, location: string): void {
  if (!isSound) throw damaged(location);
}

/** Of a table of free slots, of which only the keys are read. */
const checkFreeSlot: Check = (key, value, location) =>
  assertRow(isCountPair(key) && (value === true || value === null), location);

/** The tables that are copied whole. Of `meta` some rows are. */
type CopiedTable = Exclude<RecordedTable, 'meta'>;

/**
 * Tables whose rows are written as they come, if the check does not throw. `apply` knows the others. A null
 * value removes the row; a reader takes it for damaged.
 */
const CHECKS: Readonly<Record<Exclude<CopiedTable, 'accounts' | 'groups' | 'keys'>, Check>> = {
  group_slots_free: checkFreeSlot,
  credits: (key, value, location) => {
    assertRow(isCountPair(key), location);
    readCredit(value, location);
  },
  credit_requests: (key, value, location) => {
    assertRow(isPair(key) && isCount(key[0]) && typeof key[1] === 'string', location);
    readCreditRequest(value, location);
  },
  key_slots_free: checkFreeSlot,
  operators: (key, value, location) => {
    const digest = value === null ? key : readOperator(value, location).digest;
    assertRow(typeof key === 'string' && key === digest, location);
  },
  operator_changes: (key, value, location) => {
    const number = value === null ? key : readChange(value, location).number;
    assertRow(isCount(key) && key === number, location);
  },
};

/**
 * The tables of which `retain` removes rows; `apply` must accept null for each. Rows of `operator_changes` go
 * when `apply` gets the ends of their chain (OperatorChanges.applyLink).
 */
const DELETABLE: readonly CopiedTable[] = [
  'groups',
  'group_slots_free',
  'keys',
  'key_slots_free',
  'operators',
];

/** The parts of the store by which `apply` also writes indexes (names, slots). store.ts passes itself. */
interface CopiedRows {
  readonly groups: GroupRows;
  readonly keys: KeyRows;
  readonly operatorChanges: OperatorChanges;
  putAccount(record: AccountRecord): void;
}

export class RegistryCopy {
  readonly #tables: Tables;
  /** In the order in which `apply` can write the rows: groups before the accounts in them. */
  readonly #tablesByName: Readonly<Record<CopiedTable, Table<Key>>>;
  readonly #store: CopiedRows;

  constructor(tables: Tables, store: CopiedRows) {
    this.#tables = tables;
    this.#tablesByName = {
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

  /** The name by which other hosts know this data directory. The first call makes and stores it. */
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
   * Undefined if this store has never shared its registry with other hosts, or was changed without them since
   * then (`detach`). Throws StoreError `damaged`.
   */
  position(): RegistryPosition | undefined {
    // lmdb reads in one transaction for each event-loop turn, which may be older than this call.
    this.#tables.environment.refresh();
    const stored = this.#tables.meta.get(REGISTRY_POSITION);
    if (stored === undefined) return undefined;
    if (!isPosition(stored)) throw damaged(locationOf(this.#tables.meta, REGISTRY_POSITION));
    return stored;
  }

  /** Call inside the transaction that brings the rows to this position. The copy is then not partial. */
  setPosition(position: RegistryPosition): void {
    this.#tables.meta.putSync(REGISTRY_POSITION, position);
    this.#tables.meta.removeSync(REGISTRY_PARTIAL);
  }

  /**
   * Call inside a transaction that the other hosts have not agreed on. From then on the registry of this host
   * is its own, and no shared one is merged into it.
   */
  detach(): void {
    this.#tables.meta.removeSync(REGISTRY_POSITION);
    this.#tables.meta.removeSync(REGISTRY_PARTIAL);
  }

  /**
   * Whether a download of all rows has begun and not ended: then the rows are a mix of two states, whatever
   * `position` returns. If it is false and `position` undefined, the registry is this host's alone.
   */
  isPartial(): boolean {
    return this.#tables.meta.get(REGISTRY_PARTIAL) === true;
  }

  /** Call in each transaction that applies a part of all rows. A position stays until `setPosition`. */
  setPartial(): void {
    this.#tables.meta.putSync(REGISTRY_PARTIAL, true);
  }

  /** Whether the registry has no account. */
  isEmpty(): boolean {
    return this.#tables.accounts.getKeysCount({ limit: 1 }) === 0;
  }

  /**
   * Writes the row, or removes it if its value is null. Call inside a transaction. Throws StoreError:
   * `damaged` if key or value is not valid, or the value is of another key; `newer` if this program does not
   * know such a row.
   */
  apply({ table, key, value }: RegistryRow): void {
    const location = `the shared registry: record ${String(key)} of table ${table}`;
    switch (table) {
      case 'accounts': {
        const account = readAccount(value, location);
        assertRow(account.id === key, location);
        this.#store.putAccount(account);
        return;
      }
      case 'groups':
        if (value === null) removeDeleted(this.#store.groups, key, location);
        else this.#applyGroup(key, value, location);
        return;
      case 'keys':
        if (value === null) removeDeleted(this.#store.keys, key, location);
        else this.#applyKey(key, value, location);
        return;
      case 'meta':
        this.#applyMeta(key, value, location);
        return;
      default:
        // A newer Tollgate may send rows of other tables, whatever the type says.
        if (!Object.hasOwn(CHECKS, table)) throw newer(location);
        CHECKS[table](key, value, location);
        if (value === null) this.#tablesByName[table].removeSync(key as Key);
        else this.#tablesByName[table].putSync(key as Key, value);
    }
  }

  /**
   * Returns all rows, in an order in which `apply` can write them. The rows are of one moment only if the
   * caller awaits nothing meanwhile. Throws StoreError `damaged` at a row that cannot be decoded.
   */
  *rows(): Generator<RegistryRow> {
    for (const name of [KEY_SLOTS_USED, GROUP_SLOTS_USED, CHANGES_HEAD, CHANGES_BEFORE]) {
      const value: unknown = this.#tables.meta.get(name);
      if (value !== undefined) yield this.#assertReadable({ table: 'meta', key: name, value });
    }
    for (const [name, table] of Object.entries(this.#tablesByName)) {
      for (const { key, value } of table.getRange())
        yield this.#assertReadable({ table: name as RecordedTable, key: key as RowKey, value });
    }
  }

  #assertReadable(row: RegistryRow): RegistryRow {
    if (row.value !== UNREADABLE) return row;
    throw damaged(`${this.#tables.path}: record ${String(row.key)} of table ${row.table}`);
  }

  /**
   * Removes each row of the DELETABLE tables whose name (`deletableRow`) is not in `rowNames`: another host
   * deleted the row after the version that this copy had. Call in the transaction that sets the position.
   */
  retain(rowNames: ReadonlySet<string>): void {
    for (const table of DELETABLE) {
      for (const key of Array.from(this.#tablesByName[table].getKeys()) as RowKey[]) {
        if (!rowNames.has(nameOfRow(table, key))) this.apply({ table, key, value: null });
      }
    }
  }

  /** Writes a row of `meta`. A newer Tollgate may send other rows. */
  #applyMeta(key: RowKey, value: unknown, location: string): void {
    if (key === CHANGES_HEAD || key === CHANGES_BEFORE) {
      this.#store.operatorChanges.applyLink(key, value);
    } else if (key === KEY_SLOTS_USED || key === GROUP_SLOTS_USED) {
      if (!isCount(value)) throw damaged(location);
      this.#tables.meta.putSync(key, value);
    } else {
      throw newer(location);
    }
  }

  #applyKey(key: RowKey, value: unknown, location: string): void {
    const record = readKey(value, location);
    assertRow(record.id === key, location);
    // If another key had the slot before, what this host has recorded of its use must not count for this key.
    if (this.#store.keys.findId(record.index) !== record.id) {
      this.#tables.keyUses.removeSync(record.index);
      this.#tables.quotaUses.removeSync(quotaUseKeyOf({ kind: 'key', index: record.index }));
    }
    this.#store.keys.put(record);
  }

  #applyGroup(key: RowKey, value: unknown, location: string): void {
    const record = readGroup(value, location);
    assertRow(record.id === key, location);
    // Another group may have had the slot before. Its use must not count for this group.
    if (this.#tables.groupSlots.get(record.index) !== record.id)
      this.#tables.quotaUses.removeSync(quotaUseKeyOf({ kind: 'group', index: record.index }));
    this.#store.groups.put(record);
  }
}

/** GroupRows or KeyRows. */
interface Removable<Row> {
  find(id: string): Row | undefined;
  removeWithoutFreeing(record: Row): void;
}

/**
 * Removes a record that another host has deleted, if this host has it. The slot becomes free by another row
 * that comes from that host, of the table of free slots.
 */
function removeDeleted<Row>(rows: Removable<Row>, id: RowKey, location: string): void {
  if (typeof id !== 'string') throw damaged(location);
  const record = rows.find(id);
  if (record !== undefined) rows.removeWithoutFreeing(record);
}

/** Returns a row's name for `retain`; undefined if the row is of a table that is not DELETABLE. */
export function deletableRow({ table, key }: RegistryRow): string | undefined {
  return DELETABLE.some((deletable) => deletable === table) ? nameOfRow(table, key) : undefined;
}

function nameOfRow(table: RecordedTable, key: RowKey): string {
  return `${table} ${String(key)}`;
}

/** Returns the rows as hosts send them, in the order of writing, so that the last write of a key counts. */
export function registryRowsOf(rows: readonly WrittenRow[]): RegistryRow[] {
  return rows.map(({ table, key, value }) => ({
    table,
    key: key as RowKey,
    value: value === undefined ? null : value,
  }));
}
