/**
 * The body of a call as a chat completion has it, for a count of its prompt. Counter thread; upstream worker
 * for an estimate of a short body.
 */
import { isRecord, parsedJson } from '../core/json.js';
import { dialectAt } from '../doors/dialects.js';
import { FieldError } from '../providers/provider.js';

/** `body` was checked when it came. `door`: its position in DOOR_NAMES. */
export function countedBodyOf(door: number, body: string | Uint8Array): string | Uint8Array {
  const dialect = dialectAt(door);
  const text = dialect === undefined || typeof body === 'string' ? body : Buffer.from(body).toString();
  if (dialect === undefined || typeof text !== 'string') return body;
  const members = parsedJson(text);
  if (!isRecord(members)) return '{}';
  if (dialect.promptTexts !== undefined) {
    const texts = dialect.promptTexts(members);
    return texts.length === 0 ? '{}' : JSON.stringify(texts);
  }
  try {
    return JSON.stringify(dialect.translator?.toChat(members) ?? members);
  } catch (error) {
    // What a chat completion cannot say is not counted.
    if (!(error instanceof FieldError)) throw error;
    return text;
  }
}
