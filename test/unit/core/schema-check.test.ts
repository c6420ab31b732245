/** The checks that the build makes say what TypeBox says, of rows that are right and of many that are not. */
import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import type { TSchema } from 'typebox';
import { Check } from 'typebox/value';
import { CHECKS } from '#src/core/generated-checks.js';
import { CHECKED_SCHEMAS, schemaCheck } from '#src/core/schema-check.js';

const WRONG = [
  undefined,
  null,
  true,
  -1,
  1.5,
  2 ** 60,
  NaN,
  '',
  'x',
  'é'.repeat(40),
  '-0',
  '12',
  [],
  {},
  [1],
];

const RIGHT = [null, true, 0, 1, 'x', '12', 'a'.repeat(43), 'a'.repeat(64)];

/** A value with every member that the schema knows. */
function exampleOf(schema: TSchema): unknown {
  const { properties, items, anyOf } = schema as {
    readonly properties?: Readonly<Record<string, TSchema>>;
    readonly items?: TSchema | readonly TSchema[];
    readonly anyOf?: readonly TSchema[];
  };
  if (properties !== undefined)
    return Object.fromEntries(Object.entries(properties).map(([name, member]) => [name, exampleOf(member)]));
  if (items !== undefined) return [items].flat().map((item) => exampleOf(item));
  if (anyOf !== undefined) return exampleOf(anyOf.at(-1)!);
  const named = schema as { readonly enum?: readonly unknown[]; readonly const?: unknown };
  return [...RIGHT, { x: 1 }, named.const, ...(named.enum ?? [])].find((value) => Check(schema, value));
}

/** What one change makes of a value, in each place. */
function* variantsOf(value: unknown): Generator {
  yield* WRONG;
  if (Array.isArray(value)) {
    for (const wrong of WRONG) yield [...(value as readonly unknown[]), wrong];
  } else if (typeof value === 'object' && value !== null) {
    yield { ...value, unknown: 1 };
    for (const [name, member] of Object.entries(value)) {
      yield Object.fromEntries(Object.entries(value).filter(([other]) => other !== name));
      for (const variant of variantsOf(member)) yield { ...value, [name]: variant };
    }
  }
}

void t.test('each check is made, and says what TypeBox says', async (t) => {
  for (const folder of ['store', 'sharing']) {
    for (const name of readdirSync(`src/${folder}`)) {
      if (/\b(schemaCheck|rowReader|rowCodec)\(/.test(readFileSync(`src/${folder}/${name}`, 'utf8')))
        await import(`#src/${folder}/${name.replace(/\.ts$/, '.js')}`);
    }
  }
  t.same([...CHECKED_SCHEMAS.keys()].sort(), Object.keys(CHECKS).sort());
  let [valid, invalid] = [0, 0];
  for (const [name, schema] of CHECKED_SCHEMAS) {
    t.ok(Check(schema, exampleOf(schema)), name);
    for (const value of [exampleOf(schema), ...variantsOf(exampleOf(schema))]) {
      const expected = Check(schema, value);
      if (expected) valid += 1;
      else invalid += 1;
      if (CHECKS[name]!(value) !== expected) t.fail(`${name} of ${JSON.stringify(value)}: ${!expected}`);
    }
  }
  t.ok(valid > 300 && invalid > 2_000, `${valid} valid, ${invalid} not`);
});

void t.test('a check that the build has not made is refused with a sentence', (t) => {
  t.throws(() => schemaCheck('Unmade', {}), /the check Unmade is not made: run `npm run build`/);
  for (const name of ['constructor', 'toString'])
    t.throws(() => schemaCheck(name, {}), /is not made/, `${name} is no check either`);
  t.throws(() => schemaCheck('StoredKey', {}), /one schema is called StoredKey/);
  t.end();
});

void t.test('the checks need nothing beside them', (t) => {
  const path = new URL('../../../../dist/core/generated-checks.js', import.meta.url);
  t.notMatch(readFileSync(path, 'utf8'), /\bimport\b|\brequire\b|\bFunction\b|\beval\b|\bGuard\b/);
  t.end();
});
