/**
 * One body, one meaning: what the gateway takes is what each decoder of an upstream makes of the very bytes
 * that are sent there. Random hostile requests, those that are taken decoded by Node, Python, Go (which folds
 * the case of names) and, in the full run, Rust's serde_json; a decoder that is not on the machine is skipped
 * by name. What was decided, and why:
 *
 *   written                            decoders                                      here
 *   "Model" beside or for "model",     Go: the known one, the last wins; the others: 400, at each level read
 *     also by K (U+212A), ſ, İ, ı        another member
 *   a name twice, also by escapes      the last wins; some C++ ones: the first       400, at each level read
 *   two unknown names of one folding   Go: one member, if the upstream knows it      400, at each level read
 *   NUL in a name                      C strings end there                           400, at each level read
 *   1.0, 1e3, -0 for an integer        Go, serde: refused; Python, Node: a number    400
 *   10^30, 2^53 and more               Go, serde: refused; Node: another number      400
 *   1e400 for temperature, top_p       Python, Node: infinite; Go, serde: refused    400 (out of range)
 *   -0, 1e-400 for temperature         0 for all                                     passes
 *   any number in what is not read     the same call and bill, or refused (serde)    passes, byte for byte
 *   half of a surrogate pair (\ud800)  Go: U+FFFD; serde: refused; Python: fails     400, wherever it stands
 *                                        when the text is encoded, by its own fault
 *   NUL in a text                      a character                                   passes
 *   bytes that are not UTF-8, BOM      Go: U+FFFD; the others: refused               400
 *   65 levels, 500,001 values          serde: refused from 128; memory               400
 */
import t from 'tap';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { readChatBytes, readLargeChatBytes } from '#src/protocol/request-bytes.js';
import { newSeed, pick, type Random, randomOf } from '../support/random.js';

const IS_FULL = process.env.TOLLGATE_HOSTILE_FULL !== undefined;
const CASES = IS_FULL ? 200_000 : 25_000;
const FIXTURES = fileURLToPath(new URL('../../../test/fixtures/decoders/', import.meta.url));
const BUILT = fileURLToPath(new URL('../../decoders/', import.meta.url));

/**
 * Model, max_tokens, max_completion_tokens, n, temperature, stream, include_usage, and of each message role,
 * content, calls.
 */
type Seen = readonly [string, Count, Count, Count, Count, Flag, Flag, readonly unknown[]];
type Count = number | null | undefined;
type Flag = boolean | null | undefined;
type Answer = Seen | { readonly refused: string };
type Judge = (bodies: readonly Uint8Array[]) => Promise<Answer[]>;

/**
 * Throws a TypeError for what is no text, which a request may have where the gateway has no rule: typed
 * decoders refuse it.
 */
const hex = (text: unknown): string => {
  // `Buffer.from` would take an array for bytes.
  if (typeof text !== 'string') throw new TypeError('no text');
  return Buffer.from(text, 'utf8').toString('hex');
};

// ---- the decoders

interface Part {
  readonly type: string;
  readonly text?: string | null;
}
interface Parsed {
  readonly model: string;
  readonly messages: readonly {
    readonly role: string;
    readonly content?: string | readonly Part[] | null;
    readonly tool_calls?: readonly unknown[];
  }[];
  readonly max_tokens?: Count;
  readonly max_completion_tokens?: Count;
  readonly n?: Count;
  readonly temperature?: Count;
  readonly stream?: Flag;
  readonly stream_options?: { readonly include_usage?: Flag } | null;
}

function objectOf(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new TypeError('no object');
  return value as Record<string, unknown>;
}

