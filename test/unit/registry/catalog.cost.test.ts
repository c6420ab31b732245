/**
 * The cost of random usages at random prices, against a reference that adds up token by token kinds; and that
 * no usage within a call's bounds costs more than its hold.
 */
import t from 'tap';
import { type TokenCounts, usageWithoutParts } from '#src/core/token-counts.js';
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

/** Up to four, whose thresholds are where tokens are, so that each of them is exceeded by some prompts. */
function longPricesOf(next: Random, tokensMax: number) {
  const thresholds = Array.from({ length: 1 + Math.floor(next() * 4) }, () => Math.floor(next() * tokensMax));
  return [...new Set(thresholds)]
    .sort((left, right) => left - right)
    .map((aboveTokens) => ({ ...pricesOf(next), aboveTokens }));
}

/** By the rule in docs/limits.md, each kind of token at its own price. */
function referenceOf(base: ReturnType<typeof pricesOf>, usage: TokenCounts, long: Long = []): bigint {
  const prices = long.filter(({ aboveTokens }) => usage.promptTokens > aboveTokens).at(-1) ?? base;
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
    base.callPicoUnits ?? 0n,
  );
}

type Long = ReturnType<typeof longPricesOf>;

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

void t.test('a long prompt has its own prices, and is never dearer than the hold of a longer one', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  let changed = 0;
  for (let run = 0; run < 20_000; run++) {
    const prices = pricesOf(next);
    const usage = usageOf(next);
    const long = longPricesOf(next, TOKENS_MAX);
    const price = tokenPriceOf({ ...prices, long });
    const cost = costOf(price, usage);
    const what = `seed ${seed}: ${JSON.stringify(usage)} cost ${cost}`;
    if (cost !== referenceOf(prices, usage, long)) t.fail(what);
    if (cost !== referenceOf(prices, usage)) changed += 1;
    const held = usage.promptTokens + upTo(next, TOKENS_MAX);
    const hold = worstCaseOf(price, held, usage.completionTokens);
    if (cost > hold) t.fail(`${what} of ${hold}, held for ${held}`);
  }
  t.ok(changed > 5_000, `seed ${seed}: ${changed} were long`);
  t.end();
});

void t.test('a long price begins with the token after its threshold', (t) => {
  const at = (inputPicoUnits: bigint, outputPicoUnits: bigint) => ({
    inputPicoUnits: asPicoUnits(inputPicoUnits),
    outputPicoUnits: asPicoUnits(outputPicoUnits),
  });
  const price = tokenPriceOf({
    ...at(2n, 30n),
    cachedInputPicoUnits: asPicoUnits(1n),
    callPicoUnits: asPicoUnits(7n),
    long: [
      { ...at(4n, 20n), aboveTokens: 100_000 },
      { ...at(3n, 50n), aboveTokens: 200_000 },
    ],
  });
  const cost = (promptTokens: number, cachedTokens = 0) =>
    costOf(price, {
      ...usageWithoutParts({ promptTokens, completionTokens: 10, source: 'reported' }),
      cachedTokens,
    });
  t.equal(cost(100_000), 200_307n);
  t.equal(cost(100_001), 400_211n);
  t.equal(
    cost(200_000, 200_000),
    800_207n,
    'a cached token costs what input does in a set without a price of it',
  );
  t.equal(cost(200_001), 600_510n);
  // 4,096 tokens beside the body may make the prompt long. The dearest of all sets until there is held.
  t.equal(worstCaseOf(price, 95_904, 10), 95_904n * 2n + 307n);
  t.equal(worstCaseOf(price, 95_905, 10), 95_905n * 4n + 307n);
  t.equal(worstCaseOf(price, 200_000, 10), 200_000n * 4n + 507n);
  t.equal(tokenPriceOf({ ...at(1n, 1n), long: [] }).long, undefined);
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
