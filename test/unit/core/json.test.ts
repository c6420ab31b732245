import t from 'tap';
import { jsonText } from '#src/core/json.js';

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
