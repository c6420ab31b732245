/**
 * Models, prices and plans as the data plane sees them: plain frozen records made by the main thread from the settings
 * and handed to every thread. No secrets. Any thread.
 */
import type { PicoUnits } from '../core/units.js';
import type { Usage } from '../protocol/usage.js';

/** What one token costs. */
export interface TokenPrice {
  readonly inputPicoUnits: PicoUnits;
  readonly cachedInputPicoUnits: PicoUnits;
  readonly outputPicoUnits: PicoUnits;
}

export interface ModelEntry {
  readonly id: string;
  readonly ownedBy: string;
  readonly createdSeconds: number;
  readonly price: TokenPrice;
  readonly outputTokensMax: number;
}

export interface PlanEntry {
  readonly id: string;
  readonly requestsPerMinute: number;
  readonly callsPerDay: number;
  /** Indices into `Catalog.models` that the plan may use, ascending. */
  readonly modelIndices: readonly number[];
}

/** Indices into both lists are stable for the life of one catalogue; accounts point at plans by index. */
export interface Catalog {
  readonly models: readonly ModelEntry[];
  readonly plans: readonly PlanEntry[];
}

/** Exact cost of a call's tokens. */
export function costOf(price: TokenPrice, usage: Usage): PicoUnits {
  return (BigInt(usage.promptTokens - usage.cachedTokens) * price.inputPicoUnits +
    BigInt(usage.cachedTokens) * price.cachedInputPicoUnits +
    BigInt(usage.completionTokens) * price.outputPicoUnits) as PicoUnits;
}

/** The most that a call can cost whose prompt has at most `promptTokensMax` tokens. */
export function worstCaseOf(
  price: TokenPrice,
  promptTokensMax: number,
  completionTokensMax: number,
): PicoUnits {
  const input =
    price.inputPicoUnits > price.cachedInputPicoUnits ? price.inputPicoUnits : price.cachedInputPicoUnits;
  return (BigInt(promptTokensMax) * input + BigInt(completionTokensMax) * price.outputPicoUnits) as PicoUnits;
}
