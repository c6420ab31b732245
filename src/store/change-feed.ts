/**
 * The change feed: which groups, accounts and keys each transaction of the registry touched.
 * sharing/change-follower.ts reads it, so that every process of a host brings its shared buffers up to date
 * with what another process committed. store.ts makes SharedChanges, by which processes change a registry
 * that they share. sharing/shared-registry.ts, registry-log.ts and registry-reseed.ts use it. Main thread.
 *
 *     changes  number of the change, from 1 without gaps  → slots of the groups, accounts, keys touched
 *     meta     'changes'                                   → number of the newest
 *
 * Must hold: numbers have no gaps, because `since` takes a gap for changes that are no longer kept. A change
 * is appended in the transaction of its rows; otherwise a crash in between leaves a disabled key in use
 * (test/unit/store/change-feed.shared-changes.test.ts).
 */
import * as Type from 'typebox';
import {
  type AccountIndex,
  asAccountIndex,
  asGroupIndex,
  asKeyIndex,
  type GroupIndex,
  type KeyIndex,
} from '../core/units.js';
import { accountingVersionOf } from './flush-mark.js';
import { countAt, rowReader, rowsIn, Slot } from './record-codec.js';
import type { RegistryCopy } from './registry-copy.js';
import type { RecordedTable, WrittenRow } from './row-recorder.js';
import type { Tables } from './tables.js';

const NEWEST_CHANGE = 'changes';

/**
 * How many changes are kept. A process that is further behind reads all groups, accounts and keys again. Each
 * change costs an fsync, so such a process has stood still for some seconds.
 */
const CHANGES_KEPT = 4_096;

/** Slots that a change touched. The reader of the feed takes the present records from the store. */
export interface TouchedSlots {
  readonly groups: readonly GroupIndex[];
  readonly accounts: readonly AccountIndex[];
  readonly keys: readonly KeyIndex[];
}

export class ChangeFeed {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** Number of the newest change that any process has committed; 0 if there is none. Costs 2 µs. */
  newest(): number {
    // lmdb reads in one transaction for each event-loop turn, which may be older than this call.
    this.#tables.environment.refresh();
    return this.#newest();
  }

  /** Adds a change with these rows. Call inside the transaction that wrote them. */
  append(rows: readonly WrittenRow[]): void {
    const { changes, meta } = this.#tables;
    const number = this.#newest() + 1;
    changes.putSync(number, touchedBy(rows));
    changes.removeSync(number - CHANGES_KEPT);
    meta.putSync(NEWEST_CHANGE, number);
  }

  /**
   * Returns what the changes after `number` touched, each slot once. Undefined if some of those changes are
   * no longer kept: then the caller reads all records.
   */
  since(number: number): TouchedSlots | undefined {
    const changes: TouchedSlots[] = [];
    let nextNumber = number + 1;
    for (const [key, touched] of rowsIn(this.#tables.changes, readTouched, { start: nextNumber })) {
      if (key !== nextNumber) return undefined;
      changes.push(touched);
      nextNumber++;
    }
    // The feed ends before the newest change: its last rows are missing.
    if (nextNumber <= this.#newest()) return undefined;
    return {
      groups: eachOnce(changes.flatMap(({ groups }) => groups)),
      accounts: eachOnce(changes.flatMap(({ accounts }) => accounts)),
      keys: eachOnce(changes.flatMap(({ keys }) => keys)),
    };
  }

  #newest(): number {
    return countAt(this.#tables.meta, NEWEST_CHANGE);
  }
}

function touchedBy(rows: readonly WrittenRow[]): TouchedSlots {
  const slotsIn = (tableName: RecordedTable): number[] =>
    eachOnce(
      rows
        .filter(({ table }) => table === tableName)
        // One of the two is there, because row-recorder.ts leaves out removals that find no row.
        .map(({ value, former }) => Number(((value ?? former) as { readonly index: unknown }).index)),
    );
  return {
    groups: slotsIn('groups').map(asGroupIndex),
    accounts: slotsIn('accounts').map(asAccountIndex),
    keys: slotsIn('keys').map(asKeyIndex),
  };
}

function eachOnce<Slot>(slots: readonly Slot[]): Slot[] {
  return [...new Set(slots)];
}

const Slots = Type.Array(Slot);
const readTouched = rowReader(
  'TouchedSlots',
  Type.Object({ groups: Slots, accounts: Slots, keys: Slots }),
  (stored) => stored as unknown as TouchedSlots,
);

/** What a change returned, and the rows that it wrote or would write. */
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
   * Runs `work` as one transaction of this host alone, which is on disk and in the feed when `commit`
   * returns. From then on the store is no copy of a registry that hosts share, because other hosts lack the
   * rows. `check` gets the rows that were written. If `work` or `check` throws, nothing is written.
   */
  commit<Result>(work: () => Result, check: (rows: readonly WrittenRow[]) => void = () => undefined): Result {
    return this.#commitAndAppend(work, (rows) => {
      check(rows);
      if (rows.length > 0) this.#copy.detach();
    });
  }

  /** As `commit`, for rows that all hosts have agreed on. The store remains a copy of their registry. */
  commitAgreed(work: () => void): void {
    this.#commitAndAppend(work, () => undefined);
  }

  /**
   * The accounting version (flush-mark.ts), which grows with every flush of the processes that share the
   * store. Call `Store.refresh` first, or the version may be older by one event-loop turn.
   */
  accountingVersion(): number {
    return accountingVersionOf(this.#tables);
  }

  /**
   * Returns what `work` would return and write, and undoes all of it. Costs no fsync, but blocks while
   * another process writes.
   */
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
    // `recorded` is set here: if `work` threw, `draft` has thrown its error.
    return recorded!;
  }

  #commitAndAppend<Result>(work: () => Result, check: (rows: readonly WrittenRow[]) => void): Result {
    const { environment, recorder } = this.#tables;
    return environment.write(() => {
      const { result, rows } = recorder.record(work);
      check(rows);
      if (rows.length > 0) this.feed.append(rows);
      return result;
    });
  }
}

/** `draft` throws it to undo its transaction, and catches it. */
class Undone extends Error {}
