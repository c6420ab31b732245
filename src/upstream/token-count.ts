/**
 * Tokens of a call whose upstream reported none. The types cross from the upstream workers to the counter thread, where
 * countTokens runs; in an upstream worker it may be called with tokenizer `none` alone, which loads no table. Pure.
 */
import { TOKENIZER_BYTES_MAX } from '../core/limits.js';
import { ceilDiv } from '../core/units.js';
import type { Usage } from '../protocol/usage.js';
import { addStreamTexts, answerTexts, promptOf, type StreamTexts } from './chat-text.js';
import type { Tokenizer } from './target.js';
import { estimateTextTokens, textCounterOf } from './tokenizer.js';

/** Which form the text of the answer has: events of a stream, one JSON object, or nothing was relayed. */
export type CompletionForm = 'stream' | 'answer' | 'none';

export interface CountRequest {
  readonly tokenizer: Tokenizer;
  /** The request's JSON. */
  readonly body: string | Uint8Array;
  readonly completionForm: CompletionForm;
  /** Of a stream: texts of the events before `completion`. */
  readonly texts: StreamTexts;
  /** The answer, or the latest of the events that were kept. */
  readonly completion: string;
  /** UTF-8 length of what `texts` and `completion` stand for. */
  readonly completionBytes: number;
  /** UTF-8 length of all that was relayed: the count is scaled up by `relayedBytes / completionBytes`. */
  readonly relayedBytes: number;
}

/** Rejects where the counter thread died; then the tokens are estimated. */
export type CountTokens = (request: CountRequest) => Promise<Usage>;

/** Every message is framed by three tokens, a name costs one more, and the answer is primed with three. Source: OpenAI's
 *  cookbook, "How to count tokens with tiktoken". */
const MESSAGE_TOKENS = 3;
const NAME_TOKENS = 1;
const PRIMING_TOKENS = 3;

/**
 * Usage of one call, `cachedTokens` 0. Source `counted`, or `estimated` where the tokenizer is `none`, the text is above
 * TOKENIZER_BYTES_MAX, part of the prompt is no text (images, audio), or only a part of the answer was kept. Never throws for a text.
 * Costs some 0.3 s a megabyte, once 0.3 s to load a table.
 */
export function countTokens(request: CountRequest): Usage {
  const texts = completionTexts(request);
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), Buffer.byteLength(request.body));
  const exact = request.tokenizer !== 'none' && bytes <= TOKENIZER_BYTES_MAX;
  const tokensOf = exact ? textCounterOf(request.tokenizer) : estimateTextTokens;

  const prompt = promptOf(
    typeof request.body === 'string' ? request.body : Buffer.from(request.body).toString(),
  );
  let promptTokens = prompt.messages === 0 ? 0 : PRIMING_TOKENS;
  promptTokens += prompt.messages * MESSAGE_TOKENS + prompt.names * NAME_TOKENS;
  for (const text of prompt.texts) promptTokens += tokensOf(text);

  let completionTokens = 0;
  for (const text of texts) completionTokens += tokensOf(text);
  const whole = request.relayedBytes <= request.completionBytes;
  if (!whole)
    completionTokens = ceilDiv(completionTokens * request.relayedBytes, Math.max(1, request.completionBytes));

  const source = exact && whole && !prompt.beyondText ? 'counted' : 'estimated';
  return { promptTokens, cachedTokens: 0, completionTokens, source };
}

function completionTexts(request: CountRequest): string[] {
  if (request.completionForm === 'none') return [];
  if (request.completionForm === 'answer') return answerTexts(request.completion);
  const texts = new Map(request.texts);
  addStreamTexts(texts, Buffer.from(request.completion), Infinity);
  return [...texts.values()];
}
