/**
 * The LMDB file in the data directory in which the processes of one host keep their leases and idempotency
 * locks. `LmdbCoordinator` and `SharedLocks` work on it. Main thread.
 *
 *     nodes      host:slot → the life that is known: its number, and the identity of its process
 *     subjects   LeaseAsk.scope → ScopeState
 *     claims     the idempotency locks: [account slot, idempotency key] → the identity of the process that
 *                makes the call, and the digest of its body (shared-locks.ts)
 *     meta       'lives' → how many lives there ever were
 *
 * Commits skip fsync: the page cache survives a process crash, and a reboot voids every lease anyway.
 *
 * Must hold: the file belongs to one boot of the machine, and the first gateway of a later boot removes it.
 * Test: test/unit/sharing/lmdb-coordinator.test.ts (leases outlive all processes, and not the sharing of
 * limits).
 */
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Database } from 'lmdb';
import { Environment } from '../store/environment.js';
import { assertStoreFile, OPTIONS, unreadable } from '../store/store-file.js';
import { TABLE } from '../store/tables.js';

/** Address space, not memory. A million scopes that four nodes lease from take about 1 GB of it. */
const MAP_BYTES = 8 * 1024 ** 3;

const FILE = /^leases\.[0-9a-f-]+\.lmdb(-gate)?(-lock)?$/;

export interface LeaseFile {
  /** All tables are written through it. */
  readonly environment: Environment;
  readonly nodes: Database<unknown, string>;
  readonly subjects: Database<unknown, string>;
  readonly claims: Database<unknown, [number, string]>;
  readonly meta: Database<unknown, string>;
}

function leasePath(dataPath: string): string {
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  return join(dataPath, `leases.${boot}.lmdb`);
}

/** Throws StoreError if the file cannot be opened. */
export function openLeaseFile(dataPath: string): LeaseFile {
  const path = leasePath(dataPath);
  try {
    const environment = new Environment(path, {
      ...OPTIONS,
      maxDbs: 8,
      mapSize: MAP_BYTES,
      noSync: true,
      noMetaSync: true,
    });
    return environment.openTables((root) => ({
      environment,
      nodes: root.openDB('nodes', TABLE),
      subjects: root.openDB('subjects', TABLE),
      claims: root.openDB('claims', TABLE),
      meta: root.openDB('meta', TABLE),
    }));
  } catch (error) {
    throw unreadable(path, error);
  }
}

/**
 * Removes files of earlier boots, and damaged ones; all files if limits are not `shared` from now on. The
 * file of this boot stays, because what was used of minute and day stays used. Call it while no process works
 * on the folder or can start to, as by `onAlone` of `StoreHold.take`.
 */
export function clearLeaseFiles(dataPath: string, shared: boolean): void {
  const kept = leasePath(dataPath);
  for (const name of readdirSync(dataPath)) {
    const path = join(dataPath, name);
    if (!FILE.test(name) || (shared && path.startsWith(kept) && isSound(path.replace(/-lock$/, ''))))
      continue;
    rmSync(path, { force: true });
  }
}

function isSound(path: string): boolean {
  try {
    assertStoreFile(path);
    return true;
  } catch {
    return false;
  }
}
