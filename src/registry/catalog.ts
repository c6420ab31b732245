/**
 * Models, prices and plans as the data plane sees them: plain frozen records without secrets. The main thread
 * makes them from the settings and sends them to every thread; a reload merges the new ones into those that
 * run. Any thread.
 *
 * Must hold: over reloads a model keeps its index, because calls in flight, metrics and slots name it by
 * that; and the cost of a call is never above what was held for it. Tests:
 * unit/registry/catalog.catalog-merge, catalog.cost.
 */
import type { Service } from '../core/door-names.js';
import type { RoutingMember } from '../core/routing-members.js';
import type { QuotaLimits } from '../core/quotas.js';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { TokenCounts } from '../core/token-counts.js';

/** Prices of one token: of the parts of `TokenCounts`, and of the rest of prompt and completion. */
interface PartPrices {
  readonly inputPicoUnits: PicoUnits;
  readonly cachedInputPicoUnits: PicoUnits;
  readonly cacheWritePicoUnits: PicoUnits;
  readonly cacheWrite1hPicoUnits: PicoUnits;
  readonly outputPicoUnits: PicoUnits;
  readonly reasoningPicoUnits: PicoUnits;
}

export interface TokenPrice extends PartPrices {
  /** Of the call itself, beside its tokens. */
  readonly callPicoUnits: PicoUnits;
  /** All that a response of the cache costs. */
  readonly cachedResponsePicoUnits: PicoUnits;
  /** The dearest that a token of the prompt, or of the completion, can be. */
  readonly inputPicoUnitsMax: PicoUnits;
  readonly outputPicoUnitsMax: PicoUnits;
}

/**
 * A cached, or written, token of the prompt costs what the rest costs if it has no price of its own, one that
 * is kept for an hour what another written one costs, a token of reasoning what other output costs.
 */
export function tokenPriceOf(
  prices: Pick<PartPrices, 'inputPicoUnits' | 'outputPicoUnits'> & {
    readonly [Part in keyof PartPrices]?: PicoUnits | undefined;
  } & {
    readonly callPicoUnits?: PicoUnits | undefined;
    readonly cachedResponsePicoUnits?: PicoUnits | undefined;
  },
): TokenPrice {
  const { inputPicoUnits: input, outputPicoUnits: output } = prices;
  const cached = prices.cachedInputPicoUnits ?? input;
  const cacheWrite = prices.cacheWritePicoUnits ?? input;
  const cacheWrite1h = prices.cacheWrite1hPicoUnits ?? cacheWrite;
  const reasoning = prices.reasoningPicoUnits ?? output;
  return {
    inputPicoUnits: input,
    cachedInputPicoUnits: cached,
    cacheWritePicoUnits: cacheWrite,
    cacheWrite1hPicoUnits: cacheWrite1h,
    outputPicoUnits: output,
    reasoningPicoUnits: reasoning,
    callPicoUnits: prices.callPicoUnits ?? asPicoUnits(0n),
    cachedResponsePicoUnits: prices.cachedResponsePicoUnits ?? asPicoUnits(0n),
    inputPicoUnitsMax: dearestOf(input, cached, cacheWrite, cacheWrite1h),
    outputPicoUnitsMax: dearestOf(output, reasoning),
  };
}

function dearestOf(first: PicoUnits, ...others: readonly PicoUnits[]): PicoUnits {
  return others.reduce((dearest, price) => (price > dearest ? price : dearest), first);
}

export interface ModelEntry {
  readonly id: string;
  /** Other names that callers may use. */
  readonly aliases: readonly string[];
  readonly ownedBy: string;
  readonly createdSeconds: number;
  readonly price: TokenPrice;
  readonly outputTokensMax: number;
  /** What it serves: a door leads to one of them. */
  readonly serves: readonly Service[];
  /** Members of a request that choose where the call goes and are passed on. */
  readonly passMembers: readonly RoutingMember[];
  /** Indices of the models that answer if this one fails, in their order. */
  readonly fallbacks: readonly number[];
  /** Undefined if responses are not cached. */
  readonly cache?: CacheRule | undefined;
  /** A reload removed it: it is listed nowhere and on no plan. Calls in flight end as they were admitted. */
  readonly retired?: true;
}

/** How responses of a model are cached. */
export interface CacheRule {
  /** How long a response is served. */
  readonly ttlMs: number;
  /** An account may get the response to an equal request of another. */
  readonly isShared: boolean;
  /** The most bytes that responses of the model take on disk; undefined if all of the cache's. */
  readonly bytesMax?: number | undefined;
  /** The part of the cache's memory that they may take at most: more than 0, at most 1. */
  readonly memoryShare?: number | undefined;
  /** Another one after each change of the model's upstreams or cache, so that no older response is found. */
  readonly revision: string;
}

