/** Requests of the Responses API as chat completions: what is said, what is dropped, what is refused. */
import t from 'tap';
import { encryptedContent } from '#src/doors/responses/encrypted-content.js';
import { toChat as toChatFor } from '#src/doors/responses/to-chat.js';
import { FieldError } from '#src/providers/provider.js';

const toChat = (body: Record<string, unknown>) => toChatFor(body, { extras: true });
const SCHEMA = { type: 'object', properties: {}, additionalProperties: false };
const ask = (more: object = {}): Record<string, unknown> => ({ model: 'm', input: 'Hello', ...more });
const messagesOf = (input: unknown): unknown => toChat({ model: 'm', input }).messages;

void t.test('a text, with all that a chat completion can say', (t) => {
  t.same(toChat(ask()), { model: 'm', messages: [{ role: 'user', content: 'Hello' }] });
  t.same(
    toChat(
      ask({
        instructions: 'Be brief.',
        stream: true,
        stream_options: { include_obfuscation: false },
        max_output_tokens: 50,
        temperature: 0.5,
        top_p: null,
        user: 'u',
        safety_identifier: 's',
        prompt_cache_key: 'k',
        service_tier: 'flex',
        reasoning: { effort: 'low', summary: 'auto' },
        text: { verbosity: 'low', format: { type: 'json_schema', name: 'n', strict: true, schema: SCHEMA } },
        top_logprobs: 2,
        include: ['reasoning.encrypted_content'],
        metadata: { a: 'b' },
        store: false,
        truncation: 'auto',
        background: false,
        max_tool_calls: 3,
      }),
    ),
    {
      model: 'm',
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Hello' },
      ],
      stream: true,
      stream_options: { include_usage: true },
      max_completion_tokens: 50,
      temperature: 0.5,
      user: 'u',
      safety_identifier: 's',
      prompt_cache_key: 'k',
      service_tier: 'flex',
      reasoning_effort: 'low',
      verbosity: 'low',
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema: SCHEMA, strict: true } },
      logprobs: true,
      top_logprobs: 2,
    },
  );
  t.match(toChat(ask({ text: { format: { type: 'json_object' } } })), {
    response_format: { type: 'json_object' },
  });
  t.notOk('response_format' in toChat(ask({ text: { format: { type: 'text' }, verbosity: 'medium' } })));
  t.match(toChat(ask({ include: ['message.output_text.logprobs'] })), { logprobs: true });
  t.end();
});

void t.test('tools and the choice among them', (t) => {
  const weather = { type: 'function', name: 'weather', description: 'd', parameters: SCHEMA, strict: true };
  const patch = {
    type: 'custom',
    name: 'patch',
    format: { type: 'grammar', syntax: 'lark', definition: 'g' },
  };
  const chat = toChat(
    ask({
      tools: [weather, patch],
      tool_choice: { type: 'function', name: 'weather' },
      parallel_tool_calls: false,
    }),
  );
  t.same(chat.tools, [
    { type: 'function', function: { name: 'weather', description: 'd', parameters: SCHEMA, strict: true } },
    {
      type: 'custom',
      custom: { name: 'patch', format: { type: 'grammar', grammar: { syntax: 'lark', definition: 'g' } } },
    },
  ]);
  t.same(chat.tool_choice, { type: 'function', function: { name: 'weather' } });
  t.equal(chat.parallel_tool_calls, false);
  const allowed = { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'weather' }] };
  t.same(toChat(ask({ tools: [weather], tool_choice: allowed })).tool_choice, {
    type: 'allowed_tools',
    allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'weather' } }] },
  });
  t.same(
    Object.keys(toChat(ask({ tools: [], tool_choice: 'auto', parallel_tool_calls: true }))),
    ['model', 'messages'],
    'without tools none of the three',
  );
  t.end();
});

