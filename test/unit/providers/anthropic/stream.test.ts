/** Streams of Anthropic as events of a chat completion: joined they say what the whole message says. */
import t from 'tap';
import { readMessage } from '#src/providers/anthropic/response.js';
import { MessageStream } from '#src/providers/anthropic/stream.js';
import { ProviderError } from '#src/providers/provider.js';
import { anthropicCall } from './anthropic-call.js';

type Fields = Record<string, unknown>;
type Event = Fields & { type: string };

/** `spaced`: as the reference prints it, and other encoders too. */
function encoded(events: readonly Event[], form: 'plain' | 'spaced' | 'crlf' = 'plain'): Buffer {
  return Buffer.from(
    events
      .map((event) => {
        if (form === 'crlf') return `event: ${event.type}\r\ndata: ${JSON.stringify(event)}\r\n\r\n`;
        const json = JSON.stringify(event);
        const padded = json.replace(/\}\}$/, '}     }');
        return `event: ${event.type}\ndata: ${form === 'spaced' ? json.replace(/(":|,)(?=["{\d])/g, '$1 ') : padded}\n\n`;
      })
      .join(''),
  );
}

const start = (usage: object = { input_tokens: 10, output_tokens: 1 }): Event => ({
  type: 'message_start',
  message: { id: 'msg_1', type: 'message', role: 'assistant', model: 'claude-x', content: [], usage },
});
const stop = (reason: string | null, usage: object = { output_tokens: 30 }, more: object = {}): Event[] => [
  { type: 'message_delta', delta: { stop_reason: reason, stop_sequence: null, ...more }, usage },
  { type: 'message_stop' },
];
const block = (index: number, content: object, ...deltas: object[]): Event[] => [
  { type: 'content_block_start', index, content_block: content },
  ...(index === 0 ? [{ type: 'ping' }] : []),
  ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
  { type: 'content_block_stop', index },
];
const text = (index: number, ...pieces: string[]): Event[] =>
  block(index, { type: 'text', text: '' }, ...pieces.map((piece) => ({ type: 'text_delta', text: piece })));
const thinking = (index: number, signature: string, ...pieces: string[]): Event[] =>
  block(
    index,
    { type: 'thinking', thinking: '', signature: '' },
    ...pieces.map((piece) => ({ type: 'thinking_delta', thinking: piece })),
    { type: 'signature_delta', signature },
  );
const tool = (index: number, id: string, name: string, ...pieces: string[]): Event[] =>
  block(
    index,
    { type: 'tool_use', id, name, input: {} },
    ...pieces.map((piece) => ({ type: 'input_json_delta', partial_json: piece })),
  );

function translated(bytes: Buffer, body: Fields = {}, cut = bytes.length): string {
  const stream = new MessageStream(anthropicCall(body, { stream: true }));
  let written = '';
  for (let at = 0; at < bytes.length; at += cut) written += stream.push(bytes.subarray(at, at + cut));
  return written + stream.end();
}

/** The message that the chunks make; `[DONE]` must be the last. */
function joined(written: string): Fields {
  const data = written.split('\n\n').map((event) => event.replace(/^data: /, ''));
  t.strictSame(data.slice(-2), ['[DONE]', '']);
  const message: Fields = {};
  const calls: { id: string; type: string; function: { name: string; arguments: string } }[] = [];
  const blocks: Fields[] = [];
  let thought = '';
  for (const json of data.slice(0, -2)) {
    const { choices, usage } = JSON.parse(json) as { choices: Fields[]; usage?: object };
    if (usage !== undefined) message.usage = usage;
    const [choice] = choices;
    if (choice === undefined) continue;
    if (choice.finish_reason !== null) message.finish = choice.finish_reason;
    const delta = choice.delta as Fields;
    if (delta.role !== undefined) message.role = delta.role;
    for (const name of ['content', 'reasoning_content', 'refusal'])
      if (typeof delta[name] === 'string') message[name] = ((message[name] ?? '') as string) + delta[name];
    thought += (delta.reasoning_content ?? '') as string;
    for (const given of (delta.thinking_blocks ?? []) as Fields[]) {
      blocks.push(given.type === 'thinking' ? { ...given, thinking: thought } : given);
      if (given.type === 'thinking') thought = '';
    }
    for (const { index, id, type, function: called } of (delta.tool_calls ?? []) as {
      index: number;
      id?: string;
      type?: string;
      function: { name?: string; arguments: string };
    }[]) {
      if (id !== undefined)
        calls[index] = { id, type: type!, function: { name: called.name!, arguments: '' } };
      calls[index]!.function.arguments += called.arguments;
    }
    const legacy = delta.function_call as { name?: string; arguments: string } | undefined;
    if (legacy?.name !== undefined) message.function_call = { name: legacy.name, arguments: '' };
    if (legacy !== undefined) (message.function_call as { arguments: string }).arguments += legacy.arguments;
  }
  if (calls.length > 0) message.tool_calls = calls;
  if (blocks.length > 0) message.thinking_blocks = blocks;
  return message;
}

