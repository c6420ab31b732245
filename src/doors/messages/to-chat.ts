/**
 * Translates a Messages request into a chat completion. messages-dialect.ts calls `toChat` once a call. No
 * I/O; upstream worker, or counter thread if the body is large.
 *
 *     text, image, document      parts of the same kind; a document's base64 is a file. Title and context of
 *                                a document of text, which are for the model, come before the text
 *     tool_result                a message of the role `tool`, before other blocks of its turn. Only text is
 *                                allowed in that message, so images and files go to the user message after
 *                                it; a result with `is_error` begins with "Error: "
 *     tool_use                   tool_calls
 *     thinking                   thinking_blocks, if it has a signature and the upstream reads them;
 *                                reasoning_content with `thoughtsBack`: DeepSeek and Kimi reject messages
 *                                without it, OpenAI and others may reject it
 *
 * Follows platform.claude.com, page "Messages", and OpenAI's reference of chat completions, as of November
 * 2026.
 *
 * Must hold: a member of the request, or of `output_config`, that is neither translated nor in KNOWN is
 * rejected, never dropped silently, and so is a block or a source of a type that is not named above. Within
 * other members, blocks and tools the members that are not read are dropped
 * (test/unit/doors/messages/messages-dialect.test.ts). Each part that is made is registered with `withOrigin`
 * (callers-path.ts), or an error names a path that the caller does not know
 * (test/unit/doors/callers-path.test.ts).
 */
import { createHash } from 'node:crypto';
import { exactJsonText } from '../../core/exact-json.js';
import { isGiven, isRecord, type Members, membersOf } from '../../core/json.js';
import { innerSchemas } from '../../providers/anthropic/schemas.js';
import { rejectOthers, stringIn } from '../../providers/fields.js';
import { FieldError } from '../../providers/provider.js';
import { withOrigin } from '../callers-path.js';
import type { UpstreamTraits } from '../door.js';
import { thoughtsBackOf, withOneSystem } from '../message-parts.js';
import { summarisingEditIn } from './messages-rules.js';

/** Members that this file translates, or that do not change the response. */
const KNOWN: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'system', 'max_tokens', 'stream', 'stop_sequences', 'temperature', 'top_p'],
  ...['top_k', 'tools', 'tool_choice', 'thinking', 'metadata', 'output_config', 'cache_control'],
  ...['service_tier', 'diagnostics', 'context_management'],
]);

/** OpenAI's bound of `user`, and the length of the hash that replaces a longer one. */
const USER_CHARS_MAX = 64;

/** The least thinking budgets that become the efforts `medium` and `high`. */
const MEDIUM_BUDGET_MIN = 2_048;
const HIGH_BUDGET_MIN = 4_096;

