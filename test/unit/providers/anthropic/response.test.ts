/** Whole messages of Anthropic as chat completions. */
import t from 'tap';
import { readMessage } from '#src/providers/anthropic/response.js';
import { ProviderError } from '#src/providers/provider.js';
import { anthropicCall, NOW_SECONDS } from './anthropic-call.js';

type Fields = Record<string, unknown>;

const message = (more: object): Buffer =>
  Buffer.from(
    JSON.stringify({
      id: 'msg_1',
      type: 'message',
      role: 'assistant',
      model: 'claude-x',
      content: [],
      stop_reason: 'end_turn',
      stop_details: null,
      ...more,
    }),
  );
const read = (more: object, body: Fields = {}): Fields => {
  const { id, created, object, choices, model, usage } = JSON.parse(
    readMessage(message(more), anthropicCall(body)).text,
  ) as Fields;
  const [choice] = choices as { message: Fields; finish_reason: string }[];
  return { id, created, object, model, usage, ...choice!.message, finish: choice!.finish_reason };
};
const text = (value: string): object => ({ type: 'text', text: value, citations: null });
const use = (id: string, name: string, input: object): object => ({ type: 'tool_use', id, name, input });
const called = (id: string, name: string, args: string): object => ({
  id,
  type: 'function',
  function: { name, arguments: args },
});

void t.test('a text', (t) => {
  t.strictSame(read({ content: [text('Hä')], usage: { input_tokens: 3, output_tokens: 4 } }), {
    id: 'msg_1',
    created: NOW_SECONDS,
    object: 'chat.completion',
    model: 'claude-x',
    role: 'assistant',
    content: 'Hä',
    refusal: null,
    finish: 'stop',
    usage: {
      prompt_tokens: 3,
      completion_tokens: 4,
      total_tokens: 7,
      prompt_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
      completion_tokens_details: { reasoning_tokens: 0 },
    },
  });
  t.match(read({ id: undefined, model: undefined }), {
    id: 'chatcmpl-req_test-42',
    model: 'claude-sonnet-4-5',
  });
  t.equal(read({}).usage, undefined, 'no usage');
  t.end();
});

const CONTENTS: [name: string, more: object, expected: Fields, body?: Fields][] = [
  ['two texts', { content: [text('a'), text('b')] }, { content: 'ab' }],
  ['nothing', {}, { content: '', finish: 'stop' }],
  [
    'thinking',
    {
      content: [
        { type: 'thinking', thinking: 'x', signature: 's' },
        { type: 'redacted_thinking', data: 'd' },
        { type: 'thinking', thinking: 'y', signature: 't' },
        text('a'),
      ],
    },
    {
      content: 'a',
      reasoning_content: 'xy',
      thinking_blocks: [
        { type: 'thinking', thinking: 'x', signature: 's' },
        { type: 'redacted_thinking', data: 'd' },
        { type: 'thinking', thinking: 'y', signature: 't' },
      ],
    },
  ],
  [
    'thinking in silence',
    { content: [{ type: 'thinking', thinking: '', signature: 's' }] },
    { reasoning_content: '' },
  ],
  [
    'a call',
    { content: [use('t1', 'f', { a: 1 })], stop_reason: 'tool_use' },
    { content: null, tool_calls: [called('t1', 'f', '{"a":1}')], finish: 'tool_calls' },
  ],
  [
    'two calls behind a text',
    { content: [text('a'), use('t1', 'f', {}), use('t2', 'f', { b: [] })], stop_reason: 'tool_use' },
    { content: 'a', tool_calls: [called('t1', 'f', '{}'), called('t2', 'f', '{"b":[]}')] },
  ],
  [
    'a function',
    { content: [use('t1', 'f', { a: 1 })], stop_reason: 'tool_use' },
    { function_call: { name: 'f', arguments: '{"a":1}' }, tool_calls: undefined, finish: 'function_call' },
    { functions: [{ name: 'f' }] },
  ],
  [
    'an answer by a tool',
    { content: [use('t1', 'json_response', { a: 1 })], stop_reason: 'tool_use' },
    { content: '{"a":1}', tool_calls: undefined, finish: 'stop' },
    { response_format: { type: 'json_object' } },
  ],
  [
    'a call in place of the answer',
    { content: [use('t1', 'f', { a: 1 })], stop_reason: 'tool_use' },
    { content: null, tool_calls: [called('t1', 'f', '{"a":1}')], finish: 'tool_calls' },
    { response_format: { type: 'json_object' } },
  ],
  [
    "a caller's tool of that name",
    { content: [use('t1', 'json_response', {})], stop_reason: 'tool_use' },
    { tool_calls: [called('t1', 'json_response', '{}')], finish: 'tool_calls' },
  ],
  [
    "a caller's tool of that name beside an answer",
    {
      content: [use('t1', 'json_response', {}), use('t2', 'json_response_3', { a: 1 })],
      stop_reason: 'tool_use',
    },
    { content: '{"a":1}', tool_calls: [called('t1', 'json_response', '{}')], finish: 'tool_calls' },
    {
      response_format: { type: 'json_object' },
      tools: ['json_response', 'json_response_2'].map((name) => ({ type: 'function', function: { name } })),
    },
  ],
  [
    'blocks of tools that Anthropic runs',
    { content: [{ type: 'server_tool_use', id: 'x' }, { type: 'web_search_tool_result' }, text('a')] },
    { content: 'a' },
  ],
  [
    'a refusal',
    { stop_reason: 'refusal', stop_details: { type: 'refusal', category: 'bio', explanation: 'No.' } },
    { refusal: 'No.', finish: 'content_filter' },
  ],
];

