/**
 * Reads usage as providers report it. `reportIn` finds the report in a response or an event, for
 * stream-reader.ts, response-reader.ts and door-call.ts. `tokensOfReport` says what the report's numbers
 * mean, for usage-meter.ts and door-call.ts. `disbeliefOf` says whether the numbers can be true of a call,
 * for call-usage.ts. call-models.ts asks for the most tokens of a call (`tokensMaxOf`), chat-session.ts for
 * its bytes (`bodyBytesOf`). Pure; upstream worker.
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
 *     Anthropic      usage                 details are empty                    docs, OpenAI SDK
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
 * Tokens read from the cache and written to it, under Anthropic's names, may be missing in p. These tokens
 * are added to p if t is p + c + these tokens, or if they are more than p.
 *
 * Must hold: money is charged by these rules. A new shape needs its source in the table and its row in the
 * test (test/unit/upstream/usage-shapes.test.ts, test/unit/upstream/usage-shapes.usage-bounds.test.ts).
 */
import type { UpstreamRequest } from '../channel/messages.js';
import { isRecord, type Members } from '../core/json.js';
import {
  PROMPT_PARTS_MAX,
  PROMPT_TOKENS_BESIDE_BODY,
  PROMPT_TOKENS_OF_PART,
  REPORTED_OUTPUT_SLACK_TOKENS,
} from '../core/limits.js';
import { type TokenCounts, type Usage, usageWithoutParts } from '../core/token-counts.js';
import { dialectAt } from '../doors/dialects.js';
import { MessageUsage } from '../providers/anthropic/response.js';
import type { ProviderUsage } from '../providers/chat-writer.js';
import { mediaTokensOf } from '../protocol/chat-call.js';
import type { ModelRoute } from './target.js';
import type { DisbeliefReason } from '../telemetry/metrics-layout.js';

/** Why a report is impossible in itself: a number that is no count, or numbers that exclude each other. */
export type ReportError = 'malformed' | 'contradictory';

/** No call has more tokens, so a report of more is malformed. So many tokens times a price fit 64 bits. */
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

const NO_MEMBERS: Members = {};

/** The members of an object; none of any other value. */
function membersOf(value: unknown): Members {
  return isRecord(value) ? value : NO_MEMBERS;
}

/** A report made from the `meta` of a rerank by Cohere or LiteLLM. Search units are no tokens. */
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
 * The tokens of a report that is possible in itself; undefined if it names no prompt, completion or total.
 * `completionTokens` are all that is billed as output. `reasoningTokens` are the part of these that the
 * report names, or that follows from the total.
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
 * `usageMember` of providers/chat-writer.ts makes of the report; the unit test compares both. Fewer checks
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
  if (cached + cacheWrite > prompt) return 'contradictory';
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
  // If the completion is left out, 0 stands for it, and `outputOf` returns the total less the prompt.
  const completion = reportedCompletion ?? (isTokenCount(total) ? 0 : undefined);
  if (!isTokenCount(prompt) || !isTokenCount(completion)) return 'malformed';
  if (!isTokenCount(cached) || !isTokenCount(reasoning)) return 'malformed';
  if (!isTokenCount(cacheWrite) || !isTokenCount(cacheWrite1h)) return 'malformed';
  const inCache = cached + cacheWrite;
  const isCacheInTotal = total === prompt + completion + inCache;
  const isCacheBeside = inCache > 0 && (isCacheInTotal || inCache > prompt) && hasAnthropicsNames(report);
  const wholePrompt = isCacheBeside ? prompt + inCache : prompt;
  if (inCache > wholePrompt || cacheWrite1h > cacheWrite) return 'contradictory';
  if (wholePrompt > REPORTED_TOKENS_MAX) return 'malformed';
  // `outputOf` wants a total without tokens that are counted beside the prompt.
  const output = outputOf(
    prompt,
    completion,
    isCacheBeside && isCacheInTotal ? prompt + completion : (total ?? 0),
    cached,
    reasoning,
  );
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
    membersOf(report.prompt_tokens_details).cached_tokens ??
    report.prompt_cache_hit_tokens ??
    report.cached_tokens ??
    report.num_cached_tokens ??
    report.cache_read_input_tokens
  );
}

