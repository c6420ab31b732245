/**
 * Bedrock's rules for requests of Converse and ConverseStream, by which the mock rejects unknown members,
 * wrong values, and misplaced results of tools and cache points. mock-bedrock.ts calls `readConverse`. Pure.
 *
 * Follows the Amazon Bedrock API Reference, "Converse" and the types that it names, as of November 2026.
 *
 * Must hold: a member that MEMBERS lacks is rejected in each object whose type is in MEMBERS
 * (test/unit/mock/mock-bedrock.test.ts).
 */
import { isRecord, type Members, parsedJson } from '../core/json.js';
import { BYTES_PER_TOKEN, directivesOf, type MockRequest } from './mock-protocol.js';

/** The members of each type, separated by blanks. Members of other types (`image`) are not checked. */
const MEMBERS = {
  request:
    'messages system inferenceConfig toolConfig guardrailConfig additionalModelRequestFields promptVariables additionalModelResponseFieldPaths requestMetadata performanceConfig serviceTier outputConfig',
  message: 'role content',
  inferenceConfig: 'maxTokens temperature topP stopSequences',
  toolConfig: 'tools toolChoice',
  tool: 'toolSpec cachePoint systemTool',
  toolSpec: 'name description inputSchema strict',
  toolChoice: 'auto any tool',
  block:
    'text image document video audio toolUse toolResult guardContent cachePoint reasoningContent citationsContent searchResult',
  systemBlock: 'text guardContent cachePoint',
  toolUse: 'toolUseId name input type',
  toolResult: 'toolUseId content status type',
  cachePoint: 'type ttl',
  outputConfig: 'textFormat effort',
} as const;

/** Thrown at the first broken rule. The message is the text of Bedrock's ValidationException. */
export class ConverseProblem extends Error {}

/** The members of an object. Throws for any other value, and for a member that MEMBERS lacks. */
function membersOf(value: unknown, type: keyof typeof MEMBERS): Members {
  if (!isRecord(value)) throw new ConverseProblem(`${type} must be an object`);
  for (const name of Object.keys(value)) {
    if (!MEMBERS[type].split(' ').includes(name))
      throw new ConverseProblem(`extraneous key [${name}] in ${type}`);
  }
  return value;
}

function unionMemberOf(value: unknown, type: keyof typeof MEMBERS): readonly [name: string, value: unknown] {
  const members = Object.entries(membersOf(value, type));
  if (members.length !== 1) throw new ConverseProblem(`${type} must have exactly one member`);
  return members[0]!;
}

function listOf(value: unknown, name: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new ConverseProblem(`${name} must be a list`);
  return value;
}

function checkNumber(value: unknown, name: string, min: number, max: number): void {
  if (value === undefined) return;
  if (typeof value !== 'number' || value < min || value > max) {
    throw new ConverseProblem(`${name} must be from ${min} to ${max}`);
  }
}

const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;
const TOOL_USE_ID = /^[a-zA-Z0-9_.:-]{1,64}$/;

function checkText(value: unknown, pattern: RegExp, name: string): void {
  if (typeof value !== 'string' || !pattern.test(value))
    throw new ConverseProblem(`${name} must satisfy ${pattern.source}`);
}

interface Conversation {
  promptBytes: number;
  /** The first text of the last user message: directives (mock-protocol.ts) can only begin there. */
  lastPrompt: string;
  endsWithToolResult: boolean;
  callsBefore: number;
  readonly usedIds: Set<unknown>;
}

function readText(text: unknown, conversation: Conversation): string {
  if (typeof text !== 'string' || text.trim() === '') {
    throw new ConverseProblem('The text field in the ContentBlock object is blank');
  }
  conversation.promptBytes += Buffer.byteLength(text);
  return text;
}

function readMessages(messages: readonly unknown[], conversation: Conversation): void {
  /** Ids of the toolUse blocks of the previous message. Each needs a result in this message. */
  let openToolUseIds: readonly unknown[] = [];
  messages.forEach((message, index) => {
    const { role: givenRole, content } = membersOf(message, 'message');
    const role = index % 2 === 0 ? 'user' : 'assistant';
    if (givenRole !== role) {
      throw new ConverseProblem(
        'A conversation must alternate between user and assistant, and start with user',
      );
    }
    const { texts, toolUseIds, resultIds } = readContent(content, role, conversation);
    if (role === 'user' && resultIds.toSorted().join() !== openToolUseIds.toSorted().join()) {
      throw new ConverseProblem(
        'Expected toolResult blocks for exactly the toolUse blocks of the previous turn',
      );
    }
    openToolUseIds = toolUseIds;
    conversation.callsBefore += openToolUseIds.length;
    conversation.endsWithToolResult = resultIds.length > 0;
    if (role === 'user') conversation.lastPrompt = texts[0] ?? '';
  });
}

interface Content {
  readonly texts: readonly string[];
  readonly toolUseIds: readonly unknown[];
  readonly resultIds: readonly unknown[];
}

