/**
 * Finds the texts of a chat-completion request, whose tokens are counted, in the request's bytes.
 * token-count.ts calls `promptOf`. Pure; counter thread, or upstream worker for an estimate.
 *
 * It builds no tree of the request: for 6 MB of objects with unique names JSON.parse took 0.8 s and 110 MB.
 *
 * Must hold: the reader finds the texts that a walk over the parsed tree would find. Input is untrusted:
 * values without the expected form are skipped (test/unit/upstream/prompt-text.test.ts).
 */
import {
  BodyError,
  BRACE,
  BRACKET,
  JsonReader,
  LETTER_N,
  MINUS,
  NINE,
  QUOTE,
  SPACE,
  ZERO,
} from '../protocol/json-reader.js';
import {
  visitMessage,
  PART_FIELDS,
  PARTS_DEPTH_MAX,
  TEXT_MEMBERS,
  textsIn,
  THOUGHT_FIELDS,
} from './chat-text.js';

export interface Prompt {
  /** How many messages the request has; 0 for a prompt without messages. */
  readonly messageCount: number;
  /** How many messages have a name. */
  readonly namedMessageCount: number;
  readonly texts: readonly string[];
  /** Whether there are parts whose tokens cannot be counted from text: images, audio, files. */
  readonly hasMedia: boolean;
}

/** The member names that are read of one kind of object. */
type Level = readonly { readonly name: string; readonly bytes: Buffer }[];

const levelOf = (...names: readonly string[]): Level =>
  names.map((name) => ({ name, bytes: Buffer.from(name) }));
const REQUEST = levelOf('messages', 'tools', 'functions', 'response_format');
const FORMAT = levelOf('json_schema');
const MESSAGE = levelOf(
  ...['role', 'name', 'audio', 'function_call', 'tool_calls'],
  ...TEXT_MEMBERS,
  ...THOUGHT_FIELDS,
);
const PART = levelOf(...PART_FIELDS);
const AUDIO = levelOf('transcript');
const TOOL_CALL = levelOf('function', 'custom');
const CALLED = levelOf('name', 'arguments', 'input');

/** Bytes that end a number. */
const NUMBER_ENDS = new Uint8Array(256);
for (const byte of Buffer.from(' \t\r\n,]}')) NUMBER_ENDS[byte] = 1;
/** Numbers that JSON.stringify writes as they are, so that they need no conversion. */
const PLAIN_NUMBER = /^(?:0|-?[1-9]\d{0,14})$/;

/**
 * The texts of a request: role, name, content and tool calls of each message; as compact JSON tools and the
 * schema of the response. An array of texts has no messages. Another body is one text.
 */
export function promptOf(body: string | Uint8Array): Prompt {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  try {
    const reader = new PromptReader(bytes);
    if (reader.readRequest()) return reader;
  } catch (error) {
    if (!(error instanceof BodyError)) throw error;
  }
  const whole = typeof body === 'string' ? body : Buffer.from(body).toString();
  return { messageCount: 0, namedMessageCount: 0, texts: [whole], hasMedia: false };
}

/**
 * Reads the request in one pass. Each method reads the value at the current position. The objects that the
 * methods make always have all members that chat-text.ts looks at, so that no caller can cause a million
 * hidden classes in V8. A member is undefined if it is null or missing, and false if it is not a text.
 */
class PromptReader implements Prompt {
  readonly #reader: JsonReader;
  readonly texts: string[] = [];
  messageCount = 0;
  namedMessageCount = 0;
  hasMedia = false;

  constructor(bytes: Uint8Array) {
    // The listener has bounded the values of the body already.
    this.#reader = new JsonReader(bytes, Infinity);
  }

  /** Returns whether the whole body is a request, or a list of texts. */
  readRequest(): boolean {
    const reader = this.#reader;
    const firstByte = reader.skipSpace();
    if (firstByte === BRACKET) {
      for (const text of textsIn(this.#parts())) this.texts.push(text);
      return this.texts.length > 0 && reader.skipSpace() === -1;
    }
    if (firstByte !== BRACE) return false;
    const definitions: Record<string, string | undefined> = {};
    this.#object(REQUEST, (name) => {
      if (name === 'messages') this.#list(() => this.#message());
      else if (name === 'response_format')
        this.#object(FORMAT, () => (definitions[name] = this.#definitions(BRACE)));
      else definitions[name] = this.#definitions(BRACKET);
    });
    // In the order of REQUEST, whatever that of the members is.
    for (const { name } of REQUEST) if (definitions[name] !== undefined) this.texts.push(definitions[name]);
    return reader.skipSpace() === -1;
  }

