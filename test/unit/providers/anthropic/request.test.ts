/**
 * Members of a chat completion in the request to Anthropic, or the refusal that names them. Each request that
 * is written passes the mock's rules, which are a second reading of the reference.
 */
import t from 'tap';
import { anthropicProblem } from '#src/mock/mock-anthropic-rules.js';
import { ANTHROPIC } from '#src/providers/anthropic/anthropic.js';
import { FieldError, type ProviderCall } from '#src/providers/provider.js';
import { requestOf } from '../../../support/provider-forms.js';
import { anthropicCall } from './anthropic-call.js';

type Body = Record<string, unknown>;
type Settings = Partial<ProviderCall['settings']>;

const write = (call: ProviderCall) => requestOf(ANTHROPIC, call);
const OLD = { model: 'claude-sonnet-4-20250514' };
const V4_1 = { model: 'claude-opus-4-1-20250805' };
const V4_6 = { model: 'claude-opus-4-6' };
const V4_8 = { model: 'claude-opus-4-8' };
const V5 = { model: 'claude-opus-5' };
const V5_5 = { model: 'claude-opus-5-5' };

const tool = (name: string, more: object = {}): object => ({ type: 'function', function: { name, ...more } });
const named = (name: string): object => ({ name, input_schema: { type: 'object', properties: {} } });
const TOOLS = [tool('f'), tool('g')];
const SCHEMA = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] };
const CLOSED = { ...SCHEMA, additionalProperties: false };
const format = (schema: object, more: object = {}): Body => ({
  response_format: { type: 'json_schema', json_schema: { name: 'n', schema, ...more } },
});
const ANSWER = (schema: object): object => ({
  name: 'json_response',
  description: 'Gives the answer.',
  input_schema: schema,
});
const SAMPLERS = { temperature: 0.5, top_p: 0.9 };
const ADAPTIVE = { type: 'adaptive', display: 'summarized' };

