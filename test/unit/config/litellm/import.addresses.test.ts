/** The settings of providers with a protocol of their own. */
import t from 'tap';
import { type Entry, imported } from './support.js';

void t.test('a path before the provider is kept, what Tollgate adds is not', (t) => {
  const gateway = 'https://gateway.example/v1/account/gateway';
  const vertex = { model: 'vertex_ai/gemini-x', vertex_project: 'p', vertex_location: 'global' };
  const version = 'v1/projects/p/locations/global/publishers/google/models/gemini-x';
  const bedrock = { model: 'bedrock/x.y-v1:0', aws_region_name: 'us-east-1' };
  const azure = { model: 'azure/d', api_version: '2024-10-21' };
  const cases: readonly (readonly [entry: Entry, url: string])[] = [
    [{ model: 'anthropic/x', api_base: `${gateway}/anthropic` }, `${gateway}/anthropic`],
    [{ model: 'anthropic/x', api_base: `${gateway}/anthropic/v1/messages` }, `${gateway}/anthropic`],
    [{ model: 'anthropic/x', api_base: 'https://h.example/model/claude/' }, 'https://h.example/model/claude'],
    [{ model: 'anthropic/x', api_base: 'https://v1' }, 'https://v1'],
    [{ model: 'gemini/x', api_base: `${gateway}/google-ai-studio` }, `${gateway}/google-ai-studio`],
    [{ model: 'gemini/x', api_base: `${gateway}/studio/v1beta` }, `${gateway}/studio`],
    [{ ...vertex, api_base: `${gateway}/vertex/${version}` }, `${gateway}/vertex`],
    [{ ...bedrock, api_base: 'https://h.example/model/teams/a' }, 'https://h.example/model/teams/a'],
    [{ ...bedrock, api_base: 'https://h.example/a/model/x.y-v1:0/converse' }, 'https://h.example/a'],
    [{ ...azure, api_base: 'https://apim.example/openai/team-a' }, 'https://apim.example/openai/team-a'],
    [{ ...azure, api_base: 'https://r.example/openai/v1' }, 'https://r.example'],
  ];
  const { upstreams } = imported(t, ...cases.map(([entry]) => entry));
  t.same(
    upstreams.map(({ url }) => url),
    cases.map(([, url]) => url),
  );
  t.end();
});

void t.test('the deployment that an address of Azure names', (t) => {
  const azure = { model: 'azure/gpt-4o', api_version: '2024-10-21' };
  const { upstreams, lines } = imported(
    t,
    { ...azure, api_base: 'https://r.example/openai/deployments/my-dep' },
    { ...azure, api_base: 'https://r.example/openai/deployments/my-dep/chat/completions' },
    { ...azure, api_base: 'https://r.example/team/openai/deployments/gpt-4o' },
  );
  t.same(
    upstreams.map(({ url, model }) => [url, model]),
    [
      ['https://r.example', 'my-dep'],
      ['https://r.example', 'my-dep'],
      ['https://r.example/team', 'gpt-4o'],
    ],
  );
  t.same(
    lines.filter((line) => line.includes('the deployment that this path names')).map((line) => line[11]),
    ['0', '1'],
  );
  t.end();
});

void t.test('both spellings of the settings of Vertex', (t) => {
  const { upstreams, lines, yaml } = imported(
    t,
    {
      model: 'vertex_ai/gemini-x',
      vertex_ai_project: 'p-1',
      vertex_ai_location: 'europe-west4',
      vertex_ai_credentials: '/etc/sa.json',
    },
    { model: 'vertex_ai/gemini-x', vertex_project: 'p-2', vertex_ai_location: 'europe-west4' },
    {
      model: 'vertex_ai/gemini-x',
      vertex_ai_project: 'p-3',
      vertex_location: 'global',
      vertex_ai_credentials: '{"private_key":"hidden"}',
    },
  );
  t.match(upstreams, [
    { project: 'p-1', region: 'europe-west4', credentials_file: /sa\.json$/ },
    { project: 'p-2', region: 'europe-west4' },
    { project: 'p-3', region: 'global' },
  ]);
  t.notOk(upstreams[2]!.credentials_file);
  t.ok(
    lines.includes(
      'model_list[2].litellm_params.vertex_ai_credentials: a secret: write it into a file that only Tollgate reads, and name it in credentials_file',
    ),
  );
  t.notMatch(yaml + lines.join(), /hidden|no region is given|has no counterpart/);
  t.end();
});
