/**
 * The rules of requests at the simple doors (simple-doors.ts): embeddings, legacy completions, moderations
 * and reranks. Here are their bounds, and the sentence for a body that breaks one. member-scan.ts calls an
 * `explain…` for a body that the compiled validator has rejected. Pure; listener thread, and counter threads
 * for large bodies.
 *
 * Only members that the gateway reads or bills by have rules. All others (`temperature`, `logprobs`) pass
 * unchecked, and the upstream checks them.
 *
 * Must hold: request-schemas.ts has the same rules as this file. If the validator rejects a body that keeps
 * the rules here, an `explain…` throws. In a listener nothing catches that: the thread ends, its calls are
 * cut, and another thread takes its place. test/unit/doors/simple/simple-doors.test.ts compares both on
 * random bodies.
 */
import { isRecord, type Members } from '../../core/json.js';
import {
  BOOLEAN,
  CHOICES,
  CHOICES_MAX,
  explainBody,
  firstViolation,
  integerFrom,
  isGiven,
  OUTPUT_TOKENS_MIN,
  type Rule,
  streamOptionsError,
  violation,
} from '../../protocol/chat-rules.js';

/** Most texts of a request for embeddings or moderations: OpenAI's bound. */
export const INPUTS_MAX = 2_048;
/** Most documents of a rerank: Cohere's bound. */
export const DOCUMENTS_MAX = 10_000;
export const ENCODINGS = ['float', 'base64'] as const;

/** The door has no streams. As for every Rule, absent or null is valid. */
const NO_STREAM: Rule = { must: 'be false: there is nothing to stream', isValid: (value) => value === false };

/** The sentence for a list that is empty or has more than `max` items; else undefined. */
function countError(name: string, { length }: readonly unknown[], max: number) {
  if (length === 0) return `${name} must have at least 1 item, got 0`;
  return length > max ? `${name} must have at most ${max} items, got ${length}` : undefined;
}

/** Tokens are numbers from 0. */
const isToken = integerFrom(0).isValid;

/**
 * The sentence for an input that is not one of these: a text, tokens, or a list of up to `max` of either.
 * Tokens are the numbers that stand for one text. How many they are is not bounded here: a text has no bound
 * either, except that of the body.
 *
 * The first item decides which kind all must have. If it is of no kind, or an array without tokens, it breaks
 * the rule itself, and the sentence names item 0. An empty list gets the sentence of `countError`.
 */
function inputError(name: string, value: unknown, max: number): string | undefined {
  if (typeof value === 'string') return undefined;
  if (!Array.isArray(value)) return violation(name, 'be a string, an array of strings, or tokens', value);
  const items = value as readonly unknown[];
  const [first] = items;
  const rule = 'be of one kind with the first: a string, a token, or an array of tokens';
  const isOfKind =
    typeof first === 'string'
      ? (item: unknown) => typeof item === 'string'
      : Array.isArray(first)
        ? (item: unknown) => Array.isArray(item) && item.length > 0 && item.every(isToken)
        : isToken;
  const wrongIndex = items.findIndex((item) => !isOfKind(item));
  if (wrongIndex >= 0) return violation(`${name}[${wrongIndex}]`, rule, items[wrongIndex]);
  return countError(name, items, isToken(first) ? Infinity : max);
}

/** The sentence for an input that is no text, no list of texts, and no list of typed parts. */
function moderatedError(value: unknown): string | undefined {
  if (typeof value === 'string') return undefined;
  if (!Array.isArray(value))
    return violation('input', 'be a string, an array of strings, or of parts', value);
  const items = value as readonly unknown[];
  const isText = typeof items[0] === 'string';
  const wrongIndex = items.findIndex((item) =>
    isText ? typeof item !== 'string' : !isRecord(item) || typeof item.type !== 'string',
  );
  const rule = isText ? 'be a string as the first is' : 'be a part with a type';
  return wrongIndex < 0
    ? countError('input', items, INPUTS_MAX)
    : violation(`input[${wrongIndex}]`, rule, items[wrongIndex]);
}

function documentsError(value: unknown): string | undefined {
  if (!Array.isArray(value)) return violation('documents', 'be an array of strings or objects', value);
  const items = value as readonly unknown[];
  const wrongIndex = items.findIndex((item) => typeof item !== 'string' && !isRecord(item));
  return wrongIndex < 0
    ? countError('documents', items, DOCUMENTS_MAX)
    : violation(`documents[${wrongIndex}]`, 'be a string or an object', items[wrongIndex]);
}

/**
 * Makes the `explain` of a BodyForm (member-scan.ts). It throws if a body breaks no rule: a bug of this file.
 */
function explainer(errorOf: (body: Members) => string | undefined): (body: unknown) => string {
  return (body) => explainBody(body, errorOf);
}

export const explainEmbeddings = explainer(
  (body) =>
    inputError('input', body.input, INPUTS_MAX) ??
    firstViolation(body, {
      encoding_format: {
        must: `be one of ${ENCODINGS.join(', ')}`,
        isValid: (value) => (ENCODINGS as readonly unknown[]).includes(value),
      },
      dimensions: integerFrom(1),
      stream: NO_STREAM,
    }),
);

export const explainCompletions = explainer(
  (body) =>
    // Without a prompt the model begins a text of its own. Each prompt gives at least one choice, and a call
    // has at most CHOICES_MAX of them; `choicesOf` in simple-doors.ts multiplies the prompts by `n`.
    (isGiven(body.prompt) ? inputError('prompt', body.prompt, CHOICES_MAX) : undefined) ??
    firstViolation(body, { max_tokens: integerFrom(OUTPUT_TOKENS_MIN), n: CHOICES, stream: BOOLEAN }) ??
    streamOptionsError(body),
);

export const explainModerations = explainer(
  (body) => moderatedError(body.input) ?? firstViolation(body, { stream: NO_STREAM }),
);

export const explainRerank = explainer(
  (body) =>
    (typeof body.query === 'string' ? undefined : violation('query', 'be a string', body.query)) ??
    documentsError(body.documents) ??
    firstViolation(body, { top_n: integerFrom(1), return_documents: BOOLEAN, stream: NO_STREAM }),
);
