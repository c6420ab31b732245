/**
 * The rules of a chat-completion request: their bounds, and the sentence for a body that breaks one, which
 * `violation` and all functions named `…Error` and `explain…` return. chat-scan.ts calls `explain` for a body
 * that the compiled validator has rejected. The rules and sentences that the other doors share (src/doors:
 * simple, messages, responses) are here too. The upstream checks members without a rule. Pure; any thread.
 *
 * Must hold: chat-schema.ts has the same rules, or `explain` throws for a body that only the validator
 * rejects (test/unit/protocol/validators.test.ts compares both). The rules are here a second time so that a
 * running gateway need not load TypeBox. Callers get the sentences, so a `field` is a path in their body.
 */
import { invariant } from '../core/errors.js';
import { isRecord, type Members } from '../core/json.js';
import { MESSAGES_MAX } from '../core/limits.js';
import { clipped } from '../core/wrong-input.js';

/** OpenAI's roles. Results of tools have `tool` or `function`. Newer models call `system` `developer`. */
export const CHAT_ROLES = ['system', 'developer', 'user', 'assistant', 'tool', 'function'] as const;

/** OpenAI's bounds of `temperature` and `top_p`. */
export const TEMPERATURE_MIN = 0;
export const TEMPERATURE_MAX = 2;
export const TOP_P_MIN = 0;
export const TOP_P_MAX = 1;

/** Zero is valid: only negative values are rejected. */
export const OUTPUT_TOKENS_MIN = 0;

/** Bounds of `n`, which multiplies the bill. The known providers make at most 128 choices of one prompt. */
export const CHOICES_MIN = 1;
export const CHOICES_MAX = 128;

/** Characters of the sender's text that a sentence repeats. */
const TEXT_CHARS_MAX = 40;
const ROLES: readonly string[] = CHAT_ROLES;

/** False for null as for undefined: client libraries send null for a member that was left out. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** A value in words: `"some text…"`, `3`, `null`, `an array`, `nothing`. */
function describe(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'object' && value !== null) return 'an object';
  if (typeof value === 'string') return JSON.stringify(clipped(value, TEXT_CHARS_MAX));
  return typeof value === 'number' ? String(value) : JSON.stringify(value);
}

/** The sentence for a field that breaks a rule, such as `temperature must be a number, got "warm"`. */
export function violation(field: string, rule: string, value: unknown): string {
  return `${field} must ${rule}, got ${describe(value)}`;
}

/** The rule of a member that may also be absent or null; `firstViolation` lets both pass. */
export interface Rule {
  /** The end of the sentence "MEMBER must …". */
  readonly must: string;
  readonly isValid: (value: unknown) => boolean;
}

/** The rules of some members, in the order in which they are checked. */
export type Rules = Readonly<Record<string, Rule>>;

export const BOOLEAN: Rule = { must: 'be true or false', isValid: (value) => typeof value === 'boolean' };
export const OBJECT: Rule = { must: 'be an object', isValid: isRecord };

export const within = (min: number, max: number): Rule => ({
  must: `be a number between ${min} and ${max}`,
  isValid: (value) => typeof value === 'number' && value >= min && value <= max,
});

export const integerFrom = (min: number): Rule => ({
  must: `be an integer from ${min}`,
  isValid: (value) => Number.isInteger(value) && (value as number) >= min,
});

/** The rule of `n`. */
export const CHOICES: Rule = {
  must: `be an integer between ${CHOICES_MIN} and ${CHOICES_MAX}`,
  isValid: (value) =>
    Number.isInteger(value) && (value as number) >= CHOICES_MIN && (value as number) <= CHOICES_MAX,
};

/** The sentence for the first member that breaks its rule; undefined if none does. */
export function firstViolation(body: Members, rules: Rules): string | undefined {
  for (const [name, { must, isValid }] of Object.entries(rules)) {
    const value = body[name];
    if (isGiven(value) && !isValid(value)) return violation(name, must, value);
  }
  return undefined;
}

/** The sentence for a wrong `stream_options`; undefined if it is valid, absent or null. */
export function streamOptionsError({ stream_options: options }: Members): string | undefined {
  if (!isGiven(options)) return undefined;
  if (!isRecord(options)) return violation('stream_options', 'be an object', options);
  const error = firstViolation(options, { include_usage: BOOLEAN });
  return error && `stream_options.${error}`;
}

/**
 * The sentence for a value that is no number, or out of bounds; undefined if it is valid, absent or null.
 * Unlike the rule of `within` it has a sentence for each fault: for a number it names only the bounds.
 */
