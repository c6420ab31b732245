/**
 * Chat completions as responses: random streams, whose events the `openai` package's own accumulator joins,
 * must come to the object of the last event, and that to the response of the joined answer.
 */
import { accumulateResponse } from 'openai/lib/responses/ResponseAccumulator';
import type { Response, ResponseStreamEvent } from 'openai/resources/responses/responses';
import t, { type Test } from 'tap';
import type { DoorCall } from '#src/doors/door.js';
import { carriedIn } from '#src/doors/responses/encrypted-content.js';
import { RESPONSES_DIALECT } from '#src/doors/responses/responses-dialect.js';
import { RESPONSES } from '#src/doors/responses/responses-door.js';
import { isRecord } from '#src/core/json.js';
import { addStreamTexts, keyedResponseTexts, type StreamTexts } from '#src/upstream/chat-text.js';
import { tokensOfReport } from '#src/upstream/usage-shapes.js';
import { joinedChat } from '../../../support/chat-joiner.js';
import { CALL_PIECES } from '../../../support/call-pieces.js';
import { newSeed, pick, type Random, randomOf } from '../../../support/random.js';

const CASES = 300;
const CALL: DoorCall = {
  requestId: 'r1',
  model: 'm',
  stream: true,
  body: { model: 'm', input: 'Hello', metadata: { a: 'b' }, temperature: 0.5 },
  nowMs: 1_700_000_000_000,
};
const USAGE = {
  prompt_tokens: 10,
  completion_tokens: 7,
  total_tokens: 17,
  prompt_tokens_details: { cached_tokens: 3 },
  completion_tokens_details: { reasoning_tokens: 2 },
};
const { translator } = RESPONSES_DIALECT;

void t.test('reasoning that the upstream wants back looks signed, or clients drop it', (t) => {
  const message = { role: 'assistant', content: null, reasoning_content: 'Hm.' };
  const response = { choices: [{ index: 0, message, finish_reason: 'stop' }], usage: USAGE };
  const itemOf = (thoughtsBack?: boolean): Record<string, unknown> => {
    const text = translator!.fromChat(response, { ...CALL, thoughtsBack });
    return (JSON.parse(text) as { output: Record<string, unknown>[] }).output[0]!;
  };
  t.notOk('encrypted_content' in itemOf());
  const { encrypted_content: content, summary } = itemOf(true);
  t.same(carriedIn(content), {}, 'nothing is carried in it');
  t.same(summary, [{ type: 'summary_text', text: 'Hm.' }]);
  t.end();
});

void t.test('reasoning that comes back is not looked for at OpenAI', (t) => {
  const message = { role: 'assistant', content: 'Yes.', reasoning_content: 'Hm.' };
  const answer = { choices: [{ index: 0, message, finish_reason: 'stop' }], usage: USAGE };
  for (const requestId of ['r1', 'req_0190c4f2', 'a-b_c.d', '7']) {
    const { output } = JSON.parse(translator!.fromChat(answer, { ...CALL, requestId })) as Response;
    t.equal(output[0]!.type, 'reasoning');
    const body = JSON.stringify({ model: 'm', input: [{ role: 'user', content: 'x' }, ...output] });
    t.match(RESPONSES.read(Buffer.from(body)), { ok: true, call: { routingMembers: [] } }, requestId);
  }
  const stored = { type: 'reasoning', id: 'rs_68af4030baa48193b0b43b4c2a176a1a0e6a', summary: [] };
  const body = JSON.stringify({ model: 'm', input: [stored] });
  t.match(RESPONSES.read(Buffer.from(body)), { ok: true, call: { routingMembers: ['item_reference'] } });
  t.end();
});

const chunk = (delta: object, finish: string | null = null): Record<string, unknown> => ({
  id: 'c',
  object: 'chat.completion.chunk',
  created: 1_700_000_000,
  model: 'up',
  choices: [{ index: 0, delta, finish_reason: finish }],
});

