/**
 * Messages of a chat completion as Anthropic's. Each result passes the mock's rules, which are a second
 * reading of the reference.
 */
import t from 'tap';
import { anthropicProblem } from '#src/mock/mock-anthropic-rules.js';
import { writeMessages } from '#src/providers/anthropic/request.js';
import { FieldError } from '#src/providers/provider.js';
import { anthropicCall } from './anthropic-call.js';

type Message = Record<string, unknown>;

const message = (role: string, content: unknown, more: object = {}): Message => ({ role, content, ...more });
const user = (content: unknown, more: object = {}): Message => message('user', content, more);
const assistant = (content: unknown, more: object = {}): Message => message('assistant', content, more);
const system = (content: unknown): Message => message('system', content);
const call = (id: string, args = '{}'): object => ({
  id,
  type: 'function',
  function: { name: 'f', arguments: args },
});
const result = (id: string, content: unknown = id, more: object = {}): Message => ({
  role: 'tool',
  tool_call_id: id,
  content,
  ...more,
});
const calls = (...ids: string[]): Message => assistant(null, { tool_calls: ids.map((id) => call(id)) });
const use = (id: string, input: object = {}): object => ({ type: 'tool_use', id, name: 'f', input });
const given = (id: string, content: unknown = id): object => ({
  type: 'tool_result',
  tool_use_id: id,
  content,
});
const text = (value: string, more: object = {}): object => ({ type: 'text', text: value, ...more });
const blankFile = (value: string): object => ({
  type: 'file',
  file: { file_data: `data:text/plain;base64,${Buffer.from(value).toString('base64')}`, filename: 'a.txt' },
});
const picture = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } };
const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } };
const reminder = (value: string): string => `<system-reminder>\n${value}\n</system-reminder>`;
const MARK = { cache_control: { type: 'ephemeral' } };
const HOUR = { cache_control: { type: 'ephemeral', ttl: '1h' } };
const THOUGHT = { type: 'thinking', thinking: 'Hm', signature: 'c2ln' };
const REDACTED = { type: 'redacted_thinking', data: 'ZGF0YQ==' };
const A = user('a');

