/**
 * The tables of the store in its LMDB environment, the codec of their rows, and the check of the format.
 * store.ts opens the tables, on the main thread of a gateway process or in a command. audit-run.ts reads
 * them for the audit with the same codec and check.
 *
 * Must hold: stores of all earlier formats can be read. So a change of a table's name, its keys or their
 * order needs a new FORMAT and a reader of the old one (record-codec.ts). A new table is added to the list
 * below and to `tablesOf`; to AUDITED_TABLES and to a check of audit.ts or audit-groups.ts, unless it can be
 * made again (test/unit/store/audit.audited-tables.test.ts finds one that was forgotten); and if an
 * operator's change writes it, to RecordedTable (row-recorder.ts; no test finds one that was forgotten).
 * test/unit/store/key-rows.key-codec.test.ts opens a store of format 1, which is of the present format from
 * then on, and test/durability/earlier-store.test.ts one of format 3.
 *
 *     accounts           id                        → account
 *     account_slots      account slot              → id
 *     account_names      name                      → id
 *     credits            [account slot, sequence]  → credit or debit of an account
 *     credit_requests    [account slot, idempotency key]  → what was asked, and the response
 *     spending           account slot              → totals of the last flush
 *     usage              [account slot, hour, key id, model id]  → number, tokens and cost of these calls
 *     keys               id                        → key
 *     key_slots          key slot                  → id of the key that has the slot
 *     key_ids            key slot                  → id of the key that has or last had the slot
 *     key_slots_free     [deleted at ms, key slot] → true
 *     keys_of_account    [account slot, key slot]  → id
 *     key_names          [name, id]                → true
 *     key_uses           key slot                  → last use and counts of the last flush
 *     groups             id                        → group
 *     group_slots        group slot                → id
 *     group_names        name                      → id
 *     group_slots_free   [deleted at ms, group slot]  → true
 *     group_members      [group id, kind, slot]    → true, of groups (kind 0) and accounts (1) in it
 *     operators          digest of the token       → operator
 *     operator_changes   number                    → who changed what; see operator-changes.ts
 *     quota_uses         [kind, slot, model id]    → use of quotas at the last flush; see quota-use-rows.ts
 *     flushes            slot of a gateway process → its last flush; see flush-mark.ts
 *     answers            [account slot, idempotency key]            → stored response
 *     answer_ages        [ended at ms, account slot, idempotency key]  → bytes that the response counts for
 *     cached             [account slot, model id/digest]            → response of the cache
 *     cached_ages        [ended at ms, account slot, model id/digest]  → bytes that it counts for
 *     cached_model_ages  [model id, ended at ms, account slot, model id/digest]  → the same bytes
 *     changes            number                    → accounts and keys touched; see change-feed.ts
 *     history            [seconds of a span, position in its ring]  → stats of the span; see history-rows.ts
 *                        ['accounts', seconds of a span, position in its ring]  → its stats by account
 *     notices            ['told', id of the scope, quota]           → notice; see notice-rows.ts
 *                        ['waits', told at ms, webhook id]          → body of the webhook
 *
 * Rows of the table `meta`, by their name:
 *
 *     format                   FORMAT
 *     key_slots_used           number of key slots ever used
 *     group_slots_used         number of group slots ever used
 *     operator_uses            last uses of operators; see operator-rows.ts
 *     operator_changes_head    the newest row of operator_changes; see operator-changes.ts
 *     operator_changes_before  the row before the oldest of operator_changes
 *     books_version            grows with each flush mark and each life; see flush-mark.ts
 *     clocks                   clocks at the last flush; see host-clocks.ts
 *     answer_bytes             sum of the bytes in answer_ages
 *     cached_bytes             sum of the bytes in cached_ages
 *     cached_model_bytes       sums of the bytes in cached_model_ages by model id, as JSON
 *     changes                  number of the newest row of changes
 *     registry_position, registry_partial, host_id   of hosts that share; see registry-copy.ts
 */
import type { Database, Key, RootDatabase } from 'lmdb';
import { Encoder, RESERVE_START_SPACE, type Options } from 'msgpackr';
import { invariant } from '../core/errors.js';
import { Environment, makeEnvironmentFile } from './environment.js';
import { FORMAT } from './record-codec.js';
import { type RecordedTable, RowRecorder, type Table } from './row-recorder.js';
import {
  assertNotEmpty,
  foreign,
  makeDataFolder,
  OPTIONS,
  StoreError,
  storePath,
  unreadable,
} from './store-file.js';

export type Tables = Readonly<ReturnType<typeof tablesOf>>;

/**
 * The rows of `meta` that an operator's change writes. These rows are recorded for the hosts that share the
 * registry; all other rows of `meta` are of this host alone.
 */
export const KEY_SLOTS_USED = 'key_slots_used';
export const GROUP_SLOTS_USED = 'group_slots_used';
export const CHANGES_HEAD = 'operator_changes_head';
export const CHANGES_BEFORE = 'operator_changes_before';
const CHANGED_META = [KEY_SLOTS_USED, GROUP_SLOTS_USED, CHANGES_HEAD, CHANGES_BEFORE];

