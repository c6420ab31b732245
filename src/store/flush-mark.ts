/**
 * The flush mark and the host's clocks: what a flush writes beside its rows, in the same transaction.
 * flush.ts and the store write them, recovery reads the clocks. Main thread of a gateway process.
 *
 *     flushes   slot of the gateway → its life, and the number of its last flush (`sequence`)
 *     meta      'books_version'     → the accounting version: grows with each flush that leaves a mark, and
 *                                     with each life that begins; it orders what a host reports of money
 *     meta      'clocks'            → the boot, its monotonic clock, and how far the wall clock was ahead
 *
 * A gateway that shares its store leaves a mark, which makes its flushes idempotent. Its rows are sums that
 * each gateway adds to, so a flush that is on disk must not be made again. The mark tells whether a flush
 * whose commit failed is on disk. A gateway that is alone writes absolute totals, which it may write twice.
 *
 * Every gateway writes the clocks, so that a start knows by how much the wall clock was set since, and how
 * old the counts of a minute are. If the gateway shares its limits, the wall clock is the coordinator's, as
 * in its rows. After a boot, or if the boot is unknown, ages go by the wall clock. A machine that sleeps
 * stops the monotonic clock: then the permits of a minute count too long rather than too short.
 *
 * Must hold: the mark is in the transaction of the rows, and its number is raised before that transaction;
 * otherwise a charge is written twice or not at all (test/unit/store/shared-books.test.ts).
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import type { Clock } from '../core/clock.js';
import { bootId } from './process-identity.js';
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

/** The marks of one gateway process from its start to its end. */
export class FlushMark {
  readonly #tables: MarkTables;
  readonly #slot: number;
  readonly #life: string;
  /** Number of the flush that was begun last; 0 before the first. On disk it is called `sequence`. */
  #number = 0;

  /**
   * `slot`: of the gateway process. `life`: a text that no other process ever has. Costs an fsync: raises the
   * accounting version, because a gateway without marks may have written since the last mark.
   */
  constructor(tables: MarkTables, slot: number, life: string) {
    this.#tables = tables;
    this.#slot = slot;
    this.#life = life;
    tables.environment.write(() => raiseAccountingVersion(tables));
  }

  /** Call before the transaction, or a flush whose transaction never began is taken for the one before. */
  begin(): void {
    this.#number += 1;
  }

  /** Call in the transaction of the flush. */
  put(): void {
    this.#tables.flushes.putSync(this.#slot, { format: FORMAT, life: this.#life, sequence: this.#number });
    // At least the flush number, as `auditFlushes` checks: failed flushes have raised that number alone.
    raiseAccountingVersion(this.#tables, this.#number);
  }

  /**
   * Whether the flush that was begun last is on disk although its commit failed. False also if the mark in
   * this slot is that of an earlier life. Throws what the store throws.
   */
  hasReachedDisk(): boolean {
    const { environment, flushes } = this.#tables;
    // Without `refresh` the read may show the store as it was before the commit.
    environment.refresh();
    const mark = findRow(flushes, this.#slot, readFlush);
    return mark?.life === this.#life && mark.sequence === this.#number;
  }
}

const CLOCKS = 'clocks';

const StoredClocks = closedObject({
  format: Format,
  boot: Type.String(),
  monotonicMs: Type.Number(),
  /** The wall clock less the monotonic clock. */
  aheadMs: Type.Number(),
});

const readClocks = rowReader('StoredClocks', StoredClocks, (stored) => stored);

export type HostClocks = Readonly<Static<typeof StoredClocks>>;

/** Reads the machine's clocks; undefined if the boot is unknown. */
export function hostClocks(clock: Clock, boot = bootId()): HostClocks | undefined {
  if (boot === undefined) return undefined;
  const monotonicMs = clock.monotonicMs();
  return { format: FORMAT, boot, monotonicMs, aheadMs: clock.wallMs() - monotonicMs };
}

/** Call in the transaction of the flush. */
export function putClocks({ meta }: MetaTable, clocks: HostClocks): void {
  meta.putSync(CLOCKS, clocks);
}

/** By how much the wall clock was set forward since the last flush, negative if back; 0 if unknown. */
export function steppedMs({ meta }: MetaTable, current: HostClocks | undefined): number {
  const flushed = findRow(meta, CLOCKS, readClocks);
  if (flushed === undefined || current === undefined) return 0;
  // Each boot starts the monotonic clock at 0. A clock that has gone back belongs to another machine.
  const isSameClock = flushed.boot === current.boot && flushed.monotonicMs <= current.monotonicMs;
  return isSameClock ? current.aheadMs - flushed.aheadMs : 0;
}
