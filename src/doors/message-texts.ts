/**
 * Reads the texts of a message of a chat completion, or of a delta of one, in which servers differ. The
 * stream writers of Messages and Responses call it. Pure; upstream worker.
 *
 *     DeepSeek, vLLM, SGLang   thoughts in `reasoning_content`
 *     OpenRouter, Groq         in `reasoning`
 *     Mistral                  in `content`, which is a list then: parts of type `thinking`, whose `thinking`
 *                              is a list of texts, before those of type `text` (docs.mistral.ai, page
 *                              "Reasoning", read 2026-11). A stream goes on with plain texts after them
 *
 * Must hold: no text is both content and a thought (test/unit/doors/message-texts.test.ts).
 */
import { isRecord } from '../core/json.js';

type Members = Readonly<Record<string, unknown>>;

const textIn = (part: Members): unknown => part.text;
const thoughtIn = (part: Members): unknown => (part.type === 'thinking' ? textOf(part.thinking) : undefined);

/** A text, or the joined texts of a list of parts; those of thoughts are not among them. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return joined(content, textIn);
}

/** The thoughts; empty if there are none. */
export function thoughtsOf({ reasoning_content: thoughts, reasoning, content }: Members): string {
  if (typeof thoughts === 'string' && thoughts !== '') return thoughts;
  if (typeof reasoning === 'string' && reasoning !== '') return reasoning;
  return joined(content, thoughtIn);
}

function joined(parts: unknown, read: (part: Members) => unknown): string {
  if (!Array.isArray(parts)) return '';
  let all = '';
  for (const part of parts as unknown[]) {
    const text = isRecord(part) ? read(part) : undefined;
    if (typeof text === 'string') all += text;
  }
  return all;
}
