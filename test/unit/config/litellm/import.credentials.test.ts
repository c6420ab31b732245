/** The credentials of entries, their own or those of `credential_list`. */
import t from 'tap';
import { importLitellm } from '#src/config/litellm/import.js';
import { imported, importedFile } from './support.js';

void t.test('what no entry reads of a credential has a remark', (t) => {
  const entry = (name: string, model: string, credential: string): object => ({
    model_name: name,
    litellm_params: { model, litellm_credential_name: credential },
  });
  const { upstreams, lines, yaml } = importedFile(t, {
    model_list: [
      entry('a', 'bedrock/amazon.nova-pro-v1:0', 'aws'),
      entry('b', 'openai/gpt-4o', 'openai'),
      entry('c', 'openai/gpt-4o-mini', 'several'),
    ],
    credential_list: [
      {
        credential_name: 'aws',
        credential_values: {
          aws_access_key_id: 'hidden-id',
          aws_secret_access_key: 'hidden-secret',
          aws_region_name: 'eu-central-1',
        },
        credential_info: { description: 'bills' },
      },
      {
        credential_name: 'openai',
        credential_values: { api_key: 'os.environ/K', organization: 'org-1', extra_headers: { a: 'hidden' } },
      },
      { credential_name: 'openai', credential_values: { api_key: 'hidden' } },
      { credential_name: 'several', credential_values: { organization: ['org-1', 'org-2'] } },
      { credential_name: 'unused', credential_values: { api_key: 'hidden' } },
      { credential_values: { api_key: 'hidden' } },
    ],
  });
  t.match(upstreams, [
    { provider: 'bedrock', region: 'eu-central-1' },
    { key: 'value-of-K', headers: { 'openai-organization': 'org-1' } },
    { key: 'value-of-OPENAI_API_KEY', headers: {} },
  ]);
  const aws =
    'credentials come from where the AWS SDK finds them: its variables, files, or the role of the machine';
  const values = (at: number): string => `credential_list[${at}].credential_values`;
  for (const line of [
    `${values(0)}.aws_access_key_id: ${aws}`,
    `${values(0)}.aws_secret_access_key: ${aws}`,
    'credential_list[0].credential_info: has no counterpart',
    `${values(1)}.extra_headers: no entry that was carried over reads it`,
    'credential_list[2].credential_name: one before it has this name: the credential was left out',
    `${values(3)}.organization: is no text`,
    `${values(4)}.api_key: no entry that was carried over reads it`,
    'credential_list[5].credential_name: missing: the credential was left out',
  ])
    t.ok(lines.includes(line), line);
  t.notOk(lines.some((line) => line.startsWith(`${values(1)}.organization`)));
  t.notMatch(yaml + lines.join(), /hidden/);
  t.end();
});

void t.test('Azure with tokens of Entra has no key', (t) => {
  const azure = { model: 'azure/gpt-4o', api_base: 'https://r.example', api_version: '2024-10-21' };
  const model = (name: string, own: object): object => ({
    model_name: name,
    litellm_params: { ...azure, ...own },
  });
  const { upstreams, lines, variables, yaml } = importedFile(t, {
    model_list: [
      model('a', { azure_ad_token: 'os.environ/AZURE_AD_TOKEN' }),
      model('b', { tenant_id: 'hidden', client_id: 'hidden', client_secret: 'hidden' }),
      model('c', { litellm_credential_name: 'entra' }),
      model('d', { client_id: 'hidden', api_key: 'os.environ/K' }),
    ],
    credential_list: [{ credential_name: 'entra', credential_values: { client_secret: 'hidden' } }],
  });
  t.same(
    upstreams.map(({ key }) => key),
    [undefined, undefined, undefined, 'value-of-K'],
  );
  t.same(variables, ['K']);
  const told = 'without a key, Tollgate gets tokens itself: see docs/credentials.md';
  for (const path of [
    'model_list[0].litellm_params.azure_ad_token',
    'model_list[1].litellm_params.client_secret',
    'credential_list[0].credential_values.client_secret',
  ])
    t.ok(lines.includes(`${path}: ${told}`), path);
  t.notMatch(yaml + lines.join(), /hidden/);
  t.end();
});

void t.test('a server that may want a key is told of', (t) => {
  const { upstreams, lines } = imported(
    t,
    { model: 'hosted_vllm/qwen', api_base: 'http://h/v1' },
    { model: 'litellm_proxy/gpt-4o', api_base: 'http://h/v1' },
    { model: 'hosted_vllm/qwen', api_base: 'http://h/v1', api_key: 'none' },
    { model: 'lm_studio/qwen', api_base: 'http://h/v1', api_key: 'os.environ/K' },
  );
  t.same(
    upstreams.map(({ key }) => key),
    [undefined, undefined, undefined, 'value-of-K'],
  );
  const variables = lines.flatMap((line) => /takes one from (\w+) if that is set/.exec(line)?.[1] ?? []);
  t.same(variables, ['HOSTED_VLLM_API_KEY', 'LITELLM_PROXY_API_KEY']);
  t.end();
});

