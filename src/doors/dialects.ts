/**
 * The table of dialects, the half of a door that upstream workers and counter threads load. All doors have
 * one but chat, whose protocol is that of the workers themselves. A new door is added here and in doors.ts.
 * Files of upstream/ look a dialect up by the door's position in DOOR_NAMES.
 *
 * Must hold: every door but chat has one dialect, or its calls would be served as chat. No test compares the
 * table with DOOR_NAMES. Dialects have tests of their own: test/unit/doors/simple/simple-doors.test.ts,
 * test/unit/doors/messages/messages-dialect.test.ts, test/unit/doors/callers-path.test.ts.
 */
import { DOOR_NAMES } from '../core/door-names.js';
import { isRecord, type Members } from '../core/json.js';
import type { Dialect } from './door.js';
import { COUNT_TOKENS_DIALECT, MESSAGES_DIALECT } from './messages/messages-dialect.js';
import { RESPONSES_DIALECT } from './responses/responses-dialect.js';

/**
 * A text that each tokenizer of the gateway counts as one token; `estimateTextTokens` (upstream/tokenizer.ts)
 * does so too, because the text has four bytes.
 */
const ONE_TOKEN = ' the';

/**
 * The dialect of a simple door, whose calls are never translated (simple-doors.ts). `marker`: the member by
 * which a good response is known. The dialect has no judge: only the door of legacy completions has streams,
 * and the reader of chat streams accepts their events, which have `text` in place of `delta`.
 */
function simpleDialect(
  name: Dialect['name'],
  marker: string,
  promptTexts: NonNullable<Dialect['promptTexts']>,
): Dialect {
  return { name, marker, openJudge: undefined, translator: undefined, promptTexts };
}

/** As `simpleDialect`, for a door whose responses have no text. */
function textlessDialect(...members: Parameters<typeof simpleDialect>): Dialect {
  return { ...simpleDialect(...members), isTextless: true };
}

/**
 * The texts of an input, which request-schemas.ts has checked: a text, tokens, or a list of texts or of lists
 * of tokens. Tokens become a text of as many tokens, because the texts are only counted. Exported for its
 * test, as SIMPLE_DIALECTS.
 */
export function inputTexts(input: unknown): string[] {
  if (typeof input === 'string') return [input];
  if (!Array.isArray(input)) return [];
  if (typeof input[0] === 'number') return [ONE_TOKEN.repeat(input.length)];
  return (input as unknown[]).flatMap(inputTexts);
}

/** The texts counted for a document to rank: those of its members `ranked`, or its JSON without any. */
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

/** The prompt of a choice that repeats it (`echo`). Each prompt has `n` choices, one after the other. */
function echoedPrompt({ echo, prompt, n }: Members, choice: number): string | readonly number[] {
  if (echo !== true) return '';
  const isList = Array.isArray(prompt) && typeof prompt[0] !== 'number';
  const one: unknown = isList ? prompt[Math.floor(choice / ((n ?? 1) as number))] : prompt;
  return typeof one === 'string' || Array.isArray(one) ? (one as string | number[]) : '';
}

export const SIMPLE_DIALECTS: readonly Dialect[] = [
  textlessDialect('embeddings', 'data', ({ input }) => inputTexts(input)),
  // The model reads what stands after the gap (`suffix`) too.
  {
    ...simpleDialect('completions', 'choices', ({ prompt, suffix }) => [
      ...inputTexts(prompt),
      ...inputTexts(suffix),
    ]),
    echoedPrompt,
  },
  { ...textlessDialect('moderations', 'results', () => []), isUnbilled: true },
  textlessDialect('rerank', 'results', rerankTexts),
];

const DIALECTS: readonly Dialect[] = [
  MESSAGES_DIALECT,
  RESPONSES_DIALECT,
  ...SIMPLE_DIALECTS,
  COUNT_TOKENS_DIALECT,
];

/** By position in DOOR_NAMES; undefined for chat. */
const BY_INDEX: readonly (Dialect | undefined)[] = DOOR_NAMES.map((name) =>
  DIALECTS.find((dialect) => dialect.name === name),
);

/** By position in DOOR_NAMES, as frames have it; undefined for chat, and for a position that no door has. */
export const dialectAt = (index: number): Dialect | undefined => BY_INDEX[index];