/** Stands for bytes that cannot be decoded. No schema accepts it, so the row's reader throws `damaged`. */
export const UNREADABLE = Symbol('unreadable row');

/** The most values of an array whose length msgpack writes as one byte. */
const VALUES_MAX = 15;
/** The most bytes of encoded names that msgpackr can leave free before the values. */
const NAMES_BYTES_MAX = 256;

type Encode = Encoder['encode'];

/** msgpackr encodes into one buffer that it uses again; `start` is where the value begins. */
type Encoded = Buffer & { readonly start?: number };

/**
 * The row codec: a msgpackr Encoder that caches field names. lmdb makes one for each table (TABLE).
 *
 * A row is a record of msgpackr: the names of its fields, then their values. For every row
 * msgpackr looks the names up in a tree and encodes them, which is three quarters of its time. The rows of a
 * table have the same names, so the encoded names are cached here. The values are encoded as an array behind
 * a free space, and the names are then copied over the space and the head of the array:
 *
 *     encoded as an array   [names.length - 1 free bytes][1 byte: number of values][values]
 *     the row               [names.length bytes: the cached names                 ][values]
 *
 * Must hold: a row is byte for byte what a plain msgpackr Encoder makes, or other versions cannot read the
 * store (test/unit/store/tables.row-encoder.test.ts, which also tells if a new msgpackr encodes otherwise).
 */
export class RowEncoder extends Encoder {
  /** Names of the fields of the row that was encoded last, and these names as bytes. */
  #fieldNames: readonly string[] = [];
  #encodedNames = Buffer.alloc(0);

  constructor(options?: Options) {
    super(options);
    // msgpackr defines `encode` on each encoder object, which would hide a method of this class.
    const encode: Encode = this.encode.bind(this);
    this.encode = (value: unknown, flags = 0): Buffer => {
      const values = valuesOf(value);
      if (values === undefined) return encode(value, flags);
      const encodedNames = this.#encodedNamesOf(Object.keys(value as object), encode);
      if (encodedNames.length > NAMES_BYTES_MAX) return encode(value, flags);
      const row: Encoded = encode(values, flags | RESERVE_START_SPACE | (encodedNames.length - 1));
      row.set(encodedNames, row.start ?? 0);
      return row;
    };
  }

  /**
   * Returns UNREADABLE for bytes at which msgpackr throws. lmdb would let the error end the whole range that
   * is read, and the error would not name the row.
   */
  override decode(bytes: Uint8Array, options?: Parameters<Encoder['decode']>[1]): unknown {
    try {
      return super.decode(bytes, options);
    } catch {
      return UNREADABLE;
    }
  }

  #encodedNamesOf(fieldNames: readonly string[], encode: Encode): Buffer {
    if (!areSame(fieldNames, this.#fieldNames)) {
      const withNulls = encode(Object.fromEntries(fieldNames.map((name) => [name, null])));
      // Without the values: each null is one byte. Copied, because the next row overwrites the buffer.
      this.#encodedNames = Buffer.from(withNulls.subarray(0, withNulls.length - fieldNames.length));
      this.#fieldNames = fieldNames;
    }
    return this.#encodedNames;
  }
}

/** Undefined if `value` is no record, has too many fields, or has objects: nested names are not cached. */
function valuesOf(value: unknown): unknown[] | undefined {
  if (typeof value !== 'object' || value?.constructor !== Object) return undefined;
  const values: unknown[] = Object.values(value);
  if (values.length === 0 || values.length > VALUES_MAX) return undefined;
  for (const fieldValue of values) if (typeof fieldValue === 'object') return undefined;
  return values;
}

function areSame(names: readonly string[], formerNames: readonly string[]): boolean {
  if (names.length !== formerNames.length) return false;
  for (let index = 0; index < names.length; index++) if (names[index] !== formerNames[index]) return false;
  return true;
}

/**
 * Options of every table. None may change while there are stores: each but `cache` changes the bytes or the
 * order on disk. A cache would not see what other processes write.
 */
export const TABLE = {
  compression: false,
  cache: false,
  encoder: { Encoder: RowEncoder },
  keyEncoding: 'ordered-binary' as const,
  useVersions: false,
  dupSort: false,
};

/**
 * Opens the store, and creates it if there is none. Throws StoreError if the file is not a store of this
 * format or an older one.
 */
export function openTables(dataPath: string): Tables {
  const path = storePath(dataPath);
  makeDataFolder(dataPath);
  assertNotEmpty(path);
  const environment = openEnvironment(path);
  try {
    return environment.openTables((root) => tablesOf(path, environment, root));
  } catch (error) {
    void environment.close();
    // `unreadable` returns a StoreError as it is, and makes one of any other error, such as a full disk.
    throw unreadable(path, error);
  }
}

