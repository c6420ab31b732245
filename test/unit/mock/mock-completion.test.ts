/** The mock's answers: text, events, usage and faults. */
import t from 'tap';
import { contentPieces, responseTo, wordNumbers, type MockResponse } from '#src/mock/mock-completion.js';
import { readMockRequest } from '#src/mock/mock-openai.js';
import type { MockProtocol } from '#src/mock/mock-protocol.js';
import { MOCK_PROTOCOLS } from '#src/mock/mock-upstream.js';
import { RESPONSES_MOCK } from '#src/mock/mock-responses.js';
import { MOCK_DEFAULTS, optionsWithQuery } from '#src/mock/mock-options.js';
import { chunksOf, eventData, isWholeText, textOf } from '../../support/sse.js';

const whole = readMockRequest('{"model":"m","messages":[{"role":"user","content":"12345678"}]}')!;
const stream = { ...whole, stream: true, includeUsage: true };

const bytesOf = (completion: MockResponse): string =>
  Buffer.concat(completion.pieces.map((piece) => Buffer.from(piece))).toString();
const streamed = (query: string, request = stream): string =>
  bytesOf(responseTo(optionsWithQuery(MOCK_DEFAULTS, query), request, undefined));
const answered = (query: string): MockResponse =>
  responseTo(optionsWithQuery(MOCK_DEFAULTS, query), whole, undefined);

void t.test('pieces sum to the bytes asked for, and carry their numbers', (t) => {
  for (const [bytes, chunks] of [
    [400, 20],
    [401, 20],
    [20, 1],
    [3_000, 1_000],
    [550, 7],
  ] as const) {
    const pieces = contentPieces(bytes, chunks);
    t.equal(pieces.length, chunks);
    const text = pieces.join('');
    t.ok(text.length >= bytes, `${bytes} in ${chunks}`);
    t.ok(isWholeText(text, chunks));
  }
  t.equal(contentPieces(401, 20).join('').length, 401);
  t.same(wordNumbers('w0 xw2 w2 '), [0, 2, 2]);
  t.notOk(isWholeText('w0 w2 ', 2));
  t.end();
});

void t.test('a whole answer and a stream carry the same text and usage', (t) => {
  const body = JSON.parse(bytesOf(answered('chunks=3&bytes=30'))) as {
    choices: [{ message: { content: string } }];
    usage: object;
  };
  const chunks = chunksOf(streamed('chunks=3&bytes=30'));
  t.equal(textOf(chunks), body.choices[0].message.content);
  t.same(chunks.at(-1)?.usage, body.usage);
  t.match(body.usage, { prompt_tokens: 2, completion_tokens: 8, total_tokens: 10 });
  t.end();
});

void t.test('a stream ends with finish, usage where asked for, and [DONE]', (t) => {
  const withUsage = eventData(streamed('chunks=2'));
  t.equal(withUsage.length, 6);
  t.equal(withUsage.at(-1), '[DONE]');
  t.match(JSON.parse(withUsage.at(-2)!), { choices: [], usage: { prompt_tokens: 2 } });
  t.match(JSON.parse(withUsage.at(-3)!), { choices: [{ finish_reason: 'stop' }], usage: null });
  const without = eventData(streamed('chunks=2', { ...stream, includeUsage: false }));
  t.equal(without.length, 5);
  t.notMatch(without.join(''), /usage/);
  t.end();
});

void t.test('usage as told', (t) => {
  const usage = (query: string): unknown =>
    chunksOf(streamed(query)).find((chunk) => chunk.usage !== null && chunk.usage !== undefined)?.usage;
  t.match(usage('prompt_tokens=7&completion_tokens=9&cached_tokens=3'), {
    prompt_tokens: 7,
    completion_tokens: 9,
    total_tokens: 16,
    prompt_tokens_details: { cached_tokens: 3 },
  });
  t.equal(usage('usage=missing'), undefined);
  t.match(usage('usage=absurd'), { prompt_tokens: 1e15 });
  t.match(usage('usage=negative'), { completion_tokens: -5 });
  t.same(eventData(streamed('usage=late')).slice(-2)[0], '[DONE]');
  t.end();
});

