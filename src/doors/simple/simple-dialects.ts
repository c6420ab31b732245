/**
 * The dialects of the doors whose calls are never translated: embeddings, legacy completions, moderations and
 * reranks. dialects.ts has them in its table; simple-doors.ts is the half for listeners. Pure; upstream
 * worker and counter threads.
 *
 * Must hold: `promptTexts` returns all texts that a provider bills, for an upstream that reports no usage
 * (test/unit/doors/simple/simple-doors.test.ts).
 */
import { isRecord, type Members } from '../../core/json.js';
import type { Dialect } from '../door.js';

export type SimpleName = 'embeddings' | 'completions' | 'moderations' | 'rerank';

/**
 * A text that each tokenizer of the gateway counts as one token; `estimateTokensOf` (upstream/tokenizer.ts)
 * does so too, because the text has four bytes.
 */
const ONE_TOKEN = ' the';

/**
 * `marker`: see Dialect. No simple dialect has a judge: only legacy completions are streamed, and the reader
 * of chat streams accepts their events, which have `text` in place of `delta`.
 */
function simpleDialect<Name extends SimpleName>(
  name: Name,
  marker: string,
  promptTexts: NonNullable<Dialect['promptTexts']>,
): Dialect<Name> {
  return { name, marker, openJudge: undefined, translator: undefined, promptTexts };
}

const TEXTLESS = { isTextless: true } as const;

/**
 * The texts of an input: a text, tokens, or a list of texts or of lists of tokens, as request-schemas.ts has
 * checked. Tokens become a text of as many tokens, because the texts are only counted. Exported for its test.
 */
export function inputTexts(input: unknown): string[] {
  if (typeof input === 'string') return [input];
  if (!Array.isArray(input)) return [];
  if (typeof input[0] === 'number') return [ONE_TOKEN.repeat(input.length)];
  return (input as unknown[]).flatMap(inputTexts);
}

/** The texts of a document to rank: those of its members `ranked`; if it has none of these, its JSON. */
function documentTexts(document: unknown, ranked: ReadonlySet<unknown>): string[] {
  if (typeof document === 'string') return [document];
  const members = isRecord(document) ? Object.entries(document) : [];
  const texts = members.flatMap(([name, text]) =>
    ranked.has(name) && typeof text === 'string' ? [text] : [],
  );
  return texts.length === 0 ? [JSON.stringify(document)] : texts;
}

function rerankTexts({ query, documents, rank_fields: fields }: Members): string[] {
  const ranked = new Set<unknown>(Array.isArray(fields) && fields.length > 0 ? fields : ['text']);
  const list = Array.isArray(documents) ? (documents as unknown[]) : [];
  return [...inputTexts(query), ...list.flatMap((document) => documentTexts(document, ranked))];
}

/** As `echoedPrompt` of Dialect. Each prompt has `n` choices, one after the other. */
function echoedPrompt({ echo, prompt, n }: Members, choice: number): string | readonly number[] {
  if (echo !== true) return '';
  const isList = Array.isArray(prompt) && typeof prompt[0] !== 'number';
  const one: unknown = isList ? prompt[Math.floor(choice / ((n ?? 1) as number))] : prompt;
  return typeof one === 'string' || Array.isArray(one) ? (one as string | number[]) : '';
}

export const SIMPLE_DIALECTS: { readonly [Name in SimpleName]: Dialect<Name> } = {
  embeddings: { ...simpleDialect('embeddings', 'data', ({ input }) => inputTexts(input)), ...TEXTLESS },
  completions: {
    // The model reads what stands after the gap (`suffix`) too.
    ...simpleDialect('completions', 'choices', ({ prompt, suffix }) => [
      ...inputTexts(prompt),
      ...inputTexts(suffix),
    ]),
    echoedPrompt,
  },
  moderations: { ...simpleDialect('moderations', 'results', () => []), ...TEXTLESS, isUnbilled: true },
  rerank: { ...simpleDialect('rerank', 'results', rerankTexts), ...TEXTLESS },
};
