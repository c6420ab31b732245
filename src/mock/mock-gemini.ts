/**
 * The mock's Gemini protocol: generateContent, whole and streamed. mock-upstream.ts has it in its table;
 * mock-vertex.ts has it at other paths; mock-gemini-rules.ts checks requests. Pure.
 *
 * Follows https://ai.google.dev/api/generate-content (v1beta; the v1 of Vertex has the same members) and
 * docs/thought-signatures, read 2026-11.
 *
 * Must hold: Google's own SDK reads the responses (test/unit/mock/mock-gemini.test.ts).
 */
import { isRecord, membersOf, parsedJson, type Members } from '../core/json.js';
import { countWith, geminiProblem, GEMINI_3, partsOf, recordsIn } from './mock-gemini-rules.js';
import { BYTES_PER_TOKEN, brokenSse, sseFrame, directivesOf } from './mock-protocol.js';
import type {
  MockCompletion,
  MockCall,
  MockError,
  MockProtocol,
  MockRequest,
  MockUsage,
} from './mock-protocol.js';

const RESPONSE_ID = 'mock-response';
/** Base64 of "signature". */
const SIGNATURE = 'c2lnbmF0dXJl';

/** The names of statuses in Google's errors, by the HTTP status. */
const STATUSES: Readonly<Record<number, string>> = {
  400: 'INVALID_ARGUMENT',
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  429: 'RESOURCE_EXHAUSTED',
  499: 'CANCELLED',
  500: 'INTERNAL',
  503: 'UNAVAILABLE',
  504: 'DEADLINE_EXCEEDED',
};

function errorText(code: number, message: string, details: readonly object[] = []): string {
  const status = STATUSES[code] ?? 'UNKNOWN';
  return JSON.stringify({ error: { code, message, status, ...(details.length > 0 && { details }) } });
}

export function googleErrorOf(status: number, message: string, details?: readonly object[]): MockError {
  return { status, error: errorText(status, message, details) };
}

export const NO_SUCH_PATH = googleErrorOf(404, 'no such path on the mock');

export function readGeminiBody(body: string, model: string, stream: boolean): MockRequest | MockError {
  const request = parsedJson(body);
  if (!isRecord(request)) return googleErrorOf(400, 'Invalid JSON payload received.');
  const problem = geminiProblem(request, model);
  if (problem !== undefined) return googleErrorOf(400, problem);
  const contents = recordsIn(request.contents);
  const textsOf = (content: unknown): string[] =>
    partsOf(content).flatMap(({ text }) => (typeof text === 'string' ? [text] : []));
  const allTexts = [...textsOf(request.systemInstruction), ...contents.flatMap(textsOf)];
  const prompts = contents.filter(({ role }) => role === 'user').flatMap(textsOf);
  const bytes = allTexts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  return {
    model,
    stream,
    includeUsage: true,
    promptTokens: Math.ceil(bytes / BYTES_PER_TOKEN),
    directives: directivesOf(prompts.at(-1) ?? ''),
    toolNames: toolNamesOf(request),
    ...(callingConfigOf(request).mode === 'NONE' && { forbidsTools: true }),
    endsWithToolResult: countWith(partsOf(contents.at(-1)), 'functionResponse') > 0,
  };
}

function callingConfigOf({ toolConfig }: Members): Members {
  return membersOf(membersOf(toolConfig).functionCallingConfig);
}

function toolNamesOf(request: Members): string[] {
  const { allowedFunctionNames: allowed } = callingConfigOf(request);
  const declared = recordsIn(request.tools).flatMap((tool) => recordsIn(tool.functionDeclarations));
  const names = declared.map(({ name }) => String(name));
  return Array.isArray(allowed) ? names.filter((name) => allowed.includes(name)) : names;
}

/** `share`: how much of the text has come, from 0 to 1: each event of a stream reports the tokens so far. */
function usageMetadata(usage: MockUsage, share = 1): object {
  const { prompt, cached, completion, reasoning } = usage;
  const shown = Math.ceil((completion - reasoning) * share);
  return {
    promptTokenCount: prompt,
    candidatesTokenCount: shown,
    totalTokenCount: prompt + shown + reasoning,
    ...(cached !== 0 && { cachedContentTokenCount: cached }),
    promptTokensDetails: [{ modality: 'TEXT', tokenCount: prompt }],
    ...(reasoning !== 0 && { thoughtsTokenCount: reasoning }),
  };
}