void t.test('contents', (t) => {
  for (const [name, more, expected, body] of CONTENTS) {
    const given = read(more, body);
    for (const member in expected) t.strictSame(given[member], expected[member], `${name}: ${member}`);
  }
  t.end();
});

void t.test('why it ended', (t) => {
  for (const [stop, finish] of [
    ['end_turn', 'stop'],
    ['stop_sequence', 'stop'],
    ['pause_turn', 'stop'],
    ['max_tokens', 'length'],
    ['model_context_window_exceeded', 'length'],
    ['refusal', 'content_filter'],
    ['of the future', 'stop'],
    ['constructor', 'stop'],
    [null, 'stop'],
  ] as const)
    t.equal(read({ content: [text('a')], stop_reason: stop }).finish, finish, String(stop));
  const cut = { content: [use('t', 'f', {})], stop_reason: 'max_tokens' };
  t.equal(read(cut).finish, 'length', 'a call that was cut');
  t.end();
});

void t.test('usage: fresh, read and written are the prompt', (t) => {
  const usage = (given: object): unknown => read({ usage: given }).usage;
  t.match(
    usage({
      input_tokens: 1,
      cache_read_input_tokens: 20,
      cache_creation_input_tokens: 300,
      cache_creation: { ephemeral_5m_input_tokens: 100, ephemeral_1h_input_tokens: 200 },
      output_tokens: 50,
      output_tokens_details: { thinking_tokens: 30 },
    }),
    {
      prompt_tokens: 321,
      completion_tokens: 50,
      total_tokens: 371,
      prompt_tokens_details: { cached_tokens: 20, cache_write_tokens: 300, cache_write_1h_tokens: 200 },
      completion_tokens_details: { reasoning_tokens: 30 },
    },
  );
  const nulls = { input_tokens: 5, cache_read_input_tokens: null, cache_creation: null, output_tokens: 6 };
  t.match(usage({ ...nulls, output_tokens_details: null }), { prompt_tokens: 5, completion_tokens: 6 });
  t.match(
    usage({ input_tokens: 1, output_tokens: 5, output_tokens_details: { thinking_tokens: 9 } }),
    { completion_tokens_details: { reasoning_tokens: 5 } },
    'a part is not more than the whole',
  );
  t.end();
});

void t.test('what is no message', (t) => {
  const fails = (body: string): unknown => {
    try {
      return readMessage(Buffer.from(body), anthropicCall());
    } catch (error) {
      if (error instanceof ProviderError) return error.failure;
      throw error;
    }
  };
  for (const body of [
    '',
    '{',
    'null',
    '[]',
    '{}',
    '{"content":3}',
    '{"content":[3]}',
    '{"content":[{"type":"text"}]}',
  ])
    t.match(fails(body), { status: 502 }, body);
  t.match(fails('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'), {
    status: 503,
    message: 'Overloaded',
  });
  t.end();
});
