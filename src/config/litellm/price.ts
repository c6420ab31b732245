/**
 * Reads the costs of an entry of LiteLLM's file, and makes one price of a model from the prices of its
 * entries. deployment.ts calls `pricesOf`, model.ts `priceOf`, in the command `tollgate config
 * import-litellm`. Pure.
 *
 * A _cost_ is LiteLLM's number for one token or call; a _price_ is the text in Tollgate's file, for a million
 * tokens or a call.
 *
 * Must hold:
 * - A price is never below LiteLLM's cost, so a price with too many decimals is rounded up
 *   (test/unit/config/litellm/price.test.ts).
 * - Each price of a model, also of its long prices, is the highest that the file has for one of its upstreams
 *   (test/unit/config/litellm/import.test.ts), so that no upstream is sold below its price in the file. An
 *   upstream without a price in the file may be: LiteLLM has such a price in a table of its own, which is not
 *   read here.
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

/** LiteLLM's name of the cost that becomes each price. */
const COST_NAMES: Readonly<Record<PriceName, string>> = {
  input: 'input_cost_per_token',
  output: 'output_cost_per_token',
  cached_input: 'cache_read_input_token_cost',
  cache_write: 'cache_creation_input_token_cost',
  cache_write_1h: 'cache_creation_input_token_cost_above_1hr',
  reasoning: 'output_cost_per_reasoning_token',
  call: 'input_cost_per_query',
};

/** Matches the end of a cost's name that names a threshold, in thousands of prompt tokens. */
const ABOVE = /_above_([1-9]\d{0,4})k_tokens$/;

/** Matches LiteLLM's names of prices and costs. */
export const PRICE_WORDS = /cost|price|pricing/;
export const UNPLACED_PRICE = 'a price that Tollgate has no place for: raise price.input or price.output';

/** The prices that the file has. Kinds that it lacks are absent. */
type Prices = Readonly<Partial<Record<PriceName, ImportedPrice>>>;

/** What one entry of the file says of prices. */
export interface DeploymentPrices {
  readonly base: Prices;
  /** By the tokens that a prompt must exceed. */
  readonly long: ReadonlyMap<number, Prices>;
}

/** Reads the costs of an entry. `params`: its `litellm_params`, which go before `info`, its `model_info`. */
export function pricesOf(params: ImportMap, info: ImportMap): DeploymentPrices {
  const base = pricesNamed(PRICE_NAMES, '', params, info);
  const long = new Map<number, Prices>();
  for (const name of [...params.unread, ...info.unread]) {
    const [suffix = '', thousands] = ABOVE.exec(name) ?? [];
    const above = Number(thousands) * 1_000;
    // Negated, because `above` is NaN for a name without the suffix.
    if (!(above <= LONG_PROMPT_TOKENS_MAX) || long.has(above)) continue;
    const prices = pricesNamed(TOKEN_PRICE_NAMES, suffix, params, info);
    if (Object.keys(prices).length > 0) long.set(above, prices);
  }
  return { base, long };
}

