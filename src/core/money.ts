/**
 * Decimal amounts of the currency to and from pico-units (fixed-point). Settings, the admin interface and
 * messages to callers use it. Pure; any thread.
 *
 * One unit of the currency is 10^12 pico-units. A price is for a million tokens and has at most six decimals,
 * so one token costs a whole number of pico-units: at the smallest price, 0.000001, that is 10^12 × 10^-6 /
 * 10^6 = 1 pico-unit.
 *
 * Must hold: no amount is rounded, in either direction, so that sums agree to the last digit; what cannot be
 * written exactly is malformed (test/unit/core/money.test.ts).
 */
import { asPicoUnits, type PicoUnits } from './units.js';

const PICO_UNITS_PER_UNIT = 1_000_000_000_000n;
export const PICO_PER_NANO = 1_000n;
const MONEY_DECIMALS = 12;
const PRICE_DECIMALS = 6;

/**
 * The largest amount that is read: three million units. An account is credited at most three times as much
 * (ledger/balance.ts), which fits a signed 64-bit word.
 */
export const BALANCE_PICO_UNITS_MAX = asPicoUnits(3_000_000n * PICO_UNITS_PER_UNIT);

/**
 * Units for a million tokens, and for one call: a hundred times the highest price published, and 10^9 tokens
 * still fit 64 bits.
 */
const PRICE_UNITS_MAX = 10_000n;

const DECIMAL = /^(0|[1-9]\d{0,11})(?:\.(\d{1,12}))?$/;

/** The amount in units of its last decimal; undefined if it is malformed, too exact or above `max`. */
function parseDecimal(text: string, decimals: number, max: bigint): PicoUnits | undefined {
  const [, whole, fraction = ''] = DECIMAL.exec(text) ?? [];
  if (whole === undefined || fraction.length > decimals) return undefined;
  const value = BigInt(whole + fraction.padEnd(decimals, '0'));
  return value > max ? undefined : asPicoUnits(value);
}

/**
 * Pico-units of a decimal amount such as `10.00`; undefined if it is malformed or above
 * BALANCE_PICO_UNITS_MAX.
 */
export function picoUnitsOf(amount: string): PicoUnits | undefined {
  return parseDecimal(amount, MONEY_DECIMALS, BALANCE_PICO_UNITS_MAX);
}

/**
 * Pico-units that one token costs at `price` per million tokens; undefined if it is malformed, has more than
 * six decimals or is above PRICE_UNITS_MAX.
 */
export function picoUnitsPerToken(price: string): PicoUnits | undefined {
  return parseDecimal(price, PRICE_DECIMALS, PRICE_UNITS_MAX * 1_000_000n);
}

/** Pico-units of a price of one call; undefined if it is malformed or above PRICE_UNITS_MAX. */
export function picoUnitsPerCall(price: string): PicoUnits | undefined {
  return parseDecimal(price, MONEY_DECIMALS, PRICE_UNITS_MAX * PICO_UNITS_PER_UNIT);
}

/** The exact decimal text of an amount, with at least two decimals: `10.00`, `-0.000000000001`. */
export function decimalOf(amount: bigint): string {
  const sign = amount < 0n ? '-' : '';
  const digits = (amount < 0n ? -amount : amount).toString().padStart(MONEY_DECIMALS + 1, '0');
  const whole = digits.slice(0, -MONEY_DECIMALS);
  const fraction = digits
    .slice(-MONEY_DECIMALS)
    .replace(/(?<!0)0+$/, '')
    .padEnd(2, '0');
  return `${sign}${whole}.${fraction}`;
}

/** The inverse of `decimalOf`. `text` is not checked. */
export function amountOf(text: string): bigint {
  const [whole = '', fraction = ''] = text.split('.');
  return BigInt(whole + fraction.padEnd(MONEY_DECIMALS, '0'));
}
