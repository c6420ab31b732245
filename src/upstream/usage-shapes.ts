/**
 * Reads usage as providers report it. `reportIn` finds the report in a response or an event, for
 * stream-reader.ts, response-reader.ts and door-call.ts. `tokensOfReport` says what the report's numbers
 * mean, for usage-meter.ts and door-call.ts. Whether they can be true of a call: usage-bounds.ts. Pure;
 * upstream worker.
 *
 * One table is for all providers, because the members of a report (its shape) tell how to read it. The
 * sender does not, because compatible servers relay for each other.
 *
 *     provider       where                 what differs from OpenAI             source
 *     OpenAI, Azure  usage                 reasoning is part of completion      OpenAI API reference
 *     xAI Grok       usage                 reasoning is outside of completion   docs, "Consumption and rate
 *                                            and in the total: 32 + 9 + 1,094     limits"; vercel/ai pull
 *                                            = 1,135                              request 12425, 2026-02
 *     Gemini         usage                 thoughts are in the total alone:     mozilla-ai/any-llm issue
 *                                            20 + 198 < 623                       1290, 2026-08
 *     DeepSeek       usage                 prompt_cache_hit_tokens and          docs, "Context caching"
 *                                            prompt_cache_miss_tokens
 *     Mistral        usage                 prompt_audio_seconds, not billed     API, UsageInfo
 *     vLLM, SGLang   usage of every chunk  of one choice, grows; the last       vLLM, continuous_usage_stats
 *                                            one counts: see stream-reader.ts
 *     Ollama         usage                 nothing                              docs, "OpenAI compatibility"
 *     llama.cpp      usage, else timings   prompt_n is the part not cached      ggml-org/llama.cpp pull
 *                                                                                 request 15827, 2025-09
 *     OpenRouter     usage                 cost in its own currency, not read;  docs, "Usage accounting"
 *                                            details.cache_write_tokens
 *     LiteLLM        usage                 details.cache_creation_tokens, its   litellm/types/utils.py,
 *                                            1h part in ..._token_details         PromptTokensDetailsWrapper
 *     Portkey        usage                 cache reads and writes are beside    Portkey-AI/gateway,
 *                                            the prompt and in the total          anthropic/chatComplete.ts
 *     Jina           usage                 of a rerank: total_tokens alone       API reference, rerank
 *     Cohere         meta                  of a rerank: billed_units, tokens     API reference, rerank v2
 *     Anthropic      usage                 of its chat completions: details      docs, OpenAI SDK
 *                                            are empty
 *     Messages       usage                 input_tokens leave out the cache;     Anthropic API reference
 *                                            no total
 *     Responses      usage                 input_tokens, output_tokens, and      OpenAI API reference
 *                                            their details; else as OpenAI's
 *     Groq           x_groq.usage, usage   beside the finish of a stream        Portkey issue 1072, 2025-04
 *     Moonshot       choices[0].usage      cached_tokens beside the others      earendil-works/pi pull
 *                                                                                 request 2016, 2026-03
 *
 * Rules if numbers disagree, with p, c, t, r for prompt, completion, total and named reasoning:
 *
 *     no t, or t = 0            output is c, or c + r if r > c: a part cannot be more than the whole
 *     t = p + c                 output is c, or c + r if r > c, likewise
 *     t > p + c                 output is t - p: the excess was generated and not shown
 *     t = p + c - cached        output is c, or c + r if r > c: the total leaves out what was cached
 *     t < p + c otherwise       not believed
 *
 * If a report has a name of Anthropic's, tokens read from the cache and written to it may be missing in p:
 * relays rename `input_tokens` to `prompt_tokens`. They are added to p, and taken off t as far as they are in
 * it, if t is p + c + reads, p + c + writes or p + c + both, or if they are more than p. If they are more
 * than p, and t is between these sums, the report is not believed.
 *
 * Must hold: money is charged by these rules. Of a report with tokens no part is more than the whole, and no
 * token is counted twice. A new shape needs its source in the table and its row in the test
 * (test/unit/upstream/usage-shapes.test.ts).
 */
import { isGiven, isRecord, type Members, membersOf } from '../core/json.js';
import type { Usage } from '../core/token-counts.js';
import { MessageUsage } from '../providers/anthropic/response.js';
import type { ProviderUsage } from '../providers/provider-usage.js';

/** Why a report is impossible in itself: a number that is no count, or numbers that exclude each other. */
export type ReportError = 'malformed' | 'contradictory';

/** No call has more. At the highest price (PRICE_UNITS_MAX of core/money.ts) so many tokens fit 64 bits. */
const REPORTED_TOKENS_MAX = 1_000_000_000;