void t.test('split and CR LF change bytes and writes, not events', (t) => {
  const plain = streamed('chunks=5');
  const split = responseTo(optionsWithQuery(MOCK_DEFAULTS, 'chunks=5&split=7'), stream, undefined);
  t.equal(bytesOf(split), plain);
  t.ok(split.pieces.slice(0, -1).every((piece) => piece.length === 7));
  t.same(eventData(streamed('chunks=5&event_crlf=1')), eventData(plain));
  const protocols = Object.entries({ ...MOCK_PROTOCOLS, responses: RESPONSES_MOCK });
  for (const [name, protocol] of protocols) {
    // The events of Amazon's stream are binary.
    if (name === 'bedrock') continue;
    const options = optionsWithQuery(MOCK_DEFAULTS, 'chunks=2&event_crlf=1');
    const text = bytesOf(responseTo(options, stream, undefined, protocol));
    t.ok(text.includes('\r\n\r\n') && !/(?<!\r)\n/.test(text), name);
  }
  t.end();
});

void t.test('faults of a stream', (t) => {
  const last = (query: string): string | undefined => eventData(streamed(query)).at(-1);
  t.not(last('fault=no-done'), '[DONE]');
  t.match(last('fault=error-event'), /^\{"error":/);
  t.equal(streamed('fault=empty'), '');
  const broken = eventData(streamed('fault=broken-sse')).filter(
    (data) => !data.endsWith('}') && data !== '[DONE]',
  );
  t.equal(broken.length, 1);
  for (const [fault, ending] of [
    ['reset-mid', 'reset'],
    ['stall-mid', 'stall'],
  ] as const) {
    const completion = responseTo(
      optionsWithQuery(MOCK_DEFAULTS, `chunks=10&fault=${fault}`),
      stream,
      undefined,
    );
    t.equal(completion.ending, ending);
    t.equal(completion.pieces.length, 7, 'half of 13 events');
  }
  t.end();
});

void t.test('faults of a whole answer', (t) => {
  for (const fault of ['reset-before', 'stall-before']) t.equal(answered(`fault=${fault}`).hasHead, false);
  t.match(answered('fault=reset-headers'), { hasHead: true, lengthBytes: 400, pieces: [], ending: 'reset' });
  t.throws(() => JSON.parse(bytesOf(answered('fault=broken-json'))) as unknown);
  t.equal(answered('fault=wrong-type').contentType, 'text/html');
  t.equal(answered('fault=empty').lengthBytes, 0);
  const half = answered('fault=reset-mid');
  t.ok(half.lengthBytes! > bytesOf(half).length, 'less than its length');
  t.end();
});

void t.test('a status carries an error or the given body', (t) => {
  t.match(answered('status=503&retry_after=2'), { status: 503, retryAfter: '2' });
  t.match(JSON.parse(bytesOf(answered('status=503'))), { error: { code: 'mock_error' } });
  t.equal(bytesOf(answered('status=400&body=oh')), 'oh');
  t.end();
});

void t.test('an echo is cut into chunks', (t) => {
  const echoed = '{"headers":{},"body":"{}"}';
  const completion = responseTo(optionsWithQuery(MOCK_DEFAULTS, 'chunks=4&echo=1'), stream, echoed);
  t.equal(textOf(chunksOf(bytesOf(completion))), echoed);
  t.end();
});

void t.test('tools, thinking and cache writes, in whole and streamed', (t) => {
  const request = { ...stream, toolNames: ['look', 'go'] };
  const query =
    'tool_calls=3&thinking_bytes=40&cache_write_tokens=5&cache_write_hour_tokens=6&cached_tokens=7';
  const options = optionsWithQuery(MOCK_DEFAULTS, query);
  const body = JSON.parse(bytesOf(responseTo(options, { ...request, stream: false }, undefined))) as {
    choices: [{ message: { tool_calls: { function: { name: string } }[]; reasoning_content: string } }];
    usage: object;
  };
  t.same(
    body.choices[0].message.tool_calls.map((call) => call.function.name),
    ['look', 'go', 'look'],
  );
  t.equal(body.choices[0].message.reasoning_content.length, 40);
  t.match(body, { choices: [{ finish_reason: 'tool_calls' }] });
  t.match(body.usage, {
    prompt_tokens: 20,
    prompt_tokens_details: { cached_tokens: 7, cache_write_tokens: 11, cache_write_1h_tokens: 6 },
    completion_tokens_details: { reasoning_tokens: 10 },
  });
  const chunks = chunksOf(bytesOf(responseTo(options, request, undefined)));
  t.same(chunks.at(-1)?.usage, body.usage);
  const second = responseTo(options, { ...request, endsWithToolResult: true }, undefined);
  t.notMatch(bytesOf(second), /tool_calls/, 'a turn that brings results ends');
  t.equal(eventData(streamed('fault=error-first')).length, 1);
  t.end();
});

void t.test('a request that forbids tools gets no call of one', (t) => {
  const messages = [{ role: 'user', content: 'hi' }];
  const tool = { name: 'f', parameters: { type: 'object' } };
  const requests: [protocol: MockProtocol, path: string, auto: object, none: object][] = [
    [
      MOCK_PROTOCOLS.openai,
      '/v1/chat/completions',
      { model: 'm', messages, tools: [{ type: 'function', function: tool }] },
      { tool_choice: 'none' },
    ],
    [
      RESPONSES_MOCK,
      '/v1/responses',
      { model: 'm', input: 'hi', tools: [{ type: 'function', ...tool }] },
      { tool_choice: 'none' },
    ],
    [
      MOCK_PROTOCOLS.anthropic,
      '/v1/messages',
      { model: 'm', messages, max_tokens: 9, tools: [{ name: 'f', input_schema: { type: 'object' } }] },
      { tool_choice: { type: 'none' } },
    ],
    [
      MOCK_PROTOCOLS.gemini,
      '/v1beta/models/m:generateContent',
      {
        contents: [{ role: 'user', parts: [{ text: 'hi' }] }],
        tools: [{ functionDeclarations: [{ name: 'f' }] }],
      },
      { toolConfig: { functionCallingConfig: { mode: 'NONE' } } },
    ],
  ];
  const headers = {
    'anthropic-version': '2023-06-01',
    'content-type': 'application/json',
    'x-api-key': 'k',
    'x-goog-api-key': 'k',
  };
  for (const [protocol, path, auto, none] of requests)
    for (const [members, calls] of [
      [auto, true],
      [{ ...auto, ...none }, false],
    ] as const) {
      const request = protocol.read({ path, query: '', headers, body: JSON.stringify(members) });
      if ('error' in request) {
        t.fail(`${path}: ${request.error}`);
        continue;
      }
      const options = optionsWithQuery(MOCK_DEFAULTS, 'tool_calls=1');
      t.equal(bytesOf(responseTo(options, request, undefined, protocol)).includes('"name":"f"'), calls, path);
    }
  t.end();
});

void t.test('a request that allows some tools alone gets calls of these', (t) => {
  const named = (type: string): object[] => ['f', 'g', 'h'].map((name) => ({ type, name }));
  const inFunction = (tool: object): object => ({ type: 'function', function: tool });
  const chat = { model: 'm', messages: [], tools: named('x').map(inFunction) };
  const responses = { model: 'm', input: 'hi', tools: named('function') };
  const allowed = { type: 'allowed_tools', mode: 'required', tools: named('function').slice(1) };
  const allowedInChat = { mode: 'required', tools: named('x').slice(1).map(inFunction) };
  const converse = {
    messages: [{ role: 'user', content: [{ text: 'hi' }] }],
    toolConfig: {
      tools: ['f', 'g'].map((name) => ({ toolSpec: { name, inputSchema: { json: { type: 'object' } } } })),
      toolChoice: { tool: { name: 'g' } },
    },
  };
  const cases: [protocol: MockProtocol, path: string, members: object, names: string[]][] = [
    [MOCK_PROTOCOLS.openai, '/v1/chat/completions', chat, ['f', 'g', 'h']],
    [MOCK_PROTOCOLS.openai, '/v1/chat/completions', { ...chat, tool_choice: 'required' }, ['f', 'g', 'h']],
    [
      MOCK_PROTOCOLS.openai,
      '/v1/chat/completions',
      { ...chat, tool_choice: inFunction({ name: 'g' }) },
      ['g'],
    ],
    [
      MOCK_PROTOCOLS.openai,
      '/v1/chat/completions',
      { ...chat, tool_choice: { type: 'allowed_tools', allowed_tools: allowedInChat } },
      ['g', 'h'],
    ],
    [RESPONSES_MOCK, '/v1/responses', { ...responses, tool_choice: { type: 'function', name: 'g' } }, ['g']],
    [RESPONSES_MOCK, '/v1/responses', { ...responses, tool_choice: allowed }, ['g', 'h']],
    [MOCK_PROTOCOLS.bedrock, '/model/m/converse', converse, ['g']],
  ];
  for (const [protocol, path, members, names] of cases)
    t.match(
      protocol.read({
        path,
        query: '',
        headers: { authorization: 'Bearer k' },
        body: JSON.stringify(members),
      }),
      { toolNames: names },
      path,
    );
  t.end();
});
