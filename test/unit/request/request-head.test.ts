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

void t.test('nothing is left of the request before', (t) => {
  const head = new RequestHead();
  const fields = (): object => ({
    ...Object.fromEntries(Object.entries(head)),
    isChunked: head.isChunked,
    rejection: head.rejection(),
  });
  head.read(requestWith());
  const ofNone = fields();
  head.read(
    requestWith(
      KEY,
      ['host', 'a'],
      ['host', 'b'],
      ['origin', 'https://a.example'],
      ['traceparent', '00-1'],
      ['cache-control', 'no-store'],
      ['content-length', '7'],
      ['anthropic-beta', 'ä'],
      ['idempotency-key', 'k'],
      ['content-encoding', 'gzip'],
      ['transfer-encoding', 'chunked'],
    ),
  );
  const ofAll = fields() as Record<string, unknown>;
  for (const [name, value] of Object.entries(ofNone)) t.not(ofAll[name], value, `${name} was set`);
  head.read(requestWith());
  t.strictSame(fields(), ofNone);
  head.read(requestWith(['host', 'a']));
  t.equal(head.rejection(), undefined, 'nor of the hosts before');
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