const FINISH_REASONS = { stop: 'STOP', tool_calls: 'STOP', length: 'MAX_TOKENS', content_filter: 'SAFETY' };

/** Lists of parts: each list is one event of a stream. All calls of tools are in one list. */
function partListsOf({ thinking, texts, tools, request }: MockCompletion): object[][] {
  const isGemini3 = GEMINI_3.test(request.model);
  const calls = tools.map(({ id, name, pieces }, index) => ({
    functionCall: { ...(isGemini3 && { id }), name, args: JSON.parse(pieces.join('')) as object },
    ...(index === 0 && { thoughtSignature: SIGNATURE }),
  }));
  return [
    ...thinking.map((text) => [{ text, thought: true }]),
    ...texts.map((text) => [{ text }]),
    ...(calls.length > 0 ? [calls] : []),
  ];
}

function whole(completion: MockCompletion): string {
  const { request, finish, usage } = completion;
  // Google joins adjacent texts in a whole response.
  const parts: { text?: string; thought?: boolean }[] = [];
  for (const part of partListsOf(completion).flat() as typeof parts) {
    const lastPart = parts.at(-1);
    const continuesLast =
      part.text !== undefined && lastPart?.text !== undefined && lastPart.thought === part.thought;
    if (continuesLast) lastPart.text! += part.text!;
    else parts.push({ ...part });
  }
  return JSON.stringify({
    candidates: [{ content: { parts, role: 'model' }, finishReason: FINISH_REASONS[finish], index: 0 }],
    ...(usage && { usageMetadata: usageMetadata(usage) }),
    modelVersion: request.model,
    responseId: RESPONSE_ID,
  });
}

function frames(completion: MockCompletion): Uint8Array[] {
  const { request, finish, usage } = completion;
  const partLists = partListsOf(completion);
  const event = (parts: readonly object[], share: number, moreMembers: object = {}): Uint8Array =>
    sseFrame(
      JSON.stringify({
        candidates: [{ content: { parts, role: 'model' }, ...moreMembers, index: 0 }],
        ...(usage && { usageMetadata: usageMetadata(usage, share) }),
        modelVersion: request.model,
        responseId: RESPONSE_ID,
      }),
    );
  return [
    ...partLists.map((parts, index) => event(parts, (index + 1) / partLists.length)),
    event([{ text: '' }], 1, { finishReason: FINISH_REASONS[finish] }),
  ];
}

const PATH = /^\/v1beta\/models\/([\w.@-]+):(generateContent|streamGenerateContent)$/;

/** Whether method and query are those of a stream; undefined if they do not go together. */
export function isStreamCall(method: string, query: string): boolean | undefined {
  if (method === 'generateContent') return query === '' ? false : undefined;
  return query === 'alt=sse' ? true : undefined;
}

export const GEMINI_MOCK: MockProtocol = {
  streamType: 'text/event-stream',
  read({ path, query, headers, body }: MockCall): MockRequest | MockError {
    const [, model, method] = PATH.exec(path) ?? [];
    const stream = method === undefined ? undefined : isStreamCall(method, query);
    if (model === undefined || stream === undefined) return NO_SUCH_PATH;
    const key = headers['x-goog-api-key'];
    if (!key)
      return googleErrorOf(
        403,
        "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API.",
      );
    if (key === 'invalid')
      return googleErrorOf(400, 'API key not valid. Please pass a valid API key.', [
        {
          '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
          reason: 'API_KEY_INVALID',
          domain: 'googleapis.com',
        },
      ]);
    if (model === 'missing')
      return googleErrorOf(404, 'models/missing is not found for API version v1beta, or is not supported.');
    return readGeminiBody(body, model, stream);
  },
  whole,
  frames,
  error: (status, message) => googleErrorOf(status, message),
  errorFrame: (status, message) => sseFrame(errorText(status, message)),
  broken: brokenSse,
};
