/**
 * The billed tokens of a call, by price class: the numbers in the _usage_ of the glossary. The readers of
 * upstreams' reports fill them (upstream/usage-shapes.ts), whatever form the provider has, and
 * `costOf` (registry/catalog.ts) prices them: each part at its own price, the rest of the prompt or of the
 * completion at the plain one. Any thread.
 *
 * Must hold, or a call is charged too much or too little: all are whole numbers from 0 up; `cachedTokens` and
 * `cacheWriteTokens` together are at most `promptTokens`; `cacheWrite1hTokens` is at most `cacheWriteTokens`;
 * `reasoningTokens` is at most `completionTokens`. A report that breaks this is not believed, and the tokens
 * are counted here. A new field must follow the call through the channel's frames (channel/frame-codec.ts),
 * the journal (ledger/journal.ts), the rows of usage (store/record-codec.ts) and the call log.
 */
export interface TokenCounts {
  readonly promptTokens: number;
  /** The part of `promptTokens` that the provider served from its cache. */
  readonly cachedTokens: number;
  /** The part of `promptTokens`, none of it in `cachedTokens`, that the provider wrote to its cache. */
  readonly cacheWriteTokens: number;
  /** The part of `cacheWriteTokens` that the provider keeps for an hour. */
  readonly cacheWrite1hTokens: number;
  readonly completionTokens: number;
  /** The part of `completionTokens` of reasoning: billed, and not in the text. */
  readonly reasoningTokens: number;
}

/**
 * Where the numbers come from: the upstream, a tokenizer of this gateway, or the length of texts. Channel,
 * journal and rings have the index, so all threads of a process must be of one build.
 */
export const USAGE_SOURCES = ['reported', 'counted', 'estimated'] as const;
export type UsageSource = (typeof USAGE_SOURCES)[number];

/**
 * Token usage of one call. Readers of upstream responses make it, in a worker; it goes through the channel to
 * the listener, and from there to the journal and the logs.
 */
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
