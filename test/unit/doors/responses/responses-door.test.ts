/** How the door of the Responses API reads bodies, and how it tells errors. */
import t from 'tap';
import OpenAI from 'openai';
import { Stream } from 'openai/core/streaming';
import { MESSAGES } from '#src/doors/messages/messages-door.js';
import { RESPONSES } from '#src/doors/responses/responses-door.js';

const READ = (text: string): ReturnType<typeof RESPONSES.read> => RESPONSES.read(Buffer.from(text));

void t.test('what is read of a body', (t) => {
  const text = '{"model":"m","input":"Grüße","max_output_tokens":50,"stream":true,"service_tier":"default"}';
  const result = READ(text);
  if (!result.ok) throw new Error(result.error.message);
  const { call } = result;
  t.match(call, {
    model: 'm',
    stream: true,
    outputTokensMax: 50,
    outputTokensField: 'max_output_tokens',
    choices: 1,
    routingMembers: [],
    body: text,
  });
  t.equal(call.body.slice(call.modelStart, call.modelEnd), '"m"');
  t.equal(call.body.slice(call.maxTokens.start, call.maxTokens.end), '50');
  const large = RESPONSES.readPieces([Buffer.from(text.slice(0, 20)), Buffer.from(text.slice(20))]);
  t.match(large, { ok: true, call: { model: 'm', outputTokensMax: 50 } });
  const tier = READ('{"model":"m","input":"x","service_tier":"priority"}');
  t.match(tier, { ok: true, call: { routingMembers: ['service_tier'] } });
  const routing = (more: object): unknown => {
    const result = READ(JSON.stringify({ model: 'm', input: [{ type: 'message' }], ...more }));
    return result.ok ? result.call.routingMembers : result.error.message;
  };
  const caller = ['function', 'custom', 'local_shell', 'apply_patch', 'computer', 'computer_use_preview'];
  t.same(routing({ tools: caller.map((type) => ({ type })), previous_response_id: null }), []);
  for (const tool of [
    { type: 'shell', environment: { type: 'local' } },
    { type: 'tool_search', execution: 'client' },
    { type: 'namespace', tools: [{ type: 'function' }] },
  ])
    t.same(routing({ tools: [tool] }), [], tool.type);
  for (const tool of [
    ...['web_search', 'web_search_preview', 'file_search', 'code_interpreter', 'mcp', 'image_generation'],
    ...['shell', 'tool_search', 'of-next-year'],
  ])
    t.same(routing({ tools: [{ type: 'function' }, { type: tool }] }), ['hosted_tools'], tool);
  t.same(routing({ tools: [{ type: 'namespace', tools: [{ type: 'mcp' }] }] }), ['hosted_tools']);
  t.same(routing({ context_management: [{ type: 'compaction' }] }), ['context_management']);
  for (const type of ['additional_tools', 'tool_search_output', 'of-next-year']) {
    const offering = (...tools: unknown[]): unknown =>
      routing({ input: [{ type: 'message' }, { type, tools }] });
    t.same(offering(), [], `${type} without tools`);
    t.same(offering({ type: 'function' }, { type: 'namespace', tools: [{ type: 'custom' }] }), [], type);
    for (const tool of [
      ...['web_search', 'mcp', 'shell', 'of-next-year'].map((hosted) => ({ type: hosted })),
      { type: 'namespace', tools: [{ type: 'mcp' }] },
      ...[{}, 'web_search', null, 1, []],
    ])
      t.same(offering({ type: 'function' }, tool), ['hosted_tools'], `${type}: ${JSON.stringify(tool)}`);
    const inOtherCase = routing({ input: [{ type, tools: [], Tools: [{ type: 'web_search' }] }] });
    t.equal(inOtherCase, 'input[0].Tools must be written as tools');
  }
  t.same(routing({ input: [{ type: 'mcp_list_tools', tools: [{ name: 'a', input_schema: {} }] }] }), []);
  t.same(routing({ input: [{ type: 'message' }, { type: 'compaction_trigger' }] }), ['context_management']);
  t.same(
    routing({ input: [{ type: 'compaction', encrypted_content: 'x' }] }),
    [],
    'what was shortened before',
  );
  t.same(routing({ previous_response_id: 'r', input: [{ type: 'item_reference', id: 'i' }] }), [
    'previous_response_id',
    'item_reference',
  ]);
  t.end();
});