function readContent(content: unknown, role: 'user' | 'assistant', conversation: Conversation): Content {
  const blocks = listOf(content, 'content').map((block) => unionMemberOf(block, 'block'));
  if (blocks.length === 0) throw new ConverseProblem('The content field is empty');
  const texts: string[] = [];
  const toolUseIds: unknown[] = [];
  const resultIds: unknown[] = [];
  for (const [index, [name, value]] of blocks.entries()) {
    if (name === 'text') texts.push(readText(value, conversation));
    else if (name === 'cachePoint') checkCachePoint(value, blocks[index - 1]);
    else if (name === 'toolUse') {
      const { toolUseId, name: toolName, input } = membersOf(value, 'toolUse');
      if (role !== 'assistant' || !isRecord(input)) throw new ConverseProblem('toolUse: wrong role or input');
      checkText(toolName, TOOL_NAME, 'toolUse.name');
      checkText(toolUseId, TOOL_USE_ID, 'toolUse.toolUseId');
      if (conversation.usedIds.has(toolUseId))
        throw new ConverseProblem(`The toolUse blocks contain duplicate Ids: ${String(toolUseId)}`);
      conversation.usedIds.add(toolUseId);
      toolUseIds.push(toolUseId);
    } else if (name === 'toolResult') {
      const { toolUseId, content: result } = membersOf(value, 'toolResult');
      if (role !== 'user') throw new ConverseProblem('a toolResult is of the user');
      listOf(result, 'toolResult.content');
      resultIds.push(toolUseId);
    } else if (name === 'document' && !blocks.some(([blockName]) => blockName === 'text')) {
      throw new ConverseProblem('A text block must be included when using documents');
    }
  }
  return { texts, toolUseIds, resultIds };
}

/**
 * Checks a cache point by the block before it. The reference has no such rules: they are those of live
 * Bedrock (strands-agents/harness-sdk 1966 and 3677, anomalyco/opencode 36517).
 */
function checkCachePoint(value: unknown, before: readonly [name: string, value: unknown] | undefined): void {
  membersOf(value, 'cachePoint');
  if (before === undefined) throw new ConverseProblem('There is nothing available to cache.');
  const [name, block] = before;
  if (name === 'reasoningContent')
    throw new ConverseProblem('Cache point cannot be inserted after reasoning block.');
  if (name === 'document' && isRecord(block) && block.format !== 'pdf')
    throw new ConverseProblem('The model returned the following errors: content.type: Field required');
}

function toolNamesOf(config: unknown): string[] {
  if (config === undefined) return [];
  const { tools, toolChoice } = membersOf(config, 'toolConfig');
  const names = listOf(tools, 'tools').flatMap((tool) => {
    const [kind, value] = unionMemberOf(tool, 'tool');
    if (kind !== 'toolSpec') return [];
    const { name, inputSchema } = membersOf(value, 'toolSpec');
    checkText(name, TOOL_NAME, 'toolSpec.name');
    if (!isRecord(inputSchema) || !isRecord(inputSchema.json) || inputSchema.json.type !== 'object') {
      throw new ConverseProblem('toolSpec.inputSchema.json.type must be object');
    }
    return [name as string];
  });
  if (toolChoice === undefined) return names;
  const [kind, choice] = unionMemberOf(toolChoice, 'toolChoice');
  const named = isRecord(choice) ? choice.name : undefined;
  if (kind !== 'tool') return names;
  if (!names.some((name) => name === named))
    throw new ConverseProblem(`toolChoice names the tool ${String(named)}, which toolConfig lacks`);
  return [named as string];
}

/** Reads a body of Converse or ConverseStream. Throws a ConverseProblem at the first broken rule. */
export function readConverse(body: string): Omit<MockRequest, 'model' | 'stream'> {
  const request = membersOf(parsedJson(body), 'request');
  const conversation: Conversation = {
    promptBytes: 0,
    lastPrompt: '',
    endsWithToolResult: false,
    callsBefore: 0,
    usedIds: new Set(),
  };
  for (const block of listOf(request.system ?? [], 'system')) {
    const [kind, value] = unionMemberOf(block, 'systemBlock');
    if (kind === 'text') readText(value, conversation);
  }
  readMessages(listOf(request.messages, 'messages'), conversation);
  const inference = membersOf(request.inferenceConfig ?? {}, 'inferenceConfig');
  checkNumber(inference.maxTokens, 'maxTokens', 1, Infinity);
  checkNumber(inference.temperature, 'temperature', 0, 1);
  checkNumber(inference.topP, 'topP', 0, 1);
  membersOf(request.outputConfig ?? {}, 'outputConfig');
  const toolNames = toolNamesOf(request.toolConfig);
  if (conversation.callsBefore > 0 && toolNames.length === 0) {
    throw new ConverseProblem(
      'The toolConfig field must be defined when using toolUse and toolResult content blocks',
    );
  }
  return {
    // Each stream of ConverseStream reports usage.
    includeUsage: true,
    promptTokens: Math.ceil(conversation.promptBytes / BYTES_PER_TOKEN),
    directives: directivesOf(conversation.lastPrompt),
    toolNames,
    callsBefore: conversation.callsBefore,
    endsWithToolResult: conversation.endsWithToolResult,
  };
}
