/**
 * Changes to a registry that several processes share: as transactions that leave word in the change feed, and as drafts,
 * which show what a change would write before it is made. Main thread.
 */
import { ChangeFeed } from './change-feed.js';
import { booksVersionOf } from './flush-mark.js';
import type { RegistryCopy } from './registry-copy.js';
import type { WrittenRow } from './row-recorder.js';
import type { Tables } from './tables.js';

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
    return booksVersionOf(this.#tables);
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
