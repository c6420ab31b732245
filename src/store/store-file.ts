/**
 * The store's file: its path, the checks before it is opened, and the options with which LMDB opens it.
 * tables.ts, audit-run.ts, store-hold.ts, environment.ts and sharing/lease-file.ts use it. Main thread,
 * or a command.
 *
 * LMDB maps the file and trusts it. Given a broken file, or a file that is not LMDB's, the library ends the
 * process with a segmentation fault instead of an error (tried with lmdb 3.5.6).
 *
 * Must hold: an Environment checks its file by `assertStoreFile` before LMDB opens it
 * (test/unit/store/environment.test.ts; test/unit/store/page-walk.test.ts: files cut at any length).
 * `pageSize` and the encodings in OPTIONS never change, or existing stores cannot be read
 * (test/durability/earlier-store.test.ts).
 */
import { closeSync, existsSync, fstatSync, mkdirSync, openSync, readSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { errorText } from '../core/errors.js';
import { STORE_BYTES_MAX } from '../core/limits.js';
import { findPageError, type PageError } from './page-walk.js';

/** `newer`: the format is of a later Tollgate (tables.ts). `unloadable`: no binary of LMDB runs here. */
type StoreErrorCode = 'foreign' | 'newer' | 'damaged' | 'unreadable' | 'unloadable';

/** The store cannot be used, and the start must stop. The message names the file and says what to do. */
export class StoreError extends Error {
  readonly code: StoreErrorCode;

  constructor(code: StoreErrorCode, message: string) {
    super(message);
    this.name = 'StoreError';
    this.code = code;
  }
}

/*
 * The file begins with two of LMDB's meta pages. page-walk.ts reads more of them, by the same offsets:
 *
 *     byte  0        24     28       48
 *           header   magic  version  page size
 */
const MAGIC_OFFSET = 24;
const VERSION_OFFSET = 28;
const PAGE_SIZE_OFFSET = 48;
const HEAD_BYTES = 52;
const MAGIC = 0xbeefc0de;
/** The upper half of the version holds flags. */
const VERSION_MASK = 0xffff;
const VERSION = 2;
/** Page sizes that LMDB can make. Tollgate's files have pages of 4096 bytes. */
const PAGE_SIZES_BYTES = [512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536];

export function storePath(dataPath: string): string {
  return join(dataPath, 'tollgate.lmdb');
}

/**
 * Creates the folder, and those that it is to be in, for their owner alone, unless it is there. Throws
 * StoreError `unreadable`.
 */
export function makeDataFolder(dataPath: string): void {
  try {
    makeFolder(dataPath);
  } catch (error) {
    throw new StoreError(
      'unreadable',
      `The data directory ${dataPath} cannot be created: ${(error as Error).message}. ${FOLDER_WANTED}`,
    );
  }
}

/** What LMDB needs of a data directory, for errors. */
export const FOLDER_WANTED =
  'Wanted is a folder on a disk that is neither full nor read-only, that this user may write to, and whose ' +
  'file system can lock files and map them to memory: name it by `data` (--data, TOLLGATE_DATA).';

/**
 * Other processes may make the same folders meanwhile. If `isParentMade`, ENOENT is final: the system also
 * says so of a folder that cannot be made, as below /proc. (Node never returns there from a `mkdirSync` with
 * `recursive: true`; tried with Node 20.20.)
 */
function makeFolder(path: string, isParentMade = false): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    if (existsSync(path) && statSync(path).isDirectory()) return;
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || isParentMade) throw error;
    makeFolder(dirname(path));
    makeFolder(path, true);
  }
}

/**
 * Checks the file; a missing or empty file is none, and passes. Throws StoreError: `foreign` if LMDB cannot
 * open the file, `damaged` if pages are missing or broken, `unreadable` if the system does not let it be
 * read. Reads every page in use: 0.4 s a GB on warm disk caches.
 */
export function assertStoreFile(path: string): void {
  const heads = existsSync(path) ? readMetaHeads(path) : undefined;
  if (heads === undefined) return;
  for (const head of heads) {
    if (
      head.length < HEAD_BYTES ||
      head.readUInt32LE(MAGIC_OFFSET) !== MAGIC ||
      (head.readUInt32LE(VERSION_OFFSET) & VERSION_MASK) !== VERSION ||
      !PAGE_SIZES_BYTES.includes(head.readUInt32LE(PAGE_SIZE_OFFSET))
    ) {
      throw foreign(path, 'it is not an LMDB file of the version that Tollgate reads');
    }
  }
  const pageError = pageErrorOf(path);
  if (pageError === undefined) return;
  throw new StoreError(
    'damaged',
    `${path} is damaged at page ${pageError.page} (byte ${pageError.byte}): ${pageError.reason}. ` +
      'Restore it from a backup; a part of it is not enough to go on from.',
  );
}

