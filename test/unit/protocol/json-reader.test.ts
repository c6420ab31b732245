/** The reader against JSON.parse: each takes what the other takes, but for the reader's own bounds. */
import t from 'tap';
import { BODY_NESTING_MAX, BODY_VALUES_MAX } from '#src/core/limits.js';
import { BodyError, JsonReader } from '#src/protocol/json-reader.js';
import { anyValue } from '../../support/protocol-values.js';
import { newSeed, pick, randomOf } from '../../support/random.js';

/** The refusal of a text; undefined where it is taken. */
function refusal(bytes: Uint8Array): string | undefined {
  const reader = new JsonReader(bytes);
  try {
    reader.skipSpace();
    reader.skipValue();
    if (reader.skipSpace() !== -1) throw reader.unexpected();
  } catch (fault) {
    if (!(fault instanceof BodyError)) throw fault;
    return fault.message;
  }
  return undefined;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const PIECES = [
  ...[
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"',
    '\\',
    ' ',
    '\n',
    '\t',
    '\r',
    '\f',
    '\v',
    '\u0000',
    '\u001f',
    '\u007f',
  ],
  ...['-', '+', '.', 'e', 'E', '0', '1', '9', '01', '-0', '1.', '.1', '1e', '1e+', '1E-2', '1.5e10', '1e400'],
  ...['true', 'false', 'null', 'tru', 'nul', 'True', 'NaN', 'Infinity', '""', '"a"', '"é"', '"😀"', '\uFEFF'],
  ...['\\n', '\\u0041', '\\u00', '\\uD83D\\uDE00', '\\x', '\\/', '\\"', "'", '"\\u00e9"', '\u2028', '\u00a0'],
  ...['{}', '[]', '{"a":1}', '[1,2]', '{"a":', '"a":', ',"b":[', '//', '/**/', '0x1'],
];

const HALF_PAIR = /\\u(?:d[89ab]..(?!\\ud[c-f]..)|d[c-f]..)/i;

void t.test('random texts are JSON here where they are to JSON.parse', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  let valid = 0;
  const count = 60_000;
  for (let index = 0; index < count; index++) {
    let text = index % 3 === 0 ? '' : JSON.stringify(anyValue(next));
    for (let pieces = Math.floor(next() * 4); pieces > 0; pieces--) {
      const at = Math.floor(next() * (text.length + 1));
      text = text.slice(0, at) + pick(next, PIECES) + text.slice(at + (next() < 0.3 ? 1 : 0));
    }
    // Four bytes at a time are read only of longer texts, and the place in memory is any.
    const padded = index % 2 === 0 ? text : `[${text},"${'x'.repeat(1_020 + (index % 9))}"]`;
    const bytes = Buffer.from(padded);
    const expected = isJson(padded);
    if (expected) valid++;
    const seen = refusal(bytes);
    if ((seen === undefined) !== expected && !(expected && HALF_PAIR.test(padded))) {
      t.fail(`JSON.parse says ${String(expected)}, the reader ${String(seen)}: ${JSON.stringify(padded)}`);
    }
  }
  t.ok(valid > count / 20 && valid < count * 0.9, `${valid} of ${count} were valid`);
  t.end();
});

void t.test('every byte at every place of a string, and of a value', (t) => {
  for (const length of [0, 1, 2, 3, 4, 5, 7, 8, 1_100]) {
    for (let byte = 0; byte < 128; byte++) {
      const char = String.fromCharCode(byte);
      const filled = 'x'.repeat(length);
      for (const text of [
        `["${filled}${char}${filled}"]`,
        `["${filled}\\${char}${filled}"]`,
        `[1${char}]`,
        `[${char}]`,
      ]) {
        if ((refusal(Buffer.from(text)) === undefined) !== isJson(text)) t.fail(JSON.stringify(text));
      }
    }
  }
  t.end();
});

void t.test('every truncation is refused, whatever stood behind it in memory', (t) => {
  const text = '{"a":[1.5e+3,-0,true,false,null,"\\u00e9\\uD83D\\uDE00\\n€",{}],"b":[[]]}';
  const bytes = Buffer.from(text);
  t.equal(refusal(bytes), undefined);
  for (let length = 0; length < bytes.length; length++) {
    if (!isJson(bytes.subarray(0, length).toString()))
      t.match(refusal(bytes.subarray(0, length)), /unexpected|half/);
  }
  t.end();
});

void t.test('halves of surrogate pairs are refused, pairs are not', (t) => {
  for (const half of [
    '\\ud800',
    '\\uDBFF',
    '\\udc00',
    '\\uDFFF',
    '\\ud83dx',
    '\\ud83d\\n',
    '\\ud83d\\u0041',
  ]) {
    for (const text of [`["${half}"]`, `{"${half}":1}`, `["${half}\\ud83d\\ude00"]`]) {
      t.match(refusal(Buffer.from(text)), /^the request body must not have half of a surrogate pair/, text);
    }
  }
  t.match(refusal(Buffer.from('["\\ud83d\\ude00\\ude00"]')), /half/);
  t.match(refusal(Buffer.from('["\\ud83d\\ud83d\\ude00"]')), /half/);
  t.equal(refusal(Buffer.from('["\\ud83d\\uDE00\\uFFFF\\u0000\\uD7FF\\uE000"]')), undefined);
  t.end();
});

void t.test('levels and values up to their bounds, and one more', (t) => {
  const nested = (open: string, close: string, levels: number): string =>
    open.repeat(levels) + close.repeat(levels);
  for (const [open, close] of [
    ['[', ']'],
    ['[ ', ']'],
  ] as const) {
    t.equal(refusal(Buffer.from(nested(open, close, BODY_NESTING_MAX))), undefined);
    for (const levels of [BODY_NESTING_MAX + 1, 1_000_000])
      t.equal(
        refusal(Buffer.from(nested(open, close, levels))),
        'the request body must be nested at most 64 levels deep',
      );
  }
  const objects = (levels: number): string => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`;
  t.equal(refusal(Buffer.from(objects(BODY_NESTING_MAX))), undefined);
  t.match(refusal(Buffer.from(objects(BODY_NESTING_MAX + 1))), /nested/);
  for (const item of ['1', '""', '[]', '{}', 'null', '-1.5e3']) {
    const text = (count: number): string => `[${Array<string>(count).fill(item).join(',')}]`;
    t.equal(refusal(Buffer.from(text(BODY_VALUES_MAX - 1))), undefined, item);
    t.equal(
      refusal(Buffer.from(text(BODY_VALUES_MAX))),
      'the request body must have at most 500000 values',
      item,
    );
  }
  const members = (count: number): string => `{${Array<string>(count).fill('"a":1').join(',')}}`;
  t.equal(refusal(Buffer.from(members(BODY_VALUES_MAX - 1))), undefined);
  t.match(refusal(Buffer.from(members(BODY_VALUES_MAX))), /values/);
  t.end();
});