const WRITTEN: [
  name: string,
  body: Body,
  expected: Body,
  call?: Partial<ProviderCall>,
  settings?: Settings,
][] = [
  ['the bound of the settings', {}, { max_tokens: 8192 }],
  ['max_tokens', { max_tokens: 7 }, { max_tokens: 7 }],
  ['max_completion_tokens goes before', { max_tokens: 7, max_completion_tokens: 9 }, { max_tokens: 9 }],
  ['max_tokens 0 fills the cache', { max_tokens: 0 }, { max_tokens: 0 }],
  ['a stream', { stream: true, stream_options: { include_usage: true } }, { stream: true }, { stream: true }],
  ['temperature', { temperature: 0.25, top_k: 3 }, { temperature: 0.25, top_k: 3 }],
  ['top_p beside it', { temperature: 0.25, top_p: 0.5 }, { temperature: 0.25, top_p: 0.5 }, OLD],
  ['top_p beside the default', { temperature: 1, top_p: 0.5 }, { temperature: undefined, top_p: 0.5 }],
  ['defaults are left out', { temperature: 1, top_p: 1 }, { temperature: undefined, top_p: undefined }],
  ['… also of the newest models', { temperature: 1, top_p: 1 }, { temperature: undefined }, V5_5],
  ['one stop', { stop: 'END' }, { stop_sequences: ['END'] }],
  ['stops', { stop: ['a', '', 'b '] }, { stop_sequences: ['a', 'b '] }],
  ['an empty stop', { stop: '' }, { stop_sequences: undefined }],
  ['the user', { user: 'u-1' }, { metadata: { user_id: 'u-1' } }],
  ['the safety identifier', { user: 'u-1', safety_identifier: 's' }, { metadata: { user_id: 's' } }],
  ['an address of the user', { user: 'me@example.com' }, { metadata: undefined }],
  ['a telephone number', { user: '+49 (30) 123-456' }, { metadata: undefined }],
  ['a mark for all', { cache_control: { type: 'ephemeral' } }, { cache_control: { type: 'ephemeral' } }],
  [
    'what is harmless',
    { metadata: { a: 'b' }, store: true, service_tier: 'auto', prompt_cache_key: 'k', seed: null },
    { metadata: undefined, service_tier: undefined },
  ],
  [
    'what asks for nothing',
    {
      n: 1,
      frequency_penalty: 0,
      presence_penalty: 0,
      logit_bias: {},
      logprobs: false,
      top_logprobs: 0,
      modalities: ['text'],
      response_format: { type: 'text' },
      tools: [],
      audio: null,
    },
    { tools: undefined, output_config: undefined },
  ],

  // Thinking.
  ['an effort', { reasoning_effort: 'low' }, { thinking: { type: 'enabled', budget_tokens: 1024 } }],
  ['medium', { reasoning_effort: 'medium' }, { thinking: { type: 'enabled', budget_tokens: 2048 } }],
  ['minimal', { reasoning_effort: 'minimal' }, { thinking: { type: 'enabled', budget_tokens: 1024 } }],
  ['high', { reasoning_effort: 'high' }, { thinking: { type: 'enabled', budget_tokens: 4096 } }],
  [
    'xhigh, within the bound',
    { reasoning_effort: 'xhigh' },
    { thinking: { type: 'enabled', budget_tokens: 8191 } },
  ],
  ['no room to think', { reasoning_effort: 'high', max_tokens: 1024 }, { thinking: undefined }],
  [
    'just enough',
    { reasoning_effort: 'high', max_tokens: 1025 },
    { thinking: { type: 'enabled', budget_tokens: 1024 } },
  ],
  ['none', { reasoning_effort: 'none' }, { thinking: undefined, output_config: undefined }],
  ['none, which a budget is not', { reasoning_effort: 'none' }, { thinking: undefined }, V4_6],
  [
    'none of 5',
    { reasoning_effort: 'none' },
    { thinking: { type: 'disabled' }, output_config: undefined },
    V5,
  ],
  [
    'none of Sonnet 5.5',
    { reasoning_effort: 'none' },
    { thinking: { type: 'between_tools' } },
    { model: 'claude-sonnet-5-5' },
  ],
  ['4.6', { reasoning_effort: 'high' }, { thinking: ADAPTIVE, output_config: { effort: 'high' } }, V4_6],
  ['xhigh of 4.6', { reasoning_effort: 'xhigh' }, { output_config: { effort: 'high' } }, V4_6],
  ['max of 4.6', { reasoning_effort: 'max' }, { output_config: { effort: 'max' } }, V4_6],
  [
    'xhigh of 4.8',
    { reasoning_effort: 'xhigh' },
    { thinking: ADAPTIVE, output_config: { effort: 'xhigh' } },
    V4_8,
  ],
  ['minimal of 4.8', { reasoning_effort: 'minimal' }, { output_config: { effort: 'low' } }, V4_8],
  [
    'thinking passes',
    { thinking: { type: 'enabled', budget_tokens: 3000 } },
    { thinking: { type: 'enabled', budget_tokens: 3000 }, output_config: undefined },
  ],
  [
    'thinking beside an effort',
    { thinking: { type: 'adaptive' }, reasoning_effort: 'medium' },
    { thinking: { type: 'adaptive' }, output_config: { effort: 'medium' } },
    V4_8,
  ],
  ['top_p while it thinks', { reasoning_effort: 'low', top_p: 0.97 }, { top_p: 0.97 }],

  // Tools.
  [
    'tools',
    { tools: TOOLS },
    {
      tools: [{ name: 'f', input_schema: { type: 'object', properties: {} } }, named('g')],
      tool_choice: undefined,
    },
  ],
  [
    'all of a tool',
    {
      tools: [
        {
          ...tool('f', { description: 'd', parameters: SCHEMA, strict: true }),
          cache_control: { type: 'ephemeral', ttl: '1h' },
        },
      ],
    },
    {
      tools: [
        {
          name: 'f',
          description: 'd',
          input_schema: CLOSED,
          strict: true,
          cache_control: { type: 'ephemeral', ttl: '1h' },
        },
      ],
    },
  ],
  [
    'parameters without a type',
    { tools: [tool('f', { parameters: { properties: {} } })] },
    { tools: [named('f')] },
  ],
  ['auto', { tools: TOOLS, tool_choice: 'auto' }, { tool_choice: { type: 'auto' } }],
  ['none of the tools', { tools: TOOLS, tool_choice: 'none' }, { tool_choice: { type: 'none' } }],
  ['required', { tools: TOOLS, tool_choice: 'required' }, { tool_choice: { type: 'any' } }],
  ['one tool', { tools: TOOLS, tool_choice: tool('g') }, { tool_choice: { type: 'tool', name: 'g' } }],
  [
    'allowed tools',
    {
      tools: TOOLS,
      tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [tool('g')] } },
    },
    { tools: [named('g')], tool_choice: { type: 'any' } },
  ],
  [
    'not in parallel',
    { tools: TOOLS, parallel_tool_calls: false },
    { tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
  ],
  [
    'one call of any',
    { tools: TOOLS, parallel_tool_calls: false, tool_choice: 'required' },
    { tool_choice: { type: 'any', disable_parallel_tool_use: true } },
  ],
  [
    'none has no parallel',
    { tools: TOOLS, parallel_tool_calls: false, tool_choice: 'none' },
    { tool_choice: { type: 'none' } },
  ],
  ['in parallel', { tools: TOOLS, parallel_tool_calls: true }, { tool_choice: undefined }],
  ['a choice without tools', { tool_choice: 'auto' }, { tool_choice: undefined }],
  [
    'functions',
    { functions: [{ name: 'f' }], function_call: { name: 'f' } },
    { tools: [named('f')], tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true } },
  ],

  // The form of the answer.
  [
    'a schema',
    format(CLOSED, { strict: true }),
    { output_config: { format: { type: 'json_schema', schema: CLOSED } }, tools: undefined },
  ],
  [
    'a schema and an effort',
    { ...format(CLOSED), reasoning_effort: 'low' },
    { output_config: { effort: 'low', format: { type: 'json_schema', schema: CLOSED } } },
    V5_5,
  ],
  [
    'a schema of an older model',
    format(SCHEMA),
    { tools: [ANSWER(SCHEMA)], tool_choice: { type: 'tool', name: 'json_response' } },
    OLD,
  ],
  [
    'a schema of any members',
    format({ type: 'object', additionalProperties: true }, { description: 'A map.' }),
    {
      tools: [{ ...ANSWER({ type: 'object', additionalProperties: true }), description: 'A map.' }],
      output_config: undefined,
    },
  ],
  ...[
    ['a schema without a type', {}],
    ['a schema that refers', { $ref: '#/$defs/a', $defs: { a: SCHEMA } }],
  ].map(([name, schema]): (typeof WRITTEN)[number] => [
    `${name as string}, of an older model`,
    format(schema as object),
    { tools: [ANSWER({ type: 'object', ...(schema as object) })] },
    OLD,
  ]),
  [
    'any object',
    { response_format: { type: 'json_object' } },
    { tool_choice: { type: 'tool', name: 'json_response' } },
  ],
  [
    'an answer beside a tool of its name, which is left out',
    {
      ...format(SCHEMA),
      tools: [tool('json_response'), tool('f')],
      tool_choice: {
        type: 'allowed_tools',
        allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'f' } }] },
      },
    },
    { tools: [named('f'), { ...ANSWER(SCHEMA), name: 'json_response_2' }], tool_choice: { type: 'any' } },
    OLD,
  ],
  ['an answer beside tools', { ...format(SCHEMA), tools: TOOLS }, { tool_choice: { type: 'any' } }, OLD],
  [
    'an answer, no tools',
    { ...format(SCHEMA), tools: TOOLS, tool_choice: 'none' },
    { tool_choice: { type: 'tool', name: 'json_response' } },
    OLD,
  ],
  [
    'an answer or one call',
    { ...format(SCHEMA), tools: TOOLS, parallel_tool_calls: false },
    { tool_choice: { type: 'any', disable_parallel_tool_use: true } },
    OLD,
  ],
  [
    'an answer after a named tool',
    { ...format(SCHEMA), tools: TOOLS, tool_choice: tool('f') },
    { tool_choice: { type: 'tool', name: 'f' } },
    OLD,
  ],
];

