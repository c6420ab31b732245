/**
 * All doors, for tests that run over each: how a call looks, at which upstreams it goes, how its response
 * ends and what it costs. A door without an entry does not compile.
 */
import type { Test } from 'tap';
import { DOOR_NAMES, DOOR_PATHS, SERVICE_OF, type DoorName } from '#src/core/door-names.js';
import { picoUnitsOf } from '#src/core/money.js';
import { checkError, type ErrorName } from './error-answer.js';
import type { Gateway } from './gateway.js';
import type { Answer, RequestOptions } from './http.js';
import { startMock, type Mock, type Scope } from './mock.js';
import { eventData } from './sse.js';

/** The protocol in which an upstream is asked. */
export type Speech = Exclude<DoorName, never>;

/** One kind of upstream behind a door. */
export interface Way {
  readonly door: DoorName;
  /** `translated`: the upstream gets a chat completion. `counted`: none is asked. */
  readonly kind: 'passed' | 'translated' | 'counted';
  readonly speech: Speech;
  /** Settings of the upstream beside its address. */
  readonly upstream: object;
  /** The upstream's base address ends in /v1. */
  readonly hasVersion: boolean;
}

interface DoorCase {
  /** Members of a call beside `model`, `stream` and the bound. */
  readonly body: (prompt: string) => object;
  /** The member that bounds the output. */
  readonly bound: 'max_tokens' | 'max_output_tokens' | undefined;
  /** What the last event of a whole stream has; undefined if the door has no streams. */
  readonly lastEvent: RegExp | undefined;
  /** The text of a whole response. */
  readonly textOf: (answer: Answer) => string;
  /** Tokens of the prompt and the output that CALL_PROMPT makes the mock report. */
  readonly tokens: readonly [prompt: number, output: number];
  /** Its calls cost nothing, and only the minute and the calls in flight bound them. */
  readonly isFree?: true;
}

const PROMPT_TOKENS = 11;
const OUTPUT_TOKENS = 5;
const DONE = /^\[DONE\]$/;

type Members = Readonly<Record<string, unknown>>;
const jsonOf = (answer: Answer): Members => answer.json() as Members;
const textsIn = (value: unknown): string =>
  typeof value === 'string'
    ? value
    : Array.isArray(value)
      ? value.map((one) => (one as { text?: string }).text ?? '').join('')
      : '';
const firstOf = (value: unknown): Members => ((value as readonly Members[] | undefined) ?? [])[0] ?? {};

export const DOOR_CASES: Readonly<Record<DoorName, DoorCase>> = {
  chat: {
    body: (content) => ({ messages: [{ role: 'user', content }] }),
    bound: 'max_tokens',
    lastEvent: DONE,
    textOf: (answer) => textsIn((firstOf(jsonOf(answer).choices).message as Members).content),
    tokens: [PROMPT_TOKENS, OUTPUT_TOKENS],
  },
  messages: {
    body: (content) => ({ messages: [{ role: 'user', content }], max_tokens: 100 }),
    bound: 'max_tokens',
    lastEvent: /"type":"message_stop"/,
    textOf: (answer) => textsIn(jsonOf(answer).content),
    tokens: [PROMPT_TOKENS, OUTPUT_TOKENS],
  },
  responses: {
    body: (input) => ({ input }),
    bound: 'max_output_tokens',
    lastEvent: /"type":"response.completed"/,
    textOf: (answer) => textsIn(firstOf(jsonOf(answer).output).content),
    tokens: [PROMPT_TOKENS, OUTPUT_TOKENS],
  },
  embeddings: {
    body: (input) => ({ input }),
    bound: undefined,
    lastEvent: undefined,
    textOf: (answer) => JSON.stringify(firstOf(jsonOf(answer).data).embedding),
    tokens: [PROMPT_TOKENS, 0],
  },
  completions: {
    body: (prompt) => ({ prompt }),
    bound: 'max_tokens',
    lastEvent: DONE,
    textOf: (answer) => textsIn(firstOf(jsonOf(answer).choices).text),
    tokens: [PROMPT_TOKENS, OUTPUT_TOKENS],
  },
  moderations: {
    body: (input) => ({ input }),
    bound: undefined,
    lastEvent: undefined,
    textOf: (answer) => JSON.stringify(firstOf(jsonOf(answer).results).flagged),
    // Nothing is reported, and nothing is billed but the call.
    tokens: [0, 0],
  },
  rerank: {
    body: (query) => ({ query, documents: ['a', 'b'] }),
    bound: undefined,
    lastEvent: undefined,
    textOf: (answer) => JSON.stringify(firstOf(jsonOf(answer).results).index),
    tokens: [PROMPT_TOKENS, 0],
  },
  count_tokens: {
    body: (content) => ({ messages: [{ role: 'user', content }] }),
    bound: undefined,
    lastEvent: undefined,
    textOf: (answer) => JSON.stringify(jsonOf(answer).input_tokens),
    tokens: [0, 0],
    isFree: true,
  },
};

