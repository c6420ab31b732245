/**
 * The billed tokens of a call, by price class. upstream/usage-shapes.ts reads them from the provider's
 * report, and `costOf` (registry/catalog.ts) prices them: each part at its own price, the other tokens of the
 * prompt at the price of input, the other tokens of the completion at that of output. Any thread.
 *
 * Must hold, or a call is charged too much or too little: all are whole numbers from 0 up; `cachedTokens` and
 * `cacheWriteTokens` together are at most `promptTokens`; `cacheWrite1hTokens` is at most `cacheWriteTokens`;
 * `reasoningTokens` is at most `completionTokens`. A report that breaks one of these rules is not believed,
 * and the gateway counts the tokens itself (test/unit/upstream/usage-shapes.test.ts).
 *
 * Must hold: each field goes with the call to all of the places below. A new field must be added to each:
 * - the channel's frames (channel/frame-codec.ts), the journal (ledger/journal.ts) and the rows of usage
 *   (store/usage-book.ts, store/usage-codec.ts). In test/e2e/fallbacks.test.ts no field is 0.
 * - the call ring and the call log (telemetry/call-ring-layout.ts names places and tests), the JSON of a call
 *   (telemetry/call-record.ts) and the exports (cli/export-command.ts).
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
  /** The part of `completionTokens` that is reasoning: it is billed, but not in the text of the response. */
  readonly reasoningTokens: number;
}

/**
 * Where the counts come from: the upstream's report, a tokenizer of this gateway, or the length of texts. The
 * order may change, because only the memory of one process has positions in this list. The disk has the
 * names, so the names stay.
 */
export const USAGE_SOURCES = ['reported', 'counted', 'estimated'] as const;
type UsageSource = (typeof USAGE_SOURCES)[number];

/** Token usage of one call. A worker makes it; the listener gets it by the channel, and charges it. */
export interface Usage extends TokenCounts {
  readonly source: UsageSource;
}

/** Usage of which no parts are known, as all that this gateway counts itself: only providers tell them. */
export function usageWithoutParts({
  promptTokens,
  completionTokens,
  source,
}: Pick<Usage, 'promptTokens' | 'completionTokens' | 'source'>): Usage {
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
