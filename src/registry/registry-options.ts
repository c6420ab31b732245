/**
 * What the registry and its parts work on. Main thread of the gateway; or a command, on the store alone, while none runs.
 */
import { asWallMs, type WallMs } from '../core/units.js';
import type { Clock } from '../core/clock.js';
import type { Ledger } from '../ledger/ledger.js';
import type { AccountDirectory } from './account-directory.js';
import type { AccountUses } from './account-uses.js';
import type { Catalog } from './catalog.js';
import type { KeyTable } from './key-table.js';
import type { RecordStore } from './record-store.js';

/** What the running gateway's threads share; a command has none. */
export interface LiveBuffers {
  readonly ledger: Ledger;
  readonly keyTable: KeyTable;
}

export interface RegistryOptions {
  readonly store: RecordStore;
  readonly catalog: Catalog;
  readonly clock: Clock;
  /** Slots of the ledger and of the key table (`limits.accounts`, `limits.keys`). */
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly live: LiveBuffers | undefined;
  /** Filled by recovery; where it is absent, the first search reads all accounts. */
  readonly directory?: AccountDirectory | undefined;
  /**
   * True where processes share the registry: then a ChangeApplier fills the directory, and a change that is undone leaves no
   * trace in it.
   */
  readonly followed?: boolean;
  /** What all processes use of accounts, where they share them; see account-uses.ts. */
  readonly uses?: AccountUses | undefined;
}

/** The moment of a record: they hold whole milliseconds. */
export function recordMomentMs(clock: Clock): WallMs {
  return asWallMs(Math.floor(clock.wallMs()));
}
