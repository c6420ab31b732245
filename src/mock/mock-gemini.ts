/**
 * The mock's Gemini protocol. mock-upstream.ts has it in its table; mock-vertex.ts has it at other paths.
 * Requests are checked by https://ai.google.dev/api/generate-content and /api/caching (v1beta; the v1 of
 * Vertex has the same members), docs/function-calling and docs/thought-signatures, read 2026-11. Pure.
 *
 * Must hold: a request that Google rejects is rejected, and so is a member that Google does not know
 * (test/unit/mock/mock-gemini.test.ts).
 */
import { isRecord, parsedJson, type Members } from '../core/json.js';
import {
  BYTES_PER_TOKEN,
  brokenSse,
  sseFrame,
  directivesOf,
  type MockCompletion,
  type MockCall,
  type MockError,
  type MockProtocol,
  type MockRequest,
  type MockUsage,
} from './mock-protocol.js';

const RESPONSE_ID = 'mock-response';
/** Base64 of "signature". */
const SIGNATURE = 'c2lnbmF0dXJl';
/** Models of Gemini 3 and later: they need signatures of calls, and send ids of calls. */
const GEMINI_3 = /^gemini-[3-9]/;

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

/** Google's error, a `google.rpc.Status`. */
export function errorOf(status: number, message: string, details?: readonly object[]): MockError {
  return { status, error: errorText(status, message, details) };
}

export const NO_SUCH_PATH = errorOf(404, 'no such path on the mock');

/** The objects in a list; none of any other value. */
const recordsIn = (value: unknown): readonly Members[] =>
  Array.isArray(value) ? (value as unknown[]).filter(isRecord) : [];
const partsOf = (content: unknown): readonly Members[] => (isRecord(content) ? recordsIn(content.parts) : []);
/** How many of the parts have the member `name`. */
const countOf = (parts: readonly Members[], name: string): number =>
  parts.filter((part) => part[name] !== undefined).length;

/** Google's message about a wrong value, or members that exclude each other; undefined if there is none. */
function valueProblem(request: Members, model: string): string | undefined {
  const contents = recordsIn(request.contents);
  if (contents.length === 0) return '* GenerateContentRequest.contents: contents is not specified';
  for (const [index, content] of contents.entries()) {
    const parts = partsOf(content);
    if (content.role !== 'user' && content.role !== 'model') return 'Please use a valid role: user, model.';
    if (parts.length === 0)
      return `* GenerateContentRequest.contents[${index}].parts: contents.parts must not be empty.`;
    if (parts.some((part) => part.text === '' && part.thoughtSignature === undefined))
      return 'Unable to submit request because it must have a text parameter.';
    const calls = countOf(parts, 'functionCall');
    const results = countOf(partsOf(contents[index + 1]), 'functionResponse');
    if (calls > 0 && index + 1 < contents.length && calls !== results)
      return 'Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.';
    const firstCall = parts.find((part) => part.functionCall !== undefined);
    if (GEMINI_3.test(model) && firstCall !== undefined && firstCall.thoughtSignature === undefined)
      return 'Function call is missing a thought_signature in functionCall parts.';
  }
  return configProblem(request);
}

function configProblem({ generationConfig, toolConfig }: Members): string | undefined {
  const config = isRecord(generationConfig) ? generationConfig : {};
  const { temperature, thinkingConfig, responseMimeType: type } = config;
  if (typeof temperature === 'number' && (temperature < 0 || temperature > 2))
    return `Unable to submit request because it has a temperature value of ${temperature} but the supported range is from 0 (inclusive) to 2.`;
  if ((config.responseSchema ?? config.responseJsonSchema) !== undefined && type !== 'application/json')
    return 'Function calling with a response mime type: a schema needs application/json.';
  if (config.logprobs !== undefined && config.responseLogprobs !== true)
    return 'logprobs is set but response_logprobs is not.';
  if (isRecord(thinkingConfig)) {
    const { thinkingBudget, thinkingLevel } = thinkingConfig;
    if (thinkingBudget !== undefined && thinkingLevel !== undefined)
      return 'You can only set only one of thinking budget and thinking level.';
  }
  const callingConfig = isRecord(toolConfig) ? toolConfig.functionCallingConfig : undefined;
  if (!isRecord(callingConfig)) return undefined;
  if (!['AUTO', 'ANY', 'NONE', 'VALIDATED'].includes(String(callingConfig.mode)))
    return 'Invalid value at mode.';
  const isRestricted = callingConfig.allowedFunctionNames !== undefined;
  return isRestricted && callingConfig.mode !== 'ANY' && callingConfig.mode !== 'VALIDATED'
    ? 'allowed_function_names should only be set when the mode is ANY.'
    : undefined;
}

/** Returns what the body asks, or Google's error. Shapes come first: `valueProblem` relies on them. */
export function readBody(body: string, model: string, stream: boolean): MockRequest | MockError {
  const request = parsedJson(body);
  if (!isRecord(request)) return errorOf(400, 'Invalid JSON payload received.');
  const problem = shapeProblem(request, REQUEST, '') ?? valueProblem(request, model);
  if (problem !== undefined) return errorOf(400, problem);
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
    endsWithToolResult: countOf(partsOf(contents.at(-1)), 'functionResponse') > 0,
  };
}

