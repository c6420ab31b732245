/**
 * Which coordinator a gateway leases from: the processes of one host share a file. Main thread of a gateway process.
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import type { Store } from '../store/store.js';
import type { Coordinator } from './coordinator.js';
import type { LeaseFile } from './lease-file.js';
import { LmdbCoordinator } from './lmdb-coordinator.js';

/** Within one data directory there is one host. */
const THIS_HOST = 'this';
/** What an operator takes out of accounts is leased by a node beside that of the calls. */
const DEBIT_SLOTS_FROM = 1_000_000;

export interface CoordinatorOptions {
  /** Index of the process in its group. */
  readonly slot: number;
  readonly file: LeaseFile;
  readonly store: Store;
  readonly clock: Clock;
}

export interface Coordinators {
  /** Of the calls. */
  readonly calls: Coordinator;
  /** Of an operator's debits. */
  readonly debits: Coordinator;
}

/** Nobody has joined yet. */
export function openCoordinators({ slot, file, store, clock }: CoordinatorOptions): Coordinators {
  const open = (nodeSlot: number): Coordinator =>
    new LmdbCoordinator({
      node: { host: THIS_HOST, slot: nodeSlot, incarnation: randomUUID() },
      file,
      store,
      clock,
    });
  return { calls: open(slot), debits: open(DEBIT_SLOTS_FROM + slot) };
}
