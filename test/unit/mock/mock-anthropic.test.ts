/** What the Anthropic mock sends, read by Anthropic's own SDK; and what it refuses. */
import Anthropic from '@anthropic-ai/sdk';
import t from 'tap';
import { anthropicProblem } from '#src/mock/mock-anthropic-rules.js';
import { ANTHROPIC_MOCK } from '#src/mock/mock-anthropic.js';
import { mockOptionsWith, MOCK_DEFAULTS } from '#src/mock/mock-options.js';
import { startMockUpstream } from '#src/mock/mock-upstream.js';

type Options = Parameters<typeof mockOptionsWith>[1];

const TOOLS: Anthropic.Tool[] = [
  { name: 'weather', input_schema: { type: 'object', properties: { text: { type: 'string' } } } },
];
const MESSAGES: Anthropic.MessageParam[] = [{ role: 'user', content: 'Hello there' }];

async function clientOf(
  scope: { teardown(act: () => void): unknown },
  texts: [string, string][],
): Promise<Anthropic> {
  const answers = mockOptionsWith(MOCK_DEFAULTS, new Map(texts) as unknown as Options);
  const mock = await startMockUpstream({
    host: '127.0.0.1',
    port: 0,
    record: true,
    provider: 'anthropic',
    defaults: answers,
  });
  scope.teardown(() => mock.close());
  return new Anthropic({ apiKey: 'k', baseURL: `http://127.0.0.1:${mock.port}`, maxRetries: 0 });
}

const LONG: [string, string][] = [
  ['bytes', '60'],
  ['chunks', '6'],
  ['toolCalls', '2'],
  ['thinkingBytes', '40'],
  ['cachedTokens', '3'],
  ['cacheWriteTokens', '5'],
  ['cacheWriteHourTokens', '7'],
];

void t.test('the SDK reads thinking, text, two calls and usage, whole and streamed alike', async (t) => {
  const client = await clientOf(t, LONG);
  const params = { model: 'claude-x', max_tokens: 100, messages: MESSAGES, tools: TOOLS };
  const whole = await client.messages.create(params);
  t.match(
    whole.content.map(({ type }) => type),
    ['thinking', 'text', 'tool_use', 'tool_use'],
  );
  t.equal(whole.stop_reason, 'tool_use');
  t.match(whole.usage, {
    cache_creation_input_tokens: 12,
    cache_read_input_tokens: 3,
    cache_creation: { ephemeral_5m_input_tokens: 5, ephemeral_1h_input_tokens: 7 },
  });
  const stream = client.messages.stream(params);
  const types = new Set<string>();
  stream.on('streamEvent', ({ type }) => types.add(type));
  const streamed = await stream.finalMessage();
  t.strictSame(
    streamed.content.map((block) => ({ ...block })),
    whole.content.map((block) => ({ ...block })),
  );
  t.equal(streamed.stop_reason, 'tool_use');
  t.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
  t.equal(streamed.usage.input_tokens, whole.usage.input_tokens);
  t.strictSame(types.size, 6, 'the SDK passes over ping');
});

void t.test('calls of a second round have other ids, as the rules want', async (t) => {
  const client = await clientOf(t, [['toolCalls', '2']]);
  const messages: Anthropic.MessageParam[] = [];
  const ids = new Set<string>();
  for (let round = 0; round < 3; round++) {
    messages.push({ role: 'user', content: 'go' });
    const { content } = await client.messages.create({
      model: 'claude-x',
      max_tokens: 9,
      messages,
      tools: TOOLS,
    });
    const uses = content.filter((block) => block.type === 'tool_use');
    for (const { id } of uses) ids.add(id);
    messages.push(
      { role: 'assistant', content: uses },
      {
        role: 'user',
        content: uses.map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: 'r' })),
      },
      { role: 'assistant', content: 'done' },
    );
  }
  t.same(
    [...ids],
    ['call_mock_0', 'call_mock_1', 'call_mock_2', 'call_mock_3', 'call_mock_4', 'call_mock_5'],
  );
});

void t.test('the SDK knows the errors', async (t) => {
  const client = await clientOf(t, []);
  const params = { model: 'claude-x', max_tokens: 9, messages: MESSAGES };
  const steered = (query: string, stream = false): Promise<unknown> =>
    stream
      ? client.messages.stream(params, { headers: { 'x-mock': query } }).finalMessage()
      : client.messages.create(params, { headers: { 'x-mock': query } });
  const failed = (query: string, stream = false): Promise<unknown> =>
    steered(query, stream).then(
      () => undefined,
      (error: unknown) => error,
    );
  t.match(await failed('status=529'), { status: 529, type: 'overloaded_error' });
  t.match(await failed('status=429&retry_after=7'), { status: 429, type: 'rate_limit_error' });
  t.match(await failed('status=402'), { status: 402, type: 'billing_error' });
  t.match(String(await failed('fault=error-event', true)), /told to fail/);
  await t.rejects(client.messages.create({ ...params, model: 'missing' }), /404.*missing/);
  await t.rejects(client.messages.create({ ...params, messages: [] }), /400.*at least one message/);
  const refused = (await steered('finish=content_filter')) as Anthropic.Message;
  t.match(refused, { stop_reason: 'refusal', stop_details: { type: 'refusal' } });
});

