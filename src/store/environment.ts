/**
 * An LMDB file that several processes open and write, behind a lock between processes, the gate. tables.ts
 * and audit-run.ts use it for the store, store-hold.ts for the store hold, sharing/lease-file.ts for
 * the leases. Main thread.
 *
 * Why: all processes share the number of the file's newest transaction. Opening the file with lmdb 3.5.6
 * sets this number to what the file said some microseconds before (LMDB's ITS#9496, fixed there in 2021 but
 * not in the fork that lmdb builds). What another process committed in between is lost, and its pages are
 * used twice. A file that is often opened beside one writer, even only to read, is corrupt within a second.
 *
 * Must hold: lmdb's `open` and the writing methods of an opened file are called only inside the gate, so
 * that no process opens or writes the file while another process writes (test/unit/store/environment.test.ts:
 * opened and killed beside writers; test/unit/tree.test.ts: who may import lmdb).
 *
 * The gate is the writers' lock of a second LMDB file, `<path>-gate`, which needs no gate: no transaction
 * ever commits to it. If a process dies, the lock is free; telemetry/main-watchdog.ts wakes processes that go
 * on waiting for a dead process. The gate can go when a release of lmdb has the fix and
 * test/unit/store/environment.test.ts passes without it.
 */
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  linkSync,
  openSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import type * as Lmdb from 'lmdb';
import type { RootDatabase, RootDatabaseOptions } from 'lmdb';
import { addressesLeft } from '../core/process-limit.js';
import { installSignalHandler } from '../telemetry/main-watchdog.js';
import { assertStoreFile, FOLDER_WANTED, OPTIONS, StoreError } from './store-file.js';

let loaded: typeof Lmdb | undefined;

/**
 * Loads lmdb at the first call. Throws StoreError `unloadable` if no binary of it runs here. By `require`,
 * because lmdb as CommonJS is one file: to load it as ES modules takes half as much time again.
 */
function lmdb(): typeof Lmdb {
  try {
    return (loaded ??= createRequire(import.meta.url)('lmdb') as typeof Lmdb);
  } catch (error) {
    throw unloadableStore(error as Error) ?? error;
  }
}

/**
 * Returns the error that says what to do if loading lmdb has thrown `error` because of its native binary, or
 * undefined. If there is no binary, the error has no code and is recognized by its text.
 */
export function unloadableStore(error: Error): StoreError | undefined {
  const isForAnotherSystem =
    'code' in error && error.code === 'ERR_DLOPEN_FAILED' && /[/\\]@?lmdb[/\\]/.test(error.message);
  if (!isForAnotherSystem && !error.message.startsWith('No native build was found for ')) return undefined;
  const { platform, arch, version } = process;
  return new StoreError(
    'unloadable',
    `Tollgate cannot open its books on ${platform} ${arch} with Node ${version.slice(1)}: the package lmdb, which they are kept with, has no binary that runs here. Run "npm ci --omit=dev" in the folder of Tollgate's package.json on Linux, macOS or Windows on x64 or arm64, or use the container image.`,
  );
}

/**
 * Opens a file by lmdb. lmdb 3.5.6 ends the process by SIGSEGV if a file cannot be mapped, its lock file
 * cannot be opened, or the first pages of a new file cannot be written. So throws StoreError if the process
 * may have too few addresses, or the disk has too little space for a new file or maps no files, and the
 * system's error if the lock file is another user's.
 */
function openFile(path: string, options: Readonly<RootDatabaseOptions>): RootDatabase {
  const isWriter = options.readOnly !== true;
  if (isWriter) assertLockFile(`${path}-lock`);
  if (isWriter) assertDiskSpace(path);
  assertAddresses(path, options.mapSize ?? 0);
  // A reader has opened the gate before, as a writer.
  if (isWriter) assertMapsFiles(path, options);
  return lmdb().open(path, options);
}

function assertAddresses(path: string, wantedBytes: number): void {
  const leftBytes = addressesLeft();
  if (wantedBytes <= leftBytes) return;
  const gib = (bytes: number): string => (Math.max(bytes, 0) / 1024 ** 3).toFixed(1);
  throw new StoreError(
    'unreadable',
    `${path} cannot be opened: it wants ${gib(wantedBytes)} GiB of addresses, which take no memory, and the limit of this ` +
      `process leaves ${gib(leftBytes)} GiB. Lift the limit: "ulimit -v unlimited", LimitAS=infinity in a unit of systemd.`,
  );
}

