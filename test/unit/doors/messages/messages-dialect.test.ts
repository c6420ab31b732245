/** The Messages API over a chat completion: requests, whole responses, streams, and passed events. */
import t from 'tap';
import { NO_MEANING, type DoorCall } from '#src/doors/door.js';
import { MESSAGES_DIALECT } from '#src/doors/messages/messages-dialect.js';
import { carriedIn } from '#src/doors/responses/encrypted-content.js';
import { RESPONSES_DIALECT } from '#src/doors/responses/responses-dialect.js';
import { MessageUsage } from '#src/providers/anthropic/response.js';
import { usageMember } from '#src/providers/provider-usage.js';
import { FieldError } from '#src/providers/provider.js';
import { addStreamTexts, keyedResponseTexts } from '#src/upstream/chat-text.js';
import { CALL_PIECES } from '../../../support/call-pieces.js';
import { newSeed, randomOf } from '../../../support/random.js';

type Members = Record<string, unknown>;

const { translator, openJudge } = MESSAGES_DIALECT;
const toChat = (body: Members, extras?: boolean, thoughtsBack?: boolean) =>
  translator!.toChat(body, { extras, thoughtsBack });
const fromChat = (answer: Members, call: DoorCall) => translator!.fromChat(answer, call);
const openStream = (call: DoorCall) => translator!.openStream(call);
const CALL: DoorCall = { requestId: 'req_a-1', model: 'm', stream: false, body: {}, nowMs: 0 };

const BODY = {
  model: 'm',
  max_tokens: 9,
  system: [{ type: 'text', text: 'be brief', cache_control: { type: 'ephemeral' } }],
  messages: [
    {
      role: 'user',
      content: [
        { type: 'text', text: 'look' },
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA' } },
      ],
    },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'hm', signature: 's' },
        { type: 'text', text: 'I call' },
        { type: 'tool_use', id: 't1', name: 'f', input: { a: 1 } },
      ],
    },
    {
      role: 'user',
      content: [
        {
          type: 'tool_result',
          tool_use_id: 't1',
          is_error: true,
          content: [
            { type: 'text', text: 'no' },
            { type: 'image', source: { type: 'url', url: 'https://x/y' } },
          ],
        },
        { type: 'text', text: 'go on' },
      ],
    },
  ],
  tools: [{ name: 'f', description: 'd', input_schema: { type: 'object' } }],
  tool_choice: { type: 'any', disable_parallel_tool_use: true },
  stop_sequences: ['x'],
  top_k: 4,
  metadata: { user_id: 'u' },
  thinking: { type: 'enabled', budget_tokens: 3000 },
  stream: true,
};

void t.test('a request becomes a chat completion', (t) => {
  const thinking = { thinking_blocks: [{ type: 'thinking', thinking: 'hm', signature: 's' }] };
  const chat = {
    model: 'm',
    max_tokens: 9,
    messages: [
      { role: 'system', content: [{ type: 'text', text: 'be brief', cache_control: { type: 'ephemeral' } }] },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'look' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
        ],
      },
      {
        role: 'assistant',
        content: 'I call',
        ...thinking,
        tool_calls: [{ id: 't1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
      },
      { role: 'tool', tool_call_id: 't1', content: 'Error: no' },
      {
        role: 'user',
        content: [
          { type: 'image_url', image_url: { url: 'https://x/y' } },
          { type: 'text', text: 'go on' },
        ],
      },
    ],
    tools: [{ type: 'function', function: { name: 'f', description: 'd', parameters: { type: 'object' } } }],
    tool_choice: 'required',
    parallel_tool_calls: false,
    stop: ['x'],
    top_k: 4,
    user: 'u',
    reasoning_effort: 'medium',
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
  t.same(toChat(BODY, true), chat);
  const plain = JSON.stringify(toChat(BODY));
  t.notMatch(plain, /cache_control|thinking_blocks|continuous/, 'without the extras');
  t.end();
});

void t.test('thoughts go back to a server that wants them', (t) => {
  const thought = (thinking: string, more = {}): Members => ({ type: 'thinking', thinking, ...more });
  const use = { type: 'tool_use', id: 't1', name: 'f', input: {} };
  const assistant = (content: unknown): Members => ({ role: 'assistant', content });
  const messages = [
    { role: 'user', content: 'Hello' },
    assistant([thought('Hm. ', { signature: '' }), thought('So.', { signature: 's' }), use]),
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'x' }] },
    assistant([{ type: 'redacted_thinking', data: 'r' }, use]),
    assistant([{ type: 'text', text: 'Done.' }]),
    assistant('Done.'),
  ];
  const writtenAs = (thoughtsBack: boolean): unknown =>
    (toChat({ model: 'm', max_tokens: 9, messages }, false, thoughtsBack).messages as Members[])
      .filter(({ role }) => role === 'assistant')
      .map(({ reasoning_content: thoughts }) => thoughts);
  t.same(writtenAs(true), ['Hm. So.', ' ', ' ', ' ']);
  t.same(writtenAs(false), [undefined, undefined, undefined, undefined], 'to no other');
  t.end();
});

