/**
 * Translates a request to POST /v1/responses into a chat completion, for upstreams that do not speak
 * Responses. responses-dialect.ts has `toChat` in its translator. No I/O; upstream worker, or counter thread
 * if the body is large.
 *
 * Must hold: every member is translated, dropped because it does not change the response, or rejected, as
 * docs/responses.md says (test/unit/doors/responses/to-chat.test.ts).
 *
 * Follows the reference of OpenAI, "Create a model response", as of November 2026.
 */
import { isRecord, type Members, membersOf } from '../../core/json.js';
import { type Fields, rejectOthers, takingAll } from '../../providers/fields.js';
import { FieldError } from '../../providers/provider.js';
import { withOrigin } from '../callers-path.js';
import type { UpstreamTraits } from '../door.js';
import { withOneSystem } from '../message-parts.js';
import { messagesOf } from './request-items.js';
import { offeredTools } from './tool-names.js';

const SAME_MEMBERS = [
  'model',
  'temperature',
  'top_p',
  'user',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'service_tier',
] as const;
/** Members that do not change the response, or belong to features that are rejected anyway. */
const DROPPED_MEMBERS = ['max_tool_calls', 'truncation', 'prompt_cache_options', 'client_metadata'] as const;
const INCLUDE_VALUES: readonly unknown[] = [
  'reasoning.encrypted_content',
  'message.output_text.logprobs',
  'message.input_image.image_url',
  // Members of hosted tools' calls, which a chat completion never has.
  'file_search_call.results',
  'web_search_call.results',
  'web_search_call.action.sources',
  'computer_call_output.output.image_url',
  'code_interpreter_call.outputs',
];
const LOGPROBS = 'message.output_text.logprobs';

/** The door's names of members of the chat completion, for messages to its callers: see callers-path.ts. */
export const NAMES: Readonly<Record<string, string>> = {
  messages: 'input',
  max_completion_tokens: 'max_output_tokens',
  response_format: 'text.format',
  'response_format.json_schema': 'text.format',
  verbosity: 'text.verbosity',
  reasoning_effort: 'reasoning.effort',
  logprobs: 'include',
  // Members of tools, calls, results and parts, and of `tool_choice`.
  function: '',
  custom: '',
  allowed_tools: '',
  tool_call_id: 'call_id',
  'image_url.url': 'image_url',
  'image_url.detail': 'detail',
  file: '',
};

/** As `Translator.toChat` (door.ts). Throws a FieldError for what a chat completion cannot express. */
export function toChat(body: Members, upstream: UpstreamTraits = {}): Record<string, unknown> {
  const provider = 'an upstream that does not speak Responses';
  return takingAll(body, provider, {}, (fields) => chatOf(fields, body, upstream));
}

function chatOf(fields: Fields, body: Members, upstream: UpstreamTraits): Record<string, unknown> {
  if (body.store === true)
    throw new FieldError('store', 'must be false: only an upstream that speaks Responses stores them');
  const chat: Record<string, unknown> = {};
  for (const name of SAME_MEMBERS) {
    const value = fields.take(name);
    if (value !== undefined) chat[name] = value;
  }
  const instructions = fields.string('instructions');
  const messages = messagesOf(fields.take('input'), upstream);
  const allMessages =
    instructions === undefined
      ? messages
      : [withOrigin('instructions', { role: 'system', content: instructions }), ...messages];
  chat.messages = upstream.extras ? allMessages : withOneSystem(allMessages);
  const outputTokensMax = fields.integer('max_output_tokens');
  if (outputTokensMax !== undefined) chat.max_completion_tokens = outputTokensMax;
  if (fields.boolean('stream') === true) {
    chat.stream = true;
    chat.stream_options = { include_usage: true };
  }
  addTools(fields, chat);
  addText(fields.record('text'), chat);
  addReasoning(fields.record('reasoning'), chat);
  addLogprobs(fields, chat);
  for (const name of DROPPED_MEMBERS) fields.take(name);
  return chat;
}

function addTools(fields: Fields, chat: Record<string, unknown>): void {
  const tools = fields.list('tools') ?? [];
  const choice = fields.take('tool_choice');
  const parallel = fields.boolean('parallel_tool_calls');
  // OpenAI rejects tool_choice and parallel_tool_calls without tools.
  if (tools.length === 0) return;
  const mayChoose = choice === undefined || choice === 'auto' || choice === 'none';
  chat.tools = offeredTools(tools, mayChoose).map(({ tool, path }) => withOrigin(path, toolOf(tool, path)));
  if (choice !== undefined) chat.tool_choice = choiceOf(choice);
  if (parallel !== undefined) chat.parallel_tool_calls = parallel;
}

