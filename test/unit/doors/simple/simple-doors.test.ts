/**
 * The doors that pass calls on: what they read, which bodies they reject, and that rules and compiled schemas
 * agree on random bodies.
 */
import t from 'tap';
import { inputTexts, SIMPLE_DIALECTS } from '#src/doors/simple/simple-dialects.js';
import { SIMPLE_DOORS } from '#src/doors/simple/simple-doors.js';
import type { Door } from '#src/doors/door.js';
import type { Members } from '#src/core/json.js';
import { PROMPT_TOKENS_BESIDE_DOCUMENT } from '#src/core/limits.js';
import { promptTokensMaxOf } from '#src/protocol/chat-call.js';
import { countTokens } from '#src/upstream/token-count.js';
import { anyValue } from '../../../support/protocol-values.js';
import { newSeed, pick, type Random, randomOf } from '../../../support/random.js';

const {
  embeddings: EMBEDDINGS,
  completions: COMPLETIONS,
  moderations: MODERATIONS,
  rerank: RERANK,
} = SIMPLE_DOORS;
const CASES = 5_000;

const read = (door: Door, body: object | string) =>
  door.read(Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)));

function messageOf(door: Door, body: object | string): string {
  const result = read(door, body);
  return result.ok ? 'read' : result.error.message;
}

void t.test('embeddings', (t) => {
  for (const input of ['text', '', ['a', 'b'], [1, 2, 3], [[1], [2, 3]]]) {
    const result = read(EMBEDDINGS, {
      model: 'm',
      input,
      encoding_format: 'base64',
      dimensions: 3,
      user: 'u',
    });
    t.match(result, { ok: true, call: { model: 'm', stream: false, outputTokensMax: 0, choices: 1 } });
  }
  t.match(read(EMBEDDINGS, { model: 'm', input: 'a', dimensions: null, stream: false }), { ok: true });
  const many = (count: number): object => ({ model: 'm', input: Array.from({ length: count }, () => 'a') });
  t.match(read(EMBEDDINGS, many(2_048)), { ok: true });
  t.equal(messageOf(EMBEDDINGS, many(2_049)), 'input must have at most 2048 items, got 2049');
  const tokens = Array.from({ length: 5_000 }, (_, index) => index);
  t.match(read(EMBEDDINGS, { model: 'm', input: tokens }), { ok: true }, 'tokens are not counted as inputs');
  const wrong: Readonly<Record<string, RegExp>> = {
    '{"model":"m"}': /^input must be a string, an array of strings, or tokens, got nothing$/,
    '{"model":"m","input":[]}': /^input must have at least 1 item, got 0$/,
    '{"model":"m","input":["a",1]}': /^input\[1\] must be of one kind/,
    '{"model":"m","input":[1,"a"]}': /^input\[1\] must be of one kind/,
    '{"model":"m","input":[1.5]}': /^input\[0\] must/,
    '{"model":"m","input":[[]]}': /^input\[0\] must/,
    '{"model":"m","input":{}}': /^input must be/,
    '{"input":"a"}': /^model must be a non-empty string/,
    '{"model":"m","input":"a","encoding_format":"hex"}': /^encoding_format must be one of float, base64/,
    '{"model":"m","input":"a","dimensions":0}': /^dimensions must be an integer from 1/,
    '{"model":"m","input":"a","stream":true}': /^stream must be false/,
    '{"model":"m","input":"a","Input":"b"}': /Input must be written as input/,
    '{"model":"m","model":"n","input":"a"}': /model must be given once/,
    '{"model":"m","input":"a","api_base":"x"}': /read/,
    '[]': /^the request body must be a JSON object/,
    '{"model":"m","input":"a"': /./,
  };
  for (const [body, message] of Object.entries(wrong)) t.match(messageOf(EMBEDDINGS, body), message, body);
  t.match(read(EMBEDDINGS, { model: 'm', input: 'a', api_base: 'x' }), {
    call: { routingMembers: ['api_base'] },
  });
  t.end();
});

