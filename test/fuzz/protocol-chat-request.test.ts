/**
 * Mutated request texts against a naive reading: JSON.parse, the compiled validator, and a tree made from the
 * tokens that a regular expression takes. Nothing may throw, the two must agree, and a body that is sent on
 * is the client's but for its usage option.
 */
import t from 'tap';
import { withModelName, withOutputTokensMax } from '#src/protocol/chat-call.js';
import {
  foldedName,
  MESSAGE,
  PART,
  REQUEST,
  STREAM_OPTIONS,
  type Level,
} from '#src/protocol/known-members.js';
import { readChatBytes } from '#src/protocol/request-bytes.js';
import type { ChatRequest } from '#src/protocol/chat-schema.js';
import { REQUEST_RULES } from '#src/protocol/generated.js';
import { readText } from '../support/read-text.js';
import { chatRequest } from '../support/protocol-values.js';
import { newSeed, pick, type Random, randomOf } from '../support/random.js';

const isChatRequest = (value: unknown): value is ChatRequest => REQUEST_RULES.chat.check(value);

const CASES = 20_000;
type Fields = Record<string, unknown>;

/**
 * A JSON text as it was written: an object's members in their order with all that were given twice, a plain
 * value as its text.
 */
type Tree = string | { readonly items: Tree[] } | { readonly members: (readonly [string, Tree])[] };

/** Of a text that JSON.parse takes, by taking its tokens. */
function treeOf(text: string): Tree {
  const tokens = [...text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/gs)].map(([token]) => token);
  let at = 0;
  const value = (): Tree => {
    const token = tokens[at++]!;
    if (token === '[') {
      const items: Tree[] = [];
      while (tokens[at] !== ']') {
        items.push(value());
        if (tokens[at] === ',') at++;
      }
      at++;
      return { items };
    }
    if (token !== '{') return token;
    const members: (readonly [string, Tree])[] = [];
    while (tokens[at] !== '}') {
      const name = JSON.parse(tokens[at]!) as string;
      at += 2;
      members.push([name, value()]);
      if (tokens[at] === ',') at++;
    }
    at++;
    return { members };
  };
  return value();
}

/**
 * Whether each name in the tree is told apart from the others and from the known ones by more than its case.
 */
function isNamedOnce(tree: Tree, level: Level | undefined, path = ''): boolean {
  if (typeof tree === 'string' || level === undefined) return true;
  if ('items' in tree)
    return tree.items.every(
      (item) => typeof item === 'string' || 'items' in item || isNamedOnce(item, level, path),
    );
  const folded = new Set(tree.members.map(([name]) => foldedName(name)));
  if (folded.size !== tree.members.length) return false;
  return tree.members.every(([name, inner]) => {
    if (level.names.includes(foldedName(name)) && !level.names.includes(name)) return false;
    if (name.includes('\0')) return false;
    const isArray = typeof inner !== 'string' && 'items' in inner;
    let next = level.names.includes(name) ? level.inner[level.names.indexOf(name)] : undefined;
    if (level === REQUEST && name === 'stream_options') next = isArray ? undefined : STREAM_OPTIONS;
    if (level === REQUEST && name === 'messages') next = isArray ? MESSAGE : undefined;
    if (level === MESSAGE && name === 'content') next = isArray ? PART : undefined;
    return isNamedOnce(inner, next, `${path}.${name}`);
  });
}

/** The request as a value if the text is a valid one, by the slow way. */
function naiveRequest(text: string): Fields | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isChatRequest(value)) return undefined;
  const tree = treeOf(text);
  if (typeof tree === 'string' || !('members' in tree) || !isNamedOnce(tree, REQUEST)) return undefined;
  const isWritten = tree.members.every(
    ([name, written]) =>
      !['max_tokens', 'max_completion_tokens', 'n'].includes(name) ||
      (typeof written === 'string' && /^(?:null|\d{1,15})$/.test(written)),
  );
  return isWritten ? value : undefined;
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
    '"Model":"y",',
    '"\u017ftream":false,',
    '"to\\u212aens":1,',
    '"Seed":1,',
    '"role":"user",',
    '"Content":"",',
    '"max_tokens":1.0,',
    '"n":-0,',
    '"max_tokens":1e2,',
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
  const next = randomOf(seed);
  let valid = 0;
  for (let index = 0; index < CASES; index++) {
    const indent = next() < 0.3 ? 1 : undefined;
    // By way of bytes: what is cut out of a character is no text that can be sent.
    const text = Buffer.from(mutated(next, JSON.stringify(chatRequest(next), undefined, indent))).toString();
    const bytes = Buffer.byteLength(text);
    const result = readText(text);
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
    same(readText(lowered.body).ok && lowered.outputTokensMax, 0);
  }
  t.ok(valid > CASES / 20, `${valid} of ${CASES} were valid`);
  t.end();
});

/** The members of a JSON text in an order of their own, the model's name third. */
function sorted(text: string): unknown[] {
  const { model, ...others } = JSON.parse(text) as Fields;
  return ['model', 'is', model, ...Object.entries(others).sort(([a], [b]) => (a < b ? -1 : 1))];
}

const BEFORE = Buffer.from('{"messages":[{"role":"user","content":"');
const AFTER = Buffer.from('"}],"model":"m"}');

void t.test('bytes that are mutated decode as a strict decoder does, or not at all', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  let invalid = 0;
  for (let index = 0; index < CASES; index++) {
    const content = Buffer.from(pick(next, ['ascii', 'ü€😀', '\u07ff\u0800\uffff']));
    for (let count = Math.floor(next() * 3); count > 0; count--) {
      content[Math.floor(next() * content.length)] = Math.floor(next() * 256);
    }
    const bytes = Buffer.concat([BEFORE, content, AFTER]);
    let expected: string | undefined;
    try {
      expected = strict.decode(bytes);
    } catch {
      invalid++;
    }
    const read = readChatBytes(bytes);
    const isText = read.ok || !read.error.message.includes('UTF-8');
    if (isText !== (expected !== undefined)) t.fail(`${String(isText)}: ${bytes.toString('hex')}`);
    if (read.ok && read.call.body !== expected) t.equal(read.call.body, expected, bytes.toString('hex'));
    if (read.ok && read.call.body.slice(read.call.modelStart, read.call.modelEnd) !== '"m"')
      t.fail(expected ?? 'no text');
  }
  t.ok(invalid > CASES / 20 && invalid < CASES, `${invalid} of ${CASES} were not UTF-8`);
  t.end();
});