function toolNamesOf({ tools, toolConfig }: Members): string[] {
  const callingConfig = isRecord(toolConfig) ? toolConfig.functionCallingConfig : undefined;
  const { mode, allowedFunctionNames: allowed } = isRecord(callingConfig) ? callingConfig : ({} as Members);
  if (mode === 'NONE') return [];
  const declared = recordsIn(tools).flatMap((tool) => recordsIn(tool.functionDeclarations));
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
      return errorOf(
        403,
        "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API.",
      );
    if (key === 'invalid')
      return errorOf(400, 'API key not valid. Please pass a valid API key.', [
        {
          '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
          reason: 'API_KEY_INVALID',
          domain: 'googleapis.com',
        },
      ]);
    if (model === 'missing')
      return errorOf(404, 'models/missing is not found for API version v1beta, or is not supported.');
    return readBody(body, model, stream);
  },
  whole,
  frames,
  error: errorOf,
  errorFrame: (status, message) => sseFrame(errorText(status, message)),
  broken: brokenSse,
};

/**
 * What a value may be. A word is a kind of value (IS_OF_KIND). A list with one shape is a list of such
 * values. A record is an object with no other members, each of its shape.
 */
type Shape = 'text' | 'number' | 'integer' | 'flag' | 'object' | 'any' | readonly [Shape] | RecordShape;
interface RecordShape {
  readonly [name: string]: Shape;
}

const BLOB = { mimeType: 'text', data: 'text', displayName: 'text' } as const;
const FILE = { mimeType: 'text', fileUri: 'text', displayName: 'text' } as const;

const PART: RecordShape = {
  text: 'text',
  thought: 'flag',
  thoughtSignature: 'text',
  inlineData: BLOB,
  fileData: FILE,
  functionCall: { id: 'text', name: 'text', args: 'object' },
  functionResponse: {
    id: 'text',
    name: 'text',
    response: 'object',
    parts: [{ inlineData: BLOB, fileData: FILE }],
    willContinue: 'flag',
    scheduling: 'text',
  },
  executableCode: 'object',
  codeExecutionResult: 'object',
  videoMetadata: 'object',
  mediaResolution: 'object',
};
const CONTENT: RecordShape = { role: 'text', parts: [PART] };

const REQUEST: RecordShape = {
  model: 'text',
  contents: [CONTENT],
  systemInstruction: CONTENT,
  cachedContent: 'text',
  safetySettings: [{ category: 'text', threshold: 'text' }],
  tools: [
    {
      functionDeclarations: [
        {
          name: 'text',
          description: 'text',
          behavior: 'text',
          parameters: 'object',
          parametersJsonSchema: 'any',
          response: 'object',
          responseJsonSchema: 'any',
        },
      ],
      googleSearch: 'object',
      googleMaps: 'object',
      codeExecution: 'object',
      urlContext: 'object',
    },
  ],
  toolConfig: {
    functionCallingConfig: { mode: 'text', allowedFunctionNames: ['text'] },
    retrievalConfig: 'object',
  },
  generationConfig: {
    stopSequences: ['text'],
    responseMimeType: 'text',
    responseSchema: 'object',
    responseJsonSchema: 'any',
    responseModalities: ['text'],
    candidateCount: 'integer',
    maxOutputTokens: 'integer',
    temperature: 'number',
    topP: 'number',
    topK: 'integer',
    seed: 'integer',
    presencePenalty: 'number',
    frequencyPenalty: 'number',
    responseLogprobs: 'flag',
    logprobs: 'integer',
    mediaResolution: 'text',
    speechConfig: 'object',
    imageConfig: 'object',
    thinkingConfig: { includeThoughts: 'flag', thinkingBudget: 'integer', thinkingLevel: 'text' },
  },
};

const IS_OF_KIND: Readonly<Record<string, (value: unknown) => boolean>> = {
  text: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  integer: Number.isSafeInteger,
  flag: (value) => typeof value === 'boolean',
  object: isRecord,
  any: () => true,
};

/** Google's message about a value of another shape than the reference's; undefined if the shape is right. */
function shapeProblem(value: unknown, shape: Shape, path: string): string | undefined {
  if (typeof shape === 'string')
    return IS_OF_KIND[shape]!(value)
      ? undefined
      : `Invalid value at '${path}' (${shape}), ${JSON.stringify(value).slice(0, 40)}`;
  if (isList(shape)) {
    if (!Array.isArray(value)) return `Invalid value at '${path}': it must be a list.`;
    for (const [index, item] of (value as unknown[]).entries()) {
      const problem = shapeProblem(item, shape[0], `${path}[${index}]`);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }
  if (!isRecord(value)) return `Invalid value at '${path}': it must be an object.`;
  for (const [name, member] of Object.entries(value)) {
    const memberShape = Object.hasOwn(shape, name) ? shape[name] : undefined;
    if (memberShape === undefined)
      return `Invalid JSON payload received. Unknown name "${name}"${path === '' ? '' : ` at '${path}'`}: Cannot find field.`;
    const problem = shapeProblem(member, memberShape, path === '' ? name : `${path}.${name}`);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function isList(shape: readonly [Shape] | RecordShape): shape is readonly [Shape] {
  return Array.isArray(shape);
}
