/** The sentence for each body that a schema rejects: one if, and only if, the compiled check rejects it. */
import t from 'tap';
import { Check } from 'typebox/value';
import { DOOR_NAMES } from '#src/core/door-names.js';
import { REQUEST_SCHEMAS } from '#src/doors/request-schemas.js';
import { REQUEST_RULES } from '#src/protocol/generated.js';
import { violationOf } from '#src/protocol/request-rules.js';
import { DOOR_BODIES } from '../../support/door-bodies.js';
import { anyValue } from '../../support/protocol-values.js';
import { newSeed, randomOf } from '../../support/random.js';

const VALUES: readonly unknown[] = [
  ...[undefined, null, true, false, -1, 0, 1.5, 2.5, 7, 129, '', 'text', 'auto', 'float', 'user'],
  ...[[], [1], [1, 'a'], ['a'], ['a', 1], [[]], [[1]], [[1], [-1]], [[1], 2], [{}], [null], {}],
  ...[[{ type: 'function' }], [{ type: 1 }], { type: 'auto' }, { include_usage: 1 }, { include_usage: true }],
  ...[
    [{ role: 'user', content: 'x' }],
    [{ role: 'user' }],
    [{ role: 'x', content: '' }],
    Array(2_049).fill('x'),
  ],
  [{ role: 'assistant', content: null, tool_calls: [] }],
  [{ role: 'user', content: [{ type: 'text' }, {}] }],
];

void t.test('every value of every member, at every door', (t) => {
  const seed = newSeed();
  t.comment(`seed ${seed}`);
  const next = randomOf(seed);
  for (const door of DOOR_NAMES) {
    const { check, schema } = REQUEST_RULES[door];
    const names = [...Object.keys(REQUEST_SCHEMAS[door].properties), 'unknown'];
    t.ok(check(DOOR_BODIES[door]), door);
    let refused = 0;
    for (const name of names)
      for (const value of [...VALUES, ...Array.from({ length: 50 }, () => anyValue(next))]) {
        // As JSON, which has no undefined.
        const text = JSON.stringify({ ...DOOR_BODIES[door], [name]: value });
        const sent = JSON.parse(text) as unknown;
        const sentence = violationOf(schema, sent);
        const isValid = Check(REQUEST_SCHEMAS[door], sent);
        if (check(sent) !== isValid) t.fail(`${door}: compiled otherwise: ${text}`);
        if (isValid !== (sentence === undefined)) t.fail(`${door}: ${sentence}: ${text}`);
        if (sentence === undefined) continue;
        refused++;
        if (!sentence.startsWith(name) || !/ must .*, got ./.test(sentence)) t.fail(`${sentence}: ${text}`);
      }
    t.ok(refused > 50, `${door}: ${refused} were rejected`);
  }
  t.end();
});

void t.test('sentences', (t) => {
  const { schema } = REQUEST_RULES.responses;
  const cases: [unknown, string][] = [
    [[], 'the request body must be a JSON object, got an array'],
    [{ input: 'x' }, 'model must be a non-empty string, got nothing'],
    [{ model: 'm', input: 3 }, 'input must be a string or an array of items, got 3'],
    [{ model: 'm', input: ['x'] }, 'input[0] must be an object, got "x"'],
    [{ model: 'm', temperature: 3 }, 'temperature must be a number between 0 and 2, got 3'],
    [{ model: 'm', background: true }, 'background must be false or left out, got true'],
    [{ model: 'm', tools: [{}] }, 'tools[0].type must be a string, got nothing'],
  ];
  for (const [body, sentence] of cases) t.equal(violationOf(schema, body), sentence);
  const numbers: [Parameters<typeof violationOf>[0], unknown, string][] = [
    [{ type: 'number' }, 'warm', 'x must be a number, got "warm"'],
    [{ type: 'number', minimum: 1 }, 0, 'x must be at least 1, got 0'],
    [{ type: 'number', minimum: 0 }, -1, 'x must not be negative, got -1'],
    [{ type: 'number', maximum: 2 }, 3, 'x must be at most 2, got 3'],
    [{ type: 'number', minimum: 0, maximum: 2 }, null, 'x must be a number between 0 and 2, got null'],
    [{ type: 'integer', minimum: 1 }, 1.5, 'x must be an integer, got 1.5'],
  ];
  for (const [rule, value, sentence] of numbers) t.equal(violationOf(rule, value, 'x'), sentence);
  t.end();
});