/** The report in a response or an event, in whichever member; undefined if there is none. */
export function reportIn(event: Members): unknown {
  const { usage } = event;
  // `usage` is read first, because nearly all reports are there.
  if (isRecord(usage)) return usage;
  const { usage: usageOfGroq } = membersOf(event.x_groq);
  if (isRecord(usageOfGroq)) return usageOfGroq;
  const choice = Array.isArray(event.choices) ? (event.choices as unknown[])[0] : undefined;
  const { usage: usageOfChoice } = membersOf(choice);
  if (isRecord(usageOfChoice)) return usageOfChoice;
  return usage ?? usageOfTimings(membersOf(event.timings)) ?? usageOfMeta(membersOf(event.meta));
}

/**
 * A report made from the `meta` of a rerank by Cohere or by LiteLLM, whose name is `total_tokens`. Search
 * units are no tokens. 0 counts as no report: the texts were there, so they are counted.
 */
function usageOfMeta(meta: Members): object | undefined {
  const billed = membersOf(meta.billed_units);
  const total = billed.input_tokens ?? billed.total_tokens ?? membersOf(meta.tokens).input_tokens;
  return isTokenCount(total) && total > 0 ? { total_tokens: total } : undefined;
}

/** A report made from the `timings` of llama.cpp, which come without a usage if none was asked for. */
function usageOfTimings(timings: Members): object | undefined {
  const { prompt_n: uncached, cache_n: cached, predicted_n: completion } = timings;
  if (!isTokenCount(uncached) || !isTokenCount(completion)) return undefined;
  const cachedTokens = isTokenCount(cached) ? cached : 0;
  return {
    prompt_tokens: uncached + cachedTokens,
    completion_tokens: completion,
    prompt_cache_hit_tokens: cachedTokens,
  };
}

/** Whether the report is of the Messages API, whose `input_tokens` leave out cache reads and writes. */
function isOfMessages(report: Members): boolean {
  return isGiven(report.input_tokens) && !isGiven(report.prompt_tokens) && !isGiven(report.total_tokens);
}

/**
 * The tokens of a report that is possible in itself; undefined if it names no prompt, completion or total. A
 * prompt without completion and total, or a completion alone, is malformed: the other half is not known.
 * `completionTokens`: all that is billed as output. `reasoningTokens`: its part that is named, or follows.
 */
export function tokensOfReport(report: unknown): Usage | ReportError | undefined {
  if (report === undefined || report === null) return undefined;
  if (!isRecord(report)) return 'malformed';
  // `!`: MessageUsage has usage once it has got an object.
  if (isOfMessages(report)) return tokensOfMessage(new MessageUsage().add(report).usage!);
  return tokensOfMembers(inChatNames(report));
}

/**
 * Reads a report of the Messages API. The result is what tokensOfMembers would return for the `usage` that
 * `usageMember` of providers/provider-usage.ts makes of the report; the unit test compares both. Fewer checks
 * are needed here: `promptTokens` is a sum with the cache in it, the total would be prompt + completion, and
 * `MessageUsage` lowers the 1-hour writes to all writes and the reasoning to the output.
 */
function tokensOfMessage(usage: ProviderUsage): Usage | ReportError {
  const { promptTokens: prompt, cachedTokens: cached, completionTokens: output } = usage;
  const { cacheWriteTokens: cacheWrite, reasoningTokens: reasoning } = usage;
  const cacheWrite1h = cacheWrite === 0 ? 0 : usage.cacheWrite1hTokens;
  const areCounts =
    isTokenCount(cached) && isTokenCount(cacheWrite) && isTokenCount(cacheWrite1h) && isTokenCount(reasoning);
  if (!areCounts || !isTokenCount(prompt) || !isTokenCount(output)) return 'malformed';
  if (!isTokenCount(prompt + output)) return 'malformed';
  return {
    promptTokens: prompt,
    cachedTokens: cached,
    cacheWriteTokens: cacheWrite,
    cacheWrite1hTokens: cacheWrite1h,
    completionTokens: output,
    reasoningTokens: reasoning,
    source: 'reported',
  };
}

/** Renames a report of the Responses API, which always has a total, to the names of chat completions. */
function inChatNames(report: Members): Members {
  const { prompt_tokens: prompt, input_tokens: input, total_tokens: total } = report;
  if (isGiven(prompt) || !isGiven(input) || !isGiven(total)) return report;
  return {
    prompt_tokens: input,
    completion_tokens: report.output_tokens,
    total_tokens: total,
    prompt_tokens_details: report.input_tokens_details,
    completion_tokens_details: report.output_tokens_details,
  };
}