  #message(): void {
    this.messageCount++;
    const message = this.#membersOf(MESSAGE, (name) => {
      if (name === 'audio') return this.#membersOf(AUDIO, () => this.#parts());
      if (name === 'function_call') return this.#called();
      if (name === 'tool_calls') return this.#list(() => this.#membersOf(TOOL_CALL, () => this.#called()));
      return this.#parts();
    });
    if (message === undefined) return;
    const { role, name, content } = message;
    if (typeof role === 'string') this.texts.push(role);
    if (typeof name === 'string') {
      this.namedMessageCount++;
      this.texts.push(name);
    }
    if (Array.isArray(content)) this.hasMedia ||= content.some((part) => textsIn(part).length === 0);
    visitMessage(message, (_key, text) => this.texts.push(text));
  }

  /** A called function. If its arguments, the members but `name`, are an object, their JSON counts. */
  #called(): unknown {
    const { bytes } = this.#reader;
    return this.#membersOf(CALLED, (name) =>
      name !== 'name' && bytes[this.#reader.position] === BRACE ? this.#compact() : this.#parts(),
    );
  }

  /** A text, a part or a list of parts. */
  #parts(depth = PARTS_DEPTH_MAX): unknown {
    const reader = this.#reader;
    const firstByte = reader.bytes[reader.position];
    if (firstByte === QUOTE) {
      const start = reader.position;
      return reader.skipString()
        ? reader.decoded(start, reader.position)
        : reader.bytes.toString('utf8', start + 1, reader.position - 1);
    }
    if (depth > 0 && firstByte === BRACKET) return this.#list(() => this.#parts(depth - 1));
    if (depth > 0 && firstByte === BRACE) return this.#membersOf(PART, () => this.#parts(depth - 1));
    reader.skipValue();
    return firstByte === LETTER_N ? undefined : false;
  }

  /** Undefined if the value is not an array; else the results of `read` for each item. */
  #list<Item>(read: () => Item): Item[] | undefined {
    const reader = this.#reader;
    if (reader.bytes[reader.position] !== BRACKET) {
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

  /** Undefined if the value is not an object; else the results of `read` for the members of the level. */
  #membersOf(level: Level, read: (name: string) => unknown): Record<string, unknown> | undefined {
    const members: Record<string, unknown> = {};
    for (const { name } of level) members[name] = undefined;
    const isObject = this.#object(level, (name) => (members[name] = read(name)));
    return isObject ? members : undefined;
  }

  /** Returns whether the value is an object; calls `read` at the values of the members of the level. */
  #object(level: Level, read: (name: string) => void): boolean {
    const reader = this.#reader;
    if (reader.bytes[reader.position] !== BRACE) {
      reader.skipValue();
      return false;
    }
    if (reader.openObject()) {
      do {
        const name = this.#name(level);
        reader.skipColon();
        if (name === undefined) reader.skipValue();
        else read(name);
      } while (reader.moreMembers());
    }
    return true;
  }

  /** Skips a name; returns it if the level has it. Compares bytes, so few names become strings. */
  #name(level: Level): string | undefined {
    const reader = this.#reader;
    const { bytes } = reader;
    const start = reader.position + 1;
    const decoded = reader.skipString() ? Buffer.from(reader.decoded(start - 1, reader.position)) : undefined;
    const from = decoded === undefined ? start : 0;
    const length = decoded?.length ?? reader.position - 1 - start;
    for (const { name, bytes: expected } of level) {
      if (expected.length !== length) continue;
      let equalBytes = 0;
      while (equalBytes < length && (decoded ?? bytes)[from + equalBytes] === expected[equalBytes])
        equalBytes++;
      if (equalBytes === length) return name;
    }
    return undefined;
  }

  /** Definitions as compact JSON; undefined if they are empty, or do not begin with the bracket `opener`. */
  #definitions(opener: number): string | undefined {
    const { position, bytes } = this.#reader;
    const isWanted = bytes[position] === opener;
    const text = this.#compact();
    return isWanted && text.length > '[]'.length ? text : undefined;
  }

  /** As JSON.stringify would write it after a parse; but members keep their order, and repeated ones stay. */
  #compact(): string {
    const reader = this.#reader;
    const { bytes } = reader;
    const start = reader.position;
    reader.skipValue();
    const end = reader.position;
    const text = Buffer.allocUnsafe(end - start);
    let length = 0;
    // The bytes before `copied` are in `text` already, or were left out or replaced.
    let copied = start;
    const copyTo = (to: number): void => {
      length += bytes.copy(text, length, copied, to);
      copied = to;
    };
    const replace = (from: number, to: number, by: string): void => {
      copyTo(from);
      length += text.write(by, length);
      copied = to;
    };
    for (let position = start; position < end;) {
      const byte = bytes[position]!;
      if (byte === QUOTE) {
        reader.position = position;
        if (reader.skipString())
          replace(position, reader.position, JSON.stringify(reader.decoded(position, reader.position)));
        position = reader.position;
      } else if (byte <= SPACE) {
        copyTo(position);
        while (bytes[position]! <= SPACE) position++;
        copied = position;
      } else if ((byte >= ZERO && byte <= NINE) || byte === MINUS) {
        const from = position;
        while (NUMBER_ENDS[bytes[position]!] === 0) position++;
        const original = bytes.toString('latin1', from, position);
        const compact = PLAIN_NUMBER.test(original) ? original : JSON.stringify(Number(original));
        // A number that would get longer stays as it is: the 21 digits of 1e20 may not fit `text`.
        if (compact.length <= original.length && compact !== original) replace(from, position, compact);
      } else position++;
    }
    copyTo(end);
    reader.position = end;
    return text.toString('utf8', 0, length);
  }
}
