/**
 * The compiled check of a chat completion against an independent judge (the former TypeBox line) and against
 * the reader of requests; and that it is compiled, and runs where code generation from strings is disallowed.
 */
import t from 'tap';
import { Worker } from 'node:worker_threads';
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { Type, type TSchema } from '@sinclair/typebox';
import { TypeCompiler } from '@sinclair/typebox/compiler';
import { Check } from 'typebox/value';
import { REQUEST_RULES } from '#src/protocol/generated.js';
import { type RequestSchema, violationOf } from '#src/protocol/request-rules.js';
import { readText } from '../../support/read-text.js';
import { anyValue, chatRequest } from '../../support/protocol-values.js';
import { newSeed, type Random, randomOf } from '../../support/random.js';

const CASES = 20_000;
const { check: checkChatRequest } = REQUEST_RULES.chat;

const optional = (schema: TSchema): TSchema => Type.Optional(Type.Union([schema, Type.Null()]));
const ROLES = ['system', 'developer', 'user', 'assistant', 'tool', 'function'];
const Role = Type.Union(ROLES.map((role) => Type.Literal(role)));
const JUDGE = TypeCompiler.Compile(
  Type.Object({
    model: Type.String({ minLength: 1 }),
    messages: Type.Array(
      Type.Union([
        Type.Object({
          role: Role,
          content: Type.Union([Type.String(), Type.Array(Type.Object({ type: Type.String() }))]),
        }),
        Type.Object({
          role: Role,
          content: Type.Optional(Type.Null()),
          tool_calls: Type.Array(Type.Any()),
        }),
      ]),
      { minItems: 1 },
    ),
    max_tokens: optional(Type.Integer({ minimum: 0 })),
    max_completion_tokens: optional(Type.Integer({ minimum: 0 })),
    temperature: optional(Type.Number({ minimum: 0, maximum: 2 })),
    top_p: optional(Type.Number({ minimum: 0, maximum: 1 })),
    n: optional(Type.Integer({ minimum: 1, maximum: 128 })),
    stream: optional(Type.Boolean()),
    stream_options: optional(Type.Object({ include_usage: optional(Type.Boolean()) })),
  }),
);

void t.test('agrees with the judge and with the reader on random requests', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next: Random = randomOf(seed);
  let valid = 0;
  for (let index = 0; index < CASES; index++) {
    const text = JSON.stringify(index % 20 === 0 ? anyValue(next) : chatRequest(next));
    const value: unknown = JSON.parse(text);
    const isValid = checkChatRequest(value);
    if (isValid !== JUDGE.Check(value)) t.fail(`the judge says ${!isValid}: ${text}`);
    if (isValid) valid++;
    const read = readText(text);
    // 1e300 is an integer by its value; the reader wants digits.
    if ((isValid && !text.includes('e+')) !== read.ok && !(read.ok && isValid))
      t.fail(`read otherwise: ${JSON.stringify(read)}: ${text}`);
    if (!read.ok && !read.error.message.includes(' must ')) t.fail(`no rule in the explanation: ${text}`);
  }
  t.ok(valid > CASES / 5 && valid < (CASES * 4) / 5, `${valid} of ${CASES} were valid: both ways are tried`);
  t.end();
});

void t.test('a rule is explained exactly if it is broken, whatever keywords the schemas combine', (t) => {
  const any: RequestSchema = {};
  const member: RequestSchema[] = [
    any,
    { type: 'null' },
    { type: 'number' },
    { type: 'integer', minimum: 2 },
    { type: 'string', minLength: 1 },
    { type: 'string', minLength: 3 },
    { anyOf: [any, { type: 'null' }] },
    { anyOf: [{ type: 'string', minLength: 2 }, { type: 'null' }] },
    { type: 'array', items: { type: 'string', minLength: 2 }, minItems: 1, maxItems: 2 },
  ];
  const values = [
    ...[undefined, null, true, 0, 1.5, 2, -1, Infinity, '', 'a', 'é', '😀', 'ab', '😀😀', 'abc', '😀😀😀'],
    ...[[], ['ab'], ['ab', 'a'], ['ab', 'ab', 'ab'], [1], {}],
  ];
  for (const schema of member)
    for (const required of [[], ['a'], ['b'], ['a', 'b']])
      for (const value of values) {
        const whole: RequestSchema = { type: 'object', properties: { a: schema }, required };
        const body = value === undefined ? {} : { a: value };
        const text = `${JSON.stringify(whole)}: ${JSON.stringify(value)}`;
        const message = violationOf(whole, body);
        if ((message === undefined) !== Check(whole as TSchema, body)) t.fail(`${text}: ${message}`);
        if (message !== undefined && !/^[ab].* must .*, got ./.test(message)) t.fail(`${text}: ${message}`);
        if (message?.includes('undefined')) t.fail(`${text}: ${message}`);
      }
  const short: RequestSchema = { type: 'object', properties: { a: { type: 'string', minLength: 2 } } };
  t.equal(violationOf(short, { a: 'x' }), 'a must have at least 2 characters, got "x"');
  t.equal(violationOf(short, { a: 1 }), 'a must be a string, got 1');
  t.equal(violationOf({ type: 'object', required: ['b'] }, {}), 'b must be given, got nothing');
  t.end();
});

void t.test('the generated module imports nothing', (t) => {
  const path = new URL('../../../../dist/protocol/generated.js', import.meta.url);
  t.notMatch(readFileSync(path, 'utf8'), /\bimport\b|\brequire\b|\bFunction\b|\beval\b/);
  t.end();
});

void t.test('a thread without code generation from strings reads requests', async (t) => {
  const source = `
    import { parentPort, workerData } from 'node:worker_threads';
    const { readChatBytes } = await import(workerData.module);
    let isBarred = false;
    try { new Function('return 1')(); } catch { isBarred = true; }
    parentPort.postMessage({ isBarred, results: workerData.texts.map((text) => readChatBytes(Buffer.from(text)).ok) });
  `;
  const texts = ['{"model":"m","stream":true,"messages":[{"role":"user","content":""}]}', '{"model":"m"}'];
  // As the gateway does: V8 reads the flag when a thread's context is made.
  setFlagsFromString('--disallow-code-generation-from-strings');
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(source)}`), {
    workerData: { module: import.meta.resolve('#src/protocol/request-bytes.js'), texts },
  });
  const answer = await new Promise((resolve, reject) =>
    worker.once('message', resolve).once('error', reject),
  );
  t.same(answer, { isBarred: true, results: [true, false] });
  await worker.terminate();
});
