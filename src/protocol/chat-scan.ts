/**
 * Reads a chat-completion request from its bytes in one pass: which call it is, where the members stand that may be changed, and
 * whether it means the same to every decoder. Makes no tree: the values of the members that have rules are put into a small stand-in of the
 * request, for the compiled validator, and each message into one that is used for the next again. Pure; any thread.
 *
 * Memory is some KB beside the bytes, 8 bytes for each part of a message's content, and the names of one object that are
 * not known (BODY_MEMBERS_MAX). The cost is the reader's (json-reader.ts) and some 20 ns for each name that is compared.
 */
import { BODY_MEMBERS_MAX, BODY_NESTING_MAX, MESSAGES_MAX } from '../core/limits.js';
import type { RoutingMember } from '../core/routing-members.js';
import type { ChatRequest } from './chat-schema.js';
import { CHAT_ROLES } from './chat-rules.js';
import { explain, explainMessage, messagesCountError } from './explain.js';
import { BodyError, BRACE, BRACKET, JsonReader, QUOTE } from './json-reader.js';
import {
  FOLDED,
  foldedName,
  hashWith,
  MESSAGE,
  PART,
  REQUEST,
  STREAM_OPTIONS,
  UNKNOWN,
  type Level,
} from './known-members.js';
import { steeringOf, type Steering } from './steering-members.js';
import { checkChatRequest } from './validators.js';

/** Where something stands in the body, in bytes. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** The span of what is not there: no value stands at the start of a body. */
export const NOWHERE: Span = { start: 0, end: 0 };

/** Characters of a member's name that a refusal repeats. */
const NAME_CHARS_MAX = 40;
/** Bytes of a string that a refusal may repeat: enough for the characters that explain.ts shows. */
const SHOWN_BYTES_MAX = 512;
/** So many digits are an integer without rounding. */
const DIGITS_EXACT_MAX = 15;
/** No number with a rule needs more; a longer one is read differently by decoders, or costs them. */
const NUMBER_CHARS_MAX = 64;

const REQUEST_MODEL = REQUEST.indexOf('model');
const REQUEST_MESSAGES = REQUEST.indexOf('messages');
const REQUEST_MAX_TOKENS = REQUEST.indexOf('max_tokens');
const REQUEST_MAX_COMPLETION_TOKENS = REQUEST.indexOf('max_completion_tokens');
const REQUEST_TEMPERATURE = REQUEST.indexOf('temperature');
const REQUEST_TOP_P = REQUEST.indexOf('top_p');
const REQUEST_N = REQUEST.indexOf('n');
const REQUEST_STREAM = REQUEST.indexOf('stream');
const REQUEST_STREAM_OPTIONS = REQUEST.indexOf('stream_options');
const MESSAGE_ROLE = MESSAGE.indexOf('role');
const MESSAGE_CONTENT = MESSAGE.indexOf('content');
const MESSAGE_TOOL_CALLS = MESSAGE.indexOf('tool_calls');
const PART_TYPE = PART.indexOf('type');
const INCLUDE_USAGE = STREAM_OPTIONS.indexOf('include_usage');

const ROLE_BYTES = CHAT_ROLES.map((role) => Buffer.from(role));

/** Stand-ins of values whose insides have no rule. */
const ANY_OBJECT = Object.freeze({});
const ANY_ARRAY: readonly unknown[] = Object.freeze([]);
const ANY_PART = Object.freeze({ type: '' });

/** Of the open objects and arrays, by depth. A pass is never interrupted, so one set serves all of a thread. */
const LEVELS: (Level | undefined)[] = Array.from({ length: BODY_NESTING_MAX + 1 }, () => undefined);
/** The index of the item, or of the member's name, that is being read. */
const PLACES = new Int32Array(BODY_NESTING_MAX + 1);
/** A bit for each known name that was given. */
const SEEN = new Int32Array(BODY_NESTING_MAX + 1);
/** The other names that were given, folded: none, one or more. */
const OTHERS: (string | Set<string> | undefined)[] = LEVELS.map(() => undefined);

