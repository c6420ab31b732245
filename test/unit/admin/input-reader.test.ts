/**
 * Bodies that are wrong in a million places are refused before each of them is looked at.
 */
import t from 'tap';
import * as Type from 'typebox';
import { createReader } from '#src/admin/input-reader.js';

const CLOSED = { additionalProperties: false };
const Part = Type.Object({ name: Type.String() }, CLOSED);
const Body = Type.Object(
  {
    rows: Type.Array(
      Type.Object({ name: Type.String(), parts: Type.Optional(Type.Array(Part, { maxItems: 3 })) }, CLOSED),
      { maxItems: 10 },
    ),
  },
  CLOSED,
);
const read = createReader(Body, 'field');
const MANY = 300_000;
/** Looking at each takes 2 s and more on an idle machine. */
const CPU_MS_MAX = 500;

const many = <T>(value: T): T[] => Array.from({ length: MANY }, () => value);

void t.test('a wrong body costs little, however large', async (t) => {
  await read({ rows: [{ name: 'first', parts: [{ name: 'part' }] }] });
  const cases: readonly (readonly [body: unknown, message: RegExp])[] = [
    [{ rows: many({ name: 'right' }) }, /^rows must have at most 10 items, got 300000$/],
    [{ rows: many(1) }, /^rows must have at most 10 items/],
    [{ rows: many({}) }, /^rows must have at most 10 items/],
    [{ rows: [{ name: 'a', parts: many({}) }] }, /^rows\[0\]\.parts must have at most 3 items, got 300000$/],
    [Object.fromEntries(many(0).map((_, at) => [`x${at}`, 1])), /^unknown field x0, x1, .*…/],
    [{ rows: [{ nme: 'a' }] }, /^unknown field rows\[0\]\.nme, the nearest known one is name$/],
  ];
  for (const [body, message] of cases) {
    const before = process.cpuUsage();
    await t.rejects(read(body), { message });
    const { user, system } = process.cpuUsage(before);
    t.ok((user + system) / 1_000 < CPU_MS_MAX, `${message.source}: ${(user + system) / 1_000} ms`);
  }
});

void t.test('a message shows a name as the caller wrote it', async (t) => {
  const cases: readonly (readonly [body: unknown, message: RegExp])[] = [
    [{ rows: [], 'a/b': 1 }, /^unknown field a\/b$/],
    [{ rows: [{ name: 'x', '~1/~0': 1 }] }, /^unknown field rows\[0\]\.~1\/~0$/],
  ];
  for (const [body, message] of cases) await t.rejects(read(body), { message });
  const odd = createReader(Type.Object({ 'm/1': Type.Array(Type.String(), { maxItems: 1 }) }), 'field');
  await t.rejects(odd({ 'm/1': ['a', 'b'] }), { message: /^m\/1 must have at most 1 items, got 2$/ });
  await t.rejects(odd({ 'm/1': [1] }), { message: /^m\/1\[0\] must be string, got 1$/ });
  await t.rejects(odd({ n: 1 }), { message: /^m\/1 must be given$/ });
});

void t.test(
  'a list that would be read without a bound is no schema, nor an object that is not followed',
  (t) => {
    const list = Type.Array(Type.String(), { maxItems: 1 });
    for (const [name, schema] of Object.entries({
      'without a bound': Type.Array(Type.String()),
      'in a union': Type.Union([list, Type.Null()]),
      'an object in a union': Type.Union([Type.Object({ a: Type.String() }), Type.Null()]),
      'below one': Type.Union([Type.Object({ list }), Type.Null()]),
      'within a list without one': Type.Array(Type.Array(Type.String()), { maxItems: 1 }),
      'with free names': Type.Record(Type.String(), list),
    })) {
      t.throws(
        () => createReader(Type.Object({ schema }), 'field'),
        { message: /in a request (?:is|are) / },
        name,
      );
      t.throws(() => createReader(Type.Object({ a: Type.Object({ schema }) }), 'field'), name);
    }
    createReader(Type.Object({ items: list, properties: Type.Array(list, { maxItems: 2 }) }), 'field');
    t.end();
  },
);
