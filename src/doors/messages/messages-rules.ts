/**
 * The rules of a Messages request: their bounds, the sentence for a body that breaks one, and the members
 * that cost more than tokens. messages-door.ts gives the functions to member-scan.ts, which calls an
 * `explain…` for a body that the compiled validator has rejected. Pure; listener thread, or counter thread
 * for large bodies; to-chat.ts calls `summarisingEditIn` on upstream workers.
 *
 * Must hold: request-schemas.ts has the same rules, or `explainMessages` throws for a body that only the
 * validator rejects (test/unit/doors/messages/messages-door.test.ts tries each rule). The rules are here a
 * second time so that the threads that face the network need not load TypeBox.
 */
import { isRecord, type Members } from '../../core/json.js';
import { MESSAGES_MAX } from '../../core/limits.js';
import type { RoutingMember } from '../../core/routing-members.js';
import {
  BOOLEAN,
  explainBody,
  firstViolation,
  integerFrom,
  isGiven,
  messagesCountError,
  OBJECT,
  outputTokensError,
  type Rules,
  typedItemsError,
  violation,
  within,
} from '../../protocol/chat-rules.js';

/** Newer models of Claude accept `system` within a conversation. */
export const MESSAGE_ROLES = ['user', 'assistant', 'system'] as const;
export const TOOL_CHOICES = ['auto', 'any', 'tool', 'none'] as const;

/** Bounds of `temperature` and `top_p`. */
export const UNIT_INTERVAL_MIN = 0;
export const UNIT_INTERVAL_MAX = 1;

const UNIT_INTERVAL = within(UNIT_INTERVAL_MIN, UNIT_INTERVAL_MAX);
const MESSAGES_RULES: Rules = {
  temperature: UNIT_INTERVAL,
  top_p: UNIT_INTERVAL,
  top_k: integerFrom(0),
  stop_sequences: {
    must: 'be an array of strings',
    isValid: (value) => Array.isArray(value) && value.every((sequence) => typeof sequence === 'string'),
  },
  stream: BOOLEAN,
  metadata: OBJECT,
};

function isOneOf(words: readonly string[], value: unknown): boolean {
  return typeof value === 'string' && words.includes(value);
}

// Each `…Error` returns the sentence for the first rule that its value breaks; undefined if the value is
// valid. `field` is the path of the value in the body.

function textError(field: string, value: unknown): string | undefined {
  if (typeof value === 'string') return undefined;
  if (!Array.isArray(value)) return violation(field, 'be a string or an array of blocks', value);
  return typedItemsError(field, value);
}

function messageError(message: unknown, field: string): string | undefined {
  if (!isRecord(message)) return violation(field, 'be an object', message);
  if (!isOneOf(MESSAGE_ROLES, message.role))
    return violation(`${field}.role`, `be one of ${MESSAGE_ROLES.join(', ')}`, message.role);
  return textError(`${field}.content`, message.content);
}

function messagesError(value: unknown): string | undefined {
  if (!Array.isArray(value)) return violation('messages', 'be an array of messages', value);
  if (value.length === 0 || value.length > MESSAGES_MAX) return messagesCountError(value.length);
  return firstError(value, 'messages', messageError);
}

function firstError(
  list: readonly unknown[],
  name: string,
  errorOf: (item: unknown, field: string) => string | undefined,
): string | undefined {
  for (let index = 0; index < list.length; index++) {
    const error = errorOf(list[index], `${name}[${index}]`);
    if (error !== undefined) return error;
  }
  return undefined;
}

function toolsError(value: unknown): string | undefined {
  if (!isGiven(value)) return undefined;
  if (!Array.isArray(value)) return violation('tools', 'be an array of tools', value);
  return firstError(value, 'tools', (tool, field) =>
    isRecord(tool) ? undefined : violation(field, 'be an object', tool),
  );
}