function numberError(field: string, value: unknown, min: number, max: number): string | undefined {
  if (!isGiven(value)) return undefined;
  if (typeof value !== 'number') return violation(field, `be a number between ${min} and ${max}`, value);
  return value >= min && value <= max ? undefined : violation(field, `be between ${min} and ${max}`, value);
}

/** The sentence for a bound that is no integer from OUTPUT_TOKENS_MIN; undefined if valid, absent or null. */
export function outputTokensError(field: string, value: unknown): string | undefined {
  if (!isGiven(value)) return undefined;
  if (!Number.isInteger(value)) return violation(field, 'be an integer', value);
  return (value as number) >= OUTPUT_TOKENS_MIN ? undefined : violation(field, 'not be negative', value);
}

/** Beside one of these four members the content may also be absent, which means the same as null. */
const CONTENT_RULE =
  'be a string, an array of parts, or null beside tool_calls, function_call, refusal or audio';

/** Whether the message has one of the four members of CONTENT_RULE, so that it needs no content. */
function standsForContent({ tool_calls: calls, function_call: call, refusal, audio }: Members): boolean {
  return Array.isArray(calls) || isRecord(call) || typeof refusal === 'string' || isRecord(audio);
}

function contentError(field: string, message: Members): string | undefined {
  const content = message.content;
  if (typeof content === 'string') return undefined;
  if (!isGiven(content) && standsForContent(message)) return undefined;
  if (!Array.isArray(content)) return violation(field, CONTENT_RULE, content);
  return typedItemsError(field, content);
}

/** The sentence for the first item that is no object with a `type`; undefined if all items are. */
export function typedItemsError(field: string, items: readonly unknown[]): string | undefined {
  for (const [index, item] of items.entries()) {
    if (!isRecord(item)) return violation(`${field}[${index}]`, 'be an object', item);
    if (typeof item.type !== 'string') return violation(`${field}[${index}].type`, 'be a string', item.type);
  }
  return undefined;
}

/**
 * The sentence for the message at `index`, which the validator has rejected. Throws if the message breaks no
 * rule, which is a bug here or in chat-schema.ts.
 */
export function explainMessage(message: unknown, index: number): string {
  const field = `messages[${index}]`;
  if (!isRecord(message)) return violation(field, 'be an object', message);
  const role = message.role;
  if (typeof role !== 'string' || !ROLES.includes(role)) {
    return violation(`${field}.role`, `be one of ${ROLES.join(', ')}`, role);
  }
  const error = contentError(`${field}.content`, message);
  invariant(error !== undefined, 'a message that the validator rejects breaks a rule');
  return error;
}

/** The sentence for a body without messages, or with more than MESSAGES_MAX. */
export function messagesCountError(count: number): string {
  return count === 0
    ? 'messages must have at least 1 item, got 0'
    : `messages must have at most ${MESSAGES_MAX} items, got ${count}`;
}

function modelError(value: unknown): string | undefined {
  return typeof value === 'string' && value !== ''
    ? undefined
    : violation('model', 'be a non-empty string', value);
}

/**
 * Why the validator rejected `body`: the first field that breaks a rule, the rule, and the value of the
 * field, as in `temperature must be between 0 and 2, got 3`. `messagesError` is the sentence for `messages`,
 * undefined if they are a valid array or no array. Throws if `body` breaks no rule, which is a bug here or in
 * chat-schema.ts.
 */
export function explain(body: unknown, messagesError: string | undefined): string {
  if (!isRecord(body)) return violation('the request body', 'be a JSON object', body);
  const error =
    modelError(body.model) ??
    (Array.isArray(body.messages)
      ? messagesError
      : violation('messages', 'be an array of messages', body.messages)) ??
    outputTokensError('max_tokens', body.max_tokens) ??
    outputTokensError('max_completion_tokens', body.max_completion_tokens) ??
    numberError('temperature', body.temperature, TEMPERATURE_MIN, TEMPERATURE_MAX) ??
    numberError('top_p', body.top_p, TOP_P_MIN, TOP_P_MAX) ??
    firstViolation(body, { n: CHOICES, stream: BOOLEAN }) ??
    streamOptionsError(body);
  invariant(error !== undefined, 'a body that the validator rejects breaks a rule');
  return error;
}

/**
 * As `explain`, for the body of another door. `errorOf` returns the sentence for the first rule that the body
 * breaks, or undefined. It need not check `model`, which is checked before.
 */
export function explainBody(body: unknown, errorOf: (body: Members) => string | undefined): string {
  if (!isRecord(body)) return violation('the request body', 'be a JSON object', body);
  const error = modelError(body.model) ?? errorOf(body);
  invariant(error !== undefined, 'the validator and its explanation agree');
  return error;
}
