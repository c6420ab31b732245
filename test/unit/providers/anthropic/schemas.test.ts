/** Schemas in the subset that Anthropic enforces, and the bounds of a request's schemas together. */
import t from 'tap';
import { closedSchema, formatSchema, toolSchemas } from '#src/providers/anthropic/schemas.js';

const object = (properties: object, more: object = {}): Record<string, unknown> => ({
  type: 'object',
  properties,
  ...more,
});
const CLOSED = { additionalProperties: false };

const SCHEMAS: [
  name: string,
  given: Record<string, unknown>,
  strict: boolean,
  expected: object | undefined,
][] = [
  [
    'closed already',
    object({ a: { type: 'string' } }, CLOSED),
    true,
    object({ a: { type: 'string' } }, CLOSED),
  ],
  ['not said', object({}), false, object({}, CLOSED)],
  ['open', object({}, { additionalProperties: true }), false, undefined],
  ['open, and strict', object({}, { additionalProperties: true }), true, object({}, CLOSED)],
  ['a map', { type: 'object', additionalProperties: { type: 'string' } }, false, undefined],
  ['any object', { type: 'object' }, false, undefined],
  ['an inner map', object({ a: { type: 'array', items: { type: 'object' } } }), false, undefined],
  [
    'inner ones',
    object({
      a: { anyOf: [object({}), { type: 'null' }] },
      b: { type: 'array', items: object({}), minItems: 1 },
    }),
    false,
    object(
      {
        a: { anyOf: [object({}, CLOSED), { type: 'null' }] },
        b: { type: 'array', items: object({}, CLOSED), minItems: 1 },
      },
      CLOSED,
    ),
  ],
  [
    'limits that cannot be enforced',
    object({
      a: { type: 'string', description: 'A.', maxLength: 3, pattern: 'x' },
      b: { type: 'number', minimum: 0 },
    }),
    false,
    object(
      {
        a: { type: 'string', description: 'A.\n\n{maxLength: 3, pattern: "x"}' },
        b: { type: 'number', description: '{minimum: 0}' },
      },
      CLOSED,
    ),
  ],
  [
    'references, formats, values',
    {
      ...object({
        a: { $ref: '#/$defs/x' },
        b: { type: 'string', format: 'date' },
        c: { type: 'string', format: 'color' },
      }),
      $schema: 'x',
      $defs: { x: { oneOf: [{ const: 1 }, { enum: ['a'] }] } },
    },
    false,
    {
      ...object(
        {
          a: { $ref: '#/$defs/x' },
          b: { type: 'string', format: 'date' },
          c: { type: 'string', description: '{format: "color"}' },
        },
        CLOSED,
      ),
      $defs: { x: { anyOf: [{ const: 1 }, { enum: ['a'] }] } },
    },
  ],
  ['a schema that is true', object({ a: true }), true, undefined],
  ['null or any object', object({ a: { type: ['object', 'null'] } }), false, undefined],
  [
    'null or an object, strict',
    object({ a: { type: ['object', 'null'] } }),
    true,
    object({ a: { type: ['object', 'null'], ...CLOSED } }, CLOSED),
  ],
  ['members by a pattern', object({}, { patternProperties: { '^x': { type: 'string' } } }), false, undefined],
  ['other members', object({}, { unevaluatedProperties: { type: 'string' } }), false, undefined],
  [
    'no other members',
    object({}, { unevaluatedProperties: false }),
    false,
    {
      ...object({}, CLOSED),
      description: '{unevaluatedProperties: false}',
    },
  ],
  ['two lists of alternatives', { anyOf: [{ const: 1 }], oneOf: [{ const: 1 }] }, false, undefined],
  ['values that are objects', object({ a: { enum: ['x', { y: 1 }] } }), true, undefined],
  [
    'values with null',
    object({ a: { enum: ['x', null] } }),
    true,
    object({ a: { enum: ['x', null] } }, CLOSED),
  ],
  ['objects that hold each other', { allOf: [object({ a: {} }), object({ b: {} })] }, false, undefined],
  ['an object and a part', object({ a: {} }, { allOf: [object({ b: {} })] }), false, undefined],
  ['a reference in allOf', { allOf: [{ $ref: '#/$defs/x' }], $defs: { x: object({}) } }, false, undefined],
  ['allOf', { allOf: [object({}), { title: 'T' }] }, false, { allOf: [object({}, CLOSED), { title: 'T' }] }],
  ['a reference to a file', object({ a: { $ref: 'https://example.com/x.json' } }), true, undefined],
  ['a reference to nothing', object({ a: { $ref: '#/$defs/toString' } }, { $defs: {} }), true, undefined],
  ['a reference to the whole', object({ a: { $ref: '#' } }), true, undefined],
  [
    'a list of itself',
    object(
      { a: { $ref: '#/$defs/list' } },
      { $defs: { list: object({ next: { anyOf: [{ $ref: '#/$defs/list' }, { type: 'null' }] } }) } },
    ),
    true,
    undefined,
  ],
  [
    'a circle of two',
    object(
      {},
      {
        definitions: {
          a: object({ b: { $ref: '#/definitions/b' } }),
          b: { type: 'array', items: { $ref: '#/definitions/a' } },
        },
      },
    ),
    true,
    undefined,
  ],
  [
    'one definition twice',
    object(
      { a: { $ref: '#/$defs/x' }, b: { $ref: '#/$defs/x' } },
      { $defs: { x: { $ref: '#/$defs/y' }, y: { type: 'string' } } },
    ),
    true,
    object(
      { a: { $ref: '#/$defs/x' }, b: { $ref: '#/$defs/x' } },
      { $defs: { x: { $ref: '#/$defs/y' }, y: { type: 'string' } }, ...CLOSED },
    ),
  ],
];

