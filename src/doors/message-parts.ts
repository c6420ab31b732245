/**
 * Reads the texts and the tool calls of a message of a chat completion, or of a delta of one, in which
 * servers of OpenAI's kind differ; joins messages of the system, which some of them want as one, and writes
 * the thoughts that some want back. The stream writers of Messages and Responses call it, and their `toChat`.
 * No I/O; upstream worker, or for `toChat` a counter thread if the body is large.
 *
 *     DeepSeek, vLLM, SGLang   thoughts in `reasoning_content`
 *     OpenRouter, Groq         in `reasoning`
 *     Mistral                  in `content`, which is a list then: parts of type `thinking`, whose `thinking`
 *                              is a list of texts, before those of type `text` (docs.mistral.ai, page
 *                              "Reasoning", read 2026-11). A stream goes on with plain texts after them
 *
 *     DashScope, DeepSeek         repeat id and name of a call as empty texts with each piece; SGLang as null
 *     Command-A on vLLM, vmlx     send the name after the first piece
 *     lmdeploy                    gives every call the index 0
 *     others                      repeat id and name; send whole calls without an index, or without an id
 *
 * Must hold: no text is both content and a thought, and no text of the system is lost
 * (test/unit/doors/message-parts.test.ts); the pieces of one call stay one call, and two calls stay two
 * (test/unit/doors/messages/messages-dialect.test.ts, test/unit/doors/responses/response-stream.test.ts).
 */
import { isRecord, type Members } from '../core/json.js';

const ownText = (part: Members): unknown => part.text;
const thoughtIn = (part: Members): unknown => (part.type === 'thinking' ? textOf(part.thinking) : undefined);

/** A text, or the joined texts of a list of parts; those of thoughts are not among them. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return joined(content, ownText);
}

/** The thoughts; empty if there are none. */
export function thoughtsOf({ reasoning_content: thoughts, reasoning, content }: Members): string {
  if (typeof thoughts === 'string' && thoughts !== '') return thoughts;
  if (typeof reasoning === 'string' && reasoning !== '') return reasoning;
  return joined(content, thoughtIn);
}

/**
 * The `reasoning_content` of an assistant's message for a server that wants thoughts back. It is never empty:
 * such servers refuse a message without thoughts, also one of another model, and some take an empty text for
 * none.
 */
export function thoughtsBackOf(thoughts: string): string {
  return thoughts === '' ? ' ' : thoughts;
}

/**
 * Joins the leading messages of the system, for a server behind OpenAI's protocol: templates of Qwen, Mistral
 * and others raise an error at a second one, or leave it out. One that has other parts than texts ends them;
 * later ones stay in place. Changes the first, which so keeps its origin (callers-path.ts).
 */
export function withOneSystem(messages: readonly unknown[]): readonly unknown[] {
  const end = messages.findIndex((message) => !isSystemText(message));
  const count = end < 0 ? messages.length : end;
  if (count < 2) return messages;
  const heads = messages.slice(0, count) as Members[];
  const texts = heads.flatMap(({ content }) =>
    typeof content === 'string' ? content : (content as readonly Members[]).map(ownText),
  );
  const content = texts.filter((text) => text !== '').join('\n\n');
  return [Object.assign(heads[0]!, { content }), ...messages.slice(count)];
}

function isSystemText(message: unknown): boolean {
  if (!isRecord(message) || message.role !== 'system') return false;
  const { content } = message;
  if (!Array.isArray(content)) return typeof content === 'string';
  return (content as unknown[]).every((part) => isRecord(part) && part.type === 'text');
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

/** What the pieces of a call have told of it so far. */
export interface CallSoFar {
  id: string | undefined;
  name: string | undefined;
  /** All of its arguments. */
  json: string;
}

export interface CallPiece extends Readonly<CallSoFar> {
  readonly index: number | undefined;
}

/** `call`: an element of `tool_calls` of a delta, or of a whole message. */
export function pieceOf(call: Members): CallPiece {
  const called = isRecord(call.function) ? call.function : isRecord(call.custom) ? call.custom : {};
  const given = called.arguments ?? called.input;
  return {
    id: textIn(call.id),
    name: textIn(called.name),
    json: isRecord(given) ? JSON.stringify(given) : (textIn(given) ?? ''),
    index: typeof call.index === 'number' ? call.index : undefined,
  };
}

/**
 * Whether a piece begins a call other than `open`, which has the same index, or none. A new id at the same
 * index does so only together with a name.
 */
export function isOtherCall({ id, name, index }: CallPiece, open: CallSoFar): boolean {
  if (id !== undefined && open.id !== undefined)
    return id !== open.id && (name !== undefined || index === undefined);
  return index === undefined && open.id === undefined && name !== undefined && open.name !== undefined;
}

export function addPiece(open: CallSoFar, piece: CallPiece): void {
  open.id ??= piece.id;
  open.name ??= piece.name;
  open.json += piece.json;
}

/** Whether a client can be told of the call. An id that has not come by the first arguments does not come. */
export function canBegin({ id, name, json }: CallSoFar): boolean {
  return name !== undefined && (id !== undefined || json !== '');
}

function textIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
