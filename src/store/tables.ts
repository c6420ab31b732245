/**
 * The LMDB environment and its tables. Main thread of the gateway, or a command while no gateway runs.
 *
 *     meta               'format'                  → FORMAT
 *                        'key_slots_used'          → number of key slots ever used
 *     accounts           id                        → account
 *     account_slots      account slot              → id
 *     account_names      name                      → id
 *     credits            [account slot, sequence]  → journal line
 *     spending           account slot              → totals of the last flush
 *     usage              [account slot, hour, key id, model id]  → totals of these calls
 *     keys               id                        → key
 *     key_slots          key slot                  → id
 *     key_ids            key slot                  → id of the key that has or last had the slot
 *     key_slots_free     [deleted at ms, key slot] → true
 *     keys_of_account    [account slot, key slot]  → id
 *     key_names          [name, id]                → true
 */
import { open, type Database, type Key, type RootDatabase } from 'lmdb';
import { FORMAT } from './record-codec.js';
import { RowEncoder } from './row-encoder.js';
import { StoreFault, assertStoreFile, foreign, makeDataFolder, storePath, unreadable } from './store-file.js';

/** What comes out of a table is checked by whoever reads it. */
type Table<TableKey extends Key> = Database<unknown, TableKey>;

export interface Tables {
  readonly path: string;
  readonly root: RootDatabase;
  readonly meta: Table<string>;
  readonly accounts: Table<string>;
  readonly accountSlots: Table<number>;
  readonly accountNames: Table<string>;
  readonly credits: Table<[number, number]>;
  readonly spending: Table<number>;
  readonly usage: Table<[number, number, string, string]>;
  readonly keys: Table<string>;
  readonly keySlots: Table<number>;
  readonly keyIds: Table<number>;
  readonly keySlotsFree: Table<[number, number]>;
  readonly keysOfAccount: Table<[number, number]>;
  readonly keyNames: Table<[string, string]>;
}

/** Of every opening of the file, but for `readOnly`. */
export const OPTIONS = {
  noSubdir: true,
  // Thirteen tables; the others are room for a later format to open.
  maxDbs: 16,
  // Address space and not memory. A million accounts with two million keys take about 2 GB of it.
  mapSize: 16 * 1024 ** 3,
  pageSize: 4096,
  // Processes and threads that read at once.
  maxReaders: 126,
  permissionsMode: 0o600,
  // A commit returns when it is on disk; overlapping would return before.
  overlappingSync: false,
  separateFlushed: false,
  noSync: false,
  noMetaSync: false,
  // Unwritten memory of the process must not get into the file.
  noMemInit: false,
  useWritemap: false,
  remapChunks: false,
  readOnly: false,
  eventTurnBatching: true,
  compression: false,
  cache: false,
  encoding: 'msgpack' as const,
  keyEncoding: 'ordered-binary' as const,
};

/** Of every table. */
export const TABLE = {
  compression: false,
  cache: false,
  encoder: { Encoder: RowEncoder },
  keyEncoding: 'ordered-binary' as const,
  useVersions: false,
  dupSort: false,
};

/** Throws `StoreFault` where the file is not a store of this format or an older one. */
export function openTables(dataPath: string): Tables {
  const path = storePath(dataPath);
  makeDataFolder(dataPath);
  assertStoreFile(path);
  const root = openRoot(path);
  try {
    const meta = openMeta(path, root);
    return {
      path,
      root,
      meta,
      accounts: root.openDB('accounts', TABLE),
      accountSlots: root.openDB('account_slots', TABLE),
      accountNames: root.openDB('account_names', TABLE),
      credits: root.openDB('credits', TABLE),
      spending: root.openDB('spending', TABLE),
      usage: root.openDB('usage', TABLE),
      keys: root.openDB('keys', TABLE),
      keySlots: root.openDB('key_slots', TABLE),
      keyIds: root.openDB('key_ids', TABLE),
      keySlotsFree: root.openDB('key_slots_free', TABLE),
      keysOfAccount: root.openDB('keys_of_account', TABLE),
      keyNames: root.openDB('key_names', TABLE),
    };
  } catch (error) {
    void root.close();
    // What is no fault of the contents is one of the disk: the tables of a new file could not be made.
    throw error instanceof StoreFault ? error : unreadable(path, error);
  }
}

function openRoot(path: string): RootDatabase {
  try {
    return open(path, OPTIONS);
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** Marks a new file as ours; refuses another program's and a later Tollgate's. */
function openMeta(path: string, root: RootDatabase): Table<string> {
  // A crash between making `meta` and filling it leaves a file that is still new.
  const names = Array.from(root.getKeys());
  const fresh = names.every((name) => name === 'meta');
  if (!fresh && !names.includes('meta')) throw foreign(path, 'another program has written it');
  const meta = root.openDB<unknown, string>('meta', TABLE);
  root.transactionSync(() => {
    const format = meta.get('format');
    if (format === undefined && fresh) meta.putSync('format', FORMAT);
    else assertFormat(path, format);
  });
  return meta;
}

/** Throws `foreign` or `newer` where `format`, the mark of the file, is not one that this program reads. */
export function assertFormat(path: string, format: unknown): void {
  if (format === undefined) throw foreign(path, 'it does not name its format');
  if (typeof format !== 'number' || format < 1) throw foreign(path, 'its format is none of ours');
  if (format <= FORMAT) return;
  throw new StoreFault(
    'newer',
    `${path} has format ${format}, this Tollgate reads up to ${FORMAT}. Run the newer Tollgate that wrote it, ` +
      'or point `data` (TOLLGATE_DATA) at another folder.',
  );
}
