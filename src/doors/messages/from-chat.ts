/**
 * Translates a chat completion into a response of Anthropic's Messages API. messages-dialect.ts calls
 * `fromChat` once for each response that is not streamed. message-stream.ts uses the exported functions
 * below it for streams. Pure; upstream worker.
 *
 * Must hold: blocks, usage and `stop_reason` are those of a stream with the same contents
 * (test/unit/doors/messages/messages-dialect.test.ts, "the joined pieces of a stream are the whole
 * response").
 */
import { exactJson, exactJsonText } from '../../core/exact-json.js';
import { isRecord, type Members, membersOf } from '../../core/json.js';
import { ProviderError } from '../../providers/provider.js';
import type { DoorCall } from '../door.js';
import { isCutBy } from '../finish-reason.js';
import { textOf, thoughtsOf } from '../message-parts.js';

/** As `Translator.fromChat` (door.ts). Throws also if the arguments of a tool are no JSON object. */
export function fromChat(response: Members, call: DoorCall): string {
  const choice: unknown = Array.isArray(response.choices) ? response.choices[0] : undefined;
  const message = isRecord(choice) ? choice.message : undefined;
  if (!isRecord(choice) || !isRecord(message)) throw ProviderError.invalid('no message');
  const content: Members[] = [...thinkingBlocksIn(message)];
  const thoughts = thoughtsOf(message);
  // If there are blocks, `reasoning_content` has their text a second time.
  if (content.length === 0 && thoughts !== '')
    content.push({ type: 'thinking', thinking: thoughts, signature: '' });
  const text = textOrRefusalOf(message);
  if (text !== '') content.push({ type: 'text', text });
  const { tool_calls: given } = message;
  const toolCalls = Array.isArray(given) ? (given as unknown[]).filter(isRecord) : [];
  toolCalls.forEach((toolCall, position) => {
    const { name: givenName, arguments: args } = membersOf(toolCall.function);
    // Empty if the upstream gave no name, as in a stream: clients rely on the member.
    const name = typeof givenName === 'string' ? givenName : '';
    const input = inputOf(args, isCutBy(choice.finish_reason));
    content.push({ type: 'tool_use', id: toolIdOf(toolCall.id, position, call), name, input });
  });
  // By exactJsonText, because exactJson made each `input` (`inputOf`).
  return exactJsonText({
    id: messageIdOf(call),
    type: 'message',
    role: 'assistant',
    model: call.model,
    content,
    stop_reason: stopReasonOf(choice.finish_reason, toolCalls.length > 0, hasRefusal(message)),
    stop_sequence: null,
    usage: usageOf(response.usage),
  });
}

/**
 * `args`: a text, or an object at some servers. Without any the input is empty, as it is in a stream. If the
 * response was cut (`isCutBy`), so are the arguments: their input is empty, as Anthropic sends such a call.
 */
function inputOf(args: unknown, isCut: boolean): Members {
  const given = args ?? '';
  // Undefined if the text is no JSON.
  const input = typeof given !== 'string' ? given : given.trim() === '' ? {} : exactJson(given);
  if (isRecord(input)) return input;
  if (isCut) return {};
  throw ProviderError.invalid('arguments of a tool are no JSON object');
}

/** `stop_reason` by `finish_reason`, of responses that were not cut. */
const STOP_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
  ['content_filter', 'refusal'],
]);

/**
 * Returns the `stop_reason`. For `stop`, an unknown reason or none, the contents decide: some servers end a
 * message with tool calls by `stop`, and OpenAI ends a refusal by it. A client that asked for JSON knows a
 * refusal by the reason alone. A chat completion does not say whether one of the caller's stop sequences
 * ended it, so such an end becomes `end_turn`.
 */
export function stopReasonOf(finishReason: unknown, hasToolCalls: boolean, isRefusal: boolean): string {
  if (isCutBy(finishReason)) return 'max_tokens';
  return STOP_REASONS.get(finishReason) ?? (hasToolCalls ? 'tool_use' : isRefusal ? 'refusal' : 'end_turn');
}

/**
 * `usage` of a chat completion in Anthropic's form, whose `input_tokens` excludes cached tokens. The inverse
 * of MessageUsage in providers/anthropic/response.ts (test/unit/doors/messages/messages-dialect.test.ts).
 */
export function usageOf(usage: unknown): Record<string, unknown> {
  const report = membersOf(usage);
  const prompt = membersOf(report.prompt_tokens_details);
  const completion = membersOf(report.completion_tokens_details);
  const cachedTokens = countOf(prompt.cached_tokens);
  const cacheWriteTokens = countOf(prompt.cache_write_tokens);
  const cacheWrite1hTokens = Math.min(cacheWriteTokens, countOf(prompt.cache_write_1h_tokens));
  return {
    input_tokens: Math.max(0, countOf(report.prompt_tokens) - cachedTokens - cacheWriteTokens),
    cache_creation_input_tokens: cacheWriteTokens,
    cache_read_input_tokens: cachedTokens,
    cache_creation: {
      ephemeral_5m_input_tokens: cacheWriteTokens - cacheWrite1hTokens,
      ephemeral_1h_input_tokens: cacheWrite1hTokens,
    },
    output_tokens: countOf(report.completion_tokens),
    output_tokens_details: { thinking_tokens: countOf(completion.reasoning_tokens) },
  };
}

function countOf(value: unknown): number {
  return typeof value === 'number' && value > 0 ? value : 0;
}

export function messageIdOf({ requestId }: DoorCall): string {
  return `msg_${requestId.replace(/^req_/, '')}`;
}

/** The id of a tool call, which is made here if the upstream gave none. `position`: in the message. */
export function toolIdOf(id: unknown, position: number, call: DoorCall): string {
  return typeof id === 'string' && id !== '' ? id : `toolu_${call.requestId}_${position}`;
}

/** This and the next functions read a message or a delta. */
export function textOrRefusalOf(message: Members): string {
  return textOf(message.content) || (hasRefusal(message) ? (message.refusal as string) : '');
}

export function hasRefusal({ refusal }: Members): boolean {
  return typeof refusal === 'string' && refusal !== '';
}

export function thinkingBlocksIn({ thinking_blocks: blocks }: Members): readonly Members[] {
  return Array.isArray(blocks) ? (blocks as unknown[]).filter(isRecord) : [];
}
