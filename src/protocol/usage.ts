/**
 * Token usage of one call, as it goes from the worker to the listener, the journal and the logs. Any thread.
 */
import type { TokenCounts } from '../core/token-counts.js';

/** Where the numbers come from: the upstream, a tokenizer here, or lengths. */
export const USAGE_SOURCES = ['reported', 'counted', 'estimated'] as const;
export type UsageSource = (typeof USAGE_SOURCES)[number];

export interface Usage extends TokenCounts {
  readonly source: UsageSource;
}

/** Usage of which no parts are known, as a count here gives it. */
export function usageOfWhole(promptTokens: number, completionTokens: number, source: UsageSource): Usage {
  return {
    promptTokens,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    completionTokens,
    reasoningTokens: 0,
    source,
  };
}
