/**
 * The ways in which providers are spoken to, as tables for tests: the provider, the model that chooses the
 * dialect, and a call to it.
 */
import type { ProviderName } from '#src/core/provider-names.js';
import type {
  Credential,
  Provider,
  ProviderCall,
  ProviderSettings,
  WrittenRequest,
} from '#src/providers/provider.js';
import { ANTHROPIC, BEDROCK, GEMINI, type Dialect } from './provider-dialects.js';

export interface Form {
  readonly name: string;
  readonly provider: ProviderName;
  readonly model: string;
  readonly dialect: Dialect;
  /** LiteLLM's name of the model. */
  readonly judgeModel: string;
  readonly credential: Credential;
}

const KEY: Credential = { kind: 'key', key: 'sk-key-of-the-settings' };
const CLAUDE = 'claude-sonnet-4-5';
const BEDROCK_CLAUDE = 'us.anthropic.claude-sonnet-4-5-20250929-v1:0';

export const FORMS: readonly Form[] = [
  {
    name: 'anthropic',
    provider: 'anthropic',
    model: CLAUDE,
    dialect: ANTHROPIC,
    judgeModel: `anthropic/${CLAUDE}`,
    credential: KEY,
  },
  {
    name: 'gemini',
    provider: 'gemini',
    model: 'gemini-2.5-flash',
    dialect: GEMINI,
    judgeModel: 'gemini/gemini-2.5-flash',
    credential: KEY,
  },
  {
    name: 'vertex with Gemini',
    provider: 'vertex',
    model: 'gemini-2.5-flash',
    dialect: GEMINI,
    judgeModel: 'vertex_ai/gemini-2.5-flash',
    credential: { kind: 'bearer', token: 'ya29.token' },
  },
  {
    name: 'vertex with Claude',
    provider: 'vertex',
    model: 'claude-sonnet-4-5@20250929',
    dialect: ANTHROPIC,
    judgeModel: 'vertex_ai/claude-sonnet-4-5@20250929',
    credential: { kind: 'bearer', token: 'ya29.token' },
  },
  {
    name: 'bedrock',
    provider: 'bedrock',
    model: BEDROCK_CLAUDE,
    dialect: BEDROCK,
    judgeModel: `bedrock/converse/${BEDROCK_CLAUDE}`,
    credential: {
      kind: 'aws',
      accessKeyId: 'AKIDEXAMPLE',
      secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
      sessionToken: undefined,
    },
  },
];

const API_VERSIONS: Readonly<Partial<Record<ProviderName, string>>> = {
  anthropic: '2023-06-01',
  gemini: 'v1beta',
  vertex: 'v1',
};

export const settingsOf = (
  provider: ProviderName,
  more: Partial<ProviderSettings> = {},
): ProviderSettings => ({
  name: provider,
  basePath: '',
  host: 'provider.example',
  apiVersion: API_VERSIONS[provider] ?? '',
  betas: [],
  region: provider === 'vertex' ? 'us-east5' : provider === 'bedrock' ? 'us-east-1' : '',
  project: provider === 'vertex' ? 'project-of-ours' : '',
  dropUnsupported: false,
  outputTokensMax: 64_000,
  credential: undefined,
  ...more,
});

/** `body` without a model. */
export function callOf(
  { provider, model, credential }: Form,
  body: Readonly<Record<string, unknown>>,
  more: Partial<ProviderSettings> = {},
): ProviderCall {
  return {
    settings: settingsOf(provider, more),
    credential,
    body: { model, ...body },
    model,
    stream: body.stream === true,
    requestId: 'request-1',
    nowMs: Date.UTC(2026, 10, 23, 12),
  };
}

/** The request of a call, as ProviderClient sends it. */
export function requestOf(
  provider: Provider,
  call: ProviderCall,
): WrittenRequest & { readonly headers: readonly string[] } {
  const request = provider.write(call);
  return { ...request, headers: provider.headers(call, request) };
}