void t.test('turns of the system', (t) => {
  const turn = (role: string, content: unknown): Members => ({ role, content });
  const later = [turn('user', 'a'), turn('system', 'It is late.')];
  const body = { ...BODY, messages: [turn('system', [{ type: 'text', text: 'It is noon.' }]), ...later] };
  const plain = toChat(body).messages;
  t.same(plain, [turn('system', 'be brief\n\nIt is noon.'), ...later], 'one at the start');
  const roles = (toChat(body, true).messages as Members[]).map(({ role }) => role);
  t.same(roles, ['system', 'system', 'user', 'system'], 'with the extras');
  t.end();
});

void t.test('a schema is strict where OpenAI takes it so, or a provider closes it', (t) => {
  const object = (properties: Members, more: Members = {}): Members => ({
    type: 'object',
    properties,
    required: Object.keys(properties),
    additionalProperties: false,
    ...more,
  });
  const text = { type: 'string' };
  const optional = object({ a: text, b: text }, { required: ['a'] });
  const open = object({ a: text }, { additionalProperties: undefined });
  const strictOf = (schema: Members, extras: boolean): unknown[] => {
    const tool = { name: 'f', input_schema: schema, strict: true };
    const format = { type: 'json_schema', schema };
    const chat = toChat({ ...BODY, tools: [tool], output_config: { format } }, extras);
    const { response_format: written, tools } = chat as {
      response_format: { json_schema: Members };
      tools: { function: Members }[];
    };
    t.same([written.json_schema.schema, tools[0]!.function.parameters], [schema, schema], 'as it is');
    return [written.json_schema.strict, tools[0]!.function.strict];
  };
  const closed: Members[] = [
    object({}),
    object({ a: text, b: object({ c: { type: ['object', 'null'], ...object({}), anyOf: [text] } }) }),
    object(
      { a: { type: 'array', items: object({ b: { $ref: '#/$defs/x' } }) } },
      { $defs: { x: object({}) } },
    ),
    object({
      a: { ...text, title: 't', description: 'd', format: 'date-time', pattern: '.' },
      b: { type: 'array', items: { type: 'number', minimum: 0, multipleOf: 2 }, maxItems: 3 },
      enum: { enum: ['x', null] },
      uniqueItems: { const: 1 },
    }),
  ];
  for (const schema of closed) t.same(strictOf(schema, false), [true, true], JSON.stringify(schema));
  const others: Members[] = [
    optional,
    open,
    { type: 'object' },
    object({ a: open }),
    object({ a: { type: 'array', items: optional } }),
    object({ a: { anyOf: [text, optional] } }),
    object({ a: { oneOf: [text] } }),
    object({ a: { $ref: '#/definitions/x' } }, { definitions: { x: open } }),
    object({ a: { type: ['object', 'null'] } }),
    object({ a: { ...text, format: 'uri' } }),
    object({ a: { type: 'array', items: text, uniqueItems: true } }),
    object({ a: object({}, { propertyNames: text }) }),
    object({ a: { ...text, default: 'b' } }),
    object({ a: { type: 'array', prefixItems: [text] } }),
    object({ a: { $ref: '#/$defs/x', description: 'd' } }, { $defs: { x: object({}) } }),
    object({ a: {} }),
    object({ a: true }),
    object({ a: { type: 'array', items: {} } }),
    object({ a: { ...text, maxLength: 3 } }),
    object({ a: text }, { anyOf: [object({ a: text })] }),
    { type: 'array', items: text },
    { anyOf: [object({ a: text })] },
  ];
  for (const schema of others) {
    t.same(strictOf(schema, false), [undefined, undefined], JSON.stringify(schema));
    t.same(strictOf(schema, true), [true, true], 'providers leave out what they cannot enforce');
  }
  t.end();
});

