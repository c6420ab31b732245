/**
 * The mock's Anthropic protocol: POST /v1/messages, whole and streamed, and /v1/messages/count_tokens.
 * mock-upstream.ts has the protocol in its table; mock-anthropic-rules.ts checks requests. mock-vertex.ts and
 * mock-bedrock-claude.ts use the protocol for Claude at other addresses. Pure.
 *
 * Follows platform.claude.com, pages "Messages", "Streaming messages" and "Errors", and the types of
 * @anthropic-ai/sdk 1.12, as of November 2026.
 *
 * Must hold: Anthropic's own SDK reads the responses (test/unit/mock/mock-anthropic.test.ts).
 */
import { isRecord, parsedJson, type Members } from '../core/json.js';
import { anthropicProblem, blocksIn, headersProblem } from './mock-anthropic-rules.js';
import { BYTES_PER_TOKEN, brokenSse, sseFrame, directivesOf } from './mock-protocol.js';
import type { MockCompletion, MockCall, MockError, MockProtocol, MockRequest } from './mock-protocol.js';

const ID = 'msg_mock';
const REQUEST_ID = 'req_mock';
/** The signature of thinking blocks: base64 of "mock signature". */
const SIGNATURE = 'bW9jayBzaWduYXR1cmU=';

const ERROR_TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
  529: 'overloaded_error',
};

const STOP_REASONS: Readonly<Record<MockCompletion['finish'], string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
  content_filter: 'refusal',
};

function errorText(status: number, message: string): string {
  const type = ERROR_TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error');
  return JSON.stringify({ type: 'error', error: { type, message, details: null }, request_id: REQUEST_ID });
}

function errorOf(status: number, message: string): MockError {
  return { status, error: errorText(status, message), moreHeaders: ['request-id', REQUEST_ID] };
}

/** Checks path, key, headers and body, in this order. A body that passes follows mock-anthropic-rules.ts. */
function read({ path, headers, body }: MockCall): MockRequest | MockError {
  const isCount = path === '/v1/messages/count_tokens';
  if (!isCount && path !== '/v1/messages') return errorOf(404, 'Not Found');
  if (!headers['x-api-key'] && headers.authorization?.startsWith('Bearer ') !== true)
    return errorOf(401, 'x-api-key header is required');
  if (headers['x-api-key'] !== undefined && headers.authorization !== undefined)
    return errorOf(401, 'invalid x-api-key');
  const version = headers['anthropic-version'];
  const headerProblem = headersProblem(version, headers['content-type']);
  if (headerProblem !== undefined) return errorOf(400, headerProblem);
  const request = parsedJson(body);
  if (!isRecord(request)) return errorOf(400, 'The request body is not valid JSON: object expected');
  const problem = anthropicProblem(request, version!, isCount);
  if (problem !== undefined) return errorOf(400, problem);
  if (request.model === 'missing') return errorOf(404, 'model: missing');
  return { ...requestOf(request), ...(isCount && { isCount }) };
}

/**
 * Reads a request for Claude that came to Vertex or Bedrock. The caller has checked the cloud's path, version
 * and authorisation, so the headers that Anthropic needs are filled in here.
 */
export function readHostedClaude(request: Members, isCount: boolean): MockRequest | MockError {
  const requestOrError = read({
    path: isCount ? '/v1/messages/count_tokens' : '/v1/messages',
    query: '',
    headers: { 'anthropic-version': '2023-06-01', 'content-type': 'application/json', 'x-api-key': 'mock' },
    body: JSON.stringify(request),
  });
  return 'error' in requestOrError ? requestOrError : { ...requestOrError, isHostedClaude: true };
}

/** `request` follows the rules of mock-anthropic-rules.ts, so its members are cast without further checks. */
function requestOf(request: Members): MockRequest {
  const messages = request.messages as readonly Members[];
  let prompt = '';
  let promptBytes = 0;
  let callsBefore = 0;
  for (const { role, content } of [{ role: 'system', content: request.system ?? '' }, ...messages])
    for (const { type, text } of blocksIn(content)) {
      if (type === 'tool_use') callsBefore++;
      if (type !== 'text') continue;
      promptBytes += Buffer.byteLength(text as string);
      if (role === 'user') prompt = text as string;
    }
  const tools = (request.tools ?? []) as readonly { name: string }[];
  const toolChoice = request.tool_choice as Members | undefined;
  return {
    model: request.model as string,
    stream: request.stream === true,
    includeUsage: true,
    promptTokens: Math.ceil(promptBytes / BYTES_PER_TOKEN),
    directives: directivesOf(prompt),
    toolNames: toolChoice?.type === 'tool' ? [toolChoice.name as string] : tools.map(({ name }) => name),
    ...(toolChoice?.type === 'none' && { forbidsTools: true }),
    callsBefore,
    endsWithToolResult: blocksIn(messages.at(-1)!.content).some(({ type }) => type === 'tool_result'),
  };
}

