/**
 * The rules of requests for embeddings, legacy completions, moderations and reranks: their bounds, and the
 * sentence for a body that breaks one. simple-doors.ts calls it for a body that the compiled validator has
 * rejected. Pure; any thread.
 *
 * Must hold: simple-schema.ts has the same rules, or an `explain` throws for a body that only the validator
 * rejects (test/unit/doors/simple/simple-doors.test.ts compares both).
 */
import { invariant } from '../../core/errors.js';
import { isRecord } from '../../core/json.js';
import {
  broken,
  CHOICES_MAX,
  CHOICES_MIN,
  optionalError,
  OUTPUT_TOKENS_MIN,
} from '../../protocol/chat-rules.js';

/** Texts of a request for embeddings or moderations: OpenAI's bound. */
export const INPUTS_MAX = 2_048;
/** Documents of a rerank: Cohere's bound. */
export const DOCUMENTS_MAX = 10_000;
export const ENCODINGS = ['float', 'base64'] as const;

type Fields = Readonly<Record<string, unknown>>;
type Explain = (body: Fields) => string | undefined;

const isBoolean = (value: unknown): boolean => typeof value === 'boolean';

function isIntegerFrom(min: number, max = Infinity) {
  return (value: unknown): boolean =>
    Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
}

function countError(name: string, { length }: readonly unknown[], max: number) {
  if (length === 0) return `${name} must have at least 1 item, got 0`;
  return length > max ? `${name} must have at most ${max} items, got ${length}` : undefined;
}

const isToken = isIntegerFrom(0);

/** The sentence for an input that is no text, no tokens, and no list of either. */
function inputError(name: string, value: unknown, max: number): string | undefined {
  if (typeof value === 'string') return undefined;
  if (!Array.isArray(value)) return broken(name, 'be a string, an array of strings, or tokens', value);
  const items = value as readonly unknown[];
  const [first] = items;
  const rule = 'be of one kind with the first: a string, a token, or an array of tokens';
  const isOfKind =
    typeof first === 'string'
      ? (item: unknown) => typeof item === 'string'
      : Array.isArray(first)
        ? (item: unknown) => Array.isArray(item) && item.length > 0 && item.every(isToken)
        : isToken;
  const wrong = items.findIndex((item) => !isOfKind(item));
  if (wrong >= 0) return broken(`${name}[${wrong}]`, rule, items[wrong]);
  return countError(name, items, isToken(first) ? Infinity : max);
}

function moderatedError(value: unknown): string | undefined {
  if (typeof value === 'string') return undefined;
  if (!Array.isArray(value)) return broken('input', 'be a string, an array of strings, or of parts', value);
  const items = value as readonly unknown[];
  const isText = typeof items[0] === 'string';
  const wrong = items.findIndex((item) =>
    isText ? typeof item !== 'string' : !isRecord(item) || typeof item.type !== 'string',
  );
  const rule = isText ? 'be a string as the first is' : 'be a part with a type';
  return wrong < 0 ? countError('input', items, INPUTS_MAX) : broken(`input[${wrong}]`, rule, items[wrong]);
}

function documentsError(value: unknown): string | undefined {
  if (!Array.isArray(value)) return broken('documents', 'be an array of strings or objects', value);
  const items = value as readonly unknown[];
  const wrong = items.findIndex((item) => typeof item !== 'string' && !isRecord(item));
  return wrong < 0
    ? countError('documents', items, DOCUMENTS_MAX)
    : broken(`documents[${wrong}]`, 'be a string or an object', items[wrong]);
}

function streamError(body: Fields): string | undefined {
  return optionalError(body, 'stream', 'be false: there is nothing to stream', (value) => value === false);
}

function streamOptionsError(body: Fields): string | undefined {
  const given = body.stream_options ?? undefined;
  if (given === undefined) return undefined;
  if (!isRecord(given)) return broken('stream_options', 'be an object', given);
  const error = optionalError(given, 'include_usage', 'be true or false', isBoolean);
  return error === undefined ? undefined : `stream_options.${error}`;
}

/**
 * Makes the `explain` of a BodyForm (member-scan.ts). It throws if `body` breaks no rule: a bug of this file.
 */
function explainer(explain: Explain): (body: unknown) => string {
  return (body) => {
    if (!isRecord(body)) return broken('the request body', 'be a JSON object', body);
    const { model } = body;
    const isNamed = typeof model === 'string' && model !== '';
    const found = isNamed ? explain(body) : broken('model', 'be a non-empty string', model);
    invariant(found !== undefined, 'the validator and its explanation agree');
    return found;
  };
}

export const explainEmbeddings = explainer(
  (body) =>
    inputError('input', body.input, INPUTS_MAX) ??
    optionalError(body, 'encoding_format', `be one of ${ENCODINGS.join(', ')}`, (value) =>
      (ENCODINGS as readonly unknown[]).includes(value),
    ) ??
    optionalError(body, 'dimensions', 'be an integer from 1', isIntegerFrom(1)) ??
    streamError(body),
);

export const explainCompletions = explainer(
  (body) =>
    (body.prompt === undefined || body.prompt === null
      ? undefined
      : inputError('prompt', body.prompt, CHOICES_MAX)) ??
    optionalError(
      body,
      'max_tokens',
      `be an integer from ${OUTPUT_TOKENS_MIN}`,
      isIntegerFrom(OUTPUT_TOKENS_MIN),
    ) ??
    optionalError(
      body,
      'n',
      `be an integer between ${CHOICES_MIN} and ${CHOICES_MAX}`,
      isIntegerFrom(CHOICES_MIN, CHOICES_MAX),
    ) ??
    optionalError(body, 'stream', 'be true or false', isBoolean) ??
    streamOptionsError(body),
);

export const explainModerations = explainer((body) => moderatedError(body.input) ?? streamError(body));

export const explainRerank = explainer(
  (body) =>
    (typeof body.query === 'string' ? undefined : broken('query', 'be a string', body.query)) ??
    documentsError(body.documents) ??
    optionalError(body, 'top_n', 'be an integer from 1', isIntegerFrom(1)) ??
    optionalError(body, 'return_documents', 'be true or false', isBoolean) ??
    streamError(body),
);
