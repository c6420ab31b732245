/**
 * The cost of random usages at random prices, against a reference that adds up token by token kinds; and that
 * no usage within a call's bounds costs more than its hold.
 */
import t from 'tap';
import type { TokenCounts } from '#src/core/token-counts.js';
import { asPicoUnits } from '#src/core/units.js';
import { costOf, tokenPriceOf, worstCaseOf } from '#src/registry/catalog.js';
import { newSeed, type Random, randomOf } from '../../support/random.js';

/** The highest price of one token, in pico-units. */
const PRICE_MAX = 10 ** 10;
const TOKENS_MAX = 10 ** 9;

function upTo(next: Random, most: number): number {
  // Half of them 0, so that each part is often missing.
  return next() < 0.5 ? 0 : Math.floor(next() * (most + 1));
}

function usageOf(next: Random): TokenCounts {
  const promptTokens = Math.floor(next() * TOKENS_MAX);
  const cachedTokens = upTo(next, promptTokens);
  const cacheWriteTokens = upTo(next, promptTokens - cachedTokens);
  const cacheWrite1hTokens = upTo(next, cacheWriteTokens);
  const completionTokens = Math.floor(next() * TOKENS_MAX);
  const reasoningTokens = upTo(next, completionTokens);
  return {
    promptTokens,
    cachedTokens,
    cacheWriteTokens,
    cacheWrite1hTokens,
    completionTokens,
    reasoningTokens,
  };
}

function pricesOf(next: Random) {
  const price = () => asPicoUnits(BigInt(Math.floor(next() * PRICE_MAX)));
  const perhaps = () => (next() < 0.5 ? price() : undefined);
  return {
    inputPicoUnits: price(),
    outputPicoUnits: price(),
    cachedInputPicoUnits: perhaps(),
    cacheWritePicoUnits: perhaps(),
    cacheWrite1hPicoUnits: perhaps(),
    reasoningPicoUnits: perhaps(),
    callPicoUnits: perhaps(),
  };
}

/** By the rule in docs/limits.md, each kind of token at its own price. */
function referenceOf(prices: ReturnType<typeof pricesOf>, usage: TokenCounts): bigint {
  const { inputPicoUnits: input, outputPicoUnits: output } = prices;
  const write = prices.cacheWritePicoUnits ?? input;
  const kinds: readonly (readonly [number, bigint])[] = [
    [usage.promptTokens - usage.cachedTokens - usage.cacheWriteTokens, input],
    [usage.cachedTokens, prices.cachedInputPicoUnits ?? input],
    [usage.cacheWriteTokens - usage.cacheWrite1hTokens, write],
    [usage.cacheWrite1hTokens, prices.cacheWrite1hPicoUnits ?? write],
    [usage.completionTokens - usage.reasoningTokens, output],
    [usage.reasoningTokens, prices.reasoningPicoUnits ?? output],
  ];
  return kinds.reduce<bigint>(
    (sum, [tokens, price]) => sum + BigInt(tokens) * price,
    prices.callPicoUnits ?? 0n,
  );
}

void t.test('the cost is the sum of the parts, and never above the hold', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  for (let run = 0; run < 20_000; run++) {
    const prices = pricesOf(next);
    const usage = usageOf(next);
    const price = tokenPriceOf(prices);
    const cost = costOf(price, usage);
    if (cost !== referenceOf(prices, usage)) t.fail(`seed ${seed}: ${JSON.stringify(usage)} cost ${cost}`);
    const hold = worstCaseOf(price, usage.promptTokens, usage.completionTokens);
    if (cost > hold || cost < 0n) t.fail(`seed ${seed}: ${JSON.stringify(usage)} cost ${cost} of ${hold}`);
  }
  t.pass(`seed ${seed}`);
  t.end();
});

void t.test('a part without a price of its own costs what the rest of its kind costs', (t) => {
  const base = { inputPicoUnits: asPicoUnits(2n), outputPicoUnits: asPicoUnits(5n) };
  t.match(tokenPriceOf(base), {
    cachedInputPicoUnits: 2n,
    cacheWritePicoUnits: 2n,
    cacheWrite1hPicoUnits: 2n,
    reasoningPicoUnits: 5n,
    inputPicoUnitsMax: 2n,
    outputPicoUnitsMax: 5n,
    callPicoUnits: 0n,
  });
  t.match(tokenPriceOf({ ...base, cacheWritePicoUnits: asPicoUnits(3n) }), {
    cacheWrite1hPicoUnits: 3n,
    inputPicoUnitsMax: 3n,
  });
  t.equal(tokenPriceOf({ ...base, reasoningPicoUnits: asPicoUnits(9n) }).outputPicoUnitsMax, 9n);
  t.end();
});