/** The tool in the form of a chat completion. Throws a FieldError for a tool that the caller does not run. */
function toolOf(tool: Members, path: string): object {
  const { type } = tool;
  if (type !== 'function' && type !== 'custom')
    throw new FieldError(
      `${path}.type`,
      'must be function or custom: other tools are run by upstreams that speak Responses',
    );
  if (typeof tool.name !== 'string') throw new FieldError(`${path}.name`, 'must be a string');
  if (type === 'function')
    return { type, function: givenMembers(tool, ['name', 'description', 'parameters', 'strict']) };
  const custom: Record<string, unknown> = givenMembers(tool, ['name', 'description', 'format']);
  if (isRecord(custom.format) && custom.format.type === 'grammar')
    custom.format = { type: 'grammar', grammar: givenMembers(custom.format, ['syntax', 'definition']) };
  return { type, custom };
}

/** The `tool_choice` of a chat completion. A string passes as it is: the upstream checks it. */
function choiceOf(choice: unknown): unknown {
  if (typeof choice === 'string') return choice;
  const { type, mode, tools } = membersOf(choice);
  if (type === 'function' || type === 'custom') return namedTool(choice as Members, 'tool_choice');
  if (type === 'allowed_tools' && Array.isArray(tools)) {
    const allowed = (tools as unknown[]).map((tool, index) =>
      isRecord(tool) ? namedTool(tool, `tool_choice.tools[${index}]`) : tool,
    );
    return withOrigin('tool_choice', { type, allowed_tools: { mode, tools: allowed } });
  }
  throw new FieldError('tool_choice', 'must be auto, none, required, or name functions');
}

function namedTool({ type, name }: Members, path: string): object {
  return withOrigin(
    path,
    type === 'custom' ? { type, custom: { name } } : { type: 'function', function: { name } },
  );
}

/** Adds `verbosity` and `response_format`, which Responses has in `text`. */
function addText(text: Members = {}, chat: Record<string, unknown>): void {
  rejectOthers(text, 'text', ['format', 'verbosity']);
  const { format, verbosity } = text;
  // `medium` is the default, and servers that do not know the member would reject it.
  if (verbosity !== undefined && verbosity !== null && verbosity !== 'medium') chat.verbosity = verbosity;
  if (format === undefined || format === null) return;
  const { type } = membersOf(format);
  if (type === 'json_object') chat.response_format = { type };
  else if (type === 'json_schema')
    chat.response_format = {
      type,
      json_schema: givenMembers(format as Members, ['name', 'description', 'schema', 'strict']),
    };
  else if (type !== 'text')
    throw new FieldError('text.format.type', 'must be text, json_object or json_schema');
}

/**
 * Callers get all thoughts that the upstream returns, so `summary` and `generate_summary`, its former name,
 * are ignored; so is `context`: which thoughts of earlier turns go back is the upstream's.
 */
function addReasoning(reasoning: Members = {}, chat: Record<string, unknown>): void {
  rejectOthers(reasoning, 'reasoning', ['effort', 'mode', 'summary', 'generate_summary', 'context']);
  const { effort, mode } = reasoning;
  if (typeof effort === 'string') chat.reasoning_effort = effort;
  else if (effort !== undefined && effort !== null)
    throw new FieldError('reasoning.effort', 'must be a string');
  if (mode !== undefined && mode !== null && mode !== 'standard')
    throw new FieldError('reasoning.mode', 'must be standard: a chat completion has no other');
}

function addLogprobs(fields: Fields, chat: Record<string, unknown>): void {
  const include = fields.list('include') ?? [];
  const wrongIndex = include.findIndex((name) => !INCLUDE_VALUES.includes(name));
  if (wrongIndex >= 0)
    throw new FieldError(`include[${wrongIndex}]`, 'must name something that a chat completion has');
  const topLogprobs = fields.integer('top_logprobs') ?? 0;
  if (topLogprobs === 0 && !include.includes(LOGPROBS)) return;
  chat.logprobs = true;
  if (topLogprobs > 0) chat.top_logprobs = topLogprobs;
}

function givenMembers(members: Members, names: readonly string[]): Record<string, unknown> {
  const entries = names.map((name) => [name, members[name]] as const);
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined && value !== null));
}
