/**
 * What a report of usage may say of a call: no more than its model can give and its body can hold. What is beyond is not believed, and
 * counted here. Pure; upstream worker.
 */
import {
  PROMPT_TOKENS_BESIDE_BODY,
  PROMPT_TOKENS_OF_PART,
  REPORTED_OUTPUT_SLACK_TOKENS,
} from '../core/limits.js';
import type { UpstreamRequest } from '../pool/messages.js';
import type { Usage } from '../protocol/usage.js';
import type { DisbeliefReason } from '../telemetry/metrics-layout.js';
import type { ReportedTokens } from './usage-shapes.js';

/** Parts of a prompt, and tools, that are more tokens than their bytes tell. */
const BEYOND_TEXT = /"(?:image_url|input_audio|video_url|file|web_search\w*|plugins)"/g;
const BEYOND_TEXT_MAX = 64;

/** Why the report cannot be true of the call; undefined where it can. `hasText`: whether the answer held any. */
export function doubtOf(
  tokens: ReportedTokens,
  request: UpstreamRequest,
  modelOutputTokensMax: number,
  hasText: () => boolean,
): DisbeliefReason | undefined {
  const { promptTokens, completionTokens, reasoningTokens } = tokens;
  if (completionTokens > withSlack(modelOutputTokensMax * request.choices)) return 'too_much_output';
  // Some models think beside what `max_tokens` bounds.
  if (completionTokens - reasoningTokens > withSlack(askedOf(request, modelOutputTokensMax)))
    return 'beyond_max_tokens';
  if (promptTokens > PROMPT_TOKENS_BESIDE_BODY && promptTokens > promptTokensMaxOf(request))
    return 'too_much_input';
  if (promptTokens === 0) return 'zero';
  return completionTokens === 0 && hasText() ? 'zero' : undefined;
}

/**
 * A count in the place of a report that was not believed, within what was held for the call. Where the report went beyond `max_tokens`
 * alone, what was delivered is charged, up to what the model can give: an upstream that does not know the bound makes no answer free.
 */
export function withinHold(
  usage: Usage,
  reason: DisbeliefReason,
  request: UpstreamRequest,
  modelOutputTokensMax: number,
): Usage {
  const outputMax =
    reason === 'beyond_max_tokens'
      ? modelOutputTokensMax * request.choices
      : askedOf(request, modelOutputTokensMax);
  return {
    promptTokens: Math.min(usage.promptTokens, bodyBytesOf(request)),
    cachedTokens: 0,
    completionTokens: Math.min(usage.completionTokens, outputMax),
    source: usage.source,
  };
}

/** As the hold has it. */
function askedOf({ outputTokensMax, choices }: UpstreamRequest, modelOutputTokensMax: number): number {
  return Math.min(outputTokensMax, modelOutputTokensMax) * choices;
}

/** Tokenizers differ, and some count the marks of turns. */
function withSlack(tokens: number): number {
  return Math.ceil(tokens * 1.1) + REPORTED_OUTPUT_SLACK_TOKENS;
}

/** No tokenizer makes more tokens of a text than it has bytes; the provider adds words of its own. */
function promptTokensMaxOf(request: UpstreamRequest): number {
  const most = bodyBytesOf(request) + PROMPT_TOKENS_BESIDE_BODY;
  const text =
    request.largeBody === undefined ? request.body : Buffer.from(request.largeBody).toString('latin1');
  const parts = Math.min(text.match(BEYOND_TEXT)?.length ?? 0, BEYOND_TEXT_MAX);
  return most + parts * PROMPT_TOKENS_OF_PART;
}

function bodyBytesOf({ body, bodyIsAscii, largeBody }: UpstreamRequest): number {
  return largeBody?.length ?? (bodyIsAscii ? body.length : Buffer.byteLength(body));
}