/** File systems that may take files and not map them, by the magic numbers of statfs(2). */
export const FUSE = 0x65735546;
const MAY_NOT_MAP: ReadonlySet<number> = new Set([FUSE, /* 9p */ 0x01021997, /* vboxsf */ 0x786f4256]);
/** Folders on such a file system that a probe has found to map files. */
const mappingFolders = new Set<string>();
/** A disk may be slow. Without a reply the start goes on. */
const PROBE_MS_MAX = 10_000;
/** What the probe runs: opens a new file as this process would. */
const PROBE = 'const [, lmdb, path, options] = process.argv; require(lmdb).open(path, JSON.parse(options))';

/**
 * Throws StoreError if the disk does not map files. Only a process can try it, since a failure ends it: some
 * 0.1 s, once for each folder on a file system of MAY_NOT_MAP. `fileSystem` is given by tests.
 */
export function assertMapsFiles(
  path: string,
  options: Readonly<RootDatabaseOptions>,
  fileSystem = statfsSync(dirname(path)).type,
): void {
  const folder = dirname(path);
  if (!MAY_NOT_MAP.has(fileSystem) || mappingFolders.has(folder)) return;
  const probe = `${path}-new-${randomUUID()}`;
  const module = createRequire(import.meta.url).resolve('lmdb');
  const args = ['-e', PROBE, module, probe, JSON.stringify(options)];
  const { signal } = spawnSync(process.execPath, args, { stdio: 'ignore', timeout: PROBE_MS_MAX });
  for (const name of [probe, `${probe}-lock`]) rmSync(name, { force: true });
  if (signal === 'SIGSEGV' || signal === 'SIGBUS') {
    throw new StoreError('unreadable', `The disk of ${folder} maps no files to memory. ${FOLDER_WANTED}`);
  }
  // If the probe failed otherwise, LMDB says why.
  mappingFolders.add(folder);
}

/** Calls `access`, because to open and close a lock file would end the locks that this process has on it. */
function assertLockFile(path: string): void {
  try {
    accessSync(path, constants.R_OK | constants.W_OK);
  } catch (error) {
    // LMDB makes a missing file, and reports a read-only disk itself.
    if (['ENOENT', 'EROFS'].includes((error as NodeJS.ErrnoException).code ?? '')) return;
    throw error;
  }
}

/** What must be free before a file is created. All files of a first start take some 140 KiB together. */
const NEW_FILE_BYTES = 256 * 1024;

/**
 * If there is no file at `path`, or an empty one, writes NEW_FILE_BYTES beside it and removes them. So it
 * also finds a quota of the user, which `statfs` does not know, and a file system that takes no such file.
 */
function assertDiskSpace(path: string): void {
  if ((statSync(path, { throwIfNoEntry: false })?.size ?? 0) > 0) return;
  const probe = `${path}-new-${randomUUID()}`;
  let file: number;
  try {
    file = openSync(probe, 'wx', 0o600);
  } catch {
    // LMDB says why no file can be created.
    return;
  }
  try {
    writeFileSync(file, Buffer.alloc(NEW_FILE_BYTES));
  } catch (error) {
    throw new StoreError(
      'unreadable',
      `The disk of ${dirname(path)} does not take the ${NEW_FILE_BYTES / 1024} KiB that a start wants: ${(error as Error).message}. ${FOLDER_WANTED}`,
    );
  } finally {
    closeSync(file);
    rmSync(probe, { force: true });
  }
}

/** LMDB's first two pages, and some more. */
const GATE_MAP_BYTES = 64 * 1024;

/** The `code` of LMDB's error if the disk is read-only (errno of Linux). */
const EROFS = 30;

/** What LMDB says of an empty table of readers. */
const NO_READERS = '(no active readers)\n';
/**
 * LMDB looks for dead readers at each opening, but skips readers with its own process number. Commands in
 * containers may all have number 1, so a process that writes looks too, this often, for some microseconds.
 */
const READERS_CHECK_PERIOD_MS = 60_000;

export class Environment {
  /** For reads. Writes go through `write`, and tables are opened by `openTables`. */
  readonly root: RootDatabase;
  /** Undefined for a reader on a read-only disk. */
  readonly #gate: RootDatabase | undefined;
  /** Whether this object has the gate: without this flag an `inGate` in an `inGate` would wait for ever. */
  #hasGate = false;
  #isWriting = false;
  #readersCheckedMs = performance.now();

  /**
   * `assertFile` throws if the file at `path` is there and LMDB, which trusts it, must not open it. Throws
   * that error, what LMDB throws, and StoreError if the gate's file is no LMDB file, or the process or the
   * disk lacks what LMDB needs (`openFile`).
   */
  constructor(
    path: string,
    options: Readonly<RootDatabaseOptions>,
    assertFile: (path: string) => void = assertStoreFile,
  ) {
    assertFile(path);
    // Before this thread can wait for a lock. Otherwise telemetry/main-watchdog.ts could not wake the thread.
    installSignalHandler();
    this.#gate = openGate(`${path}-gate`, options);
    try {
      this.root = this.inGate(() => openFile(path, options));
    } catch (error) {
      void this.#gate?.close();
      throw error;
    }
  }

