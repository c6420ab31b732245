import t from 'tap';
import type { HttpRequest } from 'uWebSockets.js';
import { RequestHead } from '#src/request/request-head.js';

type Header = readonly [name: string, value: string];

/** What forEach gives: names in lower case, in the order in which they came. */
const requestWith = (...headers: readonly Header[]): HttpRequest =>
  ({
    forEach: (visit: (name: string, value: string) => void) => {
      for (const [name, value] of headers) visit(name, value);
    },
  }) as HttpRequest;

const A: Header = ['authorization', 'Bearer sk-one-secret'];
const B: Header = ['authorization', 'Bearer sk-two-secret'];
const KEY: Header = ['x-api-key', 'sk-one-secret'];
const OTHER_KEY: Header = ['x-api-key', 'sk-two-secret'];

void t.test('of two credentials nobody knows which one counts', (t) => {
  const head = new RequestHead();
  for (const [headers, name] of [
    [[A, B], 'authorization'],
    [[B, A, A], 'authorization'],
    [[KEY, OTHER_KEY], 'x-api-key'],
    [[A, KEY, OTHER_KEY], 'x-api-key'],
  ] as const) {
    head.read(requestWith(...headers));
    const problem = head.rejection();
    t.match(problem, { code: 'invalid_parameters', message: new RegExp(`^${name} must be sent once`) });
    t.notMatch(problem?.message, /secret/);
  }
  t.end();
});

void t.test('one credential, however often it is sent, is taken', (t) => {
  const head = new RequestHead();
  for (const headers of [
    [A],
    [A, A],
    [['authorization', ''], A],
    [A, ['authorization', '']],
    [A, KEY],
  ] as const) {
    head.read(requestWith(...headers));
    t.equal(head.rejection(), undefined);
    t.equal(head.authorization, A[1]);
  }
  head.read(requestWith(KEY, KEY));
  t.equal(head.authorization, A[1], 'as Anthropic clients send it');
  t.equal(head.rejection(), undefined);
  head.read(requestWith());
  t.equal(head.authorization, '', 'nothing is left of the one before');
  t.end();
});
