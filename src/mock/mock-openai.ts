/**
 * The mock's OpenAI protocol. Requests are read leniently, because the mock stands for every compatible
 * server. mock-upstream.ts has the protocol in its table, and mock-azure.ts at other paths. Pure.
 *
 * Must hold: OpenAI's own SDK reads the responses (test/unit/mock/mock-openai-sdk.test.ts).
 */
import { isRecord, membersOf, parsedJson } from '../core/json.js';
import { doorFrames, doorResponse, readDoorRequest } from './mock-openai-doors.js';
import { BYTES_PER_TOKEN, brokenSse, CREATED_SECONDS, sseFrame, directivesOf } from './mock-protocol.js';
import type { MockCompletion, MockCall, MockError, MockProtocol, MockRequest } from './mock-protocol.js';

const ID = 'chatcmpl-mock';

/** What is wrong with a request. mock-azure.ts writes it in Azure's form. */
interface OpenAiProblem {
  readonly status: 400 | 404;
  readonly problem: string;
}

const NO_PATH: OpenAiProblem = { status: 404, problem: 'no such path on the mock' };
const NO_OBJECT: OpenAiProblem = { status: 400, problem: 'the body is not a JSON object' };

/** `path`: what follows the version (`/chat/completions`). */
export function readOpenAi(path: string, body: string): MockRequest | OpenAiProblem {
  if (path === '/chat/completions') return readMockRequest(body) ?? NO_OBJECT;
  const parsed = parsedJson(body);
  if (!isRecord(parsed)) return NO_OBJECT;
  const request = readDoorRequest(path, parsed) ?? NO_PATH;
  return typeof request === 'string' ? { status: 400, problem: request } : request;
}

/** Reads a chat completion; undefined if the body is not a JSON object. Only texts that are strings count. */
export function readMockRequest(body: string): MockRequest | undefined {
  const parsed = parsedJson(body);
  if (!isRecord(parsed)) return undefined;
  let promptBytes = 0;
  let prompt = '';
  const messages: readonly unknown[] = Array.isArray(parsed.messages) ? parsed.messages : [];
  for (const message of messages) {
    if (!isRecord(message) || typeof message.content !== 'string') continue;
    promptBytes += Buffer.byteLength(message.content);
    if (message.role === 'user') prompt = message.content;
  }
  const lastMessage = messages.at(-1);
  const streamOptions = parsed.stream_options;
  return {
    model: typeof parsed.model === 'string' ? parsed.model : 'mock-model',
    stream: parsed.stream === true,
    includeUsage: isRecord(streamOptions) && streamOptions.include_usage === true,
    promptTokens: Math.ceil(promptBytes / BYTES_PER_TOKEN),
    directives: directivesOf(prompt),
    toolNames: allowedNames(toolNamesOf(parsed.tools), parsed.tool_choice),
    ...(parsed.tool_choice === 'none' && { forbidsTools: true }),
    endsWithToolResult: isRecord(lastMessage) && lastMessage.role === 'tool',
  };
}

function toolNamesOf(tools: unknown): string[] {
  if (!Array.isArray(tools)) return [];
  return tools.flatMap((tool: unknown) => {
    const definition = isRecord(tool) ? tool.function : undefined;
    return isRecord(definition) && typeof definition.name === 'string' ? [definition.name] : [];
  });
}

/**
 * The names of the tools that `choice`, a `tool_choice`, allows: of `names` those that it names, or all if it
 * names none. mock-responses.ts calls it too: there a name is not in a member `function`.
 */
export function allowedNames(names: readonly string[], choice: unknown): readonly string[] {
  if (!isRecord(choice)) return names;
  const { tools } = choice.type === 'allowed_tools' ? membersOf(choice.allowed_tools ?? choice) : {};
  const allowed = (Array.isArray(tools) ? (tools as unknown[]) : [choice]).map((tool) => {
    const { function: named, name } = membersOf(tool);
    return membersOf(named).name ?? name;
  });
  return names.filter((name) => allowed.includes(name));
}

