import t from 'tap';
import { jsonText, stringText } from '#src/core/json.js';

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