void t.test('items', (t) => {
  const blocks = [{ type: 'thinking', thinking: 'Hm.', signature: 's' }];
  const extra = { google: { thought_signature: 'g' } };
  t.same(
    messagesOf([
      { role: 'developer', content: 'Be brief.' },
      {
        type: 'message',
        role: 'user',
        content: [
          { type: 'input_text', text: 'What is this?' },
          { type: 'input_image', image_url: 'https://x/y.png', detail: 'low' },
          { type: 'input_file', file_data: 'data:application/pdf;base64,AA==', filename: 'a.pdf' },
        ],
      },
      { type: 'reasoning', id: 'rs', summary: [], encrypted_content: encryptedContent({ blocks }) },
      { id: 'msg', type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Wait.' }] },
      { type: 'function_call', call_id: 'a', name: 'weather', arguments: '{}' },
      { type: 'reasoning', id: 'rs', summary: [], encrypted_content: encryptedContent({ extra }) },
      { type: 'function_call', call_id: 'b', name: 'time', arguments: '{}' },
      { type: 'custom_tool_call', call_id: 'c', name: 'patch', input: '*** Begin' },
      { type: 'function_call_output', call_id: 'a', output: 'Sun.' },
      { type: 'function_call_output', call_id: 'b', output: [{ type: 'input_text', text: 'Noon.' }] },
      { type: 'custom_tool_call_output', call_id: 'c', output: 'Done.' },
      { role: 'assistant', content: 'It is noon.' },
      { role: 'assistant', content: [{ type: 'refusal', refusal: 'No more.' }] },
    ]),
    [
      { role: 'developer', content: 'Be brief.' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'What is this?' },
          { type: 'image_url', image_url: { url: 'https://x/y.png', detail: 'low' } },
          { type: 'file', file: { file_data: 'data:application/pdf;base64,AA==', filename: 'a.pdf' } },
        ],
      },
      {
        role: 'assistant',
        content: 'Wait.',
        thinking_blocks: blocks,
        tool_calls: [
          { id: 'a', type: 'function', function: { name: 'weather', arguments: '{}' } },
          { id: 'b', type: 'function', function: { name: 'time', arguments: '{}' }, extra_content: extra },
          { id: 'c', type: 'custom', custom: { name: 'patch', input: '*** Begin' } },
        ],
      },
      { role: 'tool', tool_call_id: 'a', content: 'Sun.' },
      { role: 'tool', tool_call_id: 'b', content: 'Noon.' },
      { role: 'tool', tool_call_id: 'c', content: 'Done.' },
      { role: 'assistant', content: 'It is noon.' },
      { role: 'assistant', content: [{ type: 'refusal', refusal: 'No more.' }] },
    ],
  );
  t.same(
    messagesOf([
      { role: 'user', content: 'Hello' },
      {
        type: 'reasoning',
        id: 'rs',
        summary: [{ type: 'summary_text', text: 'Hm.' }],
        encrypted_content: 'gAAAA',
      },
    ]),
    [{ role: 'user', content: 'Hello' }],
    "another service's reasoning is left out",
  );
  t.end();
});

void t.test('what is empty', (t) => {
  const called = { type: 'function_call', call_id: 'a', name: 'n', arguments: '{}' };
  const input = [
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: [] },
    called,
    { type: 'function_call_output', call_id: 'a', output: [] },
    { role: 'assistant', content: [] },
  ];
  for (const extras of [true, false])
    t.same(toChatFor({ model: 'm', input }, { extras }).messages, [
      { role: 'user', content: 'hi' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'n', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'a', content: '' },
    ]);
  t.end();
});

void t.test('messages of the system for servers behind the protocol of OpenAI', (t) => {
  const developer = (...texts: string[]): object => ({
    type: 'message',
    role: 'developer',
    content: texts.map((text) => ({ type: 'input_text', text })),
  });
  const input = [
    developer('You may read.', 'You may write.'),
    { role: 'system', content: 'It is noon.' },
    { role: 'user', content: 'Hello' },
    developer('Now you may not write.'),
  ];
  const rest = [
    { role: 'user', content: 'Hello' },
    { role: 'system', content: 'Now you may not write.' },
  ];
  const start = 'You may read.\n\nYou may write.\n\nIt is noon.';
  for (const [instructions, content] of [
    ['Be brief.', `Be brief.\n\n${start}`],
    ['', start],
    [undefined, start],
  ])
    t.same(toChatFor({ model: 'm', instructions, input }).messages, [{ role: 'system', content }, ...rest]);
  t.match(
    toChat({ model: 'm', instructions: 'Be brief.', input }).messages,
    [{ role: 'system' }, { role: 'developer' }, { role: 'system' }, { role: 'user' }, { role: 'developer' }],
    "the gateway's own translators read all of them",
  );
  t.end();
});

