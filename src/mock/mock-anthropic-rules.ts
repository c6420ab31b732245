/**
 * Anthropic's rules for requests, by which the mock rejects unknown members, wrong values, misplaced tool
 * results and empty texts. mock-anthropic.ts calls this file, and tests of src/providers check by it the
 * requests that they make. Pure.
 *
 * Follows the types of @anthropic-ai/sdk 1.12, and platform.claude.com, pages "Errors", "Versions", "Handle
 * tool calls" and "Mid-conversation system messages", as of November 2026. The texts of errors resemble
 * Anthropic's.
 *
 * Must hold: a wrong request that src/providers could make of a chat completion is rejected here, or its
 * tests prove nothing (test/unit/mock/mock-anthropic.test.ts). What src/providers never writes is not
 * checked.
 */
import { isRecord, type Members } from '../core/json.js';

/** Values of `anthropic-version`. Only the old one permits temperature, top_p and top_k. */
const OLD_VERSION = '2023-06-01';
const VERSIONS: readonly unknown[] = [OLD_VERSION, '2026-10-21'];

const CACHE_CONTROL = 'cache_control';
/** The members of each kind of object. The kind of a block is its type. */
const MEMBERS_OF_KIND: Readonly<Record<string, readonly string[]>> = {
  request: [
    ...'model messages max_tokens system stream stop_sequences temperature top_p top_k tools'.split(' '),
    ...'tool_choice thinking output_config metadata service_tier container inference_geo'.split(' '),
    CACHE_CONTROL,
  ],
  message: ['role', 'content'],
  tool: ['name', 'description', 'input_schema', 'type', 'strict', CACHE_CONTROL],
  thinking_config: ['type', 'budget_tokens', 'display'],
  tool_choice: ['type', 'name', 'disable_parallel_tool_use'],
  output_config: ['effort', 'format'],
  text: ['type', 'text', 'citations', CACHE_CONTROL],
  image: ['type', 'source', CACHE_CONTROL],
  document: ['type', 'source', 'title', 'context', 'citations', CACHE_CONTROL],
  thinking: ['type', 'thinking', 'signature'],
  redacted_thinking: ['type', 'data'],
  tool_use: ['type', 'id', 'name', 'input', 'caller', CACHE_CONTROL],
  tool_result: ['type', 'tool_use_id', 'content', 'is_error', CACHE_CONTROL],
};
/** The types of blocks that a message of each role may have. */
const BLOCKS_OF_ROLE: Readonly<Record<string, readonly string[]>> = {
  user: ['text', 'image', 'document', 'tool_result'],
  assistant: ['text', 'thinking', 'redacted_thinking', 'tool_use'],
  system: ['text'],
};
const BLOCKS_OF_RESULT: readonly string[] = ['text', 'image', 'document'];
const SOURCES: Readonly<Record<string, readonly string[]>> = {
  base64: ['type', 'media_type', 'data'],
  url: ['type', 'url'],
  text: ['type', 'media_type', 'data'],
};
const IMAGES: readonly unknown[] = ['image/jpeg', 'image/png', 'image/gif', 'image/webp'];
const TOOL_NAME = /^[\w-]{1,128}$/;
const TOOL_ID = /^[\w-]+$/;
/** Blocks with `cache_control` in a request. */
const CACHED_BLOCKS_MAX = 4;
const STRICT_TOOLS_MAX = 20;
/** Bounds for the schemas of the strict tools and of the response, counted together. */
const OPTIONAL_PROPERTIES_MAX = 24;
const UNION_TYPES_MAX = 16;

/** Thrown at the first broken rule, with Anthropic's message. `anthropicProblem` catches it. */
class Problem extends Error {}

/** Throws a Problem with Anthropic's `message` if a rule is broken. */
function must(isKept: boolean, message: string): asserts isKept {
  if (!isKept) throw new Problem(message);
}

/** The blocks of a content in which `anthropicProblem` has found nothing wrong. */
export function blocksIn(content: unknown): readonly Members[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : (content as readonly Members[]);
}

/** What is wrong with the headers `anthropic-version` and `content-type`; undefined if nothing is. */
export function headersProblem(version: string | undefined, type: string | undefined): string | undefined {
  if (version === undefined) return 'anthropic-version: header is required';
  if (!VERSIONS.includes(version)) return `anthropic-version: "${version}" is not a valid version`;
  return type?.startsWith('application/json') === true ? undefined : 'content-type: must be application/json';
}