void t.test('what a chat completion cannot say is refused by its name', (t) => {
  const refused = (more: Members): string => {
    try {
      toChat({ ...BODY, ...more });
    } catch (error) {
      if (error instanceof FieldError) return error.field;
    }
    return '';
  };
  t.equal(refused({ tools: [{ type: 'web_search_20250305', name: 'w' }] }), 'tools[0].type');
  t.equal(refused({ container: 'c' }), 'container');
  t.equal(refused({ mcp_servers: [{}] }), 'mcp_servers');
  t.equal(
    refused({ messages: [{ role: 'user', content: [{ type: 'search_result' }] }] }),
    'messages[0].content[0].type',
  );
  t.equal(refused({ output_config: { format: { type: 'x' } } }), 'output_config.format');
  t.equal(refused({ output_config: { effort: 3 } }), 'output_config.effort');
  const budget = { type: 'tokens', total: 20_000 };
  t.equal(refused({ output_config: { task_budget: budget } }), 'output_config.task_budget');
  t.equal(refused({ output_config: { effort: null, format: null, task_budget: null } }), '');
  const result = (content: unknown): string =>
    refused({ messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content }] }] });
  t.equal(result([{ type: 'text', text: 'a' }, 'b']), 'messages[0].content[0].content[1]');
  t.equal(result([null]), 'messages[0].content[0].content[0]');
  for (const content of [{ type: 'text', text: 'a' }, 3, true])
    t.equal(result(content), 'messages[0].content[0].content');
  for (const content of [undefined, null, '', 'b', []]) t.equal(result(content), '');
  t.end();
});

const USAGE = {
  prompt_tokens: 100,
  completion_tokens: 20,
  prompt_tokens_details: { cached_tokens: 30, cache_write_tokens: 50, cache_write_1h_tokens: 10 },
  completion_tokens_details: { reasoning_tokens: 5 },
};

void t.test('how to think is told as the upstream can be told', (t) => {
  const of = (more: Members, extras: boolean): Members => {
    const { thinking, reasoning_effort: effort } = toChat(
      { model: 'm', max_tokens: 9_000, messages: [{ role: 'user', content: 'a' }], ...more },
      extras,
    );
    return { ...(thinking !== undefined && { thinking }), ...(effort !== undefined && { effort }) };
  };
  const disabled = { thinking: { type: 'disabled' } };
  const adaptive = { thinking: { type: 'adaptive' } };
  const effort = { output_config: { effort: 'high' } };
  t.same(of(disabled, true), disabled);
  t.same(of({ ...disabled, ...effort }, true), disabled, 'a model that shall not think has no effort');
  t.same(of(adaptive, true), adaptive);
  t.same(of({ ...adaptive, ...effort }, true), { effort: 'high' });
  t.same(of({ thinking: { type: 'enabled', budget_tokens: 3_000 } }, true), { effort: 'medium' });
  for (const thinking of [disabled, adaptive]) t.same(of(thinking, false), {}, 'servers of OpenAI lack it');
  t.same(of({ ...disabled, ...effort }, false), { effort: 'high' });
  t.end();
});

void t.test('a document has its title and context, and no citations', (t) => {
  const sent = (block: Members): unknown => {
    const content = [{ type: 'document', ...block }];
    const { messages } = toChat({ ...BODY, system: null, messages: [{ role: 'user', content }] });
    return (messages as Members[])[0]!.content;
  };
  const refused = (block: Members): string => {
    try {
      sent(block);
    } catch (error) {
      if (error instanceof FieldError) return error.field;
    }
    return '';
  };
  const text = { source: { type: 'text', media_type: 'text/plain', data: 'D' } };
  const pdf = { source: { type: 'base64', media_type: 'application/pdf', data: 'AA' } };
  t.equal(sent(text), 'D');
  t.equal(sent({ ...text, title: 'T', context: null, citations: { enabled: false } }), 'T\n\nD');
  t.equal(sent({ ...text, title: 'T', context: 'C' }), 'T\nC\n\nD');
  t.match(sent({ ...pdf, title: 'T' }), [{ type: 'file', file: { filename: 'T' } }]);
  const at = 'messages[0].content[0]';
  for (const source of [text, pdf])
    t.equal(refused({ ...source, citations: { enabled: true } }), `${at}.citations`);
  t.equal(refused({ ...pdf, context: 'C' }), `${at}.context`);
  t.end();
});

void t.test('a long user_id fits the bound of user', (t) => {
  const userOf = (id: string): unknown => toChat({ ...BODY, metadata: { user_id: id } }).user;
  const long = JSON.stringify({ device_id: 'a'.repeat(64), account_uuid: 'b', session_id: 'c' });
  t.equal(userOf('u'.repeat(64)), 'u'.repeat(64));
  t.match(userOf(long), /^[0-9a-f]{64}$/);
  t.equal(userOf(long), userOf(long), 'the same user');
  t.not(userOf(long), userOf(`${long} `));
  t.end();
});

