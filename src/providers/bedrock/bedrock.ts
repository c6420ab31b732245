/**
 * Models on Amazon Bedrock, by its Converse interface. Upstream worker.
 *
 * Followed: Amazon Bedrock API Reference, "Converse" and "ConverseStream"; User Guide, "Use an Amazon Bedrock
 * API key", 2026-11. What the fields become: request.ts, messages.ts, tools.ts, reasoning.ts.
 */
import type { Credential, Provider, ProviderCall, ProviderRequest } from '../provider.js';
import { readError } from './errors.js';
import { bodyOf } from './request.js';
import { readResponse } from './response.js';
import { ConverseStream } from './stream.js';

export const BEDROCK: Provider = {
  write,
  readResponse,
  openStream: (call) => new ConverseStream(call),
  readError,
};

function write(call: ProviderCall): ProviderRequest | Promise<ProviderRequest> {
  const { credential, settings } = call;
  const path = `${settings.basePath}/model/${encoded(call.model)}/${call.stream ? 'converse-stream' : 'converse'}`;
  const body = bodyOf(call);
  if (credential?.kind === 'aws') return signedRequest(call, credential, path, body);
  const token =
    credential === undefined ? undefined : credential.kind === 'key' ? credential.key : credential.token;
  return { path, headers: token === undefined ? [] : ['authorization', `Bearer ${token}`], body };
}

async function signedRequest(
  { settings, nowMs }: ProviderCall,
  credential: Extract<Credential, { kind: 'aws' }>,
  path: string,
  body: string,
): Promise<ProviderRequest> {
  const { signed } = await import('./signature.js');
  const unsigned = { path, headers: { host: settings.host, 'content-type': 'application/json' }, body };
  return { path, headers: await signed(unsigned, credential, settings.region, 'bedrock', nowMs), body };
}

/** A model's id as one part of a path: an ARN has colons and slashes. */
function encoded(model: string): string {
  return encodeURIComponent(model).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
