/**
 * A one-pass parser of a chat-completion request. It finds the values that the gateway uses and their
 * positions, and rejects a body that JSON decoders read differently. It builds no tree: values that have
 * rules go into a small object (StandIn) for the compiled validator, and each message into an object of the
 * module that the next message reuses (MESSAGE_STAND_IN). request-bytes.ts makes one ChatScan for each body:
 * in the listener for small bodies, in a counter thread for large ones.
 *
 * A scan needs some KB besides the bytes, 16 bytes for each content part before the first wrong one, and the
 * unknown names of one object (BODY_MEMBERS_MAX in core/limits.ts). It takes the time of the reader
 * (json-reader.ts), and some 20 ns for each name. Memory and time were measured; no test checks them.
 *
 * Must hold: a body that two decoders read differently is rejected; otherwise a caller pays for one call and
 * gets another. Such are a member that is given twice, a known name in another case (`Model`), and an
 * integer that is not written in digits alone (test/unit/protocol/request-bytes.chat-request.test.ts,
 * test/unit/protocol/known-members.test.ts). For the first two the reader throws (`readName` of
 * member-reader.ts), for the third the constructor does. A member that gets a rule in chat-schema.ts is added
 * to StandIn (or nothing compiles) and known-members.ts, and read (test/unit/protocol/request-rules.test.ts).
 * A scan ends before the next begins, or they would mix their messages; the reader throws then.
 */
import { CALLERS_TOOL_TYPES } from '../core/routing-members.js';
import { NOWHERE, type BodyScan, type Span } from './chat-call.js';
import type { ChatRequest } from './chat-schema.js';
import { REQUEST_RULES } from './generated.js';
import { BodyError, BRACE, BRACKET, QUOTE } from './json-reader.js';
import { EXTRA_BODY, MESSAGE, PART, REQUEST, STREAM_OPTIONS, TOOL, UNKNOWN } from './known-members.js';
import { isNullOrFalse, ANY_ARRAY, ANY_OBJECT, NO_MEMBERS, ValueReader } from './member-reader.js';
import { CHAT_ROLES, countViolation, UNEXPLAINED, violationOf } from './request-rules.js';

const { check: checkChatRequest, schema: CHAT_SCHEMA } = REQUEST_RULES.chat;
const { model: MODEL_SCHEMA, messages: MESSAGES_SCHEMA } = CHAT_SCHEMA.properties!;

// Indices of names in their levels. A level is the known names of one kind of object (known-members.ts).
// `indexOf` throws for a name that the level lacks, so a wrong name here stops the thread at its start.
const REQUEST_MODEL = REQUEST.indexOf('model');
const REQUEST_MESSAGES = REQUEST.indexOf('messages');
const REQUEST_MAX_TOKENS = REQUEST.indexOf('max_tokens');
const REQUEST_MAX_COMPLETION_TOKENS = REQUEST.indexOf('max_completion_tokens');
const REQUEST_TEMPERATURE = REQUEST.indexOf('temperature');
const REQUEST_TOP_P = REQUEST.indexOf('top_p');
const REQUEST_N = REQUEST.indexOf('n');
const REQUEST_STREAM = REQUEST.indexOf('stream');
const REQUEST_STREAM_OPTIONS = REQUEST.indexOf('stream_options');
const REQUEST_EXTRA_BODY = REQUEST.indexOf('extra_body');
const REQUEST_TOOLS = REQUEST.indexOf('tools');
const MESSAGE_ROLE = MESSAGE.indexOf('role');
const MESSAGE_CONTENT = MESSAGE.indexOf('content');
const MESSAGE_TOOL_CALLS = MESSAGE.indexOf('tool_calls');
const MESSAGE_FUNCTION_CALL = MESSAGE.indexOf('function_call');
const MESSAGE_REFUSAL = MESSAGE.indexOf('refusal');
const MESSAGE_AUDIO = MESSAGE.indexOf('audio');
const TOOL_TYPE = TOOL.indexOf('type');
const INCLUDE_USAGE = STREAM_OPTIONS.indexOf('include_usage');

const ROLE_BYTES = CHAT_ROLES.map((role) => Buffer.from(role));

const ANY_PART = Object.freeze({ type: '' });
/** The validator gets this one part in place of any number of valid parts. */
const VALID_PARTS: readonly unknown[] = Object.freeze([ANY_PART]);

