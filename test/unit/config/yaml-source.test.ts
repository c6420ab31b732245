/** YAML as such: syntax, duplicates, tags, bombs, size, and lines. */
import t from 'tap';
import { ConfigError } from '#src/config/config-error.js';
import { ALIASES_MAX, CONFIG_BYTES_MAX, parseYaml } from '#src/config/yaml-source.js';
import { SOUND_YAML, worldOf } from './support.js';

function faultsOf(text: string): readonly string[] {
  try {
    parseYaml(text, 'f.yaml');
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

void t.test('what is no plain YAML 1.2 is refused with its line', (t) => {
  t.match(faultsOf('a: 1\nb: [1\n').join(), /^f\.yaml:3: Flow sequence /);
  t.match(
    faultsOf('a: [{ b: [{ c: 1\nd: 2\n'),
    [/^f\.yaml:2: Flow map /, /^f\.yaml:2: Flow sequence /],
    'of several brackets too, each line once',
  );
  t.equal(faultsOf('['.repeat(100)).length, 2);
  t.same(faultsOf('a: 1\nb: 2\na: 3\n'), ['f.yaml:3: Map keys must be unique']);
  t.match(faultsOf('p: { a: 1,00, b: 2,00 }\n'), [
    /^f\.yaml:1: 00 comes twice: .* a comma ends a value, so /,
  ]);
  t.same(faultsOf('a: 1\nb: !secret x\n'), ['f.yaml:2: Unresolved tag: !secret']);
  t.match(faultsOf('a: 1\nb: !!binary aGk=\n').join(), /^f\.yaml:2: Unresolved tag/);
  t.same(faultsOf('a: 1\n---\nb: 2\n'), ['f.yaml:2: a second document begins here, want one alone']);
  t.match(faultsOf('? [a]\n: 1\n').join(), /^f\.yaml:1: .*keys must be/i);
  t.match(faultsOf('a: *nobody\n').join(), /^f\.yaml:?\d?: .*nobody/i);
  t.end();
});

void t.test('1.2 means what it says: no, 017 and 1_000 are no surprises, << is a name', (t) => {
  t.strictSame(parseYaml('a: no\nb: 017\nc: 1_000\nd: 2024-01-01\n<<: x\n', 'f').value, {
    a: 'no',
    b: 17,
    c: '1_000',
    d: '2024-01-01',
    '<<': 'x',
  });
  t.end();
});

void t.test('aliases are bounded', (t) => {
  const bomb = ['a: &a [x, x, x, x, x, x, x, x, x]'];
  for (const [from, to] of ['ab', 'bc', 'cd', 'de', 'ef']) {
    bomb.push(`${to ?? ''}: &${to ?? ''} [${Array.from({ length: 9 }, () => `*${from ?? ''}`).join(', ')}]`);
  }
  t.match(faultsOf(bomb.join('\n')).join(), /^f\.yaml: Excessive alias count/);
  const aliases = Array.from({ length: ALIASES_MAX - 1 }, () => '*a').join(', ');
  t.same(faultsOf(`a: &a x\nb: [${aliases}]\n`), []);
  t.end();
});

void t.test('the depth is bounded, whatever it is made of', (t) => {
  const deep: Readonly<Record<string, (depth: number) => string>> = {
    brackets: (depth) => `a:\n  ${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}\n`,
    'open brackets': (depth) => `a:\n  ${'['.repeat(depth)}`,
    braces: (depth) => `a:\n  ${'{b: '.repeat(depth)}1${'}'.repeat(depth)}\n`,
    dashes: (depth) => `a:\n  ${'- '.repeat(depth)}b\n`,
    lines: (depth) => Array.from({ length: depth }, (_, at) => `${' '.repeat(at)}a:\n`).join(''),
  };
  for (const [name, textOf] of Object.entries(deep)) {
    if (name !== 'open brackets') t.ok(parseYaml(textOf(98), 'f'), name);
    for (const depth of [110, 3_000, 40_000].slice(0, name === 'lines' ? 1 : 3))
      t.match(
        faultsOf(textOf(depth)),
        [/^f\.yaml:\d+: more than 100 lists and maps within each other$/],
        `${depth} ${name}`,
      );
  }
  t.match(faultsOf(deep.dashes!(200)), [/^f\.yaml:2: more/]);
  t.end();
});

void t.test('the size is bounded', (t) => {
  const filler = (bytes: number) => `${SOUND_YAML}#${'x'.repeat(bytes - SOUND_YAML.length - 1)}`;
  const largest = worldOf(t, { 'tollgate.yaml': filler(CONFIG_BYTES_MAX) });
  t.equal(largest.load().settings.models.length, 1);
  const larger = worldOf(t, { 'tollgate.yaml': filler(CONFIG_BYTES_MAX + 1) });
  t.same(larger.faults(), [`tollgate.yaml: longer than ${CONFIG_BYTES_MAX} bytes`]);
  t.end();
});

void t.test('lines of settings, through lists, flow maps and aliases', (t) => {
  const source = parseYaml('a:\n  - b: 1\n    c: { d: 1,\n      e: 2 }\n  - &x\n    f: 1\ng: *x\n', 'f');
  t.equal(source.lineOf([]), 1);
  t.equal(source.lineOf(['a']), 1);
  t.equal(source.lineOf(['a', 0]), 2);
  t.equal(source.lineOf(['a', 0, 'c']), 3);
  t.equal(source.lineOf(['a', 0, 'c', 'e']), 4);
  t.equal(source.lineOf(['a', 0, 'c', 'missing', 'deeper']), 3);
  t.equal(source.lineOf(['g']), 7);
  t.equal(source.lineOf(['g', 'f']), 6);
  t.end();
});

void t.test('another encoding is refused with its line, because names would be read as others', (t) => {
  const withOwner = SOUND_YAML.replace('- id: m1', '- id: m1\n    owned_by: Müller');
  t.equal(worldOf(t, { 'tollgate.yaml': withOwner }).load().settings.models[0]?.owned_by, 'Müller');
  for (const [encoding, line] of [
    ['latin1', 3],
    ['utf16le', 1],
  ] as const) {
    const bytes = Buffer.from(`${encoding === 'utf16le' ? '\uFEFF' : ''}${withOwner}`, encoding);
    t.same(worldOf(t, { 'tollgate.yaml': bytes }).faults(), [
      `tollgate.yaml: cannot be read: line ${line} is not UTF-8: save the file in that encoding`,
    ]);
  }
  t.end();
});
