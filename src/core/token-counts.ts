/**
 * What a provider bills for a call. Each part of prompt and completion has a price of its own, and what is in
 * none of the parts has the price of the whole. Any thread.
 */
export interface TokenCounts {
  readonly promptTokens: number;
  /** The part of `promptTokens` that the provider served from its cache. */
  readonly cachedTokens: number;
  /** The part of `promptTokens`, beside `cachedTokens`, that it wrote to its cache. */
  readonly cacheWriteTokens: number;
  /** The part of `cacheWriteTokens` that it keeps for an hour. */
  readonly cacheWrite1hTokens: number;
  readonly completionTokens: number;
  /** The part of `completionTokens` that was generated and not shown. */
  readonly reasoningTokens: number;
}