/** The first rule that the request breaks; undefined if it breaks none. `version`: one of VERSIONS. */
export function anthropicProblem(request: Members, version: string): string | undefined {
  try {
    checkRequest(request, version);
    return undefined;
  } catch (error) {
    if (error instanceof Problem) return error.message;
    throw error;
  }
}

function checkRequest(request: Members, version: string): void {
  checkMembers(request, 'request', '');
  must(typeof request.model === 'string', 'model: Field required');
  const { max_tokens: maxTokens, messages, system, stop_sequences: stopSequences, thinking } = request;
  // The mock does not check the bounds of the number.
  must(Number.isInteger(maxTokens), 'max_tokens: Field required');
  must(Array.isArray(messages) && messages.length > 0, 'messages: at least one message is required');
  for (const name of ['temperature', 'top_p'] as const) {
    const value = request[name];
    const isAllowed = value === undefined || (typeof value === 'number' && value >= 0 && value <= 1);
    must(isAllowed, `${name}: range: 0..1`);
    must(value === undefined || version === OLD_VERSION, `${name}: Extra inputs are not permitted`);
  }
  must(request.top_k === undefined || version === OLD_VERSION, 'top_k: Extra inputs are not permitted');
  must(
    stopSequences === undefined || Array.isArray(stopSequences),
    'stop_sequences: Input should be a valid list',
  );
  for (const stop of (stopSequences ?? []) as unknown[])
    must(
      typeof stop === 'string' && stop.trim() !== '',
      'stop_sequences: each stop sequence must contain non-whitespace',
    );
  if (system !== undefined) checkContent(system, BLOCKS_OF_ROLE.system!, 'system');
  checkOutput(request);
  checkThinking(thinking, maxTokens as number, request);
  checkTools(request);
  checkSchemas(request);
  checkMessages(messages);
  // Simpler than to walk through all blocks; a member of this name in a tool's input or schema counts too.
  const cachedCount = JSON.stringify(request).split('"cache_control":{').length - 1;
  must(
    cachedCount <= CACHED_BLOCKS_MAX,
    `A maximum of ${CACHED_BLOCKS_MAX} blocks with cache_control may be provided. Found ${cachedCount}.`,
  );
}

/** Checks that `value` is an object with only members that its kind has, and its `cache_control`. */
function checkMembers(value: unknown, kind: string, path: string): asserts value is Members {
  must(isRecord(value), `${path}: Input should be a valid dictionary`);
  for (const name in value)
    must(
      MEMBERS_OF_KIND[kind]!.includes(name),
      `${path}${path === '' ? '' : '.'}${name}: Extra inputs are not permitted`,
    );
  const cacheControl = value[CACHE_CONTROL];
  if (cacheControl === undefined) return;
  const isAllowed =
    isRecord(cacheControl) &&
    cacheControl.type === 'ephemeral' &&
    [undefined, '5m', '1h'].includes(cacheControl.ttl as string);
  must(isAllowed, `${path}.cache_control: Input should be of type ephemeral`);
}

function checkOutput({ output_config: output }: Members): void {
  if (output === undefined) return;
  checkMembers(output, 'output_config', 'output_config');
  const { effort, format } = output;
  const isEffort = [undefined, 'low', 'medium', 'high', 'xhigh', 'max'].includes(effort as string);
  must(isEffort, 'output_config.effort: Input should be low, medium, high, xhigh or max');
  if (format === undefined) return;
  must(isRecord(format) && format.type === 'json_schema', 'output_config.format.type: Field required');
  must(isRecord(format.schema), 'output_config.format.schema: Field required');
}

function checkThinking(thinking: unknown, maxTokens: number, { temperature }: Members): void {
  if (thinking === undefined) return;
  checkMembers(thinking, 'thinking_config', 'thinking');
  const { type, budget_tokens: budget } = thinking;
  // For some models `between_tools` switches thinking off (providers/anthropic/models.ts).
  const types: readonly unknown[] = ['enabled', 'disabled', 'adaptive', 'between_tools'];
  must(types.includes(type), 'thinking.type: unknown');
  if (type !== 'enabled') return;
  must(typeof budget === 'number' && budget >= 1024, 'thinking.budget_tokens: Input should be at least 1024');
  must(budget < maxTokens, '`max_tokens` must be greater than `thinking.budget_tokens`.');
  must(
    temperature === undefined || temperature === 1,
    '`temperature` may only be set to 1 when thinking is enabled.',
  );
}

