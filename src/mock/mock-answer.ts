/**
 * What the mock reads of a request, and the encoded response to it: what is sent, in which pieces, and how it
 * ends. The same request and options give the same bytes. mock-upstream.ts calls it; pure.
 *
 * The text of a response is made of numbered words, one for each chunk (`w0 xxx`, `w1 xxx`, …). They show a
 * reader loss, repetition and a wrong order: see `wordNumbers`.
 */
import type { MockOptions } from './mock-options.js';

export interface MockRequest {
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** One for every 4 bytes of the messages' string contents, rounded up. */
  readonly promptTokens: number;
  /**
   * The query string after `x-mock:` in the first line of the last user message: a gateway in between passes
   * on no headers of its caller.
   */
  readonly steering: string | undefined;
}

export const BYTES_PER_TOKEN = 4;
const STEERING_MARK = 'x-mock:';

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

function steeringOf(content: string): string | undefined {
  if (!content.startsWith(STEERING_MARK)) return undefined;
  const line = content.slice(STEERING_MARK.length);
  const end = line.indexOf('\n');
  return (end === -1 ? line : line.slice(0, end)).trim();
}

/** Returns undefined if the body is not a JSON object. */
export function readMockRequest(body: string): MockRequest | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return undefined;
  }
  if (!isRecord(parsed)) return undefined;
  let promptBytes = 0;
  let prompt = '';
  const messages: readonly unknown[] = Array.isArray(parsed.messages) ? parsed.messages : [];
  for (const message of messages) {
    if (!isRecord(message) || typeof message.content !== 'string') continue;
    promptBytes += Buffer.byteLength(message.content);
    if (message.role === 'user') prompt = message.content;
  }
  const streamOptions = parsed.stream_options;
  return {
    model: typeof parsed.model === 'string' ? parsed.model : 'mock-model',
    stream: parsed.stream === true,
    includeUsage: isRecord(streamOptions) && streamOptions.include_usage === true,
    promptTokens: Math.ceil(promptBytes / BYTES_PER_TOKEN),
    steering: steeringOf(prompt),
  };
}

export interface Response {
  readonly status: number;
  readonly contentType: string;
  readonly retryAfter: string | undefined;
  /** False if not even a status is sent. */
  readonly headers: boolean;
  /** Content-Length; undefined for a stream, which is sent in chunks. */
  readonly lengthBytes: number | undefined;
  /** Not strings, because newer versions of µWS write some of them as Latin-1. */
  readonly pieces: readonly Uint8Array[];
  readonly ending: 'end' | 'reset' | 'stall';
}

const ID = 'chatcmpl-mock';
/** 2023-11-14T22:13:20Z, fixed so that responses are the same every time. */
const CREATED_SECONDS = 1_700_000_000;
const ABSURD_TOKENS = 1e15;
const NEGATIVE_TOKENS = -5;

/** Returns a text in `chunks` pieces whose lengths sum to `bytes`, unless the numbers alone are longer. */
export function contentPieces(bytes: number, chunks: number): string[] {
  const size = Math.floor(bytes / chunks);
  const pieces = Array.from({ length: chunks }, (_, number) => `w${number} `.padEnd(size, 'x'));
  const missing = bytes - pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (missing > 0) pieces.push(pieces.pop()! + 'x'.repeat(missing));
  return pieces;
}

/** Returns the numbers of the words in a text of `contentPieces`, in their order. */
export function wordNumbers(text: string): number[] {
  return Array.from(text.matchAll(/w(\d+) /g), (match) => Number(match[1]));
}

/** Returns a given text in `chunks` pieces of nearly the same size. */
function cutInto(text: string, chunks: number): string[] {
  const size = Math.max(1, Math.ceil(text.length / chunks));
  return Array.from({ length: Math.ceil(text.length / size) }, (_, index) =>
    text.slice(index * size, (index + 1) * size),
  );
}

function usageOf(options: MockOptions, request: MockRequest, contentBytes: number): object | undefined {
  if (options.usage === 'missing') return undefined;
  let prompt = options.promptTokens ?? request.promptTokens;
  let completion = options.completionTokens ?? Math.ceil(contentBytes / BYTES_PER_TOKEN);
  if (options.usage === 'absurd') prompt = completion = ABSURD_TOKENS;
  if (options.usage === 'negative') prompt = completion = NEGATIVE_TOKENS;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: options.cachedTokens },
  };
}

/** Returns the body of a non-streamed response. */
function wholeBody(options: MockOptions, request: MockRequest, content: string): string {
  const usage = usageOf(options, request, Buffer.byteLength(content));
  return JSON.stringify({
    id: ID,
    object: 'chat.completion',
    created: CREATED_SECONDS,
    model: request.model,
    choices: [{ index: 0, message: { role: 'assistant', content }, logprobs: null, finish_reason: 'stop' }],
    ...(usage === undefined ? {} : { usage }),
  });
}