/** Reads the costs for the prices `names`. Their names end with `suffix`. A wrong cost gets a remark. */
function pricesNamed(
  names: readonly PriceName[],
  suffix: string,
  params: ImportMap,
  info: ImportMap,
): Prices {
  const prices: Partial<Record<PriceName, ImportedPrice>> = {};
  for (const name of names) {
    const costName = `${COST_NAMES[name]}${suffix}`;
    const paramsCost = params.costText(costName);
    // Read even if it is not used, because a name that is not read gets a remark.
    const infoCost = info.costText(costName);
    const cost = paramsCost ?? infoCost;
    if (cost === undefined) continue;
    const source = paramsCost === undefined ? info : params;
    const conversion = name === 'call' ? PER_CALL : PER_TOKEN;
    const price = importPrice(cost, conversion);
    if (price === undefined) {
      source.remark(costName, conversion.rule);
      continue;
    }
    if (!price.isExact) source.remark(costName, `rounded up to ${price.text} ${conversion.limit}`);
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
 * Returns the price of a model, which is one price whichever upstream responds. Each kind of price
 * (PRICE_NAMES) is the highest that an entry has; entries without that kind do not count. `deployments` has
 * at least one entry.
 *
 * If no entry has an input price, or none an output price, returns undefined, and a remark warns that the
 * model's calls cost nothing. There are two exceptions. If there is only a price of calls, tokens cost
 * nothing. If responses have no output to pay for (`hasOutput` is false), such as embeddings, a price of
 * input is enough.
 */
export function priceOf(deployments: readonly Priced[], hasOutput: boolean): ModelPrice | undefined {
  const base = highestOf(deployments, (prices) => prices.base, '');
  const { input, output, call } = base;
  const firstEntry = deployments[0]!.entry;
  const isOfCallsAlone = input === undefined && output === undefined && call !== undefined;
  const isOutputFree = input !== undefined && !hasOutput;
  if ((input === undefined || output === undefined) && !isOfCallsAlone && !isOutputFree) {
    const givenPrices =
      input === undefined && output === undefined ? 'no price' : 'only one of the two prices';
    const hasLong = deployments.some(({ prices }) => prices.long.size > 0);
    const dropped = [...PRICE_NAMES.filter((name) => base[name] !== undefined), ...(hasLong ? ['long'] : [])];
    firstEntry.remark(
      'model_name',
      `${givenPrices} in the file (LiteLLM has a table of its own): calls cost nothing until price is set` +
        (dropped.length === 0 ? '' : `; what it has was left out: ${dropped.join(', ')}`),
    );
    return undefined;
  }
  const allThresholds = deployments.flatMap(({ prices }) => [...prices.long.keys()]);
  const thresholds = [...new Set(allThresholds)].sort((threshold, other) => threshold - other);
  for (const threshold of thresholds.slice(LONG_PRICES_MAX))
    firstEntry.remark(
      'model_name',
      `its prices above ${threshold} tokens hold from ${thresholds[LONG_PRICES_MAX - 1]} on if they are higher: ` +
        `a model has at most ${LONG_PRICES_MAX} long prices`,
    );
  const long = thresholds.slice(0, LONG_PRICES_MAX).map((above, index) => {
    // The last long price also covers the thresholds beyond LONG_PRICES_MAX.
    const coveredThresholds = index === LONG_PRICES_MAX - 1 ? thresholds.slice(index) : [above];
    const pricesIn = (entryPrices: DeploymentPrices): Prices =>
      coveredThresholds.map((threshold) => pricesAbove(entryPrices, threshold)).reduce(higherOf);
    const prices = highestOf(deployments, pricesIn, ` above ${above} tokens`);
    return { above, ...textsOf(prices) };
  });
  return { ...textsOf(base), ...(long.length === 0 ? {} : { long }) };
}

/**
 * Returns LiteLLM's prices for a prompt of more than `above` tokens: the prices of the highest threshold up
 * to `above`, and the base price of each kind that this threshold lacks. A call has no long price.
 */
function pricesAbove({ base: { call: _, ...base }, long }: DeploymentPrices, above: number): Prices {
  const reached = [...long.keys()].filter((threshold) => threshold <= above);
  return { ...base, ...long.get(Math.max(...reached)) };
}

/** Returns the higher price of each kind. */
function higherOf(first: Prices, second: Prices): Prices {
  const higher: Partial<Record<PriceName, ImportedPrice>> = { ...first };
  for (const [name, price] of Object.entries(second) as [PriceName, ImportedPrice][])
    higher[name] = higherPrice(higher[name] ?? price, price);
  return higher;
}

/** Returns the highest price of each kind. `forPrompts`: part of a remark, such as ` above 200000 tokens`. */
function highestOf(
  deployments: readonly Priced[],
  pricesIn: (prices: DeploymentPrices) => Prices,
  forPrompts: string,
): Prices {
  let highest: Prices = {};
  for (const { entry, prices } of deployments) {
    const entryPrices = pricesIn(prices);
    for (const [name, price] of Object.entries(entryPrices) as [PriceName, ImportedPrice][]) {
      const earlier = highest[name];
      if (earlier !== undefined && earlier.text !== price.text) {
        entry.remark(
          'litellm_params',
          `the ${name} price${forPrompts} differs from another entry's; a model has one price: the higher was taken`,
        );
      }
    }
    highest = higherOf(highest, entryPrices);
  }
  return highest;
}

/** Returns the texts of the prices. Input or output without a price costs nothing. */
function textsOf({ input, output, ...others }: Prices): PriceTexts {
  return {
    input: input?.text ?? '0',
    output: output?.text ?? '0',
    ...Object.fromEntries(Object.entries(others).map(([name, { text }]) => [name, text])),
  };
}

interface ImportedPrice {
  /** A decimal number, with at most as many decimals as its conversion permits. */
  readonly text: string;
  /** False if the price had more decimals and was rounded up. */
  readonly isExact: boolean;
}

/** Costs as a YAML file writes them: `1.5e-07`, `.00000015`, `0.00000015`, `1`. */
const COST = /^\+?(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?$/;
/** A number with more digits, or a greater exponent, is no price. Both bounds keep BigInts short. */
const DIGITS_MAX = 40;
const EXPONENT_MAX = 40;

/** How a cost becomes a price. */
interface PriceConversion {
  /** The most decimals of the price. */
  readonly decimals: number;
  /** The cost is multiplied by 10 to this power. */
  readonly power: number;
  /** Returns undefined for a price beyond the bounds of the setting. */
  readonly picoUnits: (price: string) => bigint | undefined;
  /** What a remark says of a cost that cannot become a price. */
  readonly rule: string;
  /** What a remark says of a price that was rounded. */
  readonly limit: string;
}

/** Prices of tokens are per million. */
const PER_TOKEN: PriceConversion = {
  decimals: 6,
  power: 6,
  picoUnits: picoUnitsPerToken,
  rule: 'is no cost of a token between 0 and 0.01',
  limit: 'per million tokens: six decimals at most',
};
export const PER_CALL: PriceConversion = {
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
export function importPrice(cost: string, conversion = PER_TOKEN): ImportedPrice | undefined {
  const match = COST.exec(cost.trim());
  if (match === null) return undefined;
  const [, whole = '', fraction = '', exponentText = '0'] = match;
  const digits = whole + fraction;
  const exponent = Number(exponentText);
  if (digits === '' || digits.length > DIGITS_MAX || Math.abs(exponent) > EXPONENT_MAX) return undefined;
  /** How many decimals the price has: `digits` is its value without the decimal point. */
  const decimals = fraction.length - exponent - conversion.power;
  const divisor = 10n ** BigInt(Math.max(decimals - conversion.decimals, 0));
  const scaled = BigInt(digits) * 10n ** BigInt(Math.max(conversion.decimals - decimals, 0));
  const isExact = scaled % divisor === 0n;
  const text = decimalText(scaled / divisor + (isExact ? 0n : 1n), conversion.decimals);
  return conversion.picoUnits(text) === undefined ? undefined : { text, isExact };
}

/** Returns the higher of two prices of one kind. */
export function higherPrice(first: ImportedPrice, second: ImportedPrice): ImportedPrice {
  // `!`: prices of both kinds are within the bounds and the decimals of a price of a call.
  return picoUnitsPerCall(first.text)! >= picoUnitsPerCall(second.text)! ? first : second;
}

/** Returns a decimal number without zeros at its end. `amount` is in the unit of the last decimal. */
function decimalText(amount: bigint, decimals: number): string {
  const digits = amount.toString().padStart(decimals + 1, '0');
  const fraction = digits.slice(-decimals).replace(/(?<!0)0+$/, '');
  const whole = digits.slice(0, -decimals);
  return fraction === '' ? whole : `${whole}.${fraction}`;
}