/**
 * Throws StoreError `damaged` if the file is there and empty. Tollgate never leaves an empty store file, so
 * its contents were cut off. Call before an Environment is made, which takes an empty file for a missing one.
 */
export function assertNotEmpty(path: string): void {
  if (!existsSync(path) || readMetaHeads(path) !== undefined) return;
  throw new StoreError(
    'damaged',
    `${path} is empty: the books that it held are gone. Restore it from a backup; if no gateway has ever served from this folder, remove the file.`,
  );
}

function pageErrorOf(path: string): PageError | undefined {
  try {
    return findPageError(path);
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** The error of whoever needs books and may not make them. */
export function noBooks(dataPath: string): StoreError {
  return new StoreError(
    'unreadable',
    `There are no books in ${dataPath}. Start the gateway once, which makes them; if there are others, name their folder (--data, TOLLGATE_DATA) or their configuration (--config).`,
  );
}

export function foreign(path: string, reason: string): StoreError {
  return new StoreError('foreign', `${path} is not a store of Tollgate: ${reason}. ${REMEDY}`);
}

const REMEDY =
  'Move the file away, restore it from a backup, or point `data` (TOLLGATE_DATA) at another folder.';

/** Returns up to HEAD_BYTES of each of the two meta pages; undefined for an empty file. */
function readMetaHeads(path: string): Buffer[] | undefined {
  try {
    const file = openSync(path, 'r');
    try {
      if (fstatSync(file).size === 0) return undefined;
      const first = readHead(file, 0);
      // The page size, which says where the second page begins, is in the first.
      const second =
        first.length < HEAD_BYTES ? Buffer.alloc(0) : readHead(file, first.readUInt32LE(PAGE_SIZE_OFFSET));
      return [first, second];
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw unreadable(path, error);
  }
}

function readHead(file: number, position: number): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  return head.subarray(0, readSync(file, head, 0, HEAD_BYTES, position));
}

/**
 * Why the disk takes no more, by the `code` of LMDB's error: errno of Linux, or LMDB's own MDB_MAP_FULL
 * (-30792) for a file that may not grow beyond `mapSize`.
 */
const DISK_ERRORS: ReadonlyMap<unknown, string> = new Map([
  [5, 'it failed to write (EIO)'],
  [28, 'it is full (ENOSPC)'],
  [30, 'it is read-only (EROFS)'],
  [122, 'the quota of its owner is used up (EDQUOT)'],
  [-30792, 'the file of the books has its full size'],
]);
/** The same of other files, by the `code` of Node's error. */
const NODE_CODES: ReadonlyMap<unknown, number> = new Map([
  ['EIO', 5],
  ['ENOSPC', 28],
  ['EROFS', 30],
  ['EDQUOT', 122],
]);

/**
 * Returns why the disk did not take a row; undefined if `error` is of another kind. A transaction that ended
 * with a disk error has changed nothing.
 */
export function diskErrorOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? DISK_ERRORS.get(error.code) : undefined;
}

/**
 * The message of a start that failed by `error`: of a disk that took no more, what to look at, because
 * neither LMDB nor Node names the file then. Of any other error its own message.
 */
export function startErrorText(dataPath: string, error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  const reason = DISK_ERRORS.get(NODE_CODES.get(code) ?? code);
  if (reason !== undefined)
    return `The start could not write to its disk: ${reason}. Look at the disk of ${dataPath}, and of log files.`;
  return errorText(error);
}

/**
 * Returns a StoreError with the system's reason: a full or read-only disk, another owner. A StoreError names
 * its file already and is returned as it is.
 */
export function unreadable(path: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  return new StoreError(
    'unreadable',
    `${path} cannot be opened: ${errorText(error)}. Check the path, its owner, and that the disk is neither full nor read-only and can lock and map files.`,
  );
}

/** For each LMDB file that is opened. Small files override `mapSize` and `maxDbs`, readers `readOnly`. */
export const OPTIONS = {
  noSubdir: true,
  // More than there are tables, so that a later format may have more.
  maxDbs: 48,
  mapSize: STORE_BYTES_MAX,
  pageSize: 4096,
  // Processes and threads that may read at once.
  maxReaders: 126,
  permissionsMode: 0o600,
  // A commit returns when it is on disk; with `overlappingSync` it would return before.
  overlappingSync: false,
  separateFlushed: false,
  noSync: false,
  noMetaSync: false,
  // Uninitialized memory of the process must not get into the file.
  noMemInit: false,
  // Written out, so that other defaults of a later lmdb change nothing.
  useWritemap: false,
  remapChunks: false,
  readOnly: false,
  eventTurnBatching: true,
  compression: false,
  cache: false,
  encoding: 'msgpack' as const,
  keyEncoding: 'ordered-binary' as const,
};
