import t from 'tap';
import { ERROR_MEANINGS, REJECTION_MEANINGS } from '#src/core/error-meanings.js';
import { ERROR_CODES, ERROR_KINDS, REJECTION_DETAILS } from '#src/core/errors.js';

void t.test('every code has a meaning of its own, and nothing else has', (t) => {
  t.same(Object.keys(ERROR_MEANINGS).sort(), [...ERROR_CODES].sort());
  t.same(Object.keys(REJECTION_MEANINGS).sort(), [...REJECTION_DETAILS].sort());
  for (const texts of [
    Object.values(ERROR_MEANINGS).map(({ when }) => when),
    Object.values(ERROR_MEANINGS).map(({ caller }) => caller),
    Object.values(REJECTION_MEANINGS),
  ]) {
    t.equal(new Set(texts).size, texts.length);
  }
  t.end();
});

void t.test('they are whole sentences', (t) => {
  for (const { when, caller, operator } of Object.values(ERROR_MEANINGS)) {
    for (const text of [when, caller, operator ?? 'None.']) t.match(text, /^[A-Z`].*[.:]$/);
  }
  for (const text of Object.values(REJECTION_MEANINGS)) t.match(text, /^[A-Z`].*\.$/);
  t.end();
});

void t.test('what the caller did wrong is not tried again, and what is ours or of the provider is', (t) => {
  for (const code of ERROR_CODES) {
    const { retry } = ERROR_MEANINGS[code];
    if (ERROR_KINDS[code].status >= 500) t.not(retry, 'no', code);
    if ([400, 401, 403, 404, 413, 415].includes(ERROR_KINDS[code].status)) t.equal(retry, 'no', code);
  }
  t.end();
});
