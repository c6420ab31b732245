/** Responses of Converse and ConverseStream as chat completions, streams cut at every byte, errors. */
import t from 'tap';
import { BEDROCK } from '#src/providers/bedrock/bedrock.js';
import { ProviderError, type ProviderFailure } from '#src/providers/provider.js';
import { bedrockCall, event, exception, message, type GivenCall } from '../../../support/bedrock.js';
import { joinedChat } from '../../../support/chat-joiner.js';

type Members = Record<string, unknown>;
const HEAD = { id: 'chatcmpl-req-1', model: 'us.anthropic.claude-sonnet-4-5-20250929-v1:0' };

function whole(content: Members[], more: Members = {}, body: Members = {}, given: GivenCall = {}): Members {
  const response = { output: { message: { role: 'assistant', content } }, stopReason: 'end_turn', ...more };
  const { text } = BEDROCK.readResponse(Buffer.from(JSON.stringify(response)), bedrockCall(body, given));
  return JSON.parse(text) as Members;
}

/** What a stream in those pieces becomes. */
function relayed(pieces: readonly Uint8Array[], body: Members = {}, given: GivenCall = {}): string {
  const stream = BEDROCK.openStream(bedrockCall({ ...body, stream: true }, given));
  return pieces.map((piece) => stream.push(piece)).join('') + stream.end();
}

function chunksOf(text: string): Members[] {
  const events = text.split('\n\n').slice(0, -1);
  t.equal(events.pop(), 'data: [DONE]');
  return events.map((line) => JSON.parse(line.slice('data: '.length)) as Members);
}

function failure(act: () => unknown): ProviderFailure | undefined {
  try {
    act();
  } catch (error) {
    if (error instanceof ProviderError) return error.failure;
    throw error;
  }
  return undefined;
}

const delta = (contentBlockIndex: number, given: Members): Buffer =>
  event('contentBlockDelta', { contentBlockIndex, delta: given, p: 'abcdef' });
const stop = (contentBlockIndex: number): Buffer => event('contentBlockStop', { contentBlockIndex });
const start = (contentBlockIndex: number, toolUse: Members): Buffer =>
  event('contentBlockStart', { contentBlockIndex, start: { toolUse } });

const USAGE = {
  inputTokens: 10,
  outputTokens: 20,
  totalTokens: 65,
  cacheReadInputTokens: 30,
  cacheWriteInputTokens: 5,
  cacheDetails: [
    { ttl: '1h', inputTokens: 3 },
    { ttl: '5m', inputTokens: 2 },
  ],
};
const MODEL_FIELDS = { usage: { output_tokens_details: { thinking_tokens: 7 } } };

/** All that Claude says: thinking, hidden thinking, text, two calls, the second without input. */
const CONTENT = [
  { reasoningContent: { reasoningText: { text: 'Let me "think"…', signature: 'c2lnbmVk' } } },
  { reasoningContent: { redactedContent: Buffer.from('EpYC').toString('base64') } },
  { text: 'Grüße, \u2028"you"\n𝄞\u0001' },
  { toolUse: { toolUseId: 't1', name: 'weather', input: { city: 'Köln' } } },
  { toolUse: { toolUseId: 't2', name: 'time', input: {} } },
];
const MESSAGES = [
  event('messageStart', { role: 'assistant', p: 'abc' }),
  delta(0, { reasoningContent: { text: 'Let me ' } }),
  delta(0, { reasoningContent: { text: '"think"…' } }),
  delta(0, { reasoningContent: { signature: 'c2ln' } }),
  delta(0, { reasoningContent: { signature: 'bmVk' } }),
  stop(0),
  delta(1, { reasoningContent: { redactedContent: Buffer.from('EpYC').toString('base64') } }),
  stop(1),
  delta(2, { text: 'Grüße, ' }),
  delta(2, { text: '\u2028"you"\n' }),
  delta(2, { text: '𝄞\u0001' }),
  event('somethingNew', { a: 1 }),
  stop(2),
  start(3, { toolUseId: 't1', name: 'weather' }),
  delta(3, { toolUse: { input: '' } }),
  delta(3, { toolUse: { input: '{"city":' } }),
  delta(3, { toolUse: { input: '"Köln"}' } }),
  stop(3),
  start(4, { toolUseId: 't2', name: 'time' }),
  stop(4),
  event('messageStop', { stopReason: 'tool_use', additionalModelResponseFields: MODEL_FIELDS }),
  event('metadata', { usage: USAGE, metrics: { latencyMs: 5 } }),
];

