/**
 * The mock's response: its contents, the pieces in which it is sent, and its faults. mock-upstream.ts calls
 * `responseTo` and `errorResponse`; a MockProtocol (mock-protocol.ts) writes the contents. Pure.
 *
 * The text of a response is made of numbered words, one for each piece (`w0 xxx`, `w1 xxx`, …). By
 * `wordNumbers` a test notices loss, repetition and a wrong order.
 *
 * Must hold: the same request and options give the same bytes (test/unit/mock/mock-completion.test.ts).
 */
import type { MockOptions } from './mock-options.js';
import { OPENAI_MOCK } from './mock-openai.js';
import { BYTES_PER_TOKEN } from './mock-protocol.js';
import type {
  MockCompletion,
  MockError,
  MockProtocol,
  MockRequest,
  MockToolCall,
  MockUsage,
} from './mock-protocol.js';

export interface MockResponse {
  readonly status: number;
  readonly contentType: string;
  readonly retryAfter: string | undefined;
  readonly moreHeaders: readonly string[];
  /** Whether the head (status and headers) is sent; false for a fault before it. */
  readonly hasHead: boolean;
  /** Content-Length; undefined for a stream, which is sent in chunks. */
  readonly lengthBytes: number | undefined;
  /** Each is one write. Bytes, because newer versions of µWS write some strings as Latin-1. */
  readonly pieces: readonly Uint8Array[];
  /** What follows the pieces: the response ends, its connection is closed, or nothing more is sent. */
  readonly ending: 'end' | 'reset' | 'stall';
}

/** The most pieces of thinking. There are fewer if the option `chunks`, the pieces of the text, is less. */
const THOUGHTS_MAX = 4;
/** More tokens than any call can have, for `usage=absurd`; and fewer, for `usage=negative`. */
const ABSURD_TOKENS = 1e15;
const NEGATIVE_TOKENS = -5;
const FAILURE_MESSAGE = 'the mock was told to fail';

/** Returns a text in `chunks` pieces whose lengths sum to `bytes`, unless the numbers alone are longer. */
export function contentPieces(bytes: number, chunks: number): string[] {
  const size = Math.floor(bytes / chunks);
  const pieces = Array.from({ length: chunks }, (_, number) => `w${number} `.padEnd(size, 'x'));
  const missingBytes = bytes - pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (missingBytes > 0) pieces.push(pieces.pop()! + 'x'.repeat(missingBytes));
  return pieces;
}

/** Returns the numbers of the words in a text of `contentPieces`, in their order. For tests. */
export function wordNumbers(text: string): number[] {
  return Array.from(text.matchAll(/w(\d+) /g), (match) => Number(match[1]));
}

/** Cuts the text into at most `chunks` pieces. All pieces but the last have the same length. */
function cutInto(text: string, chunks: number): string[] {
  const size = Math.max(1, Math.ceil(text.length / chunks));
  return Array.from({ length: Math.ceil(text.length / size) }, (_, index) =>
    text.slice(index * size, (index + 1) * size),
  );
}

/** `output`: all that counts as output besides `thinking`: the text, and the arguments of tool calls. */
function usageOf(options: MockOptions, request: MockRequest, output: string, thinking: string): MockUsage {
  const reasoning = Math.ceil(Buffer.byteLength(thinking) / BYTES_PER_TOKEN);
  const { cachedTokens: cached, cacheWriteTokens, cacheWriteHourTokens: writtenForHour } = options;
  const written = cacheWriteTokens + writtenForHour;
  // MockOptions.cacheWriteTokens says when the cache's tokens are added to those of the text.
  const usage = {
    prompt: options.promptTokens ?? request.promptTokens + (written === 0 ? 0 : cached + written),
    cached,
    written,
    writtenForHour,
    completion:
      options.completionTokens ?? Math.ceil(Buffer.byteLength(output) / BYTES_PER_TOKEN) + reasoning,
    reasoning,
  };
  if (options.usage === 'absurd') return { ...usage, prompt: ABSURD_TOKENS, completion: ABSURD_TOKENS };
  if (options.usage === 'negative') return { ...usage, prompt: NEGATIVE_TOKENS, completion: NEGATIVE_TOKENS };
  return usage;
}

/** Calls of the request's tools in turn. Each has one argument, `text`, whose JSON comes in two pieces. */
function toolCallsOf({ toolCalls }: MockOptions, request: MockRequest): MockToolCall[] {
  const { toolNames, forbidsTools, endsWithToolResult, callsBefore = 0 } = request;
  return Array.from({ length: endsWithToolResult || forbidsTools === true ? 0 : toolCalls }, (_, index) => ({
    id: `call_mock_${callsBefore + index}`,
    name: toolNames[index % toolNames.length] ?? 'mock_tool',
    pieces: cutInto(JSON.stringify({ text: `w${index} "é"` }), 2),
  }));
}