void t.test('what is written', (t) => {
  for (const [name, body, expected, given, settings] of WRITTEN) {
    const written = JSON.parse(write(anthropicCall(body, given, settings)).body) as Body;
    for (const member in expected) t.strictSame(written[member], expected[member], `${name}: ${member}`);
    t.equal(anthropicProblem(written, '2023-06-01'), undefined, `${name}: the rules`);
  }
  t.end();
});

void t.test('strict tools', (t) => {
  const strict = (name: string, parameters: object): object => tool(name, { parameters, strict: true });
  const writtenAs = (tools: object[], more: Body = {}): unknown =>
    (JSON.parse(write(anthropicCall({ tools, ...more })).body) as Body).tools;
  const limited = { type: 'object', properties: { n: { type: 'integer', minimum: 1 } }, required: ['n'] };
  const described = {
    ...limited,
    properties: { n: { type: 'integer', description: '{minimum: 1}' } },
    additionalProperties: false,
  };
  const plain = { name: 'f', input_schema: limited };
  const closed = { name: 'f', input_schema: described, strict: true };
  const times = <Value>(count: number, value: Value): Value[] => Array<Value>(count).fill(value);
  t.same(writtenAs([strict('f', limited)]), [closed], 'limits go to the description');
  const odd = { type: 'object', properties: { a: true } };
  t.same(
    writtenAs([strict('g', odd), strict('f', limited), tool('f', { parameters: limited })]),
    [{ name: 'g', input_schema: odd }, closed, plain],
    'a schema that cannot be closed',
  );
  const map = { type: 'object', properties: { m: { type: 'object', additionalProperties: true } } };
  t.same(writtenAs([strict('f', map)]), [{ name: 'f', input_schema: map }], 'an object of any members');
  t.same(writtenAs(times(20, strict('f', limited))), times(20, closed), '20');
  t.same(writtenAs(times(21, strict('f', limited))), times(21, plain), '21');
  const allowed = { mode: 'auto', tools: [tool('f')] };
  t.same(
    writtenAs([...times(20, strict('g', limited)), strict('f', limited)], {
      tool_choice: { type: 'allowed_tools', allowed_tools: allowed },
    }),
    [closed],
    'of 21, the one that may be called',
  );
  const members = (count: number, value: object, isRequired: boolean): object => {
    const names = Array.from({ length: count }, (_, index) => `m${index}`);
    const properties = Object.fromEntries(names.map((name) => [name, value]));
    return { type: 'object', properties, ...(isRequired && { required: names }) };
  };
  const number = { type: 'integer' };
  const either = { anyOf: [number, { type: 'null' }] };
  const inner = { type: 'array', items: members(8, { type: ['integer', 'null'] }, true) };
  for (const [name, schema, isStrict] of [
    ['24 optional', members(24, number, false), true],
    ['25 optional', members(25, number, false), false],
    ['16 unions', members(16, either, true), true],
    ['17 unions', members(17, either, true), false],
    ['16 unions below', members(2, inner, true), true],
    ['24 unions below', members(3, inner, true), false],
  ] as const) {
    t.match(writtenAs([strict('f', schema)]), [{ name: 'f', strict: isStrict ? true : undefined }], name);
    const half = [strict('f', schema), strict('g', members(1, either, false))];
    t.match(writtenAs(half), times(2, { strict: undefined }), `${name}, and one more`);
  }
  t.end();
});

