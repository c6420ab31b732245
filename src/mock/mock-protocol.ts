/**
 * The interface of the mock's protocols: requests and responses in no provider's form. mock-completion.ts
 * decides what a response says and how it fails. Each implementation (mock-openai.ts, mock-anthropic.ts and
 * so on) reads and writes one provider's protocol. Pure.
 *
 * Must hold: no file of this folder imports src/providers or src/doors (test/unit/tree.test.ts). Each
 * protocol is written from the provider's reference alone: shared code would share a misreading.
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
  /** Whether a stream reports usage; true for protocols whose streams always do. */
  readonly includeUsage: boolean;
  /** One token for every 4 bytes of the messages' texts, rounded up. */
  readonly promptTokens: number;
  /** `directivesOf` the last user message: a gateway before the mock passes messages on, but not headers. */
  readonly directives: string | undefined;
  /** Names of the tools that may be called. */
  readonly toolNames: readonly string[];
  /** Whether the request has tools and forbids to call them. Then the response calls none. */
  readonly forbidsTools?: true;
  /** Whether the last message is a tool's result. Then the response calls no tool. */
  readonly endsWithToolResult: boolean;
  /** How many tools the messages have called. Ids count on from there, as some protocols want; or from 0. */
  readonly callsBefore?: number;
  /** Whether the request only asks for the number of its tokens. */
  readonly isCount?: true;
  /** Whether the request came to Bedrock or Vertex in Claude's own protocol: so does the response. */
  readonly isHostedClaude?: true;
  /** Set if the request came to one of DOOR_KINDS. */
  readonly door?: MockDoorRequest;
}

/** The paths of OpenAI's protocol that mock-openai-doors.ts serves, after `/v1/`. */
export const DOOR_KINDS = ['embeddings', 'completions', 'moderations', 'rerank'] as const;

/** What a request to one of these paths asks. */
export interface MockDoorRequest {
  readonly kind: (typeof DOOR_KINDS)[number];
  /** One text for each embedding, prompt, moderation or document. A list of tokens is joined by blanks. */
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

/** Tokens that the response reports. The numbers may be absurd or negative, if the options say so. */
export interface MockUsage {
  /** All of the prompt, with what was read from the cache and written to it. */
  readonly prompt: number;
  /** Part of `prompt`: read from the cache. */
  readonly cached: number;
  /** Part of `prompt`: written to the cache. */
  readonly written: number;
  /** Part of `written`: kept for an hour; the other part is kept for five minutes. */
  readonly writtenForHour: number;
  /** All that was generated, with `reasoning`. */
  readonly completion: number;
  readonly reasoning: number;
}

/** Why a response ends. Protocols translate these into their own names. */
export const FINISHES = ['stop', 'length', 'tool_calls', 'content_filter'] as const;

export interface MockToolCall {
  /** `call_mock_0`, `call_mock_1`, … */
  readonly id: string;
  readonly name: string;
  /** JSON of the arguments, in pieces. */
  readonly pieces: readonly string[];
}

/** The contents of a response. An empty list means that the response has nothing of that kind. */
export interface MockCompletion {
  readonly request: MockRequest;
  /** In pieces, as all texts here: one for each chunk of a stream. */
  readonly thinking: readonly string[];
  readonly texts: readonly string[];
  readonly tools: readonly MockToolCall[];
  readonly finish: (typeof FINISHES)[number];
  /** Undefined if the response reports no usage. */
  readonly usage: MockUsage | undefined;
  /** Whether a stream's usage comes after its end, if the protocol allows for that. */
  readonly isUsageLate: boolean;
}

export interface MockProtocol {
  readonly streamType: string;
  /** Returns what the call asks, or the provider's error for what its reference does not allow. */
  read(call: MockCall): MockRequest | MockError;
  /** A whole response, as JSON. */
  whole(completion: MockCompletion): string;
  /** The frames of a stream (the bytes of one event each), in their order. The last frame ends the stream. */
  frames(completion: MockCompletion): readonly Uint8Array[];
  /** The provider's error response of that status to `request`; to any request if it is left out. */
  error(status: number, message: string, request?: MockRequest): MockError;
  /** By it a stream reports an error after its status 200. `framesBefore`: of the stream. */
  errorFrame(status: number, message: string, request: MockRequest, framesBefore: number): Uint8Array;
  /** Returns the frame with damage that a reader must notice; the frame itself if it has no JSON. */
  broken(frame: Uint8Array): Uint8Array;
}

/** The mock's tokenizer: this number of bytes of UTF-8 is a token. */
export const BYTES_PER_TOKEN = 4;
const DIRECTIVES_PREFIX = 'x-mock:';

/** 2023-11-14T22:13:20Z: the same in each response, so that the same call gets the same bytes. */
export const CREATED_SECONDS = 1_700_000_000;

/** Returns the query string after DIRECTIVES_PREFIX in the first line; undefined if there is no prefix. */
export function directivesOf(text: string): string | undefined {
  if (!text.startsWith(DIRECTIVES_PREFIX)) return undefined;
  const line = text.slice(DIRECTIVES_PREFIX.length);
  const end = line.indexOf('\n');
  return (end === -1 ? line : line.slice(0, end)).trim();
}

/** The frame of a server-sent event; `name` is its `event:` line. */
export function sseFrame(data: string, name?: string): Uint8Array {
  return Buffer.from(`${name === undefined ? '' : `event: ${name}\n`}data: ${data}\n\n`);
}

/** Returns the frame with its JSON cut off; a frame without JSON stays as it is. */
export function brokenSse(frame: Uint8Array): Uint8Array {
  const text = Buffer.from(frame).toString();
  const start = text.indexOf('{');
  return start === -1
    ? frame
    : Buffer.from(`${text.slice(0, start + Math.floor((text.length - 2 - start) / 2))}\n\n`);
}
