/**
 * The write-behind buffer of key uses: which keys were used since their rows were written. The flush uses it
 * on the main thread: KeyUses if this gateway alone writes the rows, SharedKeyUses if several gateways add to
 * them.
 *
 * A listener marks a key as dirty once a second while it is used, and at each call if the key has limits of
 * its own. However often a key is marked, a flush writes one row.
 *
 * Must hold: `rows` is called in the transaction that writes them, and `recordWritten` only when that is on
 * disk; otherwise calls of a shared day are counted twice (test/unit/store/recovery.test.ts,
 * test/unit/store/shared-books.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { KeyIndex } from '../core/units.js';
import type { KeyUseRecord } from '../registry/key-record.js';
import { keyUseOf, type LiveBuffers } from '../registry/live-buffers.js';
import type { Log } from '../telemetry/log.js';
import { unlessDamaged } from './record-codec.js';
import { type Day, dayAfter } from './spent-totals.js';

export class KeyUses {
  readonly #live: LiveBuffers;
  readonly #clock: Clock;
  /** A flush that fails leaves them to the next. */
  readonly #waiting = new Set<KeyIndex>();

  constructor(live: LiveBuffers, clock: Clock) {
    this.#live = live;
    this.#clock = clock;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Keys whose rows are to be written; empty after `recordWritten`. */
  get waiting(): Iterable<KeyIndex> {
    return this.#waiting;
  }

  /**
   * A charge of the key was drained from a journal. If the key has limits, its use goes to disk with that
   * charge, also if more keys are dirty than `drain` takes.
   */
  note(key: KeyIndex): void {
    if (this.#live.keyTable.isLimited(key)) this.#waiting.add(key);
  }

  /** Takes at most `max` dirty keys from the ledger; returns how many. */
  drain(max: number): number {
    return this.#live.ledger.keys.dirty.drain((key) => this.#waiting.add(key), max);
  }

  /**
   * Returns the rows of all waiting keys, without deleted ones. Called in the transaction that writes them.
   */
  rows(): Map<KeyIndex, KeyUseRecord> {
    const rows = new Map<KeyIndex, KeyUseRecord>();
    const nowMs = this.#clock.wallMs();
    for (const key of this.#waiting) {
      const use = keyUseOf(key, this.#live, nowMs);
      const row = use && this.rowOf(key, use);
      if (row !== undefined) rows.set(key, row);
    }
    return rows;
  }

  /** Call when what `rows` returned is on disk. */
  recordWritten(): void {
    this.#waiting.clear();
  }

  /** The row to write, given what this gateway counts now; undefined if none is to be written. */
  protected rowOf(_key: KeyIndex, use: KeyUseRecord): KeyUseRecord | undefined {
    return use;
  }
}

/** The rows that several gateways add to. */
export interface SharedKeyRows {
  /** False of a key that another gateway has deleted. */
  has(key: KeyIndex): boolean;
  findUse(key: KeyIndex): KeyUseRecord | undefined;
}

const NO_DAY: Day = { dayNumber: 0, dayCalls: 0 };

/**
 * Adds what this gateway has counted since its last flush to the row, which is read in the transaction that
 * writes it. A damaged row is replaced, as that of a gateway that is alone is at each flush.
 */
export class SharedKeyUses extends KeyUses {
  readonly #rows: SharedKeyRows;
  readonly #log: Log;
  /** This gateway's own count of keys with limits: as far as it is on disk, and as it is being written. */
  readonly #written = new Map<KeyIndex, Day>();
  readonly #writing = new Map<KeyIndex, Day>();

  constructor(live: LiveBuffers, clock: Clock, rows: SharedKeyRows, log: Log) {
    super(live, clock);
    this.#rows = rows;
    this.#log = log;
  }

  override recordWritten(): void {
    super.recordWritten();
    for (const [key, day] of this.#writing) this.#written.set(key, day);
    this.#writing.clear();
  }

  protected override rowOf(key: KeyIndex, use: KeyUseRecord): KeyUseRecord | undefined {
    if (!this.#rows.has(key)) return undefined;
    let written = this.#written.get(key) ?? NO_DAY;
    const stored = unlessDamaged(
      () => this.#rows.findUse(key),
      (message) => {
        written = NO_DAY;
        this.#log.error('a damaged row of key use is replaced by what this gateway counted', {
          error: message,
        });
      },
    );
    const { dayNumber, dayCalls } = use;
    const lastUsedSeconds = laterOf(use.lastUsedSeconds, stored?.lastUsedSeconds);
    if (dayCalls > 0 || written.dayCalls > 0) this.#writing.set(key, { dayNumber, dayCalls });
    return { ...use, lastUsedSeconds, ...dayAfter(use, written, stored) };
  }
}

function laterOf(one: number | undefined, other: number | undefined): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.max(one, other);
}
