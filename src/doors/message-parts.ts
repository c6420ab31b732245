/**
 * Hides where servers with OpenAI's protocol have texts and thoughts in chat completions. from-chat.ts,
 * message-stream.ts and response-stream.ts read a message or a delta with this file. For requests the two
 * to-chat.ts join system messages, and write earlier thoughts as some servers want them. No I/O; upstream
 * worker, or for requests a counter thread if the body is large.
 *
 * Where servers put thoughts:
 *
 *     DeepSeek, vLLM, SGLang   thoughts in `reasoning_content`
 *     OpenRouter, Groq         in `reasoning`
 *     Mistral                  in `content`, which is a list then: parts of type `thinking`, whose `thinking`
 *                              is a list of texts, before those of type `text` (docs.mistral.ai, page
 *                              "Reasoning", read 2026-11). A stream goes on with plain texts after them
 *
 * Must hold: no text is both content and a thought, and no system text is lost.
 */
import { isRecord, type Members } from '../core/json.js';

// Readers of one part of a content, for `joined`. Each returns undefined for a part of another type.
const textIn = (part: Members): unknown => part.text;
const thoughtIn = (part: Members): unknown => (part.type === 'thinking' ? textOf(part.thinking) : undefined);

/** A string, or the joined texts of a list of parts, without thoughts. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return joined(content, textIn);
}

/** The thoughts of a message or delta; empty if there are none. */
export function thoughtsOf({ reasoning_content: thoughts, reasoning, content }: Members): string {
  if (typeof thoughts === 'string' && thoughts !== '') return thoughts;
  if (typeof reasoning === 'string' && reasoning !== '') return reasoning;
  return joined(content, thoughtIn);
}

/**
 * The `reasoning_content` of an assistant's message for a server that wants thoughts back. The result is
 * never empty: such servers reject a message without thoughts, even if another model wrote the message, and
 * some take an empty text for no thoughts.
 */
export function thoughtsBackOf(thoughts: string): string {
  return thoughts === '' ? ' ' : thoughts;
}

/**
 * Joins the system messages before the first other message, for a server with OpenAI's protocol: templates of
 * Qwen, Mistral and others raise an error at a second system message, or leave it out. One with other parts
 * than texts counts as another message. Messages and parts become paragraphs of one text. They have no other
 * members, since the doors made them for such a server, and `developer` is `system` there already. Changes
 * the first message itself, so that it keeps its origin (callers-path.ts).
 */
export function withOneSystem(messages: readonly unknown[]): readonly unknown[] {
  const otherIndex = messages.findIndex((message) => !isSystemText(message));
  const count = otherIndex < 0 ? messages.length : otherIndex;
  if (count < 2) return messages;
  const systemMessages = messages.slice(0, count) as Members[];
  const texts = systemMessages.flatMap(({ content }) =>
    typeof content === 'string' ? content : (content as readonly Members[]).map(textIn),
  );
  const content = texts.filter((text) => text !== '').join('\n\n');
  return [Object.assign(systemMessages[0]!, { content }), ...messages.slice(count)];
}

function isSystemText(message: unknown): boolean {
  if (!isRecord(message) || message.role !== 'system') return false;
  const { content } = message;
  if (!Array.isArray(content)) return typeof content === 'string';
  return (content as unknown[]).every((part) => isRecord(part) && part.type === 'text');
}

function joined(parts: unknown, textOfPart: (part: Members) => unknown): string {
  if (!Array.isArray(parts)) return '';
  let texts = '';
  for (const part of parts as unknown[]) {
    const text = isRecord(part) ? textOfPart(part) : undefined;
    if (typeof text === 'string') texts += text;
  }
  return texts;
}
