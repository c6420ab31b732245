/**
 * The interface of the mock's protocols: requests and responses apart from any provider's form.
 * mock-completion.ts decides what a response says and how it fails; each implementation (mock-openai.ts and
 * the others beside it) reads and writes one provider's protocol. Pure.
 *
 * Must hold: no file of this folder imports src/providers. Each is a second reading of the provider's
 * reference; with shared code one misreading would pass its own test (test/unit/tree.test.ts).
 */
/** A request as it came. Header names are in lower case. */
export interface MockCall {
  readonly path: string;
  /** The query string, without `?`. */
  readonly query: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** What the mock reads of a request. */
export interface MockRequest {
  readonly model: string;
  readonly stream: boolean;
  /** Whether a stream reports usage: true for protocols in which it always does. */
  readonly includeUsage: boolean;
  /** One token for every 4 bytes of the messages' texts, rounded up. */
  readonly promptTokens: number;
  /**
   * The query string after `x-mock:` in the first line of the last user message: a gateway in between passes
   * on no headers of its caller. See `steeringOf`.
   */
  readonly steering: string | undefined;
  /** Names of the tools that may be called. */
  readonly toolNames: readonly string[];
  /** The last message is a tool's result, so the response calls no tool. */
  readonly callsTools: boolean;
  /** The request only asks for the number of its tokens. */
  readonly isCount?: true;
  /** A call of Bedrock in Claude's own protocol. */
  readonly isNative?: true;
  /** A request to another of OpenAI's paths; undefined for a chat completion. */
  readonly door?: MockDoorRequest;
}

/** OpenAI's paths besides chat completions. */
export const DOOR_KINDS = ['embeddings', 'completions', 'moderations', 'rerank'] as const;

/** A request to one of them. */
export interface MockDoorRequest {
  readonly kind: (typeof DOOR_KINDS)[number];
  /** One for each embedding, prompt, moderation or document; tokens joined by blanks. */
  readonly inputs: readonly string[];
  readonly body: Readonly<Record<string, unknown>>;
}

/** An error response in the provider's form. */
export interface MockError {
  readonly status: number;
  readonly error: string;
  /** Name, value, name, value; in lower case. */
  readonly moreHeaders?: readonly string[];
}

/** Numbers may be absurd or negative, if the options say so. */
export interface MockUsage {
  /** All of the prompt, with what was read from the cache and written to it. */
  readonly prompt: number;
  readonly cached: number;
  readonly written: number;
  /** Part of `written`: kept for an hour. */
  readonly writtenForHour: number;
  /** All that was generated, with `reasoning`. */
  readonly completion: number;
  readonly reasoning: number;
}

export const FINISHES = ['stop', 'length', 'tool_calls', 'content_filter'] as const;

export interface MockToolCall {
  /** `call_mock_0`, `call_mock_1`, … */
  readonly id: string;
  readonly name: string;
  /** JSON of the arguments, in pieces. */
  readonly pieces: readonly string[];
}

/** The contents of a response. An empty list: nothing of that kind. */
export interface MockCompletion {
  readonly request: MockRequest;
  /** In pieces: one for each chunk of a stream. */
  readonly thinking: readonly string[];
  readonly texts: readonly string[];
  readonly tools: readonly MockToolCall[];
  readonly finish: (typeof FINISHES)[number];
  /** Undefined if the response reports no usage. */
  readonly usage: MockUsage | undefined;
  /** A stream's usage comes after its end, if the protocol allows for that. */
  readonly isUsageLate: boolean;
}

export interface MockProtocol {
  /** `text/event-stream`, mostly. */
  readonly streamType: string;
  /**
   * What the call asks, or the provider's refusal: of another path, a missing key, a wrong version, a member
   * that the reference does not name.
   */
  read(call: MockCall): MockRequest | MockError;
  /** A whole response, as JSON. */
  whole(completion: MockCompletion): string;
  /** The frames of a stream in their order; the last one is its end. */
  frames(completion: MockCompletion): readonly Uint8Array[];
  error(status: number, message: string): MockError;
  /** The frame by which a stream reports an error after its status; `status`: what it would have been. */
  errorFrame(status: number, message: string): Uint8Array;
  /** The frame with damage that its reader must notice; the frame itself if it has nothing to damage. */
  broken(frame: Uint8Array): Uint8Array;
}

export const BYTES_PER_TOKEN = 4;
const STEERING_MARK = 'x-mock:';

/** The steering in the text of a user message. */
export function steeringOf(text: string): string | undefined {
  if (!text.startsWith(STEERING_MARK)) return undefined;
  const line = text.slice(STEERING_MARK.length);
  const end = line.indexOf('\n');
  return (end === -1 ? line : line.slice(0, end)).trim();
}

/** A server-sent event; `name` is its `event:` line. */
export function sseFrame(data: string, name?: string): Uint8Array {
  return Buffer.from(`${name === undefined ? '' : `event: ${name}\n`}data: ${data}\n\n`);
}

/** An event whose JSON is cut off; one without JSON stays. */
export function brokenSse(frame: Uint8Array): Uint8Array {
  const text = Buffer.from(frame).toString();
  const start = text.indexOf('{');
  return start === -1
    ? frame
    : Buffer.from(`${text.slice(0, start + Math.floor((text.length - 2 - start) / 2))}\n\n`);
}

export const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The value of a JSON text; undefined if it is none. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