const CHAT = { speech: 'chat', upstream: {}, hasVersion: true } as const;
const ANTHROPIC = {
  speech: 'messages',
  upstream: { provider: 'anthropic', key: '${PROVIDER_KEY}' },
  hasVersion: false,
} as const;

export const WAYS: readonly Way[] = DOOR_NAMES.flatMap((door): Way[] => {
  switch (door) {
    case 'messages':
      return [
        { door, kind: 'translated', ...CHAT },
        { door, kind: 'passed', ...ANTHROPIC },
      ];
    case 'count_tokens':
      return [
        { door, kind: 'counted', ...CHAT },
        { door, kind: 'passed', ...ANTHROPIC, speech: door },
      ];
    case 'responses':
      return [
        { door, kind: 'translated', ...CHAT },
        { door, kind: 'passed', speech: door, upstream: { speaks: ['responses'] }, hasVersion: true },
      ];
    default:
      return [{ door, kind: 'passed', ...CHAT, speech: door }];
  }
});

export const wayName = ({ door, kind }: Way): string => `${door}-${kind}`;
export const pathOf = ({ door }: Way): string => DOOR_PATHS[door];
export const isFree = ({ door }: Way): boolean => DOOR_CASES[door].isFree === true;
/** It speaks Anthropic's interface. */
export const isAnthropic = ({ door }: Way): boolean => door === 'messages' || door === 'count_tokens';
export const hasStreams = ({ door }: Way): boolean => DOOR_CASES[door].lastEvent !== undefined;

/** A prompt that makes the mock report the tokens of the table. */
export const steeringOf = (more = ''): string =>
  `x-mock: prompt_tokens=${PROMPT_TOKENS}&completion_tokens=${OUTPUT_TOKENS}${more}\nHello`;

/** One token costs 10^6 times as many pico-units; a call that many and `call`. */
export const DOOR_PRICE = { input: '1.5', output: '2.25', call: '0.000004' };
const TOKENS = 1_000_000n;

/** Pico-units of a call, by its tokens; those of the table by default. */
export function costOf(way: Way, [prompt, output] = DOOR_CASES[way.door].tokens): bigint {
  const price = (text: string): bigint => picoUnitsOf(text)!;
  if (isFree(way)) return 0n;
  return (
    price(DOOR_PRICE.call) +
    (BigInt(prompt) * price(DOOR_PRICE.input) + BigInt(output) * price(DOOR_PRICE.output)) / TOKENS
  );
}

interface CallOptions {
  readonly stream?: boolean;
  readonly outputTokensMax?: number;
  readonly model?: string;
}

/** The body of a call on the way's own model. */
export function callOf(
  way: Way,
  prompt: string,
  { stream, outputTokensMax, model }: CallOptions = {},
): object {
  const { body, bound } = DOOR_CASES[way.door];
  return {
    model: model ?? wayName(way),
    ...body(prompt),
    ...(bound !== undefined && outputTokensMax !== undefined && { [bound]: outputTokensMax }),
    ...(stream === true && { stream }),
  };
}

export const callAt = (
  gateway: Gateway,
  key: string,
  way: Way,
  prompt: string,
  options: CallOptions & Pick<RequestOptions, 'headers' | 'onBegun'> = {},
): Promise<Answer> =>
  gateway.request(key, {
    path: pathOf(way),
    headers: options.headers,
    onBegun: options.onBegun,
    body: callOf(way, prompt, options),
  });

/** Of the gateway that has these upstreams. */
export const DOOR_ENV = { PROVIDER_KEY: 'sk-provider-secret-0123456789' };

/** A model for each way, with one upstream whose origin `originOf` gives. */
export const modelsOf = (originOf: (way: Way) => string, more: object = {}): object[] =>
  WAYS.map((way) => ({
    id: wayName(way),
    serves: [SERVICE_OF[way.door]],
    price: DOOR_PRICE,
    max_output_tokens: 1_000,
    upstreams: [{ url: originOf(way) + (way.hasVersion ? '/v1' : ''), ...way.upstream }],
    ...more,
  }));

export interface DoorMocks {
  readonly originOf: (way: Way) => string;
  readonly mocks: readonly Mock[];
}

