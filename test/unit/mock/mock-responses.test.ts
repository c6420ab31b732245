/** What the mock's Responses API reads; what it sends is in test/e2e/responses.test.ts. */
import t from 'tap';
import { RESPONSES_MOCK } from '#src/mock/mock-responses.js';

const read = (body: object): unknown =>
  RESPONSES_MOCK.read({ path: '/v1/responses', query: '', headers: {}, body: JSON.stringify(body) });

void t.test('a request', (t) => {
  const input = [
    { role: 'user', content: 'x-mock: status=429' },
    { type: 'function_call_output', call_id: 'c', output: 'r' },
  ];
  t.match(read({ model: 'm', input, tools: [{ type: 'function', name: 'f' }] }), {
    directives: 'status=429',
    toolNames: ['f'],
    endsWithToolResult: true,
  });
  t.end();
});

void t.test('what is wrong is named', (t) => {
  t.match(read({ input: 'a' }), { status: 400, error: /"param":"model"/ });
  t.match(read({ model: 'm', input: 'a', messages: [] }), { status: 400, error: /"param":"messages"/ });
  t.match(read({ model: 'm', input: [{ role: 'user', content: 'a' }, 3] }), {
    status: 400,
    error: /input\[1\].*"param":"input\[1\]"/,
  });
  t.end();
});
