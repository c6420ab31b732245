/**
 * Anthropic's Messages API as a provider: path, headers, versions. The parts beside it do the work; vertex
 * uses them too. Upstream worker.
 *
 * Follows platform.claude.com, pages "API overview", "Versions" and "Beta headers", as of November 2026.
 */
import { exactJsonText } from '../../core/exact-json.js';
import type { Provider, ProviderCall, ProviderRequest } from '../provider.js';
import { readAnthropicError } from './errors.js';
import { writeMessages } from './request.js';
import { readMessage } from './response.js';
import { MessageStream } from './stream.js';

export const ANTHROPIC: Provider = {
  write(call: ProviderCall): ProviderRequest {
    const { settings, credential, model } = call;
    const headers = ['anthropic-version', settings.apiVersion];
    if (settings.betas.length > 0) headers.push('anthropic-beta', settings.betas.join(','));
    if (credential?.kind === 'key') headers.push('x-api-key', credential.key);
    else if (credential?.kind === 'bearer') headers.push('authorization', `Bearer ${credential.token}`);
    return {
      path: `${settings.basePath}/v1/messages`,
      headers,
      body: exactJsonText({ model, ...writeMessages(call) }),
    };
  },
  readResponse: readMessage,
  openStream: (call) => new MessageStream(call),
  readError: readAnthropicError,
};
