/**
 * Finds the texts of messages and responses, whose tokens are counted. prompt-text.ts finds the texts of
 * requests, with functions of this file. token-count.ts uses both files in counter threads and, for
 * estimates, in upstream workers; transcript.ts keeps the texts of a stream, and usage-meter.ts asks whether
 * there are any, in upstream workers. Pure.
 *
 * Must hold: no input makes this code throw, because input is untrusted: a value without the expected form is
 * skipped (test/unit/upstream/chat-text.test.ts, test/unit/upstream/chat-text.streams.test.ts).
 */
import { isRecord, parsedJson } from '../core/json.js';
import { isTextDelta, StreamedKinds } from '../doors/responses/streamed-kinds.js';
import { forEachEvent } from '../protocol/sse.js';

/**
 * Where texts are, in a message, in a delta of a stream, and in a choice itself:
 *
 *     where                                    what is there                          who sends it
 *     content, refusal                         a text, or parts of text and thinking  OpenAI; Mistral: parts
 *     reasoning_content, reasoning, thinking,  thoughts, sometimes under two names:   DeepSeek, LiteLLM, vLLM
 *       reasoning_details, thinking_blocks       the longest of them counts             and OpenRouter
 *     audio.transcript                         what was spoken                        OpenAI
 *     tool_calls[].function, function_call     name; arguments, a text or an object   OpenAI; some: an object
 *     tool_calls[].custom                      name, input                            OpenAI
 *     text of the choice                       a text; beside the same `content`      some servers; Together
 *                                                it does not count again
 *
 * In the Responses API texts are in the items of `output`, and in `delta` of events whose type ends with
 * `.delta`. Some servers stream no kind of item, or only messages, and send calls of functions whole. Then
 * texts of that kind are in events whose type ends with `.done`, or in the items that are done. The Messages
 * API is read as if each of its blocks were a choice.
 */
export const TEXT_MEMBERS = ['content', 'refusal'] as const;
export const THOUGHT_FIELDS = [
  'reasoning_content',
  'reasoning',
  'thinking',
  'reasoning_details',
  'thinking_blocks',
] as const;
export const PART_FIELDS = ['text', 'refusal', 'thinking', 'summary'] as const;
/** Where texts are in an item of the Responses API. */
const ITEM_FIELDS = ['summary', 'content', 'name', 'arguments', 'input'] as const;
/** Levels that are read: a list of parts, a part, the list of parts in it, a part in that list. */
export const PARTS_DEPTH_MAX = 4;

/**
 * The texts of a non-streamed response, one for each field of each choice, or of each item of the output.
 * Each has a key as in StreamTexts, but that of an item lacks the id; two texts may have one key.
 */
export function keyedResponseTexts(text: string): [key: string, text: string][] {
  const texts: [string, string][] = [];
  const response = parsedJson(text);
  for (const [index, choice] of choicesOf(response)) {
    visitChoice(choice, choice.message ?? choice.delta, (key, text) => texts.push([keyOf(index, key), text]));
  }
  if (isRecord(response) && Array.isArray(response.output))
    for (const item of (response.output as unknown[]).filter(isRecord))
      visitItem(item, (key, text) => texts.push([key, text]));
  return texts;
}

function visitItem(item: Record<string, unknown>, visit: Visit): void {
  const kind = item.type === 'reasoning' ? 'reasoning.' : '';
  for (const name of ITEM_FIELDS) visitText(`${kind}${name}`, item[name], visit);
}

/**
 * The text so far of each field of each choice of a stream. Pieces are joined, because an event may end
 * inside a token. The keys:
 *
 *     0/content, 0/thoughts, 0/text           of a choice, or of a block of the Messages API, by its index
 *     0/tool_calls/1/arguments                of a tool call, by its index
 *     msg_1/response.output_text.delta        of events of the Responses API: the item's id, the event's type
 *     fc_1/name                               of the event by which an item begins, else of the item
 *     msg_1/content, rs_1/reasoning.summary   of an item that is done; `reasoning.` if it is of that type
 *     item-0/content                          of one without an id, by its position in the output
 *
 * `keyOf` writes keys; `partsOfKey` and THOUGHTS_KEY below read them, and CHOICE_TEXT of echoed-prompt.ts.
 */
export type StreamTexts = Map<string, string>;

/** `owner`: a choice's index or an item's id, which may have a `/`. `name` has none, but for tool calls. */
function keyOf(owner: string, name: string): string {
  return `${owner}/${name}`;
}

/** The owner and the name in a key; of a tool call's key the owner has all but the last word. */
function partsOfKey(key: string): readonly [owner: string, name: string] {
  const slash = key.lastIndexOf('/');
  return [key.slice(0, slash), key.slice(slash + 1)];
}

/** Matches the key of a text that is no part of the answer: thoughts, or a summary of them. */
const THOUGHTS_KEY = /(?:^|\/)(?:thoughts|reasoning\.\w+|response\.reasoning\w*\.\w+)$/;

/** Whether the text of that key (StreamTexts) is more than thoughts. */
export function isOfAnswer(key: string): boolean {
  return !THOUGHTS_KEY.test(key);
}

