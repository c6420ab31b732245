/**
 * The EventJudge of the Responses API: finds usage, text and end in a stream that passes from an upstream
 * that speaks it; and `faultIn`, which finds the error in a response that is not streamed.
 * responses-dialect.ts makes one judge for each stream. Pure; upstream worker.
 *
 * Follows the reference of OpenAI, "Streaming events", as of November 2026.
 */
import { isRecord } from '../../core/json.js';
import type { EventJudge, EventMeaning } from '../door.js';

type Members = Readonly<Record<string, unknown>>;

/** Statuses of a success. `failed`, `cancelled` and `in_progress` come with HTTP status 200 too. */
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
