/**
 * The usage rows in memory: totals by account, key, model and hour. A row is in memory from the first call of
 * its hour until it is on disk and the last call was of another hour. flush.ts uses the rows on the main
 * thread: UsageBook if this gateway alone writes them (gateway/accounting.ts), SharedUsageBook if several
 * gateways add to them (gateway/shared-accounting.ts).
 *
 * Must hold: `recordWritten` is called only when the rows are on disk; otherwise usage and money differ on
 * disk (test/unit/store/flush.test.ts, test/unit/store/shared-books.test.ts).
 */
import { CATALOG_ENTRIES_MAX, USAGE_ROWS_HOT_MAX } from '../core/limits.js';
import { asPicoUnits, type KeyIndex, type PicoUnits } from '../core/units.js';
import { uncoveredAfter } from '../ledger/balance.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import { USAGE_SOURCES } from '../core/token-counts.js';
import {
  NO_USAGE,
  hourOf,
  type UsageRowKey,
  type UsageRecord,
  type UsageTotals,
} from '../registry/usage-report.js';

/** The part of the store that usage is read from. Methods throw StoreError. */
export interface UsageStore {
  findUsage(key: UsageRowKey): UsageTotals | undefined;
  /** The key that has the slot, or had it last. */
  findKeyId(index: KeyIndex): string | undefined;
}

/** A row of usage in memory, to which calls are added. */
type GrowingUsage = { -readonly [Field in keyof UsageRecord]: UsageRecord[Field] };

const ESTIMATED = USAGE_SOURCES.indexOf('estimated');

/** Stands for a key that is older than the table `key_ids`, and was deleted. */
const UNKNOWN_KEY = 'key_unknown';

/** Rows in memory are absolute totals, so writing a row twice changes nothing. */
export class UsageBook {
  protected readonly store: UsageStore;
  /**
   * By hour, then by key slot × CATALOG_ENTRIES_MAX + model index. A slot rests for a day after its key was
   * deleted, so within an hour it means one key, and so one account.
   */
  protected readonly hours = new Map<number, Map<number, GrowingUsage>>();
  /** Rows that the next flush writes. After a flush that failed they stay. */
  readonly #waiting = new Set<GrowingUsage>();
  /** Hour of the record that `rowOf` got last. (The latest hour may come from a clock that was ahead.) */
  #lastHour = 0;
  readonly #modelIdOf: (modelIndex: number) => string;

  constructor(store: UsageStore, modelIdOf: (modelIndex: number) => string) {
    this.store = store;
    this.#modelIdOf = modelIdOf;
  }

  /** Returns the row that the call belongs to, and changes no total. Throws what the store throws. */
  rowOf(record: JournalRecord): GrowingUsage {
    const hour = hourOf(record.endedMs);
    this.#lastHour = hour;
    let rows = this.hours.get(hour);
    if (rows === undefined) {
      rows = new Map();
      this.hours.set(hour, rows);
    }
    const rowIndex = record.key * CATALOG_ENTRIES_MAX + record.model;
    let row = rows.get(rowIndex);
    if (row === undefined) {
      const key: UsageRowKey = {
        account: record.account,
        hour,
        keyId: this.store.findKeyId(record.key) ?? UNKNOWN_KEY,
        modelId: this.#modelIdOf(record.model),
      };
      row = rowWith(key, this.startTotalsOf(key));
      rows.set(rowIndex, row);
    }
    return row;
  }

  /** Counts a call in its row. `rowOf` has returned the row since the last `recordWritten`. */
  add(row: GrowingUsage, record: JournalRecord): void {
    // A reversed call was counted as served before. The call remains one call, and is a failed call now. A
    // record of a collected charge counts no call, because the call was counted before.
    const { outcome } = record;
    if (outcome !== 'collected') {
      const isReversal = outcome === 'reversed';
      if (!isReversal) row.calls += 1;
      if (outcome !== 'served') row.failedCalls += 1;
      if (record.source === ESTIMATED)
        row.estimatedCalls = this.sumWith(row.estimatedCalls, isReversal ? -1 : 1);
      if (record.requested !== record.model && !isReversal) row.fallbackCalls += 1;
    }
    row.promptTokens = this.sumWith(row.promptTokens, record.promptTokens);
    row.cachedTokens = this.sumWith(row.cachedTokens, record.cachedTokens);
    row.cacheWriteTokens = this.sumWith(row.cacheWriteTokens, record.cacheWriteTokens);
    row.cacheWrite1hTokens = this.sumWith(row.cacheWrite1hTokens, record.cacheWrite1hTokens);
    row.completionTokens = this.sumWith(row.completionTokens, record.completionTokens);
    row.reasoningTokens = this.sumWith(row.reasoningTokens, record.reasoningTokens);
    row.cost = asPicoUnits(row.cost + record.charged);
    row.uncovered = this.uncoveredWith(row.uncovered, record.uncovered);
    this.#waiting.add(row);
  }

