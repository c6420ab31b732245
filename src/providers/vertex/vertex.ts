/**
 * Vertex AI: Gemini and Claude at Google Cloud, with a token of a service account. Gemini's bodies are those
 * of the Gemini API, Claude's those of Anthropic's Messages; the path names project, region and publisher,
 * which follows from the model's name. provider-client.ts calls it. Upstream worker.
 *
 * Follows https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference (v1) and
 * docs/partner-models/claude/use-claude, read 2026-11.
 */
import { exactJsonText } from '../../core/exact-json.js';
import { isRecord, parsedJson } from '../../core/json.js';
import { mergedBetas } from '../anthropic/anthropic.js';
import { readAnthropicError } from '../anthropic/errors.js';
import { writeMessages } from '../anthropic/request.js';
import { readMessage } from '../anthropic/response.js';
import { MessageStream } from '../anthropic/stream.js';
import { cleaned, readError } from '../gemini/errors.js';
import { authorization, methodOf } from '../gemini/gemini.js';
import { requestBody } from '../gemini/request.js';
import { readResponse } from '../gemini/response.js';
import { GeminiStream } from '../gemini/stream.js';
import { JsonReader } from '../../protocol/json-reader.js';
import type {
  PassedCall,
  PassedRequest,
  Provider,
  ProviderCall,
  ProviderFailure,
  ProviderRequest,
} from '../provider.js';

const CLAUDE = /^(?:publishers\/anthropic\/models\/)?claude-/;
/** The only version of Messages there; in the body, as `model` is in the path. */
const CLAUDE_VERSION = 'vertex-2023-10-16';
/** A tuned model is an endpoint of the project, whose name is a number. */
const ENDPOINT = /^\d+$/;

function isClaude({ model }: ProviderCall): boolean {
  return CLAUDE.test(model);
}

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
  const headers = authorization(call);
  if (!isClaude(call))
    return { path: pathOf(call, 'google', methodOf(call.stream)), headers, body: requestBody(call) };
  const { betas } = call.settings;
  return {
    path: pathOf(call, 'anthropic', call.stream ? ':streamRawPredict' : ':rawPredict'),
    headers,
    body: exactJsonText({
      anthropic_version: CLAUDE_VERSION,
      ...(betas.length > 0 && { anthropic_beta: betas }),
      ...writeMessages(call),
    }),
  };
}

/** Errors of Claude itself are Anthropic's, those of the platform before it Google's. */
function readEitherError(
  status: number,
  header: (name: string) => string | undefined,
  body: string,
): ProviderFailure {
  const value = parsedJson(body);
  const isAnthropics = isRecord(value) && value.type === 'error';
  if (!isAnthropics) return readError(status, header, body);
  const failure = readAnthropicError(status, header, body);
  return { ...failure, message: cleaned(failure.message) };
}

export const VERTEX: Provider = {
  write,
  readResponse: (body, call) => (isClaude(call) ? readMessage : readResponse)(body, call),
  openStream: (call) => (isClaude(call) ? new MessageStream(call) : new GeminiStream(call)),
  readError: readEitherError,
  passed: passClaude,
};

/** A request to Messages: the model goes from the body to the path, versions go from headers to the body. */
function passClaude(
  call: ProviderCall,
  body: string | Uint8Array,
  { stream, betas: given }: PassedCall,
): PassedRequest {
  const { model, others } = membersOf(body);
  const betas = mergedBetas(call.settings.betas, given);
  const added = [`"anthropic_version":${JSON.stringify(CLAUDE_VERSION)}`];
  if (betas.length > 0) added.push(`"anthropic_beta":${JSON.stringify(betas)}`);
  return {
    path: pathOf({ ...call, model }, 'anthropic', stream ? ':streamRawPredict' : ':rawPredict'),
    headers: authorization(call),
    body: `{${[...added, ...others].join(',')}}`,
  };
}

/** The value of `model`, and the other members as they are written. `body` was checked when it came. */
function membersOf(body: string | Uint8Array): { model: string; others: string[] } {
  const reader = new JsonReader(typeof body === 'string' ? Buffer.from(body) : body);
  let model = '';
  const others: string[] = [];
  reader.space();
  if (!reader.openObject()) return { model, others };
  do {
    const start = reader.at;
    reader.skipString();
    const name = reader.decoded(start, reader.at);
    reader.colon();
    const valueStart = reader.at;
    reader.skipValue();
    if (name === 'model') model = reader.decoded(valueStart, reader.at);
    else if (name !== 'anthropic_version' && name !== 'anthropic_beta')
      others.push(reader.bytes.toString('utf8', start, reader.at));
  } while (reader.moreMembers());
  return { model, others };
}