void t.test('a whole response', (t) => {
  const message = {
    role: 'assistant',
    content: 'hi',
    reasoning_content: 'hm',
    tool_calls: [{ id: 't', function: { name: 'f', arguments: '{"id":12345678901234567890}' } }],
  };
  const text = fromChat({ choices: [{ message, finish_reason: 'tool_calls' }], usage: USAGE }, CALL);
  t.match(text, '"input":{"id":12345678901234567890}', 'integers keep their digits');
  t.match(JSON.parse(text), {
    id: 'msg_a-1',
    type: 'message',
    model: 'm',
    content: [
      { type: 'thinking', thinking: 'hm' },
      { type: 'text', text: 'hi' },
      { type: 'tool_use', id: 't', name: 'f' },
    ],
    stop_reason: 'tool_use',
    usage: {
      input_tokens: 20,
      cache_read_input_tokens: 30,
      cache_creation_input_tokens: 50,
      cache_creation: { ephemeral_5m_input_tokens: 40, ephemeral_1h_input_tokens: 10 },
      output_tokens: 20,
    },
  });
  t.match(
    keyedResponseTexts(text)
      .map(([, one]) => one)
      .sort(),
    ['f', 'hi', 'hm', /^\{"id":/],
  );
  t.throws(() => fromChat({ choices: [] }, CALL), /no message/);
  t.end();
});

void t.test('a call whose arguments max_tokens has cut', (t) => {
  const answerOf = (finish: string): Members => ({
    choices: [
      {
        message: { content: null, tool_calls: [{ id: 't', function: { name: 'f', arguments: '{"a":"b' } }] },
        finish_reason: finish,
      },
    ],
  });
  t.match(JSON.parse(fromChat(answerOf('length'), CALL)), {
    content: [{ type: 'tool_use', id: 't', name: 'f', input: {} }],
    stop_reason: 'max_tokens',
  });
  t.throws(() => fromChat(answerOf('tool_calls'), CALL), /no JSON object/);
  t.end();
});

void t.test('a call without arguments has an empty input, whole as in a stream', (t) => {
  for (const args of [{}, { arguments: undefined }, { arguments: null }, { arguments: '' }]) {
    const call = { id: 't', function: { name: 'f', ...args } };
    const choice = { finish_reason: 'tool_calls' };
    const whole = fromChat({ choices: [{ message: { tool_calls: [call] }, ...choice }] }, CALL);
    const content = [{ type: 'tool_use', id: 't', name: 'f', input: {} }];
    t.match(JSON.parse(whole), { content, stop_reason: 'tool_use' }, JSON.stringify(args));
    const stream = openStream(CALL);
    const pieces = [{ index: 0, ...call }];
    const events = stream.push({ choices: [{ index: 0, delta: { tool_calls: pieces }, ...choice }] });
    t.same(joined(eventsOf(events + stream.end())), content, JSON.stringify(args));
  }
  for (const args of ['[]', '1', 'null', '{"a":1', 7, [1], false]) {
    const call = { id: 't', function: { name: 'f', arguments: args } };
    const answer = { choices: [{ message: { tool_calls: [call] }, finish_reason: 'tool_calls' }] };
    t.throws(() => fromChat(answer, CALL), /no JSON object/, JSON.stringify(args));
  }
  t.end();
});

void t.test('calls that a server gives one index stay several', (t) => {
  const chunk = (call: object): Members => ({ choices: [{ index: 0, delta: { tool_calls: [call] } }] });
  const called = (id: string, name: string, json: string): object => ({
    index: 0,
    id,
    function: { name, arguments: json },
  });
  const stream = openStream(CALL);
  const text =
    stream.push(chunk(called('t1', 'f', '{"a":'))) +
    stream.push(chunk({ index: 0, function: { arguments: '1' } })) +
    // Some servers repeat id and name.
    stream.push(chunk(called('t1', 'f', '}'))) +
    stream.push(chunk(called('t2', 'g', '{"b":2}'))) +
    stream.end();
  t.match(joined(eventsOf(text)), [
    { type: 'tool_use', id: 't1', name: 'f', input: { a: 1 } },
    { type: 'tool_use', id: 't2', name: 'g', input: { b: 2 } },
  ]);
  t.end();
});

void t.test('tool calls in the pieces of every server are those calls', (t) => {
  for (const { server, pieces, calls } of CALL_PIECES) {
    const stream = openStream(CALL);
    const text =
      pieces.map((one) => stream.push({ choices: [{ index: 0, delta: { tool_calls: one } }] })).join('') +
      stream.end();
    const blocks = calls.map(({ id, name, json }) => ({
      type: 'tool_use',
      id: id ?? /^toolu_/,
      name,
      input: JSON.parse(json) as object,
    }));
    t.match(joined(eventsOf(text)), blocks, server);
    t.equal(joined(eventsOf(text)).length, calls.length, server);
  }
  t.end();
});

interface Event extends Members {
  readonly type: string;
}

function eventsOf(text: string): Event[] {
  return text
    .split('\n\n')
    .filter(Boolean)
    .map((one) => {
      const [name, data] = one.split('\n');
      const event = JSON.parse(data!.slice(6)) as Event;
      if (name !== `event: ${event.type}`) throw new Error(`named ${name}`);
      return event;
    });
}

/** What a client makes of the events; throws if they are not in order. */
function joined(events: readonly Event[]): Members[] {
  const blocks: Members[] = [];
  let json = '';
  let isOpen = false;
  for (const event of events) {
    const block = blocks.at(-1)!;
    const delta = event.delta as Record<string, string>;
    if (event.type === 'content_block_start') {
      if (isOpen || event.index !== blocks.length) throw new Error('a block within a block');
      isOpen = true;
      json = '';
      blocks.push({ ...(event.content_block as Members) });
    } else if (event.type === 'content_block_delta') {
      if (!isOpen || event.index !== blocks.length - 1) throw new Error('a delta of no block');
      if (delta.type === 'text_delta') block.text = String(block.text) + delta.text!;
      if (delta.type === 'thinking_delta') block.thinking = String(block.thinking) + delta.thinking!;
      if (delta.type === 'signature_delta') block.signature = delta.signature;
      if (delta.type === 'input_json_delta') json += delta.partial_json!;
    } else if (event.type === 'content_block_stop') {
      if (!isOpen) throw new Error('a second end');
      isOpen = false;
      if (block.type === 'tool_use') block.input = JSON.parse(json || '{}') as unknown;
    }
  }
  if (isOpen) throw new Error('a block without an end');
  return blocks;
}

void t.test('each thinking block that the upstream wants back has one signature, or clients drop it', (t) => {
  const signaturesOf = (thoughtsBack: boolean, ...deltas: object[]): unknown[] => {
    const stream = translator!.openStream({ ...CALL, stream: true, thoughtsBack });
    const pushed = deltas.map((delta) =>
      stream.push({ choices: [{ index: 0, delta, finish_reason: null }] }),
    );
    return eventsOf(pushed.join('') + stream.end())
      .map(({ delta }) => delta as Members | undefined)
      .flatMap((delta) => (delta?.type === 'signature_delta' ? [delta.signature] : []));
  };
  const thoughts = { reasoning_content: 'Hm.' };
  const signed = { thinking_blocks: [{ type: 'thinking', thinking: '', signature: 's' }] };
  t.same(signaturesOf(true, thoughts, { content: 'Yes.' }), ['']);
  t.same(signaturesOf(true, thoughts), ['']);
  t.same(signaturesOf(true, thoughts, signed, { content: 'Yes.' }), ['s']);
  t.same(signaturesOf(true, { content: 'Yes.' }), []);
  t.same(signaturesOf(false, thoughts, { content: 'Yes.' }), []);
  t.end();
});

void t.test('a refusal is told by the stop reason, unless something else ended the message', (t) => {
  const call = { index: 0, id: 'a', function: { name: 'f', arguments: '{}' } };
  const rows: readonly (readonly [message: Members, finish: string | null, reason: string])[] = [
    [{ content: null, refusal: 'No.' }, 'stop', 'refusal'],
    [{ refusal: 'No.' }, null, 'refusal'],
    [{ refusal: 'No' }, 'length', 'max_tokens'],
    [{ refusal: 'No.' }, 'content_filter', 'refusal'],
    [{ refusal: 'No.', tool_calls: [call] }, 'tool_calls', 'tool_use'],
    [{ content: 'Yes.', refusal: null }, 'stop', 'end_turn'],
    [{ content: 'Yes.', refusal: '' }, 'stop', 'end_turn'],
  ];
  for (const [message, finish, reason] of rows) {
    const title = `${JSON.stringify(message)} ${finish}`;
    const whole = JSON.parse(fromChat({ choices: [{ message, finish_reason: finish }] }, CALL)) as Members;
    t.equal(whole.stop_reason, reason, title);
    const stream = openStream(CALL);
    const text =
      stream.push({ choices: [{ index: 0, delta: message, finish_reason: finish }] }) + stream.end();
    const delta = eventsOf(text).at(-2)!.delta as Members;
    t.equal(delta.stop_reason, reason, `${title}, as a stream`);
    t.match(whole.content, [{ type: 'text', text: message.content ?? message.refusal }], title);
  }
  t.end();
});

void t.test('the joined pieces of a stream are the whole response', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const pick = (most: number): number => Math.floor(next() * (most + 1));
  for (let round = 0; round < 500; round++) {
    const thoughts = 'think\n'.repeat(pick(2));
    const signature = thoughts !== '' && pick(1) === 1 ? 'sig' : '';
    const content = 'text “x” '.repeat(pick(2));
    const calls = Array.from({ length: pick(2) }, (_, index) => ({
      id: `t${index}`,
      function: { name: `f${index}`, arguments: pick(1) === 0 ? '' : JSON.stringify({ a: index, b: 'ü"' }) },
    }));
    const deltas: Members[] = [{ role: 'assistant', content: '' }];
    const pieces = (text: string, of: (piece: string) => Members): void => {
      for (let at = 0; at < text.length;) {
        const end = at + 1 + pick(6);
        deltas.push(of(text.slice(at, end)));
        at = end;
      }
    };
    pieces(thoughts, (piece) => ({ reasoning_content: piece }));
    if (signature !== '') deltas.push({ thinking_blocks: [{ type: 'thinking', thinking: '', signature }] });
    pieces(content, (piece) => ({ content: piece }));
    calls.forEach(({ id, function: called }, index) => {
      deltas.push({ tool_calls: [{ index, id, function: { name: called.name, arguments: '' } }] });
      pieces(called.arguments, (piece) => ({ tool_calls: [{ index, function: { arguments: piece } }] }));
    });
    const finish = calls.length > 0 ? 'tool_calls' : pick(1) === 1 ? 'length' : 'stop';
    const stream = openStream(CALL);
    let text = deltas.map((delta) => stream.push({ choices: [{ index: 0, delta }] })).join('');
    text += stream.push({ choices: [{ index: 0, delta: {}, finish_reason: finish }] });
    text += stream.push({ choices: [], usage: USAGE }) + stream.end();
    const blocks = signature === '' ? undefined : [{ type: 'thinking', thinking: thoughts, signature }];
    const message = {
      content,
      ...(thoughts !== '' && { reasoning_content: thoughts }),
      ...(blocks && { thinking_blocks: blocks }),
      ...(calls.length > 0 && { tool_calls: calls }),
    };
    const whole = JSON.parse(
      fromChat({ choices: [{ message, finish_reason: finish }], usage: USAGE }, CALL),
    ) as Members;
    const events = eventsOf(text);
    const last = events.at(-2)!;
    t.strictSame(
      { content: joined(events), usage: last.usage, stop_reason: (last.delta as Members).stop_reason },
      { content: whole.content, usage: whole.usage, stop_reason: whole.stop_reason },
    );
    t.same(
      [events[0]!.type, events[1]!.type, last.type, events.at(-1)!.type],
      ['message_start', 'ping', 'message_delta', 'message_stop'],
    );
    if (!t.passing()) break;
    // The same text is counted if the upstream reports no usage.
    const texts = new Map<string, string>();
    addStreamTexts(texts, Buffer.from(text), Infinity);
    t.equal(
      [...texts.values()].join('').length,
      thoughts.length +
        content.length +
        calls.reduce((sum, one) => sum + one.function.name.length + one.function.arguments.length, 0),
    );
  }
  t.end();
});

