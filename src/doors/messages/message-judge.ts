/**
 * Reads the events of a stream that passes from an upstream which speaks the Messages API. One object for
 * each stream; upstream worker.
 *
 * Usage comes in two parts: `message_start` tells the prompt's, `message_delta` replaces what it names. A
 * report counts once `message_delta` is there: until then `output_tokens` is a token or two, and a stream
 * that breaks off is counted by its text.
 */
import { isRecord } from '../../core/json.js';
import type { EventJudge, EventMeaning } from '../door.js';

type Members = Readonly<Record<string, unknown>>;

const NOTHING: EventMeaning = { isText: false, isEnd: false };
const TEXT: EventMeaning = { isText: true, isEnd: false };
const END: EventMeaning = { isText: false, isEnd: true };

/** As Anthropic writes it. */
const TEXT_DELTA =
  /^\{"type":"content_block_delta","index":(?:0|[1-9]\d{0,5}),"delta":\{"type":"text_delta","text":"(?:[^"\\\u0000-\u001f]|\\["\\/bfnrt])+"\} {0,32}\}$/;

export class MessageJudge implements EventJudge {
  readonly textEvent = TEXT_DELTA;
  #usage: Record<string, unknown> = {};

  judge(event: Members): EventMeaning {
    const { type, message, delta } = event;
    switch (type) {
      case 'content_block_delta':
        return isRecord(delta) && hasText(delta) ? TEXT : NOTHING;
      case 'content_block_start':
        return isRecord(event.content_block) && hasText(event.content_block) ? TEXT : NOTHING;
      case 'message_start':
        if (!isRecord(message)) return { ...NOTHING, garbage: 'message_start without a message' };
        this.#add(message.usage);
        return { ...NOTHING, model: message.model };
      case 'message_delta':
        if (!isRecord(event.usage)) return NOTHING;
        this.#add(event.usage);
        return { ...NOTHING, usage: this.#usage };
      case 'message_stop':
        return END;
      case 'error':
        return { ...NOTHING, garbage: isRecord(event.error) ? String(event.error.type) : 'an error' };
      default:
        return typeof type === 'string' ? NOTHING : { ...NOTHING, garbage: 'an event without a type' };
    }
  }

  #add(usage: unknown): void {
    if (!isRecord(usage)) return;
    for (const name in usage) if (usage[name] !== null) this.#usage[name] = usage[name];
  }
}

function hasText({ text, thinking, partial_json: json, name }: Members): boolean {
  return Boolean(text) || Boolean(thinking) || Boolean(json) || Boolean(name);
}
