/** The addresses of providers with a protocol of their own. */
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
