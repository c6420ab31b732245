/**
 * Which authority a gateway leases from: the processes of one host share a file. Main thread of a gateway process.
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import type { Store } from '../store/store.js';
import type { Authority } from './coordinator.js';
import type { LeaseFile } from './lease-file.js';
import { LmdbAuthority } from './lmdb-coordinator.js';

/** Within one data directory there is one host. */
const THIS_HOST = 'this';
/** What an operator takes out of accounts is leased by a node beside that of the calls. */
const DEBIT_SLOTS_FROM = 1_000_000;

export interface AuthorityOptions {
  /** Index of the process in its group. */
  readonly slot: number;
  readonly file: LeaseFile;
  readonly store: Store;
  readonly clock: Clock;
}

export interface Authorities {
  /** Of the calls. */
  readonly calls: Authority;
  /** Of an operator's debits. */
  readonly debits: Authority;
}

/** Nobody has joined yet. */
export function openAuthorities({ slot, file, store, clock }: AuthorityOptions): Authorities {
  const open = (nodeSlot: number): Authority =>
    new LmdbAuthority({
      node: { host: THIS_HOST, slot: nodeSlot, incarnation: randomUUID() },
      file,
      store,
      clock,
    });
  return { calls: open(slot), debits: open(DEBIT_SLOTS_FROM + slot) };
}
