import t from 'tap';
import { chatBodyFor, inNamesOf, mayHave } from '#src/upstream/upstream-body.js';

const textOf = (body: string) =>
  chatBodyFor(
    { model: undefined, memberNames: NAMES },
    { body, largeBody: undefined, modelStart: 0, modelEnd: 0 },
  ) as string;
const NAMES = { stream_options: '', max_completion_tokens: 'max_tokens', seed: 'random_seed' };

void t.test('what has no such member stays as it is', (t) => {
  const chat = { model: 'm', messages: [] };
  t.equal(inNamesOf(NAMES, chat), chat);
  t.equal(inNamesOf(undefined, { ...chat, seed: 1 }).seed, 1);
  const body = '{ "model": "m",  "temperature": 1.0, "seed_": 12345678901234567890 }';
  t.equal(textOf(body), body, 'byte for byte');
  t.end();
});

void t.test('members are left out and renamed', (t) => {
  const body = '{"model":"m","stream_options":{"include_usage":true},"seed":3,"max_completion_tokens":9}';
  t.same(JSON.parse(textOf(body)), { model: 'm', random_seed: 3, max_tokens: 9 });
  t.end();
});

void t.test('only a body that may have such a member is parsed', (t) => {
  const has = (body: string): boolean => {
    const found = mayHave(body, NAMES);
    t.equal(mayHave(Buffer.from(body), NAMES), found, body);
    return found;
  };
  t.equal(has('{"model":"m","seed":3}'), true);
  t.equal(has('{"model":"m","s\\u0065ed":3}'), true);
  t.same(JSON.parse(textOf('{"model":"m","s\\u0065ed":3}')), { model: 'm', random_seed: 3 });
  t.equal(has('{"model":"m","seeds":3,"messages":[]}'), false);
  t.equal(has('{"model":"m","user":"\\u00e9"}'), false, 'text that is not ASCII');
  // Bytes are looked at in slices of 256 KiB from the first escape on: the other one begins near an end.
  for (let before = 0; before < 8; before++) {
    const user = `\\u00e9${'x'.repeat(256 * 1024 - '\\u00e9","s'.length - before)}`;
    t.equal(mayHave(Buffer.from(`{"user":"${user}","s\\u0065ed":3}`), NAMES), true, `${before} before it`);
    t.equal(mayHave(Buffer.from(`{"user":"${user}","s\\u00e9ed":3}`), NAMES), false);
  }
  t.end();
});

void t.test('a member by both names stays once, and a bound is never lost to null', (t) => {
  t.same(inNamesOf(NAMES, { max_completion_tokens: 9, max_tokens: 5 }), { max_tokens: 5 });
  t.same(inNamesOf(NAMES, { max_tokens: null, max_completion_tokens: 9 }), { max_tokens: 9 });
  t.same(inNamesOf(NAMES, { max_tokens: 5, max_completion_tokens: null }), { max_tokens: 5 });
  t.end();
});

void t.test('names that objects inherit are names like others', (t) => {
  t.same(
    inNamesOf(NAMES, JSON.parse('{"constructor":1,"toString":2}') as object as Record<string, unknown>),
    {
      constructor: 1,
      toString: 2,
    },
  );
  t.end();
});

void t.test('a name of the upstream may be one that objects inherit', (t) => {
  t.same(inNamesOf({ seed: 'constructor' }, { seed: 3 }), { constructor: 3 });
  t.end();
});

void t.test('integers keep their digits, renamed or not', (t) => {
  const tools = '[{"function":{"parameters":{"enum":[9007199254740993],"minimum":-9223372036854775808}}}]';
  t.equal(
    textOf(`{"model":"m","seed":12345678901234567890,"tools":${tools}}`),
    `{"model":"m","tools":${tools},"random_seed":12345678901234567890}`,
  );
  t.end();
});