void t.test('message_start has the usage that was reported by then, and zeros without one', (t) => {
  const first = { choices: [{ index: 0, delta: { role: 'assistant', content: '' } }] };
  const last = { choices: [], usage: USAGE };
  const whole = { choices: [{ message: { content: '' }, finish_reason: 'stop' }], usage: USAGE };
  const { usage } = JSON.parse(fromChat(whole, CALL)) as { usage: Members };
  for (const [chunks, started] of [
    [[{ ...first, usage: USAGE }, last], usage],
    [[first, last], { input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 0 }],
  ] as const) {
    const stream = openStream(CALL);
    const events = eventsOf(chunks.map((chunk) => stream.push(chunk)).join('') + stream.end());
    t.match(events[0], { type: 'message_start', message: { usage: started } });
    t.match(events.at(-2), { type: 'message_delta', usage }, 'all of it in the end');
  }
  t.end();
});

void t.test("Anthropic's usage is the same after both translations", (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomOf(seed);
  const count = (): number => Math.floor(random() * 3) * Math.floor(random() * 1e6);
  for (let turn = 0; turn < 200; turn++) {
    const [fiveMinutes, hour, thinking] = [count(), count(), count()];
    const usage = {
      input_tokens: count(),
      cache_creation_input_tokens: fiveMinutes + hour,
      cache_read_input_tokens: count(),
      cache_creation: { ephemeral_5m_input_tokens: fiveMinutes, ephemeral_1h_input_tokens: hour },
      output_tokens: thinking + count(),
      output_tokens_details: { thinking_tokens: thinking },
    };
    const chat = usageMember(new MessageUsage().add(usage).usage!);
    const whole = fromChat({ choices: [{ message: { content: '' } }], usage: chat }, CALL);
    t.same((JSON.parse(whole) as { usage: Members }).usage, usage);
  }
  t.end();
});

