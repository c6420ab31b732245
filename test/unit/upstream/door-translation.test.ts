/** Calls of other doors on upstreams that speak chat completions. */
import t from 'tap';
import { DOOR_INDEX } from '#src/core/door-names.js';
import { answerOf, chunkOf, FakeDownstream, sse, USAGE } from '../../fixtures/upstream-server.js';
import { answering, COUNTED, streaming, STREAM, world } from '../../fixtures/upstream-world.js';

/** As Azure sends it before its model has thought. */
const EMPTY_CHUNK = sse({ ...chunkOf(''), choices: [], prompt_filter_results: [] });
const CALL = {
  door: DOOR_INDEX.messages,
  stream: true,
  body: '{"model":"m","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hello"}]}',
};

void t.test('a response has not begun while its chunks translate to nothing', async (t) => {
  const { run, counts } = await world(
    t,
    [
      (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(EMPTY_CHUNK);
      },
    ],
    undefined,
    { totalTimeoutMs: 200 },
  );
  const downstream = await run(CALL);
  // A listener takes a cut only of a response that has begun.
  t.equal(downstream.wasCut, false);
  t.equal(downstream.text, '');
  t.equal(downstream.error?.code, 'provider_unavailable');
  t.equal(counts.length, 0);
});

void t.test('it begins with the first event', async (t) => {
  const { run } = await world(t, [streaming(EMPTY_CHUNK + STREAM)]);
  const downstream = await run(CALL);
  t.equal(downstream.error, undefined);
  t.match(downstream.text, /message_start[^]*he[^]*llo[^]*message_stop/);
});

const toolAnswer = (finishReason: string): string =>
  JSON.stringify({
    id: 'c',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"city":"Par' } }],
        },
        finish_reason: finishReason,
      },
    ],
    usage: USAGE,
  });

void t.test(
  "a whole response that cannot be translated is the upstream's fault, not the gateway's",
  async (t) => {
    const whole = { ...CALL, stream: false, body: CALL.body.replace('"stream":true,', '') };
    const other = await world(t, [answering(toolAnswer('tool_calls')), answering(answerOf(USAGE))]);
    const failedOver = await other.run(whole);
    t.equal(failedOver.error, undefined);
    t.match(failedOver.text, /hi there/);
    t.equal(other.upstreams[1]!.requests.length, 1);

    const alone = await world(t, [answering(toolAnswer('tool_calls'))]);
    t.equal((await alone.run(whole)).error?.code, 'provider_unavailable');

    const cut = await world(t, [answering(toolAnswer('length'))]);
    const downstream = await cut.run(whole);
    t.equal(downstream.error, undefined, 'arguments that max_tokens has cut are a response, and are billed');
    t.match(downstream.text, /"stop_reason":"max_tokens"/);
  },
);

void t.test('a stream is cut where it cannot be translated, and what came before is charged', async (t) => {
  const delta = (json: string): string => {
    const call = { index: 0, id: 't0', function: { name: 'f', arguments: json } };
    return sse({ ...chunkOf(''), choices: [{ index: 0, delta: { tool_calls: [call] } }] });
  };
  const rest = sse(chunkOf('so')) + delta(':1}') + STREAM;
  const downstream = new FakeDownstream();
  const { call } = await world(t, [
    (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(delta('{"a"'));
      downstream.onPiece = () => response.end(rest);
    },
  ]);
  call(CALL, downstream);
  await downstream.ended;
  const { error, wasCut, text, usage } = downstream;
  t.equal(error, undefined);
  t.equal(wasCut, true);
  t.match(text, /"name":"f"[^]*"text":"so"/);
  t.notMatch(text, 'message_stop');
  t.strictSame(usage, { ...COUNTED, source: 'estimated' }, 'the provider has served it');
});

/** Reports as upstreams write them, with what is billed: prompt, cached, completion, reasoning. */
const REPORTS: [server: string, members: object, billed: readonly [number, number, number, number]][] = [
  [
    'xAI',
    {
      usage: {
        prompt_tokens: 32,
        completion_tokens: 9,
        total_tokens: 1_135,
        completion_tokens_details: { reasoning_tokens: 1_094 },
      },
    },
    [32, 0, 1_103, 1_094],
  ],
  [
    'DeepSeek',
    { usage: { prompt_tokens: 32, completion_tokens: 9, prompt_cache_hit_tokens: 20 } },
    [32, 20, 9, 0],
  ],
  [
    'Portkey',
    { usage: { prompt_tokens: 10, completion_tokens: 9, cache_read_input_tokens: 20, total_tokens: 39 } },
    [30, 20, 9, 0],
  ],
  ['Groq', { x_groq: { usage: { prompt_tokens: 32, completion_tokens: 9 } } }, [32, 0, 9, 0]],
  ['llama.cpp', { timings: { prompt_n: 12, cache_n: 20, predicted_n: 9 } }, [32, 20, 9, 0]],
];

