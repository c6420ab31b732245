/**
 * The texts in a chat-completion request and its answer that become tokens. Nothing is trusted: what has not the expected
 * form is passed over. Pure; counter thread, or upstream worker when the counter has failed.
 */
import { forEachEvent } from '../protocol/sse.js';
import { isRecord, parsedJson } from './json-value.js';

export interface Prompt {
  readonly messages: number;
  readonly names: number;
  readonly texts: readonly string[];
  /** Whether there are parts whose tokens no text tells: images, audio, files. */
  readonly beyondText: boolean;
}

/** Fields of a message or of a stream's delta whose text the model read or wrote. */
const TEXT_FIELDS = ['content', 'reasoning_content', 'reasoning', 'refusal'] as const;

/** Texts of a request: role, name, content, tool calls of each message, and the tools' definitions as the JSON they came in. */
export function promptOf(body: string): Prompt {
  const request = parsedJson(body);
  if (!isRecord(request)) return { messages: 0, names: 0, texts: [body], beyondText: false };
  const texts: string[] = [];
  let names = 0;
  let beyondText = false;
  const messages = Array.isArray(request.messages) ? (request.messages as unknown[]) : [];
  for (const message of messages) {
    if (!isRecord(message)) continue;
    if (typeof message.role === 'string') texts.push(message.role);
    if (typeof message.name === 'string') {
      names++;
      texts.push(message.name);
    }
    if (Array.isArray(message.content)) {
      for (const part of message.content as unknown[]) {
        const text = isRecord(part) ? (part.text ?? part.refusal) : undefined;
        if (typeof text === 'string') texts.push(text);
        else beyondText = true;
      }
    }
    collectWritten(message, (_key, text) => texts.push(text));
  }
  for (const definitions of [request.tools, request.functions]) {
    if (Array.isArray(definitions) && definitions.length > 0) texts.push(JSON.stringify(definitions));
  }
  return { messages: messages.length, names, texts, beyondText };
}

/** Texts of a whole answer, one for each field of each choice. */
export function answerTexts(answer: string): string[] {
  const texts: string[] = [];
  for (const [, choice] of choicesOf(parsedJson(answer))) {
    if (isRecord(choice.message)) collectWritten(choice.message, (_key, text) => texts.push(text));
  }
  return texts;
}

/** The text of each field of each choice of a stream so far: put together, because a token may be cut by a chunk's end. */
export type StreamTexts = Map<string, string>;

/** How much of a stream's events was taken. */
export interface TakenTexts {
  readonly chars: number;
  /** UTF-8 length of the events whose text was taken. */
  readonly bytes: number;
}

/** Puts the texts of whole events behind those in `texts`; takes no further event once `charsMax` characters are there. */
export function addStreamTexts(texts: StreamTexts, events: Buffer, charsMax: number): TakenTexts {
  const pieces = new Map<string, string[]>();
  let chars = 0;
  let bytes = 0;
  forEachEvent(events, (_start, end, data) => {
    if (chars >= charsMax) return;
    bytes = end;
    if (data === undefined) return;
    for (const [index, choice] of choicesOf(parsedJson(data))) {
      if (!isRecord(choice.delta)) continue;
      collectWritten(choice.delta, (key, text) => {
        chars += text.length;
        const place = `${index}/${key}`;
        const list = pieces.get(place);
        if (list === undefined) pieces.set(place, [text]);
        else list.push(text);
      });
    }
  });
  // Joined, the words are one string; added one by one each would take 50 bytes more.
  for (const [place, list] of pieces) texts.set(place, (texts.get(place) ?? '') + list.join(''));
  return { chars, bytes };
}

function choicesOf(value: unknown): [string, Record<string, unknown>][] {
  if (!isRecord(value) || !Array.isArray(value.choices)) return [];
  return (value.choices as unknown[])
    .filter(isRecord)
    .map((choice, place) => [String(typeof choice.index === 'number' ? choice.index : place), choice]);
}

/** Calls `visit` for the text fields and the tool calls of a message or delta; `key` is the same for pieces of one text. */
function collectWritten(message: Record<string, unknown>, visit: (key: string, text: string) => void): void {
  for (const field of TEXT_FIELDS) {
    const text = message[field];
    if (typeof text === 'string' && text !== '') visit(field, text);
  }
  visitFunction('function_call', message.function_call, visit);
  if (!Array.isArray(message.tool_calls)) return;
  for (const [place, call] of (message.tool_calls as unknown[]).entries()) {
    if (!isRecord(call)) continue;
    const index = typeof call.index === 'number' ? call.index : place;
    visitFunction(`tool_calls/${index}`, call.function, visit);
  }
}

function visitFunction(key: string, called: unknown, visit: (key: string, text: string) => void): void {
  if (!isRecord(called)) return;
  if (typeof called.name === 'string') visit(`${key}/name`, called.name);
  if (typeof called.arguments === 'string') visit(`${key}/arguments`, called.arguments);
}
