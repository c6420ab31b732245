/**
 * Models, prices and plans as the threads that serve calls see them: plain frozen records without secrets.
 * The main thread makes them from the settings and sends them to every thread; a reload (gateway/reload.ts)
 * merges the new catalogue into the catalogue in force. Any thread.
 *
 * Must hold: a model keeps its index over reloads, because calls in flight, metrics, journals and the slots
 * of rules name the model by it (test/unit/registry/catalog.catalog-merge.test.ts). `costOf` is never above
 * `worstCaseOf`, by which a call holds, if the tokens keep the rules of core/token-counts.ts and are no more
 * than `worstCaseOf` was given (test/unit/registry/catalog.cost.test.ts). upstream/usage-bounds.ts believes
 * reports of somewhat more tokens: a call with such a report costs more than its hold.
 */
import type { Service } from '../core/door-names.js';
import { PROMPT_TOKENS_BESIDE_BODY } from '../core/limits.js';
import type { RoutingMember } from '../core/routing-members.js';
import type { QuotaLimits } from '../core/quotas.js';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { TokenCounts } from '../core/token-counts.js';

/** Prices of one token, for each part of `TokenCounts` and for all other tokens of prompt and completion. */
export interface PartPrices {
  readonly inputPicoUnits: PicoUnits;
  readonly cachedInputPicoUnits: PicoUnits;
  readonly cacheWritePicoUnits: PicoUnits;
  readonly cacheWrite1hPicoUnits: PicoUnits;
  readonly outputPicoUnits: PicoUnits;
  readonly reasoningPicoUnits: PicoUnits;
}

/**
 * The prices of all tokens of a call, with the highest of the prompt and of the completion. In a long price
 * those are of the sets for shorter prompts too, so that the hold of a longer prompt is never less.
 */
interface PriceSet extends PartPrices {
  readonly inputPicoUnitsMax: PicoUnits;
  readonly outputPicoUnitsMax: PicoUnits;
}

/** The prices of all tokens of a call whose prompt has more than `aboveTokens`. */
interface LongPrice extends PriceSet {
  readonly aboveTokens: number;
}

/** The price of a model. Its own price set is for prompts to which no long price applies. */
interface TokenPrice extends PriceSet {
  /** Price of the call itself, besides its tokens. */
  readonly callPicoUnits: PicoUnits;
  /** Price of a whole response from the cache. */
  readonly cachedResponsePicoUnits: PicoUnits;
  /** Ascending by `aboveTokens`; undefined, and never empty, if the length of a prompt changes no price. */
  readonly long: readonly LongPrice[] | undefined;
}

type GivenPrices = Pick<PartPrices, 'inputPicoUnits' | 'outputPicoUnits'> & {
  readonly [Part in keyof PartPrices]?: PicoUnits | undefined;
};

/** Makes the price of a model. `long`: ascending by `aboveTokens`. `priceSetOf` fills in what is not set. */
export function tokenPriceOf(
  prices: GivenPrices & {
    readonly callPicoUnits?: PicoUnits | undefined;
    readonly cachedResponsePicoUnits?: PicoUnits | undefined;
    readonly long?: readonly (GivenPrices & { readonly aboveTokens: number })[] | undefined;
  },
): TokenPrice {
  const base = priceSetOf(prices);
  let shorterPrice = base;
  const long = prices.long?.map((given): LongPrice => {
    const priceSet = priceSetOf(given);
    const longPrice = {
      ...priceSet,
      aboveTokens: given.aboveTokens,
      inputPicoUnitsMax: highestOf(priceSet.inputPicoUnitsMax, shorterPrice.inputPicoUnitsMax),
      outputPicoUnitsMax: highestOf(priceSet.outputPicoUnitsMax, shorterPrice.outputPicoUnitsMax),
    };
    shorterPrice = longPrice;
    return longPrice;
  });
  return {
    ...base,
    callPicoUnits: prices.callPicoUnits ?? asPicoUnits(0n),
    cachedResponsePicoUnits: prices.cachedResponsePicoUnits ?? asPicoUnits(0n),
    long: long === undefined || long.length === 0 ? undefined : long,
  };
}

/**
 * Fills in prices that are not set. Tokens read from or written to the provider's cache cost as much as other
 * input, tokens written for an hour as much as other written tokens, reasoning as much as other output.
 */
function priceSetOf(prices: GivenPrices): PriceSet {
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
    inputPicoUnitsMax: highestOf(input, cached, cacheWrite, cacheWrite1h),
    outputPicoUnitsMax: highestOf(output, reasoning),
  };
}