void t.test('headers', (t) => {
  const body = JSON.stringify({ model: 'm', max_tokens: 1, messages: [{ role: 'user', content: 'x' }] });
  const base = { 'x-api-key': 'k', 'anthropic-version': '2023-06-01', 'content-type': 'application/json' };
  const status = (headers: Record<string, string>, path = '/v1/messages'): number => {
    const read = ANTHROPIC_MOCK.read({ path, query: '', headers, body });
    return 'status' in read ? read.status : 200;
  };
  t.equal(status(base), 200);
  t.equal(status({ ...base, 'anthropic-version': '2026-10-21' }), 200);
  t.equal(status({ ...base, 'anthropic-version': '2024-01-01' }), 400);
  t.equal(status({ 'x-api-key': 'k', 'content-type': 'application/json' }), 400, 'no version');
  t.equal(status({ ...base, 'x-api-key': '' }), 401);
  t.equal(status({ ...base, authorization: 'Bearer x' }), 401, 'two keys');
  t.equal(status({ ...base, 'content-type': 'text/plain' }), 400);
  t.equal(status(base, '/messages'), 404);
  t.end();
});

void t.test('a count of tokens', (t) => {
  const headers = { 'x-api-key': 'k', 'anthropic-version': '2023-06-01', 'content-type': 'application/json' };
  const counted = (more: object): unknown =>
    ANTHROPIC_MOCK.read({
      path: '/v1/messages/count_tokens',
      query: '',
      headers,
      body: JSON.stringify({ model: 'm', messages: MESSAGES, ...more }),
    });
  t.match(counted({}), { isCount: true, promptTokens: 3 });
  t.match(counted({ thinking: { type: 'enabled', budget_tokens: 16_000 } }), { isCount: true });
  for (const [name, value] of Object.entries({
    max_tokens: 1,
    stream: false,
    temperature: 1,
    top_k: 1,
    stop_sequences: ['a'],
    metadata: {},
    service_tier: 'auto',
    container: 'c',
  }))
    t.match(counted({ [name]: value }), { status: 400, error: new RegExp(`"${name}: Extra inputs`) }, name);
  t.end();
});

const user = (content: unknown): object => ({ role: 'user', content });
const use = (...ids: string[]): object => ({
  role: 'assistant',
  content: ids.map((id) => ({ type: 'tool_use', id, name: 'f', input: {} })),
});
const result = (id: string): object => ({ type: 'tool_result', tool_use_id: id, content: '1' });
const text = (given: string): object => ({ type: 'text', text: given });

/** A schema with so many members that are optional, and so many of two types. */
const schemaOf = (optional: number, unions: number): object => {
  const names = Array.from({ length: optional + unions }, (_, index) => `m${index}`);
  const typeOf = (index: number): unknown => (index < optional ? 'integer' : ['integer', 'null']);
  return {
    type: 'object',
    properties: Object.fromEntries(names.map((name, index) => [name, { type: typeOf(index) }])),
    required: names.slice(optional),
  };
};
const strictTool = (name: string, schema: object): object => ({ name, input_schema: schema, strict: true });
const formatOf = (schema: object): { format: object } => ({ format: { type: 'json_schema', schema } });
const tool = { name: 'f', input_schema: { type: 'object' } };
const useOf = (members: object): object => ({
  role: 'assistant',
  content: [{ type: 'tool_use', id: 'x', name: 'f', input: {}, ...members }],
});

