/**
 * Where the store's file is, and whether it is one. Main thread.
 *
 * LMDB maps the file and trusts it: given anything else, the library ends the process with a segmentation fault instead
 * of an error (tried with lmdb 3.5.6), so its pages are looked at before it gets to see them.
 */
import { closeSync, existsSync, fstatSync, mkdirSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { findPageError, type PageError } from './page-walk.js';

export type StoreErrorCode = 'foreign' | 'newer' | 'damaged' | 'unreadable';

/** The store cannot be used as it is; the message names the file and says what to do. The start must stop. */
export class StoreError extends Error {
  readonly code: StoreErrorCode;

  constructor(code: StoreErrorCode, message: string) {
    super(message);
    this.name = 'StoreError';
    this.code = code;
  }
}

/*
 * A page of LMDB's meta data, of which the file begins with two:
 *
 *     byte  0        24     28       48
 *           header   magic  version  page size
 */
const MAGIC_OFFSET = 24;
const VERSION_OFFSET = 28;
const PAGE_SIZE_OFFSET = 48;
const HEAD_BYTES = 52;
const MAGIC = 0xbeefc0de;
/** The version's upper half holds flags. */
const VERSION_MASK = 0xffff;
const VERSION = 2;
/** What LMDB can make; Tollgate's have 4096 bytes. */
const PAGE_BYTES = [512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536];

export function storePath(dataPath: string): string {
  return join(dataPath, 'tollgate.lmdb');
}

/** Makes the folder, for its owner alone, where it is not there. Throws `unreadable`. */
export function makeDataFolder(dataPath: string): void {
  try {
    mkdirSync(dataPath, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw unreadable(dataPath, error);
  }
}

/**
 * Throws `foreign` where there is a file that LMDB cannot open, `damaged` where pages of it are missing or are none,
 * `unreadable` where the system does not let it be read. False if there is no file, or an empty one. Reads all of the
 * file that is in use: 0.4 s a GB on warm disk caches.
 */
export function assertStoreFile(path: string): boolean {
  if (!existsSync(path)) return false;
  const pages = readPages(path);
  if (pages === undefined) return false;
  for (const page of pages) {
    if (
      page.length < HEAD_BYTES ||
      page.readUInt32LE(MAGIC_OFFSET) !== MAGIC ||
      (page.readUInt32LE(VERSION_OFFSET) & VERSION_MASK) !== VERSION ||
      !PAGE_BYTES.includes(page.readUInt32LE(PAGE_SIZE_OFFSET))
    ) {
      throw foreign(path, 'it is not an LMDB file of the version that Tollgate reads');
    }
  }
  const fault = pageErrorOf(path);
  if (fault === undefined) return true;
  throw new StoreError(
    'damaged',
    `${path} is damaged at page ${fault.page} (byte ${fault.byte}): ${fault.reason}. ` +
      'Restore it from a backup; a part of it is not enough to go on from.',
  );
}

/** Throws `damaged` if the file is there and empty: Tollgate never leaves one, so its books were cut off. */
export function assertNotEmpty(path: string): void {
  if (!existsSync(path) || readPages(path) !== undefined) return;
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

export function foreign(path: string, reason: string): StoreError {
  return new StoreError('foreign', `${path} is not a store of Tollgate: ${reason}. ${REMEDY}`);
}

const REMEDY =
  'Move the file away, restore it from a backup, or point `data` (TOLLGATE_DATA) at another folder.';

/** The heads of the two meta pages; undefined of an empty file. */
function readPages(path: string): Buffer[] | undefined {
  try {
    const file = openSync(path, 'r');
    try {
      if (fstatSync(file).size === 0) return undefined;
      const first = readHead(file, 0);
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

/** What LMDB gives as `code` if the disk takes no more: errno of Linux, and its own for a file that may not grow. */
const DISK_ERRORS: ReadonlyMap<unknown, string> = new Map([
  [5, 'it failed to write (EIO)'],
  [28, 'it is full (ENOSPC)'],
  [30, 'it is read-only (EROFS)'],
  [122, 'the quota of its owner is used up (EDQUOT)'],
  [-30792, 'the file of the books has its full size'],
]);

/** Why the disk did not take a row; undefined if `error` is not of that kind. A transaction that it ended has changed nothing. */
export function diskErrorOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? DISK_ERRORS.get(error.code) : undefined;
}

/**
 * The system's reason is in the message: a disk that is full or read-only, an owner that is another. A `StoreFault` names
 * its file already, and is returned as it is.
 */
export function unreadable(path: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new StoreError(
    'unreadable',
    `${path} cannot be opened: ${reason}. Check the path, its owner, and that the disk is neither full nor read-only.`,
  );
}

/*
 * How LMDB opens the store. Main thread of the gateway, or a command.
 */

/** Of every opening of the file, but for `readOnly`. */
export const OPTIONS = {
  noSubdir: true,
  // More than there are tables; the others are room for a later format to open.
  maxDbs: 32,
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
