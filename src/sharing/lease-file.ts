/**
 * The LMDB file in the data directory in which the processes of one host keep their leases and idempotency
 * locks. lmdb-coordinator.ts and shared-locks.ts work on it. Main thread.
 *
 *     nodes      host:slot → the life of the node: its number, its name, and the identity of its process
 *     subjects   the scopes: LeaseAsk.scope → ScopeState
 *     claims     the idempotency locks: [account slot, idempotency key] → the identity of the process that
 *                makes the call, and the digest of its body. Tables keep their names, which are on disk
 *
 * Commits skip fsync: the page cache survives a process crash, and a reboot voids every lease anyway.
 *
 * Must hold: the file belongs to one boot of the machine, and the first gateway of a later boot removes it.
 * Of the same boot it may be of another version: the first gateway removes the scopes that it cannot read.
 * Test: test/unit/sharing/lmdb-coordinator.test.ts (leases outlive all processes, but not the sharing of
 * limits; scopes of another version).
 */
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Database } from 'lmdb';
import { assertDisposableFile, Environment } from '../store/environment.js';
import { assertStoreFile, OPTIONS, unreadable } from '../store/store-file.js';
import { TABLE } from '../store/tables.js';
import { NO_MONEY, ScopeGrants, type ScopeState } from './scope-grants.js';

/** The most that the file can grow to: address space, no memory. A million scopes of four nodes take 1 GB. */
const MAP_BYTES = 8 * 1024 ** 3;

/** The names of lease files, and of the files by which LMDB and Environment lock them. */
const LEASE_FILE_NAME = /^leases\.[0-9a-f-]+\.lmdb(-gate)?(-lock)?$/;

/** Rows are of the type unknown, because a file may be damaged: their readers check them. */
export interface LeaseFile {
  /** All tables are written by its transactions. */
  readonly environment: Environment;
  readonly nodes: Database<unknown, string>;
  readonly scopes: Database<unknown, string>;
  readonly locks: Database<unknown, [number, string]>;
}

function leasePath(dataPath: string): string {
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  return join(dataPath, `leases.${boot}.lmdb`);
}

/** Throws StoreError if the file cannot be opened. */
export function openLeaseFile(dataPath: string): LeaseFile {
  const path = leasePath(dataPath);
  try {
    const options = { ...OPTIONS, maxDbs: 8, mapSize: MAP_BYTES, noSync: true, noMetaSync: true };
    const environment = new Environment(path, options, assertDisposableFile);
    return environment.openTables((root) => ({
      environment,
      nodes: root.openDB('nodes', TABLE),
      scopes: root.openDB('subjects', TABLE),
      locks: root.openDB('claims', TABLE),
    }));
  } catch (error) {
    throw unreadable(path, error);
  }
}

/**
 * Removes lease files that are damaged or of earlier boots. The file of this boot stays, because what was
 * used of minute and day stays used; only scopes that this version cannot read are removed from it. If limits
 * are not shared from now on (`isShared` false), removes all lease files. Call it while no process works on
 * the folder or can start to, as by `onAlone` of `StoreHold.take`.
 */
export function clearLeaseFiles(dataPath: string, { isShared }: { readonly isShared: boolean }): void {
  const pathOfBoot = leasePath(dataPath);
  for (const name of readdirSync(dataPath)) {
    if (!LEASE_FILE_NAME.test(name)) continue;
    const path = join(dataPath, name);
    // A lock file stays if its file does.
    const file = path.replace(/-lock$/, '');
    const isKept = isShared && path.startsWith(pathOfBoot) && succeeds(() => assertStoreFile(file));
    if (!isKept) rmSync(path, { force: true });
  }
  if (existsSync(pathOfBoot)) removeUnreadableScopes(dataPath);
}

/**
 * Removes the scopes that are damaged or of another version, of which nothing would be granted any more. No
 * process runs that could hold anything of them, and what was used is in the store, from which a scope
 * without a row begins. Takes 4 µs for each scope.
 */
function removeUnreadableScopes(dataPath: string): void {
  const { environment, scopes } = openLeaseFile(dataPath);
  try {
    const unreadableScopes = Array.from(
      scopes
        .getRange()
        .filter(({ value }) => !succeeds(() => ScopeGrants.fromState(value as ScopeState, () => NO_MONEY))),
    );
    if (unreadableScopes.length === 0) return;
    environment.write(() => {
      for (const { key } of unreadableScopes) scopes.removeSync(key);
    });
  } finally {
    void environment.close();
  }
}

/** False if `check` throws, which tells that what it reads is damaged or of another version. */
function succeeds(check: () => unknown): boolean {
  try {
    check();
    return true;
  } catch {
    return false;
  }
}
