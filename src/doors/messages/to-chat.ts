/**
 * A Messages request as a chat completion. messages-dialect.ts calls it; to-chat-content.ts translates the
 * messages. No I/O; upstream worker.
 *
 * Follows platform.claude.com, page "Messages", and OpenAI's reference of chat completions, as of November
 * 2026. `extras`: whether the upstream reads `thinking_blocks` and `cache_control` in a chat completion;
 * servers with OpenAI's protocol may refuse a request that has either.
 *
 * Must hold: a member that is neither translated nor in KNOWN is refused, never dropped silently
 * (test/unit/doors/messages/messages-dialect.test.ts).
 */
import { isRecord } from '../../core/json.js';
import { FieldError } from '../../providers/provider.js';
import { from } from '../callers-path.js';
import { summarisingEditIn } from './messages-rules.js';
import { markOf, messagesOf, textPartsOf } from './to-chat-content.js';

type Members = Readonly<Record<string, unknown>>;

/** Members that are translated below, or do not change the response. */
const KNOWN: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'system', 'max_tokens', 'stream', 'stop_sequences', 'temperature', 'top_p'],
  ...['top_k', 'tools', 'tool_choice', 'thinking', 'metadata', 'output_config', 'cache_control'],
  ...['service_tier', 'diagnostics', 'context_management'],
]);

/** The least thinking budgets that become the efforts `medium` and `high`. */
const MEDIUM_BUDGET_MIN = 2_048;
const HIGH_BUDGET_MIN = 4_096;

/** The door's names of members of the chat completion, for messages to its callers: see callers-path.ts. */
export const NAMES: Readonly<Record<string, string>> = {
  stop: 'stop_sequences',
  user: 'metadata.user_id',
  reasoning_effort: 'thinking',
  response_format: 'output_config.format',
  'response_format.json_schema': 'output_config.format',
  parallel_tool_calls: 'tool_choice.disable_parallel_tool_use',
  // Members of tools, calls, results and parts.
  function: '',
  'function.parameters': 'input_schema',
  'function.arguments': 'input',
  tool_call_id: 'tool_use_id',
  image_url: 'source',
  'image_url.url': 'source',
  file: 'source',
  'file.file_data': 'source',
};

/** Throws a FieldError. */
export function toChat(body: Members, extras: boolean): Record<string, unknown> {
  for (const name in body)
    if (!KNOWN.has(name) && body[name] !== null && body[name] !== false)
      throw new FieldError(name, 'has no counterpart in a chat completion');
  checkContextEdits(body.context_management);
  const chat: Record<string, unknown> = { model: body.model, messages: [], max_tokens: body.max_tokens };
  const messages = messagesOf(body.messages as readonly Members[], extras);
  if (body.system !== undefined && body.system !== null) {
    const content = textPartsOf(body.system, 'system', extras);
    if (content.length > 0) messages.unshift(from('system', { role: 'system', content }));
  }
  chat.messages = messages;
  for (const name of ['temperature', 'top_p', 'top_k'])
    if (typeof body[name] === 'number') chat[name] = body[name];
  if (Array.isArray(body.stop_sequences) && body.stop_sequences.length > 0) chat.stop = body.stop_sequences;
  if (body.stream === true) {
    chat.stream = true;
    // vLLM's member for usage in each chunk, so that `message_start` can have the usage of the prompt.
    chat.stream_options = { include_usage: true, ...(extras && { continuous_usage_stats: true }) };
  }
  addTools(chat, body, extras);
  addThinking(chat, body);
  if (isRecord(body.metadata) && typeof body.metadata.user_id === 'string') chat.user = body.metadata.user_id;
  if (extras && isRecord(body.cache_control)) chat.cache_control = body.cache_control;
  return chat;
}

/** Refuses context edits, except those that only clear old parts: without these the model just reads more. */
function checkContextEdits(management: unknown): void {
  const index = summarisingEditIn(management);
  if (index >= 0)
    throw new FieldError(
      `context_management.edits[${index}].type`,
      'must begin with clear_: a chat completion has no counterpart of others',
    );
}

function addTools(chat: Record<string, unknown>, body: Members, extras: boolean): void {
  const tools = (body.tools ?? []) as readonly Members[];
  if (tools.length === 0) return;
  chat.tools = tools.map((tool, index) => {
    const { type = 'custom', name, description, input_schema: parameters, strict } = tool;
    if (type !== null && type !== 'custom')
      throw new FieldError(`tools[${index}].type`, 'must be custom: only Claude knows other tools');
    if (typeof name !== 'string') throw new FieldError(`tools[${index}].name`, 'must be a string');
    if (!isRecord(parameters)) throw new FieldError(`tools[${index}].input_schema`, 'must be an object');
    return from(`tools[${index}]`, {
      type: 'function',
      function: {
        name,
        ...(typeof description === 'string' && { description }),
        parameters,
        ...(strict === true && { strict }),
      },
      ...markOf(tool, extras),
    });
  });
  const choice = body.tool_choice ?? undefined;
  if (!isRecord(choice)) return;
  if (choice.type === 'auto' || choice.type === 'none') chat.tool_choice = choice.type;
  else if (choice.type === 'any') chat.tool_choice = 'required';
  else if (typeof choice.name !== 'string') throw new FieldError('tool_choice.name', 'must be a string');
  else chat.tool_choice = { type: 'function', function: { name: choice.name } };
  if (choice.disable_parallel_tool_use === true) chat.parallel_tool_calls = false;
}

function addThinking(chat: Record<string, unknown>, body: Members): void {
  const { thinking, output_config: config } = body;
  const { effort, format } = isRecord(config) ? config : ({} as Members);
  if (typeof effort === 'string') chat.reasoning_effort = effort;
  else if (isRecord(thinking) && typeof thinking.budget_tokens === 'number' && thinking.type === 'enabled') {
    const { budget_tokens: budget } = thinking;
    chat.reasoning_effort =
      budget >= HIGH_BUDGET_MIN ? 'high' : budget >= MEDIUM_BUDGET_MIN ? 'medium' : 'low';
  }
  if (format === undefined || format === null) return;
  if (!isRecord(format) || format.type !== 'json_schema' || !isRecord(format.schema))
    throw new FieldError('output_config.format', 'must be a json_schema with a schema');
  const schema = { name: 'answer', schema: format.schema, strict: true };
  chat.response_format = { type: 'json_schema', json_schema: schema };
}