export interface PlanEntry {
  readonly id: string;
  readonly requestsPerMinute: number;
  readonly callsPerDay: number;
  /** The most output tokens that a call may ask for; undefined if only the model's own limit counts. */
  readonly outputTokensMax: number | undefined;
  /** Of one account; the lower of the plan's and the gateway's own limit, as is the next. */
  readonly callsInFlightMax: number;
  readonly bodyBytesMax: number;
  /**
   * Of one account. Three of them are the fields above, which each call reads; `callsInFlight` is without the
   * gateway's own limit.
   */
  readonly quotas: QuotaLimits;
  /** Quotas of single models for one account, by the model's index; undefined if no model has any. */
  readonly modelLimits: readonly (QuotaLimits | undefined)[] | undefined;
  /** Indices into `Catalog.models` of the models that the plan may use, ascending. */
  readonly modelIndices: readonly number[];
  /** A reload removed it, and no account is on it. */
  readonly retired?: true;
}

/**
 * The plan of an account whose plan is not in the catalogue. The account is disabled, so nobody looks the
 * plan up.
 */
export const NO_PLAN_INDEX = 2 ** 30 - 1;

/**
 * Indices into both lists are stable for the life of the process, also over reloads. Accounts name plans by
 * index.
 */
export interface Catalog {
  readonly models: readonly ModelEntry[];
  readonly plans: readonly PlanEntry[];
}

/** Whether it is in the settings that run. */
export function isListed({ retired }: ModelEntry | PlanEntry): boolean {
  return retired === undefined;
}

/** Returns the exact cost of a call. Most calls have no parts, so those are added only if there. */
export function costOf(price: TokenPrice, tokens: TokenCounts): PicoUnits {
  const { inputPicoUnits: input, outputPicoUnits: output } = price;
  const { cachedTokens, cacheWriteTokens, cacheWrite1hTokens, reasoningTokens } = tokens;
  let cost = BigInt(tokens.promptTokens) * input + BigInt(tokens.completionTokens) * output;
  if (cachedTokens !== 0) cost += BigInt(cachedTokens) * (price.cachedInputPicoUnits - input);
  if (cacheWriteTokens !== 0) {
    cost +=
      BigInt(cacheWriteTokens - cacheWrite1hTokens) * (price.cacheWritePicoUnits - input) +
      BigInt(cacheWrite1hTokens) * (price.cacheWrite1hPicoUnits - input);
  }
  if (reasoningTokens !== 0) cost += BigInt(reasoningTokens) * (price.reasoningPicoUnits - output);
  if (price.callPicoUnits !== 0n) cost += price.callPicoUnits;
  return cost as PicoUnits;
}

/** Returns the most that a call can cost if its prompt has at most `promptTokensMax` tokens. */
export function worstCaseOf(
  price: TokenPrice,
  promptTokensMax: number,
  completionTokensMax: number,
): PicoUnits {
  const tokens =
    BigInt(promptTokensMax) * price.inputPicoUnitsMax +
    BigInt(completionTokensMax) * price.outputPicoUnitsMax;
  return (price.callPicoUnits === 0n ? tokens : tokens + price.callPicoUnits) as PicoUnits;
}

interface Entry {
  readonly id: string;
  readonly retired?: true;
}

/**
 * Returns `next` with the indices of `current`, because calls in flight, journals and accounts name models
 * and plans by index. An entry takes the place of the one with its id, new ones follow, and what `next` does
 * not have stays as it was, retired. Indices into `next`'s models are translated.
 */
export function mergeCatalogs(current: Catalog, next: Catalog): Catalog {
  const merged = mergeById(current.models, next.models);
  const indexOf = new Map(merged.map(({ id }, index) => [id, index]));
  const indexAfter = (index: number): number => indexOf.get(next.models[index]!.id)!;
  // Retired models are `current`'s, and so are their indices.
  const models = merged.map((model) =>
    isListed(model) && model.fallbacks.length > 0
      ? { ...model, fallbacks: model.fallbacks.map(indexAfter) }
      : model,
  );
  const plans = next.plans.map((plan) => {
    const modelLimits = plan.modelLimits && models.map((): QuotaLimits | undefined => undefined);
    plan.modelLimits?.forEach((limits, index) => (modelLimits![indexAfter(index)] = limits));
    return { ...plan, modelLimits, modelIndices: plan.modelIndices.map(indexAfter).sort((a, b) => a - b) };
  });
  return { models, plans: mergeById(current.plans, plans) };
}

/**
 * Returns `current` with the plans retired that `next` does not have, so that no account can be put on one of
 * them.
 */
export function retireMissingPlans(current: Catalog, next: Catalog): Catalog {
  const listed = new Set(next.plans.filter(isListed).map(({ id }) => id));
  const plans = current.plans.map((plan) =>
    listed.has(plan.id) ? plan : { ...plan, retired: true as const },
  );
  return { models: current.models, plans };
}

/** Returns `next` with the indices of `current`; see `mergeCatalogs`. */
export function mergeById<T extends Entry>(current: readonly T[], next: readonly T[]): T[] {
  const byId = new Map(next.map((entry) => [entry.id, entry]));
  const merged = current.map((entry): T => byId.get(entry.id) ?? { ...entry, retired: true });
  const known = new Set(current.map(({ id }) => id));
  return [...merged, ...next.filter(({ id }) => !known.has(id))];
}