void t.test('a translated response has the usage that is billed, whoever tells it', async (t) => {
  const finish = { ...chunkOf(''), choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] };
  const text = sse(chunkOf('hello'));
  const done = 'data: [DONE]\n\n';
  for (const [server, members, [prompt, cached, completion, reasoning]] of REPORTS) {
    const usages = {
      messages: {
        input_tokens: prompt - cached,
        cache_read_input_tokens: cached,
        output_tokens: completion,
        output_tokens_details: { thinking_tokens: reasoning },
      },
      responses: {
        input_tokens: prompt,
        input_tokens_details: { cached_tokens: cached },
        output_tokens: completion,
        output_tokens_details: { reasoning_tokens: reasoning },
        total_tokens: prompt + completion,
      },
    };
    const answer = { ...(JSON.parse(answerOf(USAGE)) as object), usage: undefined };
    const report = { ...chunkOf(''), choices: [], ...members };
    const streams = {
      'with the finish': text + sse({ ...finish, ...members }) + done,
      'after [DONE]': text + sse(finish) + done + sse(report),
    };
    for (const [door, usage] of Object.entries(usages)) {
      const isMessages = door === 'messages';
      const body = isMessages ? CALL.body : '{"model":"m","stream":true,"input":"hello"}';
      const call = { ...CALL, door: isMessages ? DOOR_INDEX.messages : DOOR_INDEX.responses, body };
      const whole = await world(t, [answering(JSON.stringify({ ...answer, ...members }))]);
      const { text: json } = await whole.run({
        ...call,
        stream: false,
        body: body.replace('"stream":true,', ''),
      });
      t.match(JSON.parse(json), { usage }, `${server}, ${door}`);
      for (const [when, events] of Object.entries(streams)) {
        const stream = await world(t, [streaming(events)]);
        const last = (await stream.run(call)).text.split('\n').filter((line) => line.startsWith('data: '));
        const told = JSON.parse(last.at(isMessages ? -2 : -1)!.slice(6)) as Record<string, unknown>;
        t.match(isMessages ? told : told.response, { usage }, `${server}, ${door}, ${when}`);
      }
    }
  }
});

void t.test(
  'a translated response has the usage that was counted here, if the upstream told none',
  async (t) => {
    const { promptTokens: input, completionTokens: output } = COUNTED;
    const finish = sse({ ...chunkOf(''), choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
    const untold = JSON.stringify({ ...(JSON.parse(answerOf(USAGE)) as object), usage: undefined });
    // More than a prompt of so few bytes can have: it is not believed, and not told.
    const lies = { usage: { prompt_tokens: 9_000_000, completion_tokens: 1, total_tokens: 9_000_001 } };
    for (const door of ['messages', 'responses'] as const) {
      const isMessages = door === 'messages';
      const body = isMessages ? CALL.body : '{"model":"m","stream":true,"input":"hello"}';
      const call = { ...CALL, door: DOOR_INDEX[door], body };
      const usage = { input_tokens: input, output_tokens: output };
      const bodies = [untold, JSON.stringify({ ...(JSON.parse(untold) as object), ...lies })];
      for (const json of bodies) {
        const whole = await world(t, [answering(json)]);
        const given = await whole.run({ ...call, stream: false, body: body.replace('"stream":true,', '') });
        t.match(JSON.parse(given.text), { usage }, `${door}, whole`);
        t.match(given.usage, { promptTokens: input, completionTokens: output }, 'and it is billed');
      }
      for (const more of ['', sse({ ...chunkOf(''), choices: [], ...lies })]) {
        const { run } = await world(t, [
          streaming(sse(chunkOf('hello')) + finish + more + 'data: [DONE]\n\n'),
        ]);
        const last = (await run(call)).text.split('\n').filter((line) => line.startsWith('data: '));
        const told = JSON.parse(last.at(isMessages ? -2 : -1)!.slice(6)) as Record<string, unknown>;
        t.match(isMessages ? told : told.response, { usage }, `${door}, streamed`);
      }
    }
  },
);