/** `echoed`: the text of the response, as in `responseTo`. */
function completionOf(
  options: MockOptions,
  request: MockRequest,
  echoed: string | undefined,
): MockCompletion {
  const { bytes, chunks, thinkingBytes } = options;
  const texts = echoed === undefined ? contentPieces(bytes, chunks) : cutInto(echoed, chunks);
  const thinking = thinkingBytes === 0 ? [] : contentPieces(thinkingBytes, Math.min(chunks, THOUGHTS_MAX));
  const tools = toolCallsOf(options, request);
  return {
    request,
    texts,
    thinking,
    tools,
    finish: options.finish ?? (tools.length > 0 ? 'tool_calls' : 'stop'),
    usage:
      options.usage === 'missing'
        ? undefined
        : usageOf(
            options,
            request,
            [...texts, ...tools.flatMap(({ pieces }) => pieces)].join(''),
            thinking.join(''),
          ),
    isUsageLate: options.usage === 'late',
  };
}

/** The frames of a stream in the order of sending, with the fault in it. */
function faultyFrames(
  protocol: MockProtocol,
  { fault, errorStatus }: MockOptions,
  completion: MockCompletion,
): readonly Uint8Array[] {
  const frames = protocol.frames(completion);
  const middle = Math.ceil((frames.length - 1) / 2);
  switch (fault) {
    case 'empty':
      return [];
    case 'broken-json':
      return frames.map((frame) => protocol.broken(frame));
    case 'broken-sse':
      return [...frames.slice(0, middle), protocol.broken(frames[middle]!), ...frames.slice(middle)];
    case 'error-first':
      return [protocol.errorFrame(errorStatus, FAILURE_MESSAGE, completion.request, 0)];
    case 'error-event':
      return [
        ...frames.slice(0, middle),
        protocol.errorFrame(errorStatus, FAILURE_MESSAGE, completion.request, middle),
      ];
    case 'reset-mid':
    case 'stall-mid':
      return frames.slice(0, middle);
    case 'no-done':
      return frames.slice(0, -1);
    default:
      return frames;
  }
}

function splitBytes(bytes: Buffer, size: number): Uint8Array[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size),
  );
}

function withCrlf(frame: Uint8Array): Uint8Array {
  return Buffer.from(Buffer.from(frame).toString().replaceAll('\n', '\r\n'));
}

function endingOf(options: MockOptions): MockResponse['ending'] {
  if (options.fault?.startsWith('reset-') === true) return 'reset';
  return options.fault?.startsWith('stall-') === true ? 'stall' : 'end';
}

const responseOf = (options: MockOptions, overrides: Partial<MockResponse>): MockResponse => ({
  status: options.status,
  contentType: 'application/json',
  retryAfter: options.retryAfter,
  moreHeaders: [],
  hasHead: true,
  lengthBytes: undefined,
  pieces: [],
  ending: endingOf(options),
  ...overrides,
});

function sizedResponse(options: MockOptions, overrides: Partial<MockResponse>, body: string): MockResponse {
  const bytes = Buffer.from(body);
  return responseOf(options, { ...overrides, lengthBytes: bytes.length, pieces: [bytes] });
}

export function errorResponse(options: MockOptions, { status, error, moreHeaders }: MockError): MockResponse {
  return sizedResponse(options, { status, moreHeaders: moreHeaders ?? [] }, error);
}

/** Returns the response to a request. `echoed`: the text of the response; if undefined, numbered words. */
export function responseTo(
  options: MockOptions,
  request: MockRequest,
  echoed: string | undefined,
  protocol: MockProtocol = OPENAI_MOCK,
): MockResponse {
  const { fault } = options;
  if (fault === 'reset-before' || fault === 'stall-before') return responseOf(options, { hasHead: false });
  if (fault === 'reset-headers') {
    // Shorter than its Content-Length, so that the reader notices that something is missing. Yet one byte,
    // because newer versions of µWS take an empty piece for a whole response.
    return responseOf(options, { lengthBytes: Math.max(2, options.bytes), pieces: [Buffer.from('{')] });
  }
  if (fault === 'wrong-type') {
    return sizedResponse(options, { contentType: 'text/html' }, '<html><body>It works!</body></html>');
  }
  if (options.body !== undefined) return sizedResponse(options, {}, options.body);
  if (options.status >= 300)
    return errorResponse(options, protocol.error(options.status, FAILURE_MESSAGE, request));

  const completion = completionOf(options, request, echoed);
  if (request.stream) {
    const { streamType } = protocol;
    const lfFrames = faultyFrames(protocol, options, completion);
    const isText = streamType.startsWith('text/event-stream');
    const frames = options.eventCrlf && isText ? lfFrames.map(withCrlf) : lfFrames;
    const pieces = options.split === undefined ? frames : splitBytes(Buffer.concat(frames), options.split);
    return responseOf(options, { contentType: streamType, pieces });
  }
  const body = fault === 'empty' ? '' : protocol.whole(completion);
  const firstHalf = body.slice(0, body.length / 2);
  if (fault === 'broken-json') return sizedResponse(options, {}, firstHalf);
  const whole = sizedResponse(options, {}, body);
  return fault === 'reset-mid' || fault === 'stall-mid'
    ? { ...whole, pieces: [Buffer.from(firstHalf)] }
    : whole;
}
