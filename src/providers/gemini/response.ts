/**
 * Translates a response of Gemini's `generateContent` into a chat completion. gemini.ts and vertex/vertex.ts
 * call `readResponse`; stream.ts uses the functions that read parts, usage and finish reasons. Pure;
 * upstream worker.
 *
 * Follows https://ai.google.dev/api/generate-content#GenerateContentResponse (v1beta), read 2026-11. Images
 * become `message.images`, as OpenRouter and LiteLLM have them; sound becomes `message.audio`; thoughts
 * become `reasoning_content`, and signatures `extra_content.google.thought_signature`, Google's own name.
 *
 * Must hold (tests are in test/unit/providers/gemini): `completionTokens` includes thoughts exactly once, or
 * a call is billed wrongly (gemini.test.ts). contents.ts reads images and signatures as they are written here
 * (contents.test.ts). A sound has the same id in a stream (stream.test.ts).
 */
import { exactJson, exactJsonText } from '../../core/exact-json.js';
import { isRecord, membersOf } from '../../core/json.js';
import { CHOICES_MAX } from '../../protocol/request-rules.js';
import { completionOf, type Choice, type CompletionText, type FinishReason } from '../chat-writer.js';
import { ProviderError, type UnsignedCall } from '../provider.js';
import { countIn, sumOfCounts, type ProviderUsage } from '../provider-usage.js';
import { throwIfError } from './errors.js';

/** Translates the body of a 200. Throws a ProviderError for an error, or what is no response of Gemini. */
export function readResponse(body: Buffer, call: UnsignedCall): CompletionText {
  // Long integers matter in the arguments of calls alone.
  const response = exactJson(body.toString(), 'functionCall');
  if (!isRecord(response)) throw ProviderError.invalid('no JSON object');
  throwIfError(response);
  const { candidates } = response;
  const choices: Choice[] = Array.isArray(candidates)
    ? (candidates as unknown[]).map((candidate, position) => choiceOf(candidate, position, call))
    : [];
  if (choices.length === 0) {
    if (!isBlocked(response)) throw ProviderError.invalid('no candidates');
    choices.push({ index: 0, message: { role: 'assistant', content: '' }, finishReason: 'content_filter' });
  }
  return completionOf({
    id: idOf(response, call),
    created: Math.floor(call.nowMs / 1_000),
    model: modelOf(response, call),
    choices,
    usage: usageOf(response),
  });
}

/** Made up if Google gave none. */
export function idOf({ responseId }: Record<string, unknown>, call: UnsignedCall): string {
  return typeof responseId === 'string' && responseId !== '' ? responseId : `chatcmpl-${call.requestId}`;
}

/** The model that Google says it used, else the model of the call. */
export function modelOf({ modelVersion }: Record<string, unknown>, call: UnsignedCall): string {
  return typeof modelVersion === 'string' && modelVersion !== '' ? modelVersion : call.model;
}

/** Whether Google refused the prompt. Such a response has no candidates. */
export function isBlocked({ promptFeedback }: Record<string, unknown>): boolean {
  return isRecord(promptFeedback) && typeof promptFeedback.blockReason === 'string';
}

/** The parts of a candidate; none if the candidate was stopped before its first part. */
export function partsOf({ content }: Record<string, unknown>): readonly unknown[] {
  return isRecord(content) && Array.isArray(content.parts) ? content.parts : [];
}

/** Google's reasons for a response that was stopped before its end, but not for its length. */
const FILTER_REASONS: ReadonlySet<unknown> = new Set([
  ...['SAFETY', 'RECITATION', 'LANGUAGE', 'OTHER', 'BLOCKLIST', 'PROHIBITED_CONTENT', 'SPII', 'MODEL_ARMOR'],
  ...['IMAGE_SAFETY', 'IMAGE_PROHIBITED_CONTENT', 'IMAGE_RECITATION', 'IMAGE_OTHER', 'NO_IMAGE'],
]);

