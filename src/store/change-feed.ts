/**
 * The change feed: which accounts and keys each transaction of the registry touched, so that every process of a host brings
 * its shared buffers up to what another one has committed. Main thread.
 *
 *     changes  number of the change, from 1 without gaps  → slots of the accounts and keys touched
 *     meta     'changes'                                   → number of the newest
 */
import { asAccountIndex, asKeyIndex, type AccountIndex, type KeyIndex } from '../core/units.js';
import { damaged } from './record-codec.js';
import type { WrittenRow } from './row-recorder.js';
import type { Tables } from './tables.js';

export const NEWEST_CHANGE = 'changes';

/**
 * Changes that are kept. Each costs a disk flush, so a process that has fallen so far behind was stopped for some seconds;
 * it reads all accounts and keys anew.
 */
const CHANGES_KEPT = 4_096;

/** Slots; the records are read where they are wanted, as they are then. */
export interface Touched {
  readonly accounts: readonly AccountIndex[];
  readonly keys: readonly KeyIndex[];
}

export class ChangeFeed {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** Number of the newest change that any process has committed; 0 for none. 2 µs. */
  newest(): number {
    // What this turn has read before is of an older moment.
    this.#tables.environment.refresh();
    return this.#newest();
  }

  /** Inside the transaction that has made the rows. */
  append(rows: readonly WrittenRow[]): void {
    const { changes, meta } = this.#tables;
    const number = this.#newest() + 1;
    changes.putSync(number, touchedBy(rows));
    changes.removeSync(number - CHANGES_KEPT);
    meta.putSync(NEWEST_CHANGE, number);
  }

  /** What the changes after `number` touched, each slot once; undefined where not all of them are kept any more. */
  since(number: number): Touched | undefined {
    const accounts = new Set<AccountIndex>();
    const keys = new Set<KeyIndex>();
    let next = number + 1;
    for (const { key, value } of this.#tables.changes.getRange({ start: next })) {
      if (key !== next) return undefined;
      const touched = this.#readTouched(key, value);
      for (const account of touched.accounts) accounts.add(account);
      for (const slot of touched.keys) keys.add(slot);
      next++;
    }
    return next > this.#newest() ? { accounts: [...accounts], keys: [...keys] } : undefined;
  }

  #newest(): number {
    const number = this.#tables.meta.get(NEWEST_CHANGE) ?? 0;
    if (typeof number !== 'number') throw damaged(`${this.#tables.path}: record changes of table meta`);
    return number;
  }

  #readTouched(number: number, value: unknown): Touched {
    if (isTouched(value)) return value;
    throw damaged(`${this.#tables.path}: record ${number} of table changes`);
  }
}

function touchedBy(rows: readonly WrittenRow[]): Touched {
  const accounts = new Set<AccountIndex>();
  const keys = new Set<KeyIndex>();
  for (const { table, value, former } of rows) {
    const { index } = (value ?? former) as { readonly index?: unknown };
    if (table === 'accounts') accounts.add(asAccountIndex(Number(index)));
    else if (table === 'keys') keys.add(asKeyIndex(Number(index)));
  }
  return { accounts: [...accounts], keys: [...keys] };
}

function isTouched(value: unknown): value is Touched {
  if (typeof value !== 'object' || value === null) return false;
  const { accounts, keys } = value as { readonly accounts?: unknown; readonly keys?: unknown };
  return areSlots(accounts) && areSlots(keys);
}

function areSlots(value: unknown): boolean {
  return Array.isArray(value) && value.every((slot) => Number.isSafeInteger(slot) && slot >= 0);
}