function choiceError(value: unknown): string | undefined {
  if (!isGiven(value)) return undefined;
  if (!isRecord(value)) return violation('tool_choice', 'be an object', value);
  return isOneOf(TOOL_CHOICES, value.type)
    ? undefined
    : violation('tool_choice.type', `be one of ${TOOL_CHOICES.join(', ')}`, value.type);
}

function thinkingError(value: unknown): string | undefined {
  if (!isGiven(value)) return undefined;
  if (!isRecord(value)) return violation('thinking', 'be an object', value);
  return typeof value.type === 'string' ? undefined : violation('thinking.type', 'be a string', value.type);
}

/** The sentence for the members that messages and count_tokens have in common. */
function commonError({
  messages,
  system,
  tools,
  tool_choice: choice,
  thinking,
}: Members): string | undefined {
  return (
    messagesError(messages) ??
    (isGiven(system) ? textError('system', system) : undefined) ??
    toolsError(tools) ??
    choiceError(choice) ??
    thinkingError(thinking)
  );
}

/** Anthropic requires `max_tokens`. 0 is valid: it fills the prompt cache and generates nothing. */
function maxTokensError(value: unknown): string | undefined {
  return isGiven(value)
    ? outputTokensError('max_tokens', value)
    : violation('max_tokens', 'be an integer', value);
}

/** As `explainMessages`, for a request to count tokens. */
export function explainCount(body: unknown): string {
  const rules: Rules = { stream: { must: 'be false', isValid: (value) => value === false } };
  return explainBody(body, (members) => commonError(members) ?? firstViolation(members, rules));
}

/**
 * Why the validator rejected `body`: the first field that breaks a rule, the rule, and the value of the
 * field. Throws if `body` breaks no rule, which is a bug here or in request-schemas.ts.
 */
export function explainMessages(body: unknown): string {
  return explainBody(
    body,
    (members) =>
      commonError(members) ?? maxTokensError(members.max_tokens) ?? firstViolation(members, MESSAGES_RULES),
  );
}

/**
 * The least `max_tokens` that Anthropic accepts: more than the thinking budget, which `max_tokens` includes.
 */
export function outputTokensMin({ thinking }: Members): number {
  const budget = isRecord(thinking) && thinking.type === 'enabled' ? thinking.budget_tokens : undefined;
  return typeof budget === 'number' && Number.isSafeInteger(budget) && budget > 0 ? budget + 1 : 1;
}

/** Types of tools whose calls the caller runs, besides those without a type and `custom`. */
const CALLERS_TOOL = /^(?:custom$|(?:bash|text_editor|computer|memory|browser_toolset)_\d)/;

/**
 * The index, in `context_management.edits`, of the first edit that does more than clear old parts; -1 if
 * there is none. Such an edit may have a model summarise the conversation, which costs tokens of its own.
 */
export function summarisingEditIn(management: unknown): number {
  const edits = isRecord(management) ? management.edits : undefined;
  if (!Array.isArray(edits)) return -1;
  return (edits as unknown[]).findIndex(
    (edit) => !(isRecord(edit) && typeof edit.type === 'string' && edit.type.startsWith('clear_')),
  );
}

/** Members for which Anthropic bills more than the tokens of the response. `body` is valid. */
export function costlyMembersIn(body: Members): RoutingMember[] {
  const edits = summarisingEditIn(body.context_management) >= 0 ? (['context_management'] as const) : [];
  return [...hostedToolsIn(body), ...edits];
}

/** `hosted_tools` if Anthropic runs some of the tools, which may be billed apart from tokens. */
function hostedToolsIn(body: Members): readonly ['hosted_tools'] | readonly [] {
  const tools = (body.tools ?? []) as readonly Members[];
  const isHosted = ({ type = 'custom' }: Members): boolean =>
    type !== null && !(typeof type === 'string' && CALLERS_TOOL.test(type));
  return tools.some(isHosted) ? ['hosted_tools'] : [];
}
