/**
 * Anthropic's rules for requests, by which the mock rejects unknown members, wrong values, misplaced tool
 * results and empty texts. mock-anthropic.ts calls this file, and tests of src/providers check by it the
 * requests that they make. Pure.
 *
 * Follows the types of @anthropic-ai/sdk 1.12, and platform.claude.com, pages "Errors", "Versions", "Handle
 * tool calls" and "Mid-conversation system messages", as of November 2026. The texts of errors resemble
 * Anthropic's.
 *
 * Must hold (test/unit/mock/mock-anthropic.test.ts): a wrong request that src/providers could make of a chat
 * completion is rejected here, or its tests prove nothing. A member that the types of the SDK have is
 * accepted, since callers of the Messages door may send it. Values that src/providers never writes are not
 * checked.
 */
import { isRecord, type Members } from '../core/json.js';

/** Values of `anthropic-version`. Only the old one permits temperature, top_p and top_k. */
const OLD_VERSION = '2023-06-01';
const VERSIONS: readonly unknown[] = [OLD_VERSION, '2026-10-21'];

const CACHE_CONTROL = 'cache_control';
/** The members of a request to count tokens. A message may have all of them too. */
const COUNTED = [
  ...'model messages system tools tool_choice thinking output_config speed user_profile_id'.split(' '),
  ...['workspace_id', CACHE_CONTROL],
];
/** The members of each kind of object that has one form. */
const MEMBERS = {
  request: [
    ...COUNTED,
    ...'max_tokens stream stop_sequences temperature top_p top_k metadata service_tier container'.split(' '),
    ...['inference_geo', 'diagnostics'],
  ],
  count: COUNTED,
  message: ['role', 'content'],
  tool: [
    ...['name', 'description', 'input_schema', 'type', 'strict', 'allowed_callers', 'defer_loading'],
    ...['eager_input_streaming', 'input_examples', CACHE_CONTROL],
  ],
  output_config: ['effort', 'format'],
} satisfies Readonly<Record<string, readonly string[]>>;

/** By the `type` of an object: its members besides `type`. */
type Variants = Readonly<Record<string, readonly string[]>>;
const THINKING: Variants = {
  enabled: ['budget_tokens', 'display'],
  adaptive: ['display'],
  // For some models `between_tools` switches thinking off (providers/anthropic/models.ts).
  between_tools: [],
  disabled: [],
};
const SINGLE_CALL = 'disable_parallel_tool_use';
const TOOL_CHOICES: Variants = {
  auto: [SINGLE_CALL],
  any: [SINGLE_CALL],
  tool: ['name', SINGLE_CALL],
  none: [],
};
const FORMATS: Variants = { json_schema: ['schema'] };
const BLOCKS: Variants = {
  text: ['text', 'citations', CACHE_CONTROL],
  image: ['source', 'transformations', CACHE_CONTROL],
  document: ['source', 'title', 'context', 'citations', CACHE_CONTROL],
  thinking: ['thinking', 'signature'],
  redacted_thinking: ['data'],
  tool_use: ['id', 'name', 'input', 'caller', 'toolset_name', CACHE_CONTROL],
  tool_result: ['tool_use_id', 'content', 'is_error', 'toolset_name', CACHE_CONTROL],
};
const IMAGE_SOURCES: Variants = { base64: ['media_type', 'data'], url: ['url'], file: ['file_id'] };
const DOCUMENT_SOURCES: Variants = { ...IMAGE_SOURCES, text: ['media_type', 'data'], content: ['content'] };
/** The types of blocks, of those in BLOCKS, that a message of each role may have. Anthropic has more. */
const BLOCKS_OF_ROLE: Readonly<Record<string, readonly string[]>> = {
  user: ['text', 'image', 'document', 'tool_result'],
  assistant: ['text', 'thinking', 'redacted_thinking', 'tool_use'],
  system: ['text'],
};
const BLOCKS_OF_RESULT: readonly string[] = ['text', 'image', 'document'];
const IMAGES: readonly unknown[] = ['image/jpeg', 'image/png', 'image/gif', 'image/webp'];
const TOOL_NAME = /^[\w-]{1,128}$/;
const TOOL_ID = /^[\w-]+$/;
/** Blocks with `cache_control` in a request. */
const CACHED_BLOCKS_MAX = 4;
const STRICT_TOOLS_MAX = 20;
/** Bounds for the schemas of the strict tools and of the response, counted together. */
const OPTIONAL_PROPERTIES_MAX = 24;
const UNION_TYPES_MAX = 16;