const REJECTED: [name: string, members: object, problem: RegExp][] = [
  [
    'optional members of a strict tool and of the response together',
    { tools: [strictTool('f', schemaOf(12, 0))], output_config: formatOf(schemaOf(13, 0)) },
    /too many optional parameters \(25\)/,
  ],
  [
    'unions of them together',
    { tools: [strictTool('f', schemaOf(0, 8))], output_config: formatOf(schemaOf(0, 9)) },
    /too many parameters with union types \(17 /,
  ],
  ['unions of the response alone', { output_config: formatOf(schemaOf(0, 17)) }, /union types \(17 /],
  [
    '21 strict tools',
    { tools: Array.from({ length: 21 }, (_, index) => strictTool(`f${index}`, schemaOf(0, 0))) },
    /21 strict tools/,
  ],
  ['no list of names', { tools: [strictTool('f', { type: 'object', required: null })] }, /required/],
  ['no members', { tools: [strictTool('f', { type: 'object', properties: null })] }, /properties/],
  [
    'a call without a name',
    { messages: [user('a'), useOf({ name: undefined })] },
    /tool_use.name: Field required/,
  ],
  [
    'a call with an empty name',
    { messages: [user('a'), useOf({ name: '' })] },
    /tool_use.name: Field required/,
  ],
  [
    'a call with an odd id',
    { messages: [user('a'), use('a:b'), user([result('a:b')])] },
    /should match pattern/,
  ],
  ['two calls of one id', { messages: [user('a'), use('x', 'x'), user([result('x')])] }, /must be unique/],
  [
    'an id of an earlier call',
    { messages: [user('a'), use('x'), user([result('x')]), use('x'), user([result('x')])] },
    /messages.3.content: `tool_use` ids must be unique/,
  ],
  [
    'redacted thinking without data',
    { messages: [user('a'), { role: 'assistant', content: [{ type: 'redacted_thinking' }] }] },
    /data: Field required/,
  ],
  [
    'a text as an image',
    { messages: [user([{ type: 'image', source: { type: 'text', media_type: 'text/plain', data: 'a' } }])] },
    /source: Input tag 'text'/,
  ],
  [
    'a member of another source',
    { messages: [user([{ type: 'image', source: { type: 'url', url: 'https://a', data: 'a' } }])] },
    /source.data: Extra inputs/,
  ],
  [
    'a member of another choice',
    { tools: [tool], tool_choice: { type: 'auto', name: 'f' } },
    /name: Extra inputs/,
  ],
  [
    'single calls of none',
    { tools: [tool], tool_choice: { type: 'none', disable_parallel_tool_use: true } },
    /Extra/,
  ],
  [
    'a budget of no thinking',
    { thinking: { type: 'disabled', budget_tokens: 1024 } },
    /budget_tokens: Extra inputs/,
  ],
  ['a type of every object', { thinking: { type: 'constructor' } }, /Input tag 'constructor'/],
  [
    'a format with a name',
    { output_config: { format: { ...formatOf({}).format, name: 'n' } } },
    /name: Extra/,
  ],
  ['an unknown member', { n: 1 }, /^n: Extra inputs/],
  ['a member of a block', { messages: [user([{ ...text('a'), detail: 1 }])] }, /detail: Extra inputs/],
  ['no bound', { max_tokens: undefined }, /max_tokens: Field required/],
  ['temperature above 1', { temperature: 1.5 }, /temperature: range/],
  ['an empty text', { messages: [user('')] }, /non-whitespace/],
  ['an empty system', { system: [text(' ')] }, /non-whitespace/],
  ['a call without result', { messages: [user('a'), use('x'), user('b')] }, /without `tool_result`/],
  ['one of two results', { messages: [user('a'), use('x', 'y'), user([result('x')])] }, /: y\.$/],
  ['a result without call', { messages: [user([result('x')])] }, /unexpected `tool_use_id`/],
  [
    'a result behind a text',
    { messages: [user('a'), use('x'), user([text('b'), result('x')])] },
    /come first/,
  ],
  ['an assistant first', { messages: [{ role: 'assistant', content: 'a' }] }, /first message/],
  ['a system first', { messages: [{ role: 'system', content: 'a' }] }, /first message/],
  [
    'a system behind an assistant',
    { messages: [user('a'), use(), { role: 'system', content: 'a' }] },
    /non-empty content|must follow a user/,
  ],
  [
    'a system before a user',
    { messages: [user('a'), { role: 'system', content: 'b' }, user('c')] },
    /followed by/,
  ],
  [
    'a trailing space',
    { messages: [user('a'), { role: 'assistant', content: 'b ' }] },
    /trailing whitespace/,
  ],
  ['a stop of white space', { stop_sequences: ['\n'] }, /non-whitespace/],
  ['a small budget', { thinking: { type: 'enabled', budget_tokens: 10 } }, /at least 1024/],
  ['a large budget', { thinking: { type: 'enabled', budget_tokens: 5000 } }, /greater than/],
  ['a choice without tools', { tool_choice: { type: 'auto' } }, /while providing tools/],
  ['http', { messages: [user([{ type: 'image', source: { type: 'url', url: 'http://a' } }])] }, /HTTPS/],
  [
    'five marks',
    { messages: [user(Array(5).fill({ ...text('a'), cache_control: { type: 'ephemeral' } }))] },
    /maximum of 4/,
  ],
];

void t.test('what breaks the rules', (t) => {
  const base = { model: 'm', max_tokens: 2000, messages: [user('a')] };
  t.equal(anthropicProblem(base, '2023-06-01'), undefined);
  const most = { tools: [strictTool('f', schemaOf(12, 8))], output_config: formatOf(schemaOf(12, 8)) };
  t.equal(anthropicProblem({ ...base, ...most }, '2023-06-01'), undefined);
  const loose = { tools: [{ name: 'f', input_schema: schemaOf(50, 50) }] };
  t.equal(anthropicProblem({ ...base, ...loose }, '2023-06-01'), undefined, 'a tool that is not strict');
  for (const [name, members, problem] of REJECTED)
    t.match(anthropicProblem({ ...base, ...members }, '2023-06-01'), problem, name);
  t.match(anthropicProblem({ ...base, temperature: 1 }, '2026-10-21'), /temperature: Extra/);
  t.end();
});

const CACHE: Required<Anthropic.CacheControlEphemeral> = { type: 'ephemeral', ttl: '1h' };
const TEXT: Required<Anthropic.TextBlockParam> = {
  type: 'text',
  text: 'a',
  citations: null,
  cache_control: null,
};
const IMAGE = { type: 'image', cache_control: null, transformations: null } as const;
const DOCUMENT = {
  type: 'document',
  cache_control: null,
  citations: null,
  context: null,
  title: null,
} as const;
const USE: Required<Anthropic.ToolUseBlockParam> = {
  type: 'tool_use',
  id: 'x',
  name: 'f',
  input: {},
  caller: { type: 'direct' },
  toolset_name: null,
  cache_control: CACHE,
};
const RESULT: Required<Anthropic.ToolResultBlockParam> = {
  type: 'tool_result',
  tool_use_id: 'x',
  content: [TEXT],
  is_error: false,
  toolset_name: null,
  cache_control: null,
};
const IMAGES: Required<Anthropic.ImageBlockParam>[] = [
  { ...IMAGE, source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
  { ...IMAGE, source: { type: 'url', url: 'https://a' } },
  { ...IMAGE, source: { type: 'file', file_id: 'file_1' } },
];
const DOCUMENTS: Required<Anthropic.DocumentBlockParam>[] = [
  { ...DOCUMENT, source: { type: 'base64', media_type: 'application/pdf', data: 'AAAA' } },
  { ...DOCUMENT, source: { type: 'text', media_type: 'text/plain', data: 'a' } },
  { ...DOCUMENT, source: { type: 'url', url: 'https://a' } },
  { ...DOCUMENT, source: { type: 'content', content: 'a' } },
  { ...DOCUMENT, source: { type: 'file', file_id: 'file_1' } },
];
const TOOL: Required<Anthropic.Tool> = {
  name: 'f',
  description: 'F',
  input_schema: { type: 'object' },
  type: 'custom',
  strict: false,
  allowed_callers: ['direct'],
  defer_loading: false,
  eager_input_streaming: null,
  input_examples: [{}],
  cache_control: null,
};
const FULL: Required<Omit<Anthropic.MessageCreateParams, 'tool_choice' | 'thinking'>> = {
  model: 'm',
  max_tokens: 2_000,
  messages: [
    { role: 'user', content: [TEXT, ...IMAGES, ...DOCUMENTS] },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'a', signature: 'c2ln' },
        { type: 'redacted_thinking', data: 'AAAA' },
        TEXT,
        USE,
      ],
    },
    { role: 'user', content: [RESULT] },
  ],
  system: [TEXT],
  stream: false,
  stop_sequences: ['a'],
  tools: [TOOL],
  output_config: { effort: null, format: null },
  metadata: { user_id: null },
  service_tier: 'auto',
  container: null,
  inference_geo: null,
  diagnostics: null,
  speed: null,
  user_profile_id: 'u',
  workspace_id: 'w',
  cache_control: null,
};

void t.test('each member that the types of the SDK have is accepted', (t) => {
  const choices: Required<Anthropic.ToolChoice>[] = [
    { type: 'auto', disable_parallel_tool_use: true },
    { type: 'any', disable_parallel_tool_use: true },
    { type: 'tool', name: 'f', disable_parallel_tool_use: true },
    { type: 'none' },
  ];
  const thinkings: Required<Anthropic.ThinkingConfigParam>[] = [
    { type: 'enabled', budget_tokens: 1_024, display: null },
    { type: 'adaptive', display: 'summarized' },
    { type: 'between_tools' },
    { type: 'disabled' },
  ];
  for (const toolChoice of choices)
    for (const thinking of thinkings)
      t.equal(anthropicProblem({ ...FULL, tool_choice: toolChoice, thinking }, '2026-10-21'), undefined);
  t.end();
});
