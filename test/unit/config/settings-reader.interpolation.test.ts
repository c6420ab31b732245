/** Variables in strings: valid, escaped, unset, malformed. */
import t from 'tap';
import { interpolate } from '#src/config/settings-reader.js';

const environment = { A: 'one', _B2: 'two', EMPTY: '', NESTED: '${A}' };

void t.test('puts values in', (t) => {
  t.same(interpolate('plain $ text {A}', environment), {
    text: 'plain $ text {A}',
    references: 0,
    unset: [],
    malformed: [],
  });
  t.equal(interpolate('${A}-${_B2}${EMPTY}', environment).text, 'one-two');
  t.equal(interpolate('${A}-${_B2}${EMPTY}', environment).references, 3);
  t.equal(interpolate('${NESTED}', environment).text, '${A}', 'a value is not read again');
  t.end();
});

void t.test('$${ stands for itself', (t) => {
  const put = interpolate('$${A} ${A}', environment);
  t.equal(put.text, '${A} one');
  t.equal(put.references, 1);
  t.end();
});

void t.test('tells what is not set and what is no name', (t) => {
  t.same(interpolate('${NO} ${A} ${NOR}', environment).unset, ['NO', 'NOR']);
  t.same(interpolate('${} ${1A} ${A-b}', environment).malformed, ['', '1A', 'A-b']);
  for (const inherits of [{}, process.env])
    t.same(interpolate('${toString} ${constructor}', inherits).unset, ['toString', 'constructor']);
  t.end();
});
