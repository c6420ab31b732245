/** The rules of a request in words against the schema of the same: one sentence for each body it rejects. */
import t from 'tap';
import { Check } from 'typebox/value';
import { explainResponsesRequest } from '#src/doors/responses/responses-door.js';
import { ResponsesRequestSchema } from '#src/doors/request-schemas.js';

const VALUES: readonly unknown[] = [
  undefined,
  null,
  true,
  false,
  -1,
  0,
  1.5,
  2.5,
  7,
  '',
  'text',
  [],
  [1],
  [{}],
  {},
];
const NAMES = [...Object.keys(ResponsesRequestSchema.properties), 'unknown'];

void t.test('every value of every member', (t) => {
  let refused = 0;
  for (const name of NAMES)
    for (const value of [...VALUES, [{ type: 'function' }], [{ type: 1 }]]) {
      const body = { model: 'm', input: 'Hello', [name]: value };
      // As JSON, which has no undefined.
      const sent = JSON.parse(JSON.stringify(body)) as unknown;
      if (Check(ResponsesRequestSchema, sent)) {
        t.throws(() => explainResponsesRequest(sent), /agree/, `${name}: ${JSON.stringify(value)}`);
        continue;
      }
      refused++;
      t.match(explainResponsesRequest(sent), new RegExp(`^${name}.* must .*, got `), JSON.stringify(value));
    }
  t.ok(refused > 50);
  t.end();
});

void t.test('sentences', (t) => {
  const cases: [unknown, string][] = [
    [[], 'the request body must be a JSON object, got an array'],
    [{ input: 'x' }, 'model must be a non-empty string, got nothing'],
    [{ model: 'm', input: 3 }, 'input must be a string or an array of items, got 3'],
    [{ model: 'm', input: ['x'] }, 'input[0] must be an object, got "x"'],
    [{ model: 'm', temperature: 3 }, 'temperature must be a number between 0 and 2, got 3'],
    [{ model: 'm', background: true }, 'background must be false or be left out, got true'],
    [{ model: 'm', tools: [{}] }, 'tools[0].type must be a string, got nothing'],
  ];
  for (const [body, sentence] of cases) t.equal(explainResponsesRequest(body), sentence);
  t.end();
});