void t.test('schemas', (t) => {
  for (const [name, given, strict, expected] of SCHEMAS)
    t.strictSame(closedSchema(given, { strict }), expected, name);
  let deep: Record<string, unknown> = { type: 'string' };
  for (let level = 0; level < 100; level++) deep = { type: 'array', items: deep };
  t.equal(closedSchema(deep, { strict: true }), undefined, 'too deep');
  const $defs: Record<string, unknown> = { d10000: { type: 'string' } };
  for (let number = 0; number < 10_000; number++) $defs[`d${number}`] = { $ref: `#/$defs/d${number + 1}` };
  t.equal(closedSchema({ $ref: '#/$defs/d0', $defs }, { strict: true }), undefined, 'too long a way');
  t.end();
});

const times = <Value>(count: number, make: () => Value): Value[] => Array.from({ length: count }, make);
/** An object with so many optional members. */
const optional = (count: number): Record<string, unknown> =>
  object(Object.fromEntries(Array.from({ length: count }, (_, index) => [`p${index}`, { type: 'string' }])));
/** An object with so many required members of two types. */
const unions = (count: number): Record<string, unknown> => {
  const names = Array.from({ length: count }, (_, index) => `p${index}`);
  const properties = Object.fromEntries(names.map((name) => [name, { type: ['string', 'null'] }]));
  return object(properties, { required: names });
};

void t.test('the bounds of all schemas together', (t) => {
  const OPEN = { type: 'object', additionalProperties: true };
  const closedOf = (...schemas: Record<string, unknown>[]): boolean[] =>
    toolSchemas(schemas, undefined).map((schema) => schema !== undefined);
  t.same(toolSchemas([], undefined), []);
  t.same(closedOf(optional(1), OPEN, unions(1)), [true, false, true], 'only one cannot be closed');
  t.same(closedOf(optional(24)), [true]);
  t.same(closedOf(optional(24), optional(1)), [false, false], 'too many optional members');
  t.same(closedOf(optional(24), OPEN), [true, false], 'what is given up does not count');
  t.same(closedOf(unions(16)), [true]);
  t.same(closedOf(unions(16), unions(1)), [false, false], 'too many unions');
  t.same(
    closedOf(...times(20, () => object({}))),
    times(20, () => true),
  );
  t.same(
    closedOf(...times(21, () => object({}))),
    times(21, () => false),
    'too many tools',
  );
  t.same(closedOf(...times(20, () => object({})), OPEN), [...times(20, () => true), false]);
  const format = formatSchema(optional(20), { strict: true });
  t.ok(format);
  t.ok(toolSchemas([optional(4)], format)[0], 'with the schema of the response');
  t.equal(toolSchemas([optional(5)], format)[0], undefined);
  t.equal(formatSchema(optional(25), { strict: true }), undefined);
  t.ok(closedSchema(optional(25), { strict: true }), 'a bound of requests, not of schemas');
  t.end();
});

void t.test('names of Object.prototype are names as others', (t) => {
  const given = JSON.parse(
    '{"type":"object","properties":{"__proto__":{"type":"object","properties":{}},"constructor":{"type":"string"}},"__proto__":{"maxLength":1}}',
  ) as Record<string, unknown>;
  const before = JSON.stringify(given);
  const closed = closedSchema(given, { strict: true })!;
  t.equal(JSON.stringify(given), before, 'the schema of the caller is as it was');
  t.strictSame(Object.keys(closed.properties as object), ['__proto__', 'constructor']);
  t.equal(closed.additionalProperties, false);
  t.match(closed.description, '__proto__');
  t.end();
});
