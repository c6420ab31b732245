/**
 * The codec of the rows of usage: what a key has called of a model in an hour. store.ts packs the rows in the
 * transaction of the charges; the registry's lists, usage-book.ts and the audit read them. Main thread.
 *
 * Must hold: rows keep their fields, as record-codec.ts says, and a row has no field that is 0 and that an
 * earlier version did not know: nearly all rows are then those of format 1
 * (test/unit/store/usage-codec.test.ts). No check stands before the write, because one wrong row must not
 * keep all charges from the disk.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import { asPicoUnits } from '../core/units.js';
import type { UsageTotals } from '../registry/usage-report.js';
import { closedObject, Count, Format, FORMAT, Money, rowReader } from './record-codec.js';

const StoredUsage = closedObject({
  format: Format,
  calls: Count,
  failedCalls: Count,
  estimatedCalls: Count,
  promptTokens: Count,
  cachedTokens: Count,
  completionTokens: Count,
  // Written only if they are not 0, as nearly always they are.
  fallbackCalls: Type.Optional(Count),
  cacheWriteTokens: Type.Optional(Count),
  cacheWrite1hTokens: Type.Optional(Count),
  reasoningTokens: Type.Optional(Count),
  costPicoUnits: Money,
  uncoveredPicoUnits: Money,
});

export function packUsage(totals: UsageTotals): Static<typeof StoredUsage> {
  const { fallbackCalls, cacheWriteTokens, cacheWrite1hTokens, reasoningTokens } = totals;
  const stored: Static<typeof StoredUsage> = {
    format: FORMAT,
    calls: totals.calls,
    failedCalls: totals.failedCalls,
    estimatedCalls: totals.estimatedCalls,
    promptTokens: totals.promptTokens,
    cachedTokens: totals.cachedTokens,
    completionTokens: totals.completionTokens,
    costPicoUnits: totals.cost.toString(),
    uncoveredPicoUnits: totals.uncovered.toString(),
  };
  if (fallbackCalls !== 0) stored.fallbackCalls = fallbackCalls;
  if (cacheWriteTokens !== 0) stored.cacheWriteTokens = cacheWriteTokens;
  if (cacheWrite1hTokens !== 0) stored.cacheWrite1hTokens = cacheWrite1hTokens;
  if (reasoningTokens !== 0) stored.reasoningTokens = reasoningTokens;
  return stored;
}

export const readUsage = rowReader('StoredUsage', StoredUsage, (stored): UsageTotals => ({
  calls: stored.calls,
  failedCalls: stored.failedCalls,
  estimatedCalls: stored.estimatedCalls,
  fallbackCalls: stored.fallbackCalls ?? 0,
  promptTokens: stored.promptTokens,
  cachedTokens: stored.cachedTokens,
  cacheWriteTokens: stored.cacheWriteTokens ?? 0,
  cacheWrite1hTokens: stored.cacheWrite1hTokens ?? 0,
  completionTokens: stored.completionTokens,
  reasoningTokens: stored.reasoningTokens ?? 0,
  cost: asPicoUnits(BigInt(stored.costPicoUnits)),
  uncovered: asPicoUnits(BigInt(stored.uncoveredPicoUnits)),
}));
