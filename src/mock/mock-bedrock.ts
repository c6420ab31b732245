/**
 * Bedrock's protocol for the mock upstream, which tests, benches and `tollgate mock-upstream` run
 * (mock-upstream.ts): Converse and ConverseStream, and Claude's own protocol (mock-bedrock-claude.ts).
 * Requests are checked against the Amazon Bedrock API Reference, "Converse" and the types that it names
 * (November 2026). Of a signature only the form is checked, because the mock has no secret. Pure.
 *
 * Must hold: a member that MEMBERS lacks is rejected in each object whose type is in MEMBERS, and AWS's own
 * SDK reads the responses (test/unit/mock/mock-bedrock.test.ts).
 */
import { EventStreamCodec } from '@smithy/eventstream-codec';
import { isRecord, type Members, parsedJson } from '../core/json.js';
import { CLAUDE_OPERATIONS, eventsOfClaude, readClaude, wholeOfClaude } from './mock-bedrock-claude.js';
import { BYTES_PER_TOKEN, directivesOf } from './mock-protocol.js';
import type { MockCompletion, MockCall, MockError, MockProtocol, MockRequest } from './mock-protocol.js';

const PATH = /\/model\/([^/]+)\/(converse|converse-stream|invoke|invoke-with-response-stream|count-tokens)$/;
const SIGNATURE_HEADER =
  /^AWS4-HMAC-SHA256 Credential=\w+\/(\d{8})\/[a-z0-9-]+\/bedrock\/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}$/;

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

/** Thrown at the first broken rule. The message is the text of a ValidationException. */
class Problem extends Error {}

/** The members of an object; throws a Problem for any other value, and for a member that MEMBERS lacks. */
function membersOf(value: unknown, type: keyof typeof MEMBERS): Members {
  if (!isRecord(value)) throw new Problem(`${type} must be an object`);
  for (const name of Object.keys(value)) {
    if (!MEMBERS[type].split(' ').includes(name)) throw new Problem(`extraneous key [${name}] in ${type}`);
  }
  return value;
}

/** Returns the only member of a union. */
function unionMemberOf(value: unknown, type: keyof typeof MEMBERS): readonly [name: string, value: unknown] {
  const members = Object.entries(membersOf(value, type));
  if (members.length !== 1) throw new Problem(`${type} must have exactly one member`);
  return members[0]!;
}

function listOf(value: unknown, name: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new Problem(`${name} must be a list`);
  return value;
}

function checkNumber(value: unknown, name: string, min: number, max: number): void {
  if (value === undefined) return;
  if (typeof value !== 'number' || value < min || value > max) {
    throw new Problem(`${name} must be from ${min} to ${max}`);
  }
}

/** What was read so far of a request's messages. */
interface Conversation {
  /** UTF-8 length of all texts. */
  promptBytes: number;
  /** The first text of the last user message: directives (mock-protocol.ts) can only begin there. */
  lastPrompt: string;
  endsWithToolResult: boolean;
  usesTools: boolean;
}

function readText(text: unknown, conversation: Conversation): string {
  if (typeof text !== 'string' || text.trim() === '') {
    throw new Problem('The text field in the ContentBlock object is blank');
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
      throw new Problem('A conversation must alternate between user and assistant, and start with user');
    }
    const { texts, toolUseIds, resultIds } = readContent(content, role, conversation);
    if (role === 'user' && resultIds.toSorted().join() !== openToolUseIds.toSorted().join()) {
      throw new Problem('Expected toolResult blocks for exactly the toolUse blocks of the previous turn');
    }
    openToolUseIds = toolUseIds;
    conversation.usesTools ||= openToolUseIds.length > 0;
    conversation.endsWithToolResult = resultIds.length > 0;
    if (role === 'user') conversation.lastPrompt = texts[0] ?? '';
  });
}

/** The texts of a message's content, and the ids in its toolUse and toolResult blocks. */
interface Content {
  readonly texts: readonly string[];
  readonly toolUseIds: readonly unknown[];
  readonly resultIds: readonly unknown[];
}

function readContent(content: unknown, role: 'user' | 'assistant', conversation: Conversation): Content {
  const blocks = listOf(content, 'content').map((block) => unionMemberOf(block, 'block'));
  if (blocks.length === 0) throw new Problem('The content field is empty');
  const texts: string[] = [];
  const toolUseIds: unknown[] = [];
  const resultIds: unknown[] = [];
  for (const [name, value] of blocks) {
    if (name === 'text') texts.push(readText(value, conversation));
    else if (name === 'cachePoint') membersOf(value, 'cachePoint');
    else if (name === 'toolUse') {
      const toolUse = membersOf(value, 'toolUse');
      if (role !== 'assistant' || !isRecord(toolUse.input)) throw new Problem('toolUse: wrong role or input');
      toolUseIds.push(toolUse.toolUseId);
    } else if (name === 'toolResult') {
      const { toolUseId, content: result } = membersOf(value, 'toolResult');
      if (role !== 'user') throw new Problem('a toolResult is of the user');
      listOf(result, 'toolResult.content');
      resultIds.push(toolUseId);
    } else if (name === 'document' && !blocks.some(([blockName]) => blockName === 'text')) {
      throw new Problem('A text block must be included when using documents');
    }
  }
  return { texts, toolUseIds, resultIds };
}

