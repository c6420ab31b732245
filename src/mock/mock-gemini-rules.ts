/**
 * Google's rules for requests to Gemini, by which the mock rejects unknown members, wrong values, and
 * misplaced calls and results. mock-gemini.ts calls this file. Pure.
 *
 * Follows https://ai.google.dev/api/generate-content and /api/caching (v1beta; the v1 of Vertex has the same
 * members), docs/function-calling and docs/thought-signatures, read 2026-11. The texts of errors resemble
 * Google's.
 *
 * Must hold: a request that Google rejects is rejected, and so is a member that Google does not know
 * (test/unit/mock/mock-gemini.test.ts).
 */
import { isRecord, type Members, membersOf } from '../core/json.js';

/** Models of Gemini 3 and later: they need signatures of calls, and send ids of calls. */
export const GEMINI_3 = /^gemini-[3-9]/;

/** The objects in a list; none of any other value. */
export const recordsIn = (value: unknown): readonly Members[] =>
  Array.isArray(value) ? (value as unknown[]).filter(isRecord) : [];
/** The parts of a content; none of any other value. */
export const partsOf = (content: unknown): readonly Members[] =>
  isRecord(content) ? recordsIn(content.parts) : [];
/** How many of the parts have the member `name`. */
export const countWith = (parts: readonly Members[], name: string): number =>
  parts.filter((part) => part[name] !== undefined).length;

/** The first rule that the request breaks, as Google's message; undefined if it breaks none. */
export function geminiProblem(request: Members, model: string): string | undefined {
  // Shapes come first, because `valueProblem` relies on them.
  return shapeProblem(request, REQUEST, '') ?? valueProblem(request, model);
}

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
    const calls = countWith(parts, 'functionCall');
    const results = countWith(partsOf(contents[index + 1]), 'functionResponse');
    if (calls > 0 && index + 1 < contents.length && calls !== results)
      return 'Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.';
    const calledBefore = countWith(partsOf(contents[index - 1]), 'functionCall');
    if (countWith(parts, 'functionResponse') > 0 && calledBefore === 0)
      return 'Please ensure that function response turn comes immediately after a function call turn.';
    const firstCall = parts.find((part) => part.functionCall !== undefined);
    if (GEMINI_3.test(model) && firstCall !== undefined && firstCall.thoughtSignature === undefined)
      return 'Function call is missing a thought_signature in functionCall parts.';
  }
  return configProblem(request);
}

function configProblem({ generationConfig, toolConfig }: Members): string | undefined {
  const config = membersOf(generationConfig);
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

/**
 * A word is a kind of value (IS_OF_KIND), `[Shape]` a list of such values, a record all members of an
 * object.
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
