/**
 * The door of OpenAI's Responses API, the half for listeners: its route, how its bodies are read, and the
 * form of errors. doors.ts has the door in its table; responses-dialect.ts is the half for upstream workers.
 * Listener thread, and counter threads for large bodies.
 *
 * Must hold: a request by which OpenAI reads what it has stored, or runs a tool that it bills, has a routing
 * member (test/unit/protocol/known-members.stored.test.ts and responses-door.test.ts). OpenAI's client raises
 * an error for the error event, which has the next sequence number
 * (test/unit/doors/responses/responses-door.test.ts).
 */
import { asBuffer } from '../../core/bytes.js';
import { DOOR_PATHS } from '../../core/door-names.js';
import { ERROR_KINDS, type ErrorRecord } from '../../core/errors.js';
import { isGiven, isRecord, jsonText, type Members, parsedJson } from '../../core/json.js';
import type { RoutingMember } from '../../core/routing-members.js';
import { REQUEST_RULES } from '../../protocol/generated.js';
import { Level, uncheckedMembers } from '../../protocol/known-members.js';
import { sseEvent } from '../../protocol/sse.js';
import { OPENAI_ERRORS } from '../chat/chat-door.js';
import type { Door } from '../door.js';
import { readersOf } from '../member-scan.js';
import { isOwnReasoningId } from './response-object.js';

const STORED = ['previous_response_id', 'conversation', 'prompt'] as const;

/** Types of tools whose calls the caller runs, so that OpenAI bills only tokens for them. */
const CALLERS_TOOLS: readonly unknown[] = [
  'function',
  'custom',
  'local_shell',
  'apply_patch',
  'computer',
  'computer_use_preview',
];

/** An unknown type counts as the provider's. The reader has bounded how deep namespaces are. */
function isHosted({ type, environment, execution, tools }: Members): boolean {
  if (CALLERS_TOOLS.includes(type)) return false;
  if (type === 'shell') return !isRecord(environment) || environment.type !== 'local';
  if (type === 'tool_search') return execution !== 'client';
  if (type === 'namespace' && Array.isArray(tools))
    return (tools as unknown[]).some((tool) => !isRecord(tool) || isHosted(tool));
  return true;
}

/**
 * Whether an item offers the model a tool that the provider runs: `additional_tools`, `tool_search_output`,
 * and any item of a later kind with tools. `mcp_list_tools` only tells what a server once offered.
 */
function offersHosted({ type, tools }: Members): boolean {
  if (!Array.isArray(tools) || type === 'mcp_list_tools') return false;
  return (tools as unknown[]).some((tool) => !isRecord(tool) || isHosted(tool));
}

/** `body` is valid. */
function routingIn(body: Members): readonly RoutingMember[] {
  const { tools, input } = body;
  const routing: RoutingMember[] = STORED.filter((name) => isGiven(body[name]));
  let isHostedOffered = Array.isArray(tools) && (tools as Members[]).some(isHosted);
  let hasReference = false;
  let isEdited = isGiven(body.context_management);
  if (Array.isArray(input))
    for (const item of input as Members[]) {
      isHostedOffered ||= offersHosted(item);
      hasReference ||= isReference(item);
      // The item asks for what `context_management` of the type `compaction` does.
      isEdited ||= item.type === 'compaction_trigger';
    }
  if (isHostedOffered) routing.push('hosted_tools');
  if (hasReference) routing.push('item_reference');
  if (isEdited) routing.push('context_management');
  return routing;
}

/**
 * Whether OpenAI reads the item, or a part of the item, from its store by the id (openapi.json, `InputItem`,
 * and the guides "Reasoning" and "Image generation", read 2026-11). An item without a type that is no message
 * is an `item_reference`.
 */
function isReference({ type, id, role, content, result, encrypted_content: encrypted }: Members): boolean {
  switch (type ?? undefined) {
    case undefined:
      return typeof role !== 'string' || !isGiven(content);
    case 'item_reference':
      return true;
    case 'reasoning':
      return typeof id === 'string' && !isOwnReasoningId(id) && !isNonEmptyText(encrypted);
    case 'image_generation_call':
      return !isNonEmptyText(result);
    default:
      return false;
  }
}

function isNonEmptyText(value: unknown): boolean {
  return typeof value === 'string' && value !== '';
}

/** Types of parts that are text. '' stands for a part without a type, such as the result of a shell. */
const TEXT_TYPES = ['input_text', 'output_text', 'text', 'refusal', 'summary_text', 'reasoning_text', ''];

/**
 * A part of a content, output or summary. In the values of "unchecked" members no names are checked. Then
 * come the kinds of stored things that a member's value may name, and the types of text (Level).
 */
const PART = new Level(
  {
    ...uncheckedMembers('type', 'text', 'refusal', 'annotations', 'logprobs', 'prompt_cache_breakpoint'),
    ...uncheckedMembers('image_url', 'detail', 'file_id', 'file_data', 'file_url', 'filename', 'input_audio'),
  },
  { image_url: 'storage_url', file_id: 'file_id', file_data: 'storage_url', file_url: 'storage_url' },
  TEXT_TYPES,
);

const TOOL = new Level({
  ...uncheckedMembers('type', 'name', 'description', 'parameters', 'strict', 'format', 'server_url'),
  ...uncheckedMembers('container', 'model', 'connector_id', 'authorization', 'headers', 'vector_store_ids'),
  ...uncheckedMembers('tools'),
});