void t.test('a whole response: text, thinking, calls, usage', (t) => {
  const response = whole(CONTENT, {
    stopReason: 'tool_use',
    usage: USAGE,
    additionalModelResponseFields: MODEL_FIELDS,
  });
  t.same(response, {
    ...HEAD,
    object: 'chat.completion',
    created: Date.UTC(2026, 10, 23, 12) / 1000,
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: 'Grüße, \u2028"you"\n𝄞\u0001',
          reasoning_content: 'Let me "think"…',
          thinking_blocks: [
            { type: 'thinking', thinking: 'Let me "think"…', signature: 'c2lnbmVk' },
            { type: 'redacted_thinking', data: 'EpYC' },
          ],
          tool_calls: [
            { id: 't1', type: 'function', function: { name: 'weather', arguments: '{"city":"Köln"}' } },
            { id: 't2', type: 'function', function: { name: 'time', arguments: '{}' } },
          ],
        },
        logprobs: null,
        finish_reason: 'tool_calls',
      },
    ],
    usage: {
      prompt_tokens: 45,
      completion_tokens: 20,
      total_tokens: 65,
      prompt_tokens_details: { cached_tokens: 30, cache_write_tokens: 5, cache_write_1h_tokens: 3 },
      completion_tokens_details: { reasoning_tokens: 7 },
    },
  });
  t.end();
});

void t.test('a stream joined is the whole response, cut at every byte', (t) => {
  const response = whole(CONTENT, {
    stopReason: 'tool_use',
    usage: USAGE,
    additionalModelResponseFields: MODEL_FIELDS,
  });
  const [choice] = response.choices as { message: Members }[];
  const bytes = Buffer.concat(MESSAGES);
  const text = relayed([bytes]);
  const joined = joinedChat(chunksOf(text));
  t.same(joined.message, choice!.message);
  t.equal(joined.finish, 'tool_calls');
  t.same(joined.usage, response.usage);
  t.match(joined, HEAD);
  t.equal(relayed(MESSAGES), text);
  for (let cut = 1; cut < bytes.length; cut++) {
    if (relayed([bytes.subarray(0, cut), bytes.subarray(cut)]) !== text) t.fail(`cut at ${cut}`);
  }
  t.equal(relayed(Array.from(bytes, (byte) => Uint8Array.of(byte))), text);
  // An end anywhere before the message's own is no whole message; what follows it is the usage.
  const usage = event('metadata', { usage: USAGE, metrics: { latencyMs: 5 } }).length;
  for (let end = 0; end < bytes.length - usage; end += 7) {
    t.equal(failure(() => relayed([bytes.subarray(0, end)]))?.status, 502);
  }
  t.notOk(joinedChat(chunksOf(relayed(MESSAGES.slice(0, -1)))).usage);
  t.end();
});

void t.test('an exception that comes with the end of the message takes nothing back', (t) => {
  const failed = exception('internalServerException', 'x');
  const text = event('contentBlockDelta', { contentBlockIndex: 0, delta: { text: 'Hi' } });
  const end = event('messageStop', { stopReason: 'end_turn' });
  const joined = joinedChat(chunksOf(relayed([Buffer.concat([text, end, failed])])));
  t.equal(joined.message.content, 'Hi');
  t.equal(failure(() => relayed([Buffer.concat([text, failed, end])]))?.status, 500);
  t.end();
});

