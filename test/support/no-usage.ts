/** A report of a provider that says nothing, for tests to change. */
import type { ProviderUsage } from '#src/providers/provider-usage.js';

export const NO_USAGE: ProviderUsage = {
  promptTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  cacheWrite1hTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
  audioPromptTokens: 0,
  imagePromptTokens: 0,
  audioCompletionTokens: 0,
};
