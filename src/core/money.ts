/**
 * Decimal amounts of the currency to and from pico-units (fixed-point). Settings, the admin interface and
 * messages to callers use it. Pure; any thread.
 *
 * One unit of the currency is 10^12 pico-units. A price is for a million tokens and has at most six decimals,
 * so one token costs a whole number of pico-units: at the smallest price, 0.000001, that is 10^12 × 10^-6 /
 * 10^6 = 1 pico-unit.
 *
 * Must hold: no amount is rounded, in either direction, so that sums agree to the last digit. A text that
 * pico-units cannot hold exactly is malformed.
 */
import { asPicoUnits, type PicoUnits } from './units.js';

const PICO_UNITS_PER_UNIT = 1_000_000_000_000n;
export const PICO_PER_NANO = 1_000n;
/** Decimals of an amount whose last one is a pico-unit. */
const MONEY_DECIMALS = 12;
/** Decimals of a price per million tokens whose last one is a pico-unit a token. */
const PRICE_DECIMALS = 6;
/** The value of a price of 1 in units of its last decimal. */
const PRICE_SCALE = 1_000_000n;

/**
 * The largest amount that is read: three million units. An account is credited at most three times as much
 * (ledger/balance.ts), which fits a signed 64-bit word.
 */
export const BALANCE_PICO_UNITS_MAX = asPicoUnits(3_000_000n * PICO_UNITS_PER_UNIT);

/**
 * The highest price, in units for a million tokens or for one call: a hundred times the highest price
 * published. The price of 10^9 tokens still fits 64 bits.
 */
const PRICE_UNITS_MAX = 10_000n;

/** At most 12 digits on either side of the point, which bounds the work. */
const DECIMAL = /^(0|[1-9]\d{0,11})(?:\.(\d{1,12}))?$/;

/**
 * The decimal in units of its decimal number `decimals`, which the caller must know to be pico-units.
 * Undefined if the text is malformed, has more decimals or is above `valueMax`.
 */
function parseDecimal(text: string, decimals: number, valueMax: bigint): PicoUnits | undefined {
  const [, whole, fraction = ''] = DECIMAL.exec(text) ?? [];
  if (whole === undefined || fraction.length > decimals) return undefined;
  const value = BigInt(whole + fraction.padEnd(decimals, '0'));
  return value > valueMax ? undefined : asPicoUnits(value);
}

/**
 * Pico-units of a decimal amount such as `10.00`; undefined if it is malformed or above
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
  return parseDecimal(price, PRICE_DECIMALS, PRICE_UNITS_MAX * PRICE_SCALE);
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
    // Zeros at the end. Tried from the first of them only, which keeps the time linear.
    .replace(/(?<!0)0+$/, '')
    .padEnd(2, '0');
  return `${sign}${whole}.${fraction}`;
}

/** The inverse of `decimalOf`. `text` must be a result of `decimalOf`: it is not checked. */
export function amountOf(text: string): bigint {
  const [whole = '', fraction = ''] = text.split('.');
  return BigInt(whole + fraction.padEnd(MONEY_DECIMALS, '0'));
}
