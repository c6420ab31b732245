/**
 * Reads what an upstream sends that speaks Responses itself: of a stream where the usage is, what brings
 * text, what ends it; of a whole response whether it is one. responses-dialect.ts makes a judge for each
 * stream. Pure; upstream worker.
 *
 * Follows the reference of OpenAI, "Streaming events", as of November 2026.
 */
import { isRecord } from '../../core/json.js';
import type { EventJudge, EventMeaning } from '../door.js';

type Members = Readonly<Record<string, unknown>>;

/** A response that ended well; others (`failed`, `cancelled`, `in_progress`) come with status 200, too. */
const ENDED: ReadonlySet<unknown> = new Set(['completed', 'incomplete', undefined, null]);

/** As Dialect.faultIn. */
export function faultIn({ status, error }: Members): string | undefined {
  if (isRecord(error)) return 'an error';
  return ENDED.has(status) ? undefined : 'a response that did not end well';
}

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
      case 'response.incomplete': {
        const fault = faultIn(response);
        return fault === undefined ? { usage, model, isText: false, isEnd: true } : wrong(fault);
      }
      default:
        return { model, isText: type.endsWith('.delta'), isEnd: false };
    }
  }
}

function wrong(garbage: string): EventMeaning {
  return { isText: false, isEnd: false, garbage };
}