function eventsOf(chunks: readonly Record<string, unknown>[]): ResponseStreamEvent[] {
  const stream = translator!.openStream(CALL);
  const text = chunks.map((one) => stream.push(one)).join('') + stream.end();
  return text
    .split('\n\n')
    .slice(0, -1)
    .map((event) => {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(event)!;
      const value = JSON.parse(data!) as ResponseStreamEvent;
      if (value.type !== name) throw new Error(`${name} brings ${value.type}`);
      return value;
    });
}

/** What every stream must keep; returns the last response. */
function judged(t: Test, events: readonly ResponseStreamEvent[]): Response {
  let snapshot: Response | undefined;
  const deltas = new Map<string, string>();
  events.forEach((event, place) => {
    if (event.sequence_number !== place) t.fail(`event ${place} has the number ${event.sequence_number}`);
    snapshot = accumulateResponse(event, snapshot);
    const { type } = event;
    if (type === 'response.output_item.done' || type === 'response.output_item.added') return;
    const item =
      'item_id' in event ? `${event.item_id} ${'content_index' in event ? event.content_index : ''}` : '';
    if (type.endsWith('.delta') && 'delta' in event) deltas.set(item, (deltas.get(item) ?? '') + event.delta);
    const done =
      type === 'response.output_text.done' || type === 'response.reasoning_summary_text.done'
        ? event.text
        : type === 'response.refusal.done'
          ? event.refusal
          : type === 'response.function_call_arguments.done'
            ? event.arguments
            : undefined;
    if (done !== undefined) t.equal(deltas.get(item) ?? '', done, 'the deltas, joined');
  });
  const last = events.at(-1)!;
  if (last.type !== 'response.completed' && last.type !== 'response.incomplete') {
    t.fail(`the last event is ${last.type}`);
    return snapshot!;
  }
  // Summaries of items are told by items alone; the accumulator takes the last event as it is.
  const items = events.flatMap((event) => (event.type === 'response.output_item.done' ? [event] : []));
  items.sort((left, right) => left.output_index - right.output_index);
  t.same(
    items.map(({ item }) => item),
    last.response.output,
    'the items that ended are the output',
  );
  const before = events
    .slice(0, -1)
    .reduce<Response | undefined>((kept, event) => accumulateResponse(event, kept), undefined);
  t.same(before!.output, last.response.output, 'and what a client has joined by then');
  return last.response;
}

const words = (random: Random): string[] =>
  Array.from({ length: 1 + Math.floor(random() * 4) }, (_, index) => `w${index} "é" `);

/** The chunks of an answer in the usual order. */
function answer(random: Random): Record<string, unknown>[] {
  const deltas: object[] = [{ role: 'assistant', content: '' }];
  if (random() < 0.5) {
    for (const text of words(random)) deltas.push({ reasoning_content: text });
    if (random() < 0.5)
      deltas.push({ thinking_blocks: [{ type: 'thinking', thinking: '', signature: 's' }] });
  }
  if (random() < 0.1) deltas.push({ thinking_blocks: [{ type: 'redacted_thinking', data: 'd' }] });
  if (random() < 0.7) for (const content of words(random)) deltas.push({ content });
  const calls = random() < 0.5 ? Math.floor(random() * 4) : 0;
  const pieces: object[] = [];
  for (let index = 0; index < calls; index++) {
    const extra = random() < 0.3 ? { extra_content: { google: { thought_signature: `g${index}` } } } : {};
    deltas.push({
      tool_calls: [
        { index, id: `call_${index}`, type: 'function', function: { name: 'n', arguments: '' }, ...extra },
      ],
    });
    for (const text of words(random)) pieces.push({ tool_calls: [{ index, function: { arguments: text } }] });
  }
  const finish = calls > 0 ? 'tool_calls' : pick(random, ['stop', 'length', 'content_filter']);
  return [
    ...[...deltas, ...pieces].map((delta) => chunk(delta)),
    chunk({}, finish),
    { ...chunk({}), choices: [], usage: USAGE },
  ];
}

