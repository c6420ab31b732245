/** A call as the client of providers makes it, for tests of Anthropic. */
import type { ProviderCall } from '#src/providers/provider.js';

export const NOW_SECONDS = 1_790_000_000;
/** Thinks with a budget, and takes temperature; the newest ones don't. */
export const MODEL = 'claude-sonnet-4-5';

export function anthropicCall(
  body: Record<string, unknown> = {},
  given: Partial<ProviderCall> = {},
  settings: Partial<ProviderCall['settings']> = {},
): ProviderCall {
  return {
    settings: {
      name: 'anthropic',
      basePath: '',
      host: 'api.anthropic.com',
      apiVersion: '2023-06-01',
      betas: [],
      region: '',
      project: '',
      dropUnsupported: false,
      outputTokensMax: 8_192,
      credential: undefined,
      ...settings,
    },
    credential: { kind: 'key', key: 'sk-ant-test' },
    body: { messages: [{ role: 'user', content: 'Hello' }], ...body },
    model: MODEL,
    stream: false,
    requestId: 'req_test-42',
    nowMs: NOW_SECONDS * 1_000 + 250,
    ...given,
  };
}
