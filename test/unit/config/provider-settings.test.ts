/** What each provider takes from an upstream's settings, and the errors if it does not fit. */
import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { apiVersionOf, memberNamesOf, urlOf } from '#src/config/provider-settings.js';
import { limitsByScope } from '#src/config/upstream-scopes.js';
import { worldOf, type World } from './support.js';

const worldWith = (test: Test, ...upstreams: readonly string[]): World =>
  worldOf(test, {
    'tollgate.yaml': `models:\n  - id: m\n    upstreams:\n${upstreams.map((text) => `      - { ${text} }\n`).join('')}plans:\n  - { id: p1, requests_per_minute: 60, calls_per_day: 1000 }\n`,
  });

void t.test('each provider has an address and a version of its own', (t) => {
  const { models } = worldWith(
    t,
    '',
    'provider: azure, url: "https://n.openai.azure.com/"',
    'provider: anthropic, betas: [context-1m-2025-08-07]',
    'provider: gemini',
    'provider: vertex, region: europe-west1, project: p-1',
    'provider: vertex, region: global, project: p-1, credentials_file: key.json',
    'provider: bedrock, region: us-east-1, profile: prod',
    'provider: anthropic, url: "http://127.0.0.1:1", api_version: "2024-01-01", drop_unsupported: true',
  ).load().settings;
  const upstreams = models[0]!.upstreams;
  t.same(
    upstreams.map((upstream) => [urlOf(upstream), apiVersionOf(upstream)]),
    [
      ['https://api.openai.com/v1', ''],
      ['https://n.openai.azure.com/', '2024-10-21'],
      ['https://api.anthropic.com', '2023-06-01'],
      ['https://generativelanguage.googleapis.com', 'v1beta'],
      ['https://europe-west1-aiplatform.googleapis.com', 'v1'],
      ['https://aiplatform.googleapis.com', 'v1'],
      ['https://bedrock-runtime.us-east-1.amazonaws.com', ''],
      ['http://127.0.0.1:1', '2024-01-01'],
    ],
  );
  t.match(upstreams[5]!.credentials_file, /^\/.*\/key\.json$/, 'relative to the configuration file');
  t.end();
});

