/**
 * The rules of requests for embeddings, legacy completions, moderations and reranks: their bounds, and the
 * sentence for a body that breaks one. simple-doors.ts calls it for a body that the compiled validator has
 * rejected. Pure; any thread.
 *
 * Must hold: request-schemas.ts has the same rules, or an `explain` throws for a body that only the
 * validator rejects (test/unit/doors/simple/simple-doors.test.ts compares both).
 */
import { invariant } from '../../core/errors.js';
import { isRecord } from '../../core/json.js';
import {
  BOOLEAN,
  broken,
  brokenRule,
  CHOICES,
  CHOICES_MAX,
  integerFrom,
  OUTPUT_TOKENS_MIN,
  type Rule,
  streamOptionsError,
} from '../../protocol/chat-rules.js';

/** Texts of a request for embeddings or moderations: OpenAI's bound. */
export const INPUTS_MAX = 2_048;
/** Documents of a rerank: Cohere's bound. */
export const DOCUMENTS_MAX = 10_000;
export const ENCODINGS = ['float', 'base64'] as const;

type Fields = Readonly<Record<string, unknown>>;
type Explain = (body: Fields) => string | undefined;

const NO_STREAM: Rule = { must: 'be false: there is nothing to stream', keeps: (value) => value === false };

function countError(name: string, { length }: readonly unknown[], max: number) {
  if (length === 0) return `${name} must have at least 1 item, got 0`;
  return length > max ? `${name} must have at most ${max} items, got ${length}` : undefined;
}

const isToken = integerFrom(0).keeps;

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
    brokenRule(body, {
      encoding_format: {
        must: `be one of ${ENCODINGS.join(', ')}`,
        keeps: (value) => (ENCODINGS as readonly unknown[]).includes(value),
      },
      dimensions: integerFrom(1),
      stream: NO_STREAM,
    }),
);

export const explainCompletions = explainer(
  (body) =>
    (body.prompt === undefined || body.prompt === null
      ? undefined
      : inputError('prompt', body.prompt, CHOICES_MAX)) ??
    brokenRule(body, { max_tokens: integerFrom(OUTPUT_TOKENS_MIN), n: CHOICES, stream: BOOLEAN }) ??
    streamOptionsError(body),
);

export const explainModerations = explainer(
  (body) => moderatedError(body.input) ?? brokenRule(body, { stream: NO_STREAM }),
);

export const explainRerank = explainer(
  (body) =>
    (typeof body.query === 'string' ? undefined : broken('query', 'be a string', body.query)) ??
    documentsError(body.documents) ??
    brokenRule(body, { top_n: integerFrom(1), return_documents: BOOLEAN, stream: NO_STREAM }),
);
