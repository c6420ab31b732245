/**
 * The mock's Vertex AI protocol: for Gemini's models Gemini's, at the paths of a project and with a token in
 * place of a key; for Claude Anthropic's, with the model in the path and the version in the body. Pure.
 *
 * Follows https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference (v1) and
 * docs/partner-models/claude/use-claude, read 2026-11. mock-upstream.ts has it in its table.
 *
 * Must hold (test/unit/mock/mock-vertex.test.ts): a request without the project's path or a token is
 * rejected. The publisher in the path alone decides on the protocol, of the request and of the response.
 */
import { isRecord, parsedJson } from '../core/json.js';
import { ANTHROPIC_MOCK, readHostedClaude } from './mock-anthropic.js';
import { GEMINI_MOCK, isStreamCall, NO_SUCH_PATH, readGeminiBody, googleErrorOf } from './mock-gemini.js';
import type { MockCall, MockError, MockProtocol, MockRequest } from './mock-protocol.js';

const PATH =
  /^\/v1\/(projects\/[\w-]+\/locations\/[\w-]+)\/(?:publishers\/(google|anthropic)\/models\/([\w.@-]+)|endpoints\/(\d+)):(\w+)$/;
const CLAUDE_VERSION = 'vertex-2023-10-16';

function read(call: MockCall): MockRequest | MockError {
  const { path, query, headers, body } = call;
  const [, location, publisher, publishedModel, endpointModel, method = ''] = PATH.exec(path) ?? [];
  const model = publishedModel ?? endpointModel;
  if (model === undefined) return NO_SUCH_PATH;
  if (!/^Bearer ./.test(headers.authorization ?? ''))
    return googleErrorOf(
      401,
      'Request is missing required authentication credential. Expected OAuth 2 access token, login cookie or other valid authentication credential.',
    );
  if (model === 'missing')
    return googleErrorOf(
      404,
      `Publisher Model \`${location}/publishers/${publisher}/models/missing\` was not found or your project does not have access to it.`,
    );
  if (publisher === 'anthropic') return readClaude(call, model, method);
  const stream = isStreamCall(method, query);
  return stream === undefined ? NO_SUCH_PATH : readGeminiBody(body, model, stream);
}

/** Vertex counts Claude's tokens at the path of a model `count-tokens`. The body then names the model. */
function readClaude({ query, body }: MockCall, model: string, method: string): MockRequest | MockError {
  const isStream = method === 'streamRawPredict';
  if ((!isStream && method !== 'rawPredict') || query !== '') return NO_SUCH_PATH;
  const request = parsedJson(body);
  if (!isRecord(request)) return ANTHROPIC_MOCK.error(400, 'The request body is not valid JSON');
  const { anthropic_version: version, anthropic_beta: betas, ...members } = request;
  if (version !== CLAUDE_VERSION)
    return ANTHROPIC_MOCK.error(400, `anthropic_version: must be "${CLAUDE_VERSION}"`);
  if (betas !== undefined && !Array.isArray(betas))
    return ANTHROPIC_MOCK.error(400, 'anthropic_beta: must be a list');
  const isCount = model === 'count-tokens';
  const hasModel = members.model !== undefined;
  if (isCount && !hasModel) return ANTHROPIC_MOCK.error(400, 'model: Field required');
  if (!isCount && hasModel) return ANTHROPIC_MOCK.error(400, 'model: Extra inputs are not permitted');
  if ((members.stream === true) !== isStream)
    return ANTHROPIC_MOCK.error(400, 'stream: does not go with the method');
  return readHostedClaude({ model, ...members }, isCount);
}

/** The protocol of the response, and of its errors. */
function protocolOf({ isHostedClaude }: MockRequest): MockProtocol {
  return isHostedClaude === true ? ANTHROPIC_MOCK : GEMINI_MOCK;
}

export const VERTEX_MOCK: MockProtocol = {
  ...GEMINI_MOCK,
  read,
  whole: (completion) => protocolOf(completion.request).whole(completion),
  frames: (completion) => protocolOf(completion.request).frames(completion),
  // Without a request the path was wrong, which the platform itself says.
  error: (status, message, request) =>
    (request === undefined ? GEMINI_MOCK : protocolOf(request)).error(status, message),
  errorFrame: (status, message, request, framesBefore) =>
    protocolOf(request).errorFrame(status, message, request, framesBefore),
};
