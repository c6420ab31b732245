/**
 * The rules of a request to POST /v1/responses, and the sentence for a body that breaks one.
 * responses-door.ts calls it for a body that the compiled validator has rejected. Pure; listener thread and
 * counter threads.
 *
 * Must hold: request-schemas.ts has the same rules, or `explainResponsesRequest` throws for a body that only
 * the validator rejects (test/unit/doors/responses/responses-rules.test.ts compares both). The rules are not
 * in that file so that the threads that face the network need not load TypeBox.
 */
import { invariant } from '../../core/errors.js';
import { isRecord } from '../../core/json.js';
import { MESSAGES_MAX } from '../../core/limits.js';
import type { RoutingMember } from '../../core/routing-members.js';
import {
  BOOLEAN,
  broken,
  brokenRule,
  integerFrom,
  OBJECT,
  OUTPUT_TOKENS_MIN,
  type Rules,
  TEMPERATURE_MAX,
  TEMPERATURE_MIN,
  TOP_P_MAX,
  TOP_P_MIN,
  within,
} from '../../protocol/chat-rules.js';

/** Members by which OpenAI reads what it has stored. */
const STORED = ['previous_response_id', 'conversation', 'prompt'] as const;

/** In the order in which they are checked. */
const RULES: Rules = {
  input: {
    must: 'be a string or an array of items',
    keeps: (value) => typeof value === 'string' || Array.isArray(value),
  },
  instructions: { must: 'be a string', keeps: (value) => typeof value === 'string' },
  max_output_tokens: integerFrom(OUTPUT_TOKENS_MIN),
  temperature: within(TEMPERATURE_MIN, TEMPERATURE_MAX),
  top_p: within(TOP_P_MIN, TOP_P_MAX),
  stream: BOOLEAN,
  stream_options: OBJECT,
  store: BOOLEAN,
  // A background response is fetched later by another request: the gateway would see neither text nor usage.
  background: { must: 'be false or be left out', keeps: (value) => value === false },
  parallel_tool_calls: BOOLEAN,
  tools: { must: 'be an array of tools', keeps: Array.isArray },
  text: OBJECT,
  reasoning: OBJECT,
};

/** The sentence for the first item that breaks a rule; undefined if none does. */
function itemsError(input: unknown): string | undefined {
  if (!Array.isArray(input)) return undefined;
  if (input.length === 0) return 'input must have at least 1 item, got 0';
  if (input.length > MESSAGES_MAX)
    return `input must have at most ${MESSAGES_MAX} items, got ${input.length}`;
  const index = input.findIndex((item) => !isRecord(item));
  return index === -1 ? undefined : broken(`input[${index}]`, 'be an object', input[index]);
}

function toolsError(tools: unknown): string | undefined {
  if (!Array.isArray(tools)) return undefined;
  for (const [index, tool] of (tools as unknown[]).entries()) {
    if (!isRecord(tool)) return broken(`tools[${index}]`, 'be an object', tool);
    if (typeof tool.type !== 'string') return broken(`tools[${index}].type`, 'be a string', tool.type);
  }
  return undefined;
}

/** Types of tools whose calls the caller runs, so that OpenAI bills only tokens for them. */
const CALLERS_TOOLS: readonly unknown[] = [
  ...['function', 'custom', 'local_shell', 'apply_patch', 'computer', 'computer_use_preview'],
];

function isHosted({ type, environment, execution, tools }: Readonly<Record<string, unknown>>): boolean {
  if (CALLERS_TOOLS.includes(type)) return false;
  if (type === 'shell') return !isRecord(environment) || environment.type !== 'local';
  if (type === 'tool_search') return execution !== 'client';
  if (type === 'namespace' && Array.isArray(tools))
    return (tools as unknown[]).some((tool) => !isRecord(tool) || isHosted(tool));
  return true;
}

/** Members that make the provider run a tool, or read what it has stored. `body` is valid. */
export function routingIn(body: Readonly<Record<string, unknown>>): readonly RoutingMember[] {
  const { tools, input } = body;
  const found: RoutingMember[] = STORED.filter((name) => (body[name] ?? undefined) !== undefined);
  if (Array.isArray(tools) && (tools as Readonly<Record<string, unknown>>[]).some(isHosted))
    found.push('hosted_tools');
  if (Array.isArray(input) && (input as Item[]).some(isReference)) found.push('item_reference');
  if ((body.context_management ?? undefined) !== undefined) found.push('context_management');
  return found;
}

type Item = Readonly<Record<string, unknown>>;

/** The id that response-stream.ts gives an item of reasoning. Those of OpenAI have no second `_`. */
const TRANSLATED_REASONING = /^rs_.+_\d+$/;

/**
 * Whether OpenAI reads the item, or a part of it, from its store by the id (openapi.json, `InputItem`, and
 * the guides "Reasoning" and "Image generation", read 2026-11). An item without a type and without a message
 * is an `item_reference`.
 */
function isReference({ type, id, role, content, result, encrypted_content: encrypted }: Item): boolean {
  switch (type ?? undefined) {
    case undefined:
      return typeof role !== 'string' || (content ?? undefined) === undefined;
    case 'item_reference':
      return true;
    case 'reasoning':
      return typeof id === 'string' && !TRANSLATED_REASONING.test(id) && !isText(encrypted);
    case 'image_generation_call':
      return !isText(result);
    default:
      return false;
  }
}

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== '';
}

/**
 * Returns why the validator rejected `body`. Throws if `body` breaks no rule, which is a bug of this file.
 */
export function explainResponsesRequest(body: unknown): string {
  if (!isRecord(body)) return broken('the request body', 'be a JSON object', body);
  if (typeof body.model !== 'string' || body.model === '')
    return broken('model', 'be a non-empty string', body.model);
  const found = brokenRule(body, RULES) ?? itemsError(body.input) ?? toolsError(body.tools);
  invariant(found !== undefined, 'the validator and its explanation agree');
  return found;
}
