/** Errors in bodies of upstreams, and members that only look like one. */
import t from 'tap';
import { errorIn, isError, isFailedChoice } from '#src/upstream/error-body.js';

void t.test('where the error of a body is', (t) => {
  const error = { message: 'm' };
  t.equal(errorIn({ error }), error);
  t.equal(errorIn({ error: 'text' }), 'text');
  const whole = { object: 'error', message: 'm' };
  t.equal(errorIn(whole), whole, 'as Mistral and older vLLM send it');
  t.equal(errorIn({ object: 'error', error }), error);
  for (const body of [undefined, null, 'error', [], [{ error }], {}]) t.equal(errorIn(body), undefined);
  t.end();
});

void t.test('a member that says nothing is no error', (t) => {
  for (const error of [{}, { code: 1 }, 'text', true, 500, ['text']]) {
    t.equal(isError(error), true);
    t.equal(isFailedChoice({ index: 0, error }), true);
  }
  for (const error of [undefined, null, '', 0, false, []]) {
    t.equal(isError(error), false);
    t.equal(isFailedChoice({ index: 0, error }), false);
  }
  for (const choice of [undefined, null, 'x', []]) t.equal(isFailedChoice(choice), false);
  t.end();
});
