/**
 * The Responses door's half for upstream workers, its Dialect: how responses of upstreams that speak
 * Responses are read, and the translation for other upstreams. dialects.ts has the dialect in its table;
 * responses-door.ts is the half for listeners. Upstream worker; `toChat` also counter threads for large
 * bodies.
 *
 * Must hold: only response.completed and response.incomplete end a stream well
 * (test/unit/doors/responses/response-stream.test.ts, the test of the judge). To passed-stream-reader.ts of
 * upstream/ a stream without either was cut off.
 */
import { isRecord, type Members, membersOf } from '../../core/json.js';
import { ProviderError } from '../../providers/provider.js';
import { NO_MEANING, type Dialect, type EventJudge, type EventMeaning, type Translator } from '../door.js';
import { ResponseStream } from './response-stream.js';
import { isTextDelta, StreamedKinds } from './streamed-kinds.js';
import { NAMES, toChat } from './to-chat.js';

const TRANSLATOR: Translator = {
  toChat,
  // Schemas of tools and of the response may have long integers.
  exactMembers: ['tools', 'text'],
  names: NAMES,
  fromChat(response, call) {
    const choice: unknown = Array.isArray(response.choices) ? response.choices[0] : undefined;
    if (!isRecord(choice) || !isRecord(choice.message)) throw ProviderError.invalid('no message');
    // The call is no stream, so the writer makes only the response.
    const writer = new ResponseStream(call);
    writer.push(response);
    writer.end();
    return JSON.stringify(writer.response);
  },
  openStream: (call) => new ResponseStream(call),
};

export const RESPONSES_DIALECT: Dialect<'responses'> = {
  name: 'responses',
  // Each response has this member, and no other body of status 200 has it.
  marker: 'output',
  faultIn,
  openJudge: () => new ResponsesJudge(),
  translator: TRANSLATOR,
  promptTexts: undefined,
};

/**
 * Values of `status` in a success; some upstreams leave the member out. `failed`, `cancelled` and
 * `in_progress` come with HTTP status 200 too, and are faults.
 */
const ENDED: ReadonlySet<unknown> = new Set(['completed', 'incomplete', undefined, null]);

function faultIn({ status, error }: Members): string | undefined {
  if (isRecord(error)) return 'an error';
  return ENDED.has(status) ? undefined : 'a response that did not end well';
}

/**
 * Finds usage, text and end in a stream that passes from an upstream that speaks Responses. Follows the
 * reference of OpenAI, "Streaming events", as of November 2026.
 */
class ResponsesJudge implements EventJudge {
  readonly #kinds = new StreamedKinds();
  #hasItem = false;

  judge(event: Members): EventMeaning {
    const { type } = event;
    // Before the type, because servers send errors without a type too.
    if (isRecord(event.error)) return meaningOf('an error event');
    if (typeof type !== 'string') return meaningOf('an event has no type');
    const response = membersOf(event.response);
    const { usage, model } = response;
    switch (type) {
      case 'error':
        return meaningOf('an error event');
      case 'response.failed':
        return meaningOf('a response that failed');
      case 'response.completed':
      case 'response.incomplete': {
        const fault = faultIn(response);
        const isUncounted = !this.#hasNewItem(response.output);
        return fault === undefined
          ? { ...NO_MEANING, usage, model, isEnd: true, isUncounted }
          : meaningOf(fault);
      }
      default: {
        // Deltas of reasoning and of a tool's arguments count as text too, because the caller pays for them.
        const isText = isTextDelta(type);
        if (isText) this.#kinds.countDelta(type);
        return { ...NO_MEANING, model, isText, isUncounted: !isText && !this.#isNew(type, event) };
      }
    }
  }

  /** Whether an event that is no delta and no end brings a text, or the name of a call, that is new. */
  #isNew(type: string, { item }: Members): boolean {
    if (type === 'response.output_item.added') return true;
    if (type !== 'response.output_item.done') return type.endsWith('.done') && this.#kinds.isDoneNew(type);
    this.#hasItem = true;
    return isRecord(item) && this.#kinds.isItemNew(item.type);
  }

  /** Whether the output of a response that is complete has a text that no event before has brought. */
  #hasNewItem(output: unknown): boolean {
    if (this.#hasItem || !Array.isArray(output)) return false;
    return (output as unknown[]).some((item) => isRecord(item) && this.#kinds.isItemNew(item.type));
  }
}

function meaningOf(fault: string): EventMeaning {
  return { ...NO_MEANING, fault };
}