void t.test('the bounds of strict tools are those of the response too', (t) => {
  const members = (count: number, prefix: string): object => ({
    type: 'object',
    properties: Object.fromEntries(
      Array.from({ length: count }, (_, index) => [`${prefix}${index}`, { type: 'integer' }]),
    ),
    additionalProperties: false,
  });
  const writtenAs = (inTool: number, inResponse: number): [boolean, unknown, string | undefined] => {
    const response = { name: 'r', schema: members(inResponse, 'r') };
    const body = {
      tools: [tool('f', { parameters: members(inTool, 'f'), strict: true })],
      response_format: { type: 'json_schema', json_schema: response },
    };
    const written = JSON.parse(write(anthropicCall(body)).body) as Body;
    const { tools, output_config: output } = written as { tools: Body[]; output_config?: Body };
    const { messages, max_tokens: maxTokens } = written;
    const checked = { model: 'claude', messages, max_tokens: maxTokens, tools, output_config: output };
    const problem = anthropicProblem(JSON.parse(JSON.stringify(checked)) as Body, '2023-06-01');
    return [tools[0]!.strict === true, output === undefined ? tools.at(-1)!.name : 'format', problem];
  };
  t.same(writtenAs(12, 12), [true, 'format', undefined], 'together within the bounds');
  t.same(
    writtenAs(12, 13),
    [false, 'format', undefined],
    'together beyond: the response is kept to its schema',
  );
  t.same(writtenAs(1, 24), [false, 'format', undefined]);
  t.same(writtenAs(12, 25), [true, 'json_response', undefined], 'the response alone is beyond: a tool');
  t.end();
});