/** The JSON of an error in OpenAI's form. mock-responses.ts writes it too. */
export const errorText = (message: string, code: string): string =>
  JSON.stringify({ error: { message, type: 'mock_error', param: null, code } });

function usageOf({ usage }: MockCompletion): object | undefined {
  return (
    usage && {
      prompt_tokens: usage.prompt,
      completion_tokens: usage.completion,
      total_tokens: usage.prompt + usage.completion,
      prompt_tokens_details: {
        cached_tokens: usage.cached,
        ...(usage.written === 0 ? {} : { cache_write_tokens: usage.written }),
        ...(usage.writtenForHour === 0 ? {} : { cache_write_1h_tokens: usage.writtenForHour }),
      },
      ...(usage.reasoning === 0 ? {} : { completion_tokens_details: { reasoning_tokens: usage.reasoning } }),
    }
  );
}

function whole(completion: MockCompletion): string {
  const { door } = completion.request;
  return door === undefined ? chatWhole(completion) : doorResponse(completion, door);
}

function chatWhole(completion: MockCompletion): string {
  const { request, thinking, texts, tools, finish } = completion;
  const usage = usageOf(completion);
  const calls = tools.map(({ id, name, pieces }) => ({
    id,
    type: 'function',
    function: { name, arguments: pieces.join('') },
  }));
  const message = {
    role: 'assistant',
    content: texts.join(''),
    ...(thinking.length === 0 ? {} : { reasoning_content: thinking.join('') }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
  return JSON.stringify({
    id: ID,
    object: 'chat.completion',
    created: CREATED_SECONDS,
    model: request.model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: finish }],
    ...(usage === undefined ? {} : { usage }),
  });
}

function frames(completion: MockCompletion): Uint8Array[] {
  const { door } = completion.request;
  return door === undefined ? chatFrames(completion) : doorFrames(completion, door);
}

function chatFrames(completion: MockCompletion): Uint8Array[] {
  const { request, thinking, texts, tools, finish } = completion;
  const usage = usageOf(completion);
  // If usage was asked for, providers set `usage` to null in all chunks but the one with the usage.
  const nullUsage = request.includeUsage && usage !== undefined ? { usage: null } : {};
  const chunk = (choices: readonly object[], moreMembers: object): Uint8Array =>
    sseFrame(
      JSON.stringify({
        id: ID,
        object: 'chat.completion.chunk',
        created: CREATED_SECONDS,
        model: request.model,
        choices,
        ...moreMembers,
      }),
    );
  const choice = (delta: object, reason: string | null = null): object => ({
    index: 0,
    delta,
    logprobs: null,
    finish_reason: reason,
  });
  const deltas = [
    { role: 'assistant', content: '' },
    ...thinking.map((text) => ({ reasoning_content: text })),
    ...texts.map((content) => ({ content })),
    ...tools.flatMap(({ id, name, pieces }, index) => [
      { tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] },
      ...pieces.map((text) => ({ tool_calls: [{ index, function: { arguments: text } }] })),
    ]),
  ];
  const report = request.includeUsage && usage !== undefined ? [chunk([], { usage })] : [];
  const doneFrame = sseFrame('[DONE]');
  return [
    ...deltas.map((delta) => chunk([choice(delta)], nullUsage)),
    chunk([choice({}, finish)], nullUsage),
    ...(completion.isUsageLate ? [doneFrame, ...report] : [...report, doneFrame]),
  ];
}

export const OPENAI_MOCK: MockProtocol = {
  streamType: 'text/event-stream',
  read({ path, body }: MockCall): MockRequest | MockError {
    const request = readOpenAi(path.replace(/^\/v1/, ''), body);
    return 'problem' in request
      ? { status: request.status, error: errorText(request.problem, 'mock') }
      : request;
  },
  whole,
  frames,
  error: (status, message) => ({ status, error: errorText(message, 'mock_error') }),
  errorFrame: (_status, message) => sseFrame(errorText(message, 'mock_error')),
  broken: brokenSse,
};