void t.test('text goes on as it came only if it is JSON as ours', (t) => {
  const streamed = (body: Members): unknown => {
    const end = event('messageStop', { stopReason: 'end_turn' });
    return joinedChat(chunksOf(relayed([event('contentBlockDelta', body), end]))).message.content;
  };
  for (const text of [
    'plain',
    '',
    '"\\\n\r\t\b\f/',
    '\ud83d',
    '\u0000',
    '\u2029',
    'x'.repeat(10_000),
    '}],"p":""}',
  ]) {
    t.equal(streamed({ contentBlockIndex: 0, delta: { text }, p: 'ab' }), text);
    t.equal(streamed({ delta: { text }, contentBlockIndex: 0 }), text);
  }
  t.end();
});

void t.test('reasons to stop', (t) => {
  for (const [reason, finish] of [
    ['end_turn', 'stop'],
    ['stop_sequence', 'stop'],
    ['max_tokens', 'length'],
    ['model_context_window_exceeded', 'length'],
    ['guardrail_intervened', 'content_filter'],
    ['content_filtered', 'content_filter'],
    ['malformed_model_output', 'stop'],
    ['malformed_tool_use', 'stop'],
    ['tool_use', 'stop'],
    ['of a later version', 'stop'],
    ['constructor', 'stop'],
  ] as const) {
    t.match(whole([{ text: 'x' }], { stopReason: reason }), { choices: [{ finish_reason: finish }] }, reason);
    const text = relayed([delta(0, { text: 'x' }), event('messageStop', { stopReason: reason })]);
    t.equal(joinedChat(chunksOf(text)).finish, finish, `${reason}, streamed`);
  }
  t.match(whole([CONTENT[3]!], { stopReason: 'end_turn' }), {
    choices: [{ finish_reason: 'tool_calls', message: { content: null } }],
  });
  t.end();
});

void t.test('the tool of a JSON schema is the content; other tools of the server are none of ours', (t) => {
  const body = { response_format: { type: 'json_object' } };
  const use = { toolUseId: 't', name: 'json_response', input: { a: 1 } };
  t.match(whole([{ toolUse: use }], { stopReason: 'tool_use' }, body), {
    choices: [{ finish_reason: 'stop', message: { content: '{"a":1}' } }],
  });
  const streamed = (body: Members, first: Members): Members =>
    joinedChat(
      chunksOf(
        relayed(
          [
            start(0, first),
            delta(0, { toolUse: { input: '{"a"' } }),
            delta(0, { toolUse: { input: ':1}' } }),
            stop(0),
            event('messageStop', { stopReason: 'tool_use' }),
          ],
          body,
        ),
      ),
    ).message;
  t.match(streamed(body, { toolUseId: 't', name: 'json_response' }), { content: '{"a":1}' });
  t.notOk(streamed(body, { toolUseId: 't', name: 'json_response' }).tool_calls);
  const own = { ...body, tools: [{ type: 'function', function: { name: 'json_response' } }] };
  t.match(streamed(own, { toolUseId: 't', name: 'json_response_2' }), { content: '{"a":1}' });
  t.match(streamed(own, { toolUseId: 't', name: 'json_response' }), {
    tool_calls: [{ function: { name: 'json_response', arguments: '{"a":1}' } }],
  });
  t.match(whole([{ toolUse: use }], { stopReason: 'tool_use' }, own), {
    choices: [
      { finish_reason: 'tool_calls', message: { tool_calls: [{ function: { name: 'json_response' } }] } },
    ],
  });
  const server = { toolUseId: 't', name: 'nova_grounding', type: 'server_tool_use' };
  t.notOk(streamed({}, server).tool_calls);
  t.notOk(
    (whole([{ toolUse: { ...server, input: {} } }]).choices as { message: Members }[])[0]!.message.tool_calls,
  );
  t.match(whole([{ citationsContent: { content: [{ text: 'cited' }], citations: [] } }]), {
    choices: [{ message: { content: 'cited' } }],
  });
  t.end();
});

