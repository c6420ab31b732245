/**
 * Usage rows, and the reports that sum them for an operator. A row has the totals of the calls of one
 * account, key, model and hour. The registry makes reports from the store's rows on the main thread. Pure.
 *
 * Must hold: a report reads at most ROWS_READ_MAX rows. Test: unit/registry/usage-report (rows that are read
 * have a bound).
 */
import { type AccountIndex, asPicoUnits, type PicoUnits, type WallMs } from '../core/units.js';
import { invalid } from './record-id.js';

const HOUR_MS = 3_600_000;

/** Key and model are named by id, because slots and indices are reused later. */
export interface UsageKey {
  readonly account: AccountIndex;
  /** Hours since 1970-01-01T00:00Z: the hour in which the calls ended. */
  readonly hour: number;
  readonly keyId: string;
  readonly modelId: string;
}

/**
 * Totals, so writing a row twice changes nothing. The law of the accounting: after every commit the `cost` of
 * all rows of an account adds up to the `spent` of its spending record, and likewise `uncovered`.
 */
export interface UsageTotals {
  /** Admitted calls that ended, served or not. */
  readonly calls: number;
  /** Calls that ended in an error; they cost nothing. */
  readonly failedCalls: number;
  /** Calls whose tokens were estimated from lengths, for example because the client left mid-stream. */
  readonly estimatedCalls: number;
  /** Calls that named another model, and were answered by this one as a fallback. */
  readonly fallbackCalls: number;
  readonly promptTokens: number;
  /** Parts: see `TokenCounts`. */
  readonly cachedTokens: number;
  readonly cacheWriteTokens: number;
  readonly cacheWrite1hTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
  /** What was taken from the balance. */
  readonly cost: PicoUnits;
  /** What the calls cost beyond that. */
  readonly uncovered: PicoUnits;
}

export interface UsageRecord extends UsageKey, UsageTotals {}

export const NO_USAGE: UsageTotals = {
  calls: 0,
  failedCalls: 0,
  estimatedCalls: 0,
  fallbackCalls: 0,
  promptTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
  cost: asPicoUnits(0n),
  uncovered: asPicoUnits(0n),
};

/** Selects rows. Both ends of the hours are included. */
export interface UsageRange {
  /** Undefined for all accounts. */
  readonly account: AccountIndex | undefined;
  readonly fromHour: number;
  readonly toHour: number;
}

export function hourOf(wallMs: WallMs): number {
  return Math.floor(wallMs / HOUR_MS);
}

/** Returns the Unix seconds at which the hour begins. */
export function secondsOfHour(hour: number): number {
  return (hour * HOUR_MS) / 1_000;
}

export const USAGE_GROUPS = ['account', 'key', 'model', 'day', 'hour'] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

/** A field that is undefined does not restrict the report. */
export interface UsageQuestion {
  readonly account: AccountIndex | undefined;
  readonly keyId: string | undefined;
  readonly modelId: string | undefined;
  /** Both ends are included. */
  readonly fromHour: number;
  readonly toHour: number;
  readonly by: UsageGroup;
}

/**
 * `name` is the id of a key, a model or an account, a day (UTC) as `2025-01-31`, or the Unix seconds at which
 * an hour began.
 */
export interface UsageLine extends UsageTotals {
  readonly name: string;
}

/** How many rows a report may read, at 5 µs of the main thread each. */
const ROWS_READ_MAX = 100_000;

/** Returns lines ordered by name. Throws `invalid_parameters` if too many rows would have to be read. */
export function reportUsage(
  question: UsageQuestion,
  usages: (range: UsageRange) => Iterable<UsageRecord>,
  accountIdOf: (account: AccountIndex) => string,
): UsageLine[] {
  const { account, keyId, modelId, fromHour, toHour, by } = question;
  // Without an account the rows of all hours are read, so all of them count toward the bound.
  const range =
    account === undefined
      ? { account, fromHour: 0, toHour: Number.MAX_SAFE_INTEGER - 1 }
      : { account, fromHour, toHour };
  const lines = new Map<string, UsageLine>();
  let rows = 0;
  for (const record of usages(range)) {
    rows += 1;
    if (rows > ROWS_READ_MAX) {
      throw invalid(
        `more than ${ROWS_READ_MAX} rows would have to be read: give an account, or a shorter time`,
      );
    }
    if (record.hour < fromHour || record.hour > toHour) continue;
    if (keyId !== undefined && record.keyId !== keyId) continue;
    if (modelId !== undefined && record.modelId !== modelId) continue;
    const name = nameOf(record, by);
    lines.set(name, plus(lines.get(name) ?? { name, ...NO_USAGE }, record));
  }
  const summed = [...lines.values()];
  const named =
    by === 'account'
      ? summed.map((line) => ({ ...line, name: accountIdOf(Number(line.name) as AccountIndex) }))
      : summed;
  return named.sort((left, right) => (left.name < right.name ? -1 : 1));
}

function nameOf(record: UsageRecord, by: UsageGroup): string {
  switch (by) {
    case 'account':
      return String(record.account);
    case 'key':
      return record.keyId;
    case 'model':
      return record.modelId;
    case 'day':
      return new Date(secondsOfHour(record.hour) * 1_000).toISOString().slice(0, '2025-01-31'.length);
    case 'hour':
      return String(secondsOfHour(record.hour));
  }
}

function plus(line: UsageLine, record: UsageTotals): UsageLine {
  return {
    name: line.name,
    calls: line.calls + record.calls,
    failedCalls: line.failedCalls + record.failedCalls,
    estimatedCalls: line.estimatedCalls + record.estimatedCalls,
    fallbackCalls: line.fallbackCalls + record.fallbackCalls,
    promptTokens: line.promptTokens + record.promptTokens,
    cachedTokens: line.cachedTokens + record.cachedTokens,
    cacheWriteTokens: line.cacheWriteTokens + record.cacheWriteTokens,
    cacheWrite1hTokens: line.cacheWrite1hTokens + record.cacheWrite1hTokens,
    completionTokens: line.completionTokens + record.completionTokens,
    reasoningTokens: line.reasoningTokens + record.reasoningTokens,
    cost: asPicoUnits(line.cost + record.cost),
    uncovered: asPicoUnits(line.uncovered + record.uncovered),
  };
}
