/**
 * The table of providers by their names. `openai` and `azure` are not here, because chat completions are
 * their own protocol. Upstream workers load it, counter threads, and what probes upstreams
 * (gateway/upstream-probe.ts).
 *
 * Must hold: each other name of core/provider-names.ts is here: provider-client.ts would treat it as Azure
 * otherwise. The compiler holds that (`satisfies` below). Each provider reads or rejects every member of a
 * chat completion (test/unit/providers/sdk-fields.test.ts).
 */
import type { ProviderName } from '../core/provider-names.js';
import { ANTHROPIC } from './anthropic/anthropic.js';
import { GEMINI } from './gemini/gemini.js';
import { BEDROCK } from './bedrock/bedrock.js';
import type { Provider } from './provider.js';
import { VERTEX } from './vertex/vertex.js';

export const PROVIDERS: Readonly<Partial<Record<ProviderName, Provider>>> = {
  anthropic: ANTHROPIC,
  gemini: GEMINI,
  vertex: VERTEX,
  bedrock: BEDROCK,
} satisfies Record<Exclude<ProviderName, 'openai' | 'azure'>, Provider>;