/** As tokensOfReport, for a report whose members have the names of chat completions. */
function tokensOfMembers(report: Members): Usage | ReportError | undefined {
  const { completion_tokens: reportedCompletion, total_tokens: total } = report;
  // Some providers report only the total of a rerank. All of it is the prompt.
  const prompt = report.prompt_tokens ?? (isGiven(reportedCompletion) ? undefined : total);
  if (!isGiven(prompt ?? reportedCompletion)) return undefined;
  const cached = cachedIn(report) ?? 0;
  const cacheWrite = cacheWriteIn(report) ?? 0;
  const cacheWrite1h = cacheWrite === 0 ? 0 : (cacheWrite1hIn(report) ?? 0);
  const reasoning = reasoningIn(report) ?? 0;
  // If the completion is left out, all of the total beyond the prompt is output: `outputOf` finds it from 0.
  const completion = reportedCompletion ?? (isTokenCount(total) ? 0 : undefined);
  if (!isTokenCount(prompt) || !isTokenCount(completion)) return 'malformed';
  if (!isTokenCount(cached) || !isTokenCount(reasoning)) return 'malformed';
  if (!isTokenCount(cacheWrite) || !isTokenCount(cacheWrite1h)) return 'malformed';
  const inCache = cached + cacheWrite;
  const shown = prompt + completion;
  const isCacheInTotal =
    total === shown + inCache || total === shown + cached || total === shown + cacheWrite;
  const isCacheBeside = inCache > 0 && (isCacheInTotal || inCache > prompt) && hasAnthropicsNames(report);
  const wholePrompt = isCacheBeside ? prompt + inCache : prompt;
  if (inCache > wholePrompt || cacheWrite1h > cacheWrite) return 'contradictory';
  if (wholePrompt > REPORTED_TOKENS_MAX) return 'malformed';
  let totalWithoutCache: unknown = total ?? 0;
  if (isCacheBeside && isTokenCount(total) && total > shown) {
    if (!isCacheInTotal && total < shown + inCache) return 'contradictory';
    totalWithoutCache = Math.max(shown, total - inCache);
  }
  const output = outputOf(prompt, completion, totalWithoutCache, cached, reasoning);
  if (typeof output === 'string') return output;
  if (output > REPORTED_TOKENS_MAX) return 'malformed';
  const allReasoning = Math.max(reasoning, output - completion);
  return {
    promptTokens: wholePrompt,
    cachedTokens: cached,
    cacheWriteTokens: cacheWrite,
    cacheWrite1hTokens: cacheWrite1h,
    completionTokens: output,
    reasoningTokens: Math.min(allReasoning, output),
    source: 'reported',
  };
}

/** The tokens billed as output, by the rules of the file's header. `prompt`: as reported, nothing added. */
function outputOf(
  prompt: number,
  completion: number,
  total: unknown,
  cached: number,
  reasoning: number,
): number | ReportError {
  if (!isTokenCount(total)) return 'malformed';
  const promptAndCompletion = prompt + completion;
  if (total > promptAndCompletion) return total - prompt;
  if (total < promptAndCompletion && total !== 0 && total !== promptAndCompletion - cached)
    return 'contradictory';
  return reasoning > completion ? completion + reasoning : completion;
}

/** Tokens read from the cache, by the names of OpenAI, DeepSeek, Moonshot, Mistral, Anthropic. */
function cachedIn(report: Members): unknown {
  return (
    unlessZero(membersOf(report.prompt_tokens_details).cached_tokens) ??
    unlessZero(report.prompt_cache_hit_tokens) ??
    unlessZero(report.cached_tokens) ??
    unlessZero(report.num_cached_tokens) ??
    report.cache_read_input_tokens
  );
}

/** Tokens written to the cache, by the names of OpenRouter, LiteLLM, Anthropic. */
function cacheWriteIn(report: Members): unknown {
  const details = membersOf(report.prompt_tokens_details);
  return (
    unlessZero(details.cache_write_tokens) ??
    unlessZero(details.cache_creation_tokens) ??
    report.cache_creation_input_tokens
  );
}

/** A relay may fill the names of its own protocol with 0 and leave the number under those of the provider. */
function unlessZero(count: unknown): unknown {
  return count === 0 ? undefined : count;
}

/** Tokens written for an hour, by our name (providers/provider-usage.ts), LiteLLM's and Anthropic's. */
function cacheWrite1hIn(report: Members): unknown {
  const details = membersOf(report.prompt_tokens_details);
  const lifetimes = membersOf(details.cache_creation_token_details ?? report.cache_creation);
  return details.cache_write_1h_tokens ?? lifetimes.ephemeral_1h_input_tokens;
}

/**
 * Whether the report has Anthropic's names of cache reads or writes. Then `prompt_tokens` may lack these
 * tokens: some relays only rename Anthropic's `input_tokens`, which lack them.
 */
function hasAnthropicsNames(report: Members): boolean {
  return isGiven(report.cache_creation_input_tokens ?? report.cache_read_input_tokens);
}

function reasoningIn(report: Members): unknown {
  return membersOf(report.completion_tokens_details).reasoning_tokens ?? report.reasoning_tokens;
}

function isTokenCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= REPORTED_TOKENS_MAX;
}
