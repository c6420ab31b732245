/**
 * The protocols that an upstream can speak (`upstreams[].provider`). Settings, threads and metrics name them
 * so. Any thread. No test of its own.
 */
export const PROVIDER_NAMES = ['openai', 'azure', 'anthropic', 'gemini', 'vertex', 'bedrock'] as const;

export type ProviderName = (typeof PROVIDER_NAMES)[number];
