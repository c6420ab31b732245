/**
 * The mock's OpenAI protocol besides chat completions: embeddings, legacy completions, moderations and
 * reranks. mock-openai.ts calls it. This file is written from the references (OpenAI's, and for reranks
 * Cohere's and Jina's), and imports nothing of src/doors (mock-protocol.ts). Pure.
 *
 * Must hold: a response follows from its inputs, so that tests can check each of them
 * (test/e2e/embeddings.test.ts). No number of a request decides on memory without a bound
 * (test/unit/mock/mock-openai-doors.test.ts).
 */
import { isRecord, type Members } from '../core/json.js';
import { BYTES_PER_TOKEN, CREATED_SECONDS, DOOR_KINDS, sseFrame, directivesOf } from './mock-protocol.js';
import type { MockCompletion, MockDoorRequest, MockRequest } from './mock-protocol.js';

export const OPENAI_DOOR_PATHS: readonly string[] = DOOR_KINDS.map((kind) => `/v1/${kind}`);

/** How many numbers an embedding has, if the request does not say. */
const DIMENSIONS = 8;
/** The most numbers that a request may ask for: no model in use makes longer embeddings. */
const DIMENSIONS_MAX = 4_096;
/** The most completions of a prompt, by OpenAI's reference. */
const CHOICES_MAX = 128;
const CATEGORIES = ['harassment', 'hate', 'sexual', 'violence'];

/** Undefined if no door of this file has the `path` after `/v1`; OpenAI's message for a wrong number. */
export function readDoorRequest(path: string, body: Members): MockRequest | string | undefined {
  const kind = DOOR_KINDS.find((name) => path === `/${name}`);
  if (kind === undefined) return undefined;
  if (kind === 'embeddings' && !isBounded(body.dimensions, DIMENSIONS_MAX))
    return `Invalid value for 'dimensions': must be an integer from 1 to ${DIMENSIONS_MAX}.`;
  if (kind === 'completions' && !isBounded(body.n, CHOICES_MAX))
    return `Invalid value for 'n': must be an integer from 1 to ${CHOICES_MAX}.`;
  const input = kind === 'rerank' ? body.documents : kind === 'completions' ? body.prompt : body.input;
  const inputs = inputsOf(input);
  const firstText = kind === 'rerank' && typeof body.query === 'string' ? body.query : (inputs[0] ?? '');
  const queryTokens = kind === 'rerank' ? tokensOf(firstText, firstText) : 0;
  const { stream_options: options } = body;
  return {
    model: typeof body.model === 'string' ? body.model : 'mock-model',
    stream: kind === 'completions' && body.stream === true,
    includeUsage: isRecord(options) && options.include_usage === true,
    promptTokens: itemsOf(input).reduce<number>(
      (sum, item, index) => sum + tokensOf(item, inputs[index]!),
      queryTokens,
    ),
    directives: directivesOf(firstText),
    toolNames: [],
    endsWithToolResult: false,
    door: { kind, inputs, body },
  };
}

/** False for a number that is no integer from 1 to `max`. A value that is no number is read as absent. */
function isBounded(value: unknown, max: number): boolean {
  return typeof value !== 'number' || (Number.isInteger(value) && value >= 1 && value <= max);
}

/** The items of an input, each of which gets a result. A list of numbers is one item: it is tokens. */
function itemsOf(input: unknown): readonly unknown[] {
  return Array.isArray(input) && typeof input[0] !== 'number' ? (input as unknown[]) : [input ?? ''];
}

/** A text for each item: tokens joined by blanks, the text of an object, or its JSON. */
function inputsOf(input: unknown): string[] {
  return itemsOf(input).map((item) => {
    if (typeof item === 'string') return item;
    if (Array.isArray(item)) return item.join(' ');
    return isRecord(item) && typeof item.text === 'string' ? item.text : JSON.stringify(item);
  });
}

/** How many tokens an item has. `text`: the item's text, as `inputsOf` makes it. */
function tokensOf(item: unknown, text: string): number {
  return Array.isArray(item) ? item.length : Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);
}

/** The embedding of a text: eighths from 0 to below 32, which a float of 32 bits holds exactly. */
export function mockVector(text: string, dimensions = DIMENSIONS): number[] {
  const byteSum = Buffer.from(text).reduce((total, byte) => total + byte, 0);
  return Array.from({ length: dimensions }, (_, index) => ((byteSum + index) % 256) / 8);
}

const base64Of = (vector: readonly number[]): string =>
  Buffer.from(Float32Array.from(vector).buffer).toString('base64');

