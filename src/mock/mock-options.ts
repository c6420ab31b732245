/**
 * The options of the mock upstream. Each option has one declaration, in OPTIONS. Its flag on the command line
 * (cli/mock-upstream-command.ts) and its key in the directives of a single call, a query string such as
 * `status=429&retry_after=2` (mock-upstream.ts), are made from it. Pure.
 *
 * Must hold: the names of options stay, because users, tests and load scripts write them
 * (test/unit/mock/mock-options.test.ts).
 */
import { FINISHES } from './mock-protocol.js';

/** What the mock does wrong on purpose. Faults of a stream have no effect on a whole response. */
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
type Fault = (typeof FAULTS)[number];

/** `late`: a stream's usage follows `[DONE]`. `absurd`: 10^15 tokens. `negative`: -5 tokens. */
export const USAGE_MODES = ['normal', 'missing', 'late', 'absurd', 'negative'] as const;
type UsageMode = (typeof USAGE_MODES)[number];

export interface MockOptions {
  /** UTF-8 length of the response's text. */
  readonly bytes: number;
  /** Content chunks of a stream; the text of a whole response is their concatenation. */
  readonly chunks: number;
  readonly firstByteMs: number;
  /** Pause after each write of a stream: after each chunk, unless `split` cuts the stream elsewhere. */
  readonly chunkMs: number;
  readonly status: number;
  /** Text that is sent as it is, in place of the response's body. */
  readonly body: string | undefined;
  readonly retryAfter: string | undefined;
  readonly fault: Fault | undefined;
  readonly usage: UsageMode;
  /** The reported tokens; if undefined, BYTES_PER_TOKEN (4) bytes of text are a token, rounded up. */
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  readonly cachedTokens: number;
  /**
   * Written for five minutes, and for an hour. `promptTokens` includes both and `cachedTokens`. If it is
   * undefined and something is written, all three are added to the tokens of the text.
   */
  readonly cacheWriteTokens: number;
  readonly cacheWriteHourTokens: number;
  /** Number of calls of the request's tools. If the request's last message is a tool's result: none. */
  readonly toolCalls: number;
  /** UTF-8 length of the thinking, which comes before the text. */
  readonly thinkingBytes: number;
  /** Why the text ends. If undefined: `tool_calls` if the response calls tools, else `stop`. */
  readonly finish: (typeof FINISHES)[number] | undefined;
  /** HTTP status that an error event of a stream stands for. */
  readonly errorStatus: number;
  /** Bytes of each write of a stream, wherever events end. If undefined, each event is one write. */
  readonly split: number | undefined;
  /** Whether lines of a stream end with CR LF, as the standard of event streams allows. */
  readonly eventCrlf: boolean;
  /** Whether the text of the response is the request's headers and body. */
  readonly echo: boolean;
}

/** A wrong option. The message says which, and what the option wants. */
export class MockOptionError extends Error {}

interface OptionKind<Value> {
  /** Name of the value in the help; undefined for a switch. */
  readonly metavar: string | undefined;
  readonly help: string;
  readonly defaultValue: Value;
  /** Throws a MockOptionError that says what the option wants; `mockOptionsWith` adds the name. */
  readonly parse: (text: string) => Value;
}

/** A whole number between two bounds, which are included. */
function integer<Default extends number | undefined>(
  metavar: string,
  help: string,
  defaultValue: Default,
  [min, max]: readonly [min: number, max: number],
): OptionKind<number | Default> {
  const parse = (text: string): number => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) throw new MockOptionError(`an integer from ${min} to ${max}`);
    return value;
  };
  return { metavar, help, defaultValue, parse };
}

/** One of `words`, which the help lists. */
function oneOf<Word extends string, Default extends Word | undefined>(
  metavar: string,
  defaultValue: Default,
  words: readonly Word[],
): OptionKind<Word | Default> {
  const parse = (text: string): Word => {
    const word = words.find((candidate) => candidate === text);
    if (word === undefined) throw new MockOptionError(`one of ${words.join(', ')}`);
    return word;
  };
  return { metavar, help: words.join(', '), defaultValue, parse };
}

function onOffSwitch(help: string): OptionKind<boolean> {
  const parse = (text: string): boolean => {
    if (text === '1' || text === 'true' || text === '') return true;
    if (text === '0' || text === 'false') return false;
    throw new MockOptionError('1 or 0');
  };
  return { metavar: undefined, help, defaultValue: false, parse };
}

function text(help: string): OptionKind<string | undefined> {
  return { metavar: 'text', help, defaultValue: undefined, parse: (value) => value };
}

/** Bounds of the options, far above what any test needs, and far below what the process could not hold. */
const CONTENT_BYTES_MAX = 64 * 1024 * 1024;
const CHUNKS_MAX = 1_000_000;
const PAUSE_MS_MAX = 3_600_000;
const SPLIT_BYTES_MAX = 1024 * 1024;
const TOOL_CALLS_MAX = 100;
/** More than any model reads; `usage=absurd` is for larger numbers. */
const TOKENS_MAX = 1_000_000_000;

