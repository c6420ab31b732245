import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { importLitellm, remarkLine } from '#src/config/litellm/import.js';
import { imported, importedFile, loaded } from './support.js';

const FILE = readFileSync(join(process.cwd(), 'test/fixtures/litellm/config.yaml'), 'utf8');

void t.test('a file with everything in it', (t) => {
  const { yaml, remarks, variables } = importLitellm(FILE, 'config.yaml');
  const { models, plans } = loaded(t.testdir(), yaml, variables);
  t.notMatch(JSON.stringify(remarks), 'config check', 'it passes');
  t.same(
    models.map(({ id }) => id),
    ['gpt-4o', 'mini', 'llama', 'local', 'vllm', 'claude'],
  );
  const [azure, mini, llama, local, vllm, claude] = models;

  t.same(azure!.aliases, ['gpt-4', 'GPT-4']);
  t.same(azure!.price, { input: '2.5', output: '10' });
  t.match(azure!.upstreams, [
    {
      provider: 'azure',
      url: 'https://eu.openai.azure.com',
      api_version: '2024-06-01',
      key: 'value-of-AZURE_API_KEY_EU',
      model: 'gpt-4o-eu',
      weight: 1,
      requests_per_minute: 6,
      quota_scope: 'model',
    },
    {
      provider: 'azure',
      url: 'https://ca.openai.azure.com',
      key: 'value-of-AZURE_API_KEY_CA',
      weight: 240,
      requests_per_minute: 1_440,
    },
  ]);

  t.same(mini!.price, { input: '0.18', output: '0.6', cached_input: '0.075' }, 'the higher of two');
  t.equal(mini!.max_output_tokens, 16_384);
  t.match(mini!.upstreams, [
    {
      url: 'https://api.openai.com/v1',
      key: 'value-of-OPENAI_API_KEY',
      model: 'gpt-4o-mini',
      priority: 2,
      first_byte_timeout_ms: 30_000,
      idle_timeout_ms: 30_000,
      headers: { 'openai-organization': 'org-1', 'x-team': 'a${b}', 'x-api-key': 'value-of-MINI_X_API_KEY' },
    },
    { key: 'value-of-OPENAI_API_KEY_2', priority: 1 },
  ]);
  t.match(llama!.upstreams, [{ url: 'https://api.groq.com/openai/v1', key: 'value-of-GROQ_API_KEY' }]);
  t.match(local!.upstreams, [{ url: 'http://localhost:11434/v1', model: 'mistral' }]);
  t.notOk(local!.upstreams[0]!.key);
  t.match(vllm!.upstreams, [
    { url: 'http://0.0.0.0:8000/v1', model: 'facebook/opt-125m', key: 'value-of-VLLM_KEY' },
  ]);
  t.match(claude!.upstreams, [
    {
      provider: 'bedrock',
      region: 'us-west-2',
      model: 'anthropic.claude-instant-v1',
      drop_unsupported: true,
    },
  ]);
  t.notOk(claude!.upstreams[0]!.key, 'credentials of AWS are found by its chain');
  t.same(
    [mini!.fallbacks, mini!.fallback_on],
    [
      ['gpt-4o', 'claude'],
      ['unavailable', 'context_length'],
    ],
  );
  t.match(plans, [{ id: 'default', models: ['*'] }]);

  const lines = remarks.map((remark) => remarkLine('config.yaml', remark));
  const text = `${lines.join('\n')}\n`;
  const fileLines = FILE.split('\n');
  for (const { line, path } of remarks) {
    const name = path
      .split('.')
      .at(-1)!
      .replace(/\[\d+\]$/, '');
    // A merged name is written elsewhere: then the line is that of the entry's own map.
    t.ok(
      fileLines[line - 1]!.includes(name) || path.startsWith('model_list[3]'),
      `${path} is in line ${line}`,
    );
  }
  for (const told of [
    /:21: model_list\[2\]\.litellm_params\.api_key: .* set the variable OPENAI_API_KEY$/m,
    /api_key: .* set the variable OPENAI_API_KEY_2$/m,
    /:23: .*temperature: has no counterpart/m,
    /:25: .*stream_timeout/m,
    /extra_headers\.AI Group: a header that cannot be set/m,
    /model_info: supports_vision: /m,
    /model_list\[3\]\.litellm_params: the input price differs/m,
    /model_list\[4\]\.model_name: no price in the file/m,
    /api_base: the variable must be the provider's own address/m,
    /model_list\[7\]\.model_name: Tollgate has no patterns of names/m,
    /aws_secret_access_key: credentials come from where the AWS SDK finds them/m,
    /model_list\[8\]\.litellm_params\.model: no region is given: us-west-2 was taken/m,
    /router_settings\.fallbacks: of "nobody": its models are not among/m,
    /router_settings\.fallbacks: of "mini": 1 of its models are not carried over/m,
    /context_window_fallbacks: of "mini": a model has one list of fallbacks/m,
    /router_settings\.routing_strategy/m,
    /model_group_alias\.mini: a model has this name/m,
    /model_group_alias\.nothing: its model is not among/m,
    /general_settings\.master_key/m,
    /environment_variables/m,
  ]) {
    t.match(text, told);
  }
  t.notMatch(yaml + text, /secret-|-secret|database-/, 'no secret of the file');
  t.end();
});