/** A text of more pieces is not compared: joining 14,000 each time, in an event of 1 MB, took 1.9 s. */
const REPEATED_PIECES_MAX = 8;

/**
 * Appends the texts of whole events to `texts`; reads no further event once texts and new keys have added
 * `charsMax` characters. Returns how many it has added of both, and the UTF-8 length of the events that it
 * has read. Keys count, because an upstream may make an id as long as an event.
 */
export function addStreamTexts(
  texts: StreamTexts,
  events: Buffer,
  charsMax: number,
): { readonly chars: number; readonly keyChars: number; readonly bytes: number } {
  const pieces = new Map<string, string[]>();
  const items = new CountedItems(texts);
  let chars = 0;
  let keyChars = 0;
  let bytes = 0;
  forEachEvent(events, (_start, end, data) => {
    if (chars + keyChars >= charsMax) return;
    bytes = end;
    if (data === undefined) return;
    const event = parsedJson(data);
    const add = (key: string, text: string, mayRepeat = false): void => {
      const pieceList = pieces.get(key);
      if (mayRepeat && (pieceList?.length ?? 0) <= REPEATED_PIECES_MAX) {
        if (text === (texts.get(key) ?? '') + (pieceList?.join('') ?? '')) return;
      }
      chars += text.length;
      if (pieceList === undefined) {
        if (!texts.has(key)) keyChars += key.length;
        pieces.set(key, [text]);
      } else pieceList.push(text);
    };
    for (const [index, choice] of choicesOf(event)) {
      visitChoice(choice, choice.delta ?? choice.message, (field, text, mayRepeat) =>
        add(keyOf(index, field), text, mayRepeat),
      );
    }
    if (isRecord(event)) visitResponsesEvent(event, add, items);
  });
  // The pieces are joined first, because V8 would keep 50 bytes for each piece that is appended alone.
  for (const [key, pieceList] of pieces) texts.set(key, (texts.get(key) ?? '') + pieceList.join(''));
  return { chars, keyChars, bytes };
}

/** Reads events and non-streamed responses of the Messages API as choices: one for each block. */
function messageChoicesOf(value: Record<string, unknown>): [string, Record<string, unknown>][] {
  if (value.type === 'message' && Array.isArray(value.content))
    return (value.content as unknown[])
      .filter(isRecord)
      .map((block, position) => [String(position), { message: messageOf(block) }]);
  const block = value.type === 'content_block_start' ? value.content_block : value.delta;
  const isBlock = value.type === 'content_block_start' || value.type === 'content_block_delta';
  return isBlock && isRecord(block) ? [[indexOr('0', value.index), { message: messageOf(block) }]] : [];
}

/** A block, or a delta of one, as a message of a chat completion. */
function messageOf({ text, thinking, name, input, partial_json: json }: Record<string, unknown>): object {
  // In a stream a block begins with the input `{}`; deltas follow.
  const isEmpty = isRecord(input) && Object.keys(input).length === 0;
  return { content: text, thinking, function_call: { name, arguments: json ?? (isEmpty ? '' : input) } };
}

/** Some servers give their chunks a `type` of their own, so what has choices is read as a chat completion. */
function choicesOf(value: unknown): [string, Record<string, unknown>][] {
  if (!isRecord(value)) return [];
  if (!Array.isArray(value.choices)) return typeof value.type === 'string' ? messageChoicesOf(value) : [];
  return (value.choices as unknown[])
    .filter(isRecord)
    .map((choice, position) => [indexOr(String(position), choice.index), choice]);
}

/** Only a number becomes text: String throws for an object whose `toString` is no function. */
function indexOr(other: string, index: unknown): string {
  return typeof index === 'number' ? String(index) : other;
}

/**
 * Gets a text, or a piece of one. Pieces of one text of a stream have the same `key`. `mayRepeat`: a piece
 * that equals the text so far is no further piece, as of the names of some tool calls (visitCalled).
 */
type Visit = (key: string, text: string, mayRepeat?: boolean) => void;

/** What was counted of a Responses stream, found in the keys of `texts`: a stream may be read in parts. */
class CountedItems {
  readonly kinds = new StreamedKinds();
  /** Items that are done, by their ids. */
  readonly #ids = new Set<string>();
  /** Items whose name has come, with the event by which an item begins or with the item. */
  readonly #named = new Set<string>();

