/**
 * The EventJudge of the Messages API: finds usage, text and end in a stream that passes from an upstream that
 * speaks it. messages-dialect.ts makes one for each stream. Upstream worker.
 *
 * Must hold: usage is reported only once `message_delta` has come. `message_start` has the usage of the
 * prompt, and an `output_tokens` of one or two; a stream that breaks off before `message_delta` is therefore
 * counted by its text (test/unit/doors/messages/messages-dialect.test.ts).
 */
import { isRecord } from '../../core/json.js';
import type { EventJudge, EventMeaning } from '../door.js';

type Members = Readonly<Record<string, unknown>>;

const NOTHING: EventMeaning = { isText: false, isEnd: false };
const TEXT: EventMeaning = { isText: true, isEnd: false };
const END: EventMeaning = { isText: false, isEnd: true };

/** Events as Anthropic writes them, some with spaces before the end: see `EventJudge.known`. */
const TEXT_DELTA =
  /^\{"type":"content_block_delta","index":(?:0|[1-9]\d{0,5}),"delta":\{"type":"text_delta","text":"(?:[^"\\\u0000-\u001f]|\\["\\/bfnrt])+"\} {0,32}\}$/;
const SAYS_NOTHING =
  /^\{"type": ?"(?:ping"|content_block_st(?:op","index":\d|art","index":\d,"content_block":\{"type":"text","text":""\})) {0,32}\}$/;
const STOP = /^\{"type":"message_stop" {0,32}\}$/;

export class MessageJudge implements EventJudge {
  #usage: Record<string, unknown> = {};

  known(data: string): EventMeaning | undefined {
    if (TEXT_DELTA.test(data)) return TEXT;
    if (SAYS_NOTHING.test(data)) return NOTHING;
    return STOP.test(data) ? END : undefined;
  }

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
