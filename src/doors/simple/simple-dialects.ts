/**
 * The dialects of the doors whose calls are never translated (simple-doors.ts), for upstream workers.
 * dialects.ts has them in its table. A stream of completions has the events of a chat completion, with `text`
 * in place of `delta`. Pure.
 */
import { isRecord } from '../../core/json.js';
import type { Dialect } from '../door.js';

/** A text that is one token to each tokenizer of this gateway, and four bytes to an estimate by length. */
const ONE_TOKEN = ' the';

function simpleDialect(
  name: Dialect['name'],
  marker: string,
  promptTexts: NonNullable<Dialect['promptTexts']>,
): Dialect {
  return { name, marker, openJudge: undefined, translator: undefined, promptTexts };
}

/** The texts of an input: a text, tokens, or a list of either. Tokens become a text with as many tokens. */
export function inputTexts(input: unknown): string[] {
  if (typeof input === 'string') return [input];
  if (!Array.isArray(input)) return [];
  if (typeof input[0] === 'number') return [ONE_TOKEN.repeat(input.length)];
  return (input as unknown[]).flatMap(inputTexts);
}

function documentText(document: unknown): string {
  if (typeof document === 'string') return document;
  return isRecord(document) && typeof document.text === 'string' ? document.text : JSON.stringify(document);
}

function rerankTexts({ query, documents }: Readonly<Record<string, unknown>>): string[] {
  return [...inputTexts(query), ...(Array.isArray(documents) ? documents.map(documentText) : [])];
}

export const SIMPLE_DIALECTS: readonly Dialect[] = [
  simpleDialect('embeddings', 'data', ({ input }) => inputTexts(input)),
  simpleDialect('completions', 'choices', ({ prompt }) => inputTexts(prompt)),
  // Providers do not bill tokens of moderations, unless they report them.
  simpleDialect('moderations', 'results', () => []),
  simpleDialect('rerank', 'results', rerankTexts),
];
