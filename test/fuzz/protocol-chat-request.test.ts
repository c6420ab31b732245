/**
 * Mutated request texts against a naive reading: JSON.parse, the explanation's rules, and a member list made from
 * tokens that a regular expression takes. Nothing may throw, the two must agree, and a body that is sent on is the client's but for its usage option.
 */
import t from 'tap';
import { explain } from '#src/protocol/explain.js';
import { withModelName, withOutputTokensMax } from '#src/protocol/chat-body.js';
import { decodeBody, readChatRequest } from '#src/protocol/chat-request.js';
import { chatRequest, newSeed, pick, random, type Random } from '../support/protocol-values.js';

const CASES = 20_000;
type Fields = Record<string, unknown>;

/** The members of the object in a valid JSON text, each name decoded and each value as its text, by taking tokens. */
function membersOf(text: string): { name: string; value: string }[] {
  const members: { name: string; value: string }[] = [];
  let depth = 0;
  let piece = '';
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/gs)) {
    if (token === '}' || token === ']') depth--;
    if (depth === 1 && token === ':') {
      members.push({ name: JSON.parse(piece) as string, value: '' });
      piece = '';
    } else if ((depth === 1 && token === ',') || depth === 0) {
      const last = members.at(-1);
      if (last !== undefined) last.value = piece;
      piece = '';
    } else piece += token;
    if (token === '{' || token === '[') depth++;
  }
  return members;
}

/** The request as a value if the text is a valid one, by the slow way. */
function naiveRequest(text: string): Fields | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  try {
    explain(value);
    return undefined;
  } catch {
    // explain() throws on what breaks no rule.
  }
  const members = membersOf(text);
  const options = members.find(({ name }) => name === 'stream_options')?.value;
  const isOnce = (given: { name: string }[]): boolean =>
    new Set(given.map(({ name }) => name)).size === given.length;
  const isAllOnce = isOnce(members) && (options?.startsWith('{') !== true || isOnce(membersOf(options)));
  return isAllOnce ? (value as Fields) : undefined;
}

const SNIPPETS = [
  ...[
    '"',
    '\\',
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '0',
    '-',
    'e',
    'null',
    'true',
    ' ',
    '\n',
    '\t',
    '\uFEFF',
    '\u0000',
    '€',
    '😀',
  ],
  ...[
    '"model":"x",',
    ',"model":"y"',
    '"mod\\u0065l":"z",',
    '"stream":true,',
    ',"stream_options":null',
    '"n":2,',
  ],
  ...['"include_usage":true,', '"a":1,', '\\u0000', '\\"', '""', '{}', '[]', '"x":{"model":1,"model":2},'],
];

function mutated(next: Random, text: string): string {
  let result = text;
  for (let count = Math.floor(next() * 3); count > 0; count--) {
    const at = Math.floor(next() * (result.length + 1));
    const end = at + Math.floor(next() * 3);
    const kind = next();
    if (kind < 0.4) result = result.slice(0, at) + pick(next, SNIPPETS) + result.slice(at);
    else if (kind < 0.6) result = result.slice(0, at) + pick(next, SNIPPETS) + result.slice(end);
    else if (kind < 0.7) result = result.slice(0, at) + result.slice(end);
    else if (kind < 0.75) result = result.slice(0, at);
    else result = result.replace(/[{,]/, (brace) => brace + pick(next, SNIPPETS));
  }
  return result;
}

void t.test('mutated requests are read as the naive way reads them', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = random(seed);
  let valid = 0;
  for (let index = 0; index < CASES; index++) {
    const indent = next() < 0.3 ? 1 : undefined;
    const text = mutated(next, JSON.stringify(chatRequest(next), undefined, indent));
    const bytes = Buffer.byteLength(text);
    const result = readChatRequest(text, bytes);
    const naive = naiveRequest(text);
    if (result.ok !== (naive !== undefined))
      t.fail(`the naive way says ${String(naive !== undefined)}: ${text}`);
    if (!result.ok) {
      if (result.error.code !== 'invalid_parameters' || result.error.message === '') t.fail(text);
      continue;
    }
    if (naive === undefined) continue;
    valid++;
    const { call } = result;
    const options = naive.stream_options as Fields | null | undefined;
    const same = (got: unknown, expected: unknown): void => {
      if (JSON.stringify(got) !== JSON.stringify(expected)) t.same(got, expected, text);
    };
    const given = [naive.max_completion_tokens, naive.max_tokens].filter(
      (value) => typeof value === 'number',
    );
    same(
      [call.model, call.stream, call.includeUsage, call.outputTokensMax, call.choices, call.bodyBytes],
      [
        naive.model,
        naive.stream === true,
        options?.include_usage === true,
        given.length === 0 ? undefined : Math.max(...given),
        naive.n ?? 1,
        bytes,
      ],
    );
    if (!call.stream) same(call.body, text);
    const sent = call.stream ? { ...naive, stream_options: { ...options, include_usage: true } } : naive;
    same(sorted(call.body), sorted(JSON.stringify(sent)));
    same(sorted(withModelName(call, 'other "m"')), sorted(JSON.stringify({ ...sent, model: 'other "m"' })));
    const lowered = withOutputTokensMax(call, 0);
    same(sorted(withModelName(lowered, 'm'))[2], 'm');
    same(readChatRequest(lowered.body, 0).ok && lowered.outputTokensMax, 0);
  }
  t.ok(valid > CASES / 20, `${valid} of ${CASES} were valid`);
  t.end();
});

/** The members of a JSON text in an order of their own, the model's name third. */
function sorted(text: string): unknown[] {
  const { model, ...others } = JSON.parse(text) as Fields;
  return ['model', 'is', model, ...Object.entries(others).sort(([a], [b]) => (a < b ? -1 : 1))];
}

void t.test('bytes that are mutated decode as a strict decoder does, or not at all', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = random(seed);
  const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  let invalid = 0;
  for (let index = 0; index < CASES; index++) {
    const bytes = Buffer.from(pick(next, ['{"a":"ascii"}', 'ü€😀', '\u07ff\u0800\uffff']));
    for (let count = Math.floor(next() * 3); count > 0; count--) {
      bytes[Math.floor(next() * bytes.length)] = Math.floor(next() * 256);
    }
    let expected: string | undefined;
    try {
      expected = strict.decode(bytes);
    } catch {
      invalid++;
    }
    if (decodeBody(bytes) !== expected) t.equal(decodeBody(bytes), expected, bytes.toString('hex'));
  }
  t.ok(invalid > CASES / 20 && invalid < CASES, `${invalid} of ${CASES} were not UTF-8`);
  t.end();
});
