/**
 * The mock's OpenAI protocol, and Azure's, which is the same at another path and with another header.
 * OpenAI's requests are read leniently, because the mock stands for every compatible server. Azure's are
 * checked as the reference says ("Azure OpenAI REST API reference", learn.microsoft.com, November 2026).
 * mock-upstream.ts has both protocols in its table. Pure.
 *
 * Must hold: OpenAI's own SDK reads the responses (test/unit/mock/mock-openai-sdk.test.ts). A wrong path,
 * version or key is rejected as Azure rejects it (test/unit/mock/mock-openai.test.ts).
 */
import { isRecord, parsedJson } from '../core/json.js';
import { doorFrames, doorResponse, readDoorRequest } from './mock-openai-doors.js';
import { BYTES_PER_TOKEN, brokenSse, CREATED_SECONDS, sseFrame, directivesOf } from './mock-protocol.js';
import type { MockCompletion, MockCall, MockError, MockProtocol, MockRequest } from './mock-protocol.js';

const ID = 'chatcmpl-mock';

/** `path`: what follows the version (`/chat/completions`). Returns what is wrong if there is no request. */
function readOpenAi(path: string, body: string): MockRequest | 'no path' | 'no object' {
  if (path === '/chat/completions') return readMockRequest(body) ?? 'no object';
  const parsed = parsedJson(body);
  return isRecord(parsed) ? (readDoorRequest(path, parsed) ?? 'no path') : 'no object';
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
    toolNames: toolNamesOf(parsed.tools),
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
    if (request === 'no path') return { status: 404, error: errorText('no such path on the mock', 'mock') };
    if (request === 'no object')
      return { status: 400, error: errorText('the body is not a JSON object', 'mock') };
    return request;
  },
  whole,
  frames,
  error: (status, message) => ({ status, error: errorText(message, 'mock_error') }),
  errorFrame: (_status, message) => sseFrame(errorText(message, 'mock_error')),
  broken: brokenSse,
};

const AZURE_PATH = /^\/openai\/(?:deployments\/([^/]+)|v1)(\/chat\/completions|\/completions|\/embeddings)$/;
const AZURE_VERSION = /^api-version=\d{4}-\d\d-\d\d(?:-preview)?$/;

function azureError(status: number, code: string, message: string): MockError {
  return { status, error: JSON.stringify({ error: { code, message } }) };
}

/** Azure's error for a wrong path, version or key, or for the deployment `missing`; undefined without one. */
function azureRejection({ path, query, headers }: MockCall): MockError | undefined {
  const [matchedPath, deployment] = AZURE_PATH.exec(path) ?? [];
  const isVersion =
    deployment === undefined ? query === '' || query === 'api-version=preview' : AZURE_VERSION.test(query);
  if (matchedPath === undefined || !isVersion) return azureError(404, '404', 'Resource not found');
  const hasKey = Boolean(headers['api-key']) || headers.authorization?.startsWith('Bearer ') === true;
  if (!hasKey || (headers['api-key'] !== undefined && headers.authorization !== undefined))
    return azureError(
      401,
      '401',
      'Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for an active subscription and use a correct regional API endpoint for your resource.',
    );
  if (deployment !== 'missing') return undefined;
  return azureError(404, 'DeploymentNotFound', 'The API deployment for this resource does not exist.');
}

const FILTERS = Object.fromEntries(
  ['hate', 'self_harm', 'sexual', 'violence'].map((name) => [name, { filtered: false, severity: 'safe' }]),
);

/** Filter results come with a whole response, and in an event without choices at the start of a stream. */
export const AZURE_MOCK: MockProtocol = {
  ...OPENAI_MOCK,
  read(call) {
    const error = azureRejection(call);
    if (error !== undefined) return error;
    // `!`: azureRejection has matched the path.
    const request = readOpenAi(AZURE_PATH.exec(call.path)![2]!, call.body);
    return typeof request === 'string'
      ? azureError(400, 'BadRequest', 'The body is not a JSON object.')
      : request;
  },
  whole(completion) {
    if (completion.request.door?.kind === 'embeddings') return whole(completion);
    const response = JSON.parse(whole(completion)) as { choices: object[] };
    const choices = response.choices.map((choice) => ({ ...choice, content_filter_results: FILTERS }));
    const prompts = [{ prompt_index: 0, content_filter_results: FILTERS }];
    return JSON.stringify({ ...response, choices, prompt_filter_results: prompts });
  },
  frames: (completion) => [
    sseFrame(
      JSON.stringify({
        choices: [],
        created: 0,
        id: '',
        model: '',
        object: '',
        prompt_filter_results: [{ prompt_index: 0, content_filter_results: FILTERS }],
      }),
    ),
    ...frames(completion),
  ],
  error(status, message) {
    if (status !== 400) return azureError(status, String(status), message);
    // The mock's 400 stands for a prompt that the content filter stops.
    const innererror = { code: 'ResponsibleAIPolicyViolation', content_filter_result: FILTERS };
    const error = { message, type: null, param: 'prompt', code: 'content_filter', status, innererror };
    return { status, error: JSON.stringify({ error }) };
  },
};
