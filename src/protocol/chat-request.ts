/**
 * From a chat-completion request that was read to what the gateway has to know of it. Pure; listener thread, and the counter
 * pool for large bodies.
 */
import type { ErrorRecord } from '../core/errors.js';
import type { Splice } from './chat-body.js';
import type { ChatCall, OutputTokensField } from './chat-call.js';
import { NOWHERE, type ChatScan } from './chat-scan.js';
import type { ChatRequest } from './chat-schema.js';

export type ChatRequestResult =
  { readonly ok: true; readonly call: ChatCall } | { readonly ok: false; readonly error: ErrorRecord };

/** The form in which a body goes on, and where in it stands what may be changed. */
export type BodyForm = Pick<
  ChatCall,
  | 'body'
  | 'bodyIsAscii'
  | 'largeBody'
  | 'modelStart'
  | 'modelEnd'
  | 'maxTokens'
  | 'maxCompletionTokens'
  | 'bodyEnd'
>;

/** What a body is changed by so that a stream tells its usage, in bytes of the body; undefined where it does, or is no stream. */
export function usageSplice(scan: ChatScan): Splice | undefined {
  const { request, streamOptions, includeUsage, end } = scan;
  if (request.stream !== true || request.stream_options?.include_usage === true) return undefined;
  if (streamOptions === NOWHERE) {
    return { start: end, end, text: ',"stream_options":{"include_usage":true}' };
  }
  if (!request.stream_options) return { ...streamOptions, text: '{"include_usage":true}' };
  if (includeUsage !== NOWHERE) return { ...includeUsage, text: 'true' };
  // Before the brace that closes it.
  const start = streamOptions.end - 1;
  const text = scan.hasStreamOptions ? ',"include_usage":true' : '"include_usage":true';
  return { start, end: start, text };
}

/** The call of a valid request of `bodyBytes`, whose body goes on as `form`. */
export function callOf({ request, routingMembers }: ChatScan, bodyBytes: number, form: BodyForm): ChatCall {
  const outputTokensMax = outputTokensMaxOf(request);
  return {
    model: request.model,
    stream: request.stream === true,
    includeUsage: request.stream_options?.include_usage === true,
    outputTokensMax,
    outputTokensField: outputTokensFieldOf(request, outputTokensMax),
    choices: request.n ?? 1,
    routingMembers,
    body: form.body,
    bodyIsAscii: form.bodyIsAscii,
    largeBody: form.largeBody,
    bodyBytes,
    modelStart: form.modelStart,
    modelEnd: form.modelEnd,
    maxTokens: form.maxTokens,
    maxCompletionTokens: form.maxCompletionTokens,
    bodyEnd: form.bodyEnd,
  };
}

/** The larger where both fields are given: which of them an upstream obeys is not known, and the hold must cover it. */
function outputTokensMaxOf(request: ChatRequest): number | undefined {
  const current = request.max_completion_tokens ?? undefined;
  const former = request.max_tokens ?? undefined;
  return current !== undefined && former !== undefined ? Math.max(current, former) : (current ?? former);
}

function outputTokensFieldOf(
  request: ChatRequest,
  outputTokensMax: number | undefined,
): OutputTokensField | undefined {
  if (outputTokensMax === undefined) return undefined;
  return request.max_completion_tokens === outputTokensMax ? 'max_completion_tokens' : 'max_tokens';
}
