/** Paths of Vertex AI, by what kind of model it is. */
import t from 'tap';
import type { ProviderRequest } from '#src/providers/provider.js';
import { VERTEX } from '#src/providers/vertex/vertex.js';
import { geminiCall } from '../gemini/gemini-call.js';

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
    const request = VERTEX.write(call) as ProviderRequest;
    t.equal(request.path, path);
    t.strictSame(request.headers, ['authorization', 'Bearer ya29.test']);
    t.strictSame(JSON.parse(request.body), { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }] });
    t.end();
  });
