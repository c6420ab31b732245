/** Settings of `router_settings` and `litellm_settings`, and texts that Tollgate would read otherwise. */
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

void t.test('members of an alias that is a map have a remark', (t) => {
  const { models, lines } = importedFile(t, {
    model_list: [model('a')],
    router_settings: {
      model_group_alias: { x: { model: 'a', hidden: true }, y: { model: 'a' }, z: { hidden: 1 } },
    },
  });
  t.same(models[0]!.aliases, ['x', 'y']);
  t.same(
    lines.filter((line) => line.includes('model_group_alias')),
    [
      'router_settings.model_group_alias.x.hidden: has no counterpart; GET /v1/models lists no aliases',
      'router_settings.model_group_alias.z.hidden: has no counterpart; GET /v1/models lists no aliases',
      'router_settings.model_group_alias.z: its model is not among those carried over',
    ],
  );
  t.end();
});

void t.test('drop_params by the words of YAML 1.1', (t) => {
  const claude = (own: object): object => model('m', { model: 'anthropic/claude-x', ...own });
  const cases: readonly (readonly [file: unknown, entry: object, drops: boolean, isTold: boolean])[] = [
    ['yes', {}, true, false],
    ['On', {}, true, false],
    [true, {}, true, false],
    [true, { drop_params: 'no' }, false, false],
    [false, { drop_params: 'yes' }, true, false],
    ['off', {}, false, false],
    [null, {}, false, false],
    ['os.environ/X', {}, false, true],
    [false, { drop_params: 1 }, false, true],
  ];
  for (const [value, own, drops, isTold] of cases) {
    const file = { model_list: [claude(own)], litellm_settings: { drop_params: value } };
    const { upstreams, lines } = importedFile(t, file);
    t.equal(upstreams[0]!.drop_unsupported, drops, JSON.stringify([value, own]));
    t.equal(
      lines.some((line) => line.endsWith('drop_params: is neither true nor false')),
      isTold,
    );
  }
  t.end();
});

void t.test('drop_params gets a remark if an upstream passes all on', (t) => {
  const claude = { model: 'anthropic/claude-x' };
  const azure = { model: 'azure/d', api_base: 'https://r.openai.azure.com' };
  const cases: readonly (readonly [file: unknown, entries: readonly object[], paths: readonly string[]])[] = [
    [true, [{}], ['litellm_settings']],
    [true, [azure, claude], ['litellm_settings']],
    [true, [claude], []],
    [false, [{}, azure], []],
    [null, [{ drop_params: true }], ['model_list[0].litellm_params']],
    [null, [{ ...azure, drop_params: 'yes' }], ['model_list[0].litellm_params']],
    [null, [{ drop_params: false }, { ...claude, drop_params: true }], []],
  ];
  for (const [value, entries, paths] of cases) {
    const { lines } = importedFile(t, {
      model_list: entries.map((own, at) => model(`m${at}`, own)),
      litellm_settings: { drop_params: value },
    });
    const told = lines.filter((line) => line.includes('drop_params: '));
    t.same(
      told.map((line) => line.replace(/\.drop_params: .*/, '')),
      paths,
      JSON.stringify([value, entries]),
    );
  }
  t.end();
});

void t.test('max_tokens gets a remark if max_output_tokens says otherwise', (t) => {
  const cases: readonly (readonly [info: object, tokens: number, isTold: boolean])[] = [
    [{ max_output_tokens: 8_000, max_tokens: 8_000 }, 8_000, false],
    [{ max_output_tokens: 8_000, max_tokens: 128_000 }, 8_000, true],
    [{ max_output_tokens: 0, max_tokens: 8_000 }, 16_384, true],
    [{ max_tokens: 8_000 }, 8_000, false],
    [{ max_output_tokens: 8_000 }, 8_000, false],
  ];
  for (const [model_info, tokens, isTold] of cases) {
    const { models, lines } = importedFile(t, { model_list: [{ ...model('m'), model_info }] });
    t.equal(models[0]!.max_output_tokens, tokens, JSON.stringify(model_info));
    t.equal(
      lines.some((line) => line.startsWith('model_list[0].model_info.max_tokens: ')),
      isTold,
      JSON.stringify(model_info),
    );
  }
  t.end();
});

void t.test('what looks like a reference of Tollgate stays a text', (t) => {
  const headers = { 'x-a': 'a${b', 'x-b': 'a${b}', 'x-c': 'a$${b}', 'x-d': 'a${b${c}' };
  const { models, variables } = importedFile(t, {
    model_list: [
      model('${NAME}', { model: 'openai/${MODEL}', extra_headers: headers }),
      model('other', { model: 'os.environ/OTHER', custom_llm_provider: 'openai' }),
    ],
    router_settings: {
      model_group_alias: { '${ALIAS}': '${NAME}' },
      fallbacks: [{ other: ['${NAME}'] }],
    },
  });
  const [first, second] = models;
  t.match(first, { id: '${NAME}', aliases: ['${ALIAS}'], upstreams: [{ model: '${MODEL}', headers }] });
  t.match(second, { fallbacks: ['${NAME}'], upstreams: [{ model: 'value-of-OTHER' }] });
  t.same(variables, ['K', 'OTHER']);
  t.end();
});

void t.test('what many entries share is written for each, as few aliases of YAML are expanded', (t) => {
  const file = {
    model_list: Array.from({ length: 150 }, (_, at) => model(`m${at}`, { model: 'mistral/mistral-large' })),
  };
  const { models, lines } = importedFile(t, file);
  t.equal(models.length, 150);
  t.same(
    lines.filter((line) => line.includes('config check')),
    [],
  );
  t.end();
});
