/**
 * Reads the costs of an entry of LiteLLM's file, and makes the price of a model of those of its entries.
 * deployment.ts calls `pricesOf`, model.ts `priceOf`, in the process of `tollgate config import-litellm`.
 * Pure.
 *
 * Must hold: a price is never below LiteLLM's cost, so one with too many decimals is rounded up
 * (test/unit/config/litellm/price.test.ts). Each price of a model, also of its long ones, is the highest that
 * the file has for one of its upstreams (test/unit/config/litellm/import.test.ts), so that no upstream with a
 * price in the file is sold below it. That says nothing of an upstream without this price in the file:
 * LiteLLM takes such a price from a table of its own, which is not read here.
 */
import { picoUnitsPerCall, picoUnitsPerToken } from '../../core/money.js';
import { LONG_PRICES_MAX, LONG_PROMPT_TOKENS_MAX } from '../catalog-schema.js';
import type { ImportMap } from './remarks.js';

const TOKEN_PRICE_NAMES = [
  'input',
  'output',
  'cached_input',
  'cache_write',
  'cache_write_1h',
  'reasoning',
] as const;
type PriceName = (typeof TOKEN_PRICE_NAMES)[number] | 'call';
const PRICE_NAMES: readonly PriceName[] = [...TOKEN_PRICE_NAMES, 'call'];

const COSTS: Readonly<Record<PriceName, string>> = {
  input: 'input_cost_per_token',
  output: 'output_cost_per_token',
  cached_input: 'cache_read_input_token_cost',
  cache_write: 'cache_creation_input_token_cost',
  cache_write_1h: 'cache_creation_input_token_cost_above_1hr',
  reasoning: 'output_cost_per_reasoning_token',
  call: 'input_cost_per_query',
};

/** The end of a cost's name, if the cost is for prompts of more than so many thousand tokens. */
const ABOVE = /_above_([1-9]\d{0,4})k_tokens$/;

/** Names of LiteLLM that are about money. */
export const PRICE_WORDS = /cost|price|pricing/;
export const UNPLACED_PRICE = 'a price that Tollgate has no place for: raise price.input or price.output';

type Prices = Readonly<Partial<Record<PriceName, ImportedPrice>>>;

/** What one entry of the file says of prices. */
export interface DeploymentPrices {
  readonly base: Prices;
  /** By the tokens that a prompt must exceed. */
  readonly long: ReadonlyMap<number, Prices>;
}

/** `own`: the entry's `litellm_params`, which go before `info`, its `model_info`. */
export function pricesOf(own: ImportMap, info: ImportMap): DeploymentPrices {
  const base = pricesNamed(PRICE_NAMES, '', own, info);
  const long = new Map<number, Prices>();
  for (const name of [...own.unread, ...info.unread]) {
    const [suffix = '', thousands] = ABOVE.exec(name) ?? [];
    const above = Number(thousands) * 1_000;
    if (!(above <= LONG_PROMPT_TOKENS_MAX) || long.has(above)) continue;
    const prices = pricesNamed(TOKEN_PRICE_NAMES, suffix, own, info);
    if (Object.keys(prices).length > 0) long.set(above, prices);
  }
  return { base, long };
}

function pricesNamed(names: readonly PriceName[], suffix: string, own: ImportMap, info: ImportMap): Prices {
  const prices: Partial<Record<PriceName, ImportedPrice>> = {};
  for (const name of names) {
    const cost = `${COSTS[name]}${suffix}`;
    const ownCost = own.costText(cost);
    const infoCost = info.costText(cost);
    const costText = ownCost ?? infoCost;
    if (costText === undefined) continue;
    const owner = ownCost === undefined ? info : own;
    const kind = name === 'call' ? PER_CALL : PER_TOKEN;
    const price = importPrice(costText, kind);
    if (price === undefined) {
      owner.remark(cost, kind.rule);
      continue;
    }
    if (!price.exact) owner.remark(cost, `rounded up to ${price.text} ${kind.limit}`);
    prices[name] = price;
  }
  return prices;
}

type PriceTexts = Readonly<Partial<Record<PriceName, string>>>;

/** The setting `price` of a model. */
export interface ModelPrice extends PriceTexts {
  readonly long?: readonly (PriceTexts & { readonly above: number })[];
}

/** An entry of the file, and what it says of prices. */
interface Priced {
  readonly entry: ImportMap;
  readonly prices: DeploymentPrices;
}

/**
 * A model has one price, whichever upstream responds. So each kind of price (PRICE_NAMES) is the highest that
 * an entry has; entries without that kind do not count. If no entry has an input price, or none an output
 * price, the model has no price and its calls cost nothing, which a remark says. There are two exceptions: a
 * price of calls alone is enough, and tokens cost nothing then; a price of input alone is enough if responses
 * have no output to pay for (`hasOutput` is false), such as embeddings.
 */
export function priceOf(deployments: readonly Priced[], hasOutput: boolean): ModelPrice | undefined {
  const base = highestOf(deployments, (prices) => prices.base, '');
  const { input, output, call } = base;
  const first = deployments[0]!.entry;
  const isOfCallsAlone = input === undefined && output === undefined && call !== undefined;
  const isOutputFree = input !== undefined && !hasOutput;
  if ((input === undefined || output === undefined) && !isOfCallsAlone && !isOutputFree) {
    const found = input === undefined && output === undefined ? 'no price' : 'only one of the two prices';
    first.remark(
      'model_name',
      `${found} in the file (LiteLLM has a table of its own): calls cost nothing until price is set`,
    );
    return undefined;
  }
  const thresholds = new Set(deployments.flatMap(({ prices }) => [...prices.long.keys()]));
  const aboves = [...thresholds].sort((left, right) => left - right);
  for (const above of aboves.slice(LONG_PRICES_MAX))
    first.remark(
      'model_name',
      `its prices above ${above} tokens hold from ${aboves[LONG_PRICES_MAX - 1]} on where they are higher: ` +
        `a model has at most ${LONG_PRICES_MAX} long prices`,
    );
  const long = aboves.slice(0, LONG_PRICES_MAX).map((above, index) => {
    // The last long price covers the thresholds for which there is no place.
    const covered = index === LONG_PRICES_MAX - 1 ? aboves.slice(index) : [above];
    const pricesIn = (prices: DeploymentPrices): Prices =>
      covered.map((threshold) => pricesAbove(prices, threshold)).reduce(higherOf);
    const set = highestOf(deployments, pricesIn, ` above ${above} tokens`);
    return { above, ...textsOf(set) };
  });
  return { ...textsOf(base), ...(long.length === 0 ? {} : { long }) };
}

