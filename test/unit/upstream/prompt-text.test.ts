/** The texts of a request read from its bytes, against those of the tree that JSON.parse makes. */
import t from 'tap';
import { visitMessage, textsIn } from '#src/upstream/chat-text.js';
import { isRecord, parsedJson } from '#src/core/json.js';
import { promptOf, type Prompt } from '#src/upstream/prompt-text.js';
import { newSeed, pick, type Random, randomOf } from '../../support/random.js';

const CASES = 20_000;

/** By the tree. */
function naivePromptOf(body: string): Prompt {
  const request = parsedJson(body);
  if (!isRecord(request)) return { messageCount: 0, namedMessageCount: 0, texts: [body], hasMedia: false };
  const texts: string[] = [];
  let namedMessageCount = 0;
  let hasMedia = false;
  const messages = Array.isArray(request.messages) ? (request.messages as unknown[]) : [];
  for (const message of messages) {
    if (!isRecord(message)) continue;
    if (typeof message.role === 'string') texts.push(message.role);
    if (typeof message.name === 'string') {
      namedMessageCount++;
      texts.push(message.name);
    }
    if (Array.isArray(message.content))
      hasMedia ||= (message.content as unknown[]).some((part) => textsIn(part).length === 0);
    visitMessage(message, (_key, text) => texts.push(text));
  }
  for (const definitions of [request.tools, request.functions])
    if (Array.isArray(definitions) && definitions.length > 0) texts.push(JSON.stringify(definitions));
  const { response_format: format } = request;
  if (isRecord(format) && isRecord(format.json_schema) && Object.keys(format.json_schema).length > 0)
    texts.push(JSON.stringify(format.json_schema));
  return { messageCount: messages.length, namedMessageCount, texts, hasMedia };
}

const plain = ({ messageCount, namedMessageCount, texts, hasMedia }: Prompt): Prompt => ({
  messageCount,
  namedMessageCount,
  texts: [...texts],
  hasMedia,
});

const NAMES = [
  ...[
    'messages',
    'tools',
    'functions',
    'role',
    'name',
    'content',
    'refusal',
    'reasoning_content',
    'reasoning',
  ],
  ...['thinking', 'reasoning_details', 'thinking_blocks', 'audio', 'transcript', 'tool_calls', 'index', 'id'],
  ...[
    'function_call',
    'function',
    'custom',
    'arguments',
    'input',
    'text',
    'summary',
    'type',
    'x',
    '',
    'é',
    'Role',
  ],
];
const TEXTS = ['', 'hello', 'ü€😀', '"\\/', 'line\n\t\u0000', '{"city":"Paris"}', 'a b', '\u2028', '[]'];
const NUMBERS = ['0', '-1', '7', '1.5', '1.0', '-0', '1e2', '0.000001', '123456789012345678', '1E-7'];

/**
 * A JSON text with blanks and escapes such as no serializer writes. No member comes twice: such a body is
 * refused.
 */
class Writer {
  readonly #next: Random;

  constructor(next: Random) {
    this.#next = next;
  }

  request(): string {
    const next = this.#next;
    const messages = this.#list(() => (next() < 0.9 ? this.#object(4, MESSAGE_NAMES) : this.#value(2)));
    const members = [`"messages":${messages}`, '"model":"m"'];
    for (const name of ['tools', 'functions', 'x'])
      if (next() < 0.3) members.push(`"${name}"${this.#blank()}:${this.#list(() => this.#value(3))}`);
    if (next() < 0.3) members.push(`"response_format":${next() < 0.1 ? this.#value(2) : this.#format()}`);
    if (next() < 0.1) members.push(this.#member(3, MESSAGE_NAMES));
    members.sort(() => next() - 0.5);
    return `${this.#blank()}{${members.join(`${this.#blank()},`)}}${this.#blank()}${next() < 0.02 ? 'x' : ''}`;
  }

  #format(): string {
    const type = `"type"${this.#blank()}:"json_schema"`;
    return `{${type}${this.#blank()},"json_schema":${this.#blank()}${this.#value(3)}${this.#blank()}}`;
  }

  #value(depth: number): string {
    const next = this.#next;
    const kind = next();
    if (depth > 0 && kind < 0.3) return this.#object(depth, NAMES);
    if (depth > 0 && kind < 0.5) return this.#list(() => this.#value(depth - 1));
    if (kind < 0.8) return this.#string(pick(next, TEXTS));
    return kind < 0.9 ? pick(next, NUMBERS) : pick(next, ['null', 'true', 'false']);
  }

