/** The cursor over members against JSON.parse, on small objects of every make. */
import t from 'tap';
import { MemberCursor } from '#src/protocol/member-scan.js';

const NAMES = ['"a"', '""', '"\\""', '"\\\\"', '"\\u0061b"', '"{}[],:"', '"€"'];
const VALUES = [
  '0',
  '-1.5e+3',
  'true',
  'null',
  '""',
  '"\\\\"',
  '"\\\\\\""',
  '"a\\"b"',
  '"},{"',
  '{}',
  '[]',
  '[[],{"a":"]"},1]',
  '{"a":{"b":"}\\\\"}}',
];
const BLANKS = ['', ' \t\r\n'];

function members(text: string, open = 0): { name: string; value: string }[] {
  const cursor = new MemberCursor(text, open);
  const found = [];
  while (cursor.next()) {
    const name = cursor.name();
    if (!cursor.isNamed(name) || cursor.isNamed(`${name}x`)) throw new Error(`isNamed is wrong on ${name}`);
    found.push({ name, value: text.slice(cursor.valueStart, cursor.valueEnd) });
  }
  if (text[cursor.end] !== '}') throw new Error(`end is ${cursor.end}`);
  return found;
}

void t.test('every pair of members, with blanks and without, is found where it stands', (t) => {
  let objects = 0;
  for (const blank of BLANKS) {
    for (const firstName of NAMES) {
      for (const first of VALUES) {
        for (const second of VALUES) {
          const member = (name: string, value: string): string =>
            blank + name + blank + ':' + blank + value + blank;
          const text = `{${member(firstName, first)},${member('"last"', second)}}`;
          const expected = [
            { name: JSON.parse(firstName) as string, value: first },
            { name: 'last', value: second },
          ];
          const found = members(text);
          if (JSON.stringify(found) !== JSON.stringify(expected)) t.same(found, expected, text);
          objects++;
        }
      }
    }
  }
  t.equal(objects, BLANKS.length * NAMES.length * VALUES.length ** 2);
  t.end();
});

void t.test('empty objects, and one within a text', (t) => {
  t.same(members('{}'), []);
  t.same(members('{ \n }'), []);
  t.same(members('{"x":{"y":1},"z":2}', 5), [{ name: 'y', value: '1' }]);
  t.end();
});

void t.test('a text that JSON.parse would not take ends in an error and not in a loop', (t) => {
  const text = '{"a":{"b":[1,"c"]},"d":"e","f":1}';
  for (let length = 1; length < text.length; length++) {
    t.throws(() => members(text.slice(0, length)), /invariant/, text.slice(0, length));
  }
  t.end();
});
