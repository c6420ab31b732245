/** LiteLLM's costs per token as prices per million tokens, in decimals all the way. Pure; any thread. */
import { picoUnitsPerToken } from '../../core/money.js';

export interface ImportedPrice {
  /** Decimal text with at most six decimals. */
  readonly text: string;
  /** False where it had more decimals and was rounded up. */
  readonly exact: boolean;
}

/** As a YAML file writes them: `1.5e-07`, `.00000015`, `0.00000015`, `1`. */
const COST = /^\+?(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,3}))?$/;
/** Beyond these a figure is no price, and its digits would be many. */
const DIGITS_MAX = 40;
const EXPONENT_MAX = 40;
const PRICE_DECIMALS = 6;
/** A cost per token moves by so many decimals to be one per million. */
const MILLION_DECIMALS = 6;

/** Price of `cost`, a figure per token as it is written; undefined where it is none, or above the highest price. */
export function importPrice(cost: string): ImportedPrice | undefined {
  const match = COST.exec(cost.trim());
  if (match === null) return undefined;
  const [, whole = '', fraction = '', exponentText = '0'] = match;
  const digits = whole + fraction;
  const exponent = Number(exponentText);
  if (digits === '' || digits.length > DIGITS_MAX || Math.abs(exponent) > EXPONENT_MAX) return undefined;
  const decimals = fraction.length - exponent - MILLION_DECIMALS;
  const divisor = 10n ** BigInt(Math.max(decimals - PRICE_DECIMALS, 0));
  const scaled = BigInt(digits) * 10n ** BigInt(Math.max(PRICE_DECIMALS - decimals, 0));
  const exact = scaled % divisor === 0n;
  const text = decimalText(scaled / divisor + (exact ? 0n : 1n));
  return picoUnitsPerToken(text) === undefined ? undefined : { text, exact };
}

/** The higher of two. */
export function higherPrice(left: ImportedPrice, right: ImportedPrice): ImportedPrice {
  return picoUnitsPerToken(left.text)! >= picoUnitsPerToken(right.text)! ? left : right;
}

function decimalText(millionths: bigint): string {
  const digits = millionths.toString().padStart(PRICE_DECIMALS + 1, '0');
  const fraction = digits.slice(-PRICE_DECIMALS).replace(/0+$/, '');
  const whole = digits.slice(0, -PRICE_DECIMALS);
  return fraction === '' ? whole : `${whole}.${fraction}`;
}