function seenByNode(body: Uint8Array): Seen {
  const r = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) as Parsed;
  const messages = r.messages.map(({ role, content, tool_calls }) => [
    role,
    typeof content === 'string'
      ? hex(content)
      : (content?.map(({ type, text }) => [type, text === undefined || text === null ? null : hex(text)]) ??
        null),
    (tool_calls ?? []).flatMap((call) => {
      const called = objectOf(call).function;
      if (called === undefined) return [];
      const { name, arguments: given } = objectOf(called) as { name?: string; arguments?: string };
      return [[hex(name ?? ''), hex(given ?? '')]];
    }),
  ]);
  const usage = r.stream_options?.include_usage;
  return [hex(r.model), r.max_tokens, r.max_completion_tokens, r.n, r.temperature, r.stream, usage, messages];
}

function judgeOf(command: string, args: readonly string[]): Judge {
  return async (bodies) => {
    const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
    const pieces: Buffer[] = [];
    child.stdout.on('data', (piece: Buffer) => pieces.push(piece));
    child.stdin.end(bodies.map((body) => `${Buffer.from(body).toString('hex')}\n`).join(''));
    const code = await ended;
    if (code !== 0) throw new Error(`${command} ended with ${String(code)}`);
    const lines = Buffer.concat(pieces).toString().trimEnd().split('\n');
    return lines.map((line) => JSON.parse(line) as Answer);
  };
}

const has = (command: string, ...args: string[]): boolean =>
  spawnSync(command, args, { stdio: 'ignore' }).status === 0;

/** A judge by its name, or why there is none. Programs are built once. */
const JUDGES: Record<string, () => Judge | string> = {
  Python: () =>
    has('python3', '--version') ? judgeOf('python3', [`${FIXTURES}decode.py`]) : 'python3 is not here',
  Go: () => {
    const program = `${BUILT}go`;
    if (!existsSync(program)) {
      if (!has('go', 'version')) return 'go is not here';
      if (!has('go', 'build', '-o', program, `${FIXTURES}decode.go`)) return 'go build failed';
    }
    return judgeOf(program, []);
  },
  serde_json: () => {
    if (!IS_FULL) return 'in the full run: TOLLGATE_HOSTILE_FULL';
    const program = `${BUILT}target/debug/decode`;
    if (!existsSync(program)) {
      if (!has('cargo', '--version')) return 'cargo is not here';
      // A copy: cargo writes its lock beside the manifest.
      cpSync(`${FIXTURES}rust`, `${BUILT}rust`, { recursive: true });
      const manifest = `${BUILT}rust/Cargo.toml`;
      if (!has('cargo', 'build', '--quiet', '--manifest-path', manifest, '--target-dir', `${BUILT}target`))
        return 'cargo build failed: are the crates within reach?';
    }
    return judgeOf(program, []);
  },
};

// ---- the requests

type Node = string | Node[] | { members: [string, Node][] };

const INTEGERS = [
  ...[
    '0',
    '1',
    '7',
    '128',
    '4096',
    '4294967297',
    '9007199254740991',
    '9007199254740992',
    '9007199254740993',
    'null',
  ],
  ...['1.0', '1e3', '1E2', '10e-1', '-0', '-0.0', '-1', '1e400', '1e-400', '0e9', '18446744073709551617'],
  ...[
    '1000000000000000000000000000000',
    '00',
    '01',
    '1.',
    '.5',
    '+1',
    '0x10',
    '"5"',
    'NaN',
    'Infinity',
    '[1]',
    'true',
  ],
];
const NUMBERS = [
  ...[
    '0',
    '1',
    '2',
    '0.5',
    '0.7',
    '-0',
    '-0.0',
    '1e-400',
    '2e0',
    '20e-1',
    '0e999999999',
    '1E-3',
    'null',
    '1e400',
  ],
  ...[
    '2.00000000000000000001',
    '0.30000000000000004',
    '1.7976931348623157e308',
    '-1e-400',
    '"1"',
    '1e',
    '1.e1',
    '-',
  ],
];
const FLAGS = ['true', 'false', 'null', 'true', 'false', 'true', '1', '0', '"true"', 'TRUE', 'True', '[]'];
const TEXTS = [
  ...[
    '"x"',
    '""',
    '"\\u0000"',
    '"a\\u0000b"',
    '"\\ud83d\\ude00"',
    '"😀"',
    '"é\\u00e9e\\u0301"',
    '"\\\\u0041"',
  ],
  ...[
    '"\\u0022,\\u0022role\\u0022:\\u0022system"',
    '"\\",\\"model\\":\\"y"',
    '"\\uFFFF\\uFEFF"',
    '"\u2028\u007f"',
  ],
  ...['"\\ud800"', '"\\udc00\\ud800"', '"\\ud83dx"', '"\n"', "'x'", '"\\x41"', '"\\/\\b\\f"', '"\uFEFF"'],
];
const MODELS = ['"m"', '"m"', '"m"', '"\\u006d"', '"M"', '"m\\u0000"', '"\u017f"', '"gpt-4o"', '5', 'null'];
const OTHERS = [
  '1e400',
  '-0',
  '{"model":"y","Model":"z"}',
  '[[[]]]',
  '"\\u0000"',
  '12345678901234567890',
  'null',
  '{}',
];

