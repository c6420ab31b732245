/**
 * The write-behind buffer of key uses: which keys were used since their rows were written. flush.ts uses it
 * on the main thread of a gateway process: a KeyUses (gateway/accounting.ts) if this process alone writes the
 * rows, a SharedKeyUses (gateway/shared-accounting.ts) if several processes add to them. A listener marks a
 * key as dirty once a second while it is used, and at each call if the key has limits of its own.
 *
 *     addCharged, drain   the keys of drained charges, and the ledger's dirty keys, wait for their rows
 *     rows                in the transaction: a row for each waiting key; if it fails, the keys still wait
 *     recordWritten       the transaction is on disk: no key waits
 *
 * Must hold: this order, or calls of a shared day are counted twice. No `addCharged` or `drain` comes between
 * the last two, which would drop their keys without a row: flush.ts awaits nothing in between, and after a
 * failed commit that proves to be on disk calls `recordWritten` before it drains anything
 * (test/unit/store/recovery.test.ts, test/unit/store/shared-books.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { KeyIndex } from '../core/units.js';
import type { DayCount } from '../ledger/day.js';
import type { KeyUseRecord } from '../registry/key-record.js';
import { keyUseOf, type LiveBuffers } from '../registry/live-buffers.js';
import type { Log } from '../telemetry/log.js';
import type { KeyRows } from './key-rows.js';
import { CountsOnDisk, mergedCounts } from './shared-counts.js';
import { CALLS_BY_DAY } from './spent-totals.js';

export class KeyUses {
  readonly #live: LiveBuffers;
  readonly #clock: Clock;
  /** The waiting keys. A flush that fails leaves them to the next flush. */
  readonly #waiting = new Set<KeyIndex>();

  constructor(live: LiveBuffers, clock: Clock) {
    this.#live = live;
    this.#clock = clock;
  }

  /** Number of waiting keys. */
  get size(): number {
    return this.#waiting.size;
  }

  /** The waiting keys; none after `recordWritten`, so flush.ts reads them before, for notices. */
  get waiting(): Iterable<KeyIndex> {
    return this.#waiting;
  }

  /**
   * Call when a charge of the key was drained from a journal. If the key has limits, its use goes to disk
   * with this charge, even if more keys are dirty than `drain` takes.
   */
  addCharged(key: KeyIndex): void {
    if (this.#live.keyTable.isLimited(key)) this.#waiting.add(key);
  }

  /** Takes at most `max` dirty keys from the ledger; returns how many. */
  drain(max: number): number {
    return this.#live.ledger.keys.dirty.drain((key) => this.#waiting.add(key), max);
  }

  /** Returns the rows of all waiting keys, without deleted keys. Call in the transaction that writes them. */
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

  /** Call when the result of `rows` is on disk. */
  recordWritten(): void {
    this.#waiting.clear();
  }

  /** Returns the row to write, if any. `use` is what this process has counted. */
  protected rowOf(_key: KeyIndex, use: KeyUseRecord): KeyUseRecord | undefined {
    return use;
  }
}

/**
 * For rows that several gateway processes add to (shared-counts.ts): adds the calls of the day, and keeps the
 * later of both last uses.
 */
export class SharedKeyUses extends KeyUses {
  readonly #rows: Pick<KeyRows, 'has' | 'findUse'>;
  /**
   * Of keys with limits: the day that this process counted last. The slot's next key comes a day later
   * (SlotRest), and `mergedCounts` ignores days of another number.
   */
  readonly #days: CountsOnDisk<KeyIndex, DayCount>;

  constructor(live: LiveBuffers, clock: Clock, rows: Pick<KeyRows, 'has' | 'findUse'>, log: Log) {
    super(live, clock);
    this.#rows = rows;
    this.#days = new CountsOnDisk('key use', log);
  }

  override rows(): Map<KeyIndex, KeyUseRecord> {
    this.#days.begin();
    return super.rows();
  }

  override recordWritten(): void {
    super.recordWritten();
    this.#days.recordWritten();
  }

  protected override rowOf(key: KeyIndex, use: KeyUseRecord): KeyUseRecord | undefined {
    // Another process has deleted the key.
    if (!this.#rows.has(key)) return undefined;
    const { stored, own } = this.#days.read(key, () => this.#rows.findUse(key));
    const { dayNumber, dayCalls } = use;
    // Also if the count has fallen to 0 since the last flush, because calls were given back to the day: the
    // row must lose these calls.
    if (dayCalls > 0 || (own?.dayCalls ?? 0) > 0) this.#days.put(key, { dayNumber, dayCalls });
    const lastUsedSeconds = laterOf(use.lastUsedSeconds, stored?.lastUsedSeconds);
    return { ...mergedCounts(CALLS_BY_DAY, use, own, stored), lastUsedSeconds };
  }
}

/** The later of two last uses; undefined if both are. */
function laterOf(ownSeconds: number | undefined, storedSeconds: number | undefined): number | undefined {
  if (ownSeconds === undefined || storedSeconds === undefined) return ownSeconds ?? storedSeconds;
  return Math.max(ownSeconds, storedSeconds);
}
