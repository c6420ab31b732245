/**
 * What the store has of an account or a key, brought to the shared buffers and the directory, where every thread of this
 * process sees it from then on. Who changed it, and how often, makes no difference. Main thread of a gateway that shares its
 * registry with other processes.
 *
 * Money and counts are not touched: the process holds leases of them, not what the store has.
 */
import type { AccountIndex, KeyIndex } from '../core/units.js';
import type { Log } from '../telemetry/log.js';
import type { AccountDirectory } from './account-directory.js';
import { findPlanIndex } from './account-state.js';
import { NO_PLAN_INDEX, type Catalog } from './catalog.js';
import { openKey } from './key-use.js';
import type { RecordStore } from './record-store.js';
import type { LiveBuffers } from './registry-options.js';

export interface ChangeApplierOptions {
  readonly store: RecordStore;
  readonly live: LiveBuffers;
  readonly directory: AccountDirectory;
  /** As it is at the moment. */
  readonly catalog: () => Catalog;
  /** Slots of the ledger and of the key table. */
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly log: Log;
}

export class ChangeApplier {
  readonly #options: ChangeApplierOptions;
  readonly #told = new Set<string>();

  constructor(options: ChangeApplierOptions) {
    this.#options = options;
  }

  /** Its plan and standing; nothing happens where no account has the slot. 15 µs. */
  applyAccount(index: AccountIndex): void {
    const { store, live, directory, catalog, accountsMax } = this.#options;
    const id = store.findAccountId(index);
    const record = id === undefined ? undefined : store.findAccount(id);
    if (record === undefined || !this.#fits(index, accountsMax, 'accounts')) return;
    const planIndex = findPlanIndex(catalog(), record.planId);
    const active = record.active && planIndex !== undefined;
    // In this order no thread looks up a plan that is not there.
    if (!active) live.ledger.setActive(index, false);
    live.ledger.setPlan(index, planIndex ?? NO_PLAN_INDEX);
    live.ledger.setActive(index, active);
    directory.set(record);
  }

  /** Whatever became of the slot: a new key, another standing or expiry, or that its key was deleted. 15 µs. */
  applyKey(index: KeyIndex): void {
    const { store, live, keysMax } = this.#options;
    const { keyTable } = live;
    const record = store.keys.findAt(index);
    if (record === undefined) {
      if (index < keysMax && keyTable.has(index)) keyTable.remove(index);
      return;
    }
    if (!this.#fits(index, keysMax, 'keys')) return;
    // A slot rests for a day before it is used again, so its former key is of a process that stood still for a day.
    const isOther = keyTable.has(index) && keyTable.find(record.digest) !== index;
    if (isOther) keyTable.remove(index);
    if (!keyTable.has(index)) {
      openKey(record, live);
      return;
    }
    keyTable.setActive(index, record.active);
    if (record.expiresSeconds !== undefined) keyTable.setExpiry(index, record.expiresSeconds);
  }

  /** Hosts may have other bounds than the one that made the record. */
  #fits(index: number, most: number, what: 'accounts' | 'keys'): boolean {
    if (index < most) return true;
    if (this.#told.has(what)) return false;
    this.#told.add(what);
    this.#options.log.error(
      `the registry has more ${what} than limits.${what} of this gateway allows: those beyond are refused here; ` +
        `raise it to at least ${index + 1} and restart`,
      { [what]: most },
    );
    return false;
  }
}