void t.test('thoughts go back to a server that wants them', (t) => {
  const thought = (...texts: string[]): object => ({
    type: 'reasoning',
    summary: texts.map((text) => ({ type: 'summary_text', text })),
  });
  const call = { type: 'function_call', call_id: 'a', name: 'n', arguments: '{}' };
  const output = { type: 'function_call_output', call_id: 'a', output: 'x' };
  const blocks = [{ type: 'thinking', thinking: 'Signed.', signature: 's' }];
  const raw = { ...thought('short'), content: [{ type: 'reasoning_text', text: 'Raw.' }] };
  const input = [
    thought('Lost.'),
    { role: 'user', content: 'Hello' },
    { ...thought('Hm. ', 'So.'), encrypted_content: encryptedContent({ blocks }) },
    { role: 'assistant', content: 'Wait.' },
    call,
    thought(' Also.'),
    { ...call, call_id: 'b' },
    output,
    { ...output, call_id: 'b' },
    call,
    thought('Late.'),
    { ...call, call_id: 'b' },
    output,
    { ...output, call_id: 'b' },
    raw,
    { role: 'assistant', content: 'Done.' },
    { role: 'assistant', content: 'Bye.' },
    thought('Lost.'),
  ];
  const turnsWith = (thoughtsBack: boolean): unknown =>
    (toChatFor({ model: 'm', input }, { thoughtsBack }).messages as Record<string, unknown>[]).map(
      ({ role, content, reasoning_content: thoughts }) => [role, content, thoughts],
    );
  const turns = [
    ['user', 'Hello', undefined],
    ['assistant', 'Wait.', 'Hm. So. Also.'],
    ['tool', 'x', undefined],
    ['tool', 'x', undefined],
    ['assistant', null, 'Late.'],
    ['tool', 'x', undefined],
    ['tool', 'x', undefined],
    ['assistant', 'Done.', 'Raw.'],
    ['assistant', 'Bye.', ' '],
  ];
  t.same(turnsWith(true), turns);
  t.same(
    turnsWith(false),
    turns.map(([role, content]) => [role, content, undefined]),
    'to no other',
  );
  t.end();
});

void t.test('signed thoughts for servers behind the protocol of OpenAI', (t) => {
  const blocks = [{ type: 'thinking', thinking: 'Hm.', signature: 's' }];
  const extra = { google: { thought_signature: 'g' } };
  const thought = { type: 'reasoning', summary: [], encrypted_content: encryptedContent({ blocks }) };
  const signature = { ...thought, encrypted_content: encryptedContent({ extra }) };
  const user = { role: 'user', content: 'Go on.' };
  const input = [
    thought,
    user,
    thought,
    { role: 'assistant', content: 'Wait.' },
    thought,
    signature,
    { type: 'function_call', call_id: 'a', name: 'n', arguments: '{}' },
    { type: 'function_call_output', call_id: 'a', output: 'x' },
    thought,
  ];
  const call = { id: 'a', type: 'function', function: { name: 'n', arguments: '{}' }, extra_content: extra };
  t.same(toChatFor({ model: 'm', input }).messages, [
    user,
    { role: 'assistant', content: 'Wait.', tool_calls: [call] },
    { role: 'tool', tool_call_id: 'a', content: 'x' },
  ]);
  t.match(messagesOf(input), [
    { role: 'assistant', content: null, thinking_blocks: blocks },
    user,
    { role: 'assistant', content: 'Wait.', thinking_blocks: blocks },
    { role: 'assistant', content: null, thinking_blocks: blocks, tool_calls: [call] },
    { role: 'tool' },
    { role: 'assistant', content: null, thinking_blocks: blocks },
  ]);
  // A stream that was cut leaves a signature without its call.
  const cut = [signature, user, { type: 'function_call', call_id: 'b', name: 'n', arguments: '{}' }];
  const unsigned = { id: 'b', type: 'function', function: { name: 'n', arguments: '{}' } };
  for (const messages of [messagesOf(cut), toChatFor({ model: 'm', input: cut }).messages])
    t.strictSame(messages, [user, { role: 'assistant', content: null, tool_calls: [unsigned] }]);
  t.end();
});

