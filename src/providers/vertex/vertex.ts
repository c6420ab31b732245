/**
 * Vertex AI: Gemini at Google Cloud, with a token of a service account. Its bodies are those of the Gemini
 * API; the path names project and region. provider-client.ts calls it. Upstream worker.
 *
 * Follows https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference (v1), read 2026-11.
 */
import { readError } from '../gemini/errors.js';
import { authorization, methodOf } from '../gemini/gemini.js';
import { requestBody } from '../gemini/request.js';
import { readResponse } from '../gemini/response.js';
import { GeminiStream } from '../gemini/stream.js';
import type { Provider, ProviderCall, ProviderRequest } from '../provider.js';

/** A tuned model is an endpoint of the project, whose name is a number. */
const ENDPOINT = /^\d+$/;

/** `publisher`: whose model it is, unless the model's name says where it is. */
function pathOf({ settings, model }: ProviderCall, publisher: string, method: string): string {
  const { basePath, apiVersion, project, region } = settings;
  const name = ENDPOINT.test(model)
    ? `endpoints/${model}`
    : model.includes('/')
      ? model
      : `publishers/${publisher}/models/${model}`;
  return `${basePath}/${apiVersion}/projects/${project}/locations/${region}/${encodeURI(name)}${method}`;
}

function write(call: ProviderCall): ProviderRequest {
  return {
    path: pathOf(call, 'google', methodOf(call.stream)),
    headers: authorization(call),
    body: requestBody(call),
  };
}

export const VERTEX: Provider = {
  write,
  readResponse,
  openStream: (call) => new GeminiStream(call),
  readError,
};
