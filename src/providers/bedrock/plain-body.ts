/**
 * The body of Converse for the usual chat completion: texts of system, user and assistant, and a few numbers.
 * request.ts asks it first, because the way by objects takes five times as long. "Converse" of the Amazon
 * Bedrock API reference, 2026-11. Pure; upstream worker.
 *
 * Must hold: a body that is written here is the one that request.ts would write, and one that it would reject
 * is not (test/unit/providers/bedrock/plain-body.test.ts). Anything else is left to request.ts.
 */
import { isRecord, stringText } from '../../core/json.js';
import type { UnsignedCall } from '../provider.js';
import { CLAUDE_DEFAULT, TEMPERATURE_MAX, type ModelFacts } from './models.js';

/** Members of the chat completion that are read here, or that change nothing. */
const KNOWN: ReadonlySet<string> = new Set([
  'model',
  'stream',
  'stream_options',
  'user',
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
]);

/** Undefined if request.ts must write it. */
export function plainBodyOf({ body, settings }: UnsignedCall, facts: ModelFacts): string | undefined {
  for (const name in body) if (!KNOWN.has(name)) return undefined;
  if (settings.betas.length > 0 || !Array.isArray(body.messages)) return undefined;
  const conversation = conversationOf(body.messages);
  const inference = conversation === undefined ? undefined : inferenceOf(body, facts);
  return inference === undefined ? undefined : `{"messages":[${conversation!}${inference}}`;
}

/** The turns and what is after them: the end of their list, and `system` if there is one. */
function conversationOf(messages: readonly unknown[]): string | undefined {
  let system = '';
  let turns = '';
  let last: unknown;
  for (const message of messages) {
    if (!isRecord(message)) return undefined;
    for (const name in message) if (name !== 'role' && name !== 'content') return undefined;
    const { role, content } = message;
    if (typeof content !== 'string' || content.trim() === '') return undefined;
    const block = `{"text":${stringText(content)}}`;
    if (role === 'system' || role === 'developer') {
      if (turns !== '') return undefined;
      system += system === '' ? block : `,${block}`;
    } else if (role === last) turns += `,${block}`;
    // Converse wants a user turn first.
    else if (role === 'user') turns += `${turns === '' ? '' : ']},'}{"role":"user","content":[${block}`;
    else if (role === 'assistant' && turns !== '') turns += `]},{"role":"assistant","content":[${block}`;
    else return undefined;
    if (turns !== '') last = role;
  }
  // Of a last assistant turn white space is removed.
  if (last !== 'user') return undefined;
  return system === '' ? `${turns}]}]` : `${turns}]}],"system":[${system}]`;
}

/** The member `inferenceConfig` behind a comma, or nothing if it is empty. */
function inferenceOf(body: UnsignedCall['body'], { claude }: ModelFacts): string | undefined {
  const { max_tokens: former, max_completion_tokens: present, temperature, top_p: topP } = body;
  const maxTokens = present ?? former;
  if (!isAbsentOr(former, Number.isSafeInteger) || !isAbsentOr(present, Number.isSafeInteger))
    return undefined;
  if (temperature === undefined && topP === undefined)
    return maxTokens === undefined ? '' : `,"inferenceConfig":{"maxTokens":${maxTokens as number}}`;
  if (claude?.sampling === false || !isAbsentOr(temperature, Number.isFinite)) return undefined;
  if (!isAbsentOr(topP, Number.isFinite) || Number(temperature ?? 0) > TEMPERATURE_MAX) return undefined;
  const isSent = (value: unknown): boolean =>
    value !== undefined && (claude === undefined || value !== CLAUDE_DEFAULT);
  const inference = [
    ...(maxTokens === undefined ? [] : [`"maxTokens":${maxTokens as number}`]),
    ...(isSent(temperature) ? [`"temperature":${temperature as number}`] : []),
    ...(isSent(topP) ? [`"topP":${topP as number}`] : []),
  ];
  return inference.length === 0 ? '' : `,"inferenceConfig":{${inference.join(',')}}`;
}

function isAbsentOr(value: unknown, isGood: (value: unknown) => boolean): boolean {
  return value === undefined || isGood(value);
}
