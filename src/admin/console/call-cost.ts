/**
 * What a call costs, exactly, from a model's prices. Pure; browser.
 */
import type { Usage } from './chat-stream.js';
import type { Model } from './views.js';

/** Prices have six decimals per million tokens, so a token costs whole millionths of a millionth. */
const PRICE_DECIMALS = 6;
const COST_DECIMALS = 12;

/** Decimal text. */
export function costOf(usage: Usage, { price }: Model): string {
  const cached = BigInt(usage.prompt_tokens_details?.cached_tokens ?? 0);
  const cost =
    (BigInt(usage.prompt_tokens) - cached) * picoUnits(price.input) +
    cached * picoUnits(price.cached_input) +
    BigInt(usage.completion_tokens) * picoUnits(price.output);
  const digits = cost.toString().padStart(COST_DECIMALS + 1, '0');
  return `${digits.slice(0, -COST_DECIMALS)}.${digits.slice(-COST_DECIMALS)}`;
}

function picoUnits(price: string): bigint {
  const [whole = '0', decimals = ''] = price.split('.');
  return BigInt(whole + decimals.slice(0, PRICE_DECIMALS).padEnd(PRICE_DECIMALS, '0'));
}