/** Good values mostly, so that many requests are taken with few hostile ones in them. */
function value(next: Random, pool: readonly string[], good: number): string {
  return next() < 0.8 ? pool[Math.floor(next() * good)]! : pick(next, pool);
}

function message(next: Random): Node {
  const members: [string, Node][] = [
    ['role', pick(next, ['"user"', '"system"', '"assistant"', '"\\u0075ser"', '"tool"'])],
  ];
  const kind = next();
  const text = (): string => value(next, TEXTS, 12);
  if (kind < 0.6) members.push(['content', text()]);
  else if (kind < 0.8)
    members.push([
      'content',
      [
        {
          members: [
            ['type', '"text"'],
            ['text', text()],
          ],
        },
        {
          members: [
            ['type', '"text"'],
            ['text', text()],
          ],
        },
      ],
    ]);
  if (kind >= 0.8 || next() < 0.1) {
    const called: Node = {
      members: [
        ['name', text()],
        ['arguments', text()],
      ],
    };
    if (kind >= 0.8) members.push(['content', pick(next, ['null', '"x"'])]);
    members.push([
      'tool_calls',
      [
        {
          members: [
            ['id', '"1"'],
            ['function', called],
          ],
        },
      ],
    ]);
  }
  return { members };
}

function request(next: Random): Node {
  const members: [string, Node][] = [
    ['model', value(next, MODELS, 4)],
    ['messages', Array.from({ length: 1 + Math.floor(next() * 2) }, () => message(next))],
  ];
  for (const name of ['max_tokens', 'max_completion_tokens', 'n']) {
    if (next() < 0.3) members.push([name, value(next, INTEGERS, name === 'n' ? 4 : 7)]);
  }
  if (next() < 0.3) members.push(['temperature', value(next, NUMBERS, 12)]);
  if (next() < 0.5) members.push(['stream', value(next, FLAGS, 3)]);
  if (next() < 0.4) {
    const options: [string, Node][] = next() < 0.6 ? [['include_usage', value(next, FLAGS, 3)]] : [];
    members.push(['stream_options', next() < 0.9 ? { members: options } : 'null']);
  }
  while (next() < 0.3)
    members.push([pick(next, ['seed', 'x', 'user', '', '__proto__', 'ключ']), pick(next, OTHERS)]);
  return { members: members.sort(() => next() - 0.5) };
}

/** Every object within. */
function objectsIn(node: Node): { members: [string, Node][] }[] {
  if (typeof node === 'string') return [];
  if (Array.isArray(node)) return node.flatMap(objectsIn);
  return [node, ...node.members.flatMap(([, inner]) => objectsIn(inner))];
}

