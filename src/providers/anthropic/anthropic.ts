/**
 * Anthropic's Messages API as a Provider (provider.ts): path, headers, versions. The other files of this
 * folder translate; vertex/ and bedrock/ use them too. Upstream worker.
 *
 * Follows platform.claude.com, pages "API overview", "Versions" and "Beta headers", 2026-11.
 *
 * Must hold: `headersOf` compares all that headers are made of before it reuses them
 * (test/unit/providers/anthropic/request.test.ts).
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { exactJsonText } from '../../core/exact-json.js';
import type { Provider, ProviderCall, ProviderSettings } from '../provider.js';
import { readAnthropicError } from './errors.js';
import { writeMessages } from './request.js';
import { readMessage } from './response.js';
import { MessageStream } from './stream.js';

export const ANTHROPIC: Provider = {
  write(call) {
    const { settings, model } = call;
    return {
      path: `${settings.basePath}/v1/messages`,
      body: exactJsonText({ model, ...writeMessages(call) }),
    };
  },
  headers: (call) => headersOf(call, call.settings.betas),
  readResponse: readMessage,
  openStream: (call) => new MessageStream(call),
  readError: readAnthropicError,
  passed(call, body, { door, betas }) {
    const { basePath, betas: own } = call.settings;
    const headers = headersOf(call, mergedBetas(own, betas));
    return { path: `${basePath}${DOOR_PATHS[door]}`, headers, body };
  },
};

/**
 * The headers of the last call, by upstream: the next call mostly has the same, and the HTTP client writes an
 * unchanged list only once.
 */
const LAST = new WeakMap<ProviderSettings, LastHeaders>();

interface LastHeaders {
  readonly betas: string;
  readonly kind: string | undefined;
  readonly secret: string | undefined;
  readonly headers: readonly string[];
}

function headersOf({ settings, credential }: ProviderCall, names: readonly string[]): readonly string[] {
  const betas = names.length === 0 ? '' : names.join(',');
  const kind = credential?.kind;
  let secret: string | undefined;
  if (credential?.kind === 'key') secret = credential.key;
  else if (credential?.kind === 'bearer') secret = credential.token;
  const last = LAST.get(settings);
  if (last?.betas === betas && last.kind === kind && last.secret === secret) return last.headers;
  const headers = ['anthropic-version', settings.apiVersion];
  if (betas !== '') headers.push('anthropic-beta', betas);
  if (credential?.kind === 'key') headers.push('x-api-key', credential.key);
  else if (credential?.kind === 'bearer') headers.push('authorization', `Bearer ${credential.token}`);
  LAST.set(settings, { betas, kind, secret, headers });
  return headers;
}

/** The beta names of the settings and those of the caller's `anthropic-beta` header, each once. */
export function mergedBetas(own: readonly string[], given: string): readonly string[] {
  if (given === '') return own;
  const names = given.split(',').map((name) => name.trim());
  return [...new Set([...own, ...names.filter((name) => name !== '')])];
}