/** Returns the data of the events of a stream, without `[DONE]`. */
function eventData(options: MockOptions, request: MockRequest, pieces: readonly string[]): string[] {
  // As providers do: if usage was asked for, every other chunk says that it has none.
  const nothing = request.includeUsage && options.usage !== 'missing' ? { usage: null } : {};
  const chunk = (choices: readonly object[], more: object): string =>
    JSON.stringify({
      id: ID,
      object: 'chat.completion.chunk',
      created: CREATED_SECONDS,
      model: request.model,
      choices,
      ...more,
    });
  const choice = (delta: object, finishReason: 'stop' | null): object => ({
    index: 0,
    delta,
    logprobs: null,
    finish_reason: finishReason,
  });
  const usage = usageOf(options, request, Buffer.byteLength(pieces.join('')));
  return [
    chunk([choice({ role: 'assistant', content: '' }, null)], nothing),
    ...pieces.map((content) => chunk([choice({ content }, null)], nothing)),
    chunk([choice({}, 'stop')], nothing),
    ...(request.includeUsage && usage !== undefined ? [chunk([], { usage })] : []),
  ];
}

const PROVIDER_ERROR = JSON.stringify({
  error: { message: 'the mock was told to fail', type: 'mock_error', param: null, code: 'mock_error' },
});

/** Returns the events' data in the order of sending, with the fault in it. */
function faultyData(options: MockOptions, request: MockRequest, pieces: readonly string[]): string[] {
  const data = eventData(options, request, pieces);
  const middle = Math.ceil(data.length / 2);
  const done = '[DONE]';
  switch (options.fault) {
    case 'empty':
      return [];
    case 'broken-json':
      return [...data.map((json) => json.slice(0, json.length / 2)), done];
    case 'broken-sse':
      return [...data.slice(0, middle), data[middle]!.slice(0, 40), ...data.slice(middle), done];
    case 'error-event':
      return [...data.slice(0, middle), PROVIDER_ERROR];
    case 'reset-mid':
    case 'stall-mid':
      return data.slice(0, middle);
    case 'no-done':
      return data;
    default:
      if (options.usage === 'late' && request.includeUsage)
        return [...data.slice(0, -1), done, ...data.slice(-1)];
      return [...data, done];
  }
}

function splitBytes(text: string, size: number): Uint8Array[] {
  const bytes = Buffer.from(text);
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size),
  );
}

function endingOf(options: MockOptions): Response['ending'] {
  if (options.fault?.startsWith('reset-') === true) return 'reset';
  return options.fault?.startsWith('stall-') === true ? 'stall' : 'end';
}

const answer = (options: MockOptions, given: Partial<Response>): Response => ({
  status: options.status,
  contentType: 'application/json',
  retryAfter: options.retryAfter,
  headers: true,
  lengthBytes: undefined,
  pieces: [],
  ending: endingOf(options),
  ...given,
});

/** Returns a response of one piece with its length. */
export function plainResponse(options: MockOptions, given: Partial<Response>, body: string): Response {
  const bytes = Buffer.from(body);
  return answer(options, { ...given, lengthBytes: bytes.length, pieces: [bytes] });
}

/** Returns the response to a request; `echoed` is its text if the request is to be echoed. */
export function responseTo(options: MockOptions, request: MockRequest, echoed: string | undefined): Response {
  const { fault } = options;
  if (fault === 'reset-before' || fault === 'stall-before') return answer(options, { headers: false });
  // The length is never reached, so the reader knows that something is missing.
  if (fault === 'reset-headers') {
    // With one byte: newer versions of µWS take an empty piece for a whole response.
    return answer(options, { lengthBytes: Math.max(2, options.bytes), pieces: [Buffer.from('{')] });
  }
  if (fault === 'wrong-type') {
    return plainResponse(options, { contentType: 'text/html' }, '<html><body>It works!</body></html>');
  }
  if (options.body !== undefined) return plainResponse(options, {}, options.body);
  if (options.status >= 300) return plainResponse(options, {}, PROVIDER_ERROR);

  const pieces =
    echoed === undefined ? contentPieces(options.bytes, options.chunks) : cutInto(echoed, options.chunks);
  if (request.stream) {
    const end = options.eventCrlf ? '\r\n\r\n' : '\n\n';
    const events = faultyData(options, request, pieces).map((data) => `data: ${data}${end}`);
    return answer(options, {
      contentType: 'text/event-stream',
      pieces:
        options.split === undefined
          ? events.map((event) => Buffer.from(event))
          : splitBytes(events.join(''), options.split),
    });
  }
  const body = fault === 'empty' ? '' : wholeBody(options, request, pieces.join(''));
  const half = body.slice(0, body.length / 2);
  if (fault === 'broken-json') return plainResponse(options, {}, half);
  const whole = plainResponse(options, {}, body);
  return fault === 'reset-mid' || fault === 'stall-mid' ? { ...whole, pieces: [Buffer.from(half)] } : whole;
}