void t.test('random streams', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomOf(seed);
  for (let turn = 0; turn < CASES; turn++) {
    const chunks = answer(random);
    const streamed = judged(t, eventsOf(chunks));
    const { message, finish, usage, id, model } = joinedChat(chunks);
    const whole = {
      ...{ id, object: 'chat.completion', created: 1_700_000_000, model, usage },
      choices: [{ index: 0, message, finish_reason: finish }],
    };
    t.same(JSON.parse(translator!.fromChat(whole, CALL)), streamed, 'the same as the response to the whole');
    if (!t.passing()) t.comment(JSON.stringify(chunks));
  }
  t.end();
});

void t.test('thoughts, text and a refusal in any order lose nothing', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const random = randomOf(seed);
  for (let turn = 0; turn < CASES; turn++) {
    const said: Record<string, string> = { reasoning_content: '', content: '', refusal: '' };
    const chunks = Array.from({ length: 12 }, (_, place) => {
      const name = pick(random, Object.keys(said));
      said[name] = `${said[name]}w${place} `;
      return chunk({ [name]: `w${place} ` });
    });
    const { output } = judged(t, eventsOf([...chunks, chunk({}, 'stop')]));
    const texts = { reasoning_content: '', content: '', refusal: '' };
    for (const item of output) {
      if (item.type === 'reasoning') texts.reasoning_content += item.summary.map(({ text }) => text).join('');
      if (item.type !== 'message') continue;
      for (const part of item.content)
        if (part.type === 'refusal') texts.refusal += part.refusal;
        else texts.content += part.text;
    }
    t.same(texts, said);
  }
  t.end();
});

void t.test('a response in full', (t) => {
  const message = {
    role: 'assistant',
    content: 'Hello',
    reasoning_content: 'Hm.',
    thinking_blocks: [{ type: 'thinking', thinking: 'Hm.', signature: 's' }],
    tool_calls: [{ id: 'call_0', type: 'function', function: { name: 'weather', arguments: '{}' } }],
  };
  const response = JSON.parse(
    translator!.fromChat(
      {
        created: 5,
        model: 'up',
        choices: [{ index: 0, message, finish_reason: 'tool_calls' }],
        usage: USAGE,
      },
      CALL,
    ),
  ) as Record<string, unknown> & { output: Record<string, unknown>[] };
  const content = response.output[0]!.encrypted_content;
  t.same(carriedIn(content), { blocks: message.thinking_blocks }, 'what was signed is carried');
  t.same(response, {
    id: 'resp_r1',
    object: 'response',
    created_at: 5,
    status: 'completed',
    background: false,
    error: null,
    incomplete_details: null,
    model: 'up',
    output: [
      {
        id: 'rs_r1_0',
        type: 'reasoning',
        summary: [{ type: 'summary_text', text: 'Hm.' }],
        encrypted_content: content,
      },
      {
        id: 'msg_r1_1',
        type: 'message',
        status: 'completed',
        role: 'assistant',
        content: [{ type: 'output_text', annotations: [], logprobs: [], text: 'Hello' }],
      },
      {
        id: 'fc_r1_2',
        type: 'function_call',
        status: 'completed',
        call_id: 'call_0',
        name: 'weather',
        arguments: '{}',
      },
    ],
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    service_tier: 'auto',
    store: false,
    text: { format: { type: 'text' } },
    usage: {
      input_tokens: 10,
      input_tokens_details: { cached_tokens: 3, cache_write_tokens: 0 },
      output_tokens: 7,
      output_tokens_details: { reasoning_tokens: 2 },
      total_tokens: 17,
    },
    instructions: null,
    max_output_tokens: null,
    max_tool_calls: null,
    metadata: { a: 'b' },
    parallel_tool_calls: true,
    prompt_cache_key: null,
    safety_identifier: null,
    temperature: 0.5,
    tool_choice: 'auto',
    tools: [],
    top_logprobs: 0,
    top_p: null,
    truncation: 'disabled',
    user: null,
  });
  t.end();
});