void t.test('completions', (t) => {
  const calls: readonly (readonly [object, object])[] = [
    [{ prompt: 'a' }, { choices: 1, outputTokensMax: undefined, stream: false }],
    [
      { prompt: ['a', 'b'], n: 3, max_tokens: 5 },
      { choices: 6, outputTokensMax: 5 },
    ],
    [{ prompt: [1, 2, 3], n: 2 }, { choices: 2 }],
    [{ prompt: [[1], [2]] }, { choices: 2 }],
    [{ prompt: null }, { choices: 1 }],
    [{ prompt: ['a'], suffix: 'b' }, { choices: 1 }],
    [{ prompt: ['a', 'b'], suffix: null }, { choices: 2 }],
    [
      { echo: true, suffix: 's', logprobs: 3, max_tokens: 0 },
      { choices: 1, outputTokensMax: 0 },
    ],
  ];
  for (const [body, call] of calls)
    t.match(read(COMPLETIONS, { model: 'm', ...body }), { ok: true, call }, JSON.stringify(body));
  const streamed = read(COMPLETIONS, { model: 'm', prompt: 'a', stream: true });
  t.match(streamed, { ok: true, call: { stream: true, includeUsage: false, body: /"include_usage":true/ } });
  const asked = { model: 'm', prompt: 'a', stream: true, stream_options: { include_usage: true } };
  t.match(read(COMPLETIONS, asked), { call: { includeUsage: true, body: JSON.stringify(asked) } });
  const wrong: Readonly<Record<string, RegExp>> = {
    '{"model":"m","prompt":"a","best_of":4}': /^best_of must not be given, use n$/,
    '{"model":"m","prompt":"a","n":129}': /^n must be an integer between 1 and 128, got 129$/,
    '{"model":"m","prompt":["a","b"],"suffix":"c"}': /^suffix must be left out if there are several prompts/,
    '{"model":"m","prompt":["a","b"],"n":100}': /^n times the prompts must be at most 128, got 200$/,
    '{"model":"m","prompt":"a","max_tokens":-1}': /^max_tokens must be an integer from 0, got -1$/,
    '{"model":"m","prompt":"a","max_tokens":1e2}': /^max_tokens must be written in digits alone/,
    '{"model":"m","prompt":"a","stream":1}': /^stream must be true or false/,
    '{"model":"m","prompt":"a","stream_options":{"include_usage":1}}': /^stream_options\.include_usage must/,
  };
  for (const [body, message] of Object.entries(wrong)) t.match(messageOf(COMPLETIONS, body), message, body);
  t.end();
});

void t.test('moderations and reranks', (t) => {
  for (const input of ['a', ['a', 'b'], [{ type: 'text', text: 'a' }]])
    t.match(read(MODERATIONS, { model: 'm', input }), { ok: true, call: { outputTokensMax: 0 } });
  t.match(
    messageOf(MODERATIONS, { model: 'm', input: [1] }),
    /^input\[0\] must be a part with a type, got 1$/,
  );
  t.match(messageOf(MODERATIONS, { input: 'a' }), /^model must be/);
  for (const documents of [['a'], [{ text: 'a' }, 'b', { title: 'c' }]])
    t.match(read(RERANK, { model: 'm', query: 'q', documents, top_n: 1 }), {
      ok: true,
      call: { choices: 1 },
    });
  const wrong: Readonly<Record<string, RegExp>> = {
    '{"model":"m","documents":["a"]}': /^query must be a string, got nothing$/,
    '{"model":"m","query":"q"}': /^documents must be an array of strings or objects, got nothing$/,
    '{"model":"m","query":"q","documents":[]}': /^documents must have at least 1 item, got 0$/,
    '{"model":"m","query":"q","documents":[1]}': /^documents\[0\] must be a string or an object, got 1$/,
    '{"model":"m","query":"q","documents":["a"],"top_n":0}': /^top_n must be an integer from 1, got 0$/,
    '{"model":"m","query":"q","documents":["a"],"return_documents":1}': /^return_documents must be true/,
    '{"model":"m","query":"q","documents":[{"text":"a","Text":"b"}]}': /Text must be written as text/,
  };
  for (const [body, message] of Object.entries(wrong)) t.match(messageOf(RERANK, body), message, body);
  t.end();
});

function bodyOf(next: Random): Record<string, unknown> {
  const some = (): unknown =>
    pick(next, [
      'a',
      '',
      ['a', 'b'],
      [1, 2],
      [[1], [2]],
      [],
      [{ type: 'text' }],
      [{}],
      null,
      7,
      anyValue(next),
    ]);
  const body: Record<string, unknown> = { model: next() < 0.9 ? 'm' : anyValue(next) };
  for (const name of ['input', 'prompt', 'documents']) if (next() < 0.8) body[name] = some();
  if (next() < 0.8) body.query = next() < 0.8 ? 'q' : anyValue(next);
  const rest = ['n', 'stream', 'top_n', 'dimensions', 'encoding_format', 'return_documents', 'max_tokens'];
  for (const name of [...rest, 'stream_options'])
    if (next() < 0.2) body[name] = pick(next, [null, 1, 0, true, false, 'float', {}, anyValue(next)]);
  return body;
}