/** Tokens written to the cache, by the names of OpenRouter, LiteLLM, Anthropic. */
function cacheWriteIn(report: Members): unknown {
  const details = membersOf(report.prompt_tokens_details);
  return details.cache_write_tokens ?? details.cache_creation_tokens ?? report.cache_creation_input_tokens;
}

/** Tokens written for an hour, by our own name (providers/chat-writer.ts), and LiteLLM's and Anthropic's. */
function cacheWrite1hIn(report: Members): unknown {
  const details = membersOf(report.prompt_tokens_details);
  const lifetimes = membersOf(details.cache_creation_token_details ?? report.cache_creation);
  return details.cache_write_1h_tokens ?? lifetimes.ephemeral_1h_input_tokens;
}

/**
 * Whether the report has Anthropic's names of cache reads or writes. Then `prompt_tokens` may lack these
 * tokens, because some relays only rename Anthropic's `input_tokens` to `prompt_tokens`.
 */
function hasAnthropicsNames(report: Members): boolean {
  return isGiven(report.cache_creation_input_tokens ?? report.cache_read_input_tokens);
}

function reasoningIn(report: Members): unknown {
  return membersOf(report.completion_tokens_details).reasoning_tokens ?? report.reasoning_tokens;
}

/** A member that is null means the same as an absent member. */
function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function isTokenCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= REPORTED_TOKENS_MAX;
}

/**
 * Names in a body of things that can be more prompt tokens than the body has bytes: parts of a prompt, tools
 * and searches of the provider, and what it has stored (a cached content, an earlier response, an index, a
 * prompt, which is an object; that of a completion is its text). `image` and `document` are Anthropic's,
 * `document_url` is Mistral's. Of core/routing-members.ts those that add to a prompt must be here.
 */