/** What the validator takes for the request; `messages` are valid here, or are no array. */
class StandIn {
  model: unknown = undefined;
  messages: unknown = undefined;
  max_tokens: unknown = undefined;
  max_completion_tokens: unknown = undefined;
  temperature: unknown = undefined;
  top_p: unknown = undefined;
  n: unknown = undefined;
  stream: unknown = undefined;
  stream_options: unknown = undefined;
}

/** One message, for the validator to look at as the only one of a request. */
const MESSAGE_STAND_IN: { role: unknown; content: unknown; tool_calls: unknown } = {
  role: undefined,
  content: undefined,
  tool_calls: undefined,
};
const ONE_MESSAGE: { model: string; messages: unknown[] } = { model: 'm', messages: [MESSAGE_STAND_IN] };
const VALID_MESSAGES: readonly unknown[] = [{ role: 'user', content: '' }];
const NO_MEMBERS: readonly RoutingMember[] = Object.freeze([]);

/** A request that was read. Places are in bytes of the body. */
export class ChatScan {
  /** Place of the body's last brace. */
  end = 0;
  /** Values of members, as those below. */
  model: Span = NOWHERE;
  maxTokens: Span = NOWHERE;
  maxCompletionTokens: Span = NOWHERE;
  /** The value of `stream_options`, and within it that of `include_usage`; NOWHERE where it is not given. */
  streamOptions: Span = NOWHERE;
  includeUsage: Span = NOWHERE;
  /** Whether `stream_options` has members. */
  hasStreamOptions = false;
  /** Those that were given. */
  routingMembers = NO_MEMBERS;
  /** Valid, but that `messages` stand for those that were read. */
  readonly request: ChatRequest;
  readonly #reader: JsonReader;
  readonly #isAscii: boolean;
  readonly #standIn = new StandIn();
  /** What is wrong with the first wrong message. */
  #messagesError: string | undefined;
  /** A number that is right by its value and written as some decoders do not read it. */
  #numberError: string | undefined;
  /** Of the name that was read last and is not known. */
  #steering: Steering | undefined;