/**
 * LiteLLM's prices for a prompt of more than `above` tokens. A kind that a long price leaves out is as usual.
 */
function pricesAbove({ base: { call: _, ...base }, long }: DeploymentPrices, above: number): Prices {
  const reached = [...long.keys()].filter((threshold) => threshold <= above);
  return { ...base, ...long.get(Math.max(...reached)) };
}

/** The higher price of each kind. */
function higherOf(left: Prices, right: Prices): Prices {
  const higher: Partial<Record<PriceName, ImportedPrice>> = { ...left };
  for (const [name, price] of Object.entries(right) as [PriceName, ImportedPrice][]) {
    const known = higher[name];
    higher[name] = known === undefined ? price : higherPrice(known, price);
  }
  return higher;
}

/** The highest price of each kind. `which`: for which prompts the prices are, for a remark; may be empty. */
function highestOf(
  deployments: readonly Priced[],
  pricesIn: (prices: DeploymentPrices) => Prices,
  which: string,
): Prices {
  let highest: Prices = {};
  for (const { entry, prices } of deployments) {
    const own = pricesIn(prices);
    for (const [name, price] of Object.entries(own) as [PriceName, ImportedPrice][]) {
      const known = highest[name];
      if (known !== undefined && known.text !== price.text) {
        entry.remark(
          'litellm_params',
          `the ${name} price${which} differs from another entry's; a model has one price: the higher was taken`,
        );
      }
    }
    highest = higherOf(highest, own);
  }
  return highest;
}

/** The texts of the prices. Input or output without a price costs nothing. */
function textsOf({ input, output, ...parts }: Prices): PriceTexts {
  return {
    input: input?.text ?? '0',
    output: output?.text ?? '0',
    ...Object.fromEntries(Object.entries(parts).map(([name, { text }]) => [name, text])),
  };
}

interface ImportedPrice {
  /** A decimal number with at most six decimals. */
  readonly text: string;
  /** False if it had more decimals and was rounded up. */
  readonly exact: boolean;
}

/** Costs as a YAML file writes them: `1.5e-07`, `.00000015`, `0.00000015`, `1`. */
const COST = /^\+?(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?$/;
/** A number with more digits is no price. */
const DIGITS_MAX = 40;
const EXPONENT_MAX = 40;

/** How a cost becomes a price. */
interface PriceKind {
  /** The most decimals of the price. */
  readonly decimals: number;
  /** The cost is multiplied by 10 to this power. */
  readonly power: number;
  readonly picoUnits: (price: string) => bigint | undefined;
  readonly rule: string;
  readonly limit: string;
}

/** Prices of tokens are per million. */
const PER_TOKEN: PriceKind = {
  decimals: 6,
  power: 6,
  picoUnits: picoUnitsPerToken,
  rule: 'is no cost of a token between 0 and 0.01',
  limit: 'per million tokens: six decimals at most',
};
export const PER_CALL: PriceKind = {
  decimals: 12,
  power: 0,
  picoUnits: picoUnitsPerCall,
  rule: 'is no cost of a call between 0 and 10000',
  limit: 'per call: twelve decimals at most',
};

/**
 * Converts LiteLLM's cost, as the file writes it, to a price, in decimals all the way. Returns undefined if
 * it is no cost or above the highest price.
 */
export function importPrice(cost: string, kind: PriceKind = PER_TOKEN): ImportedPrice | undefined {
  const match = COST.exec(cost.trim());
  if (match === null) return undefined;
  const [, whole = '', fraction = '', exponentText = '0'] = match;
  const digits = whole + fraction;
  const exponent = Number(exponentText);
  if (digits === '' || digits.length > DIGITS_MAX || Math.abs(exponent) > EXPONENT_MAX) return undefined;
  const decimals = fraction.length - exponent - kind.power;
  const divisor = 10n ** BigInt(Math.max(decimals - kind.decimals, 0));
  const scaled = BigInt(digits) * 10n ** BigInt(Math.max(kind.decimals - decimals, 0));
  const exact = scaled % divisor === 0n;
  const text = decimalText(scaled / divisor + (exact ? 0n : 1n), kind.decimals);
  return kind.picoUnits(text) === undefined ? undefined : { text, exact };
}

/** The higher of two prices of one kind. */
export function higherPrice(left: ImportedPrice, right: ImportedPrice): ImportedPrice {
  // Both kinds are below the bound of a call, and have no more decimals.
  return picoUnitsPerCall(left.text)! >= picoUnitsPerCall(right.text)! ? left : right;
}

/** `amount` is in the unit of the last decimal. */
function decimalText(amount: bigint, decimals: number): string {
  const digits = amount.toString().padStart(decimals + 1, '0');
  const fraction = digits.slice(-decimals).replace(/(?<!0)0+$/, '');
  const whole = digits.slice(0, -decimals);
  return fraction === '' ? whole : `${whole}.${fraction}`;
}
