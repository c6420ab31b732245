/**
 * The Messages door's half for upstream workers: its Dialect, and that of the door that counts tokens.
 * dialects.ts has both in its table; messages-door.ts is the half for listeners. Upstream worker; for the
 * translation of large bodies counter threads too. door.ts explains the members of a Dialect.
 *
 * Must hold: `known`, the fast path that parses nothing, returns what `judge` would return for the same event
 * (test/unit/doors/messages/messages-dialect.test.ts, "an event that is not parsed means what it means if it
 * is").
 */
import { isRecord, type Members } from '../../core/json.js';
import { sseEvent } from '../../protocol/sse.js';
import { promptReportOf } from '../../providers/anthropic/response.js';
import { NO_MEANING, type Dialect, type EventJudge, type EventMeaning, type Translator } from '../door.js';
import { fromChat } from './from-chat.js';
import { MessageWriter } from './message-stream.js';
import { NAMES, toChat } from './to-chat.js';

const TRANSLATOR: Translator = {
  toChat,
  // Inputs of tools become `arguments`, which are texts; schemas of tools and of the response go on as they
  // are. All may have long integers, whose digits JSON.parse would change.
  exactMembers: ['messages', 'tools', 'output_config'],
  names: NAMES,
  fromChat,
  openStream: (call) => new MessageWriter(call),
};

export const MESSAGES_DIALECT: Dialect<'messages'> = {
  name: 'messages',
  // The array that every whole response of this protocol has.
  marker: 'content',
  openJudge: () => new MessageJudge(),
  translator: TRANSLATOR,
  promptTexts: undefined,
};

/** The translator makes the text that the gateway itself counts if no upstream can. */
export const COUNT_TOKENS_DIALECT: Dialect<'count_tokens'> = {
  ...MESSAGES_DIALECT,
  name: 'count_tokens',
  // The number that is the whole response.
  marker: 'input_tokens',
  isCount: true,
};

const TEXT: EventMeaning = { ...NO_MEANING, isText: true };
const END: EventMeaning = { ...NO_MEANING, isEnd: true };
/** Of signatures, citations and results of tools that Anthropic runs, which may be longer than the text. */
const UNCOUNTED: EventMeaning = { ...NO_MEANING, isUncounted: true };

/**
 * The data of a text event as Anthropic writes it, for `known`: members in this order, and up to 32 spaces of
 * padding before the last brace. So are those of WITHOUT_TEXT and STOP. Data that is written otherwise, has
 * `\u` escapes or an empty text, or is beyond a bound of its pattern, is parsed for `judge`. So bounds change
 * what an event costs, and never what the event means.
 */
const TEXT_DELTA =
  /^\{"type":"content_block_delta","index":(?:0|[1-9]\d{0,5}),"delta":\{"type":"text_delta","text":"(?:[^"\\\u0000-\u001f]|\\["\\/bfnrt])+"\} {0,32}\}$/;
const WITHOUT_TEXT =
  /^\{"type": ?"(?:ping"|content_block_st(?:op","index":\d|art","index":\d,"content_block":\{"type":"text","text":""\})) {0,32}\}$/;
/** Matches all types of Anthropic's errors. Its bound keeps the type, which is logged, to 64 characters. */
const ERROR_TYPE = /^[a-z_]{1,58}_error$/;
const MESSAGE_STOP = sseEvent('{"type":"message_stop"}', 'message_stop');
const STOP = /^\{"type":"message_stop" {0,32}\}$/;

/**
 * Finds usage, text and end in a stream that passes from an upstream that speaks Messages;
 * passed-stream-reader.ts has one for each stream.
 *
 * Must hold: `judge` returns usage only once `message_delta` has come. `message_start` has the usage of the
 * prompt alone, so the completion of a stream that breaks off before `message_delta` is counted by its text
 * (test/unit/doors/messages/messages-dialect.test.ts).
 */
class MessageJudge implements EventJudge {
  /** For a stream that fails between `message_delta` with its stop reason and `message_stop`. */
  readonly lastEvent = MESSAGE_STOP;
  /** All reports so far, merged. It changes after it was returned, so a reader must copy the numbers. */
  #usage: Record<string, unknown> = {};

  get usageSoFar(): unknown {
    return this.#usage;
  }

  known(data: string): EventMeaning | undefined {
    if (TEXT_DELTA.test(data)) return TEXT;
    if (WITHOUT_TEXT.test(data)) return NO_MEANING;
    return STOP.test(data) ? END : undefined;
  }

  judge(event: Members): EventMeaning {
    const { type, message, delta } = event;
    switch (type) {
      case 'content_block_delta':
        return isRecord(delta) && hasText(delta) ? TEXT : UNCOUNTED;
      case 'content_block_start': {
        const { content_block: block } = event;
        if (isRecord(block) && hasText(block)) return TEXT;
        // A block that begins with an empty text is short.
        return isRecord(block) && block.type === 'text' ? NO_MEANING : UNCOUNTED;
      }
      case 'message_start':
        if (!isRecord(message)) return { ...NO_MEANING, fault: 'message_start without a message' };
        this.#addReport(promptReportOf(message.usage));
        return { ...NO_MEANING, model: message.model };
      case 'message_delta': {
        // After the stop reason no block follows.
        const isTextOver = isRecord(delta) && typeof delta.stop_reason === 'string';
        if (!isRecord(event.usage)) return { ...NO_MEANING, isTextOver };
        this.#addReport(event.usage);
        return { ...NO_MEANING, usage: this.#usage, isTextOver };
      }
      case 'message_stop':
        return END;
      case 'error':
        return { ...NO_MEANING, fault: errorTypeIn(event.error) };
      default:
        return typeof type === 'string' ? NO_MEANING : { ...NO_MEANING, fault: 'an event without a type' };
    }
  }

  /** Later counts replace earlier ones. `promptReportOf` sets null for what `message_start` does not know. */
  #addReport(usage: unknown): void {
    if (!isRecord(usage)) return;
    for (const name in usage) if (usage[name] !== null) this.#usage[name] = usage[name];
  }
}

/** For the log, which gets no other text of an error: it may hold the key. */
function errorTypeIn(error: unknown): string {
  const type = isRecord(error) ? error.type : undefined;
  return typeof type === 'string' && ERROR_TYPE.test(type) ? type : 'an error';
}

/** Whether a block or its delta brings what the model has generated, of which the signature is no part. */
function hasText({ text, thinking, partial_json: json, name }: Members): boolean {
  return Boolean(text) || Boolean(thinking) || Boolean(json) || Boolean(name);
}