/** The request as the validator gets it. For an array `messages` is VALID_MESSAGES. */
class StandIn implements Record<keyof ChatRequest, unknown> {
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

/** The members of any form of a message. */
type MemberOf<Message> = Message extends unknown ? keyof Message : never;
/** One message as the validator gets it, alone in ONE_MESSAGE, a request that is valid but for it. */
const MESSAGE_STAND_IN: Record<MemberOf<ChatRequest['messages'][number]>, unknown> = {
  role: undefined,
  content: undefined,
  tool_calls: undefined,
  function_call: undefined,
  refusal: undefined,
  audio: undefined,
};
const ONE_MESSAGE: { model: string; messages: unknown[] } = { model: 'm', messages: [MESSAGE_STAND_IN] };
/** The validator gets this in place of all messages, which were checked one by one. */
const VALID_MESSAGES: readonly unknown[] = [{ role: 'user', content: '' }];

/**
 * Each private method starts with the reader at a value, and leaves the reader after that value. It returns
 * what the validator gets for the value. `firstByte` is the first byte of the value.
 *
 * An object is read in this order: `openLevel`; for each member `readName`, `skipColon`, a method that reads
 * or skips the value, and `moreMembers`. An array: `openItems`; for each item `startItem`, a method that
 * reads or skips the item, and `moreItems`.
 * `skipMember` also checks the names within the value.
 */
export class ChatScan implements BodyScan {
  // BodyScan explains the next four, which are the same for each body of this door.
  readonly outputTokensName = 'max_tokens';
  readonly outputTokensMin = 1;
  readonly asksForUsage = true;
  readonly repeatedTokens = 0;
  /** Position of the body's last brace. */
  end = 0;
  model: Span = NOWHERE;
  maxTokens: Span = NOWHERE;
  maxCompletionTokens: Span = NOWHERE;
  /** `includeUsage` is within `streamOptions`. */
  streamOptions: Span = NOWHERE;
  includeUsage: Span = NOWHERE;
  /** Whether `stream_options` has members. */
  streamOptionsHasMembers = false;
  /**
   * Members of the body that need the model's `pass_members` (core/routing-members.ts): those of the request
   * itself that steer the call elsewhere, `extra_body`, `hosted_tools`, and what names something stored.
   */
  routingMembers = NO_MEMBERS;
  mediaParts = 0;
  /** The valid request. Its `messages` are VALID_MESSAGES. */
  readonly request: ChatRequest;
  readonly #reader: ValueReader;
  readonly #isAscii: boolean;
  readonly #standIn = new StandIn();
  /** Why `messages` is invalid: a wrong number of items, else the first wrong item. Undefined if valid. */
  #messagesError: string | undefined;

  /** `bytes` are valid UTF-8, and ASCII if `isAscii`. Throws a BodyError whose message is for the caller. */
  constructor(bytes: Uint8Array, isAscii: boolean) {
    const reader = new ValueReader(bytes);
    this.#reader = reader;
    this.#isAscii = isAscii;
    const standIn = this.#standIn;
    const firstByte = reader.openBody();
    let otherValue: unknown;
    if (firstByte === BRACE) this.#readRequest();
    else otherValue = reader.readValue();
    if (reader.skipSpace() !== -1) throw reader.unexpected();
    if (firstByte !== BRACE) throw new BodyError(violationOf(CHAT_SCHEMA, otherValue) ?? UNEXPLAINED);
    if (this.#messagesError !== undefined || !checkChatRequest(standIn)) {
      const modelError = violationOf(MODEL_SCHEMA!, standIn.model, 'model');
      throw new BodyError(
        modelError ?? this.#messagesError ?? violationOf(CHAT_SCHEMA, standIn) ?? UNEXPLAINED,
      );
    }
    // This check is last: the errors before name a wrong value, `numberError` names one that is valid.
    if (reader.numberError !== undefined) throw new BodyError(reader.numberError);
    this.request = standIn as ChatRequest;
  }

  get bytes(): Buffer {
    return this.#reader.bytes;
  }