void t.test('what a chat completion cannot say is refused by its name', (t) => {
  const cases: [string, object][] = [
    ['previous_response_id', { previous_response_id: 'resp_1' }],
    ['conversation', { conversation: 'conv_1' }],
    ['prompt', { prompt: { id: 'pmpt_1' } }],
    ['moderation', { moderation: { model: 'm' } }],
    ['context_management', { context_management: [{ type: 'compaction' }] }],
    ['a_member_of_tomorrow', { a_member_of_tomorrow: 1 }],
    ['store', { store: true }],
    ['input', { input: undefined }],
    ['input[0]', { input: [{ type: 'item_reference', id: 'msg_1' }] }],
    ['input[0].type', { input: [{ type: 'web_search_call', id: 'ws_1' }] }],
    ['input[0].role', { input: [{ role: 'tool', content: 'x' }] }],
    ['input[0].content', { input: [{ role: 'user', content: 1 }] }],
    ['input[0].content', { input: [{ role: 'user', content: [] }] }],
    ['input[0].content', { input: [{ role: 'developer', content: [] }] }],
    ['input[0].content[0].type', { input: [{ role: 'user', content: [{ type: 'input_smell' }] }] }],
    [
      'input[0].content[0].image_url',
      { input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'f' }] }] },
    ],
    [
      'input[0].content[0].file_url',
      { input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'f' }] }] },
    ],
    ['input[0].call_id', { input: [{ type: 'function_call', name: 'n', arguments: '' }] }],
    ['tools[0].name', { tools: [{ type: 'function' }] }],
    ['tool_choice', { tools: [{ type: 'function', name: 'n' }], tool_choice: { type: 'mcp' } }],
    ['text.format.type', { text: { format: { type: 'xml' } } }],
    ['reasoning.effort', { reasoning: { effort: 3 } }],
    ['reasoning.mode', { reasoning: { mode: 'pro' } }],
    ['reasoning.max_tokens', { reasoning: { effort: 'low', max_tokens: 100 } }],
    ['text.schema', { text: { schema: {} } }],
    ['include[0]', { include: ['everything'] }],
    ...[
      'web_search',
      'file_search',
      'code_interpreter',
      'mcp',
      'image_generation',
      'computer_use_preview',
    ].map((type): [string, object] => ['tools[0].type', { tools: [{ type }] }]),
  ];
  for (const [field, more] of cases)
    try {
      toChat(ask(more));
      t.fail(`${field} is not refused`);
    } catch (error) {
      t.ok(error instanceof FieldError, String(error));
      t.equal((error as FieldError).field, field);
    }
  t.end();
});

void t.test('items that are joined take time in proportion to their number', (t) => {
  const called = { type: 'function_call', name: 'f', arguments: '{}', call_id: 'c' };
  const said = { role: 'assistant', content: 'a' };
  const signed = encryptedContent({ blocks: [{ type: 'thinking', thinking: 'x', signature: 's' }] });
  const thought = { type: 'reasoning', encrypted_content: signed };
  for (const [name, first, more] of [
    ['texts after a call', called, said],
    ['thoughts', thought, thought],
  ] as const) {
    const msOf = (items: number): number => {
      const input = [first, ...Array.from({ length: items - 1 }, () => more)];
      const started = process.cpuUsage().user;
      const messages = messagesOf(input) as Record<string, unknown[]>[];
      t.equal(messages.length, 1);
      t.equal(
        (messages[0]!.thinking_blocks ?? messages[0]!.tool_calls!.concat(messages[0]!.content!)).length,
        items,
      );
      return (process.cpuUsage().user - started) / 1_000;
    };
    msOf(1_000);
    const fewMs = msOf(1_000);
    const manyMs = msOf(60_000);
    // In proportion 60 times, 3,600 times by the square.
    const text = `${name}: ${manyMs.toFixed(0)} ms, ${fewMs.toFixed(0)} ms for a sixtieth`;
    t.ok(manyMs < 200 * Math.max(fewMs, 5), text);
  }
  t.end();
});

void t.test('images and files that tools return', (t) => {
  const output = (id: string, output: unknown): object => ({
    type: 'function_call_output',
    call_id: id,
    output,
  });
  const call = (id: string): object => ({ type: 'function_call', call_id: id, name: 'n', arguments: '{}' });
  const image = (url: string): object => ({ type: 'input_image', image_url: url });
  const text = { type: 'input_text', text: 'seen' };
  const input = [
    call('a'),
    call('b'),
    output('a', [text, image('https://x/1')]),
    output('b', [image('https://x/2')]),
    { role: 'user', content: 'and?' },
    call('c'),
    output('c', [text, text, image('https://x/3')]),
  ];
  const part = (url: string): object => ({ type: 'image_url', image_url: { url } });
  const tool = (id: string, content: unknown): object => ({ role: 'tool', tool_call_id: id, content });
  const seen = { type: 'text', text: 'seen' };
  const { messages } = toChatFor({ model: 'm', input });
  t.match(messages, [
    { role: 'assistant', tool_calls: [{ id: 'a' }, { id: 'b' }] },
    tool('a', 'seen'),
    tool('b', ''),
    { role: 'user', content: [part('https://x/1'), part('https://x/2')] },
    { role: 'user', content: 'and?' },
    { role: 'assistant', tool_calls: [{ id: 'c' }] },
    tool('c', [seen, seen]),
    { role: 'user', content: [part('https://x/3')] },
  ]);
  t.equal((messages as unknown[]).length, 8);
  t.match(toChat({ model: 'm', input }).messages, [
    {},
    tool('a', [seen, part('https://x/1')]),
    tool('b', [part('https://x/2')]),
    { role: 'user', content: 'and?' },
    {},
    tool('c', [seen, seen, part('https://x/3')]),
  ]);
  t.end();
});