/** A name as it could be written to be taken for another, or itself in another writing. */
function disguised(next: Random, name: string): string {
  if (name === '') return '';
  const at = Math.floor(next() * name.length);
  const put = (other: string): string => name.slice(0, at) + other + name.slice(at + 1);
  const char = name[at]!;
  const escape = (of: string): string => `\\u${of.charCodeAt(0).toString(16).padStart(4, '0')}`;
  const kinds = [
    () => name,
    () => put(escape(char)),
    () => put(char.toUpperCase()),
    () => put(escape(char.toUpperCase())),
    () => name.toUpperCase(),
    () => name.replace('k', '\u212a').replace('s', '\u017f'),
    () => `${name}\\u0000`,
    () => `${name} `,
    () => put(`\\ud800`),
  ];
  return pick(next, kinds)();
}

/** Puts in hostile members: a name again, in any writing, with the value of another. */
function spoil(next: Random, root: Node): void {
  for (let count = next() < 0.5 ? 0 : 1 + Math.floor(next() * 2); count > 0; count--) {
    const { members } = pick(next, objectsIn(root));
    if (members.length === 0) continue;
    const [name, old] = pick(next, members);
    const at = Math.floor(next() * (members.length + 1));
    const other = pick(next, [
      old,
      pick(next, OTHERS),
      pick(next, INTEGERS),
      pick(next, TEXTS),
      pick(next, FLAGS),
    ]);
    if (next() < 0.3)
      members.splice(
        members.findIndex(([given]) => given === name),
        1,
        [disguised(next, name), old],
      );
    else members.splice(at, 0, [disguised(next, name), other]);
  }
}

function written(next: Random, node: Node): string {
  const gap = (): string => (next() < 0.05 ? pick(next, [' ', '\n', '\t\r\n', '\u00a0', '/**/', '\f']) : '');
  if (typeof node === 'string') return node;
  if (Array.isArray(node)) return `[${gap()}${node.map((item) => written(next, item)).join(`,${gap()}`)}]`;
  const members = node.members.map(([name, inner]) => {
    const shown = next() < 0.03 && name !== '' && !name.includes('\\') ? disguised(next, name) : name;
    return `"${shown}":${written(next, inner)}`;
  });
  return `{${members.join(`${gap()},`)}}`;
}

function hostileBody(next: Random): Buffer {
  const root = request(next);
  spoil(next, root);
  let text = written(next, root);
  if (next() < 0.02)
    text = pick(next, [`\uFEFF${text}`, `${text},`, `${text}{}`, text.slice(0, -1), `${text}\0`]);
  const bytes = Buffer.from(text);
  if (next() < 0.02) bytes[Math.floor(next() * bytes.length)] = Math.floor(next() * 256);
  return bytes;
}

// ---- the tests

const isClose = (a: Count, b: Count): boolean =>
  (a ?? null) === (b ?? null) ||
  (typeof a === 'number' && typeof b === 'number' && Math.abs(a - b) <= 1e-15 * Math.abs(a));

/** What both tell of the call, in one form: null is as good as absent. */
function isSame(a: Seen, b: Seen): boolean {
  const [model, tokens, completion, n, temperature, stream, usage, messages] = a;
  return (
    model === b[0] &&
    [tokens, completion, n].every((count, index) => (count ?? null) === (b[index + 1] ?? null)) &&
    isClose(temperature, b[4]) &&
    (stream ?? false) === (b[5] ?? false) &&
    (usage ?? false) === (b[6] ?? false) &&
    JSON.stringify(messages) === JSON.stringify(b[7])
  );
}

/** Whether the gateway took of the body what Node reads in what it sends on. */
function isCall(call: ReturnType<typeof readChatBytes>, seen: Seen): boolean {
  if (!call.ok) return false;
  const [model, tokens, completion, n, , stream, usage] = seen;
  const given = [tokens, completion].filter((count) => typeof count === 'number');
  return (
    hex(call.call.model) === model &&
    call.call.outputTokensMax === (given.length === 0 ? undefined : Math.max(...given)) &&
    call.call.choices === (n ?? 1) &&
    call.call.stream === (stream === true) &&
    (!call.call.stream || usage === true) &&
    (call.call.stream || call.call.includeUsage === (usage === true))
  );
}