void t.test('calls that a server gives all the same position', (t) => {
  const call = (id: string, text: string): object => ({
    tool_calls: [{ index: 0, id, type: 'function', function: { name: 'n', arguments: text } }],
  });
  const response = judged(
    t,
    eventsOf([chunk(call('a', '{"a":1}')), chunk(call('b', '{}')), chunk({}, 'tool_calls')]),
  );
  t.match(response.output, [
    { call_id: 'a', arguments: '{"a":1}' },
    { call_id: 'b', arguments: '{}' },
  ]);
  t.end();
});

void t.test('what comes of a call after its end is no call of its own', (t) => {
  const piece = (more: object, args?: string): object => ({
    tool_calls: [
      { index: 0, ...more, function: { ...more, ...(args !== undefined && { arguments: args }) } },
    ],
  });
  const begun = piece({ id: 'a', name: 'n' }, '{}');
  for (const between of [{ content: 'So.' }, { reasoning_content: 'Hm.' }, { refusal: 'No.' }]) {
    const withRest = (...rest: object[]): ResponseStreamEvent[] =>
      eventsOf([begun, between, ...rest, {}].map((delta) => chunk(delta)));
    for (const rest of [
      piece({}),
      piece({}, ''),
      piece({ id: 'a' }, ''),
      piece({ id: 'a', name: 'n' }, ''),
    ]) {
      const { output } = judged(t, withRest(rest, rest));
      t.equal(output.length, 2, JSON.stringify(rest));
      t.match(output[0], { type: 'function_call', call_id: 'a', arguments: '{}' });
    }
    for (const rest of [piece({}, '{}'), piece({ id: 'a' }, '1'), piece({ id: 'a', name: 'n' }, '{}')])
      t.throws(() => withRest(rest), /got arguments after/, JSON.stringify(rest));
    for (const other of [piece({ id: 'b', name: 'n' }, '{}'), piece({ name: 'm' }, '{}')]) {
      const { output } = judged(t, withRest(other));
      t.equal(output.length, 3, JSON.stringify(other));
      t.match(output[2], { type: 'function_call', arguments: '{}' });
    }
  }
  t.end();
});

void t.test('a whole response may have more probabilities than a call has arguments', (t) => {
  const content = Array<object>(300_000).fill({ token: 'a', logprob: -1, bytes: null, top_logprobs: [] });
  const choices = [{ message: { content: 'a' }, logprobs: { content } }];
  const { output } = JSON.parse(translator!.fromChat({ choices }, { ...CALL, stream: false })) as {
    output: [{ content: [{ logprobs: unknown[] }] }];
  };
  t.equal(output[0].content[0].logprobs.length, content.length);
  t.end();
});

void t.test('a whole response without a message is none', (t) => {
  for (const choices of [undefined, null, [], [null], [{}], [{ message: null }], [{ finish_reason: 'stop' }]])
    t.throws(() => translator!.fromChat({ choices, usage: USAGE }, CALL), /no message/);
  t.match(
    JSON.parse(translator!.fromChat({ choices: [{ message: {} }] }, CALL)),
    { output: [] },
    'an empty one',
  );
  t.end();
});

void t.test('tool calls in the pieces of every server are those calls', (t) => {
  for (const { server, pieces, calls } of CALL_PIECES) {
    const events = eventsOf([...pieces.map((one) => chunk({ tool_calls: one })), chunk({}, 'tool_calls')]);
    const items = calls.map(({ id, name, json }) => ({
      type: 'function_call',
      call_id: id ?? /^call_/,
      name,
      arguments: json,
    }));
    const { output } = judged(t, events);
    t.match(output, items, server);
    t.equal(output.length, calls.length, server);
    const added = events.flatMap((event) =>
      event.type === 'response.output_item.added' ? [event.item] : [],
    );
    t.match(
      added,
      items.map(({ name, call_id }) => ({ name, call_id })),
      `${server}: known from the start`,
    );
  }
  t.end();
});