function highestOf(first: PicoUnits, ...others: readonly PicoUnits[]): PicoUnits {
  return others.reduce((highest, price) => (price > highest ? price : highest), first);
}

export interface ModelEntry {
  readonly id: string;
  /** Other names that callers may use. */
  readonly aliases: readonly string[];
  readonly ownedBy: string;
  readonly createdSeconds: number;
  readonly price: TokenPrice;
  readonly outputTokensMax: number;
  /** Tokens that each media part of a prompt counts for, besides its bytes. */
  readonly mediaPartTokens: number;
  /** What the model can do, such as `chat` or `embeddings`; a door needs one service (core/door-names.ts). */
  readonly serves: readonly Service[];
  /** Members of the body that steer routing and are passed on; a request with any other is rejected. */
  readonly passMembers: readonly RoutingMember[];
  /** Indices of the models to try, in order, if this model fails. */
  readonly fallbacks: readonly number[];
  /** Undefined if responses are not cached. */
  readonly cache?: CacheRule | undefined;
  /** A reload removed the model from the settings. No list or plan has it; calls in flight still use it. */
  readonly retired?: true;
}

/** How responses of a model are cached. */
export interface CacheRule {
  /** How long a response is served. */
  readonly ttlMs: number;
  /** An account may get the response to an equal request of another. */
  readonly isShared: boolean;
  /** The most bytes that responses of the model take on disk; undefined: all that the cache has. */
  readonly bytesMax?: number | undefined;
  /** The part of the cache's memory that these responses may take: more than 0, at most 1. */
  readonly memoryShare?: number | undefined;
  /**
   * A hash of the model's upstreams and cache settings (elsewhere a revision is a number). If it changes, no
   * older response is found.
   */
  readonly revision: string;
}

export interface PlanEntry {
  readonly id: string;
  readonly requestsPerMinute: number;
  readonly callsPerDay: number;
  /** The most output tokens that a call may ask for; undefined if only the model's own limit counts. */
  readonly outputTokensMax: number | undefined;
  /** Calls of one account: the lower of the plan's limit and the gateway's. */
  readonly callsInFlightMax: number;
  /** The lower of the plan's limit and the gateway's. */
  readonly bodyBytesMax: number;
  /**
   * Limits of one account. Three of them are also fields above, which each call reads; `callsInFlight` here
   * ignores the gateway's own limit.
   */
  readonly quotas: QuotaLimits;
  /** Quotas of single models for one account, by the model's index; undefined if no model has any. */
  readonly modelLimits: readonly (QuotaLimits | undefined)[] | undefined;
  /** Indices into `Catalog.models` of the models that the plan may use, ascending. */
  readonly modelIndices: readonly number[];
  /** A reload removed the plan from the settings. The reload is rejected if an account has the plan. */
  readonly retired?: true;
}

/**
 * Stands for a plan that is not in the catalogue. The account is disabled, so nobody looks the plan up. The
 * highest index of 30 bits, as many as `#setStatus` of ledger/ledger.ts has room for.
 */
export const NO_PLAN_INDEX = 2 ** 30 - 1;

/** Indices into both lists stay for the life of the process: calls name models by them, accounts plans. */
export interface Catalog {
  readonly models: readonly ModelEntry[];
  readonly plans: readonly PlanEntry[];
}

/** Whether the entry is in the settings that are in force. */
export function isListed({ retired }: ModelEntry | PlanEntry): boolean {
  return retired === undefined;
}

/** Returns the cache rule of each listed model that has a cache, by the model's id. */
export function cacheRulesOf({ models }: Catalog): Map<string, CacheRule> {
  const cached = models.filter((model) => isListed(model) && model.cache !== undefined);
  return new Map(cached.map(({ id, cache }) => [id, cache!]));
}

/**
 * Returns the id under which calls and usage of a model are kept. `name` is its id or an alias; any other
 * text is returned as it is. A model that a reload has removed stays in the catalogue with its aliases: its
 * calls are found by an alias until another model has that name (test/unit/admin/call-routes.test.ts).
 */
export function idOfModel(name: string, { models }: Catalog): string {
  const withAlias = models.filter(({ aliases }) => aliases.includes(name));
  const listed = withAlias.find(isListed);
  if (listed !== undefined) return listed.id;
  return models.some(({ id }) => id === name) ? name : (withAlias.at(-1)?.id ?? name);
}

/** The prices of all tokens of a call with this many prompt tokens: the model's own, or a long price. */
function pricesFor(price: TokenPrice, promptTokens: number): PriceSet {
  const { long } = price;
  if (long === undefined) return price;
  let prices: PriceSet = price;
  for (const longPrice of long) if (promptTokens > longPrice.aboveTokens) prices = longPrice;
  return prices;
}

