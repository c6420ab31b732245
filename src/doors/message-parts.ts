/**
 * What servers with OpenAI's protocol do differently in chat completions. It reads texts, thoughts and tool
 * calls of a message or a delta for message-stream.ts and response-stream.ts. For the two to-chat.ts it joins
 * system messages, and writes earlier thoughts as some servers want them. No I/O; upstream worker, or for
 * to-chat.ts a counter thread if the body is large.
 *
 * Where servers put thoughts:
 *
 *     DeepSeek, vLLM, SGLang   thoughts in `reasoning_content`
 *     OpenRouter, Groq         in `reasoning`
 *     Mistral                  in `content`, which is a list then: parts of type `thinking`, whose `thinking`
 *                              is a list of texts, before those of type `text` (docs.mistral.ai, page
 *                              "Reasoning", read 2026-11). A stream goes on with plain texts after them
 *
 * How the pieces of a tool call come, of which OpenAI sends id and name with the first alone:
 *
 *     DashScope, DeepSeek         repeat id and name as empty texts with each piece; SGLang as null
 *     Command-A on vLLM, vmlx     send the name after the first piece
 *     lmdeploy                    gives every tool call the index 0
 *     others                      repeat id and name; send whole calls without an index, or without an id
 *
 * Must hold: no text is both content and a thought, and no system text is lost
 * (test/unit/doors/message-parts.test.ts); the pieces of one tool call stay one, and two stay two
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
 * Joins the system messages before the first other message, for a server behind OpenAI's protocol: templates
 * of Qwen, Mistral and others raise an error at a second one, or leave it out. A system message with other
 * parts than texts counts as another message; system messages after it stay in place. Messages and parts
 * become paragraphs of one text; they have no other members, since the doors made them for such a server, and
 * `developer` is `system` there already. Changes the first message, which so keeps its origin
 * (callers-path.ts).
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

/** A tool call, as far as its pieces have come. */
export interface CallSoFar {
  id: string | undefined;
  name: string | undefined;
  /** All of its arguments. */
  json: string;
}

interface CallPiece extends Readonly<CallSoFar> {
  readonly index: number | undefined;
}

/**
 * `call`: an element of `tool_calls` of a delta, or of a whole message. Its arguments may be an object: then
 * they are whole.
 */
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
 * Whether a piece begins a tool call other than `open`. They have the same index, or the piece has none. If
 * both have ids, a new id does so, but at the same index only together with a name. If `open` has no id, a
 * second name does so without an index. Any other piece belongs to `open`: servers repeat its name.
 */
export function isOtherCall({ id, name, index }: CallPiece, open: CallSoFar): boolean {
  if (id !== undefined && open.id !== undefined)
    return id !== open.id && (name !== undefined || index === undefined);
  return index === undefined && open.id === undefined && name !== undefined && open.name !== undefined;
}

/** Adds a piece that `isOtherCall` gives to `open`: its first id and name stay. */
export function addPiece(open: CallSoFar, piece: CallPiece): void {
  open.id ??= piece.id;
  open.name ??= piece.name;
  open.json += piece.json;
}

/**
 * Whether a client can be told of the tool call: its name is known, and its id, unless arguments have come
 * without one: then none comes.
 */
export function canBegin({ id, name, json }: CallSoFar): boolean {
  return name !== undefined && (id !== undefined || json !== '');
}

function textIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