void t.test('an id that the server left out is made up anew for each response', (t) => {
  const message = { tool_calls: [{ function: { name: 'a' } }, { function: { name: 'b' } }] };
  const idsOf = (requestId: string): unknown[] => {
    const text = translator!.fromChat({ choices: [{ message }] }, { ...CALL, requestId });
    return (JSON.parse(text) as { output: { call_id: string }[] }).output.map(({ call_id: id }) => id);
  };
  const ids = ['req_3fQx0aZcW8Lk-1c', 'req_3fQx0aZcW8Lk-1d'].flatMap(idsOf);
  t.equal(new Set(ids).size, 4, ids.join());
  for (const id of ids) t.match(id, /^call_[\w-]{1,35}$/, 'as OpenAI takes it back');
  const calls = ['{', '}'].map((json) =>
    chunk({ tool_calls: [{ function: { name: 'a', arguments: json } }] }),
  );
  const streamed = JSON.stringify(eventsOf([calls[0]!, calls[1]!, chunk({}, 'tool_calls')]));
  t.ok(new Set(streamed.match(/"call_id":"call_[^"]*/g)).size > 0, 'and stays in a stream');
  t.end();
});

void t.test('custom tools, probabilities, an answer without a chunk', (t) => {
  const logprobs = { content: [{ token: 'Hi', logprob: -0.5, bytes: [72], top_logprobs: [] }] };
  const said = chunk({ content: 'Hi' });
  (said.choices as Record<string, unknown>[])[0]!.logprobs = logprobs;
  const custom = { index: 0, id: 'c', type: 'custom', custom: { name: 'patch', input: '***' } };
  const response = judged(t, eventsOf([said, chunk({ tool_calls: [custom] }), chunk({}, 'tool_calls')]));
  t.match(response.output, [
    { content: [{ text: 'Hi', logprobs: logprobs.content }] },
    { type: 'custom_tool_call', call_id: 'c', name: 'patch', input: '***' },
  ]);
  t.match(judged(t, eventsOf([])), { status: 'completed', output: [], usage: null });
  t.end();
});

void t.test('the judge of an upstream that speaks Responses itself', (t) => {
  const judge = RESPONSES_DIALECT.openJudge!();
  for (const event of eventsOf(answer(randomOf(1)))) {
    const meaning = judge.judge(event as unknown as Record<string, unknown>);
    t.equal(meaning.fault, undefined);
    t.equal(meaning.isEnd, event.type === 'response.completed' || event.type === 'response.incomplete');
    t.equal(meaning.isText, event.type.endsWith('.delta'));
    if (meaning.isEnd) t.match(meaning, { usage: { input_tokens: 10, output_tokens: 7 }, model: 'up' });
  }
  for (const event of [
    { type: 'error', code: 'x' },
    { error: {} },
    { type: 'response.failed', response: {} },
    {},
  ])
    t.type(judge.judge(event).fault, 'string');
  t.ok(isRecord(judge.judge({ type: 'response.of_tomorrow' })));
  t.end();
});

void t.test('texts and usage of a response that passes are found', (t) => {
  const chunks = [
    chunk({ reasoning_content: 'Hm.' }),
    chunk({ content: 'Hello' }),
    chunk({ content: ' you' }),
    chunk({ tool_calls: [{ index: 0, id: 'c', function: { name: 'weather', arguments: '{"a":' } }] }),
    chunk({ tool_calls: [{ index: 0, function: { arguments: '1}' } }] }),
    chunk({}, 'tool_calls'),
    { ...chunk({}), choices: [], usage: USAGE },
  ];
  const stream = translator!.openStream(CALL);
  const events = chunks.map((one) => stream.push(one)).join('') + stream.end();
  const texts: StreamTexts = new Map();
  addStreamTexts(texts, Buffer.from(events), 1_000);
  const wanted = ['Hm.', 'Hello you', 'weather', '{"a":1}'];
  t.same([...texts.values()], wanted);
  const { message, finish, usage } = joinedChat(chunks);
  const whole = translator!.fromChat({ choices: [{ message, finish_reason: finish }], usage }, CALL);
  t.same(
    keyedResponseTexts(whole).map(([, text]) => text),
    wanted,
  );
  t.same(tokensOfReport((JSON.parse(whole) as Response).usage), {
    source: 'reported',
    promptTokens: 10,
    cachedTokens: 3,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    completionTokens: 7,
    reasoningTokens: 2,
  });
  t.end();
});
