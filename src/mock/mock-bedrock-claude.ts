/**
 * The mock's Bedrock for Claude in Anthropic's own protocol: InvokeModel, InvokeModelWithResponseStream and
 * CountTokens. mock-bedrock.ts calls it, and makes the frames and errors of Bedrock. Pure.
 *
 * Follows the Amazon Bedrock User Guide, "Anthropic Claude Messages API", and the API Reference, November
 * 2026.
 *
 * Must hold: a body that Bedrock rejects is rejected, though Anthropic may accept it
 * (test/unit/mock/mock-bedrock-claude.test.ts).
 */
import { isRecord, membersOf, parsedJson, type Members } from '../core/json.js';
import { ANTHROPIC_MOCK, readHostedClaude } from './mock-anthropic.js';
import type { MockCompletion, MockRequest } from './mock-protocol.js';

export const CLAUDE_OPERATIONS = ['invoke', 'invoke-with-response-stream', 'count-tokens'] as const;
type ClaudeOperation = (typeof CLAUDE_OPERATIONS)[number];

const VERSION = 'bedrock-2023-05-31';
/** Some betas that Bedrock has; the mock rejects all others. */
const BETA = /^(?:computer-use|context-1m|interleaved-thinking|token-efficient-tools)-\d{4}-\d\d-\d\d$/;

/** Returns what the call asks, or the message of Bedrock's error, a ValidationException. */
export function readClaude(operation: ClaudeOperation, model: string, body: string): MockRequest | string {
  const members = parsedJson(body);
  if (!isRecord(members)) return 'The request body is not valid JSON';
  if (operation !== 'count-tokens') {
    const request = readInvoked(model, members);
    const stream = operation === 'invoke-with-response-stream';
    return typeof request === 'string' ? request : { ...request, stream };
  }
  if (!model.startsWith('anthropic.')) return "The provided model doesn't support counting tokens.";
  const { body: encoded } = membersOf(membersOf(members.input).invokeModel);
  const invoked =
    typeof encoded === 'string' ? parsedJson(Buffer.from(encoded, 'base64').toString()) : undefined;
  if (!isRecord(invoked)) return 'input.invokeModel.body is required';
  // Bedrock counts a body that it could invoke: `max_tokens` is required, and all that a message has allowed.
  const counted = readInvoked(model, invoked);
  return typeof counted === 'string' ? counted : { ...counted, isCount: true };
}

/** Reads a body for InvokeModel. Such a body has no `model` and no `stream`. */
function readInvoked(model: string, request: Members): MockRequest | string {
  const { anthropic_version: version, anthropic_beta: betas = [], ...members } = request;
  if (version !== VERSION) return `anthropic_version: must be "${VERSION}"`;
  if (!Array.isArray(betas) || !betas.every((beta) => typeof beta === 'string' && BETA.test(beta)))
    return 'invalid beta flag';
  for (const name of ['model', 'stream'])
    if (name in members) return `${name}: Extra inputs are not permitted`;
  const requestOrError = readHostedClaude({ model, ...members }, false);
  if (!('error' in requestOrError)) return requestOrError;
  const { error } = parsedJson(requestOrError.error) as { error: { message: string } };
  return error.message;
}

/** A response that is not streamed, or the response of CountTokens. */
export function wholeOfClaude(completion: MockCompletion): string {
  if (completion.request.isCount === true)
    return JSON.stringify({ inputTokens: completion.request.promptTokens });
  return ANTHROPIC_MOCK.whole(completion);
}

/** The JSON of Anthropic's events, which mock-bedrock.ts puts into frames of its own. */
export function eventsOfClaude(completion: MockCompletion): string[] {
  return ANTHROPIC_MOCK.frames(completion).map(
    (frame) => /^data: (.*)$/m.exec(Buffer.from(frame).toString())![1]!,
  );
}
