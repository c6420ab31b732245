/**
 * A fast path for the body of Converse: writes the JSON text of a usual chat completion, of texts and a few
 * numbers, in a fifth of the time. request.ts calls `plainBodyOf` for each call. Pure; upstream worker, or
 * counter thread if the body is large.
 *
 * Follows Amazon Bedrock API Reference, "Converse", 2026-11.
 *
 * Must hold: what is written is what `anyBodyOf` of request.ts would write for the same call, and a body that
 * `anyBodyOf` rejects is not written. A rule that is added there is added here, or its member is left to it.
 */
import { isRecord, stringText } from '../../core/json.js';
import { CLAUDE_SAMPLING_DEFAULT, TEMPERATURE_MAX } from '../anthropic/request.js';
import type { UnsignedCall } from '../provider.js';
import type { ModelFacts } from './models.js';

/** Members that `plainBodyOf` reads, or that change nothing. */
const FAST_PATH_MEMBERS: ReadonlySet<string> = new Set(
  'model stream stream_options user messages max_tokens max_completion_tokens temperature top_p'.split(' '),
);

/** The JSON text; undefined for a call that `anyBodyOf` must write or reject. */
export function plainBodyOf({ body, settings }: UnsignedCall, facts: ModelFacts): string | undefined {
  for (const name in body) if (!FAST_PATH_MEMBERS.has(name)) return undefined;
  if (settings.betas.length > 0 || !Array.isArray(body.messages)) return undefined;
  const conversation = plainConversationOf(body.messages);
  const inference = conversation === undefined ? undefined : plainInferenceOf(body, facts);
  return inference === undefined ? undefined : `{"messages":[${conversation!}${inference}}`;
}

/** The turns with the end of their list, and `system` if there is one. Undefined as in `plainBodyOf`. */
function plainConversationOf(messages: readonly unknown[]): string | undefined {
  let system = '';
  let turns = '';
  let lastRole: unknown;
  for (const message of messages) {
    if (!isRecord(message)) return undefined;
    for (const name in message) if (name !== 'role' && name !== 'content') return undefined;
    const { role, content } = message;
    if (typeof content !== 'string' || content.trim() === '') return undefined;
    const block = `{"text":${stringText(content)}}`;
    if (role === 'system' || role === 'developer') {
      if (turns !== '') return undefined;
      system += system === '' ? block : `,${block}`;
    } else if (turns !== '' && role === lastRole) turns += `,${block}`;
    // Converse wants a user turn first.
    else if (role === 'user') turns += `${turns === '' ? '' : ']},'}{"role":"user","content":[${block}`;
    else if (role === 'assistant' && turns !== '') turns += `]},{"role":"assistant","content":[${block}`;
    else return undefined;
    if (turns !== '') lastRole = role;
  }
  // `anyBodyOf` would remove white space from a last assistant turn.
  if (lastRole !== 'user') return undefined;
  return system === '' ? `${turns}]}]` : `${turns}]}],"system":[${system}]`;
}

/** A comma and the member `inferenceConfig`; '' without one. Undefined as in `plainBodyOf`. */
function plainInferenceOf(body: UnsignedCall['body'], { claude }: ModelFacts): string | undefined {
  const { max_tokens: oldMaxTokens, max_completion_tokens: newMaxTokens, temperature, top_p: topP } = body;
  const maxTokens = newMaxTokens ?? oldMaxTokens;
  if (!isAbsentOr(oldMaxTokens, Number.isSafeInteger) || !isAbsentOr(newMaxTokens, Number.isSafeInteger))
    return undefined;
  if (temperature === undefined && topP === undefined)
    return maxTokens === undefined ? '' : `,"inferenceConfig":{"maxTokens":${maxTokens as number}}`;
  if (claude?.allowsSampling === false || !isAbsentOr(temperature, Number.isFinite)) return undefined;
  if (!isAbsentOr(topP, Number.isFinite) || Number(temperature ?? 0) > TEMPERATURE_MAX) return undefined;
  const isWorthSending = (value: unknown): boolean =>
    value !== undefined && (claude === undefined || value !== CLAUDE_SAMPLING_DEFAULT);
  if (claude?.hasOneSampler === true && isWorthSending(temperature) && isWorthSending(topP)) return undefined;
  const inference = [
    ...(maxTokens === undefined ? [] : [`"maxTokens":${maxTokens as number}`]),
    ...(isWorthSending(temperature) ? [`"temperature":${temperature as number}`] : []),
    ...(isWorthSending(topP) ? [`"topP":${topP as number}`] : []),
  ];
  return inference.length === 0 ? '' : `,"inferenceConfig":{${inference.join(',')}}`;
}

/** False for null: only `anyBodyOf` reads null as absent. */
function isAbsentOr(value: unknown, isValid: (value: unknown) => boolean): boolean {
  return value === undefined || isValid(value);
}
