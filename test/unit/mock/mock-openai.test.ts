/** What the mock reads of a request. */
import t from 'tap';
import { readMockRequest } from '#src/mock/mock-openai.js';

const body = (messages: readonly object[], more: object = {}): string =>
  JSON.stringify({ model: 'm', messages, ...more });
const user = (content: unknown): object => ({ role: 'user', content });

void t.test('model, stream, usage', (t) => {
  t.same(readMockRequest(body([user('12345678')])), {
    model: 'm',
    stream: false,
    includeUsage: false,
    promptTokens: 2,
    directives: undefined,
    toolNames: [],
    endsWithToolResult: false,
  });
  t.match(readMockRequest(body([], { stream: true, stream_options: { include_usage: true } })), {
    stream: true,
    includeUsage: true,
  });
  t.equal(readMockRequest('{}')?.model, 'mock-model');
  t.end();
});

void t.test('prompt tokens are bytes by four, rounded up, of all string contents', (t) => {
  const tokens = (...contents: unknown[]): number | undefined =>
    readMockRequest(body(contents.map(user)))?.promptTokens;
  t.equal(tokens(''), 0);
  t.equal(tokens('1234'), 1);
  t.equal(tokens('12345'), 2);
  t.equal(tokens('é', 'é', '1'), 2, 'UTF-8: five bytes');
  t.equal(tokens(null, [{ type: 'text', text: 'not counted' }]), 0);
  t.end();
});

void t.test('directives are in the first line of the last user message', (t) => {
  const directives = (...messages: object[]): string | undefined =>
    readMockRequest(body(messages))?.directives;
  t.equal(directives(user('x-mock: status=429\nHello')), 'status=429');
  t.equal(directives(user('x-mock:status=429')), 'status=429');
  t.equal(directives(user('Hello\nx-mock: status=429')), undefined);
  t.equal(directives(user('x-mock: a'), user('b')), undefined);
  t.equal(directives(user('x-mock: a'), { role: 'assistant', content: 'b' }), 'a');
  t.end();
});

void t.test('what is no JSON object is told so', (t) => {
  for (const text of ['', '{', 'null', '3', '"x"']) t.equal(readMockRequest(text), undefined, text);
  t.end();
});