void t.test('what a provider needs, and what means nothing to it, is said by name', (t) => {
  const place = 'models[0].upstreams';
  const faults = (...upstreams: readonly string[]): readonly string[] =>
    worldWith(t, ...upstreams)
      .faults({}, { K: 'secret-1' })
      .map((line) => line.replace(/^tollgate\.yaml:\d+: /, ''));
  t.same(faults('provider: azure', 'provider: vertex', 'provider: bedrock, region: 7'), [
    `${place}[0].url: missing, the provider azure needs it`,
    `${place}[1].region: missing, the provider vertex needs it`,
    `${place}[1].project: missing, the provider vertex needs it`,
    `${place}[2].region: got 7 (a number), want the name of a region, such as us-east-1`,
  ]);
  t.same(
    faults(
      'url: "http://h/v1", region: us-east-1, drop_unsupported: true',
      'provider: anthropic, project: p',
      'provider: vertex, region: global, project: p, key: "${K}"',
      'provider: bedrock, region: us-east-1, key: "${K}", profile: prod',
      'provider: gemini, url: "echo:"',
      'provider: gemini, url: "http://h/?key=1"',
      'provider: anthropic, member_names: { user: "" }, thoughts_back: true',
      'url: "http://h/v1", member_names: { max_tokens: "" }',
      'url: "http://h/v1", member_names: { stream: "" }',
      'url: "http://h/v1", member_names: { user: model }',
    ),
    [
      `${place}[0].region: means nothing to the provider openai, leave it out`,
      `${place}[0].drop_unsupported: means nothing to the provider openai, leave it out`,
      `${place}[1].project: means nothing to the provider anthropic, leave it out`,
      `${place}[2].key: means nothing to the provider vertex, which takes credentials_file`,
      `${place}[3].profile: given besides a key, want one of the two`,
      `${place}[4].provider: got gemini, but the built-in model of url has none`,
      `${place}[5].url: has a query, which the provider gemini does not take`,
      `${place}[6].member_names: means nothing to the provider anthropic, leave it out`,
      `${place}[6].thoughts_back: means nothing to the provider anthropic, leave it out`,
      `${place}[7].member_names: leaves max_tokens out, but what a call may cost rests on it: want the upstream's name`,
      `${place}[8].member_names.stream: a name that cannot be set here`,
      `${place}[9].member_names.user: got "model", want the name that the upstream has for it, or "" to leave it out`,
    ],
  );
  t.same(
    faults(
      'provider: anthropic, url: "https://api.anthropic.com/v1/"',
      'provider: azure, url: "https://n.openai.azure.com/openai/v1"',
      'provider: gemini, url: "https://h/base/v1beta"',
      'provider: gemini, url: "https://h/v1/a/v1beta/models/gemini-x"',
      'provider: gemini, url: "https://h/v1beta/openai"',
      'provider: vertex, region: global, project: p, url: "https://h/v1/a/v1/projects/p/locations/global"',
      'provider: azure, url: "https://n.openai.azure.com/openai/deployments/d"',
      'provider: bedrock, region: us-east-1, url: "https://h/model/x.y-v1:0/converse-stream"',
    ),
    [
      `${place}[0].url: ends with a path that is added to it, want it without /v1 at its end`,
      `${place}[1].url: ends with a path that is added to it, want it without /openai at its end`,
      `${place}[2].url: ends with a path that is added to it, want it without /v1beta at its end`,
      `${place}[3].url: ends with a path that is added to it, want it without /v1beta at its end`,
      `${place}[4].url: ends with a path that is added to it, want it without /v1beta at its end`,
      `${place}[5].url: ends with a path that is added to it, want it without /v1 at its end`,
      `${place}[6].url: ends with a path that is added to it, want it without /openai at its end`,
      `${place}[7].url: ends with a path that is added to it, want it without /model at its end`,
    ],
  );
  t.same(
    faults(
      'provider: anthropic, key: "${K}", headers: { Anthropic-Version: "2024-01-01", anthropic-beta: a, X-Api-Key: "${K}" }',
      'provider: vertex, region: global, project: p, credentials_file: k, headers: { authorization: "${K}", x-goog-user-project: p }',
      'provider: azure, url: "https://n.openai.azure.com", key: "${K}", headers: { authorization: "${K}", x-other: y }',
      'provider: bedrock, region: us-east-1, headers: { host: h, x-amz-date: d, x-amzn-bedrock-trace: ENABLED }',
      'provider: gemini, headers: { x-goog-api-key: "${K}" }',
      'key: "${K}", headers: { authorization: "${K}", anthropic-version: "1" }',
    ),
    [
      `${place}[0].headers: Anthropic-Version is written by the provider anthropic, leave it out: set api_version`,
      `${place}[0].headers: anthropic-beta is written by the provider anthropic, leave it out: set betas`,
      `${place}[0].headers: X-Api-Key is given besides key, want one of the two`,
      `${place}[1].headers: authorization is given besides credentials_file, want one of the two`,
      `${place}[2].headers: authorization is given besides key, want one of the two`,
      `${place}[3].headers.host: a name that cannot be set here`,
      `${place}[3].headers: x-amz-date is written by the provider bedrock, leave it out: calls are signed here, which writes them`,
    ],
  );
  t.match(faults('provider: claude'), [/provider: got "claude", want one of openai, azure, anthropic/]);
  t.end();
});