const CASES: [name: string, messages: Message[], expected: unknown[], system?: unknown][] = [
  ['one', [A], [A]],
  ['system', [system('s'), A], [A], 's'],
  ['developer', [message('developer', 's'), A], [A], 's'],
  ['two of the system', [system('s'), message('developer', 't'), A], [A], [text('s'), text('t')]],
  ['a marked system', [message('system', 's', HOUR), A], [A], [text('s', HOUR)]],
  ['turns', [A, assistant('b'), user('c')], [A, assistant('b'), user('c')]],
  ['two of the user', [A, user('b')], [user([text('a'), text('b')])]],
  ['two of the assistant', [A, assistant('b'), assistant('c')], [A, assistant([text('b'), text('c')])]],
  ['the assistant first', [assistant('b'), A], [user('Please continue.'), assistant('b'), A]],
  ['parts', [user([text('a'), text('b')])], [user([text('a'), text('b')])]],
  ['marks of parts', [user([text('a', MARK), text('b')])], [user([text('a', MARK), text('b')])]],
  ['the mark of a message', [user('a', MARK)], [user([text('a', MARK)])]],
  ['empty parts', [user([text(''), text('b'), text(' \n')])], [user('b')]],
  ['blank text files', [user([text('a'), blankFile(''), blankFile(' \n')])], [A]],
  ['an empty assistant', [A, assistant(''), user('b')], [user([text('a'), text('b')])]],
  ['a refusal', [A, assistant([{ type: 'refusal', refusal: 'No' }]), A], [A, assistant('No'), A]],
  ['a refusal beside', [A, assistant(null, { refusal: 'No', tool_calls: [] }), A], [A, assistant('No'), A]],
  ['a prefill', [A, assistant('b \n')], [A, assistant('b')]],

  // Tools.
  ['a call', [A, calls('x'), result('x')], [A, assistant([use('x')]), user([given('x')])]],
  [
    'a text and a call',
    [A, assistant('b', { tool_calls: [call('x', '{"p":[1]}')] }), result('x')],
    [A, assistant([text('b'), use('x', { p: [1] })]), user([given('x')])],
  ],
  [
    'no arguments',
    [A, assistant('', { tool_calls: [call('x', '')] }), result('x')],
    [A, assistant([use('x')]), user([given('x')])],
  ],
  [
    'two in parallel',
    [A, calls('x', 'y'), result('x'), result('y')],
    [A, assistant([use('x'), use('y')]), user([given('x'), given('y')])],
  ],
  [
    'a user behind the results',
    [A, calls('x', 'y'), result('x'), user('b'), result('y')],
    [A, assistant([use('x'), use('y')]), user([given('x'), given('y'), text('b')])],
  ],
  [
    'an empty result',
    [A, calls('x'), result('x', '')],
    [A, assistant([use('x')]), user([{ type: 'tool_result', tool_use_id: 'x' }])],
  ],
  [
    'a result of parts',
    [A, calls('x'), result('x', [text('1'), text('2')])],
    [A, assistant([use('x')]), user([given('x', [text('1'), text('2')])])],
  ],
  [
    'a marked result',
    [A, calls('x'), result('x', '1', MARK)],
    [A, assistant([use('x')]), user([{ ...given('x', '1'), ...MARK }])],
  ],
  [
    'a marked call',
    [A, message('assistant', null, { tool_calls: [call('x')], ...MARK }), result('x')],
    [A, assistant([{ ...use('x'), ...MARK }]), user([given('x')])],
  ],
  [
    "another provider's id",
    [A, calls('a.b:1'), result('a.b:1', '1')],
    [A, assistant([use('a_b_1')]), user([given('a_b_1', '1')])],
  ],
  [
    'functions',
    [
      A,
      assistant(null, { tool_calls: undefined, function_call: { name: 'f', arguments: '{}' } }),
      { role: 'function', name: 'f', content: '1' },
    ],
    [A, assistant([use('function_call_1')]), user([given('function_call_1', '1')])],
  ],

  // Thinking.
  [
    'thinking',
    [A, assistant('b', { thinking_blocks: [THOUGHT, REDACTED] }), A],
    [A, assistant([THOUGHT, REDACTED, text('b')]), A],
  ],
  [
    '… before a call',
    [A, assistant(null, { thinking_blocks: [THOUGHT], tool_calls: [call('x')] }), result('x')],
    [A, assistant([THOUGHT, use('x')]), user([given('x')])],
  ],
  [
    '… joined from a stream',
    [A, assistant('b', { reasoning_content: 'Hm', thinking_blocks: [{ ...THOUGHT, thinking: '' }] }), A],
    [A, assistant([THOUGHT, text('b')]), A],
  ],
  [
    '… joined from a stream of two',
    [
      A,
      assistant('b', {
        reasoning_content: 'HmHm',
        thinking_blocks: Array(2).fill({ ...THOUGHT, thinking: '' }),
      }),
      A,
    ],
    [A, assistant('b'), A],
  ],
  [
    '… in silence',
    [A, assistant('b', { reasoning_content: '', thinking_blocks: [{ ...THOUGHT, thinking: '' }] }), A],
    [A, assistant([{ ...THOUGHT, thinking: '' }, text('b')]), A],
  ],
  [
    'reasoning without a signature',
    [A, assistant('b', { reasoning_content: 'Hm' }), A],
    [A, assistant('b'), A],
  ],

  // The system later, of a model that has no turns for it.
  ['system behind a user', [A, system('s')], [user([text('a'), text(reminder('s'))])]],
  [
    'system behind an assistant',
    [A, assistant('b'), system('s'), user('c')],
    [A, assistant('b'), user([text(reminder('s')), text('c')])],
  ],
  [
    'system between results',
    [A, calls('x', 'y'), result('x'), system('s'), result('y')],
    [A, assistant([use('x'), use('y')]), user([given('x'), given('y'), text(reminder('s'))])],
  ],
  ['system at the end', [A, assistant('b'), system('s')], [A, assistant('b'), user(reminder('s'))]],
  // A turn without blocks is rejected, so an empty text makes none: the prefill stays the last turn.
  ['an empty system at the end', [A, assistant('b'), system('')], [A, assistant('b')]],
  ['a blank system at the end', [A, assistant('b'), system([text(' \n')])], [A, assistant('b')]],
  [
    'an empty system between two of the assistant',
    [A, assistant('b'), system(''), assistant('c')],
    [A, assistant([text('b'), text('c')])],
  ],
  [
    'an empty system before a result',
    [A, calls('x'), system([]), result('x')],
    [A, assistant([use('x')]), user([given('x')])],
  ],
  // Only texts become reminders.
  [
    'an image in a later system',
    [A, system([text('s'), picture])],
    [user([text('a'), text(reminder('s')), image])],
  ],
];