function checkTools({ tools, tool_choice: toolChoice }: Members): void {
  must(
    tools !== undefined || toolChoice === undefined,
    'tool_choice: may only be specified while providing tools.',
  );
  const names = new Set<unknown>();
  ((tools ?? []) as unknown[]).forEach((tool, index) => {
    const path = `tools.${index}`;
    checkMembers(tool, 'tool', path);
    must(
      typeof tool.name === 'string' && TOOL_NAME.test(tool.name),
      `${path}.name: String should match pattern`,
    );
    must(!names.has(tool.name), 'tools: Tool names must be unique.');
    names.add(tool.name);
    const { input_schema: schema } = tool;
    must(isRecord(schema) && schema.type === 'object', `${path}.input_schema.type: Input should be 'object'`);
  });
  if (toolChoice === undefined) return;
  checkMembers(toolChoice, 'tool_choice', 'tool_choice');
  const types: readonly unknown[] = ['auto', 'any', 'tool', 'none'];
  must(types.includes(toolChoice.type), 'tool_choice.type: unknown');
  must(
    toolChoice.type !== 'tool' || names.has(toolChoice.name),
    `tool_choice.name: Tool '${String(toolChoice.name)}' not found`,
  );
}

/** Checks how complex the schemas are. `checkTools` and `checkOutput` have checked their form before. */
function checkSchemas({ tools, output_config: output }: Members): void {
  const strict = ((tools ?? []) as readonly Members[]).filter((tool) => tool.strict === true);
  must(
    strict.length <= STRICT_TOOLS_MAX,
    `tools: ${strict.length} strict tools, the limit is ${STRICT_TOOLS_MAX}`,
  );
  const { format } = (output ?? {}) as Members;
  const roots = [...strict.map((tool) => tool.input_schema), isRecord(format) ? format.schema : undefined];
  const schemas = roots.flatMap(schemasIn);
  const optionalNames = schemas.flatMap(({ properties, required = [] }) =>
    Object.keys((properties ?? {}) as Members).filter((name) => !(required as unknown[]).includes(name)),
  );
  must(
    optionalNames.length <= OPTIONAL_PROPERTIES_MAX,
    `Schemas contains too many optional parameters (${optionalNames.length}) which exceeds the limit: ${OPTIONAL_PROPERTIES_MAX}`,
  );
  const unions = schemas.filter(({ anyOf, type }) => anyOf !== undefined || Array.isArray(type));
  must(
    unions.length <= UNION_TYPES_MAX,
    `Schemas contains too many parameters with union types (${unions.length} parameters with type arrays or anyOf) which exceeds the limit: ${UNION_TYPES_MAX}`,
  );
}

/** The schema and all schemas in it. */
function schemasIn(schema: unknown): readonly Members[] {
  if (!isRecord(schema)) return [];
  const { anyOf, allOf, items, properties, $defs, definitions } = schema;
  const maps = [properties, $defs, definitions].filter(isRecord).flatMap((map) => Object.values(map));
  const lists = [anyOf, allOf].flatMap((list) => (Array.isArray(list) ? (list as unknown[]) : []));
  return [schema, ...[...maps, ...lists, items].flatMap(schemasIn)];
}

function checkMessages(messages: readonly unknown[]): void {
  /** Ids of the tool_use blocks of the previous message, and its role. */
  let toolUses = new Set<unknown>();
  let previousRole = '';
  messages.forEach((message, index) => {
    const path = `messages.${index}`;
    checkMembers(message, 'message', path);
    const { role } = message;
    must(typeof role === 'string' && Object.hasOwn(BLOCKS_OF_ROLE, role), `${path}.role: unknown`);
    must(index > 0 || role === 'user', 'messages: first message must use the "user" role');
    if (role === 'system')
      must(previousRole === 'user', `${path}: a system message must follow a user message`);
    if (previousRole === 'system')
      must(
        role === 'assistant',
        `messages.${index - 1}: must be the last one or be followed by an assistant`,
      );
    previousRole = role;
    checkContent(message.content, BLOCKS_OF_ROLE[role]!, `${path}.content`);
    // A system message has only texts (BLOCKS_OF_ROLE), so nothing more can be wrong.
    if (role === 'system') return;
    const blocks = blocksIn(message.content);
    checkResults(blocks, toolUses, path, index);
    toolUses = new Set(blocks.flatMap(({ type, id }) => (type === 'tool_use' ? [id] : [])));
    if (index === messages.length - 1 && role === 'assistant') {
      const text = blocks.at(-1)!.text as string | undefined;
      must(
        text === undefined || text === text.trimEnd(),
        'final assistant content cannot end with trailing whitespace',
      );
    }
  });
}