const BEYOND_TEXT =
  /"(?:image|image_url|input_image|input_audio|audio_url|video_url|document|document_url|file|input_file|(?:[\w-]+:)?(?:web|file|browser)_(?:search|fetch)\w*|code_(?:interpreter|execution)\w*|mcp\w*|x_search|google_?[sS]earch\w*|url_?[cC]ontext|retrieval|builtin_function|enable_search|search_parameters|data_sources|vector_store_ids|session_params|prompt_id|preset|container|plugins|cached_?[cC]ontent|previous_response_id|item_reference|conversation)"|"prompt"\s*:\s*\{/g;

/** What is known of the model that a call was sent to. */
type ModelBounds = Pick<ModelRoute, 'outputTokensMax' | 'mediaPartTokens'>;

/**
 * Why the report cannot be true of the call: more output than its model can generate or its caller allows,
 * more prompt than its body can be, or `zero`: no prompt at all though the door's calls are billed, or no
 * completion though the response had text. Undefined if the report can be true. `hasText`: whether the
 * response had any text; asked last, because that parses.
 */
export function disbeliefOf(
  tokens: TokenCounts,
  request: UpstreamRequest,
  model: ModelBounds,
  hasText: () => boolean,
): DisbeliefReason | undefined {
  const { promptTokens, completionTokens, reasoningTokens } = tokens;
  if (completionTokens > withSlack(model.outputTokensMax * request.choices)) return 'too_much_output';
  // Reasoning is left out, because `max_tokens` does not bound the thoughts of some models.
  if (completionTokens - reasoningTokens > withSlack(outputTokensAllowed(request, model)))
    return 'beyond_max_tokens';
  if (promptTokens > PROMPT_TOKENS_BESIDE_BODY && isBeyondBody(promptTokens, request, model))
    return 'too_much_input';
  const isUnbilled = completionTokens === 0 && dialectAt(request.door)?.isUnbilled === true;
  if (promptTokens === 0) return isUnbilled ? undefined : 'zero';
  return completionTokens === 0 && hasText() ? 'zero' : undefined;
}

/**
 * Bounds `usage`, the gateway's own count in place of a report that was not believed for `reason`. The bound
 * is the call's hold. But if the reason is `beyond_max_tokens`, the output's bound is what the model can
 * generate: if an upstream ignores `max_tokens`, all of its output is charged.
 */
export function withinHold(
  usage: Usage,
  reason: DisbeliefReason,
  request: UpstreamRequest,
  model: ModelBounds,
): Usage {
  const outputMax =
    reason === 'beyond_max_tokens'
      ? model.outputTokensMax * request.choices
      : outputTokensAllowed(request, model);
  return usageWithoutParts(
    Math.min(usage.promptTokens, promptTokensHeld(request, model)),
    Math.min(usage.completionTokens, outputMax),
    usage.source,
  );
}

/** The most output tokens, as in the hold (completionTokensMaxOf of request/admit.ts). */
function outputTokensAllowed({ outputTokensMax, choices }: UpstreamRequest, model: ModelBounds): number {
  return Math.min(outputTokensMax, model.outputTokensMax) * choices;
}

/**
 * The most prompt tokens, of the body as it goes to this model. The hold is the same sum, of the body as the
 * client sent it (`promptTokensMaxOf` of protocol/chat-call.ts). The two sums may differ by some bytes: the
 * model's name, and members that the gateway adds or lowers.
 */
function promptTokensHeld(request: UpstreamRequest, model: ModelBounds): number {
  return bodyBytesOf(request) + request.repeatedTokens + mediaTokensOf(request, model);
}

/** The most tokens that the call can use, as its caller's quotas hold them. */
export function tokensMaxOf(request: UpstreamRequest, model: ModelBounds): number {
  return promptTokensHeld(request, model) + outputTokensAllowed(request, model);
}

/** A tenth more output than allowed is believed, and REPORTED_OUTPUT_SLACK_TOKENS more. */
const OUTPUT_SLACK_FACTOR = 1.1;

/** The most output that is believed: tokenizers differ, and some count separators between messages. */
function withSlack(tokens: number): number {
  return Math.ceil(tokens * OUTPUT_SLACK_FACTOR) + REPORTED_OUTPUT_SLACK_TOKENS;
}

/**
 * Whether the body and its media parts cannot be so many prompt tokens. No tokenizer makes more tokens of a
 * text than the text has bytes, and the provider adds words of its own. Only if these bytes, these words and
 * the tokens for media parts are too few, the body is searched, because a search stalls all calls of the
 * worker: for 0.2 ms with 60 KB of JSON.
 */
function isBeyondBody(promptTokens: number, request: UpstreamRequest, model: ModelBounds): boolean {
  const textTokensMax = bodyBytesOf(request) + request.repeatedTokens + PROMPT_TOKENS_BESIDE_BODY;
  const beyondText = promptTokens - textTokensMax;
  return (
    beyondText > mediaTokensOf(request, model) &&
    !namesParts(request, Math.ceil(beyondText / PROMPT_TOKENS_OF_PART))
  );
}

/** A printable character that is written by its code, as JSON allows in names. A quote ends no name so. */
const ESCAPED = /\\u00(?!22)([2-7][\da-f])/gi;

/** Whether the body names at least `count` parts that can be more tokens than bytes. */
function namesParts({ body, largeBody, mediaParts }: UpstreamRequest, count: number): boolean {
  if (count > PROMPT_PARTS_MAX) return false;
  // The door has counted the parts of a prompt, also those whose names are not in BEYOND_TEXT.
  if (count <= mediaParts) return true;
  const written = largeBody === undefined ? body : Buffer.from(largeBody).toString('latin1');
  // Otherwise a caller who writes a name with escapes would get the part for nothing.
  const text = written.replace(ESCAPED, (_, code: string) => String.fromCharCode(parseInt(code, 16)));
  // The expression is global, so each `test` goes on after the part that the last one found.
  BEYOND_TEXT.lastIndex = 0;
  for (let foundParts = 0; foundParts < count; foundParts++) if (!BEYOND_TEXT.test(text)) return false;
  return true;
}

/**
 * UTF-8 length of the body as it goes to this model's upstreams. chat-session.ts gives it to quota-queue.ts,
 * which weighs waiting calls by it.
 */
export function bodyBytesOf({ body, bodyIsAscii, largeBody }: UpstreamRequest): number {
  return largeBody?.length ?? (bodyIsAscii ? body.length : Buffer.byteLength(body));
}