void t.test('shares become whole weights', (t) => {
  const weightsOf = (shares: readonly object[]): number[] => {
    const entries = shares.map((share) => ({
      model_name: 'm',
      litellm_params: { model: 'gpt-4o', ...share },
    }));
    const { yaml, variables } = importLitellm(JSON.stringify({ model_list: entries }), 'x');
    return loaded(t.testdir(), yaml, variables).models[0]!.upstreams.map(({ weight }) => weight);
  };
  t.same(weightsOf([{ rpm: 60 }, { rpm: 600 }, { rpm: 60_000 }]), [1, 10, 1_000]);
  t.same(weightsOf([{ weight: 0.7 }, { weight: 0.1 }]), [1_000, 143]);
  t.same(
    weightsOf([
      { rpm: 5, weight: 1 },
      { rpm: 1, weight: 2 },
    ]),
    [1, 2],
    'weight goes before rpm',
  );
  t.same(weightsOf([{ tpm: 1 }, { tpm: 1_000_000 }]), [1, 1_000]);
  t.same(weightsOf([{ rpm: 3 }, {}]), [1, 1], 'no share is the smallest');
  t.same(weightsOf([{}, {}]), [1, 1]);
  t.end();
});

void t.test('providers with a protocol of their own', (t) => {
  const upstreamsOf = (...params: object[]) => {
    const entries = params.map((own, index) => ({ model_name: `m${index}`, litellm_params: own }));
    const { yaml, variables, remarks } = importLitellm(JSON.stringify({ model_list: entries }), 'x');
    const { models } = loaded(t.testdir(), yaml, variables);
    return {
      upstreams: models.map(({ upstreams: [first] }) => first!),
      texts: remarks.map(({ text }) => text),
    };
  };
  const { upstreams, texts } = upstreamsOf(
    { model: 'anthropic/claude-x' },
    { model: 'anthropic/claude-x', api_base: 'https://proxy.example/v1/messages', api_key: 'os.environ/K' },
    { model: 'gemini/gemini-x', api_key: 'os.environ/G' },
    {
      model: 'vertex_ai/gemini-x',
      vertex_project: 'p-1',
      vertex_location: 'europe-west4',
      vertex_credentials: '/etc/sa.json',
    },
    { model: 'vertex_ai/gemini-x', vertex_project: 'p-1', vertex_credentials: '{"private_key":"x"}' },
    { model: 'bedrock/x.y-v1:0', aws_region_name: 'eu-central-1', aws_profile_name: 'bills' },
    { model: 'azure/d', api_base: 'https://r.openai.azure.com/openai/v1/' },
    { model: 'azure/d', api_base: 'https://r.openai.azure.com', api_version: 'latest', drop_params: true },
  );
  t.match(upstreams, [
    {
      provider: 'anthropic',
      key: 'value-of-ANTHROPIC_API_KEY',
      model: 'claude-x',
    },
    { provider: 'anthropic', url: 'https://proxy.example', key: 'value-of-K' },
    { provider: 'gemini', key: 'value-of-G' },
    { provider: 'vertex', project: 'p-1', region: 'europe-west4', credentials_file: /sa\.json$/ },
    { provider: 'vertex', project: 'p-1', region: 'us-central1' },
    { provider: 'bedrock', region: 'eu-central-1', profile: 'bills', model: 'x.y-v1:0' },
    { provider: 'azure', url: 'https://r.openai.azure.com', api_version: 'v1' },
    { provider: 'azure', url: 'https://r.openai.azure.com', api_version: 'v1' },
  ]);
  t.notOk(upstreams[4]!.credentials_file, 'a secret is not carried over');
  t.ok(texts.some((text) => text.startsWith('a secret: write it into a file')));
  t.throws(() => upstreamsOf({ model: 'vertex_ai/gemini-x' }, { model: 'azure/d' }), {
    message: /vertex_project is missing: the entry was left out[^]*api_base is missing/,
  });
  t.end();
});