function toolNamesOf(config: unknown): string[] {
  if (config === undefined) return [];
  const { tools, toolChoice } = membersOf(config, 'toolConfig');
  if (toolChoice !== undefined) unionMemberOf(toolChoice, 'toolChoice');
  return listOf(tools, 'tools').flatMap((tool) => {
    const [kind, value] = unionMemberOf(tool, 'tool');
    if (kind !== 'toolSpec') return [];
    const { name, inputSchema } = membersOf(value, 'toolSpec');
    if (typeof name !== 'string' || !/^[a-zA-Z0-9_-]{1,64}$/.test(name)) {
      throw new Problem('toolSpec.name must satisfy [a-zA-Z0-9_-]+');
    }
    if (!isRecord(inputSchema) || !isRecord(inputSchema.json) || inputSchema.json.type !== 'object') {
      throw new Problem('toolSpec.inputSchema.json.type must be object');
    }
    return [name];
  });
}

function readBody(body: string): Omit<MockRequest, 'model' | 'stream'> {
  const request = membersOf(parsedJson(body), 'request');
  const conversation: Conversation = {
    promptBytes: 0,
    lastPrompt: '',
    endsWithToolResult: false,
    usesTools: false,
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
  if (conversation.usesTools && toolNames.length === 0) {
    throw new Problem(
      'The toolConfig field must be defined when using toolUse and toolResult content blocks',
    );
  }
  return {
    // Each stream of ConverseStream reports usage.
    includeUsage: true,
    promptTokens: Math.ceil(conversation.promptBytes / BYTES_PER_TOKEN),
    directives: directivesOf(conversation.lastPrompt),
    toolNames,
    endsWithToolResult: conversation.endsWithToolResult,
  };
}

/** What is wrong with the key or the signature's form; undefined if nothing is. */
function authorizationProblem({ authorization = '', ...headers }: MockCall['headers']): string | undefined {
  if (authorization === '') return 'Missing Authentication Token';
  if (authorization.startsWith('Bearer ')) {
    return authorization.length > 'Bearer '.length ? undefined : 'Invalid API Key format';
  }
  const [, day, names] = SIGNATURE_HEADER.exec(authorization) ?? [];
  if (day === undefined || names === undefined) return 'Authorization header is malformed';
  const date = headers['x-amz-date'] ?? '';
  if (!/^\d{8}T\d{6}Z$/.test(date) || !date.startsWith(day)) return 'Date in Credential scope is wrong';
  const signed = names.split(';');
  const missing = Object.keys(headers).filter(
    (name) => (name === 'host' || name.startsWith('x-amz-')) && !signed.includes(name),
  );
  return missing.length === 0 ? undefined : `'${missing.join(', ')}' must be a 'SignedHeader'`;
}

/** The names of Bedrock's exceptions, by the status of a response. */
const EXCEPTIONS: Readonly<Record<number, string>> = {
  400: 'ValidationException',
  403: 'AccessDeniedException',
  404: 'ResourceNotFoundException',
  408: 'ModelTimeoutException',
  424: 'ModelErrorException',
  429: 'ThrottlingException',
  500: 'InternalServerException',
  503: 'ServiceUnavailableException',
};

function errorOf(status: number, message: string, name = EXCEPTIONS[status]): MockError {
  return {
    status,
    error: JSON.stringify({ message }),
    ...(name !== undefined && {
      moreHeaders: ['x-amzn-errortype', `${name}:http://internal.amazon.com/coral/com.amazon.bedrock/`],
    }),
  };
}

function read(call: MockCall): MockRequest | MockError {
  const [, encodedModel, operation] = PATH.exec(call.path) ?? [];
  if (encodedModel === undefined) return errorOf(404, 'no such operation', 'UnknownOperationException');
  const problem = authorizationProblem(call.headers);
  // AWS has a name for each such error. The gateway treats all alike (providers/bedrock/errors.ts).
  if (problem !== undefined) return errorOf(403, problem, 'IncompleteSignatureException');
  const claudeOperation = CLAUDE_OPERATIONS.find((name) => name === operation);
  try {
    const model = decodeURIComponent(encodedModel);
    if (claudeOperation !== undefined) {
      const request = readClaude(claudeOperation, model, call.body);
      return typeof request === 'string' ? errorOf(400, request) : request;
    }
    return { ...readBody(call.body), model, stream: operation === 'converse-stream' };
  } catch (error) {
    // `decodeURIComponent` throws a URIError for a name of a model that is not encoded rightly.
    if (!(error instanceof Problem || error instanceof URIError)) throw error;
    return errorOf(400, error.message);
  }
}

const STOP_REASONS = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
  content_filter: 'guardrail_intervened',
} as const;
/** The signature of thinking: base64 of "mock-signature". */
const THINKING_SIGNATURE = 'bW9jay1zaWduYXR1cmU=';