  /** Rows that changed since the last `recordWritten`; flush.ts reads their number. */
  get waiting(): ReadonlySet<UsageRecord> {
    return this.#waiting;
  }

  /**
   * Returns the waiting rows as they are to be on disk. Call in the transaction that writes them; throws what
   * the store throws.
   */
  rows(): Iterable<UsageRecord> {
    return this.#waiting;
  }

  /**
   * Call when the waiting rows are on disk. Drops the rows of all hours but the last, and those of the last
   * hour if they are more than USAGE_ROWS_HOT_MAX. A later call reads its row again.
   */
  recordWritten(): void {
    this.#waiting.clear();
    for (const [hour, rows] of this.hours) {
      if (hour !== this.#lastHour || rows.size > USAGE_ROWS_HOT_MAX) this.hours.delete(hour);
    }
  }

  /** What a new row in memory begins with. SharedUsageBook overrides the protected methods. */
  protected startTotalsOf(key: UsageRowKey): UsageTotals {
    return this.store.findUsage(key) ?? NO_USAGE;
  }

  /** Adds to a count. `amount` is negative in a reversal. */
  protected sumWith(before: number, amount: number): number {
    return clamped(before + amount, 0);
  }

  protected uncoveredWith(before: PicoUnits, amount: PicoUnits): PicoUnits {
    return uncoveredAfter(before, amount);
  }
}

/**
 * A row in memory is a _part_: what this gateway has counted since its last flush. The row on disk is read in
 * the transaction that writes it. A negative part takes back what an earlier flush has written.
 */
export class SharedUsageBook extends UsageBook {
  override rows(): Iterable<UsageRecord> {
    return Array.from(this.waiting, (part) =>
      rowWith(part, sumOf(this.store.findUsage(part) ?? NO_USAGE, part)),
    );
  }

  override recordWritten(): void {
    // A part that is on disk must not be added again.
    this.hours.clear();
    super.recordWritten();
  }

  protected override startTotalsOf(): UsageTotals {
    return NO_USAGE;
  }

  protected override sumWith(before: number, amount: number): number {
    return clamped(before + amount, Number.MIN_SAFE_INTEGER);
  }

  protected override uncoveredWith(before: PicoUnits, amount: PicoUnits): PicoUnits {
    return asPicoUnits(before + amount);
  }
}

/** Field by field: V8 makes a dictionary of two spread objects, in which a count took seven times as long. */
function rowWith(key: UsageRowKey, totals: UsageTotals): GrowingUsage {
  return {
    account: key.account,
    hour: key.hour,
    keyId: key.keyId,
    modelId: key.modelId,
    calls: totals.calls,
    failedCalls: totals.failedCalls,
    estimatedCalls: totals.estimatedCalls,
    fallbackCalls: totals.fallbackCalls,
    promptTokens: totals.promptTokens,
    cachedTokens: totals.cachedTokens,
    cacheWriteTokens: totals.cacheWriteTokens,
    cacheWrite1hTokens: totals.cacheWrite1hTokens,
    completionTokens: totals.completionTokens,
    reasoningTokens: totals.reasoningTokens,
    cost: totals.cost,
    uncovered: totals.uncovered,
  };
}

/** Stops where numbers cease to be exact, because an upstream can report any number of tokens, for years. */
function clamped(total: number, least: number): number {
  return Math.max(least, Math.min(Number.MAX_SAFE_INTEGER, total));
}

/** Estimated calls and tokens of `part` may be negative, so their sums stop at 0. */
function sumOf(stored: UsageTotals, part: UsageTotals): UsageTotals {
  return {
    calls: stored.calls + part.calls,
    failedCalls: stored.failedCalls + part.failedCalls,
    estimatedCalls: clamped(stored.estimatedCalls + part.estimatedCalls, 0),
    fallbackCalls: stored.fallbackCalls + part.fallbackCalls,
    promptTokens: clamped(stored.promptTokens + part.promptTokens, 0),
    cachedTokens: clamped(stored.cachedTokens + part.cachedTokens, 0),
    cacheWriteTokens: clamped(stored.cacheWriteTokens + part.cacheWriteTokens, 0),
    cacheWrite1hTokens: clamped(stored.cacheWrite1hTokens + part.cacheWrite1hTokens, 0),
    completionTokens: clamped(stored.completionTokens + part.completionTokens, 0),
    reasoningTokens: clamped(stored.reasoningTokens + part.reasoningTokens, 0),
    cost: asPicoUnits(stored.cost + part.cost),
    uncovered: uncoveredAfter(stored.uncovered, part.uncovered),
  };
}
