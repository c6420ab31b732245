/**
 * Usage rows summed up for an operator. Pure; main thread.
 */
import { asPicoUnits, type AccountIndex } from '../core/units.js';
import { invalid } from './record-id.js';
import {
  NO_USAGE,
  secondsOfHour,
  type UsageRange,
  type UsageRecord,
  type UsageTotals,
} from './usage-record.js';

export const USAGE_GROUPS = ['account', 'key', 'model', 'day', 'hour'] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

/** What is undefined does not restrict it. */
export interface UsageQuestion {
  readonly account: AccountIndex | undefined;
  readonly keyId: string | undefined;
  readonly modelId: string | undefined;
  /** Both ends belong to it. */
  readonly fromHour: number;
  readonly toHour: number;
  readonly by: UsageGroup;
}

/** Name is a key's, a model's or an account's id, a day (UTC) as `2025-01-31`, or the Unix seconds at which an hour began. */
export interface UsageLine extends UsageTotals {
  readonly name: string;
}

/** Rows that a report may read: they cost the main thread 5 µs each. */
const ROWS_READ_MAX = 100_000;

/** Lines in the order of their names. Throws `invalid_parameters` where too many rows would have to be read. */
export function reportUsage(
  question: UsageQuestion,
  usages: (range: UsageRange) => Iterable<UsageRecord>,
  accountIdOf: (account: AccountIndex) => string,
): UsageLine[] {
  const { account, keyId, modelId, fromHour, toHour, by } = question;
  // Without an account the rows of all hours are passed, so that those which are not wanted count too.
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
    promptTokens: line.promptTokens + record.promptTokens,
    cachedTokens: line.cachedTokens + record.cachedTokens,
    completionTokens: line.completionTokens + record.completionTokens,
    cost: asPicoUnits(line.cost + record.cost),
    uncovered: asPicoUnits(line.uncovered + record.uncovered),
  };
}
