/** Paths, bodies and errors of Vertex AI, by whose model it is. */
import t from 'tap';
import { VERTEX } from '#src/providers/vertex/vertex.js';
import { geminiCall } from '../gemini/gemini-call.js';
import { requestOf } from '../../../support/provider-forms.js';

const SETTINGS = { name: 'vertex', apiVersion: 'v1', project: 'my-project', region: 'europe-west4' } as const;
const TOKEN = { kind: 'bearer', token: 'ya29.test' } as const;

const PATHS: [name: string, model: string, stream: boolean, path: string][] = [
  [
    'Gemini',
    'gemini-2.5-pro',
    false,
    '/v1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-2.5-pro:generateContent',
  ],
  [
    'Gemini, a stream',
    'gemini-2.5-pro',
    true,
    '/v1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse',
  ],
  [
    'a tuned model',
    '4611686018427387904',
    false,
    '/v1/projects/my-project/locations/europe-west4/endpoints/4611686018427387904:generateContent',
  ],
];

for (const [name, model, stream, path] of PATHS)
  void t.test(name, (t) => {
    const call = geminiCall({}, { model, stream, credential: TOKEN }, SETTINGS);
    const request = requestOf(VERTEX, call);
    t.equal(request.path, path);
    t.strictSame(request.headers, ['authorization', 'Bearer ya29.test']);
    t.strictSame(JSON.parse(request.body), { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }] });
    t.end();
  });

const CLAUDE =
  '/v1/projects/my-project/locations/global/publishers/anthropic/models/claude-opus-4-5@20251101';
const claudeCall = (stream: boolean): ReturnType<typeof geminiCall> =>
  geminiCall(
    { stream, max_tokens: 64 },
    { model: 'claude-opus-4-5@20251101', stream, credential: TOKEN },
    { ...SETTINGS, region: 'global', betas: ['context-1m-2025-08-07'] },
  );

void t.test("Claude is asked in Anthropic's words, with version and betas in the body", (t) => {
  for (const stream of [false, true]) {
    const { path, headers, body } = requestOf(VERTEX, claudeCall(stream));
    t.equal(path, `${CLAUDE}${stream ? ':streamRawPredict' : ':rawPredict'}`);
    t.strictSame(headers, ['authorization', 'Bearer ya29.test']);
    const members = JSON.parse(body) as Record<string, unknown>;
    t.match(members, {
      anthropic_version: 'vertex-2023-10-16',
      anthropic_beta: ['context-1m-2025-08-07'],
      max_tokens: 64,
      messages: [{ role: 'user' }],
    });
    t.equal(members.model, undefined);
    t.equal(members.stream, stream ? true : undefined);
  }
  t.end();
});

void t.test("Claude answers in Anthropic's words", (t) => {
  const message = {
    id: 'msg_vrtx_1',
    type: 'message',
    role: 'assistant',
    model: 'claude-opus-4-5',
    content: [{ type: 'text', text: 'Hi' }],
    stop_reason: 'end_turn',
    usage: { input_tokens: 3, output_tokens: 1 },
  };
  const read: unknown = JSON.parse(
    VERTEX.readResponse(Buffer.from(JSON.stringify(message)), claudeCall(false)).text,
  );
  t.match(read, { id: 'msg_vrtx_1', choices: [{ message: { content: 'Hi' }, finish_reason: 'stop' }] });
  const events = [
    { type: 'message_start', message: { ...message, content: [], stop_reason: null } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hi' } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 1 } },
    { type: 'message_stop' },
  ];
  const stream = VERTEX.openStream(claudeCall(true));
  const sse = events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join('');
  t.match(
    stream.push(Buffer.from(sse)) + stream.end(),
    /"content":"Hi"[^]*"finish_reason":"stop"[^]*\[DONE\]/,
  );
  t.end();
});

void t.test("Gemini answers in Google's words", (t) => {
  const response = { candidates: [{ content: { parts: [{ text: 'Hi' }] }, finishReason: 'STOP' }] };
  const call = geminiCall({}, {}, SETTINGS);
  t.match(VERTEX.readResponse(Buffer.from(JSON.stringify(response)), call).text, /"content":"Hi"/);
  const stream = VERTEX.openStream(call);
  t.match(stream.push(Buffer.from(`data: ${JSON.stringify(response)}\n\n`)), /"content":"Hi"/);
  t.end();
});

void t.test('errors are of Anthropic or of Google', (t) => {
  const none = (): undefined => undefined;
  const anthropics = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } };
  t.match(VERTEX.readError(529, none, JSON.stringify(anthropics)), { status: 503 });
  const error = {
    code: 404,
    status: 'NOT_FOUND',
    message: 'Publisher Model `projects/my-project/locations/us-east5/publishers/x` was not found.',
  };
  const failure = VERTEX.readError(404, none, JSON.stringify({ error }));
  t.match(failure, { status: 404, code: 'model_not_found' });
  t.notMatch(failure.message, /my-project/);
  t.match(VERTEX.readError(429, none, JSON.stringify([{ error: { ...error, code: 429 } }])), { status: 429 });
  t.end();
});

void t.test("a passed message has only those of the caller's betas that Vertex knows", (t) => {
  const betas =
    'claude-code-20250219, interleaved-thinking-2025-05-14,prompt-caching-scope-2026-01-05,web-search-2025-03-05';
  const betasAt = (door: 'messages' | 'count_tokens'): unknown => {
    const { body } = VERTEX.writePassed!(claudeCall(false), '{"model":"claude-m"}', {
      door,
      stream: false,
      betas,
    });
    return (JSON.parse(body as string) as { anthropic_beta: unknown }).anthropic_beta;
  };
  const known = ['context-1m-2025-08-07', 'interleaved-thinking-2025-05-14'];
  t.strictSame(betasAt('messages'), [...known, 'web-search-2025-03-05']);
  t.strictSame(betasAt('count_tokens'), known);
  t.end();
});

void t.test('a count of tokens names the model in the body, without a path', (t) => {
  const passed = { door: 'count_tokens', stream: false, betas: '' } as const;
  for (const name of ['claude-opus-4-5@20251101', 'publishers/anthropic/models/claude-opus-4-5@20251101']) {
    const given = JSON.stringify({ messages: [], model: name });
    const { path, body } = VERTEX.writePassed!(claudeCall(false), given, passed);
    t.equal(
      path,
      '/v1/projects/my-project/locations/global/publishers/anthropic/models/count-tokens:rawPredict',
    );
    t.equal(
      body,
      '{"model":"claude-opus-4-5@20251101","anthropic_version":"vertex-2023-10-16",' +
        '"anthropic_beta":["context-1m-2025-08-07"],"messages":[]}',
    );
    const message = VERTEX.writePassed!(claudeCall(false), given, { ...passed, door: 'messages' });
    t.equal(message.path, `${CLAUDE}:rawPredict`);
    t.notMatch(message.body, '"model"');
  }
  t.end();
});

void t.test('a passed call for another model than Claude is not sent', (t) => {
  for (const model of ['gemini-2.5-pro', '4611686018427387904', 'publishers/google/models/claude-x', ''])
    t.throws(
      () =>
        VERTEX.writePassed!(claudeCall(false), JSON.stringify({ model }), {
          door: 'messages',
          stream: false,
          betas: '',
        }),
      /is for Claude/,
    );
  t.end();
});
