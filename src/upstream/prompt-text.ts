/**
 * The texts in a chat-completion request that become tokens, read from its bytes. Nothing is trusted: what has not the expected form is
 * passed over. Pure; counter thread, or upstream worker when the counter has failed.
 *
 * Makes no tree of the request: of 6 MB of objects with names of their own JSON.parse took 0.8 s and 110 MB beside them.
 */
import { BodyError, BRACE, BRACKET, JsonReader, QUOTE } from '../protocol/json-reader.js';
import {
  collectWritten,
  PART_FIELDS,
  PARTS_DEPTH_MAX,
  TEXT_FIELDS,
  textsIn,
  THOUGHT_FIELDS,
} from './chat-text.js';

export interface Prompt {
  readonly messages: number;
  readonly names: number;
  readonly texts: readonly string[];
  /** Whether there are parts whose tokens no text tells: images, audio, files. */
  readonly beyondText: boolean;
}

const bytesOf = (names: readonly string[]): readonly Buffer[] => names.map((name) => Buffer.from(name));
const REQUEST = bytesOf(['messages', 'tools', 'functions']);
const MESSAGE_NAMES = [
  ...['role', 'name', 'audio', 'function_call', 'tool_calls'],
  ...TEXT_FIELDS,
  ...THOUGHT_FIELDS,
] as const;
const MESSAGE = bytesOf(MESSAGE_NAMES);
const PART = bytesOf(PART_FIELDS);
const AUDIO_NAMES = ['transcript'] as const;
const AUDIO = bytesOf(AUDIO_NAMES);
const TOOL_CALL_NAMES = ['function', 'custom'] as const;
const TOOL_CALL = bytesOf(TOOL_CALL_NAMES);
const CALLED_NAMES = ['name', 'arguments', 'input'] as const;
const CALLED = bytesOf(CALLED_NAMES);

const BLANK = 32;
const LETTER_N = 110;
/** Bytes that end a number. */
const NUMBER_ENDS = new Uint8Array(256);
for (const byte of Buffer.from(' \t\r\n,]}')) NUMBER_ENDS[byte] = 1;
/** Numbers that are written as JSON.stringify writes them. */
const PLAIN_NUMBER = /^(?:0|-?[1-9]\d{0,14})$/;

/**
 * Texts of a request: role, name, content, tool calls of each message, and the tools' definitions as JSON without blanks. What is no
 * JSON object is one text.
 */
export function promptOf(body: string | Uint8Array): Prompt {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  try {
    const reader = new PromptReader(bytes);
    if (reader.readRequest()) return reader;
  } catch (fault) {
    if (!(fault instanceof BodyError)) throw fault;
  }
  const whole = typeof body === 'string' ? body : Buffer.from(body).toString();
  return { messages: 0, names: 0, texts: [whole], beyondText: false };
}

/**
 * Reads the request in one pass. Methods read the value at hand; what they make of it has the members that chat-text.ts looks at, always
 * all of them, so that no caller can have a million kinds of objects made: undefined for null and nothing, false for what is no text.
 */
class PromptReader implements Prompt {
  readonly #reader: JsonReader;
  readonly texts: string[] = [];
  messages = 0;
  names = 0;
  beyondText = false;

  constructor(bytes: Uint8Array) {
    this.#reader = new JsonReader(bytes);
  }