const image = (url: unknown): Body => ({
  messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }],
});
const part = (content: object): Body => ({ messages: [{ role: 'user', content: [content] }] });

/** `dropped`: members of the request of an upstream that drops such; undefined if it refuses them too. */
const REJECTED: [
  name: string,
  body: Body,
  field: string,
  dropped: Body | undefined,
  call?: Partial<ProviderCall>,
  settings?: Settings,
][] = [
  ['two choices', { n: 2 }, 'n', {}],
  ['logprobs', { logprobs: true }, 'logprobs', {}],
  ['top_logprobs', { top_logprobs: 2 }, 'top_logprobs', {}],
  ['logit_bias', { logit_bias: { 5: 1 } }, 'logit_bias', {}],
  ['seed', { seed: 3 }, 'seed', {}],
  ['frequency_penalty', { frequency_penalty: 0.5 }, 'frequency_penalty', {}],
  ['presence_penalty', { presence_penalty: -1 }, 'presence_penalty', {}],
  ['prediction', { prediction: { type: 'content', content: 'a' } }, 'prediction', {}],
  ['audio', { audio: { voice: 'a' } }, 'audio', {}],
  ['modalities', { modalities: ['text', 'audio'] }, 'modalities', {}],
  ['verbosity', { verbosity: 'low' }, 'verbosity', {}],
  ['a search of the web', { web_search_options: {} }, 'web_search_options', {}],
  ['an unknown member', { whatever: 1 }, 'whatever', { whatever: undefined }],
  ['temperature above 1', { temperature: 1.5 }, 'temperature', { temperature: 1 }],
  ['two samplers of 4.1', SAMPLERS, 'top_p', { temperature: 0.5, top_p: undefined }, V4_1],
  ['two samplers of 4.5', SAMPLERS, 'top_p', { temperature: 0.5, top_p: undefined }],
  ['two samplers of 4.6', SAMPLERS, 'top_p', { temperature: 0.5, top_p: undefined }, V4_6],
  [
    'two samplers on Vertex',
    SAMPLERS,
    'top_p',
    { temperature: 0.5, top_p: undefined },
    { model: 'claude-sonnet-4-5' },
    { name: 'vertex' },
  ],
  ['temperature of 4.8', { temperature: 0.5 }, 'temperature', { temperature: undefined }, V4_8],
  ['top_p of 4.8', { top_p: 0.5 }, 'top_p', { top_p: undefined }, V4_8],
  ['top_k of 5', { top_k: 5 }, 'top_k', { top_k: undefined }, V5],
  [
    'temperature of the new version',
    { temperature: 0 },
    'temperature',
    { temperature: undefined },
    {},
    { apiVersion: '2026-10-21' },
  ],
  [
    'temperature while it thinks',
    { temperature: 0, reasoning_effort: 'low' },
    'temperature',
    { temperature: undefined },
  ],
  ['top_k while it thinks', { top_k: 5, reasoning_effort: 'low' }, 'top_k', { top_k: undefined }],
  ['a stop of white space', { stop: ['a', '\n\n'] }, 'stop[1]', { stop_sequences: ['a'] }],
  ['… alone', { stop: ' ' }, 'stop', { stop_sequences: undefined }],
  ['an effort of every object', { reasoning_effort: 'constructor' }, 'reasoning_effort', undefined],
  ['an effort of no model', { reasoning_effort: 'huge' }, 'reasoning_effort', undefined],
  [
    'an effort before 3.7',
    { reasoning_effort: 'low' },
    'reasoning_effort',
    { thinking: undefined },
    { model: 'claude-3-5-haiku' },
  ],
  [
    'none of 5.5',
    { reasoning_effort: 'none' },
    'reasoning_effort',
    { output_config: { effort: 'low' } },
    V5_5,
  ],
  [
    'a budget above the bound',
    { thinking: { type: 'enabled', budget_tokens: 9000 } },
    'thinking.budget_tokens',
    undefined,
  ],
  ['thinking that is no object', { thinking: true }, 'thinking', undefined],
  [
    "Anthropic's tools",
    { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
    'tools[0].type',
    { tools: undefined },
  ],
  [
    "OpenAI's tools of a grammar",
    { tools: [tool('f'), { type: 'custom', custom: {} }] },
    'tools[1].type',
    { tools: [named('f')] },
  ],
  [
    'a strict tool of an older model',
    { tools: [tool('f', { strict: true })] },
    'tools[0].function.strict',
    { tools: [named('f')] },
    OLD,
  ],
  ['parameters', { tools: [tool('f', { parameters: 'x' })] }, 'tools[0].function.parameters', undefined],
  [
    'a tool without a name',
    { tools: [{ type: 'function', function: {} }] },
    'tools[0].function.name',
    undefined,
  ],
  ['no tool', { tools: ['f'] }, 'tools[0]', undefined],
  [
    'a forced call of 5.5',
    { tools: TOOLS, tool_choice: 'required' },
    'tool_choice',
    { tool_choice: { type: 'auto' } },
    V5_5,
  ],
  [
    'a forced call while it thinks',
    { tools: TOOLS, tool_choice: 'required', reasoning_effort: 'low' },
    'tool_choice',
    { tool_choice: undefined },
  ],
  ['a choice of no kind', { tools: TOOLS, tool_choice: 'some' }, 'tool_choice', undefined],
  [
    'a function_call of no kind',
    { functions: [{ name: 'f' }], function_call: 3 },
    'function_call',
    undefined,
  ],
  [
    'allowed tools that are none',
    {
      tools: TOOLS,
      tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [tool('h')] } },
    },
    'tool_choice.allowed_tools.tools',
    undefined,
  ],
  [
    'any object of 5.5',
    { response_format: { type: 'json_object' } },
    'response_format',
    { tools: undefined },
    V5_5,
  ],
  [
    'an answer while it thinks',
    { response_format: { type: 'json_object' }, reasoning_effort: 'low' },
    'response_format',
    { tool_choice: undefined },
  ],
  [
    'a schema that is none',
    { response_format: { type: 'json_schema', json_schema: {} } },
    'response_format.json_schema.schema',
    undefined,
  ],
  ['a format that is none', { response_format: { type: 'xml' } }, 'response_format.type', undefined],
  ['http', image('http://example.com/a.png'), 'messages[0].content[0].image_url.url', undefined],
  ['no base64', image('data:image/png,abc'), 'messages[0].content[0].image_url.url', undefined],
  ['a film', image('data:video/mp4;base64,abc'), 'messages[0].content[0].image_url.url', undefined],
  [
    'https elsewhere',
    image('https://example.com/a.png'),
    'messages[0].content[0].image_url.url',
    undefined,
    {},
    { name: 'vertex' },
  ],
  ['no url', image(3), 'messages[0].content[0].image_url.url', undefined],
  ['a voice', part({ type: 'input_audio', input_audio: {} }), 'messages[0].content[0].type', undefined],
  [
    "OpenAI's file",
    part({ type: 'file', file: { file_id: 'file-1' } }),
    'messages[0].content[0].file.file_id',
    undefined,
  ],
  ['no file', part({ type: 'file', file: {} }), 'messages[0].content[0].file.file_data', undefined],
  ['max_tokens of letters', { max_tokens: 'x' }, 'max_tokens', undefined],
];