const OPTIONS: { readonly [Name in keyof MockOptions]: OptionKind<MockOptions[Name]> } = {
  bytes: integer('n', 'bytes of text in the response', 400, [0, CONTENT_BYTES_MAX]),
  chunks: integer('n', 'content chunks of a stream', 20, [1, CHUNKS_MAX]),
  firstByteMs: integer('ms', 'pause before the response', 0, [0, PAUSE_MS_MAX]),
  chunkMs: integer('ms', 'pause after each write of a stream', 0, [0, PAUSE_MS_MAX]),
  status: integer('code', 'status of the response', 200, [200, 599]),
  body: text('body in place of the response'),
  retryAfter: text('Retry-After header'),
  fault: oneOf('kind', undefined, FAULTS),
  usage: oneOf('kind', 'normal', USAGE_MODES),
  promptTokens: integer(
    'n',
    'prompt tokens in the reported usage; by default counted from the request',
    undefined,
    [0, TOKENS_MAX],
  ),
  completionTokens: integer(
    'n',
    'completion tokens in the reported usage; by default counted from the response',
    undefined,
    [0, TOKENS_MAX],
  ),
  cachedTokens: integer('n', 'part of the prompt tokens, read from the cache', 0, [0, TOKENS_MAX]),
  cacheWriteTokens: integer('n', 'further prompt tokens, written to the cache', 0, [0, TOKENS_MAX]),
  cacheWriteHourTokens: integer('n', 'the same, kept for an hour', 0, [0, TOKENS_MAX]),
  toolCalls: integer('n', "number of calls of the request's tools in the response", 0, [0, TOOL_CALLS_MAX]),
  thinkingBytes: integer('n', 'bytes of thinking before the text', 0, [0, CONTENT_BYTES_MAX]),
  finish: oneOf('reason', undefined, FINISHES),
  errorStatus: integer('code', 'status that an error event of a stream stands for', 503, [400, 599]),
  split: integer(
    'bytes',
    'size of each write of a stream, wherever events end; by default an event',
    undefined,
    [1, SPLIT_BYTES_MAX],
  ),
  eventCrlf: onOffSwitch('end lines of a stream with CR LF'),
  echo: onOffSwitch('the text of the response is {"headers":{…},"body":"…"} of the request'),
};

type OptionName = keyof MockOptions;
const OPTION_NAMES = Object.keys(OPTIONS) as OptionName[];

/** `firstByteMs` becomes `first-byte-ms` for the command line and `first_byte_ms` for a query string. */
const inCase = (name: OptionName, separator: '-' | '_'): string =>
  name.replace(/[A-Z]/g, (letter) => separator + letter.toLowerCase());

const NAME_BY_QUERY_KEY = new Map(OPTION_NAMES.map((name) => [inCase(name, '_'), name]));

export const MOCK_DEFAULTS: MockOptions = Object.freeze(
  Object.fromEntries(OPTION_NAMES.map((name) => [name, OPTIONS[name].defaultValue])),
) as unknown as MockOptions;

/** For the command line: `flags` in commander's notation and `help` with the default. */
export const MOCK_FLAGS: readonly { readonly flags: string; readonly help: string }[] = OPTION_NAMES.map(
  (name) => {
    const { metavar, help, defaultValue } = OPTIONS[name];
    const defaultText =
      defaultValue === undefined || defaultValue === false ? '' : ` (default: ${defaultValue})`;
    return {
      flags: `--${inCase(name, '-')}${metavar === undefined ? '' : ` <${metavar}>`}`,
      help: help + defaultText,
    };
  },
);

/** @throws MockOptionError with the option's name in a query string, and what it wants */
export function mockOptionsWith(base: MockOptions, texts: ReadonlyMap<OptionName, string>): MockOptions {
  const overrides: Partial<Record<OptionName, unknown>> = {};
  for (const [name, valueText] of texts) {
    try {
      overrides[name] = OPTIONS[name].parse(valueText);
    } catch (error) {
      if (!(error instanceof MockOptionError)) throw error;
      throw new MockOptionError(`${inCase(name, '_')} wants ${error.message}, got "${valueText}"`);
    }
  }
  // Each value comes from the parser of its own name, which the compiler cannot follow through the loop.
  return Object.freeze({ ...base, ...(overrides as Partial<MockOptions>) });
}

/** `query`: such as `status=429&retry_after=2`. @throws MockOptionError also for a name that is no option */
export function optionsWithQuery(base: MockOptions, query: string): MockOptions {
  const texts = new Map<OptionName, string>();
  for (const [key, valueText] of new URLSearchParams(query)) {
    const name = NAME_BY_QUERY_KEY.get(key);
    if (name === undefined) {
      throw new MockOptionError(`no option "${key}"; there are ${[...NAME_BY_QUERY_KEY.keys()].join(', ')}`);
    }
    texts.set(name, valueText);
  }
  return mockOptionsWith(base, texts);
}

/**
 * `flags`: as commander has parsed them, texts, and true for switches; others than options are ignored.
 * @throws MockOptionError if an option cannot have the value
 */
export function mockOptionsOfFlags(flags: Readonly<Record<string, unknown>>): MockOptions {
  const texts = new Map<OptionName, string>();
  for (const name of OPTION_NAMES) {
    const value = flags[name];
    if (typeof value === 'string') texts.set(name, value);
    else if (value === true) texts.set(name, '1');
  }
  return mockOptionsWith(MOCK_DEFAULTS, texts);
}
