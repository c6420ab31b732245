import { pick, randomOf } from './random.js';
/**
 * Chat completions of every kind that clients send, for the translations to providers: tables of messages and
 * of parameters, and combinations of both. The same ones at each run. `request` is without a model.
 */

export interface RequestCase {
  readonly name: string;
  readonly request: Readonly<Record<string, unknown>>;
}

/** A PNG of one pixel. */
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const user = (content: unknown, more: object = {}): object => ({ role: 'user', content, ...more });
const system = (content: unknown): object => ({ role: 'system', content });
const assistant = (content: unknown, more: object = {}): object => ({ role: 'assistant', content, ...more });
const text = (value: string, more: object = {}): object => ({ type: 'text', text: value, ...more });
const image = (url: string, more: object = {}): object => ({
  type: 'image_url',
  image_url: { url, ...more },
});
const call = (id: string, name: string, args: string, more: object = {}): object => ({
  id,
  type: 'function',
  function: { name, arguments: args },
  ...more,
});
const result = (id: string, content: unknown): object => ({ role: 'tool', tool_call_id: id, content });

const CITY = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const weather = (more: object = {}): object => ({
  type: 'function',
  function: { name: 'get_weather', description: 'The weather of a city', parameters: CITY, ...more },
});
const TIME = {
  type: 'function',
  function: { name: 'get_time', parameters: { type: 'object', properties: {} } },
};
const TOOLS = [weather(), TIME];
const EPHEMERAL = { cache_control: { type: 'ephemeral' } };
const HOUR = { cache_control: { type: 'ephemeral', ttl: '1h' } };
const THOUGHT = { type: 'thinking', thinking: 'It is about the weather.', signature: 'c2lnbmF0dXJlLW9uZQ==' };
const REDACTED = { type: 'redacted_thinking', data: 'cmVkYWN0ZWQ=' };
const ASKED = user('What is the weather in Oslo?');
const CALLED = assistant(null, { tool_calls: [call('call_1', 'get_weather', '{"city":"Oslo"}')] });
const GIVEN = result('call_1', '{"degrees":3}');

