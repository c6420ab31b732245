/**
 * The mock's Bedrock for Claude in Anthropic's own protocol: InvokeModel, InvokeModelWithResponseStream and
 * CountTokens. mock-bedrock.ts calls it. Pure.
 *
 * Follows the Amazon Bedrock User Guide, "Anthropic Claude Messages API", and the API Reference, November
 * 2026.
 *
 * Test: test/unit/mock/mock-bedrock-claude.test.ts.
 */
import { ANTHROPIC_MOCK } from './mock-anthropic.js';
import { isRecord, jsonOf, type MockCompletion, type MockRequest } from './mock-protocol.js';

export const CLAUDE_OPERATIONS = ['invoke', 'invoke-with-response-stream', 'count-tokens'] as const;
export type ClaudeOperation = (typeof CLAUDE_OPERATIONS)[number];

const VERSION = 'bedrock-2023-05-31';
const BETA = /^(?:computer-use|context-1m|interleaved-thinking|token-efficient-tools)-\d{4}-\d\d-\d\d$/;
/** Headers that the check of Messages wants; Bedrock has its own version and authorisation. */
const HEADERS = {
  'anthropic-version': '2023-06-01',
  'content-type': 'application/json',
  'x-api-key': 'bedrock',
};

/** The call as the mock reads it, or Bedrock's error. */
export function readClaude(operation: ClaudeOperation, model: string, body: string): MockRequest | string {
  const given = jsonOf(body);
  if (!isRecord(given)) return 'The request body is not valid JSON';
  if (operation !== 'count-tokens')
    return readInvoked('/v1/messages', model, given, operation === 'invoke-with-response-stream');
  if (!model.startsWith('anthropic.')) return "The provided model doesn't support counting tokens.";
  const { invokeModel } = isRecord(given.input) ? given.input : ({} as Record<string, unknown>);
  const encoded = isRecord(invokeModel) ? invokeModel.body : undefined;
  const invoked = typeof encoded === 'string' ? jsonOf(Buffer.from(encoded, 'base64').toString()) : undefined;
  if (!isRecord(invoked)) return 'input.invokeModel.body is required';
  const { max_tokens: bound, ...counted } = invoked;
  if (!Number.isInteger(bound)) return 'max_tokens: Field required';
  return readInvoked('/v1/messages/count_tokens', model, counted, false);
}

function readInvoked(
  path: string,
  model: string,
  request: Readonly<Record<string, unknown>>,
  stream: boolean,
): MockRequest | string {
  const { anthropic_version: version, anthropic_beta: betas = [], ...members } = request;
  if (version !== VERSION) return `anthropic_version: must be "${VERSION}"`;
  if (!Array.isArray(betas) || !betas.every((one) => typeof one === 'string' && BETA.test(one)))
    return 'invalid beta flag';
  for (const name of ['model', 'stream'])
    if (name in members) return `${name}: Extra inputs are not permitted`;
  const read = ANTHROPIC_MOCK.read({
    path,
    query: '',
    headers: HEADERS,
    body: JSON.stringify({ model, ...members }),
  });
  if (!('error' in read)) return { ...read, stream, isNative: true };
  const { error } = jsonOf(read.error) as { error: { message: string } };
  return error.message;
}

export function wholeOfClaude(completion: MockCompletion): string {
  if (completion.request.isCount === true)
    return JSON.stringify({ inputTokens: completion.request.promptTokens });
  return ANTHROPIC_MOCK.whole(completion);
}

/** Anthropic's events, as JSON. */
export function eventsOfClaude(completion: MockCompletion): string[] {
  return ANTHROPIC_MOCK.frames(completion).map(
    (frame) => /^data: (.*)$/m.exec(Buffer.from(frame).toString())![1]!,
  );
}
