/** Integers beyond 2^53, read and written again. */
import t from 'tap';
import { exactJson, exactJsonText } from '#src/core/exact-json.js';

const again = (text: string): string => exactJsonText(exactJson(text));

void t.test('every digit of an integer stays', (t) => {
  for (const text of [
    '{"id":12345678901234567890}',
    '[-9007199254740993,9223372036854775807,{"deep":[18446744073709551615]}]',
    '12345678901234567890123456789012345678901234567890',
    '{"id":9007199254740991,"text":"12345678901234567890"}',
    String.raw`{"a \" 12345678901234567890":"[12345678901234567890, \\","b":1}`,
    '{"text":"\\"12345678901234567890\\"","one":-12345678901234567890,"two":12345678901234567891}',
  ])
    t.equal(again(text), text);
  t.equal(again(' { "a" : [ 12345678901234567890 , 1 ] } '), '{"a":[12345678901234567890,1]}');
  t.end();
});

void t.test('everything else is what JSON.parse says', (t) => {
  for (const text of [
    '{"a":1.23456789012345678901,"b":12345678901234567890.5,"c":12345678901234567890e2,"d":1e400}',
    '"12345678901234567890"',
    '{"a":9007199254740991,"b":-9007199254740991,"c":1234567890123456}',
    '{"1234567890123456":1}',
  ])
    t.same(exactJson(text), JSON.parse(text));
  for (const text of [
    '',
    '{',
    '01234567890123456789',
    '[12345678901234567890',
    '"12345678901234567890',
    '--12345678901234567890',
    '{12345678901234567890:1}',
    '{"a":1,12345678901234567890 :1}',
  ])
    t.equal(exactJson(text), undefined, text);
  t.end();
});

void t.test('only where the text has what it is to be near', (t) => {
  const text = '{"args":{"id":12345678901234567890}}';
  t.equal(exactJsonText(exactJson(text, '"args"')), text);
  t.same(exactJson(text, 'functionCall'), JSON.parse(text));
  t.end();
});

void t.test('a long text is read in bounded time, one that is longer as it always was', (t) => {
  const id = ',"id":12345678901234567890}';
  const long = `{"a":"${'\\"1234567890123456 '.repeat(50_000)}"${id}`;
  t.ok(long.length < 1024 * 1024);
  t.equal(again(long), long);
  const longer = `{"a":"${'\\"1234567890123456 '.repeat(60_000)}"${id}`;
  t.same(exactJson(longer), JSON.parse(longer));
  t.end();
});

void t.test('a string without its end is read once, not once for each quote in it', (t) => {
  const cut = `1234567890123456"${String.raw`\"`.repeat(500_000)}`;
  t.ok(cut.length < 1024 * 1024);
  const startMs = performance.now();
  for (const end of ['', '\\', 'a', ',1'])
    t.equal(exactJson(cut + end), undefined, `an end of ${end.length} characters`);
  const tookMs = performance.now() - startMs;
  t.ok(tookMs < 2_000, `${Math.round(tookMs)} ms`);
  t.end();
});
