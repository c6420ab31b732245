/**
 * Reads the events of an upstream that speaks Responses itself: where the usage is, what brings text, what
 * ends the stream. responses-dialect.ts makes one for each stream. Pure; upstream worker.
 *
 * Follows the reference of OpenAI, "Streaming events", as of November 2026.
 */
import { isRecord } from '../../core/json.js';
import type { EventJudge, EventMeaning } from '../door.js';

type Members = Readonly<Record<string, unknown>>;

export class ResponsesJudge implements EventJudge {
  judge(event: Members): EventMeaning {
    const { type } = event;
    if (isRecord(event.error)) return wrong('an error event');
    if (typeof type !== 'string') return wrong('an event has no type');
    const response = isRecord(event.response) ? event.response : {};
    const { usage, model } = response;
    switch (type) {
      case 'error':
        return wrong('an error event');
      case 'response.failed':
        return wrong('a response that failed');
      case 'response.completed':
      case 'response.incomplete':
        return { usage, model, isText: false, isEnd: true };
      default:
        return { model, isText: type.endsWith('.delta'), isEnd: false };
    }
  }
}

function wrong(garbage: string): EventMeaning {
  return { isText: false, isEnd: false, garbage };
}
