/**
 * The flush mark and the host's clocks: what a flush writes beside its rows, in the same transaction.
 * flush.ts and the store write them, recovery reads the clocks. Main thread of a gateway process.
 *
 *     flushes   slot of the gateway → the life of that gateway, and the number of its last flush
 *     meta      'books_version'     → grows with each flush that leaves a mark, and each life that begins
 *     meta      'clocks'            → the boot, its monotonic clock, and how far the calendar was ahead of it
 *
 * A gateway that shares its store leaves a mark, which makes its flushes idempotent. Its rows are sums that
 * each gateway adds to, so a flush that is on disk must not be made again. The mark tells whether a flush
 * whose commit failed is on disk. A gateway that is alone writes absolute totals, which it may write again at
 * no harm.
 *
 * Every gateway leaves the clocks, so that a start knows by how much the calendar was set since, and how old
 * the counts of a minute are. If the gateway shares its limits, the calendar is the coordinator's, as in its
 * rows. After a boot, or if the boot is unknown, ages go by the calendar. A machine that sleeps stops the
 * monotonic clock: then the permits of a minute count too long rather than too short.
 *
 * Must hold: the mark is in the transaction of the rows, and its number is raised before that transaction, or
 * a charge is written twice or not at all (test/unit/store/shared-books.test.ts).
 */
import { Type, type Static } from 'typebox';
import type { Clock } from '../core/clock.js';
import { schemaCheck } from '../core/schema-check.js';
import { bootId } from './process-identity.js';
import { closedObject, Count, damaged, Format, FORMAT, locationOf } from './record-codec.js';
import type { Tables } from './tables.js';

/** The name is on disk, and `auditFlushes` (audit.ts) has it too. */
const ACCOUNTING_VERSION = 'books_version';

const StoredFlush = closedObject({ format: Format, life: Type.String({ minLength: 1 }), sequence: Count });

const isFlush = schemaCheck('StoredFlush', StoredFlush);

/** Throws StoreError `damaged`; `location` names the record in the message. */
export function readFlush(stored: unknown, location: string): Static<typeof StoredFlush> {
  if (!isFlush(stored)) throw damaged(location);
  return stored;
}

type MarkTables = Pick<Tables, 'path' | 'environment' | 'meta' | 'flushes'>;

type MetaTable = Pick<Tables, 'path' | 'meta'>;

/** Returns a number that grows with every flush that leaves a mark. Throws StoreError `damaged`. */
export function accountingVersionOf(tables: MetaTable): number {
  const version = tables.meta.get(ACCOUNTING_VERSION) ?? 0;
  if (typeof version !== 'number') throw damaged(locationOf(tables, 'meta', ACCOUNTING_VERSION));
  return version;
}

/** Raises the version by one, and to `least` at least. Call in a transaction. */
function raiseAccountingVersion(tables: MetaTable, least = 0): void {
  tables.meta.putSync(ACCOUNTING_VERSION, Math.max(accountingVersionOf(tables) + 1, least));
}

/** The marks of one gateway process from its start to its end. */
export class FlushMark {
  readonly #tables: MarkTables;
  readonly #slot: number;
  readonly #life: string;
  #sequence = 0;

  /**
   * `slot` is that of the gateway process; `life` is text that no other process ever has. Raises the version,
   * because a gateway that leaves no marks may have written since the last mark. Costs a disk flush.
   */
  constructor(tables: MarkTables, slot: number, life: string) {
    this.#tables = tables;
    this.#slot = slot;
    this.#life = life;
    tables.environment.write(() => raiseAccountingVersion(tables));
  }

  /**
   * Call before the transaction. Otherwise a flush whose transaction never began is mistaken for the last
   * one.
   */
  begin(): void {
    this.#sequence += 1;
  }

  /** Call in the transaction of the flush. */
  put(): void {
    this.#tables.flushes.putSync(this.#slot, { format: FORMAT, life: this.#life, sequence: this.#sequence });
    // At least the sequence, as `auditFlushes` checks: flushes that failed have raised the sequence alone.
    raiseAccountingVersion(this.#tables, this.#sequence);
  }

  /**
   * Whether the flush that was begun last is on disk although its commit failed. Throws what the store
   * throws.
   */
  hasReachedDisk(): boolean {
    const { environment, flushes } = this.#tables;
    environment.refresh();
    const stored = flushes.get(this.#slot);
    if (stored === undefined) return false;
    const { life, sequence } = readFlush(stored, locationOf(this.#tables, 'flushes', this.#slot));
    return life === this.#life && sequence === this.#sequence;
  }
}

const CLOCKS = 'clocks';

const StoredClocks = closedObject({
  format: Format,
  boot: Type.String(),
  monotonicMs: Type.Number(),
  /** The calendar less the monotonic clock. */
  aheadMs: Type.Number(),
});

const isClocks = schemaCheck('StoredClocks', StoredClocks);

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

/**
 * Returns by how much the calendar was set forward since the last flush, negative if back; 0 if that is
 * unknown.
 */
export function steppedMs(tables: MetaTable, current: HostClocks | undefined): number {
  const flushed = tables.meta.get(CLOCKS);
  if (flushed === undefined || current === undefined) return 0;
  if (!isClocks(flushed)) throw damaged(locationOf(tables, 'meta', CLOCKS));
  // The monotonic clock begins anew with each boot. A clock that has gone back is that of another machine.
  const isSameClock = flushed.boot === current.boot && flushed.monotonicMs <= current.monotonicMs;
  return isSameClock ? current.aheadMs - flushed.aheadMs : 0;
}
