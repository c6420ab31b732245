/** Splicing: the result says what it should, and every byte outside of the splice is the client's. */
import t from 'tap';
import type { ChatCall } from '#src/protocol/chat-call.js';
import { withModelId, withModelName, withOutputTokensMax } from '#src/protocol/chat-body.js';
import { readText } from '../../support/read-text.js';

function read(text: string): ChatCall {
  const result = readText(text);
  if (!result.ok) throw new Error(result.error.message);
  return result.call;
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
      t.equal(Buffer.from(largeBody!).toString(), small.body, 'the same in bytes');
      t.equal(Buffer.from(largeBody!.subarray(modelStart, modelEnd)).toString(), JSON.stringify(id));
      t.equal(largeBody!.buffer.byteLength, largeBody!.length, 'of which nothing else is transferred');
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
  for (const [fields, value, change, outputTokensMax] of cases) {
    for (const text of [`{"model":"m",${MESSAGES}${fields}}`, `{"a":1${fields},${MESSAGES},"model":"m"}`]) {
      const lowered = withOutputTokensMax(read(text), value);
      t.same(JSON.parse(lowered.body), { ...(JSON.parse(text) as object), ...change }, lowered.body);
      t.equal(lowered.body.slice(lowered.modelStart, lowered.modelEnd), '"m"');
      t.equal(lowered.outputTokensMax, outputTokensMax);
    }
  }
  t.end();
});