export function doorResponse(completion: MockCompletion, door: MockDoorRequest): string {
  const { model } = completion.request;
  const usage = usageOf(completion, door);
  switch (door.kind) {
    case 'embeddings':
      return JSON.stringify({ object: 'list', data: embeddingsOf(door), model, ...usage });
    case 'completions': {
      const choices = choicesOf(door).map((index) =>
        choiceOf(index, textOf(completion, door, index), 'stop'),
      );
      return JSON.stringify({ ...completionOf(model), choices, ...usage });
    }
    case 'moderations':
      return JSON.stringify({ id: 'modr-mock', model, results: door.inputs.map(moderationOf) });
    case 'rerank':
      return JSON.stringify({ id: 'rerank-mock', model, ...usage, results: rankedOf(door) });
  }
}

function usageOf({ usage }: MockCompletion, door: MockDoorRequest): object {
  if (usage === undefined) return {};
  const { prompt } = usage;
  if (door.kind === 'rerank') return { usage: { total_tokens: prompt } };
  if (door.kind === 'embeddings') return { usage: { prompt_tokens: prompt, total_tokens: prompt } };
  const completion = usage.completion * choicesOf(door).length;
  const total = prompt + completion;
  return { usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: total } };
}

function embeddingsOf({ inputs, body }: MockDoorRequest): object[] {
  const { dimensions } = body;
  return inputs.map((text, index) => {
    const vector = mockVector(text, typeof dimensions === 'number' ? dimensions : DIMENSIONS);
    return {
      object: 'embedding',
      index,
      embedding: body.encoding_format === 'base64' ? base64Of(vector) : vector,
    };
  });
}

const completionOf = (model: string): object => ({
  id: 'cmpl-mock',
  object: 'text_completion',
  created: CREATED_SECONDS,
  model,
});

const choiceOf = (index: number, text: string, finish: string | null): object => ({
  index,
  text,
  logprobs: null,
  finish_reason: finish,
});

const choicesPerPrompt = ({ body }: MockDoorRequest): number => (typeof body.n === 'number' ? body.n : 1);

/** The indices of all choices of a legacy completion. Those of the first prompt come first. */
function choicesOf(door: MockDoorRequest): number[] {
  return Array.from({ length: choicesPerPrompt(door) * door.inputs.length }, (_, index) => index);
}

/** The text of a choice: its prompt, if the request wants an echo, and the mock's text. */
function textOf({ texts }: MockCompletion, door: MockDoorRequest, choice: number): string {
  const prompt = door.inputs[Math.floor(choice / choicesPerPrompt(door))]!;
  return `${door.body.echo === true ? prompt : ''}${texts.join('')}`;
}

export function doorFrames(completion: MockCompletion, door: MockDoorRequest): Uint8Array[] {
  const { request, texts } = completion;
  const head = completionOf(request.model);
  const frame = (members: object): Uint8Array => sseFrame(JSON.stringify({ ...head, ...members }));
  const report =
    request.includeUsage && completion.usage !== undefined
      ? [frame({ choices: [], ...usageOf(completion, door) })]
      : [];
  const doneFrame = sseFrame('[DONE]');
  return [
    ...choicesOf(door).flatMap((index) => [
      ...texts.map((text) => frame({ choices: [choiceOf(index, text, null)] })),
      frame({ choices: [choiceOf(index, '', 'stop')] }),
    ]),
    ...(completion.isUsageLate ? [doneFrame, ...report] : [...report, doneFrame]),
  ];
}

function moderationOf(text: string): object {
  const flags = CATEGORIES.map((name) => [name, text.includes(name)] as const);
  return {
    flagged: flags.some(([, isNamed]) => isNamed),
    categories: Object.fromEntries(flags),
    category_scores: Object.fromEntries(flags.map(([name, isNamed]) => [name, isNamed ? 0.9 : 0.01])),
    category_applied_input_types: Object.fromEntries(
      flags.map(([name, isNamed]) => [name, isNamed ? ['text'] : []]),
    ),
  };
}

/** Ranks documents by how many of the query's words they have; of equals, the first comes first. */
function rankedOf({ inputs, body }: MockDoorRequest): object[] {
  const words = String(body.query).split(/\s+/);
  const ranked = inputs
    .map((text, index) => {
      const wordsFound = words.filter((word) => text.includes(word)).length;
      return {
        index,
        relevance_score: wordsFound / words.length,
        ...(body.return_documents === true ? { document: { text } } : {}),
      };
    })
    .sort((first, second) => second.relevance_score - first.relevance_score || first.index - second.index);
  return typeof body.top_n === 'number' ? ranked.slice(0, body.top_n) : ranked;
}
