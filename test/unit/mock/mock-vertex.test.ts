/** The mock of Vertex AI: @google/genai as its judge for Gemini, and what it refuses, of Claude too. */
import { GoogleGenAI } from '@google/genai';
import { OAuth2Client } from 'google-auth-library';
import t from 'tap';
import { responseTo } from '#src/mock/mock-completion.js';
import { MOCK_DEFAULTS, optionsWithQuery } from '#src/mock/mock-options.js';
import type { MockRequest } from '#src/mock/mock-protocol.js';
import { startMockUpstream } from '#src/mock/mock-upstream.js';
import { VERTEX_MOCK } from '#src/mock/mock-vertex.js';

const PLACE = '/v1/projects/p/locations/europe-west4';

void t.test('the SDK speaks to it', async (t) => {
  const answers = MOCK_DEFAULTS;
  const mock = await startMockUpstream({
    host: '127.0.0.1',
    port: 0,
    record: false,
    provider: 'vertex',
    defaults: answers,
  });
  t.teardown(() => mock.close());
  const authClient = new OAuth2Client();
  authClient.setCredentials({ access_token: 'ya29', expiry_date: Date.now() + 3_600_000 });
  const { models } = new GoogleGenAI({
    vertexai: true,
    project: 'p',
    location: 'europe-west4',
    apiVersion: 'v1',
    googleAuthOptions: { authClient },
    httpOptions: { baseUrl: `http://127.0.0.1:${mock.port}` },
  });
  const asked = { model: 'gemini-2.5-pro', contents: 'x-mock: bytes=3&chunks=1' };
  const response = await models.generateContent(asked);
  t.equal(response.text, 'w0 ');
  let text = '';
  for await (const chunk of await models.generateContentStream(asked)) text += chunk.text ?? '';
  t.equal(text, 'w0 ');
});

const TOKEN = { authorization: 'Bearer t' };
const GEMINI = { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }] };
const CLAUDE = {
  anthropic_version: 'vertex-2023-10-16',
  max_tokens: 5,
  messages: [{ role: 'user', content: 'Hello' }],
};
const read = (path: string, body: object, query = '', headers: Record<string, string> = TOKEN): unknown =>
  VERTEX_MOCK.read({ path: `${PLACE}/${path}`, query, headers, body: JSON.stringify(body) });

void t.test('paths and tokens', (t) => {
  const gemini = 'publishers/google/models/m:generateContent';
  t.match(read(gemini, GEMINI), { model: 'm', stream: false });
  t.match(read('publishers/google/models/m:streamGenerateContent', GEMINI, 'alt=sse'), { stream: true });
  t.match(read('endpoints/123:generateContent', GEMINI), { model: '123' });
  t.match(read(gemini, GEMINI, '', { 'x-goog-api-key': 'k' }), { status: 401 });
  t.match(read('publishers/google/models/missing:generateContent', GEMINI), {
    status: 404,
    error: /projects\/p/,
  });
  t.match(read('models/m:generateContent', GEMINI), { status: 404 });
  t.match(read('publishers/google/models/m:rawPredict', GEMINI), { status: 404 });
  t.end();
});

void t.test('Claude', (t) => {
  const claude = 'publishers/anthropic/models/claude-haiku-4-5@20251001';
  const raw = `${claude}:rawPredict`;
  t.match(read(raw, CLAUDE), { model: 'claude-haiku-4-5@20251001', stream: false, promptTokens: 2 });
  t.match(read(raw, { ...CLAUDE, anthropic_beta: ['context-1m-2025-08-07'] }), { stream: false });
  t.match(read(`${claude}:streamRawPredict`, { ...CLAUDE, stream: true }), { stream: true });
  for (const wrong of [
    { ...CLAUDE, anthropic_version: '2023-06-01' },
    { ...CLAUDE, anthropic_beta: 'context-1m-2025-08-07' },
    { ...CLAUDE, model: 'claude-haiku-4-5' },
    { ...CLAUDE, stream: true },
    { ...CLAUDE, wishes: 3 },
    [],
  ])
    t.match(read(raw, wrong), { status: 400, error: /"type":"error"/ });
  t.match(read(`${claude}:generateContent`, CLAUDE), { status: 404 });
  const count = 'publishers/anthropic/models/count-tokens:rawPredict';
  const counted = { anthropic_version: CLAUDE.anthropic_version, messages: CLAUDE.messages };
  t.match(read(count, { model: 'claude-x', ...counted }), { model: 'claude-x', isCount: true });
  t.match(read(count, counted), { status: 400, error: /model: Field required/ });
  t.match(read(raw, { model: 'claude-x', ...CLAUDE }), { error: /model: Extra inputs are not permitted/ });
  t.end();
});

void t.test('the publisher decides on the protocol of the response, whatever the model is called', (t) => {
  const textOf = (publisher: string, method: string, body: object): string => {
    const asked = read(`publishers/${publisher}/models/claude-or-not:${method}`, body) as MockRequest;
    const named = read(`publishers/${publisher}/models/other:${method}`, body) as MockRequest;
    const [text, other] = [asked, named].map((request) =>
      Buffer.from(responseTo(MOCK_DEFAULTS, request, undefined, VERTEX_MOCK).pieces[0]!).toString(),
    );
    t.equal(other!.replaceAll('other', 'claude-or-not'), text);
    return text!;
  };
  t.match(textOf('anthropic', 'rawPredict', CLAUDE), '"type":"message"');
  t.match(textOf('google', 'generateContent', GEMINI), '"candidates"');
  t.end();
});

void t.test('errors of Claude have the form of Claude, those of Gemini that of Google', (t) => {
  const failed = (path: string, body: object, query: string): string => {
    const isStream = path.includes('stream');
    const asked = read(path, body, isStream && path.includes('google') ? 'alt=sse' : '') as MockRequest;
    const { pieces } = responseTo(optionsWithQuery(MOCK_DEFAULTS, query), asked, undefined, VERTEX_MOCK);
    return pieces.map((piece) => Buffer.from(piece).toString()).join('');
  };
  const claude = 'publishers/anthropic/models/claude-haiku-4-5@20251001';
  const streamed = `${claude}:streamRawPredict`;
  t.match(
    failed(streamed, { ...CLAUDE, stream: true }, 'fault=error-first'),
    /^event: error\ndata: \{"type":"error"/,
  );
  t.match(failed(`${claude}:rawPredict`, CLAUDE, 'status=529'), /^\{"type":"error"/);
  const gemini = 'publishers/google/models/m';
  t.match(failed(`${gemini}:streamGenerateContent`, GEMINI, 'fault=error-first'), /^data: \{"error":/);
  t.match(failed(`${gemini}:generateContent`, GEMINI, 'status=503'), /^\{\s*"error":/);
  t.end();
});
