/**
 * Vertex AI as a Provider (provider.ts): Gemini and Claude at Google Cloud, with a token of a service
 * account. Gemini's bodies are those of the Gemini API, Claude's those of Anthropic's Messages. The path
 * names project, region and publisher; the publisher follows from the model's name. provider-client.ts calls
 * VERTEX. Upstream worker; `write` also on counter threads.
 *
 * Must hold: `isClaude` alone decides on the protocol of a translated call: request, response and stream.
 * Passed calls are all for Claude (checked): `doorsOf` of gateway/settings-records.ts gives no other model
 * the Messages doors. No error names a project of the operator (test/unit/providers/vertex/vertex.test.ts).
 *
 * Follows https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference (v1), and
 * …/docs/partner-models/claude/use-claude of the same site, read 2026-11.
 */
import { exactJsonText } from '../../core/exact-json.js';
import { invariant } from '../../core/errors.js';
import { isRecord, parsedJson } from '../../core/json.js';
import { cloudBodyOf, knownBetasOf } from '../anthropic/anthropic.js';
import { readAnthropicError } from '../anthropic/errors.js';
import { writeMessages as writeAnthropicRequest } from '../anthropic/request.js';
import { readMessage as readAnthropicResponse } from '../anthropic/response.js';
import { MessageStream as AnthropicStream } from '../anthropic/stream.js';
import type { HeaderLookup } from '../../http1/http-client.js';
import { isClaudeOnVertex } from '../claude-names.js';
import { withoutOperatorNames, readError as readGeminiError } from '../gemini/errors.js';
import { authorization, encodedName, methodOf as geminiMethodOf } from '../gemini/gemini.js';
import { requestBody as geminiRequestBody } from '../gemini/request.js';
import { readResponse as readGeminiResponse } from '../gemini/response.js';
import { GeminiStream } from '../gemini/stream.js';
import type {
  PassedCall,
  PassedRequest,
  Provider,
  ProviderCall,
  ProviderFailure,
  UnsignedCall,
  WrittenRequest,
} from '../provider.js';

const CLAUDE_VERSION = 'vertex-2023-10-16';
/** Vertex counts tokens for every Claude model at the path of this pseudo-model; the body names the model. */
const COUNTING_MODEL = 'count-tokens';
/**
 * Beta features that Claude on Vertex has: the names of `vertex_ai` in LiteLLM's
 * anthropic_beta_headers_config.json, read 2026-11. Until a newer name is here, operators set `betas`.
 */
const BETAS = new RegExp(
  '^(?:compact|computer-use|context-1m|context-management|dangerous-tool-use|interleaved-thinking|' +
    'per-turn-control|thinking-binding-controls|thinking-display-updates|tool-search-tool|web-search)-' +
    '\\d{4}-\\d\\d-\\d\\d$',
);
/** The start of the one beta that Vertex rejects for COUNTING_MODEL (anthropics/claude-code, issue 12429). */
const BETA_NOT_FOR_COUNTS = 'web-search-';
/** The name of a tuned model, which is an endpoint of the project. */
const ENDPOINT = /^\d+$/;

/** Whether the model speaks Anthropic's protocol. Any other, also a tuned one, speaks Gemini's. */
function isClaude({ model }: UnsignedCall): boolean {
  return isClaudeOnVertex(model);
}

/** The path of a call. `publisher` is used unless the model's name contains a path of its own. */
function pathTo({ settings, model }: UnsignedCall, publisher: string, method: string): string {
  const { basePath, apiVersion, project, region } = settings;
  const name = ENDPOINT.test(model)
    ? `endpoints/${model}`
    : model.includes('/')
      ? model
      : `publishers/${publisher}/models/${model}`;
  return `${basePath}/${apiVersion}/projects/${project}/locations/${region}/${encodedName(name)}${method}`;
}

function write(call: UnsignedCall): WrittenRequest {
  if (!isClaude(call))
    return { path: pathTo(call, 'google', geminiMethodOf(call.stream)), body: geminiRequestBody(call) };
  const { betas } = call.settings;
  return {
    path: pathTo(call, 'anthropic', call.stream ? ':streamRawPredict' : ':rawPredict'),
    body: exactJsonText({
      anthropic_version: CLAUDE_VERSION,
      ...(betas.length > 0 && { anthropic_beta: betas }),
      ...writeAnthropicRequest(call),
    }),
  };
}

/** Never throws. Errors of Claude itself have Anthropic's form; those of the platform have Google's. */
function readErrorOfEither(status: number, header: HeaderLookup, body: string): ProviderFailure {
  const members = parsedJson(body);
  if (!isRecord(members) || members.type !== 'error') return readGeminiError(status, header, body);
  const failure = readAnthropicError(status, header, body);
  // As in Google's own errors: the platform may name the project in an error of Claude.
  return { ...failure, message: withoutOperatorNames(failure.message) };
}

/**
 * A passed request of a Messages door. The model moves from the body to the path. If tokens are counted, the
 * path names COUNTING_MODEL, and the model goes back into the body: its name alone, although the settings
 * may name the model by its path. There it comes before `anthropic_version`, which cloudBodyOf always writes
 * first. Throws if the model is not one of Anthropic's.
 */
function writePassedClaude(
  call: ProviderCall,
  body: string | Uint8Array,
  { door, stream, betas }: PassedCall,
): PassedRequest {
  const countsTokens = door === 'count_tokens';
  const callersBetas = knownBetasOf(
    betas,
    (name) => BETAS.test(name) && !(countsTokens && name.startsWith(BETA_NOT_FOR_COUNTS)),
  );
  const written = cloudBodyOf(body, { version: CLAUDE_VERSION, betas: call.settings.betas, callersBetas });
  invariant(isClaudeOnVertex(written.model), 'a passed call of Vertex is for Claude');
  const name = written.model.slice(written.model.lastIndexOf('/') + 1);
  const model = countsTokens ? COUNTING_MODEL : written.model;
  return {
    path: pathTo({ ...call, model }, 'anthropic', stream ? ':streamRawPredict' : ':rawPredict'),
    headers: authorization(call),
    body: countsTokens ? `{"model":${JSON.stringify(name)},${written.body.slice(1)}` : written.body,
  };
}

export const VERTEX: Provider = {
  write,
  headers: authorization,
  readResponse: (body, call) => (isClaude(call) ? readAnthropicResponse : readGeminiResponse)(body, call),
  openStream: (call) => (isClaude(call) ? new AnthropicStream(call) : new GeminiStream(call)),
  readError: readErrorOfEither,
  writePassed: writePassedClaude,
};
