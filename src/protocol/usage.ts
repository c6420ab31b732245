/**
 * Token usage of one call, as it travels from worker to listener and into the books. Any thread.
 */

/** How the numbers were had: from the upstream, from a tokenizer here, or from lengths. */
export const USAGE_SOURCES = ['reported', 'counted', 'estimated'] as const;
export type UsageSource = (typeof USAGE_SOURCES)[number];

export interface Usage {
  readonly promptTokens: number;
  /** Part of `promptTokens` that the provider served from its cache. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly source: UsageSource;
}