/** With `tools` if a message has to do with them. */
const CONVERSATIONS: Readonly<Record<string, readonly object[]>> = {
  text: [user('Hello')],
  system: [system('Be brief.'), user('Hello')],
  developer: [{ role: 'developer', content: 'Be brief.' }, user('Hello')],
  'two systems': [system('Be brief.'), system('Be kind.'), user('Hello')],
  'system in parts': [system([text('Be brief.'), text('Be kind.')]), user('Hello')],
  'system later': [user('Hello'), assistant('Hi'), system('Now in French.'), user('Again')],
  'three turns': [user('Hello'), assistant('Hi'), user('How are you?')],
  'two of the user': [user('Hello'), user('Are you there?')],
  'two of the assistant': [user('Hello'), assistant('Hi.'), assistant('How are you?'), user('Well')],
  'text in parts': [user([text('Hello'), text('there')])],
  'assistant in parts': [user('Hello'), assistant([text('Hi'), text('there')]), user('Well')],
  'assistant refused': [user('Hello'), assistant([{ type: 'refusal', refusal: 'No.' }]), user('Why?')],
  unicode: [user('Ünïcödé 漢字 😀 \u0000 "quoted" \\ line\nline')],
  names: [user('Hello', { name: 'ann' }), assistant('Hi', { name: 'bot' }), user('Well', { name: 'bob' })],
  'image png': [user([text('What is this?'), image(`data:image/png;base64,${PIXEL}`)])],
  'image jpeg': [user([image(`data:image/jpeg;base64,${PIXEL}`), text('What is this?')])],
  'image webp': [user([image(`data:image/webp;base64,${PIXEL}`)])],
  'image gif': [user([image(`data:image/gif;base64,${PIXEL}`)])],
  'image detail': [user([image(`data:image/png;base64,${PIXEL}`, { detail: 'low' })])],
  'image of the web': [user([text('What is this?'), image('https://example.com/a.png')])],
  'image of a bucket': [user([image('gs://bucket/a.png')])],
  'image of no type': [user([image(`data:;base64,${PIXEL}`)])],
  'two images': [user([image(`data:image/png;base64,${PIXEL}`), image(`data:image/gif;base64,${PIXEL}`)])],
  audio: [user([{ type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }])],
  file: [
    user([
      text('Read it'),
      { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,JVBERi0xLjQ=` } },
    ]),
  ],
  'tool called': [ASKED, CALLED, GIVEN],
  'tool called, text before': [
    ASKED,
    assistant('Let me see.', { tool_calls: [call('call_1', 'get_weather', '{"city":"Oslo"}')] }),
    GIVEN,
  ],
  'tool result, then user': [ASKED, CALLED, GIVEN, user('And in words?')],
  'tool result in parts': [ASKED, CALLED, result('call_1', [text('3 degrees'), text('and rain')])],
  'tool result empty': [ASKED, CALLED, result('call_1', '')],
  'tool result is text': [ASKED, CALLED, result('call_1', '3 degrees')],
  'tool result is an array': [ASKED, CALLED, result('call_1', '[1,2]')],
  'tool result with an image': [
    ASKED,
    CALLED,
    result('call_1', [text('the chart'), image(`data:image/png;base64,${PIXEL}`)]),
  ],
  'parallel calls': [
    ASKED,
    assistant(null, {
      tool_calls: [call('call_1', 'get_weather', '{"city":"Oslo"}'), call('call_2', 'get_time', '{}')],
    }),
    GIVEN,
    result('call_2', '12:00'),
  ],
  'parallel results swapped': [
    ASKED,
    assistant(null, {
      tool_calls: [call('call_1', 'get_weather', '{"city":"Oslo"}'), call('call_2', 'get_time', '{}')],
    }),
    result('call_2', '12:00'),
    GIVEN,
  ],
  'same tool twice': [
    ASKED,
    assistant(null, {
      tool_calls: [
        call('call_1', 'get_weather', '{"city":"Oslo"}'),
        call('call_2', 'get_weather', '{"city":"Rome"}'),
      ],
    }),
    GIVEN,
    result('call_2', '{"degrees":21}'),
  ],
  'two rounds': [
    ASKED,
    CALLED,
    GIVEN,
    assistant(null, { tool_calls: [call('call_2', 'get_time', '{}')] }),
    result('call_2', '12:00'),
  ],
  'call without arguments': [
    ASKED,
    assistant(null, { tool_calls: [call('call_1', 'get_time', '')] }),
    result('call_1', '12:00'),
  ],
  'call with deep arguments': [
    ASKED,
    assistant(null, {
      tool_calls: [call('call_1', 'get_weather', '{"city":"Oslo","more":{"a":[1,2.5,null,true,"é"]}}')],
    }),
    GIVEN,
  ],
  'empty text and a call': [
    ASKED,
    assistant('', { tool_calls: [call('call_1', 'get_weather', '{"city":"Oslo"}')] }),
    GIVEN,
  ],
  'thinking, then a call': [
    ASKED,
    assistant(null, {
      reasoning_content: THOUGHT.thinking,
      thinking_blocks: [THOUGHT],
      tool_calls: [call('call_1', 'get_weather', '{"city":"Oslo"}')],
    }),
    GIVEN,
  ],
  'thinking, then text': [
    user('Hello'),
    assistant('Hi', { reasoning_content: THOUGHT.thinking, thinking_blocks: [THOUGHT] }),
    user('Well'),
  ],
  'thinking that is redacted': [
    ASKED,
    assistant('Let me see.', {
      thinking_blocks: [REDACTED, THOUGHT],
      tool_calls: [call('call_1', 'get_weather', '{"city":"Oslo"}')],
    }),
    GIVEN,
  ],
  'reasoning without a signature': [
    user('Hello'),
    assistant('Hi', { reasoning_content: 'A greeting.' }),
    user('Well'),
  ],
  'signature of Google on a call': [
    ASKED,
    assistant(null, {
      tool_calls: [
        call('call_1', 'get_weather', '{"city":"Oslo"}', {
          extra_content: { google: { thought_signature: 'c2lnbmF0dXJlLW9uZQ==' } },
        }),
      ],
    }),
    GIVEN,
  ],
  'cache mark on the system': [system([text('Long rules.', EPHEMERAL)]), user('Hello')],
  'cache mark for an hour': [system([text('Long rules.', HOUR)]), user('Hello')],
  'cache mark on a part': [user([text('A long text.', EPHEMERAL), text('Sum it up.')])],
  'cache mark on a message': [user('A long text.', EPHEMERAL), assistant('Yes?'), user('Sum it up.')],
  'cache mark on an image': [
    user([{ ...image(`data:image/png;base64,${PIXEL}`), ...EPHEMERAL }, text('What?')]),
  ],
  'cache mark on a result': [ASKED, CALLED, { ...GIVEN, ...EPHEMERAL }],
  'ends with the assistant': [user('Say A.'), assistant('The letter')],
  'begins with the assistant': [assistant('How can I help?'), user('Hello')],
};
const HAS_TOOLS = /tool|call|result|thinking that|signature of/;

const SCHEMA = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: ['integer', 'null'] } },
  required: ['name', 'age'],
  additionalProperties: false,
};
const jsonSchema = (schema: object, more: object = {}): object => ({
  type: 'json_schema',
  json_schema: { name: 'person', schema, ...more },
});
const withTools = (more: object): object => ({ tools: TOOLS, ...more });
const parameters = (schema: object): object => ({ tools: [weather({ parameters: schema })] });

const PARAMETERS: Readonly<Record<string, object>> = {
  max_tokens: { max_tokens: 100 },
  max_completion_tokens: { max_completion_tokens: 100 },
  'both bounds': { max_tokens: 50, max_completion_tokens: 100 },
  'max_tokens 1': { max_tokens: 1 },
  'temperature 0': { temperature: 0 },
  'temperature 0.7': { temperature: 0.7 },
  'temperature 1': { temperature: 1 },
  'temperature 1.5': { temperature: 1.5 },
  'temperature 2': { temperature: 2 },
  top_p: { top_p: 0.9 },
  'top_p 1': { top_p: 1 },
  'temperature and top_p': { temperature: 0.5, top_p: 0.9 },
  top_k: { top_k: 40 },
  'stop text': { stop: 'END' },
  'stop list': { stop: ['END', '\n\n'] },
  'stop of five': { stop: ['a', 'b', 'c', 'd', 'e'] },
  'stop of blanks': { stop: ['\n'] },
  'stop null': { stop: null },
  presence_penalty: { presence_penalty: 0.5 },
  frequency_penalty: { frequency_penalty: -0.5 },
  seed: { seed: 7 },
  'n 1': { n: 1 },
  'n 2': { n: 2 },
  logprobs: { logprobs: true },
  'logprobs false': { logprobs: false },
  top_logprobs: { logprobs: true, top_logprobs: 3 },
  logit_bias: { logit_bias: { 50: 10 } },
  user: { user: 'user-1' },
  metadata: { metadata: { trace: 'a' } },
  store: { store: true },
  service_tier: { service_tier: 'auto' },
  tools: withTools({}),
  'one tool': { tools: [weather()] },
  'tool without parameters': { tools: [{ type: 'function', function: { name: 'ping' } }] },
  'tool without description': { tools: [weather({ description: undefined })] },
  'tool strict': { tools: [weather({ strict: true, parameters: { ...CITY, additionalProperties: false } })] },
  'tool with a long name': { tools: [weather({ name: 'a'.repeat(64) })] },
  'tool with enum': parameters({
    type: 'object',
    properties: { unit: { type: 'string', enum: ['c', 'f'] } },
  }),
  'tool with nesting': parameters({
    type: 'object',
    properties: { at: { type: 'array', items: { type: 'object', properties: { x: { type: 'number' } } } } },
  }),
  'tool with anyOf': parameters({
    type: 'object',
    properties: { x: { anyOf: [{ type: 'string' }, { type: 'null' }] } },
  }),
  'tool with $defs': parameters({
    type: 'object',
    properties: { x: { $ref: '#/$defs/point' } },
    $defs: { point: { type: 'object', properties: { x: { type: 'number' } } } },
  }),
  'tool with $schema': parameters({ $schema: 'http://json-schema.org/draft-07/schema#', ...CITY }),
  'tool with bounds': parameters({
    type: 'object',
    properties: { x: { type: 'integer', minimum: 1, maximum: 9 }, y: { type: 'string', pattern: '^a' } },
  }),
  'tool with a cache mark': { tools: [weather(), { ...TIME, ...EPHEMERAL }] },
  'no tool': { tools: [] },
  'choice auto': withTools({ tool_choice: 'auto' }),
  'choice none': withTools({ tool_choice: 'none' }),
  'choice required': withTools({ tool_choice: 'required' }),
  'choice of one': withTools({ tool_choice: { type: 'function', function: { name: 'get_time' } } }),
  'no parallel calls': withTools({ parallel_tool_calls: false }),
  'parallel calls allowed': withTools({ parallel_tool_calls: true }),
  'required, no parallel calls': withTools({ tool_choice: 'required', parallel_tool_calls: false }),
  'format text': { response_format: { type: 'text' } },
  'format json_object': { response_format: { type: 'json_object' } },
  'format json_schema': { response_format: jsonSchema(SCHEMA, { strict: true }) },
  'format json_schema, not strict': { response_format: jsonSchema(CITY) },
  'format json_schema described': {
    response_format: jsonSchema(SCHEMA, { description: 'A person', strict: true }),
  },
  'format json_schema and tools': withTools({ response_format: jsonSchema(SCHEMA, { strict: true }) }),
  'format json_schema with nesting': {
    response_format: jsonSchema(
      {
        type: 'object',
        properties: { people: { type: 'array', items: SCHEMA } },
        required: ['people'],
        additionalProperties: false,
      },
      { strict: true },
    ),
  },
  ...Object.fromEntries(
    ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'].map((effort) => [
      `effort ${effort}`,
      { reasoning_effort: effort },
    ]),
  ),
  'effort and a bound': { reasoning_effort: 'high', max_tokens: 8000 },
  'effort and a small bound': { reasoning_effort: 'high', max_tokens: 500 },
  'effort and tools': withTools({ reasoning_effort: 'low' }),
  'effort and temperature': { reasoning_effort: 'low', temperature: 0.5 },
  'thinking with a budget': { thinking: { type: 'enabled', budget_tokens: 2048 }, max_tokens: 4096 },
  'thinking, bound unsaid': { thinking: { type: 'enabled', budget_tokens: 2048 } },
  'thinking switched off': { thinking: { type: 'disabled' } },
  verbosity: { verbosity: 'low' },
  prediction: { prediction: { type: 'content', content: 'abc' } },
  'modalities text': { modalities: ['text'] },
  'modalities audio': { modalities: ['text', 'audio'], audio: { voice: 'alloy', format: 'wav' } },
  web_search_options: { web_search_options: {} },
  functions: { functions: [{ name: 'get_time', parameters: { type: 'object', properties: {} } }] },
  'an unknown member': { a_member_of_tomorrow: 1 },
};

/** Of conversations and parameters that real clients combine. */
const COMBINED = 60;
const MIXED_PARAMETERS = [
  'max_tokens',
  'max_completion_tokens',
  'temperature 0',
  'temperature 0.7',
  'top_p',
  'stop text',
  'stop list',
  'user',
  'metadata',
  'tools',
  'choice auto',
  'choice required',
  'choice of one',
  'no parallel calls',
  'format json_schema',
  'effort low',
  'effort medium',
] as const;
const MIXED_CONVERSATIONS = [
  'text',
  'system',
  'three turns',
  'image png',
  'tool called',
  'parallel calls',
  'tool result, then user',
  'two rounds',
  'thinking, then a call',
  'cache mark on the system',
  'cache mark on a part',
  'cache mark on a result',
] as const;

function requestOf(conversation: string, parameterNames: readonly string[]): RequestCase['request'] {
  const given = Object.assign({}, ...parameterNames.map((name) => PARAMETERS[name])) as { tools?: unknown };
  const tools = HAS_TOOLS.test(conversation) ? { tools: TOOLS } : {};
  return JSON.parse(
    JSON.stringify({ messages: CONVERSATIONS[conversation], ...tools, ...given }),
  ) as RequestCase['request'];
}

export function requestCases(): RequestCase[] {
  const cases = new Map<string, RequestCase>();
  const add = (name: string, request: RequestCase['request']): void => {
    cases.set(name, { name, request });
  };
  for (const name of Object.keys(CONVERSATIONS)) add(name, requestOf(name, []));
  for (const name of Object.keys(PARAMETERS)) add(name, requestOf('text', [name]));
  const next = randomOf(1);
  const single = cases.size;
  while (cases.size < single + COMBINED) {
    const conversation = pick(next, MIXED_CONVERSATIONS);
    const names = [...new Set([0, 1, 2].map(() => pick(next, MIXED_PARAMETERS)))];
    add(`${conversation} + ${names.join(' + ')}`, requestOf(conversation, names));
  }
  return [...cases.values()];
}