void t.test('two blocks of thinking stay two, here and at the Responses door', (t) => {
  const chunk = (delta: object): Members => ({ choices: [{ index: 0, delta, finish_reason: null }] });
  const signed = (signature: string): object => ({
    thinking_blocks: [{ type: 'thinking', thinking: '', signature }],
  });
  const chunks = [
    ...[{ reasoning_content: 'one ' }, { reasoning_content: 'more' }, signed('s1')],
    ...[
      { reasoning_content: 'two' },
      signed('s2'),
      { thinking_blocks: [{ type: 'redacted_thinking', data: 'd' }] },
    ],
    ...[{ reasoning_content: 'three' }, signed('s3'), { content: 'so' }],
  ].map(chunk);
  const blocks = [
    { type: 'thinking', thinking: 'one more', signature: 's1' },
    { type: 'thinking', thinking: 'two', signature: 's2' },
    { type: 'redacted_thinking', data: 'd' },
    { type: 'thinking', thinking: 'three', signature: 's3' },
  ];
  const writer = openStream(CALL);
  const text = chunks.map((one) => writer.push(one)).join('') + writer.end();
  t.match(joined(eventsOf(text)), [...blocks, { type: 'text', text: 'so' }]);
  const stream = RESPONSES_DIALECT.translator!.openStream({ ...CALL, stream: true });
  const events = chunks.map((one) => stream.push(one)).join('') + stream.end();
  const { response } = JSON.parse(/data: (.*)\n\n$/.exec(events)![1]!) as { response: { output: Members[] } };
  t.same(carriedIn(response.output[0]!.encrypted_content), { blocks }, 'what goes back with the next turn');
  t.end();
});

