/**
 * The mock that speaks Gemini's protocol, with @google/genai as its judge, and what it refuses. The SDK reads
 * what the mock sends, and what it writes itself passes the mock's checks.
 */
import { GoogleGenAI, FunctionCallingConfigMode, type GenerateContentConfig } from '@google/genai';
import t from 'tap';
import { MOCK_DEFAULTS } from '#src/mock/mock-options.js';
import { GEMINI_MOCK } from '#src/mock/mock-gemini.js';
import { startMockUpstream } from '#src/mock/mock-upstream.js';
import type { Scope } from '../../support/mock.js';

const MODEL = 'gemini-3-flash-preview';
const config: GenerateContentConfig = {
  systemInstruction: 'Be brief.',
  temperature: 0.5,
  maxOutputTokens: 100,
  stopSequences: ['END'],
  thinkingConfig: { includeThoughts: true },
  tools: [
    {
      functionDeclarations: [
        {
          name: 'weather',
          parametersJsonSchema: { type: 'object', properties: { text: { type: 'string' } } },
        },
      ],
    },
  ],
  toolConfig: { functionCallingConfig: { mode: FunctionCallingConfigMode.AUTO } },
};

async function mockOrigin(t: Scope): Promise<string> {
  const mock = await startMockUpstream({
    host: '127.0.0.1',
    port: 0,
    record: false,
    provider: 'gemini',
    defaults: MOCK_DEFAULTS,
  });
  t.teardown(() => mock.close());
  return `http://127.0.0.1:${mock.port}`;
}

void t.test('the SDK reads a whole response', async (t) => {
  const baseUrl = await mockOrigin(t);
  const { models } = new GoogleGenAI({ apiKey: 'k', httpOptions: { baseUrl } });
  const contents = 'x-mock: bytes=20&chunks=2&thinking_bytes=12&cached_tokens=3&prompt_tokens=9';
  const response = await models.generateContent({ model: MODEL, contents, config });
  t.equal(response.text, 'w0 xxxxxxxw1 xxxxxxx');
  t.equal(response.candidates?.[0]?.finishReason, 'STOP');
  t.match(response.candidates?.[0]?.content?.parts?.[0], { thought: true });
  t.match(response.usageMetadata, {
    promptTokenCount: 9,
    cachedContentTokenCount: 3,
    candidatesTokenCount: 5,
    thoughtsTokenCount: 3,
    totalTokenCount: 17,
  });
});

void t.test('the SDK reads a stream', async (t) => {
  const baseUrl = await mockOrigin(t);
  const { models } = new GoogleGenAI({ apiKey: 'k', httpOptions: { baseUrl } });
  const contents = 'x-mock: bytes=40&chunks=4&thinking_bytes=12&split=7';
  const stream = await models.generateContentStream({ model: MODEL, contents, config });
  let text = '';
  let last;
  for await (const chunk of stream) {
    text += chunk.text ?? '';
    last = chunk;
  }
  t.equal(text, 'w0 xxxxxxxw1 xxxxxxxw2 xxxxxxxw3 xxxxxxx');
  t.match(last, {
    candidates: [{ finishReason: 'STOP' }],
    usageMetadata: { candidatesTokenCount: 10, thoughtsTokenCount: 3 },
  });
});

void t.test('the SDK calls tools over two turns', async (t) => {
  const baseUrl = await mockOrigin(t);
  const { models } = new GoogleGenAI({ apiKey: 'k', httpOptions: { baseUrl } });
  const question = { role: 'user', parts: [{ text: 'x-mock: tool_calls=2&bytes=0' }] };
  const first = await models.generateContent({ model: MODEL, contents: [question], config });
  const calls = first.functionCalls ?? [];
  t.match(calls, [
    { id: 'call_mock_0', name: 'weather' },
    { id: 'call_mock_1', name: 'weather' },
  ]);
  const streamed = await models.generateContentStream({ model: MODEL, contents: [question], config });
  const seen: unknown[] = [];
  for await (const chunk of streamed) seen.push(...(chunk.functionCalls ?? []));
  t.strictSame(seen, calls);
  const results = calls.map(({ id, name }) => ({
    functionResponse: { id: id!, name: name!, response: { result: 'sun' } },
  }));
  const second = await models.generateContent({
    model: MODEL,
    contents: [question, first.candidates![0]!.content!, { role: 'user', parts: results }],
    config,
  });
  t.equal(second.functionCalls, undefined);
  t.match(second.text, /^w0 /);
});

void t.test('the SDK reads an error', async (t) => {
  const baseUrl = await mockOrigin(t);
  const { models } = new GoogleGenAI({
    apiKey: 'k',
    httpOptions: { baseUrl, retryOptions: { attempts: 1 } },
  });
  const failed = models.generateContent({ model: MODEL, contents: 'x-mock: status=429' });
  t.match(await failed.catch((error: unknown) => error), { status: 429 });
  const stream = await models.generateContentStream({ model: MODEL, contents: 'x-mock: fault=error-event' });
  await t.rejects(async () => {
    for await (const chunk of stream) t.ok(chunk);
  });
});

