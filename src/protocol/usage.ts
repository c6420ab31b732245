/**
 * Token usage of one call, as it goes from the worker to the listener, the journal and the logs. Any thread.
 */

/** Where the numbers come from: the upstream, a tokenizer here, or lengths. */
export const USAGE_SOURCES = ['reported', 'counted', 'estimated'] as const;
export type UsageSource = (typeof USAGE_SOURCES)[number];

export interface Usage {
  readonly promptTokens: number;
  /** The part of `promptTokens` that the provider served from its cache. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly source: UsageSource;
}
