/**
 * An LMDB file that processes open and write beside each other. Main thread.
 *
 * Who opens a file with lmdb 3.5.6 sets the number of its newest transaction, which all processes share, to what the file
 * said some microseconds before (LMDB's ITS#9496, mended there in 2021 and not in the fork that lmdb builds). What another
 * process has committed meanwhile is lost, and its pages are used twice: a file that is opened again and again beside one
 * writer is garbage within a second, and opening it to read is enough. So nobody opens while somebody writes: for either a
 * process takes the gate first.
 *
 * The gate is the writers' lock of a second LMDB file, `<path>-gate`. That one never gets a row, so opening it can lose
 * none. The lock of a process that dies is the next one's. It can go when lmdb has taken the correction over; the test
 * beside this file tells.
 */
import { existsSync, linkSync, rmSync } from 'node:fs';
import { ABORT, open, type RootDatabase, type RootDatabaseOptions } from 'lmdb';
import { assertStoreFile, OPTIONS, StoreError } from './store-file.js';

/** LMDB's two first pages, and room. */
const GATE_MAP_BYTES = 64 * 1024;

/** What LMDB gives as `code` where the disk is read-only. */
const EROFS = 30;

export class Environment {
  /** To read from. */
  readonly root: RootDatabase;
  readonly #gate: RootDatabase | undefined;
  #isInside = false;

  /** Throws what LMDB throws, and `StoreFault` where the gate's file is not one. */
  constructor(path: string, options: Readonly<RootDatabaseOptions>) {
    this.#gate = openGate(`${path}-gate`, options.readOnly === true);
    try {
      this.root = this.#inside(() => open(path, options));
    } catch (error) {
      void this.#gate?.close();
      throw error;
    }
  }

  /** Opening a table may make it. */
  openTables<Tables>(openAll: (root: RootDatabase) => Tables): Tables {
    return this.#inside(() => openAll(this.root));
  }

  /** Runs `work` as one transaction; a throw undoes all of it. The gate is 2 µs of it. */
  write<Result>(work: () => Result): Result {
    return this.#inside(() => this.root.transactionSync(work));
  }

  /** What is read from now on is as new as what other processes have committed by now; else it may be older by a turn. */
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
 * Makes an LMDB file without rows at `path`, unless there is a file. It comes under its name when it is whole: a crash leaves
 * none or a whole one, and of two processes that make it at once one finds the other's.
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

/** Undefined on a disk that is read-only, for a reader: then LMDB has no number of transactions to share either. */
function openGate(path: string, readOnly: boolean): RootDatabase | undefined {
  assertSpareFile(path);
  try {
    return open(path, { ...OPTIONS, maxDbs: 1, mapSize: GATE_MAP_BYTES, noSync: true, noMetaSync: true });
  } catch (error) {
    if (readOnly && error instanceof Error && 'code' in error && error.code === EROFS) return undefined;
    throw error;
  }
}

/** As `assertStoreFile`, of a file that may be removed. */
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
