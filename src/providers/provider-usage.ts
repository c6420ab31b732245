/**
 * The tokens that a provider reports of a call, and how a chat completion shows them. The response readers of
 * each provider make a ProviderUsage; chat-writer.ts and translated-call.ts write it by `usageMember`, and so
 * does upstream/door-call.ts for the translators of the doors. Pure; upstream worker.
 *
 * Must hold: upstream/usage-shapes.ts reads of the written members what was reported, or calls are billed
 * wrongly. A number that is no count stays one that it refuses (also
 * test/unit/providers/anthropic/response.test.ts).
 */
import type { TokenCounts } from '../core/token-counts.js';

/**
 * Tokens of a call as the provider reports them. They may break the rules of TokenCounts, such as -1 of
 * `countIn`: upstream/usage-shapes.ts checks them. If a provider reports the cache apart from the prompt, or
 * reasoning apart from the completion, the reader of its responses adds them.
 */
export interface ProviderUsage extends TokenCounts {
  /** Parts of `promptTokens` and `completionTokens`; 0 if the provider does not say. */
  readonly audioPromptTokens: number;
  readonly imagePromptTokens: number;
  readonly audioCompletionTokens: number;
}

/**
 * A count that a provider reports: 0 if it is left out, as Google's JSON does with zeros, and -1 if it is no
 * number, so that upstream/usage-shapes.ts refuses it, as it does other negative and fractional counts.
 */
export function countIn(value: unknown): number {
  if (value === undefined || value === null) return 0;
  return typeof value === 'number' ? value : -1;
}

/**
 * The sum of counts that a provider reports apart. If one of them is no count, it is the result, so that
 * upstream/usage-shapes.ts refuses it.
 */
export function sumOfCounts(...counts: readonly number[]): number {
  let sum = 0;
  for (const count of counts) {
    if (!Number.isInteger(count) || count < 0) return count;
    sum += count;
  }
  return sum;
}

/**
 * The member `usage` of a chat completion, which upstream/usage-shapes.ts reads for the charge.
 * upstream/door-call.ts makes it again from the usage that is billed, for the translators of the doors.
 * Parts that are 0 or undefined are left out, except the usual ones.
 */
export function usageMember(usage: TokenCounts & Partial<ProviderUsage>): Record<string, unknown> {
  // OpenRouter's name, and LiteLLM's for the part that is kept for an hour.
  const promptDetails: Record<string, number> = {
    cached_tokens: usage.cachedTokens,
    cache_write_tokens: usage.cacheWriteTokens,
  };
  if (usage.cacheWrite1hTokens !== 0) promptDetails.cache_write_1h_tokens = usage.cacheWrite1hTokens;
  if (usage.audioPromptTokens) promptDetails.audio_tokens = usage.audioPromptTokens;
  if (usage.imagePromptTokens) promptDetails.image_tokens = usage.imagePromptTokens;
  const completionDetails: Record<string, number> = { reasoning_tokens: usage.reasoningTokens };
  if (usage.audioCompletionTokens) completionDetails.audio_tokens = usage.audioCompletionTokens;
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: promptDetails,
    completion_tokens_details: completionDetails,
  };
}