void t.test('the least bound to which a call may be lowered', (t) => {
  t.match(READ('{"model":"m","input":"x"}'), { call: { outputTokensMin: 16 } }, 'that of OpenAI');
  const thinking = { type: 'enabled', budget_tokens: 2_000 };
  const body = { model: 'm', max_tokens: 9_000, messages: [{ role: 'user', content: 'x' }] };
  const least = (more: object): unknown => {
    const result = MESSAGES.read(Buffer.from(JSON.stringify({ ...body, ...more })));
    return result.ok && result.call.outputTokensMin;
  };
  t.equal(least({ thinking }), 2_001, 'the budget for thinking is a part of it');
  t.equal(least({ thinking: { type: 'adaptive' } }), 1);
  t.end();
});

void t.test('the numbers of events go on', (t) => {
  const { errors } = RESPONSES;
  const numberIn = (text: string): number | undefined => errors.numberIn?.(Buffer.from(text));
  const event = (number: number, text: string): string =>
    `event: x\ndata: ${JSON.stringify({ type: 'x', sequence_number: number, delta: text })}\n\n`;
  t.equal(numberIn(event(4, 'a') + event(5, '"sequence_number":99,')), 5, 'not that of a text');
  t.equal(numberIn('data: {"delta":"é","sequence_number": 12 }\n\n'), 12);
  t.equal(numberIn(': keep-alive\n\n'), undefined);
  t.equal(numberIn('data: {"sequence_number":1'), undefined, 'cut');
  // The response repeats the tools of the request.
  const schema = { properties: { sequence_number: { type: 'integer' } }, default: { sequence_number: 9 } };
  const response = { tools: [{ description: 'x'.repeat(500), parameters: schema }] };
  for (const members of [
    { type: 'response.created', sequence_number: 3, response },
    { response, sequence_number: 3, type: 'response.created' },
  ]) {
    const text = event(2, 'a') + `event: response.created\ndata: ${JSON.stringify(members)}\n\n`;
    t.equal(numberIn(text), 3, 'not that of a schema');
    t.equal(numberIn(text.slice(0, -9)), undefined, 'an event of which a part has come');
    t.equal(numberIn(text + event(4, 'b')), 4);
  }
  t.match(errors.event({ code: 'internal_error', message: 'x' }, 'r', 6), /"sequence_number":6,/);
  t.end();
});

void t.test('what decoders would read in two ways is refused', (t) => {
  for (const [text, message] of [
    ['{"model":"m","input":"x","Model":"n"}', 'Model must be written as model'],
    ['{"model":"m","input":"x","input":"y"}', 'input must be given once, in whatever case'],
    ['{"model":"m","input":[{"role":"user","Role":"x"}]}', 'input[0].Role must be written as role'],
    [
      '{"model":"m","input":[{"content":[{"Text":"x"}]}]}',
      'input[0].content[0].Text must be written as text',
    ],
    [
      '{"model":"m","input":"x","max_output_tokens":1e2}',
      'max_output_tokens must be written in digits alone, got 1e2',
    ],
    ['{"model":"m","input":"x","n_predict":9}', 'n_predict must not be given, use max_output_tokens'],
    ['{"model":"m","input":"x","background":true}', 'background must be false or left out, got true'],
    ['[]', 'the request body must be a JSON object, got an array'],
  ] as const)
    t.match(READ(text), { ok: false, error: { code: 'invalid_parameters', message } }, text);
  t.end();
});

void t.test("the published client raises the stream's error event", async (t) => {
  const text = RESPONSES.errors.event({ code: 'provider_unavailable', message: 'Größe' }, 'r1');
  const stream = Stream.fromSSEResponse(new Response(text), new AbortController());
  await t.rejects(
    async () => {
      for await (const event of stream) t.fail(JSON.stringify(event));
    },
    { constructor: OpenAI.APIError, code: 'provider_unavailable', message: 'Größe' },
  );
  t.match(JSON.parse(text.slice(text.indexOf('{'))), {
    type: 'error',
    code: 'provider_unavailable',
    message: 'Größe',
    param: null,
    sequence_number: Number,
  });
});
