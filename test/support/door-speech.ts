/**
 * What an upstream says in each protocol, whole and as a stream in two halves, for the tests of faults.
 * Written from the references, apart from the mock.
 */
import type { Speech } from './doors.js';

/** Tokens that the upstream reports. */
export interface Said {
  readonly text: string;
  readonly prompt: number;
  readonly output: number;
}

export interface SpeechForm {
  /** `usage`: in place of the report; null for none. */
  readonly whole: (said: Said, usage?: unknown) => string;
  /** Undefined if the protocol has no streams. */
  readonly stream: ((said: Said, usage?: unknown) => readonly [first: string, rest: string]) | undefined;
  /** An event that brings text; undefined if the protocol has no streams. */
  readonly delta: ((text: string) => string) | undefined;
  /** The report of usage. */
  readonly usage: (said: Said) => object;
  /** An error as an event of a stream. */
  readonly errorEvents: readonly string[];
  /** Whole responses with status 200 that are errors in this protocol. */
  readonly errorsInWhole: readonly string[];
}

const data = (value: object): string => `data: ${JSON.stringify(value)}\n\n`;
const named = (value: { readonly type: string }): string => `event: ${value.type}\n${data(value)}`;
const ERROR = { message: 'the upstream says so', type: 'server_error', code: 'x' };
const HEAD = { id: 'x', created: 1, model: 'm' };
const DONE = 'data: [DONE]\n\n';
const openaiUsage = ({ prompt, output }: Said): object => ({
  prompt_tokens: prompt,
  completion_tokens: output,
  total_tokens: prompt + output,
});
const given = (usage: unknown, report: object): object => (usage === null ? {} : { usage: usage ?? report });
/** Halves of a text. */
const halves = (text: string): [string, string] => [text.slice(0, 2), text.slice(2)];

/** Chat completions, and completions by the former interface. */
function openai(choice: (text: string, isStream: boolean) => object): SpeechForm {
  const chunk = (text: string, finish: string | null = null): string =>
    data({ ...HEAD, choices: [{ index: 0, ...choice(text, true), finish_reason: finish }] });
  return {
    whole: (said, usage) =>
      JSON.stringify({
        ...HEAD,
        choices: [{ index: 0, ...choice(said.text, false), finish_reason: 'stop' }],
        ...given(usage, openaiUsage(said)),
      }),
    stream: (said, usage) => {
      const [one, other] = halves(said.text);
      const report = usage === null ? '' : data({ ...HEAD, choices: [], usage: usage ?? openaiUsage(said) });
      return [chunk(one), chunk(other) + chunk('', 'stop') + report + DONE];
    },
    delta: chunk,
    usage: openaiUsage,
    errorEvents: [data({ error: ERROR })],
    errorsInWhole: [JSON.stringify({ error: ERROR })],
  };
}

function whole(marker: string, item: (text: string) => object, usageOf: SpeechForm['usage']): SpeechForm {
  return {
    whole: (said, usage) =>
      JSON.stringify({ model: 'm', [marker]: [item(said.text)], ...given(usage, usageOf(said)) }),
    stream: undefined,
    delta: undefined,
    usage: usageOf,
    errorEvents: [],
    errorsInWhole: [JSON.stringify({ error: ERROR }), `{"${marker}":{}}`],
  };
}

