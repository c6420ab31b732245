/**
 * Token usage of one call. Readers of upstream responses make it, in a worker; it goes through the channel to
 * the listener, and from there to the journal and the logs. Any thread.
 */
import type { TokenCounts } from '../core/token-counts.js';

/**
 * Where the numbers come from: the upstream, a tokenizer of this gateway, or the length of texts. Channel,
 * journal and rings have the index, so all threads of a process must be of one build.
 */
export const USAGE_SOURCES = ['reported', 'counted', 'estimated'] as const;
export type UsageSource = (typeof USAGE_SOURCES)[number];

export interface Usage extends TokenCounts {
  readonly source: UsageSource;
}

/** Usage without parts (cached, reasoning), as a count by this gateway gives it. */
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