  /** Reads the members of the request itself into `#standIn`, the spans and `routingMembers`. */
  #readRequest(): void {
    const reader = this.#reader;
    const standIn = this.#standIn;
    if (reader.openLevel(REQUEST)) {
      do {
        const index = reader.readName(REQUEST);
        const firstByte = reader.skipColon();
        const start = reader.position;
        if (index === REQUEST_MODEL) {
          // Not by `readValue`, which may cut a long string: the model is looked up by this name.
          standIn.model = reader.readWholeValue(firstByte, this.#isAscii);
          this.model = { start, end: reader.position };
        } else if (index === REQUEST_MESSAGES) standIn.messages = this.#readMessages();
        else if (index === REQUEST_STREAM) standIn.stream = reader.readValue();
        else if (index === REQUEST_STREAM_OPTIONS) {
          standIn.stream_options = this.#readStreamOptions();
          this.streamOptions = { start, end: reader.position };
        } else if (index === REQUEST_MAX_TOKENS) {
          standIn.max_tokens = reader.readInteger();
          this.maxTokens = { start, end: reader.position };
        } else if (index === REQUEST_MAX_COMPLETION_TOKENS) {
          standIn.max_completion_tokens = reader.readInteger();
          this.maxCompletionTokens = { start, end: reader.position };
        } else if (index === REQUEST_N) standIn.n = reader.readInteger();
        else if (index === REQUEST_TEMPERATURE) standIn.temperature = reader.readValue();
        else if (index === REQUEST_TOP_P) standIn.top_p = reader.readValue();
        else if (index === REQUEST_TOOLS && firstByte === BRACKET) this.#readTools();
        else if (index === REQUEST_EXTRA_BODY) this.#readExtraBody(firstByte);
        else if (index === UNKNOWN) {
          const member = reader.skipUnknown(this.outputTokensName);
          if (member !== undefined) this.routingMembers = [...this.routingMembers, member];
        } else reader.skipMember(REQUEST, index);
      } while (reader.moreMembers());
    }
    this.end = reader.position - 1;
    this.mediaParts = reader.mediaParts;
    // `skipMember` has found the stored things anywhere in the request.
    if (reader.storedMembers.length > 0)
      this.routingMembers = [...this.routingMembers, ...reader.storedMembers];
  }

  /**
   * Adds `extra_body` to `routingMembers`, unless it is null or false, or has `google` alone, which Google's
   * interface reads. Some upstreams merge other members into the request. An empty object is added.
   */
  #readExtraBody(firstByte: number): void {
    const reader = this.#reader;
    let hasGoogle = false;
    let hasOther = false;
    if (firstByte !== BRACE) reader.skipMember(REQUEST, REQUEST_EXTRA_BODY);
    else if (reader.openLevel(EXTRA_BODY)) {
      do {
        const index = reader.readName(EXTRA_BODY);
        reader.skipColon();
        reader.skipMember(EXTRA_BODY, index);
        if (index === UNKNOWN) hasOther = true;
        else hasGoogle = true;
      } while (reader.moreMembers());
    }
    if (isNullOrFalse(firstByte) || (hasGoogle && !hasOther)) return;
    this.routingMembers = [...this.routingMembers, 'extra_body'];
  }