void t.test('events that pass are judged', (t) => {
  const judge = openJudge!();
  const usage = { input_tokens: 3, cache_read_input_tokens: 4, output_tokens: 1 };
  t.same(judge.judge({ type: 'message_start', message: { model: 'claude', usage } }), {
    ...NO_MEANING,
    model: 'claude',
  });
  const ofPrompt = { input_tokens: 3, cache_read_input_tokens: 4 };
  t.same(judge.usageSoFar, ofPrompt, 'the prompt is told, the completion is not');
  t.equal(
    judge.judge({ type: 'content_block_delta', delta: { type: 'text_delta', text: 'x' } }).isText,
    true,
  );
  t.equal(judge.judge({ type: 'ping' }).isText, false);
  t.same(
    judge.judge({ type: 'message_delta', delta: {}, usage: { input_tokens: null, output_tokens: 9 } }).usage,
    { ...usage, output_tokens: 9 },
  );
  for (const [stop, isTextOver] of [
    ['end_turn', true],
    [null, false],
    [undefined, false],
  ] as const) {
    const event = { type: 'message_delta', delta: { stop_reason: stop } };
    t.equal(judge.judge(event).isTextOver, isTextOver, String(stop));
    t.equal(judge.judge({ ...event, usage: {} }).isTextOver, isTextOver, String(stop));
  }
  t.equal(judge.judge({ type: 'message_stop' }).isEnd, true);
  t.equal(judge.judge({ type: 'error', error: { type: 'overloaded_error' } }).fault, 'overloaded_error');
  const types = ['your key sk-upstream-key', 'sk-upstream-key', '', 5, null, { toString: 1 }, undefined];
  for (const type of types)
    t.equal(judge.judge({ type: 'error', error: { type } }).fault, 'an error', 'no text of the upstream');
  t.ok(judge.judge({ choices: [] }).fault);
  t.end();
});

void t.test('edits that only clear old parts may be left undone, others may not', (t) => {
  const body = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }] };
  const edits = [{ type: 'clear_thinking_20251015', keep: 'all' }, { type: 'clear_tool_uses_20250919' }];
  t.same(toChat({ ...body, context_management: { edits } }), toChat(body));
  const compacting = { edits: [...edits, { type: 'compact_20260112' }] };
  t.throws(
    () => toChat({ ...body, context_management: compacting }),
    new FieldError(
      'context_management.edits[2].type',
      'must begin with clear_: a chat completion has no counterpart of others',
    ),
  );
  t.end();
});

