import t from 'tap';
import { isWholeObject, jsonText, stringText } from '#src/core/json.js';

void t.test('JSON text is ASCII and reads back as what it was', (t) => {
  for (const value of [
    'plain "quoted" \\ \n',
    'ü',
    '日本',
    '🙂',
    '\ud800',
    '\u007f\u0080\u00ff\u0100',
    { ü: ['é', 1, null] },
  ]) {
    const text = jsonText(value);
    t.match(text, /^[\x20-\x7f]*$/);
    t.same(JSON.parse(text), value);
  }
  t.end();
});

void t.test('a string is written as JSON.stringify writes it', (t) => {
  const first = Array.from({ length: 0x180 }, (_, code) => String.fromCharCode(code));
  const texts = ['', 'plain text. ', ...first, '\ud800', '🙂', '\u2028'];
  for (const text of texts)
    for (const whole of [text, `${text}b`, `a${text}`, `a${text}b`])
      t.equal(stringText(whole), JSON.stringify(whole));
  t.end();
});

void t.test('an object is whole from its last brace on, wherever it is cut', (t) => {
  const bytes = Buffer.from(' {"error":{"message":"zu viele }ö\\"}"},"x":[{}]} ');
  const whole = bytes.lastIndexOf('}') + 1;
  for (let first = 0; first <= bytes.length; first++)
    for (let end = first; end <= bytes.length; end++)
      t.equal(isWholeObject([bytes.subarray(0, first), bytes.subarray(first, end)]), end >= whole);
  for (const text of ['', 'bad request', '"x"', '[{}]', '1', 'null', '{}{}', '{} x', '<html>{}</html>'])
    t.equal(isWholeObject([Buffer.from(text)]), false, text);
  const bytewise = (text: string): Buffer[] => Array.from(Buffer.from(text), (byte) => Buffer.of(byte));
  t.equal(isWholeObject(bytewise('{"a":"0123456"}')), true);
  t.equal(isWholeObject(bytewise('{"a":"0123456789"}')), false, 'too many chunks');
  t.end();
});