const ITEM = new Level({
  ...uncheckedMembers('type', 'role', 'id', 'status', 'phase', 'call_id', 'name', 'arguments', 'input'),
  ...uncheckedMembers('encrypted_content'),
  content: PART,
  output: PART,
  summary: PART,
  tools: TOOL,
});

/**
 * The known member names of a request, as protocol/known-members.ts has those of a chat completion: a name
 * that differs only in case is rejected, because decoders that fold case would read another request than the
 * admitted one. `service_tier` must not be here: only names that are not here are looked up among the routing
 * members (core/routing-members.ts).
 */
const RESPONSES_REQUEST = new Level({
  ...uncheckedMembers('model', 'instructions', 'max_output_tokens', 'temperature', 'top_p', 'top_logprobs'),
  ...uncheckedMembers('stream', 'stream_options', 'store', 'background', 'previous_response_id', 'prompt'),
  ...uncheckedMembers('conversation', 'parallel_tool_calls', 'max_tool_calls', 'truncation', 'include'),
  ...uncheckedMembers('metadata', 'user', 'safety_identifier', 'prompt_cache_key', 'prompt_cache_retention'),
  ...uncheckedMembers('prompt_cache_options', 'context_management', 'moderation'),
  input: ITEM,
  tools: TOOL,
  tool_choice: new Level(uncheckedMembers('type', 'name', 'mode', 'tools', 'server_label')),
  text: new Level({
    ...uncheckedMembers('verbosity'),
    format: new Level(uncheckedMembers('type', 'name', 'description', 'schema', 'strict')),
  }),
  reasoning: new Level(uncheckedMembers('effort', 'summary', 'generate_summary', 'context', 'mode')),
});

/**
 * The least `max_output_tokens` that OpenAI accepts. For an account with little money the gateway lowers the
 * bound, but not below this. A caller who asks for less gets OpenAI's own 400.
 */
const OUTPUT_TOKENS_MIN_AT_OPENAI = 16;

const SEQUENCE_NUMBER = '"sequence_number":';
/** Its value: digits, and the character that ends them. */
const SEQUENCE_VALUE = /^\s*(\d{1,15})\s*[,}]/;
/** Bytes that are read for the value, so that the cost does not depend on the frame. */
const VALUE_BYTES_MAX = 32;
/** An event that repeats a request with tools is longer than this. A shorter frame is not searched twice. */
const REPEATING_BYTES_MIN = 512;
const LINE_FEED = 10;
const DATA_START = /^data: ?/;

/**
 * Returns the last `sequence_number` in a frame; undefined if the frame has none. Text of the model cannot
 * match SEQUENCE_NUMBER, because quotes in such a text have backslashes. But an event that repeats the
 * request may have members of that name in the schema of a tool: then the event is parsed.
 */
function numberIn(frame: Uint8Array): number | undefined {
  const bytes = asBuffer(frame);
  const nameStart = bytes.lastIndexOf(SEQUENCE_NUMBER);
  if (nameStart < 0) return undefined;
  if (bytes.length > REPEATING_BYTES_MIN) {
    const lineStart = bytes.lastIndexOf(LINE_FEED, nameStart) + 1;
    if (bytes.indexOf(SEQUENCE_NUMBER, lineStart) !== nameStart) return numberInLine(bytes, lineStart);
  }
  const valueStart = nameStart + SEQUENCE_NUMBER.length;
  const match = SEQUENCE_VALUE.exec(bytes.toString('latin1', valueStart, valueStart + VALUE_BYTES_MAX));
  return match === null ? undefined : Number(match[1]);
}

/** Undefined if the frame has the event whose data line begins at `start` only in part. */
function numberInLine(bytes: Buffer, start: number): number | undefined {
  const end = bytes.indexOf(LINE_FEED, start);
  const line = bytes.toString('utf8', start, end < 0 ? bytes.length : end);
  const event = parsedJson(line.replace(DATA_START, ''));
  const number = isRecord(event) ? event.sequence_number : undefined;
  return Number.isSafeInteger(number) ? (number as number) : undefined;
}

/**
 * The event that ends a stream, in the form of the reference, and with a member `error` as in a chat
 * completion: OpenAI's client libraries (TypeScript, Python) raise an error for that member alone. `number`:
 * the next sequence number (request/delivery.ts counts), 0 if the stream has had no event.
 */
function errorEvent({ code, message }: ErrorRecord, _requestId: string, number = 0): string {
  const event = {
    type: 'error',
    sequence_number: number,
    code,
    message,
    param: null,
    error: { type: ERROR_KINDS[code].type, code, message, param: null },
  };
  return sseEvent(jsonText(event), 'error');
}

export const RESPONSES: Door<'responses'> = {
  name: 'responses',
  path: DOOR_PATHS.responses,
  errors: { ...OPENAI_ERRORS, event: errorEvent, numberIn },
  ...readersOf({
    level: RESPONSES_REQUEST,
    ...REQUEST_RULES.responses,
    outputTokens: 'max_output_tokens',
    outputTokensMin: () => OUTPUT_TOKENS_MIN_AT_OPENAI,
    // The protocol has no member for more responses than one, and each stream ends with its usage.
    choices: () => 1,
    asksForUsage: false,
    routing: routingIn,
  }),
  headerLines: () => '',
};
