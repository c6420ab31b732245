import t from 'tap';
import { crossCheck } from '#src/config/cross-checks.js';
import type { SettingsDraft } from '#src/config/schema.js';

const URL = 'http://127.0.0.1:1/v1';

/** What is wrong with the models, each with its path. */
function errorsOf(...models: readonly object[]): string[] {
  const errors: string[] = [];
  const report = (path: readonly (string | number)[], text: string): void => {
    errors.push(`${path.join('.')} ${text}`);
  };
  crossCheck({ models } as unknown as SettingsDraft, report, () => false);
  return errors;
}

void t.test('what a model serves has upstreams that can serve it', (t) => {
  const serves = ['embeddings'];
  t.same(
    errorsOf({ id: 'a', serves, upstreams: [{ provider: 'openai', url: URL }, { provider: 'azure' }] }),
    [],
  );
  t.same(errorsOf({ id: 'a', serves: ['chat'], upstreams: [{ provider: 'gemini' }, { url: 'echo:' }] }), []);
  t.match(errorsOf({ id: 'a', serves, upstreams: [{ provider: 'gemini' }] }), [
    /^models\.0\.upstreams\.0\.provider got gemini, which does not serve embeddings/,
  ]);
  t.match(
    errorsOf({
      id: 'a',
      serves: ['moderations', 'embeddings', 'rerank'],
      upstreams: [{ provider: 'azure' }],
    }),
    [
      /^models\.0\.upstreams\.0\.provider got azure, which does not serve moderations, rerank, want .* openai,/,
    ],
  );
  t.match(errorsOf({ id: 'a', serves: ['chat', 'rerank'], upstreams: [{ url: 'echo:' }] }), [
    /^models\.0\.upstreams\.0\.url got echo:, which does not serve rerank/,
  ]);
  t.match(errorsOf({ id: 'a', upstreams: [{ provider: 'anthropic', speaks: ['messages'] }] }), [
    /^models\.0\.upstreams\.0\.speaks given for anthropic/,
  ]);
  t.end();
});

void t.test('a fallback serves all that its model does', (t) => {
  const upstreams = [{ url: URL }];
  const fallback = (serves: readonly string[], other: readonly string[]): string[] =>
    errorsOf({ id: 'a', serves, fallbacks: ['b'], upstreams }, { id: 'b', serves: other, upstreams });
  t.same(fallback(['embeddings'], ['embeddings', 'chat']), []);
  t.match(fallback(['embeddings', 'chat'], ['chat']), [
    /^models\.0\.fallbacks\.0 got "b", which serves chat, want a model that serves embeddings and chat/,
  ]);
  t.end();
});