/** The door's names of members of the chat completion, for messages to its callers: see callers-path.ts. */
export const NAMES: Readonly<Record<string, string>> = {
  stop: 'stop_sequences',
  user: 'metadata.user_id',
  reasoning_effort: 'output_config.effort or thinking',
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

/** As `Translator.toChat` (door.ts). The door has validated `body`. What is rejected throws a FieldError. */
export function toChat(body: Members, upstream: UpstreamTraits = {}): Record<string, unknown> {
  for (const name in body)
    if (!KNOWN.has(name) && body[name] !== null && body[name] !== false)
      throw new FieldError(name, 'has no counterpart in a chat completion');
  checkContextEdits(body.context_management);
  const chat: Record<string, unknown> = { model: body.model, messages: [], max_tokens: body.max_tokens };
  const messages = messagesOf(body.messages as readonly Members[], upstream);
  if (body.system !== undefined && body.system !== null) {
    const content = textPartsOf(body.system, 'system', upstream);
    if (content.length > 0) messages.unshift(withOrigin('system', { role: 'system', content }));
  }
  chat.messages = upstream.extras ? messages : withOneSystem(messages);
  for (const name of ['temperature', 'top_p', 'top_k'])
    if (typeof body[name] === 'number') chat[name] = body[name];
  if (Array.isArray(body.stop_sequences) && body.stop_sequences.length > 0) chat.stop = body.stop_sequences;
  if (body.stream === true) {
    chat.stream = true;
    // `continuous_usage_stats`: vLLM reports usage in each chunk, so `message_start` can have the prompt's.
    chat.stream_options = { include_usage: true, ...(upstream.extras && { continuous_usage_stats: true }) };
  }
  addTools(chat, body, upstream);
  addThinking(chat, body, upstream);
  const user = membersOf(body.metadata).user_id;
  if (typeof user === 'string') chat.user = userOf(user);
  if (upstream.extras && isRecord(body.cache_control)) chat.cache_control = body.cache_control;
  return chat;
}

/** Hashes a long id: Claude Code's `user_id` is longer than OpenAI (64), OpenRouter and others (128) take. */
function userOf(id: string): string {
  return id.length <= USER_CHARS_MAX ? id : createHash('sha256').update(id).digest('hex');
}

/** Rejects context edits, but leaves out those that only clear old contents: then the model reads more. */
function checkContextEdits(management: unknown): void {
  const index = summarisingEditIn(management);
  if (index >= 0)
    throw new FieldError(
      `context_management.edits[${index}].type`,
      'must begin with clear_: a chat completion has no counterpart of others',
    );
}

/** Adds `tools`, `tool_choice`, `parallel_tool_calls`. Throws a FieldError for a tool that Anthropic runs. */
function addTools(chat: Record<string, unknown>, body: Members, upstream: UpstreamTraits): void {
  const tools = (body.tools ?? []) as readonly Members[];
  if (tools.length === 0) return;
  chat.tools = tools.map((tool, index) => {
    const { type = 'custom', name, description, input_schema: parameters, strict } = tool;
    if (type !== null && type !== 'custom')
      throw new FieldError(`tools[${index}].type`, 'must be custom: only Claude knows other tools');
    if (typeof name !== 'string') throw new FieldError(`tools[${index}].name`, 'must be a string');
    if (!isRecord(parameters)) throw new FieldError(`tools[${index}].input_schema`, 'must be an object');
    return withOrigin(`tools[${index}]`, {
      type: 'function',
      function: {
        name,
        ...(typeof description === 'string' && { description }),
        parameters,
        ...(strict === true && isEnforced(parameters, upstream) && { strict }),
      },
      ...cacheControlOf(tool, upstream),
    });
  });
  const choice = body.tool_choice ?? undefined;
  if (!isRecord(choice)) return;
  if (choice.type === 'auto' || choice.type === 'none') chat.tool_choice = choice.type;
  else if (choice.type === 'any') chat.tool_choice = 'required';
  else {
    const name = stringIn(choice, 'name', 'tool_choice');
    chat.tool_choice = withOrigin('tool_choice', { type: 'function', function: { name } });
  }
  if (choice.disable_parallel_tool_use === true) chat.parallel_tool_calls = false;
}

/**
 * A budget becomes an effort, which any upstream may know. No effort says that a model must not think, or may
 * think as much as it likes: upstreams that read `thinking` get that member as it is, others get nothing.
 */
function addThinking(chat: Record<string, unknown>, body: Members, upstream: UpstreamTraits): void {
  const { thinking, output_config: config } = body;
  rejectOthers(membersOf(config), 'output_config', ['effort', 'format']);
  const { effort, format } = membersOf(config);
  if (isGiven(effort) && typeof effort !== 'string')
    throw new FieldError('output_config.effort', 'must be a string');
  const isOff = isRecord(thinking) && thinking.type === 'disabled';
  if (upstream.extras && isOff) chat.thinking = thinking;
  else if (typeof effort === 'string') chat.reasoning_effort = effort;
  else if (isRecord(thinking) && typeof thinking.budget_tokens === 'number' && thinking.type === 'enabled') {
    const { budget_tokens: budget } = thinking;
    chat.reasoning_effort =
      budget >= HIGH_BUDGET_MIN ? 'high' : budget >= MEDIUM_BUDGET_MIN ? 'medium' : 'low';
  } else if (upstream.extras && isRecord(thinking)) chat.thinking = thinking;
  if (format === undefined || format === null) return;
  if (!isRecord(format) || format.type !== 'json_schema' || !isRecord(format.schema))
    throw new FieldError('output_config.format', 'must be a json_schema with a schema');
  const { schema } = format;
  const named = { name: 'answer', schema, ...(isEnforced(schema, upstream) && { strict: true }) };
  chat.response_format = { type: 'json_schema', json_schema: named };
}

/**
 * The keywords and formats that OpenAI's strict mode knows. To others, such as `uniqueItems`, `propertyNames`
 * or the format `uri`, it answers 400.
 */
const STRICT_KEYWORDS: ReadonlySet<string> = new Set([
  ...'$schema $ref $defs definitions title description type enum const properties required'.split(' '),
  ...'additionalProperties items anyOf pattern format minItems maxItems'.split(' '),
  ...'minimum maximum exclusiveMinimum exclusiveMaximum multipleOf'.split(' '),
]);
const STRICT_FORMATS: ReadonlySet<unknown> = new Set(
  'date-time time date duration email hostname ipv4 ipv6 uuid'.split(' '),
);
/** A schema has one of them, or a `$ref` and nothing else. */
const STRICT_KINDS = ['type', 'anyOf', 'enum', 'const'];

/**
 * Whether `strict` is set for a schema that Anthropic would enforce: always with extras, else if OpenAI's
 * strict mode takes the schema. There the schema is an object without `anyOf` beside it, and each object is
 * closed and requires all of its properties (guide "Structured outputs", read 2026-11), which Anthropic does
 * not ask for; OpenAI answers 400 to others.
 */
function isEnforced(schema: Members, { extras }: UpstreamTraits): boolean {
  if (extras === true) return true;
  return schema.type === 'object' && schema.anyOf === undefined && fitsStrictMode(schema);
}

/** The nesting of bodies, which the door has bounded, bounds the recursion. */
function fitsStrictMode(schema: unknown): boolean {
  if (schema === undefined) return true;
  if (!isRecord(schema)) return false;
  const { type, properties, required, additionalProperties, format, $ref } = schema;
  if ($ref !== undefined) return Object.keys(schema).length === 1;
  if (!STRICT_KINDS.some((name) => schema[name] !== undefined)) return false;
  if (!Object.keys(schema).every((name) => STRICT_KEYWORDS.has(name))) return false;
  if (format !== undefined && !STRICT_FORMATS.has(format)) return false;
  const isObject =
    isRecord(properties) || type === 'object' || (Array.isArray(type) && type.includes('object'));
  const requiredNames = new Set<unknown>(Array.isArray(required) ? required : []);
  if (isObject && additionalProperties !== false) return false;
  if (Object.keys(membersOf(properties)).some((name) => !requiredNames.has(name))) return false;
  return innerSchemas(schema).every(fitsStrictMode);
}

/** A part of a content; or a tool call, or an item of `thinking_blocks`. */
type Part = Record<string, unknown>;
type Message = Record<string, unknown>;

function messagesOf(messages: readonly Members[], upstream: UpstreamTraits): Message[] {
  const chatMessages: Message[] = [];
  messages.forEach(({ role, content }, index) => {
    const path = `messages[${index}]`;
    if (role === 'assistant') chatMessages.push(withOrigin(path, assistantOf(content, path, upstream)));
    else if (role === 'system') {
      const texts = textPartsOf(content, `${path}.content`, upstream);
      if (texts.length > 0) chatMessages.push(withOrigin(path, { role, content: texts }));
    } else chatMessages.push(...userTurnOf(content, path, upstream));
  });
  return chatMessages;
}

/** The value of `content` for text blocks alone. Throws a FieldError for any other block. */
function textPartsOf(content: unknown, path: string, upstream: UpstreamTraits): string | Part[] {
  if (typeof content === 'string') return content;
  const parts = blocksIn(content, path).map((block, index) =>
    textPartOf(block, `${path}[${index}]`, upstream),
  );
  return contentOf(parts);
}

function cacheControlOf(block: Members, upstream: UpstreamTraits): Members {
  const { cache_control: control } = block;
  return upstream.extras && isRecord(control) ? { cache_control: control } : {};
}

/** The messages of a user turn: one for each tool result, then one for all other blocks. */
function userTurnOf(content: unknown, path: string, upstream: UpstreamTraits): Message[] {
  if (typeof content === 'string') return [withOrigin(path, { role: 'user', content })];
  const messages: Message[] = [];
  const parts: Part[] = [];
  blocksIn(content, `${path}.content`).forEach((block, index) => {
    const blockPath = `${path}.content[${index}]`;
    if (block.type === 'tool_result')
      messages.push(withOrigin(blockPath, resultOf(block, blockPath, parts, upstream)));
    else parts.push(partOf(block, blockPath, upstream));
  });
  if (parts.length > 0) messages.push(withOrigin(path, { role: 'user', content: contentOf(parts) }));
  else if (messages.length === 0) throw new FieldError(`${path}.content`, 'must not be empty');
  return messages;
}

/** The message of a tool result. Images and files in the result are added to `parts`, for a user message. */
function resultOf(block: Members, path: string, parts: Part[], upstream: UpstreamTraits): Message {
  const { content, is_error: isError } = block;
  const id = stringIn(block, 'tool_use_id', path);
  const isText = typeof content === 'string';
  const texts: string[] = isText ? [content] : [];
  blocksIn(isText ? undefined : content, `${path}.content`).forEach((innerBlock, index) => {
    const part = partOf(innerBlock, `${path}.content[${index}]`, upstream);
    if (part.type === 'text') texts.push(part.text as string);
    else parts.push(part);
  });
  const text = texts.join('\n');
  return {
    role: 'tool',
    tool_call_id: id,
    content: isError === true ? `Error: ${text}` : text,
    ...cacheControlOf(block, upstream),
  };
}

/** The message of an assistant turn. `thoughtsBack` gives it `reasoning_content`, even without thoughts. */
function assistantOf(content: unknown, path: string, upstream: UpstreamTraits): Message {
  if (typeof content === 'string')
    return {
      role: 'assistant',
      content,
      ...(upstream.thoughtsBack && { reasoning_content: thoughtsBackOf('') }),
    };
  let thoughts = '';
  const parts: Part[] = [];
  const calls: Part[] = [];
  const thinkingBlocks: Part[] = [];
  blocksIn(content, `${path}.content`).forEach((block, index) => {
    const blockPath = `${path}.content[${index}]`;
    const { type, input, thinking, signature, data } = block;
    if (type === 'thinking') {
      if (typeof thinking === 'string') thoughts += thinking;
      // Without a signature no provider accepts the block.
      if (typeof signature === 'string' && signature !== '')
        thinkingBlocks.push(withOrigin(blockPath, { type, thinking, signature }));
    } else if (type === 'redacted_thinking') thinkingBlocks.push(withOrigin(blockPath, { type, data }));
    else if (type === 'tool_use') {
      const id = stringIn(block, 'id', blockPath);
      const calledFunction = {
        name: stringIn(block, 'name', blockPath),
        arguments: exactJsonText(input ?? {}),
      };
      const call = { id, type: 'function', function: calledFunction, ...cacheControlOf(block, upstream) };
      calls.push(withOrigin(blockPath, call));
    } else parts.push(textPartOf(block, blockPath, upstream));
  });
  return {
    role: 'assistant',
    content: parts.length > 0 ? contentOf(parts) : calls.length > 0 ? null : '',
    ...(upstream.extras && thinkingBlocks.length > 0 && { thinking_blocks: thinkingBlocks }),
    ...(upstream.thoughtsBack && { reasoning_content: thoughtsBackOf(thoughts) }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

/** None if the content is absent. Checks the blocks, because the schema does not look into tool results. */
function blocksIn(content: unknown, path: string): readonly Members[] {
  if (content === undefined || content === null) return [];
  if (!Array.isArray(content)) throw new FieldError(path, 'must be a string or an array of blocks');
  return (content as unknown[]).map((block, index) => {
    if (!isRecord(block)) throw new FieldError(`${path}[${index}]`, 'must be an object');
    return block;
  });
}

/** The value of `content`: a string for a single text without `cache_control`, which every server accepts. */
function contentOf(parts: Part[]): string | Part[] {
  const [part] = parts;
  return parts.length === 1 && part!.type === 'text' && part!.cache_control === undefined
    ? (part!.text as string)
    : parts;
}

function textPartOf(block: Members, path: string, upstream: UpstreamTraits): Part {
  const { type } = block;
  if (type !== 'text') throw new FieldError(`${path}.type`, 'has no counterpart in a chat completion');
  const part = { type, text: stringIn(block, 'text', path), ...cacheControlOf(block, upstream) };
  return withOrigin(path, part);
}

/** The part for a block that is no thought, tool call or result. */
function partOf(block: Members, path: string, upstream: UpstreamTraits): Part {
  return block.type === 'text'
    ? textPartOf(block, path, upstream)
    : withOrigin(path, mediaPartOf(block, path, upstream));
}

function mediaPartOf(block: Members, path: string, upstream: UpstreamTraits): Part {
  const { type, source, title, context, citations } = block;
  if (type !== 'image' && type !== 'document')
    throw new FieldError(`${path}.type`, 'has no counterpart in a chat completion');
  if (isRecord(citations) && citations.enabled === true)
    throw new FieldError(`${path}.citations`, 'has no counterpart in a chat completion');
  if (!isRecord(source)) throw new FieldError(`${path}.source`, 'must be an object');
  const { type: sourceType, url, media_type: mediaType, data } = source;
  if (sourceType === 'text' && typeof data === 'string')
    return { type: 'text', text: textOfDocument(data, title, context), ...cacheControlOf(block, upstream) };
  const isInline = sourceType === 'base64' && typeof data === 'string' && typeof mediaType === 'string';
  if (!isInline && !(sourceType === 'url' && typeof url === 'string' && type === 'image'))
    throw new FieldError(`${path}.source`, `has no counterpart in a chat completion`);
  const address = isInline ? `data:${mediaType};base64,${data}` : url;
  if (type === 'image')
    return { type: 'image_url', image_url: { url: address }, ...cacheControlOf(block, upstream) };
  if (typeof context === 'string' && context !== '')
    throw new FieldError(`${path}.context`, 'has no counterpart in a chat completion beside a file');
  const filename = typeof title === 'string' ? title : 'document.pdf';
  return { type: 'file', file: { filename, file_data: address }, ...cacheControlOf(block, upstream) };
}

/** The text of a document, after the block's `title` and `context` if they are texts. */
function textOfDocument(data: string, title: unknown, context: unknown): string {
  const headings = [title, context].filter((text) => typeof text === 'string' && text !== '');
  return headings.length === 0 ? data : `${headings.join('\n')}\n\n${data}`;
}