const messagesUsage = ({ prompt, output }: Said): object => ({ input_tokens: prompt, output_tokens: output });
const MESSAGE = { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', stop_sequence: null };

const messagesDelta = (text: string): string =>
  named({ type: 'content_block_delta', ...{ index: 0, delta: { type: 'text_delta', text } } });

const MESSAGES: SpeechForm = {
  whole: (said, usage) =>
    JSON.stringify({
      ...MESSAGE,
      content: [{ type: 'text', text: said.text }],
      stop_reason: 'end_turn',
      ...given(usage, messagesUsage(said)),
    }),
  stream: (said, usage) => {
    const [one, other] = halves(said.text);
    const begun = {
      ...MESSAGE,
      content: [],
      stop_reason: null,
      ...given(usage, messagesUsage({ ...said, output: 1 })),
    };
    return [
      named({ type: 'message_start', ...{ message: begun } }) +
        named({ type: 'content_block_start', ...{ index: 0, content_block: { type: 'text', text: '' } } }) +
        messagesDelta(one),
      messagesDelta(other) +
        named({ type: 'content_block_stop', ...{ index: 0 } }) +
        named({
          type: 'message_delta',
          ...{ delta: { stop_reason: 'end_turn', stop_sequence: null } },
          ...given(usage, { output_tokens: said.output }),
        }) +
        named({ type: 'message_stop' }),
    ];
  },
  delta: messagesDelta,
  usage: messagesUsage,
  errorEvents: [named({ type: 'error', ...{ error: { type: 'overloaded_error', message: 'x' } } })],
  errorsInWhole: [JSON.stringify({ type: 'error', error: { type: 'overloaded_error', message: 'x' } })],
};

const responsesUsage = ({ prompt, output }: Said): object => ({
  input_tokens: prompt,
  output_tokens: output,
  total_tokens: prompt + output,
});
const responseOf = (status: string, output: readonly object[], more: object = {}): object => ({
  ...{ id: 'resp_1', object: 'response', created_at: 1, model: 'm', error: null },
  status,
  output,
  ...more,
});
const itemOf = (text: string): object => ({
  ...{ id: 'msg_1', type: 'message', role: 'assistant', status: 'completed' },
  content: [{ type: 'output_text', text, annotations: [] }],
});
const FAILED = {
  error: { code: 'server_error', message: 'x' },
  usage: { input_tokens: 9, output_tokens: 9 },
};

const RESPONSES: SpeechForm = {
  whole: (said, usage) =>
    JSON.stringify(responseOf('completed', [itemOf(said.text)], given(usage, responsesUsage(said)))),
  stream: (said, usage) => {
    const [one, other] = halves(said.text);
    let number = 0;
    const event = (type: string, more: object): string =>
      named({ type, ...{ sequence_number: number++ }, ...more });
    const delta = (text: string): string =>
      event('response.output_text.delta', {
        item_id: 'msg_1',
        output_index: 0,
        content_index: 0,
        delta: text,
      });
    return [
      event('response.created', { response: responseOf('in_progress', []) }) +
        event('response.output_item.added', {
          output_index: 0,
          item: { ...itemOf(''), status: 'in_progress' },
        }) +
        delta(one),
      delta(other) +
        event('response.output_item.done', { output_index: 0, item: itemOf(said.text) }) +
        event('response.completed', {
          response: responseOf('completed', [itemOf(said.text)], given(usage, responsesUsage(said))),
        }),
    ];
  },
  delta: (text) =>
    named({
      type: 'response.output_text.delta',
      ...{ sequence_number: 2, item_id: 'msg_1', output_index: 0, content_index: 0, delta: text },
    }),
  usage: responsesUsage,
  errorEvents: [
    named({ type: 'error', ...{ sequence_number: 3, code: 'x', message: 'x', param: null } }),
    named({ type: 'response.failed', ...{ sequence_number: 3, response: responseOf('failed', [], FAILED) } }),
    named({
      type: 'response.completed',
      ...{ sequence_number: 3, response: responseOf('failed', [], FAILED) },
    }),
  ],
  errorsInWhole: [
    JSON.stringify({ error: ERROR }),
    JSON.stringify(responseOf('failed', [], FAILED)),
    // What had come by then.
    JSON.stringify(responseOf('failed', [itemOf('x'.repeat(6_000))], FAILED)),
    JSON.stringify(responseOf('cancelled', [itemOf('hi')])),
    JSON.stringify(responseOf('in_progress', [])),
    JSON.stringify(responseOf('queued', [])),
  ],
};

export const SPEECH: Readonly<Record<Speech, SpeechForm>> = {
  chat: openai((text, isStream) =>
    isStream ? { delta: { content: text } } : { message: { role: 'assistant', content: text } },
  ),
  completions: openai((text) => ({ text })),
  messages: MESSAGES,
  responses: RESPONSES,
  embeddings: whole(
    'data',
    (text) => ({ index: 0, embedding: [text.length, 0.5] }),
    ({ prompt }) => ({
      prompt_tokens: prompt,
      total_tokens: prompt,
    }),
  ),
  count_tokens: {
    whole: ({ prompt }) => JSON.stringify({ input_tokens: prompt }),
    stream: undefined,
    delta: undefined,
    usage: () => ({}),
    errorEvents: [],
    errorsInWhole: MESSAGES.errorsInWhole,
  },
  moderations: whole('results', (text) => ({ flagged: text.length > 8 }), openaiUsage),
  rerank: whole(
    'results',
    (text) => ({ index: text.length, relevance_score: 1 }),
    ({ prompt }) => ({
      total_tokens: prompt,
    }),
  ),
};
