/**
 * Why a parsed body is no chat-completion request: the first field that breaks a rule, the rule, and what was got. Called only
 * after the compiled validator said no. Pure; any thread.
 *
 * It knows the same rules as chat-schema.ts; a test holds the two against each other.
 */
import { invariant } from '../core/errors.js';
import { MESSAGES_MAX } from '../core/limits.js';
import { clipped } from '../core/wrong-input.js';
import {
  CHAT_ROLES,
  CHOICES_MAX,
  CHOICES_MIN,
  OUTPUT_TOKENS_MIN,
  TEMPERATURE_MAX,
  TEMPERATURE_MIN,
  TOP_P_MAX,
  TOP_P_MIN,
} from './chat-rules.js';

type Fields = Readonly<Record<string, unknown>>;

/** Characters of the caller's own text that a message repeats: enough to know it again, too few to fill a log. */
const GOT_CHARS_MAX = 40;
const ROLES: readonly string[] = CHAT_ROLES;

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** What was got, in words: `"some text…"`, `3`, `null`, `an array`, `nothing`. Never recurses into the value. */
export function got(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value === 'string') return JSON.stringify(clipped(value, GOT_CHARS_MAX));
  return typeof value === 'number' ? String(value) : JSON.stringify(value);
}

function fault(field: string, rule: string, value: unknown): string {
  return `${field} must ${rule}, got ${got(value)}`;
}

function numberError(field: string, value: unknown, min: number, max: number): string | undefined {
  if (!isGiven(value)) return undefined;
  if (typeof value !== 'number') return fault(field, `be a number between ${min} and ${max}`, value);
  return value >= min && value <= max ? undefined : fault(field, `be between ${min} and ${max}`, value);
}

function outputTokensError(field: string, value: unknown): string | undefined {
  if (!isGiven(value)) return undefined;
  if (!Number.isInteger(value)) return fault(field, 'be an integer', value);
  return (value as number) >= OUTPUT_TOKENS_MIN ? undefined : fault(field, 'not be negative', value);
}

function choicesError(value: unknown): string | undefined {
  if (!isGiven(value)) return undefined;
  const isInRange =
    Number.isInteger(value) && (value as number) >= CHOICES_MIN && (value as number) <= CHOICES_MAX;
  return isInRange ? undefined : fault('n', `be an integer between ${CHOICES_MIN} and ${CHOICES_MAX}`, value);
}

function booleanError(field: string, value: unknown): string | undefined {
  return !isGiven(value) || typeof value === 'boolean' ? undefined : fault(field, 'be true or false', value);
}

function streamOptionsError(value: unknown): string | undefined {
  if (!isGiven(value)) return undefined;
  if (!isFields(value)) return fault('stream_options', 'be an object', value);
  return booleanError('stream_options.include_usage', value.include_usage);
}

function contentError(field: string, message: Fields): string | undefined {
  const content = message.content;
  if (typeof content === 'string') return undefined;
  if (!isGiven(content) && Array.isArray(message.tool_calls)) return undefined;
  if (!Array.isArray(content))
    return fault(field, 'be a string, an array of parts, or null beside tool_calls', content);
  for (const [index, part] of (content as unknown[]).entries()) {
    if (!isFields(part)) return fault(`${field}[${index}]`, 'be an object', part);
    if (typeof part.type !== 'string') return fault(`${field}[${index}].type`, 'be a string', part.type);
  }
  return undefined;
}

/** What is wrong with a message that the validator refused, the one at `index`. */
export function explainMessage(message: unknown, index: number): string {
  const field = `messages[${index}]`;
  if (!isFields(message)) return fault(field, 'be an object', message);
  const role = message.role;
  if (typeof role !== 'string' || !ROLES.includes(role)) {
    return fault(`${field}.role`, `be one of ${ROLES.join(', ')}`, role);
  }
  const found = contentError(`${field}.content`, message);
  invariant(found !== undefined, 'the validator and its explanation agree');
  return found;
}

/** What is wrong with the number of messages, of which there must be one and may be MESSAGES_MAX. */
export function messagesCountError(count: number): string {
  return count === 0
    ? 'messages must have at least 1 item, got 0'
    : `messages must have at most ${MESSAGES_MAX} items, got ${count}`;
}

function modelError(value: unknown): string | undefined {
  return typeof value === 'string' && value !== ''
    ? undefined
    : fault('model', 'be a non-empty string', value);
}

/**
 * The sentence for the caller: `temperature must be between 0 and 2, got 3`. `body` is a value that the validator refused;
 * one that breaks no rule is a bug here and throws. `messagesFault` is what was found wrong with its messages, if they are an array.
 */
export function explain(body: unknown, messagesError: string | undefined): string {
  if (!isFields(body)) return fault('the request body', 'be a JSON object', body);
  const found =
    modelError(body.model) ??
    (Array.isArray(body.messages)
      ? messagesError
      : fault('messages', 'be an array of messages', body.messages)) ??
    outputTokensError('max_tokens', body.max_tokens) ??
    outputTokensError('max_completion_tokens', body.max_completion_tokens) ??
    numberError('temperature', body.temperature, TEMPERATURE_MIN, TEMPERATURE_MAX) ??
    numberError('top_p', body.top_p, TOP_P_MIN, TOP_P_MAX) ??
    choicesError(body.n) ??
    booleanError('stream', body.stream) ??
    streamOptionsError(body.stream_options);
  invariant(found !== undefined, 'the validator and its explanation agree');
  return found;
}
