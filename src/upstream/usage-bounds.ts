/**
 * Decides whether a report of usage can be true of its call, and bounds the tokens of a call. call-usage.ts
 * calls `disbeliefOf` for the report that usage-shapes.ts has read, and `withinHold` for the gateway's own
 * count. call-models.ts asks for the most tokens (`tokensMaxOf`), chat-session.ts for the body's bytes
 * (`bodyBytesOf`). Pure; upstream worker.
 *
 * Must hold (test/unit/upstream/usage-bounds.test.ts): no report that is believed, and no count in its
 * place, charges more than the bounds here allow.
 */
import type { UpstreamRequest } from '../channel/messages.js';
import {
  PROMPT_PARTS_MAX,
  PROMPT_TOKENS_BESIDE_BODY,
  PROMPT_TOKENS_OF_PART,
  REPORTED_OUTPUT_SLACK_TOKENS,
} from '../core/limits.js';
import { type TokenCounts, type Usage, usageWithoutParts } from '../core/token-counts.js';
import { dialectAt } from '../doors/dialects.js';
import { mediaTokensOf } from '../protocol/chat-call.js';
import type { DisbeliefReason } from '../telemetry/metrics-layout.js';
import type { ModelRoute } from './target.js';

/**
 * Names in a body of things that can be more prompt tokens than the body has bytes:
 *
 * - parts of a prompt: `image` and `document` are Anthropic's, `document_url` is Mistral's;
 * - tools and searches of the provider;
 * - what the provider has stored: a cached content, an earlier response, an index, a prompt, what a model
 *   said. A stored prompt is named by an object; the `prompt` of a completion is a text or a list. Stored
 *   audio has an `id`; that of a response to come has a voice;
 * - a template, which may repeat what the body has once.
 *
 * Those of core/routing-members.ts that add to a prompt must be here: the unit test tries all of them.
 */
const BEYOND_TEXT =
  /"(?:image|image_url|input_image|input_audio|audio_url|video_url|document|document_url|file|input_file|(?:[\w-]+:)?(?:web|file|browser)_(?:search|fetch)\w*|(?:enable_)?code_(?:interpreter|execution)\w*|compound_custom|mcp\w*|x_search|google_?[sS]earch\w*|url_?[cC]ontext|retrieval|builtin_function|enable_search|search_parameters|data_sources|vector_store_ids|session_params|prompt_id|preset|container|plugins|cached_?[cC]ontent|previous_response_id|item_reference|conversation|chat_template)"|"(?:prompt|thread)"\s*:\s*\{|"audio"\s*:\s*\{\s*"id"/g;

/** What is known of the model that a call was sent to. */
type ModelBounds = Pick<ModelRoute, 'outputTokensMax' | 'mediaPartTokens'>;

/**
 * Why the report cannot be true of the call; undefined if it can be. It may have more output than the model
 * can generate or the caller allows, or more prompt than the body can be. It may have too little (`zero`): no
 * prompt though the door's calls are billed, or no completion though the response had text. `hasText`:
 * whether the response had any text; asked last, because that parses.
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
  return usageWithoutParts({
    promptTokens: Math.min(usage.promptTokens, promptTokensHeld(request, model)),
    completionTokens: Math.min(usage.completionTokens, outputMax),
    source: usage.source,
  });
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
 * text than the text has bytes, and the provider adds words of its own. The body is searched last, because
 * that stalls all calls of the worker: for 0.2 ms with 60 KB of JSON.
 */
function isBeyondBody(promptTokens: number, request: UpstreamRequest, model: ModelBounds): boolean {
  const textTokensMax = bodyBytesOf(request) + request.repeatedTokens + PROMPT_TOKENS_BESIDE_BODY;
  const beyondText = promptTokens - textTokensMax;
  return (
    beyondText > mediaTokensOf(request, model) &&
    !namesParts(request, Math.ceil(beyondText / PROMPT_TOKENS_OF_PART))
  );
}

/** A printable character that is written by its code, as JSON allows. A quote is not: it would end a name. */
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

/** UTF-8 length of the body as it goes to this model's upstreams; by it quota-queue.ts weighs the call. */
export function bodyBytesOf({ body, bodyIsAscii, largeBody }: UpstreamRequest): number {
  return largeBody?.length ?? (bodyIsAscii ? body.length : Buffer.byteLength(body));
}