void t.test('the path of a gateway before the provider may have the same words', (t) => {
  const urls = [
    ['anthropic', 'https://gateway.example/v1/account/gateway/anthropic'],
    ['gemini', 'https://gateway.example/v1/account/gateway/google-ai-studio'],
    ['vertex, region: global, project: p', 'https://gateway.example/v1/account/gateway/google-vertex-ai'],
    ['azure', 'https://apim.example/openai/team-a'],
    ['bedrock, region: us-east-1', 'https://proxy.example/model/teams/a'],
  ] as const;
  const { models } = worldWith(
    t,
    ...urls.map(([provider, url]) => `provider: ${provider}, url: "${url}"`),
  ).load().settings;
  t.same(
    models[0]!.upstreams.map((upstream) => urlOf(upstream)),
    urls.map(([, url]) => url),
  );
  t.end();
});

void t.test('without a key, limits are those of the project, region and profile', (t) => {
  const { models } = worldWith(
    t,
    'provider: vertex, region: global, project: a, requests_per_minute: 1',
    'provider: vertex, region: global, project: b, requests_per_minute: 2',
    'provider: vertex, region: global, project: b, tokens_per_minute: 3',
    'provider: bedrock, region: us-east-1, requests_per_minute: 4',
    'provider: bedrock, region: us-east-1, profile: other, requests_per_minute: 5',
  ).load().settings;
  t.same(
    [...limitsByScope(models).values()],
    [
      { requests_per_minute: 1 },
      { requests_per_minute: 2, tokens_per_minute: 3 },
      { requests_per_minute: 4 },
      { requests_per_minute: 5 },
    ],
  );
  t.end();
});

void t.test('the settings of docs/messages.md load', (t) => {
  const [, yaml] = /^```yaml\n([^]*?)^```$/m.exec(readFileSync('docs/messages.md', 'utf8'))!;
  const { models } = worldOf(t, { 'tollgate.yaml': yaml! }).load({}, { ANTHROPIC_API_KEY: 'k-1' }).settings;
  const upstreams = models[0]!.upstreams;
  t.same(
    upstreams.map((upstream) => [urlOf(upstream), upstream.priority]),
    [
      ['https://europe-west1-aiplatform.googleapis.com', 1],
      ['https://bedrock-runtime.eu-central-1.amazonaws.com', 1],
      ['https://api.anthropic.com', 2],
    ],
  );
  for (const { model } of upstreams) t.match(model, /claude/, 'by which Messages pass byte for byte');
  t.end();
});

void t.test('models of OpenAI that refuse max_tokens get its newer name', (t) => {
  const namesOf = (text: string, model = 'm'): unknown =>
    memberNamesOf(worldWith(t, text).load().settings.models[0]!.upstreams[0]!, model);
  const newer = { max_tokens: 'max_completion_tokens' };
  for (const model of ['o1', 'o3-mini', 'o4-mini-2025-04-16', 'gpt-5', 'gpt-5.1-codex', 'gpt-5-chat-latest'])
    t.same(namesOf(`model: ${model}`), newer, model);
  t.same(namesOf('model: "ft:o4-mini-2025-04-16:org::id"'), newer);
  t.same(namesOf('', 'gpt-5-mini'), newer, 'by the id');
  t.same(namesOf('provider: azure, url: "https://n.openai.azure.com/", model: gpt-5'), newer);
  for (const model of [
    'gpt-4o',
    'gpt-4.1',
    'gpt-oss-120b',
    'o200k',
    'omni',
    'openai/gpt-5',
    'chatgpt-4o-latest',
  ])
    t.equal(namesOf(`model: ${model}`), undefined, model);
  t.equal(namesOf('provider: bedrock, region: us-east-1, model: gpt-5'), undefined);
  t.same(namesOf('model: o3, member_names: { store: "" }'), { ...newer, store: '' });
  for (const names of [{ max_tokens: 'max_tokens' }, { max_completion_tokens: 'max_tokens' }])
    t.same(namesOf(`model: o3, member_names: ${JSON.stringify(names)}`), names, 'what is given stays');
  t.end();
});