  /** Throws a BodyFault with the words for the sender. `bytes` are valid UTF-8, and `isAscii` where all of them are ASCII. */
  constructor(bytes: Uint8Array, isAscii: boolean) {
    const reader = new JsonReader(bytes);
    this.#reader = reader;
    this.#isAscii = isAscii;
    const standIn = this.#standIn;
    const first = reader.space();
    if (first === -1) throw new BodyError('the request body must be a JSON object, got an empty body');
    if (reader.bytes[0] === 0xef && reader.bytes[1] === 0xbb && reader.bytes[2] === 0xbf) {
      throw new BodyError('the request body must not start with a byte-order mark');
    }
    let other: unknown;
    if (first === BRACE) this.#readRequest();
    else other = this.#value();
    if (reader.space() !== -1) throw reader.unexpected();
    if (first !== BRACE) throw new BodyError(explain(other, undefined));
    if (this.#messagesError !== undefined || !checkChatRequest(standIn)) {
      throw new BodyError(explain(standIn, this.#messagesError));
    }
    if (this.#numberError !== undefined) throw new BodyError(this.#numberError);
    this.request = standIn;
  }

  /** The body. */
  get bytes(): Buffer {
    return this.#reader.bytes;
  }

  #readRequest(): void {
    const reader = this.#reader;
    const standIn = this.#standIn;
    if (this.#open(REQUEST)) {
      do {
        const index = this.#name(REQUEST);
        const first = reader.colon();
        const start = reader.at;
        if (index === REQUEST_MODEL) {
          standIn.model = this.#whole(first);
          this.model = { start, end: reader.at };
        } else if (index === REQUEST_MESSAGES) standIn.messages = this.#messages();
        else if (index === REQUEST_STREAM) standIn.stream = this.#value();
        else if (index === REQUEST_STREAM_OPTIONS) {
          standIn.stream_options = this.#streamOptions();
          this.streamOptions = { start, end: reader.at };
        } else if (index === REQUEST_MAX_TOKENS) {
          standIn.max_tokens = this.#integer();
          this.maxTokens = { start, end: reader.at };
        } else if (index === REQUEST_MAX_COMPLETION_TOKENS) {
          standIn.max_completion_tokens = this.#integer();
          this.maxCompletionTokens = { start, end: reader.at };
        } else if (index === REQUEST_N) standIn.n = this.#integer();
        else if (index === REQUEST_TEMPERATURE) standIn.temperature = this.#value();
        else if (index === REQUEST_TOP_P) standIn.top_p = this.#value();
        else {
          if (index === UNKNOWN && this.#steering !== undefined) this.#noteSteering(this.#steering, first);
          this.#inner(REQUEST, index);
        }
      } while (reader.moreMembers());
    }
    this.end = reader.at - 1;
  }

  /** `first` is the value's first byte: that of `null` and `false`, which ask for nothing, or another. */
  #noteSteering(steering: Steering, first: number): void {
    if (first === 110 || first === 102) return;
    if (steering.kind === 'routing') this.routingMembers = [...this.routingMembers, steering.name];
    else throw new BodyError(`${steering.name} must not be given, use ${steering.instead}`);
  }

  #messages(): unknown {
    const reader = this.#reader;
    if (reader.bytes[reader.at] !== BRACKET) return this.#value();
    let count = 0;
    if (this.#openArray()) {
      const { depth } = reader;
      do {
        PLACES[depth] = count;
        const message = this.#message();
        if (this.#messagesError === undefined) {
          ONE_MESSAGE.messages[0] = message;
          if (!checkChatRequest(ONE_MESSAGE)) this.#messagesError = explainMessage(message, count);
        }
        count++;
      } while (reader.moreItems());
    }
    if (count === 0 || count > MESSAGES_MAX) this.#messagesError = messagesCountError(count);
    return VALID_MESSAGES;
  }

  /** The stand-in of the message, valid until the next is read. */
  #message(): unknown {
    const reader = this.#reader;
    if (reader.bytes[reader.at] !== BRACE) return this.#value();
    let role: unknown;
    let content: unknown;
    let toolCalls: unknown;
    if (this.#open(MESSAGE)) {
      do {
        const index = this.#name(MESSAGE);
        const first = reader.colon();
        if (index === MESSAGE_ROLE) role = first === QUOTE ? this.#role() : this.#value();
        else if (index === MESSAGE_CONTENT) content = this.#content(first);
        else if (index === MESSAGE_TOOL_CALLS) {
          toolCalls = first === BRACKET ? ANY_ARRAY : null;
          this.#inner(MESSAGE, index);
        } else this.#inner(MESSAGE, index);
      } while (reader.moreMembers());
    }
    MESSAGE_STAND_IN.role = role;
    MESSAGE_STAND_IN.content = content;
    MESSAGE_STAND_IN.tool_calls = toolCalls;
    return MESSAGE_STAND_IN;
  }

