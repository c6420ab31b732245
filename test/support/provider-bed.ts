/**
 * A gateway whose models are each at the mock of another provider. What must not reach a caller (keys,
 * tokens, projects) is in every upstream's settings.
 */
import type { ProviderName } from '#src/core/provider-names.js';
import { startGateway, type Gateway } from './gateway.js';
import { startMock, type Mock, type Scope } from './mock.js';

/** Of all secrets; a caller's text has it nowhere. */
export const SECRET = /5ecret/;
const KEY = '${PROVIDER_KEY}';
/** Of the gateway that has these upstreams. */
export const PROVIDER_ENV = {
  PROVIDER_KEY: 'sk-5ecret-0123456789abcdef',
  PROVIDER_TOKEN: 'Bearer ya29.5ecret',
};

export interface ProviderModel {
  /** Of the gateway. */
  readonly id: string;
  readonly provider: ProviderName;
  /** At the provider. */
  readonly model: string;
  /** Settings of the upstream besides its address. */
  readonly upstream: Readonly<Record<string, unknown>>;
  /** Whether it has signed thinking, as Claude has. */
  readonly signsThinking: boolean;
  /** Beside that of tokens. */
  readonly price?: Readonly<Record<string, string>>;
}

const VERTEX = {
  region: 'us-east5',
  project: 'project-5ecret-7',
  headers: { authorization: '${PROVIDER_TOKEN}' },
};

export const PROVIDER_MODELS: readonly ProviderModel[] = [
  { id: 'at-azure', provider: 'azure', model: 'gpt-4o', upstream: { key: KEY }, signsThinking: false },
  {
    id: 'at-anthropic',
    provider: 'anthropic',
    model: 'claude-sonnet-4-5',
    upstream: { key: KEY },
    signsThinking: true,
  },
  {
    id: 'at-gemini',
    provider: 'gemini',
    model: 'gemini-2.5-flash',
    upstream: { key: KEY },
    signsThinking: false,
  },
  {
    id: 'gemini-at-vertex',
    provider: 'vertex',
    model: 'gemini-2.5-flash',
    upstream: VERTEX,
    signsThinking: false,
  },
  {
    id: 'claude-at-vertex',
    provider: 'vertex',
    model: 'claude-sonnet-4-5@20250929',
    upstream: VERTEX,
    signsThinking: true,
  },
  {
    id: 'at-bedrock',
    provider: 'bedrock',
    model: 'us.anthropic.claude-sonnet-4-5-20250929-v1:0',
    upstream: { key: KEY, region: 'us-east-1' },
    signsThinking: true,
  },
];

/** Per million tokens; one token costs 10^6 times as many pico-units. */
export const PROVIDER_PRICE = {
  input: '1.5',
  output: '2.25',
  cached_input: '0.75',
  cache_write: '3.5',
  cache_write_1h: '4.75',
  reasoning: '5.25',
};

/** The settings of a model at `url`; `more` are further settings of its upstream. */
export const modelAt = (
  { id, provider, model, upstream, price }: ProviderModel,
  url: string,
  more: object = {},
): object => ({
  id,
  price: { ...PROVIDER_PRICE, ...price },
  max_output_tokens: 8_000,
  upstreams: [{ provider, url: provider === 'openai' ? `${url}/v1` : url, model, ...upstream, ...more }],
});

export interface ProviderBed {
  readonly gateway: Gateway;
  /** By the model's id. */
  readonly mocks: ReadonlyMap<string, Mock>;
}

/** `settings` are further settings of the gateway, `more` further models. */
export async function startProviderBed(
  t: Scope,
  settings: object = {},
  mockArgs: readonly string[] = [],
  more: readonly ProviderModel[] = [],
): Promise<ProviderBed> {
  const models = [...PROVIDER_MODELS, ...more];
  const started = new Map<ProviderName, Promise<Mock>>();
  for (const { provider } of models)
    if (!started.has(provider)) started.set(provider, startMock(t, ['--provider', provider, ...mockArgs]));
  const mocks = new Map<string, Mock>();
  for (const { id, provider } of models) mocks.set(id, await started.get(provider)!);
  const gateway = await startGateway(t, {
    config: {
      models: models.map((model) => modelAt(model, mocks.get(model.id)!.origin)),
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
      ...settings,
    },
    env: PROVIDER_ENV,
  });
  return { gateway, mocks };
}
