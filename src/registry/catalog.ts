/**
 * Models, prices and plans as the data plane sees them: plain frozen records made by the main thread from the settings
 * and handed to every thread. No secrets. Any thread.
 */
import type { PicoUnits } from '../core/units.js';
import type { RoutingMember } from '../core/routing-members.js';
import type { Usage } from '../protocol/usage.js';

/** What one token costs. */
export interface TokenPrice {
  readonly inputPicoUnits: PicoUnits;
  readonly cachedInputPicoUnits: PicoUnits;
  readonly outputPicoUnits: PicoUnits;
}

export interface ModelEntry {
  readonly id: string;
  /** Other names that callers may use. */
  readonly aliases: readonly string[];
  readonly ownedBy: string;
  readonly createdSeconds: number;
  readonly price: TokenPrice;
  readonly outputTokensMax: number;
  /** Members that choose where a call goes and are let through. */
  readonly passMembers: readonly RoutingMember[];
  /** A reload removed it: it is listed nowhere and on no plan; calls in flight end as they were admitted. */
  readonly retired?: true;
}

export interface PlanEntry {
  readonly id: string;
  readonly requestsPerMinute: number;
  readonly callsPerDay: number;
  /** The most that a call may ask for; undefined where the model's own bound alone counts. */
  readonly outputTokensMax: number | undefined;
  /** Of one account; the lower of the plan's and the gateway's own, as is the next. */
  readonly callsInFlightMax: number;
  readonly bodyBytesMax: number;
  /** Indices into `Catalog.models` that the plan may use, ascending. */
  readonly modelIndices: readonly number[];
  /** A reload removed it, and no account is on it. */
  readonly retired?: true;
}

/** The plan of an account whose plan is not in the catalogue; it is disabled, so nobody looks the plan up. */
export const NO_PLAN_INDEX = 2 ** 30 - 1;

/** Indices into both lists are stable for the life of the process, over reloads too; accounts point at plans by index. */
export interface Catalog {
  readonly models: readonly ModelEntry[];
  readonly plans: readonly PlanEntry[];
}

/** Whether it is in the settings that run. */
export function isListed({ retired }: ModelEntry | PlanEntry): boolean {
  return retired === undefined;
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