  /** Opens tables inside the gate, because opening a table may create it, which is a write. */
  openTables<Tables>(openAll: (root: RootDatabase) => Tables): Tables {
    return this.inGate(() => openAll(this.root));
  }

  /**
   * Runs `work` as one transaction, and blocks while another process has the gate. Returns when the commit is
   * on disk. A throw undoes all of `work`. The gate costs 2 µs.
   */
  write<Result>(work: () => Result): Result {
    this.#forgetDeadReaders();
    return this.inGate(() => {
      const wasWriting = this.#isWriting;
      this.#isWriting = true;
      try {
        return this.root.transactionSync(work);
      } finally {
        this.#isWriting = wasWriting;
      }
    });
  }

  /** Whether a `write` runs now. tables.ts asserts it for each row that is written. */
  get isWriting(): boolean {
    return this.#isWriting;
  }

  /**
   * Whether some process, of whatever PID namespace, has read the file outside of a write and still has it
   * open. Such a process has an entry in LMDB's table of readers, and a lock of the kernel (fcntl) that ends
   * with the process. Opening the file removes entries without a lock.
   */
  hasReaders(): boolean {
    return this.root.readerList() !== NO_READERS;
  }

  /** Lets later reads see all commits up to now. Without it they may be older by one event-loop turn. */
  refresh(): void {
    this.root.resetReadTxn();
  }

  async close(): Promise<void> {
    await this.root.close();
    await this.#gate?.close();
  }

  /** Runs `work` while no other process opens or writes the file. */
  inGate<Result>(work: () => Result): Result {
    if (this.#gate === undefined || this.#hasGate) return work();
    let result: Result;
    this.#hasGate = true;
    try {
      this.#gate.transactionSync(() => {
        result = work();
        // The transaction serves as a lock: nothing may be committed to the gate's file.
        return lmdb().ABORT;
      });
    } finally {
      this.#hasGate = false;
    }
    // `result` is set: the transaction has run `work`, or has thrown.
    return result!;
  }

  /** Without it LMDB never reuses the pages that a killed reader was reading, and the file grows. */
  #forgetDeadReaders(): void {
    const nowMs = performance.now();
    if (nowMs - this.#readersCheckedMs < READERS_CHECK_PERIOD_MS) return;
    this.#readersCheckedMs = nowMs;
    this.root.readerCheck();
  }
}

/**
 * Creates an LMDB file without rows at `path`, unless there is a file. It is made under another name and then
 * linked to `path`. So a crash leaves no file at `path` or a whole file, and of two processes that create it
 * at once the later keeps the file of the first. The temporary name is random, because a power
 * cut may have left a broken file of an earlier name, and processes in containers may have the same number.
 */
export function makeEnvironmentFile(path: string, options: Readonly<RootDatabaseOptions>): void {
  if (existsSync(path)) return;
  const temporary = `${path}-new-${randomUUID()}`;
  try {
    // `close` takes effect before it returns, because nothing was written through this environment.
    void openFile(temporary, options).close();
    linkSync(temporary, path);
  } catch (error) {
    // EEXIST: another process has created it meanwhile.
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    for (const name of [temporary, `${temporary}-lock`]) rmSync(name, { force: true });
  }
}

/** Undefined for a reader on a read-only disk: without a lock file LMDB shares no transaction number. */
function openGate(path: string, { readOnly }: Readonly<RootDatabaseOptions>): RootDatabase | undefined {
  assertDisposableFile(path);
  try {
    return openFile(path, {
      ...OPTIONS,
      maxDbs: 1,
      mapSize: GATE_MAP_BYTES,
      noSync: true,
      noMetaSync: true,
    });
  } catch (error) {
    if (readOnly === true && error instanceof Error && 'code' in error && error.code === EROFS)
      return undefined;
    throw error;
  }
}

/** As `assertStoreFile`, for a file whose loss does no harm: the error says that it may be removed. */
export function assertDisposableFile(path: string): void {
  try {
    assertStoreFile(path);
  } catch (error) {
    // The message of `unreadable` says what to check, and removing the file would not help.
    if (!(error instanceof StoreError) || error.code === 'unreadable') throw error;
    throw new StoreError(
      error.code,
      `${path} cannot be read. It holds no data: end what works on this folder, and remove the file.`,
    );
  }
}
