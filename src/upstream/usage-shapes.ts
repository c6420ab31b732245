/**
 * Usage as providers report it: where it is in a response or an event, what its numbers mean, and whether
 * they can be true of a call. Readers and sessions use it. Pure; upstream worker.
 *
 * One table for all providers, because a shape is recognised by its members and not by the sender: compatible
 * servers relay for each other.
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
 *     vLLM, SGLang   usage of every chunk  grows; the last one counts           vLLM, continuous_usage_stats
 *     Ollama         usage                 nothing                              docs, "OpenAI compatibility"
 *     llama.cpp      usage, else timings   prompt_n is the part not cached      ggml-org/llama.cpp pull
 *                                                                                 request 15827, 2025-09
 *     OpenRouter     usage                 cost is in their currency, not read; docs, "Usage accounting"
 *                                            details.cache_write_tokens
 *     LiteLLM        usage                 details.cache_creation_tokens, its   litellm/types/utils.py,
 *                                            1h part in ..._token_details         PromptTokensDetailsWrapper
 *     Portkey        usage                 cache reads and writes are beside    Portkey-AI/gateway,
 *                                            the prompt and in the total          anthropic/chatComplete.ts
 *     Jina           usage                 of a rerank: total_tokens alone       API reference, rerank
 *     Cohere         meta                  of a rerank: billed_units, tokens     API reference, rerank v2
 *     Anthropic      usage                 details are empty                    docs, "OpenAI SDK
 *                                                                                 compatibility"
 *     Responses      usage                 input_tokens, output_tokens, and      OpenAI API reference
 *                                            their details; else as OpenAI's
 *     Groq           x_groq.usage, usage   beside the finish of a stream        Portkey-AI/gateway issue
 *                                                                                 1072, 2025-04
 *     Moonshot       choices[0].usage      cached_tokens beside the others      earendil-works/pi pull
 *                                                                                 request 2016, 2026-03
 *
 * Rules if numbers disagree, with p, c, t, r for prompt, completion, total and named reasoning:
 *
 *     no t, or t = 0            output is c, or c + r if r > c: a part cannot be more than the whole
 *     t = p + c                 output is c, or c + r if r > c, likewise
 *     t > p + c                 output is t - p: the excess was generated and not shown
 *     t = p + c - cached        output is c: the total leaves out what was cached
 *     t < p + c otherwise       not believed
 *
 * With Anthropic's names of what was read from the cache and written to it, these are beside p if t is
 * p + c + both, or if they are more than p; then they are added to p.
 */
import type { UpstreamRequest } from '../channel/messages.js';
import { isRecord } from '../core/json.js';
import {
  PROMPT_TOKENS_BESIDE_BODY,
  PROMPT_TOKENS_OF_PART,
  REPORTED_OUTPUT_SLACK_TOKENS,
} from '../core/limits.js';
import type { TokenCounts } from '../core/token-counts.js';
import { type Usage, usageOfWhole } from '../protocol/usage.js';
import type { DisbeliefReason } from '../telemetry/metrics-layout.js';

/** Why a report is impossible in itself. */
export type ReportError = 'malformed' | 'contradictory';

/** No call comes near this. A report above is garbage; below, a price times tokens fits 64 bits. */
const REPORTED_TOKENS_MAX = 1_000_000_000;

/** The report in a response or an event, wherever it is; undefined if there is none. */
export function reportIn(event: Record<string, unknown>): unknown {
  const { usage } = event;
  // Nearly always.
  if (isRecord(usage)) return usage;
  const inGroq = isRecord(event.x_groq) ? event.x_groq.usage : undefined;
  if (isRecord(inGroq)) return inGroq;
  const choice = Array.isArray(event.choices) ? (event.choices as unknown[])[0] : undefined;
  if (isRecord(choice) && isRecord(choice.usage)) return choice.usage;
  return usage ?? usageOfTimings(event.timings) ?? usageOfMeta(event.meta);
}

/** Of a rerank by Cohere or LiteLLM. Search units are no tokens, and not read. */
function usageOfMeta(meta: unknown): object | undefined {
  if (!isRecord(meta)) return undefined;
  const tokens = isRecord(meta.tokens) ? meta.tokens.input_tokens : undefined;
  const billed = isRecord(meta.billed_units) ? meta.billed_units : {};
  const total = billed.input_tokens ?? billed.total_tokens ?? tokens;
  return isTokenCount(total) && total > 0 ? { total_tokens: total } : undefined;
}

/** From llama.cpp's timings, which are beside the usage, or alone if no usage was asked for. */
function usageOfTimings(timings: unknown): object | undefined {
  if (!isRecord(timings)) return undefined;
  const { prompt_n: fresh, cache_n: cached, predicted_n: completion } = timings;
  if (!isTokenCount(fresh) || !isTokenCount(completion)) return undefined;
  const cachedTokens = isTokenCount(cached) ? cached : 0;
  return {
    prompt_tokens: fresh + cachedTokens,
    completion_tokens: completion,
    prompt_cache_hit_tokens: cachedTokens,
  };
}

/**
 * The tokens of a report that is possible in itself; undefined if it says nothing at all. Its completion is
 * all that is billed as output, its reasoning what was named or follows from the total.
 */
export function tokensOfReport(report: unknown): Usage | ReportError | undefined {
  if (report === undefined || report === null) return undefined;
  if (!isRecord(report)) return 'malformed';
  return tokensOfMembers(inChatNames(report));
}

/** A report by the names of the Responses API, which always has a total, in those of chat completions. */
function inChatNames(report: Record<string, unknown>): Record<string, unknown> {
  const { prompt_tokens: prompt, input_tokens: input, total_tokens: total } = report;
  if (prompt !== undefined || input === undefined || total === undefined) return report;
  return {
    prompt_tokens: input,
    completion_tokens: report.output_tokens,
    total_tokens: total,
    prompt_tokens_details: report.input_tokens_details,
    completion_tokens_details: report.output_tokens_details,
  };
}

function tokensOfMembers(report: Record<string, unknown>): Usage | ReportError | undefined {