/** Google gives STOP for calls, too. Unlisted reasons, such as MALFORMED_FUNCTION_CALL, count as STOP. */
export function finishOf(finishReason: unknown, { hasCalls }: { readonly hasCalls: boolean }): FinishReason {
  if (FILTER_REASONS.has(finishReason)) return 'content_filter';
  if (finishReason === 'MAX_TOKENS' || finishReason === 'CONTINUATION') return 'length';
  return hasCalls ? 'tool_calls' : 'stop';
}

/** The member `extra_content` with the part's signature; no member if there is none. */
export function signatureMember(part: Record<string, unknown>): { extra_content?: object } {
  const signature = part.thoughtSignature;
  if (typeof signature !== 'string' || signature === '') return {};
  return { extra_content: { google: { thought_signature: signature } } };
}

/**
 * A tool call, without its `index`. Models before Gemini 3 give no ids, so an id is made up of the request's
 * id, the index of the candidate, and the number of calls that the candidate had before (`callNumber`).
 */
export function toolCallOf(
  functionCall: Record<string, unknown>,
  part: Record<string, unknown>,
  call: UnsignedCall,
  candidateIndex: number,
  callNumber: number,
): object {
  const { id, name, args } = functionCall;
  if (typeof name !== 'string') throw ProviderError.invalid('a function call without a name');
  return {
    // At most 40 characters, which is OpenAI's bound.
    id:
      typeof id === 'string' && id !== ''
        ? id
        : `call_${call.requestId.slice(-24)}_${candidateIndex}_${callNumber}`,
    type: 'function',
    function: { name, arguments: exactJsonText(args ?? {}) },
    ...signatureMember(part),
  };
}

/** An image or sound that the model made. */
export interface Media {
  /** In place of a MIME type, which OpenAI's sounds do not have. */
  readonly isAudio: boolean;
  /** Base64. `url`: a data URL with the MIME type and `data`. */
  readonly data: string;
  readonly url: string;
}

/** The media of a part; undefined if the part has none, or is a thought. */
export function mediaOf(part: Record<string, unknown>): Media | undefined {
  const { inlineData, thought } = part;
  if (!isRecord(inlineData) || thought === true) return undefined;
  const { mimeType, data } = inlineData;
  if (typeof mimeType !== 'string' || typeof data !== 'string') return undefined;
  return { isAudio: mimeType.startsWith('audio/'), data, url: `data:${mimeType};base64,${data}` };
}

/** An image in OpenRouter's form of `message.images`; contents.ts reads it again in the next request. */
export function imageOf({ url }: Media, part: Record<string, unknown>, index: number): object {
  return { type: 'image_url', image_url: { url }, index, ...signatureMember(part) };
}

/**
 * The index of a candidate, else its `position` in the list. Throws a ProviderError for one that no choice
 * can have.
 */
export function indexOf(candidate: Record<string, unknown>, position: number): number {
  const index = typeof candidate.index === 'number' ? candidate.index : position;
  if (!Number.isInteger(index) || index < 0 || index >= CHOICES_MAX)
    throw ProviderError.invalid('the index of a candidate');
  return index;
}