/** Of models that have. */
const SYSTEM_TURNS: [name: string, messages: Message[], expected: unknown[], system?: unknown][] = [
  [
    'behind a user',
    [system('s'), A, system('t'), assistant('b'), A],
    [A, system('t'), assistant('b'), A],
    's',
  ],
  ['at the end', [A, system('s'), system('t')], [A, system([text('s'), text('t')])]],
  ['between two of the user', [A, system('s'), user('b')], [user([text('a'), text('b')]), system('s')]],
  [
    'behind an assistant, before a user',
    [A, assistant('b'), system('s'), user('c')],
    [A, assistant('b'), user('c'), system('s')],
  ],
  [
    'behind an assistant, before a result',
    [A, calls('x'), system('s'), result('x')],
    [A, assistant([use('x')]), user([given('x')]), system('s')],
  ],
  [
    'between two of the assistant',
    [A, assistant('b'), system('s'), assistant('c')],
    [A, assistant('b'), user(reminder('s')), assistant('c')],
  ],
  [
    'behind an assistant, at the end',
    [A, assistant('b'), system('s')],
    [A, assistant('b'), user(reminder('s'))],
  ],
  ['an empty one behind an assistant', [A, assistant('b'), system('')], [A, assistant('b')]],
  [
    'an image behind an assistant, at the end',
    [A, assistant('b'), system([text('s'), picture])],
    [A, assistant('b'), user([text(reminder('s')), image])],
  ],
];

const REPEATED_IDS: typeof CASES = [
  [
    'a server that counts its calls anew in each response',
    [A, calls('f:0', 'f:1'), result('f:0', 'r'), result('f:1', 's'), calls('f:0'), result('f:0', 't')],
    [
      A,
      assistant([use('f_0'), use('f_1')]),
      user([given('f_0', 'r'), given('f_1', 's')]),
      assistant([use('f_0_2')]),
      user([given('f_0_2', 't')]),
    ],
  ],
  [
    'a server that gives no ids',
    [A, calls('', ''), result('', 'r'), result('', 's')],
    [A, assistant([use('call'), use('call_2')]), user([given('call', 'r'), given('call_2', 's')])],
  ],
];

void t.test('messages', (t) => {
  for (const [cases, model] of [
    [CASES, 'claude-sonnet-4-5'],
    [REPEATED_IDS, 'claude-sonnet-4-5'],
    [SYSTEM_TURNS, 'claude-opus-4-8'],
  ] as const)
    for (const [name, messages, expected, first] of cases) {
      const written = writeMessages(anthropicCall({ messages }, { model }));
      t.strictSame(written.messages, expected, name);
      t.strictSame(written.system, first, `${name}: system`);
      const whole = JSON.parse(JSON.stringify({ model, ...written })) as Message;
      t.equal(anthropicProblem(whole, '2023-06-01'), undefined, `${name}: the rules`);
    }
  t.end();
});

void t.test('no turns of the system on other platforms', (t) => {
  const [, messages] = SYSTEM_TURNS[1]!;
  const vertex = writeMessages(anthropicCall({ messages }, { model: 'claude-opus-4-8' }, { name: 'vertex' }));
  t.strictSame(vertex.messages, [user([text('a'), text(reminder('s')), text(reminder('t'))])]);
  t.notOk('model' in vertex);
  t.end();
});

const PNG = 'iVBORw0KGgo=';
const FILES: [name: string, part: object, block: object][] = [
  [
    'a PNG',
    { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}`, detail: 'low' } },
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } },
  ],
  [
    'a type that is often misspelt',
    { type: 'image_url', image_url: { url: `data:image/jpg;base64,${PNG}` } },
    { type: 'image', source: { type: 'base64', media_type: 'image/jpeg', data: PNG } },
  ],
  [
    'a type with parameters, as a string',
    { type: 'image_url', image_url: `data:image/webp;charset=x;base64,${PNG}`, ...MARK },
    { type: 'image', source: { type: 'base64', media_type: 'image/webp', data: PNG }, ...MARK },
  ],
  [
    'a PDF whose URL has its name',
    { type: 'file', file: { file_data: `DATA:application/pdf;name=my%20file.pdf;base64,${PNG}` } },
    { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: PNG } },
  ],
  [
    'an https URL',
    { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
    { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
  ],
  [
    'a PDF',
    { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${PNG}` } },
    {
      type: 'document',
      source: { type: 'base64', media_type: 'application/pdf', data: PNG },
      title: 'a.pdf',
    },
  ],
  [
    'a PDF as an image',
    { type: 'image_url', image_url: { url: `data:application/pdf;base64,${PNG}` } },
    { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: PNG } },
  ],
  [
    'a PDF elsewhere',
    { type: 'file', file: { filename: 'a.pdf', file_data: 'https://example.com/a.pdf' } },
    { type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' }, title: 'a.pdf' },
  ],
  [
    'a text',
    {
      type: 'file',
      file: { file_data: `data:text/markdown;base64,${Buffer.from('# ä').toString('base64')}` },
    },
    { type: 'document', source: { type: 'text', media_type: 'text/plain', data: '# ä' } },
  ],
];

