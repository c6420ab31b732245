/**
 * The usage rows that are growing: absolute totals of account, key, model and hour, in memory from the first call of their
 * hour until they are on disk and the hour is over. Where several gateways add to the rows, what is in memory is this one's
 * part since its last flush. Main thread.
 */
import { CATALOG_ENTRIES_MAX, USAGE_ROWS_HOT_MAX } from '../core/limits.js';
import { asPicoUnits, type KeyIndex } from '../core/units.js';
import { uncoveredAfter } from '../ledger/balance.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import { USAGE_SOURCES } from '../protocol/usage.js';
import {
  NO_USAGE,
  hourOf,
  type UsageKey,
  type UsageRecord,
  type UsageTotals,
} from '../registry/usage-report.js';

/** What is on disk already; reads may throw `StoreFault`. */
export interface UsageStore {
  findUsage(key: UsageKey): UsageTotals | undefined;
  /** Who has the key's slot, or had it last. */
  findKeyId(index: KeyIndex): string | undefined;
}

export type GrowingUsage = { -readonly [Field in keyof UsageRecord]: UsageRecord[Field] };

const ESTIMATED = USAGE_SOURCES.indexOf('estimated');

/** A key that was made before the store kept who had which slot. */
const UNKNOWN_KEY = 'key_unknown';

export class UsageBook {
  readonly #store: UsageStore;
  readonly #modelIdOf: (modelIndex: number) => string;
  readonly #shared: boolean;
  /**
   * By hour, and in it by slot of the key and index of the model. A key's slot rests for a day after its key was deleted,
   * so within an hour it is one key, and so one account.
   */
  readonly #hours = new Map<number, Map<number, GrowingUsage>>();
  readonly #waiting = new Set<GrowingUsage>();

  /** `shared` where other gateways add to the same rows. */
  constructor(store: UsageStore, modelIdOf: (modelIndex: number) => string, shared: boolean) {
    this.#store = store;
    this.#modelIdOf = modelIdOf;
    this.#shared = shared;
  }

  /** The row that the call belongs to; where it is not in memory, as the store has it, or empty where it is shared. Changes no total. Throws what the store throws. */
  rowOf(record: JournalRecord): GrowingUsage {
    const hour = hourOf(record.endedMs);
    let rows = this.#hours.get(hour);
    if (rows === undefined) {
      rows = new Map();
      this.#hours.set(hour, rows);
    }
    const place = record.key * CATALOG_ENTRIES_MAX + record.model;
    let row = rows.get(place);
    if (row === undefined) {
      const key: UsageKey = {
        account: record.account,
        hour,
        keyId: this.#store.findKeyId(record.key) ?? UNKNOWN_KEY,
        modelId: this.#modelIdOf(record.model),
      };
      row = rowWith(key, (this.#shared ? undefined : this.#store.findUsage(key)) ?? NO_USAGE);
      rows.set(place, row);
    }
    return row;
  }

  /** Counts a call in its row. */
  add(row: GrowingUsage, record: JournalRecord): void {
    // What is taken back was counted as a served call before: it remains a call, and is a failed one now.
    const { outcome } = record;
    if (outcome !== 'collected') {
      const isReversal = outcome === 'reversed';
      if (!isReversal) row.calls += 1;
      if (outcome !== 'served') row.failedCalls += 1;
      if (record.source === ESTIMATED) row.estimatedCalls += isReversal ? -1 : 1;
    }
    // A part may be less than nothing: what it takes back is on disk.
    const least = this.#shared ? Number.MIN_SAFE_INTEGER : 0;
    row.promptTokens = sum(row.promptTokens, record.promptTokens, least);
    row.cachedTokens = sum(row.cachedTokens, record.cachedTokens, least);
    row.completionTokens = sum(row.completionTokens, record.completionTokens, least);
    row.cost = asPicoUnits(row.cost + record.charged);
    row.uncovered = this.#shared
      ? asPicoUnits(row.uncovered + record.uncovered)
      : uncoveredAfter(row.uncovered, record.uncovered);
    this.#waiting.add(row);
  }

  /** Rows that have changed since the last `noteCommitted`. */
  get waiting(): ReadonlySet<UsageRecord> {
    return this.#waiting;
  }

  /** The same, as they are to be on disk; in the transaction that writes them. Throws what the store throws. */
  rows(): Iterable<UsageRecord> {
    if (!this.#shared) return this.#waiting;
    return Array.from(this.#waiting, (part) =>
      rowWith(part, sumOf(this.#store.findUsage(part) ?? NO_USAGE, part)),
    );
  }

  /** All that waits is on disk: hours that are past are forgotten, and the present one too where it has grown too large. */
  noteCommitted(): void {
    this.#waiting.clear();
    if (this.#shared) this.#hours.clear();
    const newest = Math.max(...this.#hours.keys());
    for (const [hour, rows] of this.#hours) {
      if (hour !== newest || rows.size > USAGE_ROWS_HOT_MAX) this.#hours.delete(hour);
    }
  }
}

/** Field by field: of two spread objects V8 makes a dictionary, and to count a call in one took seven times as long. */
function rowWith(key: UsageKey, totals: UsageTotals): GrowingUsage {
  return {
    account: key.account,
    hour: key.hour,
    keyId: key.keyId,
    modelId: key.modelId,
    calls: totals.calls,
    failedCalls: totals.failedCalls,
    estimatedCalls: totals.estimatedCalls,
    promptTokens: totals.promptTokens,
    cachedTokens: totals.cachedTokens,
    completionTokens: totals.completionTokens,
    cost: totals.cost,
    uncovered: totals.uncovered,
  };
}

/** Stops where numbers cease to be exact: an upstream can report any figures, for years. */
function sum(before: number, amount: number, least: number): number {
  return Math.max(least, Math.min(Number.MAX_SAFE_INTEGER, before + amount));
}

function sumOf(before: UsageTotals, part: UsageTotals): UsageTotals {
  return {
    calls: before.calls + part.calls,
    failedCalls: before.failedCalls + part.failedCalls,
    estimatedCalls: before.estimatedCalls + part.estimatedCalls,
    promptTokens: sum(before.promptTokens, part.promptTokens, 0),
    cachedTokens: sum(before.cachedTokens, part.cachedTokens, 0),
    completionTokens: sum(before.completionTokens, part.completionTokens, 0),
    cost: asPicoUnits(before.cost + part.cost),
    uncovered: uncoveredAfter(before.uncovered, part.uncovered),
  };
}
