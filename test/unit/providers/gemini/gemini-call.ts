/** A call as the client of providers makes it, for tests of Gemini. */
import type { ProviderCall } from '#src/providers/provider.js';

export const NOW_SECONDS = 1_790_000_000;

export function geminiCall(
  body: Record<string, unknown>,
  given: Partial<ProviderCall> = {},
  settings: Partial<ProviderCall['settings']> = {},
): ProviderCall {
  return {
    settings: {
      name: 'gemini',
      basePath: '',
      host: 'generativelanguage.googleapis.com',
      apiVersion: 'v1beta',
      betas: [],
      region: '',
      project: '',
      dropUnsupported: false,
      outputTokensMax: 65_536,
      credential: undefined,
      ...settings,
    },
    credential: { kind: 'key', key: 'AIza-test' },
    body: { messages: [{ role: 'user', content: 'Hello' }], ...body },
    model: 'gemini-2.5-flash',
    stream: false,
    requestId: 'req_test-42',
    nowMs: NOW_SECONDS * 1_000 + 250,
    ...given,
  };
}