void t.test('an event that is not parsed means what it means if it is', (t) => {
  const known = (data: string) => openJudge!().known!(data);
  const texts = ['a', ' é "x" \\ \n', '\u2028', '</script>', '😀', ''].map((text) => JSON.stringify(text));
  const others = ['"\\/"', '"\\u0041"', '"\\x"', '"a', '"\n"', '"a","b":1', '"\\"'];
  const events: string[] = [];
  for (const text of [...texts, ...others])
    for (const index of ['0', '7', '17', '-1', '01']) {
      const block = `{"type":"content_block_TYPE","index":${index}`;
      const part = (type: string): string => `{"type":"${type}","text":${text}}`;
      events.push(
        `${block.replace('TYPE', 'delta')},"delta":${part('text_delta')}`,
        `${block.replace('TYPE', 'start')},"content_block":${part('text')}`,
        block.replace('TYPE', 'stop'),
      );
    }
  for (const type of ['ping', 'message_stop', 'message_start', 'error', 'content_block_stop', 'x'])
    events.push(`{"type":"${type}"`, `{"type": "${type}"`, `{"type":"${type}","error":{}`);
  let count = 0;
  for (const event of events)
    for (const end of ['}', '   }', '', '}}', ',"usage":{}}', '}\n{}', ',"type":"error"}']) {
      const data = Buffer.from(event + end).toString('latin1');
      const meaning = known(data);
      if (meaning === undefined) continue;
      count += 1;
      t.same(openJudge!().judge(JSON.parse(data) as Members), meaning, encodeURI(data));
    }
  t.ok(count > 50, `${count} of them are known`);
  const delta = (text: string): string =>
    `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"${text}"}}`;
  t.equal(known(delta('\\"a\\n'))?.isText, true);
  t.equal(known(delta('')), undefined);
  t.equal(known('{"type": "ping"}')?.isText, false);
  t.equal(known('{"type":"content_block_stop","index":0      }')?.isEnd, false);
  t.equal(known('{"type":"message_stop"    }')?.isEnd, true);
  t.end();
});

void t.test(
  'thoughts that come in thinking_blocks alone are whole, and not twice beside reasoning_content',
  (t) => {
    const block = (thinking: string, signature = ''): Members => ({
      thinking_blocks: [{ type: 'thinking', thinking, signature }],
    });
    const whole = { type: 'thinking', thinking: 'one two', signature: 's' };
    const alone = [block('one '), block('two'), block('', 's')];
    const both = [
      { reasoning_content: 'one ', ...block('one ') },
      { reasoning_content: 'two', ...block('two') },
      block('', 's'),
    ];
    const emptyFirst = [block(''), ...both];
    const emptyThenAlone = [block(''), ...alone];
    for (const deltas of [alone, both, emptyFirst, emptyThenAlone]) {
      const stream = openStream(CALL);
      let text = '';
      for (const delta of deltas)
        text += stream.push({ choices: [{ index: 0, delta, finish_reason: null }] });
      const blocks = eventsOf(text + stream.end());
      t.equal(
        blocks.map(({ delta }) => (delta as { thinking?: string } | undefined)?.thinking ?? '').join(''),
        whole.thinking,
      );
    }
    t.end();
  },
);

void t.test('an empty piece of a tool that is closed is no error, one with arguments is', (t) => {
  const stream = openStream(CALL);
  const push = (delta: Members): string =>
    stream.push({ choices: [{ index: 0, delta, finish_reason: null }] });
  const piece = (json: string): Members => ({ tool_calls: [{ index: 0, function: { arguments: json } }] });
  push({ tool_calls: [{ index: 0, id: 'a', function: { name: 'f', arguments: '{}' } }] });
  push({ content: 'so' });
  t.equal(push(piece('')), '');
  t.throws(() => push(piece('x')));
  t.end();
});

void t.test('a piece at a lower index may repeat a call, but not begin one', (t) => {
  const stream = openStream(CALL);
  const push = (index: number, id: string, json: string): string => {
    const call = { index, id, function: { name: 'f', arguments: json } };
    return stream.push({ choices: [{ index: 0, delta: { tool_calls: [call] }, finish_reason: null }] });
  };
  push(1, 'a', '{}');
  push(2, 'b', '{}');
  t.equal(push(1, 'a', ''), '');
  t.throws(() => push(0, 'c', ''), 'it would be lost');
  t.end();
});

void t.test('a tool call without a name has an empty one, streamed or not', (t) => {
  const calls = [{ index: 0, id: 'a', function: { arguments: '{}' } }];
  const whole = JSON.parse(fromChat({ choices: [{ message: { tool_calls: calls } }] }, CALL)) as Members;
  t.match(whole.content, [{ type: 'tool_use', id: 'a', name: '', input: {} }]);
  const stream = openStream(CALL);
  const text = stream.push({ choices: [{ index: 0, delta: { tool_calls: calls } }] }) + stream.end();
  t.match(text, '"id":"a","name":""');
  t.end();
});