/** The same from a whole response. */
function whole(content: readonly object[], more: object, body: Fields): Fields {
  const message = { id: 'msg_1', model: 'claude-x', content, ...more };
  const { choices, usage } = JSON.parse(
    readMessage(Buffer.from(JSON.stringify(message)), anthropicCall(body)).text,
  ) as { choices: { message: Fields; finish_reason: string }[]; usage: object };
  const { content: said, refusal, ...rest } = choices[0]!.message;
  return {
    ...rest,
    content: said ?? '',
    ...(typeof refusal === 'string' && { refusal }),
    finish: choices[0]!.finish_reason,
    usage,
  };
}

const WORDS = ['Hä', '𝄞 "quoted" \\', '\n\u0000\u2028', ' ende'];
const ARGS = ['{"a"', ': "\\u00e9 \\"x\\"", "b":', ' [1, 2]}'];
const input: unknown = JSON.parse(ARGS.join(''));
const USAGE = { input_tokens: 10, output_tokens: 30 };

const STREAMS: [name: string, events: Event[], content: object[], more: object, body?: Fields][] = [
  [
    'a text',
    [start(), ...text(0, ...WORDS), ...stop('end_turn')],
    [{ type: 'text', text: WORDS.join('') }],
    { stop_reason: 'end_turn', usage: USAGE },
  ],
  [
    'thinking, a text, two calls',
    [
      start({
        input_tokens: 1,
        cache_read_input_tokens: 2,
        cache_creation_input_tokens: 7,
        cache_creation: { ephemeral_1h_input_tokens: 4 },
      }),
      ...thinking(0, 'c2ln', ...WORDS),
      ...block(1, { type: 'redacted_thinking', data: 'ZGF0YQ==' }),
      ...thinking(2, 'dHdv', 'again'),
      ...text(3, 'a', 'b'),
      ...tool(4, 'toolu_1', 'f', '', ...ARGS),
      ...tool(5, 'toolu_2', 'g', ''),
      ...stop('tool_use', {
        output_tokens: 30,
        input_tokens: 1,
        cache_read_input_tokens: 2,
        cache_creation_input_tokens: 7,
        output_tokens_details: { thinking_tokens: 20 },
      }),
    ],
    [
      { type: 'thinking', thinking: WORDS.join(''), signature: 'c2ln' },
      { type: 'redacted_thinking', data: 'ZGF0YQ==' },
      { type: 'thinking', thinking: 'again', signature: 'dHdv' },
      { type: 'text', text: 'ab' },
      { type: 'tool_use', id: 'toolu_1', name: 'f', input },
      { type: 'tool_use', id: 'toolu_2', name: 'g', input: {} },
    ],
    {
      stop_reason: 'tool_use',
      usage: {
        input_tokens: 1,
        cache_read_input_tokens: 2,
        cache_creation_input_tokens: 7,
        cache_creation: { ephemeral_1h_input_tokens: 4 },
        output_tokens: 30,
        output_tokens_details: { thinking_tokens: 20 },
      },
    },
  ],
  [
    'an answer by a tool',
    [start(), ...tool(0, 'toolu_1', 'json_response', '', ...ARGS), ...stop('tool_use')],
    [{ type: 'tool_use', id: 'toolu_1', name: 'json_response', input }],
    { stop_reason: 'tool_use', usage: USAGE },
    { response_format: { type: 'json_object' } },
  ],
  [
    "an answer by a tool beside a caller's tool of that name",
    [
      start(),
      ...tool(0, 'toolu_1', 'json_response', '', ...ARGS),
      ...tool(1, 'toolu_2', 'json_response_2', '', ...ARGS),
      ...stop('tool_use'),
    ],
    [
      { type: 'tool_use', id: 'toolu_1', name: 'json_response', input },
      { type: 'tool_use', id: 'toolu_2', name: 'json_response_2', input },
    ],
    { stop_reason: 'tool_use', usage: USAGE },
    { response_format: { type: 'json_object' }, functions: [{ name: 'json_response' }], tools: [] },
  ],
  [
    'a function',
    [start(), ...tool(0, 'toolu_1', 'f', '', ...ARGS), ...stop('tool_use')],
    [{ type: 'tool_use', id: 'toolu_1', name: 'f', input }],
    { stop_reason: 'tool_use', usage: USAGE },
    { functions: [{ name: 'f' }] },
  ],
  [
    'a refusal',
    [
      start(),
      ...text(0, 'I'),
      ...stop('refusal', { output_tokens: 30 }, { stop_details: { explanation: 'No.' } }),
    ],
    [{ type: 'text', text: 'I' }],
    { stop_reason: 'refusal', stop_details: { explanation: 'No.' }, usage: USAGE },
  ],
  ['nothing', [start(), ...stop('end_turn')], [], { stop_reason: 'end_turn', usage: USAGE }],
  [
    'what is new to us',
    [
      start(),
      { type: 'event_of_the_future' },
      ...block(
        0,
        { type: 'server_tool_use', id: 'x', input: {} },
        { type: 'input_json_delta', partial_json: '{"q":1}' },
      ),
      ...text(1, 'a').toSpliced(2, 0, {
        type: 'content_block_delta',
        index: 1,
        delta: { type: 'citations_delta', citation: {} },
      }),
      ...stop('of_the_future'),
    ],
    [{ type: 'server_tool_use' }, { type: 'text', text: 'a' }],
    { stop_reason: 'of_the_future', usage: USAGE },
  ],
  [
    'a block with its text at the start',
    [
      start(),
      ...block(0, { type: 'text', text: 'a' }, { type: 'text_delta', text: 'b' }),
      ...stop('max_tokens'),
    ],
    [{ type: 'text', text: 'ab' }],
    { stop_reason: 'max_tokens', usage: USAGE },
  ],
];

