/**
 * The usage rows that are growing: absolute totals of account, key, model and hour, in memory from the first call of their
 * hour until they are on disk and the hour is over. Main thread.
 */
import { USAGE_ROWS_HOT_MAX } from '../core/limits.js';
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
} from '../registry/usage-record.js';

/** What is on disk already; reads may throw `StoreFault`. */
export interface UsageStore {
  findUsage(key: UsageKey): UsageTotals | undefined;
  /** Who has the key's slot, or had it last. */
  findKeyId(index: KeyIndex): string | undefined;
}

export type GrowingUsage = { -readonly [Field in keyof UsageRecord]: UsageRecord[Field] };

/** Above every index into the catalogue: settings allow a thousand models. */
const MODELS_MAX = 1_024;
const ESTIMATED = USAGE_SOURCES.indexOf('estimated');

/** A key that was made before the store kept who had which slot. */
const UNKNOWN_KEY = 'key_unknown';

export class UsageBook {
  readonly #store: UsageStore;
  /** Of the running settings, in their order. */
  readonly #modelIds: readonly string[];
  /**
   * By hour, and in it by slot of the key and index of the model. A key's slot rests for a day after its key was deleted,
   * so within an hour it is one key, and so one account.
   */
  readonly #hours = new Map<number, Map<number, GrowingUsage>>();
  readonly #waiting = new Set<GrowingUsage>();

  constructor(store: UsageStore, modelIds: readonly string[]) {
    this.#store = store;
    this.#modelIds = modelIds;
  }

  /** The row that the call belongs to, as the store has it where it is not in memory. Changes no total. Throws what the store throws. */
  rowOf(record: JournalRecord): GrowingUsage {
    const hour = hourOf(record.endedMs);
    let rows = this.#hours.get(hour);
    if (rows === undefined) {
      rows = new Map();
      this.#hours.set(hour, rows);
    }
    const place = record.key * MODELS_MAX + record.model;
    let row = rows.get(place);
    if (row === undefined) {
      const key: UsageKey = {
        account: record.account,
        hour,
        keyId: this.#store.findKeyId(record.key) ?? UNKNOWN_KEY,
        modelId: this.#modelIds[record.model]!,
      };
      row = { ...key, ...(this.#store.findUsage(key) ?? NO_USAGE) };
      rows.set(place, row);
    }
    return row;
  }

  /** Counts a call in its row. */
  add(row: GrowingUsage, record: JournalRecord): void {
    // What is taken back was counted as a served call before: it remains a call, and is a failed one now.
    const isReversal = record.outcome === 'reversed';
    if (!isReversal) row.calls += 1;
    if (record.outcome !== 'served') row.failedCalls += 1;
    if (record.source === ESTIMATED) row.estimatedCalls += isReversal ? -1 : 1;
    row.promptTokens = sum(row.promptTokens, record.promptTokens);
    row.cachedTokens = sum(row.cachedTokens, record.cachedTokens);
    row.completionTokens = sum(row.completionTokens, record.completionTokens);
    row.cost = asPicoUnits(row.cost + record.charged);
    row.uncovered = uncoveredAfter(row.uncovered, record.uncovered);
    this.#waiting.add(row);
  }

  /** Rows that have changed since the last `noteCommitted`. */
  get waiting(): ReadonlySet<UsageRecord> {
    return this.#waiting;
  }

  /** All that waits is on disk: hours that are past are forgotten, and the present one too where it has grown too large. */
  noteCommitted(): void {
    this.#waiting.clear();
    const newest = Math.max(...this.#hours.keys());
    for (const [hour, rows] of this.#hours) {
      if (hour !== newest || rows.size > USAGE_ROWS_HOT_MAX) this.#hours.delete(hour);
    }
  }
}

/** Stops where numbers cease to be exact: an upstream can report any figures, for years. */
function sum(before: number, amount: number): number {
  return Math.max(0, Math.min(Number.MAX_SAFE_INTEGER, before + amount));
}
