/**
 * The doors whose calls are never translated: embeddings, legacy completions, moderations and reranks. A call
 * goes to an upstream that has the same path. doors.ts has the doors in its table; simple-dialects.ts is
 * the half for upstream workers. Listener thread and counter threads.
 *
 * Must hold, or a call holds too little money (test/unit/doors/simple/simple-doors.test.ts,
 * test/unit/protocol/request-bytes.media-parts.test.ts):
 * - `choices` counts all texts that are generated. (member-scan.ts rejects `best_of`, which makes more.)
 * - `untypedMediaParts` counts all documents that may be images.
 * - `repeatedTokens` counts the query once for each document, because rerankers read it with each.
 * - The levels list all members that the gateway or an upstream acts on.
 */
import { DOOR_PATHS } from '../../core/door-names.js';
import { isRecord, type Members } from '../../core/json.js';
import { repeatedTokensOf } from '../../protocol/chat-call.js';
import { REQUEST_RULES } from '../../protocol/generated.js';
import { BodyError } from '../../protocol/json-reader.js';
import { Level, uncheckedMembers, STREAM_OPTIONS } from '../../protocol/known-members.js';
import { CHOICES_MAX } from '../../protocol/request-rules.js';
import { OPENAI_ERRORS } from '../chat/chat-door.js';
import type { Door } from '../door.js';
import { readersOf, type BodyForm } from '../member-scan.js';
import type { SimpleName } from './simple-dialects.js';

/** For calls that generate no text, and so have no output to bound and no stream to ask for its usage. */
const NO_OUTPUT = { outputTokens: undefined, choices: () => 1, asksForUsage: false } as const;

function simpleDoor<Name extends SimpleName>(
  name: Name,
  form: Omit<BodyForm, 'check' | 'schema'>,
): Door<Name> {
  return {
    name,
    path: DOOR_PATHS[name],
    errors: OPENAI_ERRORS,
    ...readersOf({ ...form, ...REQUEST_RULES[name] }),
    headerLines: () => '',
  };
}

/**
 * The value of an `image_url`. A `url` that is no public address, such as `gs://…`, makes the provider read a
 * file with its own rights, so it is a routing member (`storage_url` in protocol/known-members.ts).
 */
const IMAGE = new Level(uncheckedMembers('url'), { url: 'storage_url' });

export const SIMPLE_DOORS: { readonly [Name in SimpleName]: Door<Name> } = {
  embeddings: simpleDoor('embeddings', {
    level: new Level(uncheckedMembers('model', 'input', 'encoding_format', 'dimensions', 'user', 'stream')),
    ...NO_OUTPUT,
  }),
  completions: simpleDoor('completions', {
    level: new Level({
      ...uncheckedMembers('model', 'prompt', 'max_tokens', 'n', 'stream', 'echo', 'suffix', 'logprobs'),
      ...uncheckedMembers('logit_bias', 'temperature', 'top_p', 'stop', 'seed', 'user', 'presence_penalty'),
      ...uncheckedMembers('frequency_penalty'),
      stream_options: STREAM_OPTIONS,
    }),
    outputTokens: 'max_tokens',
    // The schema has checked `n`, as below that `documents` is a list.
    choices: ({ prompt, n, suffix }) => choicesOf(prompt, (n ?? 1) as number, suffix),
    asksForUsage: true,
  }),
  moderations: simpleDoor('moderations', {
    level: new Level({
      ...uncheckedMembers('model', 'stream'),
      input: new Level({ ...uncheckedMembers('type', 'text'), image_url: IMAGE }),
    }),
    ...NO_OUTPUT,
  }),
  rerank: simpleDoor('rerank', {
    level: new Level({
      ...uncheckedMembers('model', 'query', 'top_n', 'return_documents', 'max_tokens_per_doc'),
      ...uncheckedMembers('rank_fields', 'stream'),
      documents: new Level(uncheckedMembers('text')),
    }),
    untypedMediaParts: ({ documents, rank_fields: rankFields }) =>
      (documents as readonly unknown[]).filter((document) => isMediaPart(document, rankFields)).length,
    repeatedTokens: ({ query, documents }) =>
      repeatedTokensOf(Buffer.byteLength(query as string), (documents as readonly unknown[]).length),
    ...NO_OUTPUT,
  }),
};

/**
 * Each document is searched for each of `rank_fields`, so their number is bounded. With more fields a
 * document counts as a media part, for which the hold is larger.
 */
const RANK_FIELDS_MAX = 100;

/**
 * Whether a document counts as a media part. Some models rank images too (jina-reranker-m0): such a document
 * has an `image` and no `text`. Others rank texts of other names, which the caller gives in `rank_fields`. So
 * a document without `text` counts, unless it has no `image` and `rank_fields` names a text of it.
 */
function isMediaPart(document: unknown, rankFields: unknown): boolean {
  if (!isRecord(document) || typeof document.text === 'string') return false;
  if (Object.hasOwn(document, 'image') || !Array.isArray(rankFields)) return true;
  if (rankFields.length > RANK_FIELDS_MAX) return true;
  return !rankFields.some((name) => typeof name === 'string' && isTextIn(document, name));
}

function isTextIn(document: Members, name: string): boolean {
  return Object.hasOwn(document, name) && typeof document[name] === 'string';
}

/**
 * Number of generated texts: `n` for each prompt. `prompt` is valid; a list of numbers is one prompt. Throws
 * a BodyError above CHOICES_MAX: the schema has checked prompts and `n`, but not their product. Throws one
 * for a suffix of several prompts too: the model would read it with each, and the hold has it once.
 */
function choicesOf(prompt: unknown, n: number, suffix: unknown): number {
  const prompts = Array.isArray(prompt) && typeof prompt[0] !== 'number' ? prompt.length : 1;
  if (prompts > 1 && suffix !== undefined && suffix !== null && suffix !== '')
    throw new BodyError('suffix must be left out if there are several prompts: send each by itself');
  if (prompts * n > CHOICES_MAX)
    throw new BodyError(`n times the prompts must be at most ${CHOICES_MAX}, got ${prompts * n}`);
  return prompts * n;
}
