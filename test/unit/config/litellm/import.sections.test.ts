/** Settings of `router_settings` and `litellm_settings`, and texts that Tollgate's file would read otherwise. */
import t from 'tap';
import { importedFile } from './support.js';

const model = (name: string, own: object = {}): object => ({
  model_name: name,
  litellm_params: { model: 'openai/gpt-4o', api_key: 'os.environ/K', ...own },
});

void t.test('fallbacks that are no list of maps have a remark', (t) => {
  const told = 'wanted is a list of maps from a model to a list of others; all else was left out';
  const cases: readonly (readonly [fallbacks: unknown, found: readonly string[], isTold: boolean])[] = [
    [{ a: ['b'] }, [], true],
    [['b', { a: ['b'] }], ['b'], true],
    ['b', [], true],
    [[{ a: ['b'] }], ['b'], false],
    [[], [], false],
    [null, [], false],
  ];
  for (const [fallbacks, found, isTold] of cases) {
    const file = { model_list: [model('a'), model('b')], router_settings: { fallbacks } };
    const { models, lines } = importedFile(t, file);
    t.same(models[0]!.fallbacks, found);
    t.equal(lines.includes(`router_settings.fallbacks: ${told}`), isTold, JSON.stringify(fallbacks));
  }
  t.end();
});
