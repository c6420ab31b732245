/**
 * The leases of the processes of one host: an LMDB file in the data directory that all of them work on. Main thread.
 *
 *     nodes      host:slot  → the life that is known: its number, and the identity of its process
 *     scopes   account's or key's id  → SubjectState
 *     claims     [account slot, idempotency key]  → the number of the life that makes the call, and the digest of its body
 *     meta       'lives'    → number of lives ever
 *
 * Commits do not wait for the disk: what the kernel has of the file outlives every process, and what it does not outlive, the
 * end of the machine, no lease outlives either. So the file is of one boot of the machine, and is removed by the first
 * gateway of a later one.
 */
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Database } from 'lmdb';
import { Environment } from '../store/environment.js';
import { assertStoreFile, OPTIONS, unreadable } from '../store/store-file.js';
import { TABLE } from '../store/tables.js';

/** Address space and not memory. A million scopes that are granted from by four nodes take about 1 GB of it. */
const MAP_BYTES = 8 * 1024 ** 3;

const FILE = /^leases\.[0-9a-f-]+\.lmdb(-gate)?(-lock)?$/;

export interface LeaseFile {
  /** Through which all of them are written. */
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

/** Throws `StoreFault` where the file cannot be had. */
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
 * To be called while nobody works on the folder, nor can begin to: removes leases of an earlier boot, or all where limits
 * are not to be shared from now on, and a file that is damaged. Those of this boot stay: what was used of the minute and the
 * day is used, whoever granted it.
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