void t.test('images and files', (t) => {
  for (const [name, part, block] of FILES) {
    const { messages, ...rest } = writeMessages(anthropicCall({ messages: [user([part])] }));
    t.strictSame(messages, [user([block])], name);
    t.equal(
      anthropicProblem({ model: 'm', messages, ...rest }, '2023-06-01'),
      undefined,
      `${name}: the rules`,
    );
  }
  t.end();
});

void t.test('thoughts alone get no mark, which Anthropic refuses in them', (t) => {
  for (const thought of [THOUGHT, { type: 'redacted_thinking', data: 'x' }]) {
    const { messages, ...rest } = writeMessages(
      anthropicCall({ messages: [A, assistant(null, { thinking_blocks: [thought], ...MARK }), A] }),
    );
    t.strictSame((messages as Message[])[1], assistant([thought]));
    t.equal(anthropicProblem({ model: 'm', messages, ...rest }, '2023-06-01'), undefined);
  }
  const marked = writeMessages(
    anthropicCall({ messages: [A, assistant('b', { thinking_blocks: [THOUGHT], ...MARK }), A] }),
  );
  t.strictSame((marked.messages as Message[])[1], assistant([THOUGHT, text('b', MARK)]));
  t.end();
});

const REJECTED: [name: string, messages: Message[], field: string][] = [
  ['nothing but the system', [system('s')], 'messages'],
  ['an empty user', [user('a'), user('  ')], 'messages[1].content'],
  ['an empty assistant alone', [assistant('')], 'messages'],
  ['no id of a result', [A, calls('x'), { role: 'tool', content: '1' }], 'messages[2].tool_call_id'],
  [
    'arguments that are no JSON',
    [A, assistant(null, { tool_calls: [call('x', '{')] })],
    'messages[1].tool_calls[0].function.arguments',
  ],
  [
    'arguments that are no object',
    [A, assistant(null, { tool_calls: [call('x', '[]')] })],
    'messages[1].tool_calls[0].function.arguments',
  ],
  ['a call that is no object', [A, assistant(null, { tool_calls: [3] })], 'messages[1].tool_calls[0]'],
  [
    'a call without id',
    [A, assistant(null, { tool_calls: [{ function: { name: 'f' } }] })],
    'messages[1].tool_calls[0].id',
  ],
  [
    'a call without name',
    [A, assistant(null, { tool_calls: [{ id: 'x' }] })],
    'messages[1].tool_calls[0].function.name',
  ],
  [
    'a thought without signature',
    [A, assistant('b', { thinking_blocks: [{ type: 'thinking', thinking: 'x' }] })],
    'messages[1].thinking_blocks[0]',
  ],
  ['thoughts that are no list', [A, assistant('b', { thinking_blocks: 'x' })], 'messages[1].thinking_blocks'],
  [
    'a mark that is none',
    [user([text('a', { cache_control: true })])],
    'messages[0].content[0].cache_control',
  ],
  ['a text that is none', [user([{ type: 'text', text: 3 }])], 'messages[0].content[0].text'],
  ['an image of the model', [A, assistant('b', { images: [picture] }), A], 'messages[1].images'],
  ['a sound of the model', [A, assistant('b', { audio: { id: 'x' } }), A], 'messages[1].audio'],
];

void t.test('messages that are refused', (t) => {
  for (const [name, messages, field] of REJECTED)
    t.throws(
      () => writeMessages(anthropicCall({ messages })),
      { constructor: FieldError, field } as never,
      name,
    );
  const made = [A, assistant('b', { images: [picture], audio: { id: 'x' } }), A];
  t.same(
    writeMessages(anthropicCall({ messages: made }, {}, { dropUnsupported: true })).messages,
    [A, assistant('b'), A],
    'left out if the upstream leaves out what it lacks',
  );
  const none = [A, assistant('b', { images: [], audio: null }), A];
  t.same(writeMessages(anthropicCall({ messages: none })).messages, [A, assistant('b'), A], 'nothing');
  t.end();
});

void t.test('an effort is not followed if the call before was made without thinking', (t) => {
  const asked = [A, calls('x'), result('x')];
  const thought = [A, assistant(null, { thinking_blocks: [THOUGHT], tool_calls: [call('x')] }), result('x')];
  const thinking = (messages: Message[], model: string): unknown =>
    writeMessages(anthropicCall({ messages, reasoning_effort: 'low' }, { model })).thinking;
  t.equal(thinking(asked, 'claude-sonnet-4-5'), undefined);
  t.match(thinking(thought, 'claude-sonnet-4-5'), { type: 'enabled' });
  t.match(thinking(asked, 'claude-opus-4-6'), { type: 'adaptive' }, 'adaptive thinking allows for it');
  t.match(thinking([...thought, assistant('b'), A], 'claude-sonnet-4-5'), { type: 'enabled' });
  t.end();
});
