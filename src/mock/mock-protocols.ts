/** The mock's protocols by the names of `mock-upstream --provider`. */
import type { ProviderName } from '../core/provider-names.js';
import { ANTHROPIC_MOCK } from './mock-anthropic.js';
import { GEMINI_MOCK } from './mock-gemini.js';
import { BEDROCK_MOCK } from './mock-bedrock.js';
import { AZURE_MOCK, OPENAI_MOCK } from './mock-openai.js';
import type { MockProtocol } from './mock-protocol.js';
import { VERTEX_MOCK } from './mock-vertex.js';

export const MOCK_PROTOCOLS: Readonly<Record<ProviderName, MockProtocol>> = {
  openai: OPENAI_MOCK,
  azure: AZURE_MOCK,
  anthropic: ANTHROPIC_MOCK,
  gemini: GEMINI_MOCK,
  vertex: VERTEX_MOCK,
  bedrock: BEDROCK_MOCK,
};