function openEnvironment(path: string): Environment {
  try {
    makeEnvironmentFile(path, OPTIONS);
    return new Environment(path, OPTIONS);
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** Opens all tables. Each has the type of its keys; values are `unknown`, see `Table`. */
function tablesOf(path: string, environment: Environment, root: RootDatabase) {
  const recorder = new RowRecorder();
  const open = <TableKey extends Key>(name: string) => openTable<TableKey>(environment, root, name);
  const openRecorded = <TableKey extends Key>(name: RecordedTable) => recorder.watch(open<TableKey>(name));
  return {
    path,
    /** All tables are written through it. */
    environment,
    /** Records writes to the tables that an operator's changes are in. */
    recorder,
    meta: recorder.watch(openMeta(path, environment, root), CHANGED_META),
    accounts: openRecorded<string>('accounts'),
    accountSlots: open<number>('account_slots'),
    accountNames: open<string>('account_names'),
    credits: openRecorded<[number, number]>('credits'),
    creditRequests: openRecorded<[number, string]>('credit_requests'),
    spending: open<number>('spending'),
    usage: open<[number, number, string, string]>('usage'),
    keys: openRecorded<string>('keys'),
    keySlots: open<number>('key_slots'),
    keyIds: open<number>('key_ids'),
    keySlotsFree: openRecorded<[number, number]>('key_slots_free'),
    keysOfAccount: open<[number, number]>('keys_of_account'),
    keyNames: open<[string, string]>('key_names'),
    keyUses: open<number>('key_uses'),
    groups: openRecorded<string>('groups'),
    groupSlots: open<number>('group_slots'),
    groupNames: open<string>('group_names'),
    groupSlotsFree: openRecorded<[number, number]>('group_slots_free'),
    groupMembers: open<[string, number, number]>('group_members'),
    operators: openRecorded<string>('operators'),
    operatorChanges: openRecorded<number>('operator_changes'),
    quotaUses: open<[string, number, string]>('quota_uses'),
    flushes: open<number>('flushes'),
    answers: open<[number, string]>('answers'),
    answerAges: open<[number, number, string]>('answer_ages'),
    cached: open<[number, string]>('cached'),
    cachedAges: open<[number, number, string]>('cached_ages'),
    cachedModelAges: open<[string, number, number, string]>('cached_model_ages'),
    changes: open<number>('changes'),
    history: open<[number, number] | ['accounts', number, number]>('history'),
    notices: open<['told', string, string] | ['waits', number, string]>('notices'),
  };
}

/** Opens a table that throws if it is written outside of `Environment.write`: the write could be lost. */
function openTable<TableKey extends Key>(
  environment: Environment,
  root: RootDatabase,
  name: string,
): Table<TableKey> {
  const table = root.openDB<unknown, TableKey>(name, TABLE) as Database<unknown, TableKey> & Table<TableKey>;
  const put: (key: TableKey, value: unknown) => unknown = table.putSync.bind(table);
  const remove: (key: TableKey) => unknown = table.removeSync.bind(table);
  const clear = table.clearSync.bind(table);
  const assertWriting = (): void => invariant(environment.isWriting, 'rows are written in a transaction');
  return Object.assign(table, {
    putSync: (key: TableKey, value: unknown): unknown => {
      assertWriting();
      return put(key, value);
    },
    removeSync: (key: TableKey): unknown => {
      assertWriting();
      return remove(key);
    },
    clearSync: (): void => {
      assertWriting();
      clear();
    },
  });
}

/** Writes the format into a new file. Throws StoreError for a file of another program or a later Tollgate. */
function openMeta(path: string, environment: Environment, root: RootDatabase): Table<string> {
  // After a crash between making `meta` and filling it, the file is still new.
  const tableNames = Array.from(root.getKeys());
  const isNew = tableNames.every((name) => name === 'meta');
  if (!isNew && !tableNames.includes('meta')) throw foreign(path, 'another program has written it');
  const meta = openTable<string>(environment, root, 'meta');
  environment.write(() => {
    const format = meta.get('format');
    if (format === undefined && isNew) meta.putSync('format', FORMAT);
    else assertFormat(path, format);
    // From now on rows of this format are written, which an older program would call damaged. Because of the
    // raised format it rejects the file instead.
    if (format !== undefined && format !== FORMAT) meta.putSync('format', FORMAT);
  });
  return meta;
}

/** Throws StoreError `foreign` or `newer` if this program cannot read files of the `format`. */
export function assertFormat(path: string, format: unknown): void {
  if (format === undefined) throw foreign(path, 'it does not name its format');
  if (typeof format !== 'number' || format < 1) throw foreign(path, 'its format is none of ours');
  if (format <= FORMAT) return;
  throw new StoreError(
    'newer',
    `${path} has format ${format}, this Tollgate reads up to ${FORMAT}. Run the newer Tollgate that wrote it, ` +
      'or point `data` (TOLLGATE_DATA) at another folder.',
  );
}