/** Numbers of a tool's arguments may be written otherwise: compared as values. */
function comparable(message: Fields): Fields {
  const value = (called: { arguments: string } | undefined): unknown =>
    called && { ...called, arguments: JSON.parse(called.arguments) as unknown };
  const calls = message.tool_calls as { function: { arguments: string } }[] | undefined;
  return {
    ...message,
    content:
      typeof message.content === 'string' && message.content.startsWith('{')
        ? (JSON.parse(message.content) as unknown)
        : message.content,
    tool_calls: calls?.map((call) => ({ ...call, function: value(call.function) })),
    function_call: value(message.function_call as { arguments: string } | undefined),
  };
}

void t.test('joined deltas are the whole', (t) => {
  for (const [name, events, content, more, body = {}] of STREAMS)
    for (const form of ['plain', 'spaced', 'crlf'] as const) {
      const streamed = joined(translated(encoded(events, form), body));
      t.strictSame(comparable(streamed), comparable(whole(content, more, body)), `${name}, ${form}`);
    }
  t.end();
});

void t.test('cut at every byte, and in pieces of every size', (t) => {
  for (const [name, events, , , body = {}] of STREAMS) {
    const bytes = encoded(events);
    const expected = translated(bytes, body);
    for (let size = 1; size <= 64; size++)
      if (translated(bytes, body, size) !== expected) t.fail(`${name}: pieces of ${size}`);
    for (let at = 1; at < bytes.length; at++) {
      const stream = new MessageStream(anthropicCall(body, { stream: true }));
      const written = stream.push(bytes.subarray(0, at)) + stream.push(bytes.subarray(at)) + stream.end();
      if (written !== expected) t.fail(`${name}: cut at ${at}`);
    }
    t.pass(name);
  }
  t.end();
});

void t.test('each event goes on as it comes', (t) => {
  const stream = new MessageStream(anthropicCall({}, { stream: true }));
  const counts = [start(), ...text(0, 'a', 'b'), ...stop('end_turn')].map(
    (event) => stream.push(encoded([event])).split('data: ').length - 1,
  );
  // message_start, content_block_start, ping, a, b, content_block_stop, message_delta, message_stop
  t.strictSame(counts, [0, 1, 0, 1, 1, 0, 2, 1]);
  t.equal(stream.end(), '');
  t.end();
});

void t.test('a call whose input is whole as its block begins', (t) => {
  const whole = { type: 'tool_use', id: 'toolu_1', name: 'f', input: { city: 'Bern', id: 'LONG' } };
  const events = encoded([start(), ...block(0, whole), ...tool(1, 'toolu_2', 'g'), ...stop('tool_use')]);
  const written = translated(Buffer.from(events.toString().replace('"LONG"', '12345678901234567890')));
  t.match(joined(written).tool_calls, [
    { function: { name: 'f', arguments: '{"city":"Bern","id":12345678901234567890}' } },
    { function: { name: 'g', arguments: '{}' } },
  ]);
  const pieces = [{ type: 'input_json_delta', partial_json: '{"a":1}' }];
  const both = translated(encoded([start(), ...block(0, whole, ...pieces), ...stop('tool_use')]));
  t.match(joined(both).tool_calls, [{ function: { arguments: '{"a":1}' } }], 'pieces count in place of it');
  t.end();
});

