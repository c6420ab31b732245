/** Splicing: the result says what it should, and every byte outside of the splice is the client's. */
import t from 'tap';
import { withModelId, withModelName, withOutputTokensMax, type ChatCall } from '#src/protocol/chat-call.js';
import { readLargeChatBytes } from '#src/protocol/request-bytes.js';
import { readText } from '../../support/read-text.js';

function read(text: string): ChatCall {
  const result = readText(text);
  if (!result.ok) throw new Error(result.error.message);
  return result.call;
}

/** The same as a large body, which goes on as bytes. */
function readLarge(text: string): ChatCall {
  const result = readLargeChatBytes([Buffer.from(text)]);
  if (!result.ok) throw new Error(result.error.message);
  return result.call;
}

/** What goes upstream, and what stands at the places that the call names. */
function written(call: ChatCall): { body: string; model: string; fields: string[]; end: string } {
  const { largeBody, body } = call;
  const bytes = largeBody === undefined ? Buffer.from(body, 'utf16le') : Buffer.from(largeBody);
  const at = (start: number, end: number): string =>
    largeBody === undefined ? body.slice(start, end) : bytes.subarray(start, end).toString();
  return {
    body: largeBody === undefined ? body : bytes.toString(),
    model: at(call.modelStart, call.modelEnd),
    fields: [call.maxTokens, call.maxCompletionTokens].map(({ start, end }) => at(start, end)),
    end: at(call.bodyEnd, Infinity).trimEnd(),
  };
}

/** Asserts that `after` is `before` with one piece put in for another, and gives both pieces. */
function pieces(before: string, after: string): { out: string; in: string } {
  let start = 0;
  while (start < before.length && before[start] === after[start]) start++;
  let end = 0;
  while (
    end < before.length - start &&
    end < after.length - start &&
    before.at(-1 - end) === after.at(-1 - end)
  )
    end++;
  return { out: before.slice(start, before.length - end), in: after.slice(start, after.length - end) };
}

// Blanks, escapes and braces in strings are there to be kept and not to be stumbled over.
const MESSAGES = '"messages" : [ {"role":"user","content":"}{\\"]\\\\"} ]';
/** Everything but its stream_options; `model` before and after what is spliced. */
const AROUND: ((options: string) => string)[] = [
  (options) => `{"model":"m","stream":true,${MESSAGES}${options && `,${options}`}}`,
  (options) =>
    ` { ${options && `${options} ,`} "stream" : true , ${MESSAGES} , "x" : 1.50 , "model" : "m" } \n`,
];

void t.test('a stream asks for usage, and nothing else of its body changes', (t) => {
  const cases: [options: string, change: { out: string; in: string }, expected: unknown][] = [
    ['', { out: '', in: ',"stream_options":{"include_usage":true}' }, { include_usage: true }],
    ['"stream_options":null', { out: 'null', in: '{"include_usage":true}' }, { include_usage: true }],
    ['"stream_options":{}', { out: '', in: '"include_usage":true' }, { include_usage: true }],
    ['"stream_options":{ }', { out: '', in: '"include_usage":true' }, { include_usage: true }],
    ['"stream_options":{"a":"}"}', { out: '', in: ',"include_usage":true' }, { a: '}', include_usage: true }],
    ['"stream_options":{"include_usage":false}', { out: 'fals', in: 'tru' }, { include_usage: true }],
    ['"stream_options":{"include_usage":null }', { out: 'null', in: 'true' }, { include_usage: true }],
    [
      '"stre\\u0061m_options" : { "a":1, "include\\u005fusage" : false , "b":2 }',
      { out: 'fals', in: 'tru' },
      { a: 1, include_usage: true, b: 2 },
    ],
    ['"stream_options":{ "include_usage" : true }', { out: '', in: '' }, { include_usage: true }],
  ];
  for (const around of AROUND) {
    for (const [options, change, expected] of cases) {
      const text = around(options);
      const call = read(text);
      const sent = JSON.parse(call.body) as Record<string, unknown>;
      t.same(sent, { ...(JSON.parse(text) as object), stream_options: expected }, call.body);
      t.same(pieces(text, call.body), change);
      t.equal(call.body.slice(call.modelStart, call.modelEnd), '"m"', 'the name is where the call says');
      t.equal(call.bodyBytes, Buffer.byteLength(text), 'the length is that of what the client sent');
    }
  }
  t.end();
});

void t.test('without a stream the body is the text itself', (t) => {
  for (const options of ['', ',"stream":false', ',"stream":null,"stream_options":{"include_usage":false}']) {
    const text = `{"model":"m",${MESSAGES}${options}}`;
    t.equal(read(text).body, text);
  }
  t.end();
});

void t.test('the model is renamed in its place', (t) => {
  for (const around of AROUND) {
    const text = around('"stream_options":{"include_usage":true}');
    const renamed = withModelName(read(text), 'a "b"\\\n€');
    t.same(pieces(text, renamed), { out: 'm', in: 'a \\"b\\"\\\\\\n€' });
    t.same(JSON.parse(renamed), { ...(JSON.parse(text) as object), model: 'a "b"\\\n€' });
  }
  t.end();
});