void t.test('an entry whose credential has no key does not share a variable with a key of the file', (t) => {
  const { upstreams, yaml } = importedFile(t, {
    model_list: [
      { model_name: 'a', litellm_params: { model: 'openai/gpt-4o', litellm_credential_name: 'org' } },
      { model_name: 'b', litellm_params: { model: 'openai/gpt-4o', api_key: 'sk-hidden-of-b' } },
    ],
    credential_list: [{ credential_name: 'org', credential_values: { organization: 'org-1' } }],
  });
  t.match(upstreams, [{ key: 'value-of-OPENAI_API_KEY' }, { key: 'value-of-OPENAI_API_KEY_2' }]);
  t.notMatch(yaml, 'hidden');
  t.end();
});

void t.test('secrets in headers and addresses are not written', (t) => {
  const vertex = { model: 'vertex_ai/gemini-x', vertex_project: 'p' };
  const { upstreams, yaml, lines } = importedFile(t, {
    model_list: [
      {
        model_name: 'a',
        litellm_params: {
          model: 'openai/gpt-4o',
          api_key: 'os.environ/K',
          api_base: 'https://h.example/v1?code=hidden-code%2B1&team=1',
          extra_headers: {
            apikey: 'hidden-1',
            'x-apikey': 'hidden-2',
            x_api_key: 'hidden-3',
            'x-monkey': 'ape',
          },
        },
      },
      { model_name: 'b', litellm_params: { ...vertex, vertex_credentials: 'os.environ/GOOGLE' } },
      { model_name: 'c', litellm_params: { ...vertex, vertex_ai_credentials: 'account.json' } },
    ],
  });
  t.match(upstreams, [
    {
      url: 'https://h.example/v1?code=value-of-A_API_BASE&team=1',
      headers: {
        apikey: 'value-of-A_APIKEY',
        'x-apikey': 'value-of-A_X_APIKEY',
        x_api_key: /^value-of-/,
        'x-monkey': 'ape',
      },
    },
    { credentials_file: /value-of-GOOGLE$/ },
    { credentials_file: /account\.json$/ },
  ]);
  t.notMatch(yaml, 'hidden');
  const told = lines.join('\n');
  t.notMatch(told, 'hidden');
  t.match(told, /litellm_params\.api_base: a secret written inline .* A_API_BASE$/m);
  t.match(told, /vertex_credentials: the variable must be a file's path/);
  t.notMatch(told, /vertex_ai_credentials: the variable/);
  t.end();
});

void t.test('nor in the query or path of an address, whatever the protocol', (t) => {
  const long = 'hidden-key-1-and-more';
  const entries = [
    { model: 'gemini/x', api_base: 'https://p.example/a?key=hidden-key-1' },
    { model: 'azure/d', api_base: 'https://p.example/a?subscription-key=hidden-key-1' },
    { model: 'anthropic/x', api_base: 'https://p.example/a?api_key=hidden-key-1&team=1' },
    { model: 'vertex_ai/gemini-x', vertex_project: 'p', api_base: 'https://p.example/a?key=hidden-key-1' },
    {
      model: 'bedrock/anthropic.x',
      aws_region_name: 'eu',
      api_base: 'https://p.example/a?token=hidden-key-1',
    },
    { model: 'gemini/x', api_base: `https://p.example/a?key=hidden-key-1&token=${long}` },
    { model: 'openai/x', api_base: `https://p.example/a?key=hidden-key-1&token=${long}` },
    { model: 'openai/x', api_base: `https://p.example/a?token=${long}&key=hidden-key-1&code=A_API_BASE_2` },
    // Secrets that are decoded otherwise than they are written.
    { model: 'openai/x', api_base: 'https://p.example/a?key=%68idden+key%zz%C3%A9%E9&b=os.environ' },
    { model: 'openai/x', api_base: 'https://p.example/a?%6bey=hidden-$%7bk%7d-${k}' },
    { model: 'azure/d', api_base: 'https://p.example/a??key=hidden-key&hidden-key-2' },
    { model: 'openai/x', api_base: 'https://p.example/sk-hidden0123456789/v1' },
    { model: 'anthropic/x', api_base: 'https://p.example/sk-hidden0123456789' },
  ];
  for (const litellm_params of entries) {
    const list = [{ model_name: 'a', litellm_params }];
    const { yaml, remarks } = importLitellm(JSON.stringify({ model_list: list }), 'x');
    t.match(yaml, /url: .*\$\{A_API_BASE\}/, litellm_params.api_base);
    const told = remarks.map(({ text }) => text).join('\n');
    for (const text of [yaml, told]) t.notMatch(text, /hidden|-and-more/);
    t.match(told, /a secret written inline .* A_API_BASE$/m);
  }
  t.end();
});