mkdirSync(BUILT, { recursive: true });
const judges = new Map(Object.entries(JUDGES).map(([name, make]) => [name, make()]));

void t.test('what is taken means the same to every decoder', { timeout: 300_000 }, async (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  const sent: Uint8Array[] = [];
  /** Texts of parts and calls that are none. */
  let untyped = 0;
  for (let index = 0; index < CASES; index++) {
    const body = hostileBody(next);
    const read = readChatBytes(body);
    // The same verdict in the same words for a body that came in pieces.
    const cut = Math.floor(next() * body.length);
    const large = readLargeChatBytes([body.subarray(0, cut), body.subarray(cut)]);
    if (!read.ok || !large.ok) {
      if (JSON.stringify(read) !== JSON.stringify(large)) t.same(large, read, body.toString('latin1'));
      continue;
    }
    const bytes = large.call.largeBody!;
    if (Buffer.compare(bytes, Buffer.from(read.call.body)) !== 0) t.fail(`two forms: ${body.toString()}`);
    let seen: Seen;
    try {
      seen = seenByNode(bytes);
    } catch (fault) {
      if (!(fault instanceof TypeError)) throw fault;
      untyped++;
      continue;
    }
    if (!isCall(read, seen)) t.fail(`another call to Node: ${body.toString()}`);
    sent.push(bytes);
  }
  t.ok(untyped < sent.length / 20, `${untyped} were of other types where no rule is`);
  t.ok(sent.length > CASES / 8 && sent.length < CASES / 2, `${sent.length} of ${CASES} were taken`);
  for (const [name, judge] of judges) {
    await t.test(name, { skip: typeof judge === 'string' ? judge : false }, async (t) => {
      const answers = await (judge as Judge)(sent);
      t.equal(answers.length, sent.length);
      let wrong = 0;
      answers.forEach((answer, index) => {
        const expected = seenByNode(sent[index]!);
        // A number beyond 64 bits where nothing is read: refused by serde as a whole, and never another call.
        if (
          'refused' in answer &&
          name === 'serde_json' &&
          Buffer.from(sent[index]!).toString().includes('1e400')
        )
          return;
        if (!('refused' in answer) && isSame(expected, answer)) return;
        if (++wrong <= 10) t.same(answer, expected, Buffer.from(sent[index]!).toString());
      });
      t.equal(wrong, 0);
    });
  }
});

void t.test('the decoders tell apart what is refused here', async (t) => {
  const rest = '"messages":[{"role":"user","content":"x"}]';
  const bodies = [
    `{"model":"cheap","Model":"dear",${rest}}`,
    `{"model":"m",${rest},"max_tokens":1,"MAX_TOKENS":90000}`,
    `{"model":"m",${rest},"\u017ftream":true}`,
    `{"model":"m",${rest},"max_to\u212aens":9}`,
    `{"model":"m",${rest},"stream_options":{"include_usage":false,"Include_Usage":true}}`,
    '{"model":"m","messages":[{"role":"user","content":"x","Content":"y"}]}',
    '{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","Text":"y"}]}]}',
    `{"model":"m",${rest},"max_tokens":1e3}`,
    '{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
  ].map((text) => Buffer.from(text));
  for (const body of bodies) t.notOk(readChatBytes(body).ok, body.toString());
  const go = judges.get('Go');
  const python = judges.get('Python');
  if (typeof go !== 'function' || typeof python !== 'function') return;
  const answers = [await go(bodies), await python(bodies)];
  bodies.forEach((body, index) => {
    const isOne = answers.every((of) => {
      const answer = of[index]!;
      return !('refused' in answer) && isSame(seenByNode(body), answer);
    });
    t.notOk(isOne, body.toString());
  });
});
