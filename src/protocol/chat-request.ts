/**
 * Reads a chat-completion request: from a body's bytes to what the gateway has to know of it, or to the 400 that its sender gets.
 * Pure; listener thread, and the counter pool for large bodies.
 *
 * The common way is one JSON.parse, one compiled check and one scan of the text for the members' places; nothing is
 * thrown on it. Only a refused body is looked at twice, to name what is wrong.
 */
import { isAscii, isUtf8, transcode } from 'node:buffer';
import type { ErrorRecord } from '../core/errors.js';
import { withUsageAsked } from './chat-body.js';
import type { ChatCall, OutputTokensField } from './chat-call.js';
import type { ChatRequest } from './chat-schema.js';
import { explain } from './explain.js';
import { MemberCursor } from './member-scan.js';
import { checkChatRequest } from './validators.js';

export type ChatRequestResult =
  { readonly ok: true; readonly call: ChatCall } | { readonly ok: false; readonly error: ErrorRecord };

/** Characters of the JSON parser's reason that are handed on; its longest fixed sentence has some 70. */
const REASON_CHARS_MAX = 100;
/** Characters of a repeated member's name that are handed on. */
const NAME_CHARS_MAX = 40;
const BYTE_ORDER_MARK = '\uFEFF';

function refusal(message: string): ChatRequestResult {
  return { ok: false, error: { code: 'invalid_parameters', message } };
}

/**
 * The text of a body; undefined where it is not UTF-8. A byte-order mark stays, for readChatRequest to refuse. Text that is not ASCII
 * takes the way over UTF-16, which `transcode` makes with vector instructions: 64 KB of Chinese in 33 µs, against 380 µs by
 * V8's own decoder (of which a TextDecoder makes use too).
 */
export function decodeBody(bytes: Uint8Array | ArrayBuffer): string | undefined {
  const body =
    bytes instanceof ArrayBuffer
      ? Buffer.from(bytes)
      : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (isAscii(body)) return body.toString('latin1');
  return isUtf8(body) ? transcode(body, 'utf8', 'utf16le').toString('utf16le') : undefined;
}

/** What is wrong with a text that is not JSON, without the pieces of the body that V8 puts into its message. */
function brokenJson(text: string, fault: unknown): string {
  if (text.startsWith(BYTE_ORDER_MARK)) return 'the request body must not start with a byte-order mark';
  if (/^[ \t\r\n]*$/.test(text)) return 'the request body must be a JSON object, got an empty body';
  const message = fault instanceof SyntaxError ? fault.message : '';
  // `Unexpected token 'x', ..."piece of the body" is not valid JSON` and `… in JSON at position 7 (line 1 column 8)`.
  const reason = /^(.*?)(?:, (?:\.\.\.)?"| \(line |$)/s.exec(message)?.[1] ?? '';
  return `the request body must be valid JSON: ${reason.slice(0, REASON_CHARS_MAX)}`;
}

/** The first name that the object at `text[open]` has twice, if any. */
function repeatedName(text: string, open: number): string | undefined {
  const seen = new Set<string>();
  const members = new MemberCursor(text, open);
  while (members.next()) {
    const name = members.name();
    if (seen.has(name)) return name.slice(0, NAME_CHARS_MAX);
    seen.add(name);
  }
  return undefined;
}

function callOf(request: ChatRequest, text: string, bodyBytes: number): ChatRequestResult {
  const open = text.indexOf('{');
  const members = new MemberCursor(text, open);
  let count = 0;
  let model = { start: 0, end: 0 };
  let streamOptions: { start: number; end: number } | undefined;
  while (members.next()) {
    count++;
    if (members.isNamed('model')) model = { start: members.valueStart, end: members.valueEnd };
    else if (members.isNamed('stream_options')) {
      streamOptions = { start: members.valueStart, end: members.valueEnd };
    }
  }

  // JSON.parse keeps the last of two members; a provider that keeps the first would do other work than is billed here.
  if (count !== Object.keys(request).length) return refusal(`${repeatedName(text, open)} must be given once`);
  if (streamOptions !== undefined && request.stream_options) {
    const repeated = repeatedName(text, streamOptions.start);
    if (repeated !== undefined) return refusal(`stream_options.${repeated} must be given once`);
  }

  const stream = request.stream === true;
  const includeUsage = request.stream_options?.include_usage === true;
  const sent = { body: text, modelStart: model.start, modelEnd: model.end };
  const asked =
    stream && !includeUsage ? withUsageAsked(sent, { value: streamOptions, end: members.end }) : sent;
  const outputTokensMax = outputTokensMaxOf(request);
  const call: ChatCall = {
    model: request.model,
    stream,
    includeUsage,
    outputTokensMax,
    outputTokensField: outputTokensFieldOf(request, outputTokensMax),
    choices: request.n ?? 1,
    body: asked.body,
    // What is added to a body is ASCII.
    bodyIsAscii: text.length === bodyBytes,
    // There from the first: a field that comes later costs microseconds.
    largeBody: undefined,
    bodyBytes,
    modelStart: asked.modelStart,
    modelEnd: asked.modelEnd,
  };
  return { ok: true, call };
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

/**
 * Reads the text of a request body; `bodyBytes` is its length in UTF-8. Gives the call, or `invalid_parameters` with a message that
 * names the field, the rule and what was got. Never throws, however deep the text is nested. Linear in the text; see bench/micro/parse.ts
 * for what it costs.
 */
export function readChatRequest(text: string, bodyBytes: number): ChatRequestResult {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch (fault) {
    return refusal(brokenJson(text, fault));
  }
  return checkChatRequest(body) ? callOf(body, text, bodyBytes) : refusal(explain(body));
}