void t.test('a rerank holds its query for each document', (t) => {
  const held = (query: string, documents: number): number => {
    const result = read(RERANK, { model: 'm', query, documents: Array(documents).fill('d') });
    return result.ok ? promptTokensMaxOf(result.call, { mediaPartTokens: 0 }) - result.call.bodyBytes : -1;
  };
  t.equal(held('query', 1), 0, 'which the body has');
  t.equal(held('query', 3), 2 * (5 + PROMPT_TOKENS_BESIDE_DOCUMENT));
  t.equal(held('\u00e9\u6f22', 2), 5 + PROMPT_TOKENS_BESIDE_DOCUMENT, 'bytes of UTF-8');
  t.equal(held('x'.repeat(50_000), 10_000), 64 * 1_048_576, 'no report of more is believed');
  for (const [door, body] of [
    [EMBEDDINGS, { input: ['a', 'b'] }],
    [COMPLETIONS, { prompt: ['a', 'b'] }],
    [MODERATIONS, { input: ['a', 'b'] }],
  ] as const)
    t.match(read(door, { model: 'm', ...body }), { call: { repeatedTokens: 0 } }, door.name);
  t.end();
});

void t.test('a rejected body has a sentence, and no read throws', (t) => {
  const seed = newSeed();
  const next = randomOf(seed);
  const valid = new Map<string, number>();
  for (let index = 0; index < CASES; index++) {
    const text = JSON.stringify(bodyOf(next));
    for (const door of Object.values(SIMPLE_DOORS)) {
      const result = door.read(Buffer.from(text));
      if (result.ok) valid.set(door.name, (valid.get(door.name) ?? 0) + 1);
      else if (!result.error.message.includes(' must '))
        t.fail(`seed ${seed}: ${result.error.message}: ${text}`);
      const inPieces = door.readPieces([Buffer.from(text.slice(0, 9)), Buffer.from(text.slice(9))]);
      if (inPieces.ok !== result.ok) t.fail(`seed ${seed}: read otherwise in pieces: ${text}`);
    }
  }
  t.same([...valid.keys()].sort(), Object.keys(SIMPLE_DOORS).sort(), 'each door takes some');
  t.end();
});

void t.test('all texts that the model reads are counted', (t) => {
  const texts = (name: keyof typeof SIMPLE_DIALECTS, body: Members): string[] | undefined =>
    SIMPLE_DIALECTS[name].promptTexts?.(body);
  t.same(texts('completions', { prompt: 'a', suffix: 'after the gap' }), ['a', 'after the gap']);
  t.same(texts('completions', { prompt: ['a', 'b'], suffix: null }), ['a', 'b']);
  const documents = ['a', { text: 'b', title: 'c', more: 1 }, { title: 'd' }];
  t.same(texts('rerank', { query: 'q', documents }), ['q', 'a', 'b', '{"title":"d"}']);
  t.same(texts('rerank', { query: 'q', documents, rank_fields: [] }), ['q', 'a', 'b', '{"title":"d"}']);
  t.same(texts('rerank', { query: 'q', documents, rank_fields: ['title'] }), ['q', 'a', 'c', 'd']);
  t.same(
    texts('rerank', { query: 'q', documents, rank_fields: ['title', 'text', 'more'] }),
    ['q', 'a', 'b', 'c', 'd'],
    'each of the fields',
  );
  t.end();
});

void t.test('prompts are counted: tokens count themselves', (t) => {
  for (const tokenizer of ['o200k_base', 'cl100k_base', 'none'] as const) {
    const counted = (input: unknown): number =>
      countTokens({
        tokenizer,
        body: JSON.stringify(inputTexts(input)),
        completionForm: 'none',
        texts: new Map(),
        completion: '',
        completionBytes: 0,
        relayedBytes: 0,
      }).promptTokens;
    t.equal(counted([1, 2, 3, 4, 5]), 5, tokenizer);
    t.equal(counted([[1, 2], [3]]), 3, tokenizer);
    t.equal(counted(Array.from({ length: 1_000 }, () => 99)), 1_000, tokenizer);
    t.equal(counted('Hello there'), tokenizer === 'none' ? 3 : 2, tokenizer);
  }
  t.end();
});
