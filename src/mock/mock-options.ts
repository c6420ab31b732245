/**
 * The options of the mock upstream. Each has one declaration, from which the flags of the command line and
 * the steering of single calls (a query string such as `status=429&retry_after=2`) are both read. Pure.
 */
import { FINISHES } from './mock-protocol.js';

/** What goes wrong on purpose. `mid` means after half of the content. */
export const FAULTS = [
  'reset-before', // the connection closes before a byte of the response
  'reset-headers', // … after the headers
  'reset-mid', // … after half of the content
  'stall-before', // no byte ever comes
  'stall-mid', // nothing comes after half of the content
  'broken-sse', // a stream has an event in its middle whose JSON is cut off, and goes on
  'broken-json', // a whole response, or every event, is cut-off JSON
  'empty', // status and headers, no content
  'wrong-type', // an HTML page
  'error-first', // a stream's first event is an error
  'error-event', // a stream ends in its middle with an error event, without [DONE]
  'no-done', // a stream ends without [DONE]
] as const;
export type Fault = (typeof FAULTS)[number];

/** `late`: a stream's usage follows `[DONE]`. `absurd`: 10^15 tokens. `negative`: -5 tokens. */
export const USAGE_MODES = ['normal', 'missing', 'late', 'absurd', 'negative'] as const;
export type UsageMode = (typeof USAGE_MODES)[number];

export interface MockOptions {
  /** UTF-8 length of the response's text. */
  readonly bytes: number;
  /** Content chunks of a stream; the text of a whole response is their concatenation. */
  readonly chunks: number;
  readonly firstByteMs: number;
  readonly chunkMs: number;
  readonly status: number;
  /** Sent as it is in place of the response. */
  readonly body: string | undefined;
  readonly retryAfter: string | undefined;
  readonly fault: Fault | undefined;
  readonly usage: UsageMode;
  /** Reported numbers; if undefined, one token for every 4 bytes of text, rounded up. */
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  readonly cachedTokens: number;
  /** Written to the cache, for five minutes and for an hour; they and `cachedTokens` add to the prompt. */
  readonly cacheWriteTokens: number;
  readonly cacheWriteHourTokens: number;
  /** Calls of the request's tools; none if its last message is a tool's result. */
  readonly toolCalls: number;
  /** UTF-8 length of the text of thinking, which comes first. */
  readonly thinkingBytes: number;
  /** Why the text ends; if undefined, `tool_calls` if there are any, else `stop`. */
  readonly finish: (typeof FINISHES)[number] | undefined;
  /** What an error inside a stream means. */
  readonly errorStatus: number;
  /** Bytes of each write of a stream, wherever the events end; if undefined, one write an event. */
  readonly split: number | undefined;
  readonly eventCrlf: boolean;
  readonly echo: boolean;
}

/** A wrong option. The message is for the person who set it. */
export class MockOptionError extends Error {}

interface OptionKind<Value> {
  /** Name of the value in the help; undefined for a switch. */
  readonly metavar: string | undefined;
  readonly help: string;
  readonly fallback: Value;
  /** Throws a MockOptionError that says what is wanted. */
  readonly parse: (text: string) => Value;
}

const integer = (min: number, max: number) => (text: string) => {
  const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= min && value <= max)) throw new MockOptionError(`an integer from ${min} to ${max}`);
  return value;
};

const oneOf =
  <Word extends string>(words: readonly Word[]) =>
  (text: string) => {
    const word = words.find((candidate) => candidate === text);
    if (word === undefined) throw new MockOptionError(`one of ${words.join(', ')}`);
    return word;
  };

const toggle = (text: string): boolean => {
  if (text === '1' || text === 'true' || text === '') return true;
  if (text === '0' || text === 'false') return false;
  throw new MockOptionError('1 or 0');
};

const text = (value: string): string => value;

/** Far above any response seen, far below what would trouble the process. */
const CONTENT_BYTES_MAX = 64 * 1024 * 1024;
const CHUNKS_MAX = 1_000_000;
const PAUSE_MS_MAX = 3_600_000;
const SPLIT_BYTES_MAX = 1024 * 1024;
const TOOL_CALLS_MAX = 100;
/** JSON carries such numbers exactly; `usage=absurd` is for larger ones. */
const TOKENS_MAX = 1_000_000_000;