  /** Adds `hosted_tools` to `routingMembers` if the provider runs one of the tools. */
  #readTools(): void {
    const reader = this.#reader;
    if (!reader.openItems()) return;
    let count = 0;
    let hasHostedTool = false;
    do {
      reader.startItem(count++);
      if (reader.bytes[reader.position] === BRACE) hasHostedTool = this.#readTool() || hasHostedTool;
      else reader.skipValue();
    } while (reader.moreItems());
    if (hasHostedTool) this.routingMembers = [...this.routingMembers, 'hosted_tools'];
  }

  /**
   * Reads a tool, and returns whether the provider runs it. A tool without a type is the caller's if it has
   * `function`, `custom` or `name`. Any other tool is the provider's: LiteLLM takes `{"googleSearch":{}}`
   * (https://docs.litellm.ai/docs/providers/vertex).
   */
  #readTool(): boolean {
    const reader = this.#reader;
    /** Undefined if the tool has no type. */
    let hasHostedType: boolean | undefined;
    let hasDefinition = false;
    if (!reader.openLevel(TOOL)) return false;
    do {
      const index = reader.readName(TOOL);
      const firstByte = reader.skipColon();
      const start = reader.position;
      reader.skipMember(TOOL, index);
      // CALLERS_TOOL_TYPES have quotes as well. A type that is written with escapes counts as the provider's.
      if (index === TOOL_TYPE && firstByte === QUOTE)
        hasHostedType = !CALLERS_TOOL_TYPES.includes(reader.bytes.toString('latin1', start, reader.position));
      else if (index !== TOOL_TYPE && index !== UNKNOWN) hasDefinition = true;
    } while (reader.moreMembers());
    return hasHostedType ?? !hasDefinition;
  }

  /** Checks each message by itself. Sets `#messagesError` for the first wrong message. */
  #readMessages(): unknown {
    const reader = this.#reader;
    if (reader.bytes[reader.position] !== BRACKET) return reader.readValue();
    let count = 0;
    if (reader.openItems()) {
      do {
        reader.startItem(count);
        const message = this.#readMessage();
        if (this.#messagesError === undefined) {
          ONE_MESSAGE.messages[0] = message;
          if (!checkChatRequest(ONE_MESSAGE))
            this.#messagesError =
              violationOf(MESSAGES_SCHEMA!.items!, message, `messages[${count}]`) ?? UNEXPLAINED;
        }
        count++;
      } while (reader.moreItems());
    }
    this.#messagesError = countViolation(MESSAGES_SCHEMA!, count, 'messages') ?? this.#messagesError;
    return VALID_MESSAGES;
  }

  /**
   * Returns MESSAGE_STAND_IN with the message's members. The next message reuses it, so each member is reset
   * (test/unit/protocol/request-bytes.chat-request.test.ts).
   */
  #readMessage(): unknown {
    const reader = this.#reader;
    if (reader.bytes[reader.position] !== BRACE) return reader.readValue();
    const message = MESSAGE_STAND_IN;
    message.role = undefined;
    message.content = undefined;
    message.tool_calls = undefined;
    message.function_call = undefined;
    message.refusal = undefined;
    message.audio = undefined;
    if (reader.openLevel(MESSAGE)) {
      do {
        const index = reader.readName(MESSAGE);
        const firstByte = reader.skipColon();
        if (index === MESSAGE_ROLE)
          message.role = firstByte === QUOTE ? this.#readRole() : reader.readValue();
        else if (index === MESSAGE_CONTENT) message.content = this.#readContent(firstByte);
        else {
          // One of these four stands in for `content`, unless it is null or of a wrong type.
          if (index === MESSAGE_TOOL_CALLS) message.tool_calls = firstByte === BRACKET ? ANY_ARRAY : null;
          else if (index === MESSAGE_FUNCTION_CALL)
            message.function_call = firstByte === BRACE ? ANY_OBJECT : null;
          else if (index === MESSAGE_REFUSAL) message.refusal = firstByte === QUOTE ? '' : null;
          else if (index === MESSAGE_AUDIO) message.audio = firstByte === BRACE ? ANY_OBJECT : null;
          reader.skipMember(MESSAGE, index);
        }
      } while (reader.moreMembers());
    }
    return message;
  }

  /** Returns the role, or for the error the text of an unknown one. */
  #readRole(): string {
    const reader = this.#reader;
    const start = reader.position;
    reader.skipScalar(QUOTE);
    // Roles are compared as bytes, which costs no string. The two quotes do not belong to the role.
    const length = reader.position - start - 2;
    for (let index = 0; index < ROLE_BYTES.length; index++) {
      const roleBytes = ROLE_BYTES[index]!;
      if (roleBytes.length !== length) continue;
      let offset = 0;
      while (offset < length && reader.bytes[start + 1 + offset] === roleBytes[offset]) offset++;
      if (offset === length) return CHAT_ROLES[index]!;
    }
    return reader.excerpt(start, reader.position);
  }

  /**
   * Returns what the validator gets for the content: of a string an empty one, of an array VALID_PARTS, or an
   * array with the first wrong part at its index.
   */
  #readContent(firstByte: number): unknown {
    const reader = this.#reader;
    // The rules do not look into a text, so an empty one stands for all.
    if (firstByte === QUOTE) {
      reader.skipScalar(QUOTE);
      return '';
    }
    if (firstByte !== BRACKET) return reader.readValue();
    if (!reader.openItems()) return ANY_ARRAY;
    let count = 0;
    let partsUpToWrong: unknown[] | undefined;
    do {
      reader.startItem(count);
      const part = this.#readPart();
      if (part !== ANY_PART) partsUpToWrong ??= [...Array<unknown>(count).fill(ANY_PART), part];
      count++;
    } while (reader.moreItems());
    return partsUpToWrong ?? VALID_PARTS;
  }

  /** Returns ANY_PART for a valid part, and for any other what the validator rejects. Counts media parts. */
  #readPart(): unknown {
    const reader = this.#reader;
    if (reader.bytes[reader.position] !== BRACE) return reader.readValue();
    let type: unknown;
    if (reader.openLevel(PART)) {
      do {
        const index = reader.readName(PART);
        const firstByte = reader.skipColon();
        const start = reader.position;
        // Any text is a valid type here: upstreams check the type.
        if (index !== PART.typeIndex) reader.skipMember(PART, index);
        else if (firstByte === QUOTE) {
          reader.skipScalar(QUOTE);
          reader.countPart(PART, start, reader.position);
          type = '';
        } else type = reader.readValue();
      } while (reader.moreMembers());
    }
    return typeof type === 'string' ? ANY_PART : { type };
  }

  #readStreamOptions(): unknown {
    const reader = this.#reader;
    if (reader.bytes[reader.position] !== BRACE) return reader.readValue();
    let includeUsage: unknown;
    if (reader.openLevel(STREAM_OPTIONS)) {
      this.streamOptionsHasMembers = true;
      do {
        const index = reader.readName(STREAM_OPTIONS);
        reader.skipColon();
        const start = reader.position;
        if (index === INCLUDE_USAGE) {
          includeUsage = reader.readValue();
          this.includeUsage = { start, end: reader.position };
        } else reader.skipMember(STREAM_OPTIONS, index);
      } while (reader.moreMembers());
    }
    return { include_usage: includeUsage };
  }
}