  #role(): string {
    const reader = this.#reader;
    const start = reader.at;
    reader.skipPlain(QUOTE);
    const length = reader.at - start - 2;
    for (let index = 0; index < ROLE_BYTES.length; index++) {
      const bytes = ROLE_BYTES[index]!;
      if (bytes.length !== length) continue;
      let at = 0;
      while (at < length && reader.bytes[start + 1 + at] === bytes[at]) at++;
      if (at === length) return CHAT_ROLES[index]!;
    }
    return this.#shown(start, reader.at);
  }

  #content(first: number): unknown {
    const reader = this.#reader;
    if (first === QUOTE) {
      reader.skipPlain(QUOTE);
      return '';
    }
    if (first !== BRACKET) return this.#value();
    if (!this.#openArray()) return ANY_ARRAY;
    const { depth } = reader;
    const parts: unknown[] = [];
    do {
      PLACES[depth] = parts.length;
      parts.push(this.#part());
    } while (reader.moreItems());
    return parts;
  }

  #part(): unknown {
    const reader = this.#reader;
    if (reader.bytes[reader.at] !== BRACE) return this.#value();
    let type: unknown;
    if (this.#open(PART)) {
      do {
        const index = this.#name(PART);
        reader.colon();
        if (index === PART_TYPE) type = this.#value();
        else this.#inner(PART, index);
      } while (reader.moreMembers());
    }
    return typeof type === 'string' ? ANY_PART : { type };
  }

  #streamOptions(): unknown {
    const reader = this.#reader;
    if (reader.bytes[reader.at] !== BRACE) return this.#value();
    let includeUsage: unknown;
    if (this.#open(STREAM_OPTIONS)) {
      this.hasStreamOptions = true;
      do {
        const index = this.#name(STREAM_OPTIONS);
        reader.colon();
        const start = reader.at;
        if (index === INCLUDE_USAGE) {
          includeUsage = this.#value();
          this.includeUsage = { start, end: reader.at };
        } else this.#inner(STREAM_OPTIONS, index);
      } while (reader.moreMembers());
    }
    return { include_usage: includeUsage };
  }

  /** The value of a member that has no rule: names within it are compared where its level has them. */
  #inner(level: Level, index: number): void {
    const inner = index < 0 ? undefined : level.inner[index];
    if (inner === undefined) this.#reader.skipValue();
    else this.#objects(inner);
  }

  /** An object, or an array of them. */
  #objects(level: Level): void {
    const reader = this.#reader;
    const first = reader.bytes[reader.at];
    if (first !== BRACKET) {
      if (first === BRACE) this.#object(level);
      else reader.skipValue();
      return;
    }
    if (!this.#openArray()) return;
    const { depth } = reader;
    let count = 0;
    do {
      PLACES[depth] = count++;
      if (reader.bytes[reader.at] === BRACE) this.#object(level);
      else reader.skipValue();
    } while (reader.moreItems());
  }

  #object(level: Level): void {
    const reader = this.#reader;
    if (!this.#open(level)) return;
    do {
      const index = this.#name(level);
      reader.colon();
      this.#inner(level, index);
    } while (reader.moreMembers());
  }

  #open(level: Level): boolean {
    const isFilled = this.#reader.openObject();
    if (!isFilled) return false;
    const { depth } = this.#reader;
    LEVELS[depth] = level;
    SEEN[depth] = 0;
    OTHERS[depth] = undefined;
    return true;
  }

  #openArray(): boolean {
    if (!this.#reader.openArray()) return false;
    LEVELS[this.#reader.depth] = undefined;
    return true;
  }

  /** Steps over the name at hand; its index in `level`, below 0 where it is not known. */
  #name(level: Level): number {
    const reader = this.#reader;
    const { bytes, end, depth } = reader;
    const start = reader.at + 1;
    let at = start;
    let hash = 0;
    let byte = -1;
    while (at < end) {
      byte = bytes[at]!;
      // The quote, a backslash, a control character, a byte beyond ASCII.
      if (byte === QUOTE || byte === 92 || byte < 32 || byte > 127) break;
      hash = hashWith(hash, byte);
      at++;
    }
    let name: string | undefined;
    let index: number;
    if (byte === QUOTE && at < end) {
      reader.at = at + 1;
      index = level.find(bytes, start, at, hash);
    } else {
      reader.skipString();
      name = reader.decoded(start - 1, reader.at);
      if (name.includes('\0'))
        throw new BodyError(`a name in ${this.#path() || 'the request'} must not have NUL`);
      index = level.findText(name);
    }
    if (index >= 0) {
      const mark = 1 << index;
      if ((SEEN[depth]! & mark) !== 0) throw this.#twice(level.names[index]!);
      SEEN[depth]! |= mark;
      PLACES[depth] = index;
      return index;
    }
    name ??= bytes.toString('latin1', start, at);
    if (index !== UNKNOWN) {
      const meant = level.names[FOLDED - index]!;
      throw new BodyError(`${this.#dotted()}${name.slice(0, NAME_CHARS_MAX)} must be written as ${meant}`);
    }
    this.#noteOther(name, depth);
    return UNKNOWN;
  }

  #noteOther(name: string, depth: number): void {
    const folded = foldedName(name);
    if (depth === 1) {
      this.#steering = steeringOf(folded);
      if (this.#steering !== undefined && this.#steering.name !== name) {
        throw new BodyError(`${name.slice(0, NAME_CHARS_MAX)} must be written as ${this.#steering.name}`);
      }
    }
    const others = OTHERS[depth];
    if (others === undefined) {
      OTHERS[depth] = folded;
      return;
    }
    const set = typeof others === 'string' ? new Set([others]) : others;
    OTHERS[depth] = set;
    if (set.has(folded)) throw this.#twice(name);
    set.add(folded);
    if (set.size > BODY_MEMBERS_MAX) {
      throw new BodyError(
        `${this.#path() || 'the request body'} must have at most ${BODY_MEMBERS_MAX} members`,
      );
    }
  }

  #twice(name: string): BodyError {
    return new BodyError(
      `${this.#dotted()}${name.slice(0, NAME_CHARS_MAX)} must be given once, in whatever case`,
    );
  }

  /** Where the object at hand stands: `messages[3].content[0]`, empty for the request itself. */
  #path(): string {
    let path = '';
    for (let depth = 1; depth < this.#reader.depth; depth++) {
      const level = LEVELS[depth];
      const place = PLACES[depth]!;
      path += level === undefined ? `[${place}]` : `${path === '' ? '' : '.'}${level.names[place]!}`;
    }
    return path;
  }

  #dotted(): string {
    const path = this.#path();
    return path === '' ? '' : `${path}.`;
  }

  /** A string as a whole; the stand-in of any other value. */
  #whole(first: number): unknown {
    const reader = this.#reader;
    const start = reader.at;
    if (first !== QUOTE) return this.#value();
    if (reader.skipText()) return reader.decoded(start, reader.at);
    return reader.bytes.toString(this.#isAscii ? 'latin1' : 'utf8', start + 1, reader.at - 1);
  }

  /** The value, or what explain.ts needs to tell it: the beginning of a string, an object without members. */
  #value(): unknown {
    const reader = this.#reader;
    const start = reader.at;
    const first = start < reader.end ? reader.bytes[start]! : -1;
    if (first === BRACE || first === BRACKET) {
      reader.skipValue();
      return first === BRACE ? ANY_OBJECT : ANY_ARRAY;
    }
    reader.skipPlain(first);
    if (first === QUOTE) return this.#shown(start, reader.at);
    if (first === 116) return true;
    if (first === 102) return false;
    if (first === 110) return null;
    const length = reader.at - start;
    if (length <= DIGITS_EXACT_MAX) {
      let value = 0;
      let at = start;
      for (; at < reader.at; at++) {
        const digit = reader.bytes[at]! - 48;
        // A sign, a point or an exponent.
        if (digit < 0 || digit > 9) break;
        value = value * 10 + digit;
      }
      if (at === reader.at) return value;
    }
    if (length > NUMBER_CHARS_MAX) throw this.#longNumber();
    return Number(reader.bytes.toString('latin1', start, reader.at));
  }

  /** A value of a member that must be an integer: every decoder reads it as one only where it is written as digits alone. */
  #integer(): unknown {
    const reader = this.#reader;
    const start = reader.at;
    const value = this.#value();
    if (typeof value !== 'number' || !Number.isInteger(value) || value < 0) return value;
    let at = start;
    while (at < reader.end && reader.bytes[at]! >= 48 && reader.bytes[at]! <= 57) at++;
    const isPlain = at === reader.at;
    if (isPlain && value <= Number.MAX_SAFE_INTEGER) return value;
    const name = REQUEST.names[PLACES[reader.depth]!]!;
    const rule = isPlain ? `be at most ${Number.MAX_SAFE_INTEGER}` : 'be written in digits alone';
    const text = reader.bytes.toString('latin1', start, reader.at);
    this.#numberError ??= `${name} must ${rule}, got ${text.slice(0, NAME_CHARS_MAX)}`;
    return value;
  }

  #longNumber(): BodyError {
    const reader = this.#reader;
    const level = LEVELS[reader.depth];
    const name = reader.depth === 0 ? '' : (level?.names[PLACES[reader.depth]!] ?? '');
    return new BodyError(
      `${this.#dotted()}${name || 'a number'} must be written in at most ${NUMBER_CHARS_MAX} characters`,
    );
  }

  /** The text of a string that was read, or its beginning. */
  #shown(start: number, end: number): string {
    const reader = this.#reader;
    if (end - start <= SHOWN_BYTES_MAX) return reader.decoded(start, end);
    // Cut before an escape or a character that would be cut.
    let at = start + 1;
    for (let next = at; next <= start + SHOWN_BYTES_MAX;) {
      at = next;
      const byte = reader.bytes[at]!;
      if (byte === 92) next += reader.bytes[at + 1] === 117 ? 6 : 2;
      else next += byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    }
    return JSON.parse(`${reader.bytes.toString('utf8', start, at)}"`) as string;
  }
}