  constructor(texts: StreamTexts) {
    for (const key of texts.keys()) {
      const [owner, name] = partsOfKey(key);
      if (name.endsWith('.delta')) this.kinds.countDelta(name);
      else if (name.endsWith('.done')) this.kinds.isDoneNew(name);
      else (name === 'name' ? this.#named : this.#ids).add(owner);
    }
  }

  /** Whether an item that is done counts. */
  isNew(id: string, type: unknown): boolean {
    if (this.#ids.has(id) || !this.kinds.isItemNew(type)) return false;
    this.#ids.add(id);
    return true;
  }

  /** Whether the name of an item counts. */
  isNameNew(id: string): boolean {
    if (this.#named.has(id)) return false;
    this.#named.add(id);
    return true;
  }
}

/** An event of the Responses API: a delta, a text that is done, the name of a call, items that are done. */
function visitResponsesEvent(event: Record<string, unknown>, visit: Visit, items: CountedItems): void {
  const { type, item_id: id, item, response } = event;
  if (typeof type !== 'string' || !type.startsWith('response.')) return;
  if (isTextDelta(type)) {
    items.kinds.countDelta(type);
    visitText(keyOf(idIn(id), type), event.delta, visit);
    return;
  }
  const doneText = event.text ?? event.refusal ?? event.arguments ?? event.input;
  if (typeof doneText === 'string' && type.endsWith('.done')) {
    if (items.kinds.isDoneNew(type)) visitText(keyOf(idIn(id), type), doneText, visit);
    return;
  }
  if (type === 'response.output_item.added' && isRecord(item)) {
    const itemId = itemIdOf(item, event.output_index);
    if (typeof item.name === 'string' && item.name !== '' && items.isNameNew(itemId))
      visit(keyOf(itemId, 'name'), item.name);
  }
  if (type === 'response.output_item.done') visitDoneItem(item, event.output_index, visit, items);
  else if (isRecord(response) && Array.isArray(response.output))
    for (const [position, doneItem] of (response.output as unknown[]).entries())
      visitDoneItem(doneItem, position, visit, items);
}

function visitDoneItem(item: unknown, position: unknown, visit: Visit, items: CountedItems): void {
  if (!isRecord(item)) return;
  const id = itemIdOf(item, position);
  if (!items.isNew(id, item.type)) return;
  // Mostly the name came as the item began, by `response.output_item.added`.
  const counted = item.name === undefined || items.isNameNew(id) ? item : { ...item, name: undefined };
  visitItem(counted, (name, text) => visit(keyOf(id, name), text));
}

/** An item without an id is known by its position in the output. */
function itemIdOf({ id }: Record<string, unknown>, position: unknown): string {
  return typeof id === 'string' && id !== '' ? id : `item-${indexOr('0', position)}`;
}

function idIn(id: unknown): string {
  return typeof id === 'string' ? id : '';
}

/** Calls `visit` for each text of a choice, whose message or delta is `message`. */
function visitChoice(choice: Record<string, unknown>, message: unknown, visit: Visit): void {
  if (isRecord(message)) visitMessage(message, visit);
  if (!isRecord(message) || choice.text !== message.content) visitText('text', choice.text, visit);
}

/** As visitChoice, for a message or a delta alone. MESSAGE of prompt-text.ts names all that is read here. */
export function visitMessage(message: Record<string, unknown>, visit: Visit): void {
  for (const field of TEXT_MEMBERS) visitText(field, message[field], visit);
  visitThoughts(message, visit);
  if (isRecord(message.audio)) visitText('audio', message.audio.transcript, visit);
  visitCalled('function_call', message.function_call, visit);
  if (!Array.isArray(message.tool_calls)) return;
  for (const [position, call] of (message.tool_calls as unknown[]).entries()) {
    if (!isRecord(call)) continue;
    const key = `tool_calls/${typeof call.index === 'number' ? call.index : position}`;
    visitCalled(key, call.function, visit);
    visitCalled(key, call.custom, visit);
  }
}

function visitText(key: string, value: unknown, visit: Visit, mayRepeat = false): void {
  if (value === undefined || value === null) return;
  const text = textsIn(value).join('');
  if (text !== '') visit(key, text, mayRepeat);
}

/** Visits the longest of THOUGHT_FIELDS: some servers send the same thoughts under two names. */
function visitThoughts(message: Record<string, unknown>, visit: Visit): void {
  let longest = '';
  for (const field of THOUGHT_FIELDS) {
    if (message[field] === undefined || message[field] === null) continue;
    const text = textsIn(message[field]).join('');
    if (text.length > longest.length) longest = text;
  }
  if (longest !== '') visit('thoughts', longest);
}

function visitCalled(key: string, called: unknown, visit: Visit): void {
  if (!isRecord(called)) return;
  const input = called.arguments ?? called.input;
  // Of a tool that `tool_choice` names, older vLLM repeats the name with each piece of the arguments.
  visitText(`${key}/name`, called.name, visit, typeof input === 'string' && input !== '');
  visitText(`${key}/arguments`, isRecord(input) ? jsonOf(input) : input, visit);
}

/** The JSON text of arguments that came as an object; empty if they are nested too deeply to be written. */
function jsonOf(input: object): string {
  try {
    return JSON.stringify(input);
  } catch (error) {
    if (error instanceof RangeError) return '';
    throw error;
  }
}

/** The texts in a text, a part or a list of parts, down to `depth` levels; empty for any other value. */
export function textsIn(value: unknown, depth = PARTS_DEPTH_MAX): string[] {
  if (typeof value === 'string') return [value];
  if (depth === 0) return [];
  if (Array.isArray(value)) return (value as unknown[]).flatMap((part) => textsIn(part, depth - 1));
  return isRecord(value) ? PART_FIELDS.flatMap((field) => textsIn(value[field], depth - 1)) : [];
}