void t.test('limits of deployments, unless entries of one upstream differ in them', (t) => {
  const limitsOf = (...params: object[]) => {
    const entries = params.map((own) => ({
      model_name: 'm',
      litellm_params: { model: 'openai/x', api_key: 'os.environ/K', ...own },
    }));
    const { yaml, variables } = importLitellm(JSON.stringify({ model_list: entries }), 'x');
    return loaded(t.testdir(), yaml, variables).models[0]!.upstreams.map((upstream) => [
      upstream.requests_per_minute,
      upstream.tokens_per_minute,
      upstream.quota_scope,
    ]);
  };
  t.same(limitsOf({ rpm: 5, tpm: 700 }), [[5, 700, 'model']]);
  t.same(limitsOf({ rpm: 5 }, { rpm: 6 }), [
    [undefined, undefined, 'key'],
    [undefined, undefined, 'key'],
  ]);
  t.same(limitsOf({ rpm: 5 }, { rpm: 6, api_key: 'os.environ/L' }), [
    [5, undefined, 'model'],
    [6, undefined, 'model'],
  ]);
  t.same(limitsOf({ rpm: 0.5 }), [[undefined, undefined, 'key']]);
  t.end();
});

void t.test('prices of long prompts, and prices without a place', (t) => {
  const params = { model: 'openai/gpt-x', api_key: 'os.environ/K' };
  const costs = {
    input_cost_per_token: 1e-6,
    output_cost_per_token: 4e-6,
    cache_read_input_token_cost: 1e-7,
    cache_creation_input_token_cost: 2e-6,
    input_cost_per_token_above_200k_tokens: 2e-6,
    output_cost_per_token_above_200k_tokens: 6e-6,
    cache_creation_input_token_cost_above_1hr_above_200k_tokens: 5e-6,
  };
  const unplaced = {
    input_cost_per_audio_token: 1e-6,
    search_context_cost_per_query: { search_context_size_low: 0.03 },
    tiered_pricing: [{ from: 0 }],
    input_cost_per_token_above_272k_tokens_priority: 1e-6,
    input_cost_per_token_above_99999k_tokens: 1e-6,
  };
  const list = [
    { model_name: 'm', litellm_params: params, model_info: { ...costs, ...unplaced, supports_vision: true } },
    {
      model_name: 'm',
      litellm_params: {
        ...params,
        input_cost_per_token: 1.5e-6,
        output_cost_per_token: 3e-6,
        output_cost_per_token_above_128k_tokens: 4.5e-6,
        output_cost_per_token_above_200k_tokens: 7e-6,
        output_cost_per_second: 1,
      },
    },
    { model_name: 'calls', litellm_params: { ...params, input_cost_per_query: 0.5 } },
    ...[128, 200, 256, 272, 512].map((thousands) => ({
      model_name: 'many',
      litellm_params: {
        ...params,
        input_cost_per_token: 1e-6,
        output_cost_per_token: 4e-6,
        [`input_cost_per_token_above_${thousands}k_tokens`]: thousands === 512 ? 3e-6 : 2e-6,
      },
    })),
  ];
  const { yaml, remarks, variables } = importLitellm(JSON.stringify({ model_list: list }), 'x');
  const [model, calls, many] = loaded(t.testdir(), yaml, variables).models;
  t.same(model!.price, {
    input: '1.5',
    output: '4',
    cached_input: '0.1',
    cache_write: '2',
    long: [
      // The first entry has no other price here, and LiteLLM takes its usual one.
      { above: 128_000, input: '1.5', output: '4.5', cached_input: '0.1', cache_write: '2' },
      {
        above: 200_000,
        input: '2',
        output: '7',
        cached_input: '0.1',
        cache_write: '2',
        cache_write_1h: '5',
      },
    ],
  });
  t.same(calls!.price, { input: '0', output: '0', call: '0.5' });
  t.same(
    many!.price.long!.map(({ above, input }) => [above, input]),
    [
      [128_000, '2'],
      [200_000, '2'],
      [256_000, '2'],
      // Never below what the file has for longer prompts.
      [272_000, '3'],
    ],
  );
  const lines = remarks.map(({ path, text }) => `${path}: ${text}`);
  const none = 'a price that Tollgate has no place for: raise price.input or price.output';
  for (const name of Object.keys(unplaced))
    t.ok(lines.includes(`model_list[0].model_info.${name}: ${none}`), name);
  t.ok(lines.includes(`model_list[1].litellm_params.output_cost_per_second: ${none}`));
  t.match(lines.join('\n'), /model_info: supports_vision: a description/);
  t.match(lines.join('\n'), /the output price above 200000 tokens differs from another entry's/);
  t.match(
    lines.join('\n'),
    /its prices above 512000 tokens hold from 272000 on if they are higher: a model has at most 4/,
  );
  t.end();
});

void t.test('a chat model with a price and no bound of its output is told of', (t) => {
  const toldOf = (
    info: object,
    costs: object = { input_cost_per_token: 1e-6, output_cost_per_token: 1e-6 },
  ) => {
    const entry = { model_name: 'm', litellm_params: { model: 'openai/gpt-x', ...costs }, model_info: info };
    const { remarks } = importLitellm(JSON.stringify({ model_list: [entry] }), 'x');
    return remarks.some(({ text }) => text.startsWith('max_output_tokens is not in the file'));
  };
  t.ok(toldOf({}));
  t.ok(toldOf({ max_output_tokens: 0 }), 'one that cannot be');
  t.notOk(toldOf({ max_output_tokens: 32_000 }));
  t.notOk(toldOf({ max_tokens: 32_000 }));
  t.notOk(toldOf({ mode: 'embedding' }));
  t.notOk(toldOf({}, {}), 'its calls cost nothing, which another remark tells');
  t.end();
});

void t.test('names that every object has are as unknown as others', (t) => {
  const entryOf = (info: object) => ({
    model_name: 'm',
    litellm_params: { model: 'openai/gpt-x', api_key: 'os.environ/KEY', valueOf: 3 },
    model_info: info,
  });
  const file = {
    model_list: [entryOf({}), entryOf({ mode: 'constructor' })],
    router_settings: { toString: 1 },
  };
  const { remarks } = importLitellm(JSON.stringify(file), 'x');
  const toldOf = (path: string) => remarks.find((remark) => remark.path === path)?.text;
  t.equal(toldOf('model_list[0].litellm_params.valueOf'), 'has no counterpart');
  t.equal(toldOf('router_settings.toString'), 'has no counterpart');
  t.match(toldOf('model_list[1].model_info.mode'), /^constructor: Tollgate does not serve it/);
  t.end();
});

void t.test('what is no configuration is refused with its lines', (t) => {
  t.throws(() => importLitellm('model_list: [', 'x.yaml'), {
    code: 'config_refused',
    message: /^x\.yaml:1: /,
  });
  t.throws(() => importLitellm('', 'x.yaml'), { message: /no model of model_list can be carried over/ });
  t.throws(() => importLitellm('model_list: 3', 'x.yaml'), {
    message: /^x\.yaml:1: model_list: is no list\n/,
  });
  const nothing = 'model_list:\n  - model_name: m\n    litellm_params: hello\n';
  t.throws(() => importLitellm(nothing, 'x.yaml'), {
    message: /x\.yaml:3: model_list\[0\]\.litellm_params: is no map of settings\n/,
  });
  const secret =
    'model_list:\n  - model_name: m\n    litellm_params: { model: openai/x, api_base: "https://u:hidden@h/" }\n';
  let told = '';
  try {
    importLitellm(secret, 'x.yaml');
  } catch (error) {
    told = String(error);
  }
  t.match(told, /api_base: no http:\/\/ or https:\/\/ address without user and password/);
  t.notMatch(told, 'hidden');
  t.end();
});

void t.test('what models serve, and prices of calls', (t) => {
  const entry = (mode: string, model: string, more = ''): string =>
    `  - model_name: a-${mode}\n    litellm_params: { model: ${model}, api_key: os.environ/OPENAI_API_KEY${more} }\n    model_info: { mode: ${mode} }\n`;
  const file = `model_list:\n${[
    entry('completion', 'openai/gpt-3.5-turbo-instruct'),
    entry('moderation', 'openai/omni-moderation-latest', ', input_cost_per_query: 0.002'),
    entry('image_generation', 'openai/dall-e-3'),
    entry('rerank', 'anthropic/claude-x'),
    entry('embedding', 'openai/text-embedding-3-small'),
  ].join('')}`;
  const { yaml, remarks, variables } = importLitellm(file, 'config.yaml');
  const { models } = loaded(t.testdir(), yaml, variables);
  t.same(
    models.map(({ id, serves, price }) => [id, serves, price]),
    [
      ['a-completion', ['completions'], { input: '0', output: '0' }],
      ['a-moderation', ['moderations'], { input: '0', output: '0', call: '0.002' }],
      ['a-embedding', ['embeddings'], { input: '0', output: '0' }],
    ],
  );
  t.match(JSON.stringify(remarks), /image_generation: Tollgate does not serve it/);
  t.match(JSON.stringify(remarks), /rerank: Tollgate serves it only by upstreams with OpenAI's protocol/);
  t.end();
});

void t.test('Mistral gets its own names of members', (t) => {
  const file = `
model_list:
  - model_name: large
    litellm_params: { model: mistral/mistral-large-latest, api_key: os.environ/MISTRAL_API_KEY }
`;
  const { yaml, variables } = importLitellm(file, 'config.yaml');
  const { models } = loaded(t.testdir(), yaml, variables);
  t.match(models[0]!.upstreams, [
    {
      url: 'https://api.mistral.ai/v1',
      model: 'mistral-large-latest',
      member_names: { stream_options: '', max_completion_tokens: 'max_tokens', seed: 'random_seed' },
    },
  ]);
  t.end();
});

void t.test('upstreams beyond the most, and fallbacks of another service, are left out and told', (t) => {
  const entry = (name: string, model: string, mode = 'chat'): object => ({
    model_name: name,
    litellm_params: { model, api_key: 'os.environ/OPENAI_API_KEY' },
    model_info: { mode },
  });
  const text = JSON.stringify({
    model_list: [
      ...Array.from({ length: 66 }, () => entry('gpt', 'openai/gpt-4o')),
      entry('emb', 'openai/text-embedding-3-small', 'embedding'),
      entry('mini', 'openai/gpt-4o-mini'),
    ],
    router_settings: { fallbacks: [{ gpt: ['emb', 'mini'] }, { emb: ['mini'] }] },
  });
  const { yaml, remarks, variables, leftOut } = importLitellm(text, 'config.yaml');
  t.equal(leftOut, 2, 'the exit code tells of them');
  const { models } = loaded(t.testdir(), yaml, variables);
  t.same(
    models.map(({ id, fallbacks }) => [id, fallbacks]),
    [
      ['gpt', ['mini']],
      ['emb', []],
      ['mini', []],
    ],
  );
  const lines = remarks.map((remark) => remarkLine('config.yaml', remark)).join('\n');
  t.match(lines, /of "gpt": 1 of its models serve something else/);
  t.match(lines, /of "emb": 1 of its models serve something else/);
  t.end();
});

void t.test('how many fallbacks a model has is told of those that serve what it serves', (t) => {
  const linesWith = (chat: number): string => {
    const model = (id: string, mode: string): object => ({
      model_name: id,
      litellm_params: { model: `openai/${id}`, api_key: 'os.environ/K' },
      model_info: { mode },
    });
    const others = Array.from({ length: chat }, (_, at) => `c${at}`);
    const { models, lines } = importedFile(t, {
      model_list: [
        ...['gpt', ...others].map((id) => model(id, 'chat')),
        ...['e0', 'e1'].map((id) => model(id, 'embedding')),
      ],
      router_settings: { fallbacks: [{ gpt: [...others, 'e0', 'e1'] }] },
    });
    t.equal(models[0]!.fallbacks.length, Math.min(chat, 8));
    return lines.join('\n');
  };
  t.notMatch(linesWith(8), /a model has at most/);
  t.match(linesWith(9), /of "gpt": a model has at most 8/);
  t.end();
});

void t.test('limits that differ between models of one upstream', (t) => {
  const gpt = { model: 'openai/gpt-4o', api_key: 'os.environ/K' };
  const { upstreams, lines } = imported(
    t,
    { ...gpt, rpm: 100, tpm: 9_000 },
    { ...gpt, rpm: 50, tpm: 9_000 },
    { ...gpt, api_base: 'https://api.openai.com/v1/', rpm: 100, tpm: 9_000 },
    { ...gpt, api_key: 'os.environ/L', rpm: 7, tpm: 9 },
    { ...gpt, api_key: 'os.environ/L', rpm: 7 },
  );
  t.same(
    upstreams.map(({ requests_per_minute: rpm, tokens_per_minute: tpm }) => [rpm, tpm]),
    [
      [undefined, 9_000],
      [undefined, 9_000],
      [undefined, 9_000],
      [7, undefined],
      [7, undefined],
    ],
  );
  t.same(
    lines.filter((line) => line.includes('no limit')).map((line) => line.split(':')[0]),
    [...[0, 1, 2].map((at) => `model_list[${at}].litellm_params.rpm`), 'model_list[3].litellm_params.tpm'],
  );
  const claude = { name: 'claude', model: 'bedrock/anthropic.claude-v2' };
  const regions = imported(
    t,
    { ...claude, aws_region_name: 'us-east-1', rpm: 5 },
    { ...claude, aws_region_name: 'eu-west-1', rpm: 6 },
  );
  t.match(regions.upstreams, [{ requests_per_minute: 5 }, { requests_per_minute: 6 }], 'two regions');
  t.end();
});

void t.test('headers that the gateway writes, or that authorise beside the key', (t) => {
  const beta = { 'anthropic-beta': 'context-1m-2025-08-07, output-128k-2025-02-19' };
  const { upstreams, lines } = imported(
    t,
    {
      model: 'anthropic/claude-x',
      extra_headers: { ...beta, 'anthropic-version': '2023-06-01', 'x-a': 'b' },
    },
    { model: 'vertex_ai/claude-x', vertex_project: 'p', api_key: 'os.environ/V', extra_headers: beta },
    { model: 'bedrock/anthropic.x', extra_headers: { ...beta, 'X-Amz-Target': 'x' } },
    { model: 'anthropic/claude-x', extra_headers: { 'Anthropic-Beta': 'os.environ/BETAS' } },
    { model: 'azure/d', api_base: 'https://r.openai.azure.com', extra_headers: { 'API-Key': 'hidden' } },
    { model: 'gemini/g', api_key: 'none', extra_headers: { 'x-goog-api-key': 'os.environ/G' } },
    { model: 'openai/o', api_key: 'os.environ/O', extra_headers: { authorization: 'os.environ/P', ...beta } },
  );
  const betas = ['context-1m-2025-08-07', 'output-128k-2025-02-19'];
  t.match(upstreams, [
    { betas, headers: { 'x-a': 'b' } },
    { betas },
    { betas },
    { headers: {} },
    { key: 'value-of-AZURE_API_KEY' },
    { headers: { 'x-goog-api-key': 'value-of-G' } },
    { key: 'value-of-O', headers: { authorization: 'value-of-P', ...beta } },
  ]);
  t.notOk(upstreams[3]!.betas);
  const headers = (at: number): string => `model_list[${at}].litellm_params.extra_headers`;
  for (const line of [
    `${headers(0)}.anthropic-version: a header that the gateway writes itself: set api_version`,
    'model_list[1].litellm_params.api_key: vertex takes no key: name credentials_file, or see docs/credentials.md',
    `${headers(2)}.X-Amz-Target: a header that the gateway writes itself: calls are signed here, which writes them`,
    `${headers(3)}.Anthropic-Beta: a header that the gateway writes itself: set betas`,
    `${headers(4)}.API-Key: the upstream has a key or credentials, and takes one of the two`,
  ])
    t.ok(lines.includes(line), line);
  t.notMatch(lines.join(), /hidden/);
  t.end();
});

void t.test('words of LiteLLM before the name of a model are no part of it', (t) => {
  const { upstreams, lines } = imported(
    t,
    { model: 'bedrock/converse/us.anthropic.claude-sonnet-4-20250514-v1:0' },
    { model: 'bedrock/us-gov-west-1/anthropic.claude-v2' },
    { model: 'bedrock/invoke/eu-central-1/anthropic.claude-v2', aws_region_name: 'us-east-1' },
    { model: 'converse/amazon.nova-pro-v1:0', custom_llm_provider: 'bedrock' },
    { model: 'bedrock/arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.x' },
    { model: 'bedrock/llama/arn:aws:bedrock:us-east-1:123456789012:imported-model/r4c4' },
    { model: 'azure/o_series/my-o3', api_base: 'https://r.openai.azure.com' },
    { model: 'openai/responses/gpt-5-mini' },
    { model: 'groq/openai/gpt-oss-20b' },
    { model: 'vertex_ai/gemini/4965075652664360960', vertex_project: 'p', vertex_location: 'global' },
    { model: 'vertex_ai/claude-sonnet-4-5@20250929', vertex_project: 'p', vertex_location: 'global' },
    { model: 'vertex_ai/meta/llama-3.3-70b-instruct-maas', vertex_project: 'p', vertex_location: 'global' },
    { model: 'vertex_ai/openai/gpt-oss-120b-maas', vertex_project: 'p', vertex_location: 'global' },
  );
  t.match(
    upstreams.map(({ model, region }) => [model, region]),
    [
      ['us.anthropic.claude-sonnet-4-20250514-v1:0', 'us-west-2'],
      ['anthropic.claude-v2', 'us-gov-west-1'],
      ['anthropic.claude-v2', 'us-east-1'],
      ['amazon.nova-pro-v1:0', 'us-west-2'],
      [/^arn:.*inference-profile\/us\.anthropic\.x$/, 'us-west-2'],
      [/^llama\/arn:/, 'us-west-2'],
      ['my-o3', undefined],
      ['gpt-5-mini', undefined],
      ['openai/gpt-oss-20b', undefined],
      ['4965075652664360960', 'global'],
      ['claude-sonnet-4-5@20250929', 'global'],
      ['meta/llama-3.3-70b-instruct-maas', 'global'],
      ['openai/gpt-oss-120b-maas', 'global'],
    ],
  );
  t.same(
    lines.filter((line) => line.includes('before the slash')).map((line) => line.split(':')[0]),
    ['model_list[5].litellm_params.model'],
  );
  t.same(
    lines.filter((line) => line.includes('serves Gemini and Claude alone')).map((line) => line.split(':')[0]),
    ['model_list[11].litellm_params.model', 'model_list[12].litellm_params.model'],
  );
  t.end();
});

void t.test('a call may last as long as two silences of the timeout', (t) => {
  const { upstreams } = imported(
    t,
    { model: 'openai/gpt-4o', timeout: 1_800 },
    { model: 'openai/gpt-4o', timeout: 301 },
    { model: 'openai/gpt-4o', timeout: 300 },
    { model: 'openai/gpt-4o', timeout: 80_000 },
    { model: 'openai/gpt-4o' },
  );
  t.same(
    upstreams.map((one) => [one.first_byte_timeout_ms, one.idle_timeout_ms, one.total_timeout_ms]),
    [
      [1_800_000, 1_800_000, 3_600_000],
      [301_000, 301_000, 602_000],
      [300_000, 300_000, 600_000],
      [80_000_000, 80_000_000, 86_400_000],
      [60_000, 60_000, 600_000],
    ],
  );
  t.end();
});

void t.test('a wrong timeout of the whole file has one remark, where it is', (t) => {
  const timeoutsOf = (file: object) => {
    const model_list = ['a', 'b'].map((model_name) => ({
      model_name,
      litellm_params: { model: 'openai/gpt-4o' },
    }));
    const { upstreams, lines } = importedFile(t, { model_list, ...file });
    return {
      timeoutsMs: upstreams.map((one) => one.idle_timeout_ms),
      lines: lines.filter((line) => line.includes('timeout')),
    };
  };
  const rule = 'must be 0.001 to 86400 seconds (a day)';
  t.same(timeoutsOf({ router_settings: { timeout: 0 } }), {
    timeoutsMs: [60_000, 60_000],
    lines: [`router_settings.timeout: ${rule}`],
  });
  t.same(timeoutsOf({ litellm_settings: { request_timeout: 1e6 } }), {
    timeoutsMs: [60_000, 60_000],
    lines: [`litellm_settings.request_timeout: ${rule}`],
  });
  t.same(timeoutsOf({ router_settings: { timeout: -1 }, litellm_settings: { request_timeout: 5 } }), {
    timeoutsMs: [5_000, 5_000],
    lines: [`router_settings.timeout: ${rule}`],
  });
  t.same(timeoutsOf({ router_settings: { timeout: 7 }, litellm_settings: { request_timeout: 5 } }), {
    timeoutsMs: [7_000, 7_000],
    lines: ['litellm_settings.request_timeout: timeout of router_settings counts in its place'],
  });
  t.end();
});

void t.test('what config check would reject has a remark', (t) => {
  const entries = [
    { model: 'openai/with a space' },
    { model: 'azure/d', api_base: 'https://r.openai.azure.com', api_version: '2024/06' },
    { model: 'anthropic/x', api_base: 'https://proxy.example/?team=1' },
  ];
  for (const [at, problem] of [/model: got "with a space"/, /api_version/, /url: has a query/].entries()) {
    const list = [{ model_name: 'm', litellm_params: entries[at] }];
    const { yaml, variables, remarks } = importLitellm(JSON.stringify({ model_list: list }), 'x');
    t.throws(() => loaded(t.testdir(), yaml, variables), { code: 'config_refused' });
    const told = remarks.filter(({ text }) => text.startsWith('config check will reject what was written: '));
    t.equal(told.length, 1);
    t.match(told[0]!.text, problem);
    t.match(told[0]!.text, /: tollgate\.yaml:\d+: models\[0\]\.upstreams\[0\]\./);
  }
  t.end();
});

void t.test('what LiteLLM takes of a file that says a thing twice, or nothing', (t) => {
  const text = [
    'model_list:',
    '  - model_name: m',
    '    litellm_params: {model: openai/gpt-4o, api_key: os.environ/FIRST}',
    '    litellm_params: {model: openai/gpt-4o, api_key: os.environ/LAST}',
    'general_settings: {database_url: null, allowed_ips: [], master_key: ""}',
  ].join('\n');
  const { yaml, remarks, variables } = importLitellm(text, 'config.yaml');
  const { models } = loaded(t.testdir(), yaml, variables);
  t.match(models[0]!.upstreams, [{ key: 'value-of-LAST' }]);
  t.same(
    remarks.map((remark) => remarkLine('config.yaml', remark)).filter((line) => !line.includes('no price')),
    ['config.yaml:4: litellm_params: is in its map already: the last value was read, as LiteLLM does'],
    'and no remark on settings without a value',
  );
  t.end();
});

void t.test('a pattern of names is told what to write in its place', (t) => {
  t.throws(
    () => importLitellm('model_list: [{model_name: openai/*, litellm_params: {model: openai/*}}]', 'c.yaml'),
    /c\.yaml:1: model_list\[0\]\.model_name: Tollgate has no patterns of names, .* each model that callers may use/,
  );
  t.end();
});

void t.test('words that stand for no key of a local server', (t) => {
  const words = ['dummy', 'ollama', 'not-needed', 'sk-no-key-required', 'EMPTY', 'xxx', 'lm-studio', 'fake'];
  const { upstreams, lines } = imported(
    t,
    ...words.map((api_key) => ({ model: 'openai/m', api_base: 'http://h/v1', api_key })),
  );
  for (const { key } of upstreams) t.equal(key, undefined);
  t.notMatch(lines.join('\n'), 'set the variable');
  t.end();
});

void t.test("a key of a server elsewhere is never looked for in the provider's variable", (t) => {
  const address = 'http://10.0.0.1:8000';
  const { upstreams } = imported(
    t,
    { model: 'openai/gpt-4o', api_key: 'sk-written-inline' },
    { model: 'openai/qwen', api_base: `${address}/v1`, api_key: 'sk-of-the-server' },
    { model: 'openai/qwen', base_url: `${address}/v1`, api_key: 'sk-of-base-url' },
    { model: 'deepseek/deepseek-chat', base_url: `${address}/v1`, api_key: 'sk-of-deepseek' },
    { model: 'anthropic/claude-sonnet-4-5', api_base: address, api_key: 'sk-of-a-proxy' },
  );
  t.same(
    upstreams.map(({ key }) => key),
    ['OPENAI', 'M1', 'M2', 'M3', 'M4'].map((name) => `value-of-${name}_API_KEY`),
  );
  for (const name of ['api_base', 'base_url']) {
    const { yaml } = importLitellm(
      `model_list:
  - {model_name: a, litellm_params: {model: openai/x, litellm_credential_name: home}}
credential_list:
  - {credential_name: home, credential_values: {${name}: "${address}/v1", api_key: sk-of-the-server}}
`,
      'litellm.yaml',
    );
    t.match(yaml, 'key: ${A_API_KEY}', `${name} of the credential`);
  }
  t.end();
});

void t.test('what a query calls a secret is not written, however short it is', (t) => {
  const names = [
    ...['key', 'api_key', 'Ocp-Apim-Subscription-Key', 'token', 'access_token', 'sig', 'code', 'pass'],
    ...['client_secret', 'X-Amz-Credential', 'auth'],
  ];
  const values = ['7', 'ab', 'k3y', 'p%20w', '1234567', '12345678', '$' + '{HOME}'];
  for (const name of names)
    for (const value of values) {
      // The host, the port, the path and another parameter have the text too, and keep it.
      const start = `https://7ab.k3y.example:1234/7/ab/v1?v=7&ab=${encodeURIComponent('7ab')}`;
      const entry = {
        model: 'openai/m',
        api_key: 'os.environ/K',
        api_base: `${start}&${name}=${value}&w=ab`,
      };
      const list = [{ model_name: 'm', litellm_params: entry }];
      const { yaml, variables, remarks } = importLitellm(JSON.stringify({ model_list: list }), 'x');
      const what = `${name}=${value}`;
      t.notOk(yaml.includes(`${name}=${value}`), what);
      t.ok(yaml.includes(`${start}&${name}=\${M_API_BASE}&w=ab`), `${what}: the rest stays`);
      t.ok(variables.includes('M_API_BASE'), what);
      t.ok(
        remarks.some(({ text }) => text.includes('set the variable M_API_BASE')),
        what,
      );
    }
  for (const kept of ['key=none', 'key=', 'key', 'team=1', 'api-version=2024-06-01']) {
    const url = `https://h.example/v1?${kept}`;
    const list = [{ model_name: 'm', litellm_params: { model: 'openai/m', api_base: url } }];
    const { yaml } = importLitellm(JSON.stringify({ model_list: list }), 'x');
    t.ok(yaml.includes(url), `${kept} is no secret`);
  }
  t.end();
});