class Problem extends Error {}

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

/**
 * The first rule that the request breaks; undefined if it breaks none. `version`: one of VERSIONS. `isCount`:
 * it only asks for the number of its tokens.
 */
export function anthropicProblem(request: Members, version: string, isCount = false): string | undefined {
  try {
    checkRequest(request, version, isCount);
    return undefined;
  } catch (error) {
    if (error instanceof Problem) return error.message;
    throw error;
  }
}

function checkRequest(request: Members, version: string, isCount: boolean): void {
  checkMembers(request, isCount ? MEMBERS.count : MEMBERS.request, '');
  must(typeof request.model === 'string', 'model: Field required');
  const { max_tokens: maxTokens, messages, system, stop_sequences: stopSequences, thinking } = request;
  // The mock does not check the bounds of the number.
  must(isCount || Number.isInteger(maxTokens), 'max_tokens: Field required');
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
  // A count has no bound of the output, which a budget of thinking would have to be less than.
  checkThinking(thinking, isCount ? Infinity : (maxTokens as number), request);
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

/** Checks that `value` is an object with no members but `names`, and its `cache_control`. */
function checkMembers(value: unknown, names: readonly string[], path: string): asserts value is Members {
  must(isRecord(value), `${path}: Input should be a valid dictionary`);
  for (const name in value)
    must(names.includes(name), `${path}${path === '' ? '' : '.'}${name}: Extra inputs are not permitted`);
  const cacheControl = value[CACHE_CONTROL] ?? undefined;
  if (cacheControl === undefined) return;
  const isAllowed =
    isRecord(cacheControl) &&
    cacheControl.type === 'ephemeral' &&
    [undefined, '5m', '1h'].includes(cacheControl.ttl as string);
  must(isAllowed, `${path}.cache_control: Input should be of type ephemeral`);
}

/** Checks that `value` is an object whose `type` is in `variants`, with no members but those of its type. */
function checkVariant(value: unknown, variants: Variants, path: string): asserts value is Members {
  must(isRecord(value), `${path}: Input should be a valid dictionary`);
  const { type } = value;
  must(
    typeof type === 'string' && Object.hasOwn(variants, type),
    `${path}: Input tag '${String(type)}' found using 'type' does not match any of the expected tags`,
  );
  // `!`: the type is in `variants`.
  checkMembers(value, ['type', ...variants[type]!], path);
}

function checkOutput({ output_config: output }: Members): void {
  if (output === undefined) return;
  checkMembers(output, MEMBERS.output_config, 'output_config');
  const effort = output.effort ?? 'low';
  const isEffort = ['low', 'medium', 'high', 'xhigh', 'max'].includes(effort as string);
  must(isEffort, 'output_config.effort: Input should be low, medium, high, xhigh or max');
  const format = output.format ?? undefined;
  if (format === undefined) return;
  checkVariant(format, FORMATS, 'output_config.format');
  must(isRecord(format.schema), 'output_config.format.schema: Field required');
}

function checkThinking(thinking: unknown, maxTokens: number, { temperature }: Members): void {
  if (thinking === undefined) return;
  checkVariant(thinking, THINKING, 'thinking');
  const { type, budget_tokens: budget } = thinking;
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
    checkMembers(tool, MEMBERS.tool, path);
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
  checkVariant(toolChoice, TOOL_CHOICES, 'tool_choice');
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
  const optionalNames = schemas.flatMap(({ properties = {}, required = [] }) => {
    must(isRecord(properties), 'Schema: properties: Input should be a valid dictionary');
    must(Array.isArray(required), 'Schema: required: Input should be a valid list');
    return Object.keys(properties).filter((name) => !required.includes(name));
  });
  must(
    optionalNames.length <= OPTIONAL_PROPERTIES_MAX,
    `Schemas contains too many optional parameters (${optionalNames.length}) which exceeds the limit: ${OPTIONAL_PROPERTIES_MAX}`,
  );
  const unions = schemas.filter(({ anyOf, type }) => Array.isArray(anyOf) || Array.isArray(type));
  must(
    unions.length <= UNION_TYPES_MAX,
    `Schemas contains too many parameters with union types (${unions.length} parameters with type arrays or anyOf) which exceeds the limit: ${UNION_TYPES_MAX}`,
  );
}

function schemasIn(schema: unknown): readonly Members[] {
  if (!isRecord(schema)) return [];
  const { anyOf, allOf, items, properties, $defs, definitions } = schema;
  const maps = [properties, $defs, definitions].filter(isRecord).flatMap((map) => Object.values(map));
  const lists = [anyOf, allOf].flatMap((list) => (Array.isArray(list) ? (list as unknown[]) : []));
  return [schema, ...[...maps, ...lists, items].flatMap(schemasIn)];
}

function checkMessages(messages: readonly unknown[]): void {
  /** Ids of the tool_use blocks of all messages so far. */
  const usedIds = new Set<unknown>();
  /** Ids of the tool_use blocks of the previous message, and its role. */
  let toolUses: ReadonlySet<unknown> = new Set();
  let previousRole = '';
  messages.forEach((message, index) => {
    const path = `messages.${index}`;
    checkMembers(message, MEMBERS.message, path);
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
    const ids = blocks.flatMap(({ type, id }) => (type === 'tool_use' ? [id] : []));
    for (const id of ids) {
      must(!usedIds.has(id), `${path}.content: \`tool_use\` ids must be unique`);
      usedIds.add(id);
    }
    toolUses = new Set(ids);
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
  checkVariant(block, BLOCKS, path);
  const { type } = block;
  must(blockTypes.includes(type as string), `${path}: a block of type ${String(type)} may not be here`);
  switch (type) {
    case 'text':
      must(typeof block.text === 'string', `${path}.text: Field required`);
      must(block.text.trim() !== '', `${path}: text content blocks must contain non-whitespace text`);
      break;
    case 'image':
      checkSource(block.source, IMAGE_SOURCES, IMAGES, `${path}.source`);
      break;
    case 'document':
      checkSource(block.source, DOCUMENT_SOURCES, ['application/pdf'], `${path}.source`);
      break;
    case 'thinking':
      must(typeof block.thinking === 'string', `${path}.thinking: Field required`);
      must(typeof block.signature === 'string', `${path}.signature: Field required`);
      break;
    case 'redacted_thinking':
      must(typeof block.data === 'string', `${path}.data: Field required`);
      break;
    case 'tool_use':
      must(typeof block.id === 'string' && TOOL_ID.test(block.id), `${path}.id: String should match pattern`);
      must(typeof block.name === 'string' && block.name !== '', `${path}.tool_use.name: Field required`);
      must(isRecord(block.input), `${path}.input: Input should be a valid dictionary`);
      break;
    case 'tool_result':
      must(typeof block.tool_use_id === 'string', `${path}.tool_use_id: Field required`);
      if (block.content !== undefined) checkContent(block.content, BLOCKS_OF_RESULT, `${path}.content`);
      break;
    default:
  }
}

function checkSource(
  source: unknown,
  variants: Variants,
  mediaTypes: readonly unknown[],
  path: string,
): void {
  checkVariant(source, variants, path);
  const { type, url, media_type: mediaType, data } = source;
  if (type === 'url') must(String(url).startsWith('https://'), `${path}.url: Only HTTPS URLs are supported`);
  if (type !== 'base64' && type !== 'text') return;
  const types = type === 'text' ? ['text/plain'] : mediaTypes;
  must(types.includes(mediaType), `${path}.media_type: Input should be ${types.join(', ')}`);
  must(typeof data === 'string' && data !== '', `${path}.data: Field required`);
}
