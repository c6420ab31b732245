/**
 * The members of a request to Gemini, and Google's error for one that it does not know. mock-gemini.ts calls
 * it. Pure.
 *
 * Follows https://ai.google.dev/api/generate-content and /api/caching (v1beta), read 2026-11; the v1 of
 * Vertex has the same members.
 *
 * Must hold: a member that Google does not know is refused (test/unit/mock/mock-gemini.test.ts).
 */
import { isRecord } from './mock-protocol.js';

/** A function's name: what kind of value; a list: of such; a record: with no other members. */
type Shape = 'text' | 'number' | 'integer' | 'flag' | 'object' | 'any' | readonly [Shape] | Members;
interface Members {
  readonly [name: string]: Shape;
}

const BLOB = { mimeType: 'text', data: 'text', displayName: 'text' } as const;
const FILE = { mimeType: 'text', fileUri: 'text', displayName: 'text' } as const;

const PART: Members = {
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
const CONTENT: Members = { role: 'text', parts: [PART] };

const REQUEST: Members = {
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

const KINDS: Readonly<Record<string, (value: unknown) => boolean>> = {
  text: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number',
  integer: Number.isSafeInteger,
  flag: (value) => typeof value === 'boolean',
  object: isRecord,
  any: () => true,
};

/** Google's message about a request that is not as the reference says; undefined if it is. */
export function wrongShape(request: unknown): string | undefined {
  return wrongIn(request, REQUEST, '');
}

function wrongIn(value: unknown, shape: Shape, path: string): string | undefined {
  if (typeof shape === 'string')
    return KINDS[shape]!(value)
      ? undefined
      : `Invalid value at '${path}' (${shape}), ${JSON.stringify(value).slice(0, 40)}`;
  if (isList(shape)) {
    if (!Array.isArray(value)) return `Invalid value at '${path}': it must be a list.`;
    for (const [index, item] of (value as unknown[]).entries()) {
      const wrong = wrongIn(item, shape[0], `${path}[${index}]`);
      if (wrong !== undefined) return wrong;
    }
    return undefined;
  }
  if (!isRecord(value)) return `Invalid value at '${path}': it must be an object.`;
  for (const [name, member] of Object.entries(value)) {
    const known = Object.hasOwn(shape, name) ? shape[name] : undefined;
    if (known === undefined)
      return `Invalid JSON payload received. Unknown name "${name}"${path === '' ? '' : ` at '${path}'`}: Cannot find field.`;
    const wrong = wrongIn(member, known, path === '' ? name : `${path}.${name}`);
    if (wrong !== undefined) return wrong;
  }
  return undefined;
}

function isList(shape: readonly [Shape] | Members): shape is readonly [Shape] {
  return Array.isArray(shape);
}