void t.test('no ARN and no account is in a response', (t) => {
  const profile = 'arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0';
  const hidden = 'arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3';
  const done = event('messageStop', { stopReason: 'end_turn' });
  t.equal(whole([{ text: 'x' }], {}, {}, { model: profile }).model, 'us.amazon.nova-lite-v1:0');
  t.equal(whole([{ text: 'x' }], {}, {}, { model: hidden }).model, 'bedrock');
  t.notMatch(relayed([done], {}, { model: hidden }), /123456789012|a1b2c3/);
  t.end();
});

void t.test('what comes after an error behind the last text is ignored, however it is cut', (t) => {
  const end = event('messageStop', { stopReason: 'end_turn' });
  const error = exception('internalServerException', 'late');
  const usage = event('metadata', { usage: { inputTokens: 1, outputTokens: 1 } });
  const expected = relayed([delta(0, { text: 'x' }), end]);
  for (let at = 1; at <= error.length; at++) {
    const [first, second] = [error.subarray(0, at), error.subarray(at)];
    // Too short for the start of a message, so that nothing but its end could be missed.
    const last = usage.subarray(0, 5);
    t.equal(relayed([delta(0, { text: 'x' }), end, first, second, last]), expected, `cut at ${at}`);
    const joined = Buffer.concat([second, usage]);
    t.equal(relayed([delta(0, { text: 'x' }), end, first, joined, last]), expected, `joined at ${at}`);
  }
  t.end();
});

void t.test('errors in a stream are those of a response', (t) => {
  for (const [type, status] of [
    ['throttlingException', 429],
    ['modelStreamErrorException', 500],
    ['modelTimeoutException', 500],
    ['validationException', 400],
    ['serviceUnavailableException', 503],
    ['internalServerException', 500],
    ['ofALaterVersion', 500],
    ['constructor', 500],
  ] as const) {
    t.match(
      failure(() => relayed([MESSAGES[0]!, exception(type, 'why')])),
      { status, message: 'why' },
      type,
    );
  }
  const error = message(
    { ':message-type': 'error', ':error-code': 'InternalFailure', ':error-message': 'why' },
    {},
  );
  t.match(
    failure(() => relayed([error])),
    { status: 500, message: 'why' },
  );
  // Before anything was said, nothing goes out: another upstream can answer.
  const stream = BEDROCK.openStream(bedrockCall({ stream: true }));
  t.equal(stream.push(MESSAGES[0]!), '');
  t.end();
});

void t.test('what breaks the protocol is an invalid response', (t) => {
  const invalid = (...pieces: Buffer[]): void => {
    t.match(
      failure(() => relayed(pieces)),
      { status: 502, message: /^invalid response/ },
    );
  };
  invalid(message({}, {}));
  invalid(message({ ':message-type': 'event', ':event-type': 'contentBlockDelta' }, 'x'));
  invalid(start(0, { name: 'f' }));
  invalid(start(0, { toolUseId: 't', name: 'f' }), delta(0, { toolUse: { input: 5 } }));
  invalid(
    ...Array.from({ length: 3 }, () => delta(0, { reasoningContent: { signature: 'x'.repeat(400_000) } })),
  );
  for (const body of [
    '',
    '<html>',
    '[]',
    '{}',
    '{"output":{"message":{}}}',
    '{"output":{"message":{"content":[5]}}}',
    '{"output":{"message":{"content":[{"toolUse":{"name":"f","input":{}}}]}}}',
    '{"output":{"message":{"content":[{"toolUse":{"toolUseId":"t","input":{}}}]}}}',
    '{"output":{"message":{"content":[{"toolUse":{"toolUseId":5,"name":"f","input":{}}}]}}}',
  ]) {
    t.match(
      failure(() => BEDROCK.readResponse(Buffer.from(body), bedrockCall({}))),
      { status: 502, message: /^invalid response/ },
    );
  }
  t.end();
});
