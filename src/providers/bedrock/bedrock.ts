/**
 * Amazon Bedrock as a Provider (provider.ts): all models by its Converse API, and Claude also by Anthropic's
 * own protocol (claude.ts). Upstream worker.
 *
 * Follows Amazon Bedrock API Reference, "Converse" and "ConverseStream"; User Guide, "Use an Amazon Bedrock
 * API key", 2026-11. request.ts, messages.ts, tools.ts and reasoning.ts translate the body.
 *
 * Must hold: path and signature are those of the AWS SDK, or AWS answers 403. The path is encoded here
 * once, as it is sent; signature.ts encodes it once more (test/unit/providers/bedrock/bedrock.test.ts).
 */
import { hash } from 'node:crypto';
import type { Provider, ProviderCall, UnsignedRequest } from '../provider.js';
import { ClaudeStream, claudeRequest, readCount } from './claude.js';
import { readError } from './errors.js';
import { bodyOf } from './request.js';
import { readResponse } from './response.js';
import { uriEncode, signatureHeaders } from './signature.js';
import { ConverseStream } from './stream.js';

export const BEDROCK: Provider = {
  write(call) {
    const { settings, model, stream } = call;
    const paths = pathsOf(model, settings.basePath);
    return { path: stream ? paths.stream : paths.whole, body: bodyOf(call) };
  },
  headers: authorization,
  signsBody: true,
  readResponse,
  openStream: (call) => new ConverseStream(call),
  readError,
  passed(call, callerHeaders, passedCall) {
    const { model, operation, body } = claudeRequest(call, callerHeaders, passedCall);
    const path = pathsOf(model, call.settings.basePath).prefix + operation;
    return {
      path,
      headers: authorization(call, { path, body }),
      body,
      ...(passedCall.stream && { stream: new ClaudeStream() }),
      ...(operation === 'count-tokens' && { readResponse: readCount }),
    };
  },
};

/**
 * The paths of the model that was called last, so that a run of calls to one model has one string:
 * signature.ts keeps what it made of a path and compares the next path with it.
 */
let last = { basePath: '', model: '', prefix: '', whole: '', stream: '' };

/** The paths of a model, whose name is one segment: an ARN has colons and slashes. */
function pathsOf(model: string, basePath: string): typeof last {
  if (last.model !== model || last.basePath !== basePath) {
    const prefix = `${basePath}/model/${uriEncode(model)}/`;
    last = { basePath, model, prefix, whole: `${prefix}converse`, stream: `${prefix}converse-stream` };
  }
  return last;
}

function authorization(
  { credential, settings, nowMs }: ProviderCall,
  { path, body, bodyHash }: UnsignedRequest,
): readonly string[] {
  switch (credential?.kind) {
    case 'aws':
      return signatureHeaders(
        path,
        settings.host,
        bodyHash ?? hash('sha256', body),
        credential,
        settings.region,
        nowMs,
      );
    case 'key':
      return ['authorization', `Bearer ${credential.key}`];
    case 'bearer':
      return ['authorization', `Bearer ${credential.token}`];
    // No credential: the operator's proxy in front of Bedrock adds one.
    default:
      return [];
  }
}