void t.test('an alias gives way to the id, and what comes after still knows its place', (t) => {
  for (const around of AROUND) {
    for (const id of ['m', '', 'much-longer/than "it"', 'é€']) {
      const call = read(around(''));
      const small = withModelId(call, id);
      t.same(JSON.parse(small.body), { ...(JSON.parse(call.body) as object), model: id });
      t.equal(small.body.slice(small.modelStart, small.modelEnd), JSON.stringify(id));
      t.equal(withModelName(small, 'other'), withModelName(call, 'other'), 'and is renamed again');
      t.match(small, { model: id, bodyBytes: call.bodyBytes }, 'the length is that of what the client sent');

      const { largeBody, modelStart, modelEnd } = withModelId(
        { ...call, body: '', largeBody: Buffer.from(call.body) },
        id,
      );
      t.equal(Buffer.from(largeBody).toString(), small.body, 'the same in bytes');
      t.equal(Buffer.from(largeBody.subarray(modelStart, modelEnd)).toString(), JSON.stringify(id));
      t.equal(largeBody.buffer.byteLength, largeBody.length, 'of which nothing else is transferred');
    }
  }
  t.end();
});

void t.test('output tokens are lowered in the field that was used, or added', (t) => {
  const cases: [fields: string, value: number, change: object, outputTokensMax: number][] = [
    ['', 7, { max_tokens: 7 }, 7],
    [',"max_tokens":100', 7, { max_tokens: 7 }, 7],
    [',"max_tokens":5', 7, {}, 5],
    [',"max_tokens":7', 7, {}, 7],
    [',"max_tokens" : 1000 ', 0, { max_tokens: 0 }, 0],
    [',"max_completion_tokens":100', 7, { max_completion_tokens: 7 }, 7],
    [',"max_completion_tokens":100,"max_tokens":200', 7, { max_completion_tokens: 7, max_tokens: 7 }, 7],
    [',"max_tokens":200,"max_completion_tokens":3', 7, { max_tokens: 7 }, 7],
    [',"max_tokens":null', 7, { max_tokens: 7 }, 7],
    [',"max_tokens":null,"max_completion_tokens":null', 7, { max_tokens: 7 }, 7],
    [',"max_tokens":null,"max_completion_tokens":9', 7, { max_completion_tokens: 7 }, 7],
  ];
  const forms: ((fields: string) => string)[] = [
    (fields) => `{"model":"m",${MESSAGES}${fields}}`,
    (fields) => `{"a":1${fields},${MESSAGES},"model":"m"}`,
    (fields) => ` {"é€🚀":"🚀é"${fields} , ${MESSAGES},"stream":true , "model":"m" } \n`,
    (fields) => `{"stream":true,"stream_options":{},"model":"m",${MESSAGES},"🚀":"é€"${fields}}`,
  ];
  for (const [fields, value, change, outputTokensMax] of cases) {
    for (const text of forms.map((form) => form(fields))) {
      for (const call of [read(text), readLarge(text)]) {
        const before = JSON.parse(written(call).body) as Record<string, unknown>;
        const lowered = withOutputTokensMax(call, value);
        const { body, model, fields: values, end } = written(lowered);
        const after = { ...before, ...change };
        t.same(JSON.parse(body), after, body);
        t.equal(model, '"m"');
        const { max_tokens, max_completion_tokens } = after as Record<string, unknown>;
        const expected = [max_tokens, max_completion_tokens].map((field) =>
          field === undefined ? '' : JSON.stringify(field),
        );
        t.same(values, expected, 'the values are where the call says');
        t.equal(end, '}');
        t.equal(lowered.outputTokensMax, outputTokensMax);

        // First the alias, then the plan, then the balance.
        const again = withOutputTokensMax(withModelId(lowered, 'longer-é€'), 0);
        const last = JSON.parse(written(again).body) as Record<string, unknown>;
        t.same(written(again).model, '"longer-é€"');
        for (const field of ['max_tokens', 'max_completion_tokens'])
          t.ok(last[field] === undefined || last[field] === null || last[field] === 0, written(again).body);
        t.equal(again.outputTokensMax, 0);
        t.equal(written(again).end, '}');
      }
    }
  }
  t.end();
});

void t.test('a large body is copied and not read again', (t) => {
  for (const fields of ['', ',"max_tokens":1000', ',"max_completion_tokens":null']) {
    const call = readLarge(`{"model":"m"${fields},${MESSAGES},"x":"${'\\n'.repeat(1_000)}"}`);
    const text = written(call).body;
    // What a second reading would fail on.
    const start = text.indexOf('\\n');
    call.largeBody!.fill(0, start, text.lastIndexOf('\\n'));
    const lowered = withOutputTokensMax(call, 7);
    t.match(pieces(written(call).body, written(lowered).body).in, /7$/);
    t.equal(lowered.largeBody!.buffer.byteLength, lowered.largeBody!.length, 'into memory of its own');
  }
  t.end();
});

void t.test('what is no number of tokens is not written into a body', (t) => {
  for (const tokens of [NaN, -1, 1.5, Infinity, 2 ** 53, 1e21])
    t.throws(() => withOutputTokensMax(read(`{"model":"m",${MESSAGES}}`), tokens), /whole number/);
  t.end();
});