/** Checks that each of `toolUses` has one result in `blocks`, and that results come before other blocks. */
function checkResults(
  blocks: readonly Members[],
  toolUses: ReadonlySet<unknown>,
  path: string,
  index: number,
): void {
  const results = blocks.filter(({ type }) => type === 'tool_result');
  const answeredIds = new Set(results.map(({ tool_use_id: id }) => id));
  for (const id of answeredIds)
    must(
      toolUses.has(id),
      `${path}.content: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${String(id)}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`,
    );
  for (const id of toolUses)
    must(
      answeredIds.has(id),
      `messages.${index - 1}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${String(id)}.`,
    );
  must(answeredIds.size === results.length, `${path}: each tool_use must have a single result`);
  const isFirst = blocks.slice(0, results.length).every(({ type }) => type === 'tool_result');
  must(isFirst, `${path}: \`tool_result\` blocks must come first`);
}

/** `blockTypes`: the types of blocks that this content may have. */
function checkContent(content: unknown, blockTypes: readonly string[], path: string): void {
  if (typeof content === 'string') {
    must(content.trim() !== '', `${path}: text content blocks must contain non-whitespace text`);
    return;
  }
  must(Array.isArray(content) && content.length > 0, `${path}: all messages must have non-empty content`);
  content.forEach((block: unknown, index) => checkBlock(block, blockTypes, `${path}.${index}`));
}

function checkBlock(block: unknown, blockTypes: readonly string[], path: string): void {
  must(isRecord(block), `${path}: Input should be a valid dictionary`);
  const { type } = block;
  must(
    typeof type === 'string' && blockTypes.includes(type),
    `${path}: Input tag '${String(type)}' found using 'type' does not match any of the expected tags`,
  );
  checkMembers(block, type, path);
  switch (type) {
    case 'text':
      must(typeof block.text === 'string', `${path}.text: Field required`);
      must(block.text.trim() !== '', `${path}: text content blocks must contain non-whitespace text`);
      break;
    case 'image':
    case 'document':
      checkSource(block.source, type, path);
      break;
    case 'thinking':
      must(typeof block.thinking === 'string', `${path}.thinking: Field required`);
      must(typeof block.signature === 'string', `${path}.signature: Field required`);
      break;
    case 'tool_use':
      must(typeof block.id === 'string' && TOOL_ID.test(block.id), `${path}.id: String should match pattern`);
      must(isRecord(block.input), `${path}.input: Input should be a valid dictionary`);
      break;
    case 'tool_result':
      must(typeof block.tool_use_id === 'string', `${path}.tool_use_id: Field required`);
      if (block.content !== undefined) checkContent(block.content, BLOCKS_OF_RESULT, `${path}.content`);
      break;
    default:
  }
}

function checkSource(source: unknown, kind: string, path: string): void {
  must(isRecord(source), `${path}.source: Field required`);
  const { type } = source;
  const isKnown = typeof type === 'string' && Object.hasOwn(SOURCES, type);
  must(isKnown, `${path}.source: Input tag does not match any of the expected tags`);
  for (const name in source)
    must(SOURCES[type]!.includes(name), `${path}.source.${name}: Extra inputs are not permitted`);
  if (source.type === 'url') {
    must(String(source.url).startsWith('https://'), `${path}.source.url: Only HTTPS URLs are supported`);
    return;
  }
  // A document is a PDF or a text.
  const types = kind === 'image' ? IMAGES : [source.type === 'text' ? 'text/plain' : 'application/pdf'];
  must(types.includes(source.media_type), `${path}.source.media_type: Input should be ${types.join(', ')}`);
  must(typeof source.data === 'string' && source.data !== '', `${path}.source.data: Field required`);
}