const user = (...parts: object[]): object => ({ role: 'user', parts });
const model = (...parts: object[]): object => ({ role: 'model', parts });
const hello = user({ text: 'Hello' });
const call = { functionCall: { name: 'f', args: {} } };
const response = { functionResponse: { name: 'f', response: {} } };

const BODIES: [name: string, body: object, status: number | undefined][] = [
  ['the least', { contents: [hello] }, undefined],
  ['no contents', {}, 400],
  ['a member that nobody knows', { contents: [hello], temperature: 1 }, 400],
  ['a member of every object', { contents: [hello], constructor: 1 }, 400],
  ['a member of a part', { contents: [user({ text: 'x', cache_control: {} })] }, 400],
  ['a member of the settings', { contents: [hello], generationConfig: { top_p: 1 } }, 400],
  ['a number that is a text', { contents: [hello], generationConfig: { topP: '1' } }, 400],
  ['a list that is none', { contents: hello }, 400],
  ['a record that is none', { contents: ['Hello'] }, 400],
  ['a role that is none', { contents: [{ role: 'assistant', parts: [{ text: 'x' }] }] }, 400],
  ['no parts', { contents: [user()] }, 400],
  ['an empty text', { contents: [user({ text: '' })] }, 400],
  ['too warm', { contents: [hello], generationConfig: { temperature: 3 } }, 400],
  ['a schema of no type', { contents: [hello], generationConfig: { responseJsonSchema: {} } }, 400],
  ['logprobs of nothing', { contents: [hello], generationConfig: { logprobs: 2 } }, 400],
  [
    'two words on thinking',
    {
      contents: [hello],
      generationConfig: { thinkingConfig: { thinkingBudget: 1, thinkingLevel: 'LOW' } },
    },
    400,
  ],
  ['a mode that is none', { contents: [hello], toolConfig: { functionCallingConfig: { mode: 'X' } } }, 400],
  [
    'names beside AUTO',
    {
      contents: [hello],
      toolConfig: { functionCallingConfig: { mode: 'AUTO', allowedFunctionNames: ['f'] } },
    },
    400,
  ],
  ['a call and its result', { contents: [hello, model(call), user(response)] }, undefined],
  ['a result without a call', { contents: [hello, model({ text: 'a' }), user(response)] }, 400],
  ['a result at the start', { contents: [user(response)] }, 400],
  ['a call without its result', { contents: [hello, model(call, call), user(response)] }, 400],
];

for (const [name, body, status] of BODIES)
  void t.test(`checked: ${name}`, (t) => {
    const read = GEMINI_MOCK.read({
      path: '/v1beta/models/gemini-2.5-flash:generateContent',
      query: '',
      headers: { 'x-goog-api-key': 'k' },
      body: JSON.stringify(body),
    });
    t.equal('status' in read ? read.status : undefined, status);
    t.end();
  });

void t.test('a call without a signature is refused by Gemini 3', (t) => {
  const read = (part: object): unknown =>
    GEMINI_MOCK.read({
      path: `/v1beta/models/${MODEL}:generateContent`,
      query: '',
      headers: { 'x-goog-api-key': 'k' },
      body: JSON.stringify({ contents: [hello, model(part), user(response)] }),
    });
  t.match(read(call), { status: 400, error: /thought_signature/ });
  t.match(read({ ...call, thoughtSignature: 'c2ln' }), { endsWithToolResult: true });
  t.end();
});

void t.test('paths, queries and keys', (t) => {
  const body = JSON.stringify({ contents: [hello] });
  const key = { 'x-goog-api-key': 'k' };
  const gemini = (path: string, query: string, headers: Record<string, string> = key): unknown =>
    GEMINI_MOCK.read({ path: `/v1beta/models/${path}`, query, headers, body });
  t.match(gemini('m:generateContent', ''), { stream: false, promptTokens: 2 });
  t.match(gemini('m:streamGenerateContent', 'alt=sse'), { stream: true });
  t.match(gemini('m:streamGenerateContent', ''), { status: 404 });
  t.match(gemini('m:generateContent', 'alt=sse'), { status: 404 });
  t.match(gemini('m:countTokens', ''), { status: 404 });
  t.match(gemini('missing:generateContent', ''), { status: 404 });
  t.match(gemini('m:generateContent', '', {}), { status: 403 });
  t.match(gemini('m:generateContent', '', { 'x-goog-api-key': 'invalid' }), {
    status: 400,
    error: /API_KEY_INVALID/,
  });
  t.end();
});
