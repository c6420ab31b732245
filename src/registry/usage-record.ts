/**
 * What is kept of the use that was made of the gateway: for each account, key, model and hour the totals of its calls.
 * Plain records; main thread.
 */
import { asPicoUnits, type AccountIndex, type PicoUnits, type WallMs } from '../core/units.js';

const HOUR_MS = 3_600_000;

/** Whose use, of what, and when. Key and model are named by text: slots and places in a list mean other things later. */
export interface UsageKey {
  readonly account: AccountIndex;
  /** Hours since 1970-01-01T00:00Z: the hour in which the calls ended. */
  readonly hour: number;
  readonly keyId: string;
  readonly modelId: string;
}

/**
 * Absolute totals: writing one twice changes nothing. The law of the books: the costs of all rows of an account sum up to
 * the `spent` of its spending record, and so do the uncovered ones to its `uncovered`, after every commit.
 */
export interface UsageTotals {
  /** Calls that ended after they had been admitted, served or not. */
  readonly calls: number;
  /** Of them those that ended in an error; they cost nothing. */
  readonly failedCalls: number;
  /** Of them those whose tokens were estimated from lengths, such as when a client left mid-stream. */
  readonly estimatedCalls: number;
  readonly promptTokens: number;
  /** Part of `promptTokens`. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
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
  promptTokens: 0,
  cachedTokens: 0,
  completionTokens: 0,
  cost: asPicoUnits(0n),
  uncovered: asPicoUnits(0n),
};

/** Rows of which accounts and hours; both ends of the hours belong to it. */
export interface UsageRange {
  /** Of all accounts where none is given. */
  readonly account: AccountIndex | undefined;
  readonly fromHour: number;
  readonly toHour: number;
}

export function hourOf(wallMs: WallMs): number {
  return Math.floor(wallMs / HOUR_MS);
}

/** Unix seconds of the hour's beginning. */
export function secondsOfHour(hour: number): number {
  return (hour * HOUR_MS) / 1_000;
}
