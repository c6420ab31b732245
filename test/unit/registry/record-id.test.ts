import t from 'tap';
import { generateKey } from '#src/registry/key-digest.js';
import { assertReference, createId, isId, newName } from '#src/registry/record-id.js';

const PREFIXES = ['acct_', 'grp_', 'key_', 'op_'] as const;

void t.test('ids have their form and are all different', (t) => {
  const ids = Array.from({ length: 2_000 }, (_, at) => createId(PREFIXES[at % 4]!));
  t.equal(new Set(ids).size, ids.length);
  t.ok(ids.every((id) => /^(acct|grp|key|op)_[0-9abcdefghjkmnpqrstvwxyz]{16}$/.test(id)));
  t.ok(ids.every(isId));
  const used = new Set(ids.flatMap((id) => id.slice(id.indexOf('_') + 1).split('')));
  t.equal(used.size, 32, 'every character of the alphabet comes up');
  t.end();
});

void t.test('what is almost an id is a name', (t) => {
  const id = createId('key_');
  for (const text of ['', 'acme', 'acct_', `${id}0`, id.slice(0, -1), id.toUpperCase(), `x${id}`, ` ${id}`]) {
    t.notOk(isId(text), text);
  }
  for (const letter of 'ilou') t.notOk(isId(`acct_${letter.repeat(16)}`), letter);
  t.end();
});

void t.test('names', (t) => {
  const hundred = '𝛼'.repeat(100);
  for (const name of ['a', 'a b', 'Ünïcode & söhne', '100%', 'a/b?c#d', '...', '-x', '"', hundred]) {
    t.equal(newName('name', name), name);
  }
  const wrong: [string, RegExp][] = [
    ['', /^name must have 1 to 100 characters, got 0$/],
    [`${hundred}x`, /^name must have 1 to 100 characters, got 101$/],
    ['a\nb', /control characters/],
    ['\u0000', /control characters/],
    ['\u007f', /control characters/],
    ['\ud800', /must not have/],
    // Also the marks of direction, which are not seen.
    ...['\u061c', '\u200e', '\u200f', '\u202e', '\u2066'].map((mark): [string, RegExp] => [
      `a${mark}b`,
      /control characters/,
    ]),
    // Also those that are not U+0020: a no-break space, the space of Chinese texts, a byte order mark.
    ...[' ', '   ', ' a', 'a ', '\u00a0a', 'a\u3000', '\ufeffa'].map((spaced): [string, RegExp] => [
      spaced,
      /^name must not begin or end with a space$/,
    ]),
    ['.', /must not be \. or \.\.$/],
    ['..', /must not be \. or \.\.$/],
    [generateKey(), /^name must not be an API key or a token$/],
    [createId('acct_'), /must not have the form of an id, got acct_/],
    [createId('key_'), /must not have the form of an id, got key_/],
  ];
  for (const [name, message] of wrong) {
    t.throws(() => newName('name', name), { code: 'invalid_parameters', message }, JSON.stringify(name));
  }
  t.throws(() => newName('title', ''), { message: /^title / }, 'the field is named as it was given');
  t.end();
});

void t.test('a key in place of an id is refused and not repeated', (t) => {
  const key = generateKey();
  t.throws(() => assertReference('account', key), {
    code: 'invalid_parameters',
    message: /^(?!.*sk-).*not an API key itself/,
  });
  for (const word of ['sk-laptop', key.slice(1), `${key}x`, createId('key_')])
    t.doesNotThrow(() => assertReference('account', word));
  t.end();
});
