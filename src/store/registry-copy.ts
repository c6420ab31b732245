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
 * RecordedTable, or two hosts at one position differ (test/unit/sharing/registry-log.test.ts).
 */
import { randomUUID } from 'node:crypto';
import { Type, type Static } from 'typebox';
import { schemaCheck } from '../core/schema-check.js';
import { readGroup } from './group-rows.js';
import { readKey } from './key-rows.js';
import { readChange } from './operator-changes.js';
import { readOperator } from './operator-rows.js';
import { damaged, readAccount, readCredit, readCreditRequest } from './record-codec.js';
import type { RecordedTable, WrittenRow } from './row-recorder.js';
import { StoreError } from './store-file.js';
import type { Store } from './store.js';
import { CHANGES_BEFORE, CHANGES_HEAD, GROUP_SLOTS_USED, KEY_SLOTS_USED, type Tables } from './tables.js';

const REGISTRY_POSITION = 'registry_position';
const HOST_ID = 'host_id';
const REGISTRY_PARTIAL = 'registry_partial';

const Position = Type.Object({
  epoch: Type.String(),
  version: Type.Integer({ minimum: 0 }),
  /** Id of the change that made the version; empty for the first version. */
  lastId: Type.String(),
  /** Earlier epochs and their last versions, oldest first. */
  history: Type.Array(Type.Tuple([Type.String(), Type.Integer({ minimum: 0 })])),
});
const isPosition = schemaCheck('Position', Position);

/** Two copies at the same position have the same rows. */
export type RegistryPosition = Readonly<Static<typeof Position>>;

/** A row as hosts send it to each other, as JSON. */
export interface RegistryRow {
  readonly table: RecordedTable;
  readonly key: number | string | readonly (number | string)[];
  /** Null if the row is removed. */
  readonly value: unknown;
}

export class RegistryCopy {
  readonly #tables: Tables;
  readonly #store: Pick<Store, 'putAccount' | 'groups' | 'keys' | 'changes'>;

  constructor(tables: Tables, store: Pick<Store, 'putAccount' | 'groups' | 'keys' | 'changes'>) {
    this.#tables = tables;
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
    if (!isPosition(stored)) throw damaged(`${this.#tables.path}: record ${REGISTRY_POSITION} of table meta`);
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
  take(row: RegistryRow): void {
    const { meta, credits, creditRequests, groupSlotsFree, keySlotsFree, operators, operatorChanges } =
      this.#tables;
    const { table, key, value } = row;
    const location = `the shared registry: record ${String(key)} of table ${table}`;
    if (table === 'accounts') {
      this.#store.putAccount(readAccount(value, location));
    } else if (table === 'groups') {
      if (value === null) this.#takeGroupOut(String(key));
      else this.#store.groups.put(readGroup(value, location));
    } else if (table === 'group_slots_free') {
      if (value === null) groupSlotsFree.removeSync(key as [number, number]);
      else groupSlotsFree.putSync(key as [number, number], true);
    } else if (table === 'keys') {
      if (value === null) this.#takeKeyOut(String(key));
      else this.#takeKey(value, location);
    } else if (table === 'credits') {
      readCredit(value, location);
      credits.putSync(key as [number, number], value);
    } else if (table === 'credit_requests') {
      readCreditRequest(value, location);
      creditRequests.putSync(key as [number, string], value);
    } else if (table === 'key_slots_free') {
      if (value === null) keySlotsFree.removeSync(key as [number, number]);
      else keySlotsFree.putSync(key as [number, number], true);
    } else if (table === 'operators') {
      if (value !== null) readOperator(value, location);
      if (value === null) operators.removeSync(String(key));
      else operators.putSync(String(key), value);
    } else if (table === 'operator_changes') {
      if (value !== null) readChange(value, location);
      if (value === null) operatorChanges.removeSync(Number(key));
      else operatorChanges.putSync(Number(key), value);
    } else if (key === CHANGES_HEAD || key === CHANGES_BEFORE) {
      this.#store.changes.takeLink(key, value);
    } else if (key === KEY_SLOTS_USED || key === GROUP_SLOTS_USED) {
      meta.putSync(key, value);
    } else {
      throw new StoreError('newer', `${location} was written by a newer Tollgate: update this one.`);
    }
  }

  /**
   * Returns all rows, in an order in which `take` can write them. They are of one moment only if nothing is
   * awaited meanwhile.
   */
  *rows(): Generator<RegistryRow> {
    const { meta, groups, groupSlotsFree, accounts, credits, creditRequests, keys, keySlotsFree, operators } =
      this.#tables;
    const { operatorChanges } = this.#tables;
    for (const name of [KEY_SLOTS_USED, GROUP_SLOTS_USED, CHANGES_HEAD, CHANGES_BEFORE]) {
      const used = meta.get(name);
      if (used !== undefined) yield { table: 'meta', key: name, value: used };
    }
    const tables = {
      groups,
      group_slots_free: groupSlotsFree,
      accounts,
      credits,
      credit_requests: creditRequests,
      keys,
      key_slots_free: keySlotsFree,
      operators,
      operator_changes: operatorChanges,
    };
    for (const [name, table] of Object.entries(tables)) {
      for (const { key, value } of table.getRange() as Iterable<{
        key: RegistryRow['key'];
        value: unknown;
      }>) {
        yield { table: name as RecordedTable, key: key, value };
      }
    }
  }

  /**
   * Removes what can be deleted (groups, keys, free slots, operators) and is not among `rows`, which are the
   * names that `deletableRow` gives. A copy of an older version may have it. Called inside a transaction.
   */
  retain(rows: ReadonlySet<string>): void {
    const { groups, groupSlotsFree, keys, keySlotsFree, operators } = this.#tables;
    const tables = {
      groups,
      group_slots_free: groupSlotsFree,
      keys,
      key_slots_free: keySlotsFree,
      operators,
    };
    for (const [name, table] of Object.entries(tables)) {
      for (const key of Array.from<RegistryRow['key']>(table.getKeys() as Iterable<RegistryRow['key']>)) {
        const row = { table: name as RecordedTable, key, value: null };
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

  #takeGroupOut(id: string): void {
    const record = this.#store.groups.find(id);
    if (record !== undefined) this.#store.groups.takeOut(record);
  }

  #takeKeyOut(id: string): void {
    const record = this.#store.keys.find(id);
    if (record !== undefined) this.#store.keys.takeOut(record);
  }
}

/** A text that identifies the row; undefined if no operator can delete rows of its table. */
export function deletableRow({ table, key }: RegistryRow): string | undefined {
  const deletable = ['groups', 'group_slots_free', 'keys', 'key_slots_free', 'operators'].includes(table);
  return deletable ? `${table} ${String(key)}` : undefined;
}

/** Returns the rows as hosts send them. Several rows with one key all count, in their order. */
export function registryRowsOf(rows: readonly WrittenRow[]): RegistryRow[] {
  return rows.map(({ table, key, value }) => ({
    table,
    key: key as RegistryRow['key'],
    value: value === undefined ? null : value,
  }));
}
