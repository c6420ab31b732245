/**
 * The mock's Bedrock protocol: Converse and ConverseStream, and Claude's own (mock-bedrock-claude.ts).
 * mock-upstream.ts has it in its table; mock-bedrock-rules.ts checks requests of Converse. Only the form of a
 * signature is checked, because the mock has no secret. Pure.
 *
 * Follows the Amazon Bedrock API Reference, "Converse" and "ConverseStream", as of November 2026.
 *
 * Must hold: AWS's own SDK reads the responses, and each exception, before and inside a stream, by its name
 * (test/unit/mock/mock-bedrock.test.ts; of Claude's operations mock-bedrock-claude.test.ts). It notices a
 * `broken` frame.
 */
import { EventStreamCodec } from '@smithy/eventstream-codec';
import { parsedJson } from '../core/json.js';
import { CLAUDE_OPERATIONS, eventsOfClaude, readClaude, wholeOfClaude } from './mock-bedrock-claude.js';
import { ConverseProblem, readConverse } from './mock-bedrock-rules.js';
import type { MockCompletion, MockCall, MockError, MockProtocol, MockRequest } from './mock-protocol.js';

const CONVERSE_OPERATIONS = ['converse', 'converse-stream'] as const;
const PATH = new RegExp(`/model/([^/]+)/(${[...CONVERSE_OPERATIONS, ...CLAUDE_OPERATIONS].join('|')})$`);
const SIGNATURE_HEADER =
  /^AWS4-HMAC-SHA256 Credential=\w+\/(\d{8})\/[a-z0-9-]+\/bedrock\/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}$/;

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

/** The names of Bedrock's exceptions, by the status of a response. A stream has STREAM_EXCEPTIONS. */
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

/** The exceptions of a stream, by the status in the API Reference. Claude has `modelTimeoutException` too. */
const STREAM_EXCEPTIONS: Readonly<Record<number, string>> = {
  400: 'validationException',
  424: 'modelStreamErrorException',
  429: 'throttlingException',
  500: 'internalServerException',
  503: 'serviceUnavailableException',
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
    return { ...readConverse(call.body), model, stream: operation === 'converse-stream' };
  } catch (error) {
    // `decodeURIComponent` throws a URIError for a name of a model that is not encoded rightly.
    if (!(error instanceof ConverseProblem || error instanceof URIError)) throw error;
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

/** Claude's. Bedrock sends them only if `additionalModelResponseFieldPaths` asks; the mock always does. */
function modelFieldsOf({ usage }: MockCompletion): object {
  if (usage === undefined || usage.reasoning === 0) return {};
  return {
    additionalModelResponseFields: { usage: { output_tokens_details: { thinking_tokens: usage.reasoning } } },
  };
}

function whole(completion: MockCompletion): string {
  if (completion.request.isHostedClaude === true) return wholeOfClaude(completion);
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
  if (completion.request.isHostedClaude === true)
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
  errorFrame(status, message, { isHostedClaude }) {
    const isTimeout = status === 408 && isHostedClaude === true;
    const type = isTimeout
      ? 'modelTimeoutException'
      : (STREAM_EXCEPTIONS[status] ?? 'internalServerException');
    return eventMessage({ ':exception-type': type, ':message-type': 'exception' }, { message });
  },
  broken(bytes) {
    // Changes a byte of the payload, so that the checksum, the last 4 bytes, does not match.
    const damaged = Buffer.from(bytes);
    damaged[damaged.length - 6]! ^= 1;
    return damaged;
  },
};