void t.test('what is refused, and what an upstream drops that drops such', (t) => {
  for (const [name, body, field, dropped, given, settings] of REJECTED) {
    t.throws(
      () => write(anthropicCall(body, given, settings)),
      { constructor: FieldError, field } as never,
      name,
    );
    const lenient = anthropicCall(body, given, { ...settings, dropUnsupported: true });
    if (dropped === undefined) {
      t.throws(() => write(lenient), { constructor: FieldError } as never, `${name}: still`);
      continue;
    }
    const written = JSON.parse(write(lenient).body) as Body;
    for (const member in dropped) t.strictSame(written[member], dropped[member], `${name}: ${member}`);
    t.equal(anthropicProblem(written, '2023-06-01'), undefined, `${name}: the rules`);
  }
  t.end();
});

void t.test('path, headers, order of members', (t) => {
  const { path, headers, body } = write(anthropicCall({}, {}, { basePath: '/proxy', betas: ['a-1', 'b-2'] }));
  t.equal(path, '/proxy/v1/messages');
  t.strictSame(headers, [
    'anthropic-version',
    '2023-06-01',
    'anthropic-beta',
    'a-1,b-2',
    'x-api-key',
    'sk-ant-test',
  ]);
  t.match(body, /^\{"model":"claude-sonnet-4-5","max_tokens"/);
  t.strictSame(write(anthropicCall({}, { credential: undefined })).headers, [
    'anthropic-version',
    '2023-06-01',
  ]);
  const bearer = { kind: 'bearer', token: 't' } as const;
  t.ok(write(anthropicCall({}, { credential: bearer })).headers.includes('Bearer t'));
  t.end();
});

void t.test('a call that cannot be forced is refused by the name of the member that forces it', (t) => {
  const forced = {
    reasoning_effort: 'high',
    tools: [{ type: 'function', function: { name: 'f' } }],
    tool_choice: 'required',
  };
  const refused = (more: object): unknown => {
    try {
      return write(anthropicCall({ ...forced, ...more }));
    } catch (error) {
      return error instanceof FieldError ? error.field : error;
    }
  };
  t.equal(refused({}), 'tool_choice');
  t.equal(refused({ response_format: { type: 'text' } }), 'tool_choice', 'it forces nothing');
  t.equal(refused({ tool_choice: 'auto', response_format: { type: 'json_object' } }), 'response_format');
  t.end();
});
