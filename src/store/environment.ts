/**
 * An LMDB file that several processes open and write. Everything that opens one goes through this file. Main
 * thread.
 *
 * Opening a file with lmdb 3.5.6 sets the number of its newest transaction, which all processes share, to
 * what the file said some microseconds before (LMDB's ITS#9496, fixed there in 2021 but not in the fork that
 * lmdb builds). What another process committed in between is lost, and its pages are used twice. A file that
 * is opened again and again beside one writer is garbage within a second, and opening it to read is enough.
 * So nobody may open while somebody writes: for either, a process takes the gate first.
 *
 * The gate is the writers' lock of a second LMDB file, `<path>-gate`. That file never gets a row, so opening
 * it can lose none. If a process dies, the lock is free for the next one. The gate can go when lmdb has taken
 * over the correction; test/unit/store/environment.test.ts tells.
 */
import { existsSync, linkSync, rmSync } from 'node:fs';
import { ABORT, open, type RootDatabase, type RootDatabaseOptions } from 'lmdb';
import { assertStoreFile, OPTIONS, StoreError } from './store-file.js';

/** LMDB's first two pages, and some room. */
const GATE_MAP_BYTES = 64 * 1024;

/** The `code` of LMDB's error if the disk is read-only. */
const EROFS = 30;

export class Environment {
  /** For reading. */
  readonly root: RootDatabase;
  readonly #gate: RootDatabase | undefined;
  #isInside = false;

  /** Throws what LMDB throws, and StoreError if the gate's file is not an LMDB file. */
  constructor(path: string, options: Readonly<RootDatabaseOptions>) {
    this.#gate = openGate(`${path}-gate`, options.readOnly === true);
    try {
      this.root = this.#inside(() => open(path, options));
    } catch (error) {
      void this.#gate?.close();
      throw error;
    }
  }

  /** Opens tables inside the gate, because opening a table may create it. */
  openTables<Tables>(openAll: (root: RootDatabase) => Tables): Tables {
    return this.#inside(() => openAll(this.root));
  }

  /** Runs `work` as one transaction; a throw undoes all of it. The gate adds 2 µs. */
  write<Result>(work: () => Result): Result {
    return this.#inside(() => this.root.transactionSync(work));
  }

  /**
   * Later reads see what other processes have committed by now. Otherwise they may be older by one event-loop
   * turn.
   */
  refresh(): void {
    this.root.resetReadTxn();
  }

  async close(): Promise<void> {
    await this.root.close();
    await this.#gate?.close();
  }

  #inside<Result>(work: () => Result): Result {
    if (this.#gate === undefined || this.#isInside) return work();
    let result: Result;
    this.#isInside = true;
    try {
      this.#gate.transactionSync(() => {
        result = work();
        return ABORT;
      });
    } finally {
      this.#isInside = false;
    }
    return result!;
  }
}

/**
 * Creates an LMDB file without rows at `path`, unless there is a file. It gets its name when it is whole. So
 * a crash leaves none or a whole one, and of two processes that create it at once one finds the other's.
 */
export function makeEnvironmentFile(path: string, options: Readonly<RootDatabaseOptions>): void {
  if (existsSync(path)) return;
  const made = `${path}-new-${process.pid}`;
  try {
    void open(made, options).close();
    linkSync(made, path);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    for (const name of [made, `${made}-lock`]) rmSync(name, { force: true });
  }
}

/** Undefined for a reader on a read-only disk: there LMDB shares no number of transactions either. */
function openGate(path: string, readOnly: boolean): RootDatabase | undefined {
  assertSpareFile(path);
  try {
    return open(path, { ...OPTIONS, maxDbs: 1, mapSize: GATE_MAP_BYTES, noSync: true, noMetaSync: true });
  } catch (error) {
    if (readOnly && error instanceof Error && 'code' in error && error.code === EROFS) return undefined;
    throw error;
  }
}

/** As `assertStoreFile`, for a file that may be removed without loss. */
export function assertSpareFile(path: string): void {
  try {
    assertStoreFile(path);
  } catch (error) {
    if (!(error instanceof StoreError) || error.code === 'unreadable') throw error;
    throw new StoreError(
      error.code,
      `${path} cannot be read. It holds no data: end what works on this folder, and remove the file.`,
    );
  }
}
