/**
 * Amazon Bedrock as a Provider (provider.ts): paths and authorisation. All models speak Converse; request.ts,
 * messages.ts, tools.ts and models.ts translate the body. For requests to the Messages door Claude also
 * speaks Anthropic's own protocol (claude.ts). provider-client.ts calls BEDROCK. Upstream worker; `write`
 * also on counter threads.
 *
 * Follows Amazon Bedrock API Reference, "Converse" and "ConverseStream"; User Guide, "Use an Amazon Bedrock
 * API key", 2026-11.
 *
 * Must hold: path and signature are those of the AWS SDK, or AWS responds with 403. The path is encoded here
 * once, as it is sent; signature.ts encodes it once more (test/unit/providers/bedrock/bedrock.test.ts).
 */
import { hash } from 'node:crypto';
import { authorizationOf, type Provider, type ProviderCall, type UnsignedRequest } from '../provider.js';
import { claudeRequest, ClaudeStream, readCount } from './claude.js';
import { readError } from './errors.js';
import { bodyOf } from './request.js';
import { readResponse } from './response.js';
import { uriEncode, signatureHeaders } from './signature.js';
import { ConverseStream } from './stream.js';

export const BEDROCK: Provider = {
  write(call) {
    const { settings, model, stream } = call;
    const paths = pathsOf(model, settings.basePath);
    return { path: stream ? paths.converseStream : paths.converse, body: bodyOf(call) };
  },
  headers: authorization,
  signsBody: true,
  readResponse,
  openStream: (call) => new ConverseStream(call),
  readError,
  writePassed(call, callersBody, passedCall) {
    const { model, operation, body } = claudeRequest(call, callersBody, passedCall);
    const path = pathsOf(model, call.settings.basePath).prefix + operation;
    return {
      path,
      headers: authorization(call, { path, body }),
      body,
      ...(passedCall.stream && { openStream: () => new ClaudeStream() }),
      ...(operation === 'count-tokens' && { readResponse: readCount }),
    };
  },
};

/** Of the model that this thread called last: signature.ts compares one and the same string fast. */
let cachedPaths = { basePath: '', model: '', prefix: '', converse: '', converseStream: '' };

/** The paths of a model. The name becomes one segment, with colons and slashes of an ARN encoded. */
function pathsOf(model: string, basePath: string): typeof cachedPaths {
  if (cachedPaths.model !== model || cachedPaths.basePath !== basePath) {
    const prefix = `${basePath}/model/${uriEncode(model)}/`;
    const converse = `${prefix}converse`;
    cachedPaths = { basePath, model, prefix, converse, converseStream: `${prefix}converse-stream` };
  }
  return cachedPaths;
}

function authorization(
  { credential, settings, nowMs }: ProviderCall,
  { path, body, bodyHash }: UnsignedRequest,
): readonly string[] {
  if (credential?.kind === 'key') return ['authorization', `Bearer ${credential.key}`];
  if (credential?.kind !== 'aws') return authorizationOf(credential, 'authorization');
  const { host, region } = settings;
  return signatureHeaders(path, host, bodyHash ?? hash('sha256', body), credential, region, nowMs);
}