  #list(item: () => string): string {
    const items = Array.from({ length: Math.floor(this.#next() * 4) }, item);
    return `[${this.#blank()}${items.join(`${this.#blank()},`)}${this.#blank()}]`;
  }

  #object(depth: number, names: readonly string[]): string {
    const members = new Map<string, string>();
    for (let count = Math.floor(this.#next() * 9); count > 0; count--) {
      const name = pick(this.#next, names);
      members.set(name, this.#member(depth, [name]));
    }
    return `{${this.#blank()}${[...members.values()].join(',')}${this.#blank()}}`;
  }

  #member(depth: number, names: readonly string[]): string {
    return `${this.#string(pick(this.#next, names))}${this.#blank()}:${this.#blank()}${this.#value(depth - 1)}`;
  }

  #string(text: string): string {
    if (this.#next() < 0.7) return JSON.stringify(text);
    // Each unit as an escape.
    return `"${text.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)}"`;
  }

  #blank(): string {
    return this.#next() < 0.8 ? '' : pick(this.#next, [' ', '\n', '\t  ', '\r\n']);
  }
}

const MESSAGE_NAMES = NAMES.filter((name) => !['messages', 'tools', 'functions'].includes(name));

void t.test('what is read is what the tree has', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const writer = new Writer(next);
  let texts = 0;
  for (let index = 0; index < CASES; index++) {
    const body = writer.request();
    const expected = naivePromptOf(body);
    const read = plain(promptOf(next() < 0.5 ? body : Buffer.from(body)));
    texts += expected.texts.length;
    if (JSON.stringify(read) !== JSON.stringify(expected)) {
      t.same(read, expected, body);
      break;
    }
  }
  t.ok(texts > CASES, `${texts} texts`);
  t.end();
});

void t.test('what is no request is one text', (t) => {
  for (const body of ['', 'x', '[]', '"text"', '{"messages":[}', '{} {}', '{"a":1']) {
    t.same(plain(promptOf(body)), naivePromptOf(body), body);
    t.same(plain(promptOf(Buffer.from(body))), naivePromptOf(body), body);
  }
  t.end();
});

void t.test('objects of names of their own cost what their bytes do', (t) => {
  // JSON.parse makes a kind of object for each: 0.8 s and 110 MB.
  const objects = Array.from({ length: 23_000 }, (_, object) => {
    const members = Array.from({ length: 20 }, (__, member) => `"k${object}_${member}":1`);
    return `{${members.join(',')}}`;
  });
  const body = Buffer.from(
    `{"messages":[{"role":"user","content":"Hello"}],"x":[${objects.join(',')}],"tools":[{"a":1.0, "b":"\\u00e9"}]}`,
  );
  // A machine with other work slows both down.
  const costOf = (work: () => unknown): number => {
    const before = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(before);
    return user + system;
  };
  const read = costOf(() =>
    t.same(plain(promptOf(body)), {
      messageCount: 1,
      namedMessageCount: 0,
      texts: ['user', 'Hello', '[{"a":1,"b":"é"}]'],
      hasMedia: false,
    }),
  );
  const parsed = costOf(() => JSON.parse(body.toString()) as unknown);
  t.comment(`read in ${(read / 1_000).toFixed(0)} ms of CPU, as a tree in ${(parsed / 1_000).toFixed(0)} ms`);
  t.ok(read < parsed / 2);
  t.end();
});

void t.test('values that were put into a body of the most values are not too many', (t) => {
  const ones = '1,'.repeat(499_990);
  const body = `{"messages":[{"role":"user","content":"Hello"}],"x":[${ones}1],"stream_options":{"include_usage":true},"max_tokens":7}`;
  t.same(plain(promptOf(body)).texts, ['user', 'Hello']);
  t.end();
});
