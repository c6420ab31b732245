/**
 * Copies a changed record from the store to the buffers and the directory of a process that shares its
 * registry, whichever process or host changed the record. sharing/change-follower.ts calls the one
 * ChangeApplier of a process, which gateway/shared-accounting.ts makes. Main thread.
 *
 * Must hold: what has no slot in the buffers of this process is not applied, and nothing that leads to it is:
 * no key of such an account, no group below such a group. Another host may have larger limits, and so higher
 * slots. Money and counts stay, because the process holds leases of them. Further test:
 * test/unit/sharing/change-follower.test.ts.
 */
import type { AccountIndex, GroupIndex, KeyIndex } from '../core/units.js';
import type { Log } from '../telemetry/log.js';
import type { AccountDirectory } from './account-directory.js';
import type { Catalog } from './catalog.js';
import {
  applyAccount,
  applyGroup,
  applyKey,
  groupPathTo,
  type LiveBuffers,
  removeGroup,
} from './live-buffers.js';
import type { RecordStore } from './record-store.js';

interface ChangeApplierOptions {
  readonly store: RecordStore;
  readonly live: LiveBuffers;
  readonly directory: AccountDirectory;
  /** The catalogue that is in force now. */
  readonly catalog: () => Catalog;
  /** Slots of the ledger and of the key table. */
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly groupsMax: number;
  readonly log: Log;
}

export class ChangeApplier {
  readonly #options: ChangeApplierOptions;
  /** Kinds of records of which a slot was too high. Each kind is logged once. */
  readonly #loggedKinds = new Set<string>();

  constructor(options: ChangeApplierOptions) {
    this.#options = options;
  }

  /** The slot may have a new group, a changed group, or no group any more. Throws as live-buffers.ts does. */
  applyGroup(index: GroupIndex): void {
    const { store, live, groupsMax } = this.#options;
    const record = store.groups.findAt(index);
    if (record === undefined) {
      if (index < groupsMax) removeGroup(index, live);
      return;
    }
    // If a group above has no slot here, its limits could not be applied.
    const path = groupPathTo(record, store) ?? [record];
    if (path.every((group) => this.#fits(group.index, groupsMax, 'groups'))) applyGroup(record, live, store);
  }

  /** Does nothing if no account has the slot. Takes 15 µs. */
  applyAccount(index: AccountIndex): void {
    const { store, live, directory, catalog, accountsMax } = this.#options;
    const id = store.findAccountId(index);
    const record = id === undefined ? undefined : store.findAccount(id);
    if (record === undefined || !this.#fits(index, accountsMax, 'accounts')) return;
    applyAccount(record, live, catalog(), store);
    directory.set(record);
  }

  /**
   * The slot may have a new key, a changed key, or no key any more. A key whose account has no slot here is
   * left out: its callers are rejected as with an unknown key. Takes 15 µs.
   */
  applyKey(index: KeyIndex): void {
    const { store, live, accountsMax, keysMax } = this.#options;
    const { keyTable } = live;
    const record = store.keys.findAt(index);
    if (record === undefined) {
      if (index < keysMax && keyTable.has(index)) keyTable.remove(index);
      return;
    }
    if (!this.#fits(index, keysMax, 'keys')) return;
    if (this.#fits(record.accountIndex, accountsMax, 'accounts')) applyKey(record, live);
    // What has the slot then is a former key: a key never changes its account.
    else if (keyTable.has(index)) keyTable.remove(index);
  }

  /** Whether the slot `index` is in the buffers; if not, logs the first of its kind. */
  #fits(index: number, slotsMax: number, kind: 'accounts' | 'groups' | 'keys'): boolean {
    if (index < slotsMax) return true;
    if (this.#loggedKinds.has(kind)) return false;
    this.#loggedKinds.add(kind);
    this.#options.log.error(
      `the registry has more ${kind} than limits.${kind} of this gateway allows: those beyond are refused here; ` +
        `raise it to at least ${index + 1} and restart`,
      { [kind]: slotsMax },
    );
    return false;
  }
}
