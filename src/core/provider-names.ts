/**
 * The protocols that an upstream can speak (`upstreams[].provider`). Settings, threads and metrics use the
 * names, so none may change; only documents depend on their order. A new name needs its translation in
 * providers/providers.ts, which does not compile without, unless the upstream speaks the protocol of OpenAI.
 * Any thread. No test of its own.
 */
export const PROVIDER_NAMES = ['openai', 'azure', 'anthropic', 'gemini', 'vertex', 'bedrock'] as const;

export type ProviderName = (typeof PROVIDER_NAMES)[number];

/** The default of `api_version` in the settings of an upstream; empty if the provider has no versions. */
export const API_VERSIONS: Readonly<Record<ProviderName, string>> = {
  openai: '',
  azure: '2024-10-21',
  anthropic: '2023-06-01',
  gemini: 'v1beta',
  vertex: 'v1',
  bedrock: '',
};
