/** What the mock's Responses API reads; what it sends is in test/e2e/responses.test.ts. */
import t from 'tap';
import { responseTo } from '#src/mock/mock-completion.js';
import { MOCK_DEFAULTS } from '#src/mock/mock-options.js';
import type { MockRequest } from '#src/mock/mock-protocol.js';
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

void t.test('the texts of tools count as prompt, as they do in chat completions', (t) => {
  const result = (output: unknown): object => ({ type: 'function_call_output', call_id: 'c', output });
  const input = [
    { role: 'user', content: 'four' },
    result('eight by'),
    result([{ type: 'input_text', text: 'four' }]),
  ];
  t.match(read({ model: 'm', input }), { promptTokens: 4 });
  t.end();
});

void t.test('the events of a stream are numbered one after another, also the error that ends it', (t) => {
  const request = read({ model: 'm', input: 'a', stream: true }) as MockRequest;
  for (const fault of ['error-event', 'error-first', undefined] as const) {
    const { pieces } = responseTo({ ...MOCK_DEFAULTS, fault }, request, undefined, RESPONSES_MOCK);
    const text = Buffer.concat(pieces).toString();
    const numbers = [...text.matchAll(/"sequence_number":(\d+)/g)].map(([, number]) => Number(number));
    t.equal(text.includes('event: error'), fault !== undefined);
    t.strictSame(
      numbers,
      numbers.map((_, index) => index),
      fault ?? 'no fault',
    );
  }
  t.end();
});
