/** Bodies of the admin interface: a member that is given twice is refused, by its path. */
import t from 'tap';
import { parseBody } from '#src/admin/json-body.js';
import { checkError } from '../../support/error-answer.js';
import { startAdminHouse, TOKEN } from './support.js';

void t.test('what has each member once is what JSON.parse makes of it', (t) => {
  for (const body of [
    '{}',
    '[]',
    '"a, {\\"b\\": 1}"',
    '{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]}',
    '{"a":"b","b":"b","c":["a","a",["a"]],"d":"{\\"a\\":1,\\"a\\":2}"}',
    '{"a":[],"A":{},"":null,"\\"":1,"\\\\":2}',
    '[[1,{"a":1}],{"a":1}]',
  ])
    t.same(parseBody(body), JSON.parse(body), body);
  t.same(parseBody(''), {});
  t.end();
});

void t.test('a member that is given twice is named by its path', (t) => {
  for (const [body, path] of [
    ['{"name":"a","name":"a"}', 'name'],
    ['{"name":"a", "plan":"b", "n\\u0061me":"c"}', 'name'],
    ['{"__proto__":1,"__proto__":2}', '__proto__'],
    ['{"accounts":[{"name":"a"},{"name":"b","keys":[],"name":"c"}]}', 'accounts[1].name'],
    ['{"a":{"b":{"x":1},"c":[1,{"d":1},[{"e":2,"e":3}]]}}', 'a.c[2][0].e'],
    ['{"a":{},"b":[],"a":{}}', 'a'],
  ] as const)
    t.throws(() => parseBody(body), { code: 'invalid_parameters', message: `${path} must be given once` });
  t.throws(() => parseBody(`{"${'x'.repeat(999)}":1,"${'x'.repeat(999)}":1}`), {
    message: /^x{90,100}… must be given once$/,
  });
  t.end();
});

void t.test('routes, sign-in and playground refuse it', async (t) => {
  const house = await startAdminHouse(t);
  const twice = '{"name":"a","plan":"free","credit":"1.00","credit":"100.00"}';
  const answer = await house.send('POST', '/admin/v1/accounts', twice);
  t.equal(checkError(t, answer, 'invalid_parameters', 'account'), 'credit must be given once');
  const fromConsole = { headers: { 'x-tollgate-console': '1' } };
  const token = `{"token":"wrong","token":"${TOKEN}"}`;
  checkError(
    t,
    await house.send('POST', '/admin/session', token, fromConsole),
    'invalid_parameters',
    'session',
  );
  const call = `{"key":"sk-${'a'.repeat(48)}","request":{"model":"a","model":"b"}}`;
  checkError(t, await house.send('POST', '/admin/playground', call), 'invalid_parameters', 'playground');
});