const OPTIONS: { readonly [Name in keyof MockOptions]: OptionKind<MockOptions[Name]> } = {
  bytes: {
    metavar: 'n',
    help: 'bytes of text in the answer',
    fallback: 400,
    parse: integer(0, CONTENT_BYTES_MAX),
  },
  chunks: { metavar: 'n', help: 'content chunks of a stream', fallback: 20, parse: integer(1, CHUNKS_MAX) },
  firstByteMs: {
    metavar: 'ms',
    help: 'pause before the answer',
    fallback: 0,
    parse: integer(0, PAUSE_MS_MAX),
  },
  chunkMs: {
    metavar: 'ms',
    help: 'pause after each write of a stream',
    fallback: 0,
    parse: integer(0, PAUSE_MS_MAX),
  },
  status: { metavar: 'code', help: 'status of the answer', fallback: 200, parse: integer(200, 599) },
  body: { metavar: 'text', help: 'body in place of the answer', fallback: undefined, parse: text },
  retryAfter: { metavar: 'text', help: 'Retry-After header', fallback: undefined, parse: text },
  fault: { metavar: 'kind', help: FAULTS.join(', '), fallback: undefined, parse: oneOf(FAULTS) },
  usage: { metavar: 'kind', help: USAGE_MODES.join(', '), fallback: 'normal', parse: oneOf(USAGE_MODES) },
  promptTokens: { metavar: 'n', help: 'reported', fallback: undefined, parse: integer(0, TOKENS_MAX) },
  completionTokens: { metavar: 'n', help: 'reported', fallback: undefined, parse: integer(0, TOKENS_MAX) },
  cachedTokens: {
    metavar: 'n',
    help: 'part of the prompt tokens',
    fallback: 0,
    parse: integer(0, TOKENS_MAX),
  },
  cacheWriteTokens: {
    metavar: 'n',
    help: 'further prompt tokens, written to the cache',
    fallback: 0,
    parse: integer(0, TOKENS_MAX),
  },
  cacheWriteHourTokens: {
    metavar: 'n',
    help: 'the same, kept for an hour',
    fallback: 0,
    parse: integer(0, TOKENS_MAX),
  },
  toolCalls: {
    metavar: 'n',
    help: "calls of the request's tools",
    fallback: 0,
    parse: integer(0, TOOL_CALLS_MAX),
  },
  thinkingBytes: {
    metavar: 'n',
    help: 'bytes of thinking before the text',
    fallback: 0,
    parse: integer(0, CONTENT_BYTES_MAX),
  },
  finish: { metavar: 'reason', help: FINISHES.join(', '), fallback: undefined, parse: oneOf(FINISHES) },
  errorStatus: {
    metavar: 'code',
    help: 'what an error inside a stream means',
    fallback: 503,
    parse: integer(400, 599),
  },
  split: {
    metavar: 'bytes',
    help: 'cut a stream here',
    fallback: undefined,
    parse: integer(1, SPLIT_BYTES_MAX),
  },
  eventCrlf: { metavar: undefined, help: 'end lines of a stream with CR LF', fallback: false, parse: toggle },
  echo: {
    metavar: undefined,
    help: 'the text of the answer is {"headers":{…},"body":"…"} of the request',
    fallback: false,
    parse: toggle,
  },
};

type OptionName = keyof MockOptions;
const OPTION_NAMES = Object.keys(OPTIONS) as OptionName[];

/** `firstByteMs` is `--first-byte-ms` on the command line and `first_byte_ms` in a query string. */
const worded = (name: OptionName, joint: '-' | '_'): string =>
  name.replace(/[A-Z]/g, (letter) => joint + letter.toLowerCase());

const NAME_OF_WORD = new Map(OPTION_NAMES.map((name) => [worded(name, '_'), name]));

export const MOCK_DEFAULTS: MockOptions = Object.freeze(
  Object.fromEntries(OPTION_NAMES.map((name) => [name, OPTIONS[name].fallback])),
) as unknown as MockOptions;

/** For the command line: `flags` in commander's notation and `help` with the default. */
export const MOCK_FLAGS: readonly { readonly flags: string; readonly help: string }[] = OPTION_NAMES.map(
  (name) => {
    const { metavar, help, fallback } = OPTIONS[name];
    const shown = fallback === undefined || fallback === false ? '' : ` (default: ${fallback})`;
    return {
      flags: `--${worded(name, '-')}${metavar === undefined ? '' : ` <${metavar}>`}`,
      help: help + shown,
    };
  },
);

/**
 * Returns `base` with the given texts over it, by property name.
 * @throws MockOptionError naming the option and what it wants
 */
export function mockOptionsWith(base: MockOptions, texts: ReadonlyMap<OptionName, string>): MockOptions {
  const changes: Partial<Record<OptionName, unknown>> = {};
  for (const [name, given] of texts) {
    try {
      changes[name] = OPTIONS[name].parse(given);
    } catch (error) {
      if (!(error instanceof MockOptionError)) throw error;
      throw new MockOptionError(`${worded(name, '_')} wants ${error.message}, got "${given}"`);
    }
  }
  // Each value comes from the parser of its own name, which the compiler cannot follow through the loop.
  return Object.freeze({ ...base, ...(changes as Partial<MockOptions>) });
}

/**
 * Returns `base` with a query string over it: `status=429&retry_after=2`.
 * @throws MockOptionError also for a name that is no option
 */
export function steeredOptions(base: MockOptions, query: string): MockOptions {
  const texts = new Map<OptionName, string>();
  for (const [word, given] of new URLSearchParams(query)) {
    const name = NAME_OF_WORD.get(word);
    if (name === undefined) {
      throw new MockOptionError(`no option "${word}"; there are ${[...NAME_OF_WORD.keys()].join(', ')}`);
    }
    texts.set(name, given);
  }
  return mockOptionsWith(base, texts);
}

/**
 * Returns options from commander's record of the given flags (texts, and true for switches). Ignores other
 * properties.
 * @throws MockOptionError
 */
export function mockOptionsOfFlags(flags: Readonly<Record<string, unknown>>): MockOptions {
  const texts = new Map<OptionName, string>();
  for (const name of OPTION_NAMES) {
    const given = flags[name];
    if (typeof given === 'string') texts.set(name, given);
    else if (given === true) texts.set(name, '1');
  }
  return mockOptionsWith(MOCK_DEFAULTS, texts);
}
