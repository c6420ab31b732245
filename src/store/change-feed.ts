/**
 * The change feed: which accounts and keys each transaction of the registry touched, so that every process of a host brings
 * its shared buffers up to what another one has committed. Main thread.
 *
 *     changes  number of the change, from 1 without gaps  → slots of the accounts and keys touched
 *     meta     'changes'                                   → number of the newest
 */
import { type AccountIndex, asAccountIndex, asKeyIndex, type KeyIndex } from '../core/units.js';
import { accountingVersionOf } from './flush-mark.js';
import { damaged } from './record-codec.js';
import type { RegistryCopy } from './registry-copy.js';
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

/*
 * Changes to a registry that several processes share: as transactions that leave word in the change feed, and as drafts,
 * which show what a change would write before it is made. Main thread.
 */

/** What a change returned and the rows that it wrote, or would write. */
export interface Recorded<Result> {
  readonly result: Result;
  readonly rows: readonly WrittenRow[];
}

export class SharedChanges {
  readonly feed: ChangeFeed;
  readonly #tables: Tables;
  readonly #copy: Pick<RegistryCopy, 'detach'>;

  constructor(tables: Tables, copy: Pick<RegistryCopy, 'detach'>) {
    this.feed = new ChangeFeed(tables);
    this.#tables = tables;
    this.#copy = copy;
  }

  /**
   * Runs `work` as one transaction that is on disk, and in the feed, when this returns; a throw undoes all of it, be it of
   * `check`, which sees what was written. For the processes of one host.
   */
  commit<Result>(work: () => Result, check: (rows: readonly WrittenRow[]) => void = () => undefined): Result {
    return this.#commit(work, (rows) => {
      check(rows);
      if (rows.length > 0) this.#copy.detach();
    });
  }

  /** The same for what hosts have agreed on, so that the store remains a copy of what they share. */
  take(work: () => void): void {
    this.#commit(work, () => undefined);
  }

  /** Grows with every flush of the processes that share the store. As new as what was read last, see `refresh`. */
  booksVersion(): number {
    return accountingVersionOf(this.#tables);
  }

  /** What `work` would return and write, which is undone. No disk flush; waits while another process writes. */
  draft<Result>(work: () => Result): Recorded<Result> {
    const { environment, recorder } = this.#tables;
    let recorded: Recorded<Result> | undefined;
    try {
      environment.write(() => {
        recorded = recorder.record(work);
        throw new Undone();
      });
    } catch (error) {
      if (!(error instanceof Undone)) throw error;
    }
    return recorded!;
  }

  #commit<Result>(work: () => Result, check: (rows: readonly WrittenRow[]) => void): Result {
    const { environment, recorder } = this.#tables;
    return environment.write(() => {
      const { result, rows } = recorder.record(work);
      check(rows);
      if (rows.length > 0) this.feed.append(rows);
      return result;
    });
  }
}

/** Ends a transaction that was made to see what it writes. */
class Undone extends Error {}