export async function startDoorMocks(t: Scope, args: readonly string[] = []): Promise<DoorMocks> {
  const [openai, anthropic] = [
    await startMock(t, args),
    await startMock(t, ['--provider', 'anthropic', ...args]),
  ];
  return {
    originOf: ({ hasVersion }) => (hasVersion ? openai : anthropic).origin,
    mocks: [openai, anthropic],
  };
}

/** Anthropic's, which are another reading than src/doors/messages has. */
const MESSAGES_TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  408: 'invalid_request_error',
  409: 'invalid_request_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  500: 'api_error',
  502: 'api_error',
  529: 'overloaded_error',
};
const MESSAGES_STATUSES: Readonly<Record<string, number>> = { model_not_found: 404, overloaded: 529 };

/** Asserts an error in the door's own shape, and returns its message. */
export function checkDoorError(t: Test, way: Way, answer: Answer, code: ErrorName, name: string): string {
  if (answer.status < 400) {
    t.fail(`${name}: ${answer.status} ${answer.body.slice(0, 200)}`);
    return '';
  }
  if (!isAnthropic(way)) return checkError(t, answer, code, name);
  const {
    type,
    error,
    request_id: id,
  } = jsonOf(answer) as {
    type?: string;
    error?: { type: string; message: string; details: { error_code: string } };
    request_id?: string;
  };
  t.equal(type, 'error', `${name}: ${answer.body.slice(0, 200)}`);
  t.equal(error?.details.error_code, code, `${name}: code`);
  t.equal(error?.type, MESSAGES_TYPES[answer.status], `${name}: type`);
  t.equal(id, answer.headers['x-request-id'], `${name}: id`);
  t.equal(answer.headers['request-id'], id, `${name}: header`);
  const plain = { error: { message: error?.message ?? '', type: '', code } };
  const usual = MESSAGES_STATUSES[code];
  if (usual !== undefined) t.equal(answer.status, usual, `${name}: status`);
  else {
    // Status and Retry-After are those of all doors.
    const { headers } = answer;
    const like = checkedAsChat(answer.status, code);
    t.ok(like, `${name}: status ${answer.status}`);
    if (answer.status === 429) t.match(String(headers['retry-after']), /^[1-9]\d*$/, `${name}: Retry-After`);
  }
  t.ok(plain.error.message.length >= 15, `${name}: message`);
  return plain.error.message;
}

const STATUSES: Partial<Record<ErrorName, number>> = {
  insufficient_quota: 403,
  rate_limit_exceeded: 429,
  daily_limit_exceeded: 429,
  invalid_parameters: 400,
  provider_unavailable: 502,
  internal_error: 500,
  request_timeout: 408,
  request_too_large: 413,
  request_in_progress: 409,
};
const checkedAsChat = (status: number, code: ErrorName): boolean => STATUSES[code] === status;

/** The events of a stream, parsed; `[DONE]` is left out. */
export const eventsIn = (body: string): Members[] =>
  body
    .split('\n\n')
    .map((event) => /^data: (.*)$/m.exec(event)?.[1])
    .filter((data) => data !== undefined && data !== '[DONE]')
    .map((data) => JSON.parse(data!) as Members);

/** Whether a stream is whole. */
export function isWholeStream(way: Way, body: string): boolean {
  const last = body.trimEnd().split('\n\n').at(-1) ?? '';
  return DOOR_CASES[way.door].lastEvent!.test(eventData(last)[0] ?? /^data: (.*)$/m.exec(last)?.[1] ?? '');
}

/** Asserts that a stream ends with an error event in the door's own form. */
export function checkErrorEvent(t: Test, way: Way, body: string, code: ErrorName, name: string): void {
  const events = eventsIn(body);
  const last = events.at(-1) ?? {};
  const { error, type } = last as {
    error?: { code?: string; details?: { error_code: string } };
    type?: string;
  };
  t.notMatch(body, /\[DONE\]|message_stop|response\.(?:completed|incomplete)/, `${name}: no end`);
  t.equal(
    way.door === 'messages' ? error?.details?.error_code : error?.code,
    code,
    `${name}: ${body.slice(-300)}`,
  );
  if (way.door === 'messages' || way.door === 'responses') {
    t.equal(type, 'error', name);
    t.match(body, /\nevent: error\ndata: .*\n\n$/, `${name}: a named event`);
  }
  if (way.door !== 'responses') return;
  t.same(
    events.map(({ sequence_number: number }) => number),
    events.map((_, place) => place),
    `${name}: the numbers go on`,
  );
}