/** `outputSoFar`: the output tokens at the start of a stream; if undefined, all output tokens count. */
function usageOf({ usage }: MockCompletion, outputSoFar?: number): object | undefined {
  return (
    usage && {
      input_tokens: usage.prompt - usage.cached - usage.written,
      cache_creation_input_tokens: usage.written,
      cache_read_input_tokens: usage.cached,
      cache_creation: {
        ephemeral_5m_input_tokens: usage.written - usage.writtenForHour,
        ephemeral_1h_input_tokens: usage.writtenForHour,
      },
      output_tokens: outputSoFar ?? usage.completion,
      output_tokens_details:
        outputSoFar === undefined && usage.reasoning > 0 ? { thinking_tokens: usage.reasoning } : null,
      server_tool_use: null,
      service_tier: 'standard',
      inference_geo: null,
      speed: null,
    }
  );
}

function endOf({ finish }: MockCompletion): object {
  const refused = { type: 'refusal', category: null, explanation: 'The mock was told to refuse.' };
  return {
    stop_reason: STOP_REASONS[finish],
    stop_sequence: null,
    stop_details: finish === 'content_filter' ? refused : null,
    container: null,
  };
}

function messageOf(
  completion: MockCompletion,
  content: readonly object[],
  end: object,
  usage: object | undefined,
) {
  return {
    id: ID,
    type: 'message',
    role: 'assistant',
    model: completion.request.model,
    content,
    diagnostics: null,
    ...end,
    ...(usage === undefined ? {} : { usage }),
  };
}

function whole(completion: MockCompletion): string {
  const { thinking, texts, tools, request } = completion;
  if (request.isCount === true) return JSON.stringify({ input_tokens: request.promptTokens });
  const content: object[] = tools.map(({ id, name, pieces }) => ({
    type: 'tool_use',
    id,
    name,
    input: JSON.parse(pieces.join('')) as unknown,
    caller: { type: 'direct' },
  }));
  if (texts.length > 0) content.unshift({ type: 'text', text: texts.join('') });
  if (thinking.length > 0)
    content.unshift({ type: 'thinking', thinking: thinking.join(''), signature: SIGNATURE });
  return JSON.stringify(messageOf(completion, content, endOf(completion), usageOf(completion)));
}

function event(type: string, moreMembers: object = {}): Uint8Array {
  return sseFrame(JSON.stringify({ type, ...moreMembers }), type);
}

function frames(completion: MockCompletion): Uint8Array[] {
  const { thinking, texts, tools } = completion;
  const notEnded = { stop_reason: null, stop_sequence: null, stop_details: null, container: null };
  // Anthropic reports 1 output token at the start of a stream.
  const message = messageOf(completion, [], notEnded, usageOf(completion, 1));
  const events: Uint8Array[] = [event('message_start', { message })];
  let index = 0;
  const addBlock = (start: object, deltas: readonly object[]): void => {
    events.push(event('content_block_start', { index, content_block: start }));
    if (index === 0) events.push(event('ping'));
    for (const delta of deltas) events.push(event('content_block_delta', { index, delta }));
    events.push(event('content_block_stop', { index }));
    index++;
  };
  if (thinking.length > 0)
    addBlock({ type: 'thinking', thinking: '', signature: '' }, [
      ...thinking.map((text) => ({ type: 'thinking_delta', thinking: text })),
      { type: 'signature_delta', signature: SIGNATURE },
    ]);
  if (texts.length > 0)
    addBlock(
      { type: 'text', text: '' },
      texts.map((text) => ({ type: 'text_delta', text })),
    );
  for (const { id, name, pieces } of tools)
    addBlock(
      { type: 'tool_use', id, name, input: {}, caller: { type: 'direct' } },
      ['', ...pieces].map((json) => ({ type: 'input_json_delta', partial_json: json })),
    );
  const usage = usageOf(completion);
  events.push(
    event('message_delta', { delta: endOf(completion), ...(usage === undefined ? {} : { usage }) }),
    event('message_stop'),
  );
  return events;
}

export const ANTHROPIC_MOCK: MockProtocol = {
  streamType: 'text/event-stream; charset=utf-8',
  read,
  whole,
  frames,
  error: errorOf,
  errorFrame: (status, message) => sseFrame(errorText(status, message), 'error'),
  broken: brokenSse,
};