function choiceOf(candidate: unknown, position: number, call: UnsignedCall): Choice {
  if (!isRecord(candidate)) throw ProviderError.invalid('a candidate is no object');
  const index = indexOf(candidate, position);
  let content = '';
  let reasoning = '';
  let signature: { extra_content?: object } | undefined;
  const calls: object[] = [];
  const images: object[] = [];
  const audio: Buffer[] = [];
  for (const part of partsOf(candidate)) {
    if (!isRecord(part)) continue;
    const { text, functionCall } = part;
    if (typeof text === 'string') {
      if (part.thought === true) reasoning += text;
      else {
        content += text;
        // The last signature counts: a message has one.
        if (part.thoughtSignature !== undefined) signature = signatureMember(part);
      }
    } else if (isRecord(functionCall)) calls.push(toolCallOf(functionCall, part, call, index, calls.length));
    else {
      const media = mediaOf(part);
      if (media?.isAudio === true) audio.push(Buffer.from(media.data, 'base64'));
      else if (media !== undefined) images.push(imageOf(media, part, images.length));
    }
  }
  const logprobs = logprobsOf(candidate);
  return {
    index,
    message: {
      role: 'assistant',
      // As in OpenAI's protocol, which knows no images in a response: beside images alone it is ''.
      content: content === '' && (calls.length > 0 || audio.length > 0) ? null : content,
      ...(reasoning !== '' && { reasoning_content: reasoning }),
      ...(calls.length > 0 && { tool_calls: calls }),
      ...(images.length > 0 && { images }),
      ...(audio.length > 0 && {
        audio: {
          id: audioIdOf(call, index),
          data: Buffer.concat(audio).toString('base64'),
          // OpenAI requires the member. Nobody stores the sound, so it has expired.
          expires_at: Math.floor(call.nowMs / 1_000),
          transcript: '',
        },
      }),
      ...signature,
    },
    finishReason: finishOf(candidate.finishReason, { hasCalls: calls.length > 0 }),
    ...(logprobs !== undefined && { logprobs }),
  };
}

/** The id of a sound, which is the same in all of its chunks, so that clients join them. */
export function audioIdOf(call: UnsignedCall, candidateIndex: number): string {
  return `audio_${call.requestId}_${candidateIndex}`;
}

/** `logprobs` of a choice; undefined if the candidate has none. */
export function logprobsOf({ logprobsResult }: Record<string, unknown>): object | undefined {
  if (!isRecord(logprobsResult) || !Array.isArray(logprobsResult.chosenCandidates)) return undefined;
  const tops = Array.isArray(logprobsResult.topCandidates) ? (logprobsResult.topCandidates as unknown[]) : [];
  const content = (logprobsResult.chosenCandidates as unknown[]).map((chosen, position) => {
    const top = tops[position];
    const alternatives = isRecord(top) && Array.isArray(top.candidates) ? (top.candidates as unknown[]) : [];
    return { ...tokenOf(chosen), top_logprobs: alternatives.map(tokenOf) };
  });
  return { content, refusal: null };
}

function tokenOf(value: unknown): object {
  const { token, logProbability } = membersOf(value);
  return {
    token: typeof token === 'string' ? token : '',
    logprob: typeof logProbability === 'number' ? logProbability : 0,
    bytes: null,
  };
}

/**
 * The tokens that Google bills; undefined without usage. The prompt includes cached tokens. Google counts
 * thoughts apart from the candidates, and results of its own tools apart from the prompt, so both are added.
 * If the total shows that the candidates include the thoughts (LiteLLM, 2025), they are not added again.
 */
export function usageOf({ usageMetadata: usage }: Record<string, unknown>): ProviderUsage | undefined {
  if (!isRecord(usage)) return undefined;
  const prompt = sumOfCounts(countIn(usage.promptTokenCount), countIn(usage.toolUsePromptTokenCount));
  const candidates = countIn(usage.candidatesTokenCount);
  const thoughts = countIn(usage.thoughtsTokenCount);
  const areThoughtsIncluded =
    thoughts > 0 && thoughts <= candidates && usage.totalTokenCount === prompt + candidates;
  return {
    promptTokens: prompt,
    cachedTokens: countIn(usage.cachedContentTokenCount),
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    completionTokens: areThoughtsIncluded ? candidates : sumOfCounts(candidates, thoughts),
    reasoningTokens: thoughts,
    audioPromptTokens: tokensOfModality(usage.promptTokensDetails, 'AUDIO'),
    imagePromptTokens: tokensOfModality(usage.promptTokensDetails, 'IMAGE'),
    audioCompletionTokens: tokensOfModality(usage.candidatesTokensDetails, 'AUDIO'),
  };
}

/** The tokens of one modality; 0 if the details do not have it. */
function tokensOfModality(details: unknown, modality: string): number {
  if (!Array.isArray(details)) return 0;
  let tokens = 0;
  for (const detail of details as unknown[])
    if (isRecord(detail) && detail.modality === modality) tokens += countIn(detail.tokenCount);
  return tokens;
}