  /** Whether it is one. */
  readRequest(): boolean {
    const reader = this.#reader;
    if (reader.space() !== BRACE) return false;
    const definitions: (string | undefined)[] = [];
    this.#object(REQUEST, (index) => {
      if (index === 0) this.#list(() => this.#takeMessage());
      else definitions[index] = this.#definitions();
    });
    for (const text of definitions) if (text !== undefined) this.texts.push(text);
    return reader.space() === -1;
  }

  #takeMessage(): void {
    // The body was bounded when it came; what was put in since is not counted.
    this.#reader.values = 0;
    this.messages++;
    const message: Record<string, unknown> = {};
    for (const name of MESSAGE_NAMES) message[name] = undefined;
    this.#object(MESSAGE, (index) => {
      const name = MESSAGE_NAMES[index]!;
      if (name === 'audio') message[name] = this.#record(AUDIO_NAMES, AUDIO, () => this.#parts());
      else if (name === 'function_call') message[name] = this.#called();
      else if (name === 'tool_calls')
        message[name] = this.#list(() => this.#record(TOOL_CALL_NAMES, TOOL_CALL, () => this.#called()));
      else message[name] = this.#parts();
    });
    const { role, name, content } = message;
    if (typeof role === 'string') this.texts.push(role);
    if (typeof name === 'string') {
      this.names++;
      this.texts.push(name);
    }
    if (Array.isArray(content)) this.beyondText ||= content.some((part) => textsIn(part).length === 0);
    collectWritten(message, (_key, text) => this.texts.push(text));
  }

  /** Arguments that are an object count as its JSON. */
  #called(): unknown {
    const { bytes } = this.#reader;
    return this.#record(CALLED_NAMES, CALLED, (index) =>
      index > 0 && bytes[this.#reader.at] === BRACE ? this.#compact() : this.#parts(),
    );
  }

  /** A text, a part or a list of parts. */
  #parts(depth = PARTS_DEPTH_MAX): unknown {
    const reader = this.#reader;
    const first = reader.bytes[reader.at];
    if (first === QUOTE) {
      const start = reader.at;
      return reader.skipString()
        ? reader.decoded(start, reader.at)
        : reader.bytes.toString('utf8', start + 1, reader.at - 1);
    }
    if (depth > 0 && first === BRACKET) return this.#list(() => this.#parts(depth - 1));
    if (depth > 0 && first === BRACE) return this.#record(PART_FIELDS, PART, () => this.#parts(depth - 1));
    reader.skipValue();
    return first === LETTER_N ? undefined : false;
  }

  /** Undefined of what is no array; else what `read` makes of each item. */
  #list<Item>(read: () => Item): Item[] | undefined {
    const reader = this.#reader;
    if (reader.bytes[reader.at] !== BRACKET) {
      reader.skipValue();
      return undefined;
    }
    const items: Item[] = [];
    if (reader.openArray()) {
      do items.push(read());
      while (reader.moreItems());
    }
    return items;
  }

  /** Undefined of what is no object; else what `read` makes of the members that have those names. */
  #record(
    names: readonly string[],
    bytesOfNames: readonly Buffer[],
    read: (index: number) => unknown,
  ): Record<string, unknown> | undefined {
    const record: Record<string, unknown> = {};
    for (const name of names) record[name] = undefined;
    const isObject = this.#object(bytesOfNames, (index) => (record[names[index]!] = read(index)));
    return isObject ? record : undefined;
  }

  /** Whether the value at hand is an object; `read` is called at the values of those names. */
  #object(names: readonly Buffer[], read: (index: number) => void): boolean {
    const reader = this.#reader;
    if (reader.bytes[reader.at] !== BRACE) {
      reader.skipValue();
      return false;
    }
    if (reader.openObject()) {
      do {
        const index = this.#name(names);
        reader.colon();
        if (index === -1) reader.skipValue();
        else read(index);
      } while (reader.moreMembers());
    }
    return true;
  }

  /** Steps over a name; its index in `names`, or -1. */
  #name(names: readonly Buffer[]): number {
    const reader = this.#reader;
    const { bytes } = reader;
    const start = reader.at + 1;
    const name = reader.skipString() ? Buffer.from(reader.decoded(start - 1, reader.at)) : undefined;
    const from = name === undefined ? start : 0;
    const length = name?.length ?? reader.at - 1 - start;
    for (let index = 0; index < names.length; index++) {
      const known = names[index]!;
      if (known.length !== length) continue;
      let at = 0;
      while (at < length && (name ?? bytes)[from + at] === known[at]) at++;
      if (at === length) return index;
    }
    return -1;
  }

  /** Undefined of what is no array, and of an empty one. */
  #definitions(): string | undefined {
    const reader = this.#reader;
    const isList = reader.bytes[reader.at] === BRACKET;
    const text = this.#compact();
    return isList && text !== '[]' ? text : undefined;
  }

  /** A value as JSON.stringify would write it, but that no member is left out and their order is as it came. */
  #compact(): string {
    const reader = this.#reader;
    const { bytes } = reader;
    const start = reader.at;
    reader.values = 0;
    reader.skipValue();
    const end = reader.at;
    const text = Buffer.allocUnsafe(end - start);
    let length = 0;
    // What is kept as it came and is not in `text` yet.
    let kept = start;
    const keep = (to: number): void => {
      length += bytes.copy(text, length, kept, to);
      kept = to;
    };
    const replace = (from: number, to: number, by: string): void => {
      keep(from);
      length += text.write(by, length);
      kept = to;
    };
    for (let at = start; at < end;) {
      const byte = bytes[at]!;
      if (byte === QUOTE) {
        reader.at = at;
        if (reader.skipString()) replace(at, reader.at, JSON.stringify(reader.decoded(at, reader.at)));
        at = reader.at;
      } else if (byte <= BLANK) {
        keep(at);
        while (bytes[at]! <= BLANK) at++;
        kept = at;
      } else if ((byte >= 48 && byte <= 57) || byte === 45) {
        const from = at;
        while (NUMBER_ENDS[bytes[at]!] === 0) at++;
        const written = bytes.toString('latin1', from, at);
        const usual = PLAIN_NUMBER.test(written) ? written : JSON.stringify(Number(written));
        // 1e20 is left as it is: with 21 digits it might not fit.
        if (usual.length <= written.length && usual !== written) replace(from, at, usual);
      } else at++;
    }
    keep(end);
    reader.at = end;
    return text.toString('utf8', 0, length);
  }
}
