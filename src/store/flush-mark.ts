/**
 * The flush mark, by which a gateway that shares its store finds out whether a flush whose commit failed is
 * on disk. gateway/shared-accounting.ts has the store make it, and flush.ts uses it. audit.ts checks the
 * flush marks; change-feed.ts reads the accounting version. Main thread of a gateway process; the audit also
 * in a command.
 *
 *     flushes   slot of the gateway → its life, and the number of its last flush (`sequence`)
 *     meta      'books_version'     → the accounting version: grows with each flush that leaves a flush mark,
 *                                     and with each life that begins; it orders what a host reports of money
 *
 * The rows of gateways that share are sums that each adds to, so a flush that is on disk must not be made
 * again. A gateway that is alone writes absolute totals, which it may write twice, and no flush mark.
 *
 * Must hold: the flush mark is put in the transaction of the rows, and its number is raised before that
 * transaction; otherwise a charge is written twice or not at all (test/unit/store/shared-books.test.ts).
 */
import * as Type from 'typebox';
import { closedObject, Count, countAt, findRow, Format, FORMAT, rowReader } from './record-codec.js';
import type { Tables } from './tables.js';

/** The row of `meta`, by its name on disk. audit.ts compares it with the flush marks. */
export const ACCOUNTING_VERSION = 'books_version';

const StoredFlush = closedObject({ format: Format, life: Type.String({ minLength: 1 }), sequence: Count });

export const readFlush = rowReader('StoredFlush', StoredFlush, (stored) => stored);

type MarkTables = Pick<Tables, 'environment' | 'meta' | 'flushes'>;

type MetaTable = Pick<Tables, 'meta'>;

/** Returns the accounting version, 0 if it was never raised. Throws StoreError `damaged`. */
export function accountingVersionOf({ meta }: MetaTable): number {
  return countAt(meta, ACCOUNTING_VERSION);
}

/** Raises the accounting version by one, or to `least` if that is more. Call in a transaction. */
function raiseAccountingVersion(tables: MetaTable, least = 0): void {
  tables.meta.putSync(ACCOUNTING_VERSION, Math.max(accountingVersionOf(tables) + 1, least));
}

/** The flush marks of one gateway process from its start to its end. */
export class FlushMark {
  readonly #tables: MarkTables;
  readonly #slot: number;
  readonly #life: string;
  /** Number of the flush that was begun last; 0 before the first. On disk it is called `sequence`. */
  #number = 0;

  /**
   * `slot`: of the gateway process. `life`: a text that no other process ever has. Costs an fsync: raises the
   * accounting version, because a gateway without flush marks may have written since the last one.
   */
  constructor(tables: MarkTables, slot: number, life: string) {
    this.#tables = tables;
    this.#slot = slot;
    this.#life = life;
    tables.environment.write(() => raiseAccountingVersion(tables));
  }

  /**
   * Begins a flush. Returns the function that puts its flush mark, which the flush calls in its transaction.
   * Call `begin` before all that may fail; otherwise a flush that failed is taken for the one before.
   */
  begin(): () => void {
    this.#number += 1;
    const sequence = this.#number;
    return () => {
      this.#tables.flushes.putSync(this.#slot, { format: FORMAT, life: this.#life, sequence });
      // At least the flush number, as `auditFlushes` checks: failed flushes have raised that number alone.
      raiseAccountingVersion(this.#tables, sequence);
    };
  }

  /**
   * Whether the flush that was begun last is on disk although its commit failed. False also if the flush
   * mark in this slot is that of an earlier life. Throws what the store throws.
   */
  hasReachedDisk(): boolean {
    const { environment, flushes } = this.#tables;
    // Without `refresh` the read may show the store as it was before the commit.
    environment.refresh();
    const mark = findRow(flushes, this.#slot, readFlush);
    return mark?.life === this.#life && mark.sequence === this.#number;
  }
}
