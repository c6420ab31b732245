/** What the names of models say. */
import t from 'tap';
import { traitsOf } from '#src/providers/anthropic/models.js';
import { closedSchema } from '#src/providers/anthropic/tools.js';

/** Letters: sampling, one sampler, schemas, forced tools, system turns. */
const MODELS: [name: string, thinking: string, off: string | undefined, letters: string, efforts: number][] =
  [
    ['claude-2.1', 'none', 'absent', 's--f-', 0],
    ['claude-instant-1.2', 'none', 'absent', 's--f-', 0],
    ['claude-3-haiku-20240307', 'none', 'absent', 's--f-', 0],
    ['claude-3-5-sonnet-20241022', 'none', 'absent', 's--f-', 0],
    ['claude-3-7-sonnet-20250219', 'budget', 'absent', 's--f-', 0],
    ['claude-opus-4-20250514', 'budget', 'absent', 's--f-', 0],
    ['claude-opus-4-1@20250805', 'budget', 'absent', 's1-f-', 0],
    ['claude-sonnet-4-5', 'budget', 'absent', 's1cf-', 0],
    ['us.anthropic.claude-haiku-4-5-20251001-v1:0', 'budget', 'absent', 's1cf-', 0],
    ['claude-opus-4-5@20251101', 'budget', 'absent', 's1cf-', 0],
    ['claude-sonnet-4-6', 'either', 'absent', 's1cf-', 4],
    ['claude-opus-4-7-20260416', 'adaptive', 'absent', '--cf-', 5],
    ['claude-mythos-preview', 'adaptive', undefined, '--cf-', 5],
    ['claude-opus-4-8', 'adaptive', 'absent', '--cfy', 5],
    ['claude-opus-4-10', 'adaptive', 'absent', '--cfy', 5],
    ['claude-opus-5', 'adaptive', 'disabled', '--cfy', 5],
    ['claude-sonnet-5', 'adaptive', 'disabled', '--cfy', 5],
    ['claude-fable-5', 'adaptive', undefined, '--cfy', 5],
    ['claude-mythos-5-1', 'adaptive', undefined, '--c-y', 5],
    ['claude-opus-5-5', 'adaptive', undefined, '--c-y', 5],
    ['claude-sonnet-5-5', 'adaptive', 'between_tools', '--c-y', 5],
    ['claude-haiku-5-5', 'adaptive', 'disabled', '--cfy', 5],
    ['of-the-future', 'adaptive', undefined, '--c-y', 5],
    ['claude-opus-12', 'adaptive', undefined, '--c-y', 5],
  ];

void t.test('models', (t) => {
  for (const [name, thinking, off, letters, efforts] of MODELS) {
    const traits = traitsOf(name);
    const { allowsSampling, hasOneSampler, obeysSchemas, canForceTools, allowsSystemTurns } = traits;
    const found = `${allowsSampling ? 's' : '-'}${hasOneSampler && allowsSampling ? '1' : '-'}${obeysSchemas ? 'c' : '-'}${canForceTools ? 'f' : '-'}${allowsSystemTurns ? 'y' : '-'}`;
    t.strictSame(
      [traits.thinking, traits.thinkingOff, found, traits.efforts.length],
      [thinking, off, letters, efforts],
      name,
    );
    t.equal(traitsOf(name), traits, 'the same again');
  }
  for (let index = 0; index < 600; index++) traitsOf(`claude-opus-4-8-${index}`);
  t.end();
});

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
];

void t.test('schemas', (t) => {
  for (const [name, given, strict, expected] of SCHEMAS)
    t.strictSame(closedSchema(given, { strict }), expected, name);
  let deep: Record<string, unknown> = { type: 'string' };
  for (let level = 0; level < 100; level++) deep = { type: 'array', items: deep };
  t.equal(closedSchema(deep, { strict: true }), undefined, 'too deep');
  t.end();
});

void t.test('schemas are on Vertex since 4.6', (t) => {
  const schemas = (name: string, onVertex: boolean): boolean => traitsOf(name, { onVertex }).obeysSchemas;
  t.same(
    ['claude-sonnet-4-5@20250929', 'claude-sonnet-4-6', 'claude-opus-4-7', 'claude-sonnet-4@20250514'].map(
      (name) => [schemas(name, false), schemas(name, true)],
    ),
    [
      [true, false],
      [true, true],
      [true, true],
      [false, false],
    ],
  );
  t.end();
});
