/**
 * What providers store is shared by all callers of one upstream key. So it is named through the gateway only
 * where the operator says so: at each door and provider, by default and with `pass_members`.
 */
import t from 'tap';
import { startGateway } from '../support/gateway.js';
import { startMock, type Mock } from '../support/mock.js';

const NAMES = ['file_id', 'storage_url', 'audio_id', 'cached_content', 'data_sources', 'item_reference'];
const CHAT = '/v1/chat/completions';
const user = (part: object): object => ({ messages: [{ role: 'user', content: [part] }], max_tokens: 9 });
const image = (url: string): object => user({ type: 'image_url', image_url: { url } });
const GOOGLE_FILE = 'https://generativelanguage.googleapis.com/v1beta/files/abc';

const MODELS: Readonly<Record<string, string>> = {
  anthropic: 'claude-sonnet-4-5',
  bedrock: 'us.anthropic.claude-sonnet-4-5-20250929-v1:0',
  gemini: 'gemini-2.5-flash',
};
/** What the cases name. */
const STORED_THINGS = /file[-_]1|data_sources|msg_1|cachedContents\/1|files\/abc|bucket\/a\.png/;

/** Provider, path, body, and the member that its refusal names. */
const CASES: readonly (readonly [provider: string, path: string, body: object, name: string])[] = [
  ['openai', CHAT, user({ type: 'file', file: { file_id: 'file-1' } }), 'file_id'],
  ['openai', CHAT, { ...user({ type: 'text', text: 'x' }), data_sources: [{}] }, 'data_sources'],
  ['openai', '/v1/responses', { input: [{ id: 'msg_1' }] }, 'item_reference'],
  [
    'openai',
    '/v1/responses',
    { input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'file-1' }] }] },
    'file_id',
  ],
  [
    'gemini',
    CHAT,
    { ...user({ type: 'text', text: 'x' }), extra_body: { google: { cached_content: 'cachedContents/1' } } },
    'cached_content',
  ],
  ['gemini', CHAT, image(GOOGLE_FILE), 'storage_url'],
  ['gemini', CHAT, image('gs://bucket/a.png'), 'storage_url'],
  ['bedrock', CHAT, image('s3://bucket/a.png'), 'storage_url'],
  [
    'anthropic',
    '/v1/messages',
    user({ type: 'document', source: { type: 'file', file_id: 'file_1' } }),
    'file_id',
  ],
];

void t.test('what a provider stores', async (t) => {
  const mocks = new Map<string, Mock>();
  for (const [provider] of CASES)
    if (!mocks.has(provider))
      mocks.set(provider, await startMock(t, provider === 'openai' ? [] : ['--provider', provider]));
  const upstreamOf = (provider: string): object => {
    const { url, origin } = mocks.get(provider)!;
    if (provider === 'openai') return { url, speaks: ['responses'] };
    const region = provider === 'bedrock' && { region: 'us-east-1' };
    return { provider, url: origin, key: '${PROVIDER_KEY}', model: MODELS[provider], ...region };
  };
  const modelOf = (id: string, provider: string, members: readonly string[]): object => ({
    id,
    pass_members: members,
    upstreams: [upstreamOf(provider)],
  });
  const gateway = await startGateway(t, {
    config: {
      models: [...mocks.keys()].flatMap((provider) => [
        modelOf(`${provider}-closed`, provider, []),
        modelOf(`${provider}-open`, provider, NAMES),
      ]),
      plans: [{ id: 'ample', requests_per_minute: 1_000, calls_per_day: 1_000 }],
    },
    env: { PROVIDER_KEY: 'provider-key-0123456789' },
  });
  const { key } = await gateway.admin.customer({ plan: 'ample' });
  for (const [provider, path, body, name] of CASES) {
    const mock = mocks.get(provider)!;
    const asked = async (state: 'closed' | 'open'): Promise<{ status: number; text: string }> => {
      const response = await fetch(`${gateway.url}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: `${provider}-${state}`, ...body }),
      });
      return { status: response.status, text: await response.text() };
    };
    const title = `${provider} ${path} ${JSON.stringify(body)}`;
    const before = (await mock.stats()).last;
    const refused = await asked('closed');
    t.equal(refused.status, 400, title);
    t.match(refused.text, new RegExp(`"${name} .*must not be given.*pass_members`), title);
    t.same((await mock.stats()).last, before, 'the provider is not asked');
    const passed = await asked('open');
    t.notMatch(passed.text, /pass_members/, title);
    const sent = (await mock.stats()).last!.body;
    t.match(sent, STORED_THINGS, 'and the provider gets it by its name');
  }
});
