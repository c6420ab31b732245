import t from 'tap';
import { ERROR_MEANINGS } from '#src/core/error-meanings.js';
import { ERROR_CODES } from '#src/core/errors.js';

void t.test('every code has a meaning of its own, and nothing else has', (t) => {
  t.same(Object.keys(ERROR_MEANINGS).sort(), [...ERROR_CODES].sort());
  const texts = Object.values(ERROR_MEANINGS).map(({ when }) => when);
  t.equal(new Set(texts).size, texts.length);
  t.end();
});
