import t from 'tap';
import { clipped, formatInputPath, wantedBy } from '#src/core/wrong-input.js';

void t.test('paths, as a person writes them', (t) => {
  t.equal(formatInputPath([]), '');
  t.equal(formatInputPath(['models', 0, 'price']), 'models[0].price');
  t.equal(formatInputPath([3, 'name']), '[3].name');
  t.end();
});

void t.test('long text loses its end', (t) => {
  t.equal(clipped('four', 4), 'four');
  t.equal(clipped('fives', 4), 'five…');
  t.end();
});

void t.test('what a schema wants', (t) => {
  t.equal(wantedBy({ enum: ['a', 'b'] }), 'one of a, b');
  const whole = { type: 'integer', minimum: 1, maximum: 9 };
  t.equal(wantedBy(whole), 'a whole number from 1 to 9');
  t.equal(wantedBy({ ...whole, 'x-unit': 'bytes' }), 'a whole number of bytes from 1 to 9');
  t.equal(wantedBy({ type: 'boolean' }), 'true or false');
  t.equal(wantedBy({ type: 'integer', minimum: 1 }), undefined, 'half a range says too little');
  t.equal(wantedBy({ type: 'string' }), undefined);
  t.end();
});
