/**
 * The Gemini API as a Provider (provider.ts): `models/{model}:generateContent`, and `:streamGenerateContent`
 * as server-sent events, with an API key in `x-goog-api-key`. provider-client.ts calls it. Upstream worker;
 * `write` also on counter threads.
 *
 * Follows https://ai.google.dev/api/generate-content and https://ai.google.dev/api (v1beta), read 2026-11.
 *
 * Must hold: a model is looked for among `models/` unless its name contains a path of its own, and a key and
 * a token go in different headers (test/unit/providers/gemini/gemini.test.ts).
 */
import {
  authorizationOf,
  type Provider,
  type ProviderCall,
  type UnsignedCall,
  type WrittenRequest,
} from '../provider.js';
import { readError } from './errors.js';
import { requestBody } from './request.js';
import { readResponse } from './response.js';
import { GeminiStream } from './stream.js';

/** What Google calls the method, with the query that asks for server-sent events. vertex.ts calls it too. */
export function methodOf(stream: boolean): string {
  return stream ? ':streamGenerateContent?alt=sse' : ':generateContent';
}

/**
 * A model's name, which may be a path of its own, in a path. A `?` or `#`, which `encodeURI` leaves, would
 * end the path before the method. vertex/vertex.ts calls this too.
 */
export function encodedName(name: string): string {
  return encodeURI(name).replaceAll('?', '%3F').replaceAll('#', '%23');
}

/** The headers that authorise a call, also at Vertex: a key in Google's own, a token in `authorization`. */
export function authorization({ credential }: ProviderCall): readonly string[] {
  return authorizationOf(credential, 'x-goog-api-key');
}

function write(call: UnsignedCall): WrittenRequest {
  const { basePath, apiVersion } = call.settings;
  // The name of a tuned model contains its collection: tunedModels/x.
  const model = call.model.includes('/') ? call.model : `models/${call.model}`;
  return {
    path: `${basePath}/${apiVersion}/${encodedName(model)}${methodOf(call.stream)}`,
    body: requestBody(call),
  };
}

export const GEMINI: Provider = {
  write,
  headers: authorization,
  readResponse,
  openStream: (call) => new GeminiStream(call),
  readError,
};