void t.test('the end', (t) => {
  const events = [start(), ...text(0, 'a')];
  t.throws(() => translated(encoded(events)), /before its end/, 'no end');
  t.throws(() => translated(Buffer.from('')), /before its end/, 'nothing');
  const [delta] = stop('end_turn');
  t.match(
    joined(translated(encoded([...events, delta!]))),
    { content: 'a', finish: 'stop' },
    'no message_stop',
  );
  const late = encoded([...events, ...stop('end_turn'), ...text(1, 'late')]);
  t.match(joined(translated(late)), { content: 'a' }, 'what follows the end is passed over');
  const cut = encoded([...events, ...stop('end_turn')]).subarray(0, -1);
  t.match(joined(translated(cut)), { content: 'a' }, 'the last blank line is missing');
  t.end();
});

function failureOf(...given: (Event | string)[]): unknown {
  try {
    const stream = new MessageStream(anthropicCall({}, { stream: true }));
    for (const one of given) stream.push(typeof one === 'string' ? Buffer.from(one) : encoded([one]));
    return undefined;
  } catch (error) {
    return error instanceof ProviderError ? error.failure : error;
  }
}

void t.test('errors inside a stream', (t) => {
  const error = (type: string): Event => ({ type: 'error', error: { type, message: 'm' } });
  t.match(failureOf(start(), error('overloaded_error')), { status: 503, message: 'm' });
  t.match(failureOf(error('rate_limit_error')), { status: 429 });
  t.match(failureOf(start(), ...text(0, 'a'), error('api_error')), { status: 500 });
  t.match(failureOf({ type: 'error' }), { status: 500 });
  t.match(failureOf('data: {"type":\n\n'), { status: 502 }, 'cut JSON');
  t.match(failureOf('data: 3\n\n'), { status: 502 });
  t.match(failureOf(...text(0, 'a')), { status: 502 }, 'no start');
  t.match(failureOf({ type: 'message_start' }), { status: 502 });
  t.match(failureOf({ type: 'message_stop' }), { status: 502 });
  t.match(failureOf(start(), ...block(0, { type: 'text', text: '' }, { type: 'text_delta', text: 3 })), {
    status: 502,
  });
  t.match(failureOf('x'.repeat(1024 * 1024 + 1)), { status: 502 }, 'an event without end');
  t.end();
});

void t.test('what was told of the usage before the end', (t) => {
  const stream = new MessageStream(anthropicCall({}, { stream: true }));
  t.equal(stream.usageSoFar, undefined);
  const prompt = { input_tokens: 10, cache_read_input_tokens: 300, cache_creation_input_tokens: 50 };
  stream.push(encoded([start({ ...prompt, output_tokens: 8 }), ...text(0, 'Hi')]));
  const ofPrompt = { promptTokens: 360, cachedTokens: 300, cacheWriteTokens: 50, completionTokens: 0 };
  t.match(stream.usageSoFar, ofPrompt, 'of the prompt, and none of the completion');
  const last = stream.push(encoded([stop('end_turn')[0]!]));
  t.match(stream.usageSoFar, { ...ofPrompt, completionTokens: 30 }, 'of both, once all of the text has come');
  t.match(joined(last + stream.push(encoded([stop(null)[1]!]))).usage, {
    prompt_tokens: 360,
    completion_tokens: 30,
  });
  t.end();
});

void t.test('a stream that never tells its output reports no usage', (t) => {
  const [delta, end] = stop('end_turn');
  const bytes = encoded([start(), ...text(0, 'Hi'), { ...delta!, usage: null }, end!]);
  const message = joined(translated(bytes));
  t.equal(message.content, 'Hi');
  t.equal(message.usage, undefined);
  t.end();
});

void t.test('a usage that is older than the text is not that of the call', (t) => {
  const [told, end] = stop('end_turn');
  const early = { ...told!, delta: {} };
  const untold = { ...told!, usage: null };
  for (const block of [text(0, 'Hi'), tool(0, 'toolu_1', 'now', '{}')]) {
    const stream = new MessageStream(anthropicCall({}, { stream: true }));
    const message = joined(stream.push(encoded([start(), early, ...block, untold, end!])));
    t.equal(message.usage, undefined);
    t.match(stream.usageSoFar, { promptTokens: 10, completionTokens: 30 });
  }
  t.match(joined(translated(encoded([start(), ...text(0, 'Hi'), early, untold, end!]))).usage, {
    completion_tokens: 30,
  });
  t.end();
});

void t.test('once the stop reason has come, neither the end nor an error changes the bill', (t) => {
  const [told] = stop('end_turn');
  const failed = { type: 'error', error: { type: 'overloaded_error', message: 'x' } };
  const broken = new MessageStream(anthropicCall({}, { stream: true }));
  t.match(broken.push(encoded([start(), ...text(0, 'Hi'), told!])), /"completion_tokens":30/);
  const chunks = translated(encoded([start(), ...text(0, 'Hi'), told!, failed]));
  t.match(joined(chunks), { content: 'Hi', usage: { completion_tokens: 30 } });
  t.end();
});