/**
 * The exact cost of a call, if the tokens keep the rules of core/token-counts.ts. Parts are rare, so their
 * multiplications are skipped if they are 0.
 */
export function costOf(price: TokenPrice, tokens: TokenCounts): PicoUnits {
  const prices = pricesFor(price, tokens.promptTokens);
  const { inputPicoUnits: input, outputPicoUnits: output } = prices;
  const { cachedTokens, cacheWriteTokens, cacheWrite1hTokens, reasoningTokens } = tokens;
  let cost = BigInt(tokens.promptTokens) * input + BigInt(tokens.completionTokens) * output;
  if (cachedTokens !== 0) cost += BigInt(cachedTokens) * (prices.cachedInputPicoUnits - input);
  if (cacheWriteTokens !== 0) {
    cost +=
      BigInt(cacheWriteTokens - cacheWrite1hTokens) * (prices.cacheWritePicoUnits - input) +
      BigInt(cacheWrite1hTokens) * (prices.cacheWrite1hPicoUnits - input);
  }
  if (reasoningTokens !== 0) cost += BigInt(reasoningTokens) * (prices.reasoningPicoUnits - output);
  if (price.callPicoUnits !== 0n) cost += price.callPicoUnits;
  return cost as PicoUnits;
}

/**
 * Returns the most that a call can cost with at most so many tokens of the prompt and of the completion. A
 * report may name somewhat more tokens of the prompt (core/limits.ts). If a long price applies to such a
 * prompt, the call holds by that price.
 */
export function worstCaseOf(
  price: TokenPrice,
  promptTokensMax: number,
  completionTokensMax: number,
): PicoUnits {
  const { inputPicoUnitsMax, outputPicoUnitsMax } = pricesFor(
    price,
    promptTokensMax + PROMPT_TOKENS_BESIDE_BODY,
  );
  const tokens =
    BigInt(promptTokensMax) * inputPicoUnitsMax + BigInt(completionTokensMax) * outputPicoUnitsMax;
  return (price.callPicoUnits === 0n ? tokens : tokens + price.callPicoUnits) as PicoUnits;
}

interface Entry {
  readonly id: string;
  readonly retired?: true;
}

/**
 * Returns `next` with the indices of `current`, because calls in flight, journals and accounts name models
 * and plans by index. An entry of `next` replaces the entry with its id, new entries follow, and entries that
 * `next` lacks stay, retired. Indices into the models of `next` are translated.
 */
export function mergeCatalogs(current: Catalog, next: Catalog): Catalog {
  const merged = mergeById(current.models, next.models);
  const indexById = new Map(merged.map(({ id }, index) => [id, index]));
  // Each model of `next` is in `merged`.
  const mergedIndexOf = (index: number): number => indexById.get(next.models[index]!.id)!;
  // A retired model comes from `current`, so its fallbacks have the right indices already.
  const models = merged.map((model) =>
    isListed(model) && model.fallbacks.length > 0
      ? { ...model, fallbacks: model.fallbacks.map(mergedIndexOf) }
      : model,
  );
  const plans = next.plans.map((plan) => {
    const modelLimits = plan.modelLimits && models.map((): QuotaLimits | undefined => undefined);
    plan.modelLimits?.forEach((limits, index) => (modelLimits![mergedIndexOf(index)] = limits));
    return { ...plan, modelLimits, modelIndices: plan.modelIndices.map(mergedIndexOf).sort((a, b) => a - b) };
  });
  return { models, plans: mergeById(current.plans, plans) };
}

/**
 * Returns `current` with the plans retired that `next` lacks, so that no account can be put on them while a
 * reload waits for workers. Keeps the order of `current`.
 */
export function retireMissingPlans(current: Catalog, next: Catalog): Catalog {
  const listed = new Set(next.plans.filter(isListed).map(({ id }) => id));
  const plans = current.plans.map((plan) =>
    listed.has(plan.id) ? plan : { ...plan, retired: true as const },
  );
  return { models: current.models, plans };
}

/** Merges entries as `mergeCatalogs` says. gateway/reload.ts calls it for routes. */
export function mergeById<Item extends Entry>(current: readonly Item[], next: readonly Item[]): Item[] {
  const nextById = new Map(next.map((entry) => [entry.id, entry]));
  const merged = current.map((entry): Item => nextById.get(entry.id) ?? { ...entry, retired: true });
  const currentIds = new Set(current.map(({ id }) => id));
  return [...merged, ...next.filter(({ id }) => !currentIds.has(id))];
}
