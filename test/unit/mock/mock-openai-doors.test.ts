/** What the mock reads at OpenAI's other paths. */
import t from 'tap';
import { AZURE_MOCK } from '#src/mock/mock-azure.js';
import { OPENAI_MOCK } from '#src/mock/mock-openai.js';

const WRONG: [path: string, body: object, named: RegExp][] = [
  ...[1e12, 4_097, 0, -1, 1.5].map((dimensions): [string, object, RegExp] => [
    '/v1/embeddings',
    { input: 'a', dimensions },
    /dimensions/,
  ]),
  ...[1e12, 129, 0, -1, 1.5].map((n): [string, object, RegExp] => [
    '/v1/completions',
    { prompt: 'a', n },
    /'n'/,
  ]),
];

void t.test('numbers that would use up the memory are refused, as OpenAI refuses them', (t) => {
  for (const [path, body, named] of WRONG) {
    const text = JSON.stringify(body);
    t.match(
      OPENAI_MOCK.read({ path, query: '', headers: {}, body: text }),
      { status: 400, error: named },
      `${path} ${text}`,
    );
    const azurePath = path.replace('/v1', '/openai/v1');
    t.match(
      AZURE_MOCK.read({ path: azurePath, query: '', headers: { 'api-key': 'k' }, body: text }),
      { status: 400, error: named },
      `${azurePath} ${text}`,
    );
  }
  for (const [path, body] of [
    ['/v1/embeddings', { input: 'a', dimensions: 4_096 }],
    ['/v1/embeddings', { input: 'a', dimensions: null }],
    ['/v1/completions', { prompt: 'a', n: 128 }],
    ['/v1/completions', { prompt: 'a', n: null }],
  ] as const)
    t.match(
      OPENAI_MOCK.read({ path, query: '', headers: {}, body: JSON.stringify(body) }),
      { door: {} },
      path,
    );
  t.end();
});
