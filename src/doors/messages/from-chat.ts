/**
 * A chat completion as a response of Anthropic's Messages API, and what message-stream.ts writes in the same
 * way: usage and stop reason. messages-dialect.ts and message-stream.ts call it. Pure; upstream worker.
 *
 * Must hold: `usageOf` is the inverse of anthropic/response.ts: Anthropic's `input_tokens` lacks the cached
 * tokens, which a chat completion includes (test/unit/doors/messages/messages-dialect.test.ts).
 */
import { exactJson, exactJsonText } from '../../core/exact-json.js';
import { isRecord } from '../../core/json.js';
import { ProviderError } from '../../providers/provider.js';
import type { DoorCall } from '../door.js';

type Members = Readonly<Record<string, unknown>>;

const STOPS: ReadonlyMap<unknown, string> = new Map([
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
  ['content_filter', 'refusal'],
]);

/** For `stop`, `hasCalls` decides, because some servers end a message with tool calls by `stop`. */
export function stopReasonOf(finish: unknown, hasCalls: boolean): string {
  return STOPS.get(finish) ?? (hasCalls ? 'tool_use' : 'end_turn');
}

/** `usage` of a chat completion in Anthropic's form, whose `input_tokens` lacks the cached tokens. */
export function usageOf(usage: unknown): Record<string, unknown> {
  const report = isRecord(usage) ? usage : {};
  const prompt = isRecord(report.prompt_tokens_details) ? report.prompt_tokens_details : {};
  const completion = isRecord(report.completion_tokens_details) ? report.completion_tokens_details : {};
  const read = countOf(prompt.cached_tokens ?? report.prompt_cache_hit_tokens);
  const written = countOf(prompt.cache_write_tokens);
  const written1h = Math.min(written, countOf(prompt.cache_write_1h_tokens));
  return {
    input_tokens: Math.max(0, countOf(report.prompt_tokens) - read - written),
    cache_creation_input_tokens: written,
    cache_read_input_tokens: read,
    cache_creation: { ephemeral_5m_input_tokens: written - written1h, ephemeral_1h_input_tokens: written1h },
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

/** The id that the caller names in a tool result. `position`: among the calls of the message. */
export function toolIdOf(id: unknown, position: number, call: DoorCall): string {
  return typeof id === 'string' && id !== '' ? id : `toolu_${call.requestId}_${position}`;
}

/** The text of the thinking in a message or a delta; empty if there is none. */
export function thoughtsIn({ reasoning_content: thoughts, reasoning }: Members): string {
  if (typeof thoughts === 'string') return thoughts;
  return typeof reasoning === 'string' ? reasoning : '';
}

/** The thinking blocks in a message or a delta, with their signatures. */
export function thinkingBlocksIn({ thinking_blocks: blocks }: Members): readonly Members[] {
  return Array.isArray(blocks) ? (blocks as unknown[]).filter(isRecord) : [];
}

/**
 * Returns the response of a call that is not streamed, as JSON text. `response`: the chat completion. Throws
 * a ProviderError if that has no message.
 */
export function fromChat(response: Members, call: DoorCall): string {
  const choice: unknown = Array.isArray(response.choices) ? response.choices[0] : undefined;
  const message = isRecord(choice) ? choice.message : undefined;
  if (!isRecord(choice) || !isRecord(message)) throw ProviderError.invalid('no message');
  const content: Members[] = [...thinkingBlocksIn(message)];
  const thoughts = thoughtsIn(message);
  if (content.length === 0 && thoughts !== '')
    content.push({ type: 'thinking', thinking: thoughts, signature: '' });
  const text = textIn(message.content) || (typeof message.refusal === 'string' ? message.refusal : '');
  if (text !== '') content.push({ type: 'text', text });
  const calls = Array.isArray(message.tool_calls) ? (message.tool_calls as unknown[]).filter(isRecord) : [];
  calls.forEach((one, position) => {
    const { name, arguments: given } = isRecord(one.function) ? one.function : ({} as Members);
    const input = typeof given !== 'string' ? given : given.trim() === '' ? {} : exactJson(given);
    if (!isRecord(input)) throw ProviderError.invalid('arguments of a tool are no JSON object');
    content.push({ type: 'tool_use', id: toolIdOf(one.id, position, call), name, input });
  });
  return exactJsonText({
    id: messageIdOf(call),
    type: 'message',
    role: 'assistant',
    model: call.model,
    content,
    stop_reason: stopReasonOf(choice.finish_reason, calls.length > 0),
    stop_sequence: null,
    usage: usageOf(response.usage),
  });
}

/** A text, or the texts of a list of parts. */
export function textIn(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return (content as unknown[])
    .map((part) => (isRecord(part) && typeof part.text === 'string' ? part.text : ''))
    .join('');
}
