import t from 'tap';
import { durationOf } from '#src/request/response.js';

void t.test('durations have the form that OpenAI sends', (t) => {
  for (const [ms, text] of [
    [-5, '0s'],
    [0, '0s'],
    [0.2, '1ms'],
    [120, '120ms'],
    [999, '999ms'],
    [1_000, '1s'],
    [12_500, '12.5s'],
    [59_999, '59.999s'],
    [60_000, '1m0s'],
    [61_250, '1m1.25s'],
    [360_000, '6m0s'],
  ] as const) {
    t.equal(durationOf(ms), text, String(ms));
  }
  t.end();
});