/** Bedrock counts the cache's tokens besides `inputTokens`, MockUsage within `prompt`. */
function usageOf({ usage }: MockCompletion): object | undefined {
  if (usage === undefined) return undefined;
  const { prompt, cached, written, writtenForHour, completion } = usage;
  const details = [
    { ttl: '1h', inputTokens: writtenForHour },
    { ttl: '5m', inputTokens: written - writtenForHour },
  ].filter(({ inputTokens }) => inputTokens > 0);
  return {
    inputTokens: prompt - cached - written,
    outputTokens: completion,
    totalTokens: prompt + completion,
    cacheReadInputTokens: cached,
    cacheWriteInputTokens: written,
    ...(details.length > 0 && { cacheDetails: details }),
  };
}

/**
 * The reasoning tokens, in Claude's form. Bedrock sends them only if `additionalModelResponseFieldPaths`
 * asks; the mock always does.
 */
function modelFieldsOf({ usage }: MockCompletion): object {
  if (usage === undefined || usage.reasoning === 0) return {};
  return {
    additionalModelResponseFields: { usage: { output_tokens_details: { thinking_tokens: usage.reasoning } } },
  };
}

function whole(completion: MockCompletion): string {
  if (completion.request.isCount === true || completion.request.isNative === true)
    return wholeOfClaude(completion);
  const { thinking, texts, tools, finish } = completion;
  const usage = usageOf(completion);
  const reasoningText = { text: thinking.join(''), signature: THINKING_SIGNATURE };
  return JSON.stringify({
    metrics: { latencyMs: 1 },
    output: {
      message: {
        role: 'assistant',
        content: [
          ...(thinking.length === 0 ? [] : [{ reasoningContent: { reasoningText } }]),
          ...(texts.length === 0 ? [] : [{ text: texts.join('') }]),
          ...tools.map(({ id, name, pieces }) => ({
            toolUse: { toolUseId: id, name, input: parsedJson(pieces.join('')) },
          })),
        ],
      },
    },
    stopReason: STOP_REASONS[finish],
    ...(usage && { usage }),
    ...modelFieldsOf(completion),
  });
}

const codec = new EventStreamCodec(
  (bytes) => Buffer.from(bytes).toString(),
  (text) => Buffer.from(text),
);

/** A frame of MockProtocol is here one message of AWS's event stream, which is binary and has checksums. */
function eventMessage(headers: Readonly<Record<string, string>>, body: object): Uint8Array {
  const values = Object.entries({ ...headers, ':content-type': 'application/json' });
  return codec.encode({
    headers: Object.fromEntries(values.map(([name, value]) => [name, { type: 'string', value }])),
    body: Buffer.from(JSON.stringify(body)),
  });
}

/** `p` is Bedrock's padding: it hides the length of a text from who sees only the encrypted bytes. */
const event = (type: string, body: object): Uint8Array =>
  eventMessage({ ':event-type': type, ':message-type': 'event' }, { ...body, p: 'abcdefgh' });

function frames(completion: MockCompletion): Uint8Array[] {
  if (completion.request.isNative === true)
    return eventsOfClaude(completion).map((json) =>
      event('chunk', { bytes: Buffer.from(json).toString('base64') }),
    );
  const { thinking, texts, tools, finish } = completion;
  const usage = usageOf(completion);
  const events = [event('messageStart', { role: 'assistant' })];
  let contentBlockIndex = 0;
  const addBlock = (deltas: readonly object[], start?: object): void => {
    if (start !== undefined) events.push(event('contentBlockStart', { contentBlockIndex, start }));
    for (const delta of deltas) events.push(event('contentBlockDelta', { contentBlockIndex, delta }));
    events.push(event('contentBlockStop', { contentBlockIndex }));
    contentBlockIndex += 1;
  };
  if (thinking.length > 0) {
    addBlock([
      ...thinking.map((text) => ({ reasoningContent: { text } })),
      { reasoningContent: { signature: THINKING_SIGNATURE } },
    ]);
  }
  if (texts.length > 0) addBlock(texts.map((text) => ({ text })));
  for (const { id, name, pieces } of tools) {
    addBlock(
      pieces.map((input) => ({ toolUse: { input } })),
      { toolUse: { toolUseId: id, name } },
    );
  }
  events.push(event('messageStop', { stopReason: STOP_REASONS[finish], ...modelFieldsOf(completion) }));
  events.push(event('metadata', { metrics: { latencyMs: 1 }, ...(usage && { usage }) }));
  return events;
}

export const BEDROCK_MOCK: MockProtocol = {
  streamType: 'application/vnd.amazon.eventstream',
  read,
  whole,
  frames,
  error: (status, message) => errorOf(status, message),
  errorFrame(status, message) {
    // In a stream the names of exceptions begin with a small letter.
    const name = EXCEPTIONS[status] ?? 'InternalServerException';
    const type = `${name.charAt(0).toLowerCase()}${name.slice(1)}`;
    return eventMessage({ ':exception-type': type, ':message-type': 'exception' }, { message });
  },
  broken(bytes) {
    // Changes a byte of the payload, so that the checksum, the last 4 bytes, does not match.
    const damaged = Buffer.from(bytes);
    damaged[damaged.length - 6]! ^= 1;
    return damaged;
  },
};
