/**
 * Converts money between decimal texts and pico-units, without floating point. Settings, the admin interface
 * and messages to callers have the texts; everything else counts in pico-units. Pure; any thread.
 *
 * One unit of the currency is 10^12 pico-units. A price of tokens is for a million of them and has at most
 * six decimals, so one token costs a whole number of pico-units: at the smallest price, 0.000001, it costs
 * 10^12 × 10^-6 / 10^6 = 1 pico-unit.
 *
 * Must hold: no amount is rounded, in either direction, so that sums agree to the last digit. A text that
 * pico-units cannot hold exactly is malformed.
 */
import { invariant } from './errors.js';
import { asPicoUnits, type PicoUnits } from './units.js';

const PICO_UNITS_PER_UNIT = 1_000_000_000_000n;
export const PICO_PER_NANO = 1_000n;
/** The most decimals of an amount: the last one counts pico-units. */
const MONEY_DECIMALS = 12;
/** The most decimals of a price for a million tokens: the last one counts pico-units of one token. */
const PRICE_DECIMALS = 6;
/** What one token costs, in pico-units, if a million tokens cost 1. */
const PICO_UNITS_PER_TOKEN_AT_1 = 1_000_000n;

/**
 * The largest amount that `picoUnitsOf` accepts: three million units of the currency. An account is credited
 * at most three times as much (ledger/balance.ts), which fits a signed 64-bit word.
 */
export const BALANCE_PICO_UNITS_MAX = asPicoUnits(3_000_000n * PICO_UNITS_PER_UNIT);

/**
 * The highest price of a million tokens or of one call, in units of the currency: a hundred times the highest
 * that a provider publishes. The price of 9 * 10^8 tokens still fits a signed 64-bit word.
 */
const PRICE_UNITS_MAX = 10_000n;

/** A decimal text: at most 12 digits on either side of the point, which bounds the work. */
const DECIMAL = /^(0|[1-9]\d{0,11})(?:\.(\d{1,12}))?$/;

/**
 * Returns `text` times 10 to the power of `decimals`, which the caller chooses so that this is in pico-units.
 * Undefined if the text is malformed or has more decimals, or if the result is above `picoUnitsMax`.
 */
function parseDecimal(text: string, decimals: number, picoUnitsMax: bigint): PicoUnits | undefined {
  const [, whole, fraction = ''] = DECIMAL.exec(text) ?? [];
  if (whole === undefined || fraction.length > decimals) return undefined;
  const picoUnits = BigInt(whole + fraction.padEnd(decimals, '0'));
  return picoUnits > picoUnitsMax ? undefined : asPicoUnits(picoUnits);
}

/**
 * Pico-units of a decimal amount such as `10.00`; undefined if the text is malformed or the amount is above
 * BALANCE_PICO_UNITS_MAX.
 */
export function picoUnitsOf(amount: string): PicoUnits | undefined {
  return parseDecimal(amount, MONEY_DECIMALS, BALANCE_PICO_UNITS_MAX);
}

/**
 * Pico-units that one token costs at `price` per million tokens; undefined if the price is malformed, has
 * more than six decimals or is above PRICE_UNITS_MAX.
 */
export function picoUnitsPerToken(price: string): PicoUnits | undefined {
  return parseDecimal(price, PRICE_DECIMALS, PRICE_UNITS_MAX * PICO_UNITS_PER_TOKEN_AT_1);
}

/** Pico-units of a price of one call; undefined if the price is malformed or above PRICE_UNITS_MAX. */
export function picoUnitsPerCall(price: string): PicoUnits | undefined {
  return parseDecimal(price, MONEY_DECIMALS, PRICE_UNITS_MAX * PICO_UNITS_PER_UNIT);
}

/** The exact decimal text of an amount, with at least two decimals: `10.00`, `-0.000000000001`. */
export function decimalOf(picoUnits: bigint): string {
  const sign = picoUnits < 0n ? '-' : '';
  const digits = (picoUnits < 0n ? -picoUnits : picoUnits).toString().padStart(MONEY_DECIMALS + 1, '0');
  const whole = digits.slice(0, -MONEY_DECIMALS);
  const fraction = digits
    .slice(-MONEY_DECIMALS)
    // Removes the zeros at the end. They are tried from the first of a row alone, so the time is linear.
    .replace(/(?<!0)0+$/, '')
    .padEnd(2, '0');
  return `${sign}${whole}.${fraction}`;
}

/** What `decimalOf` writes, and databases write of its sums. */
const EXACT = /^-?\d+(?:\.\d{1,12})?$/;

/** Pico-units of a text that `decimalOf` has written, also of a negative one. Throws for any other text. */
export function picoUnitsOfExact(text: string): bigint {
  invariant(EXACT.test(text), 'an amount of the books is a decimal text');
  const [whole = '', fraction = ''] = text.split('.');
  return BigInt(whole + fraction.padEnd(MONEY_DECIMALS, '0'));
}
