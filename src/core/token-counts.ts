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
