/** Heads of responses: what they mean, and what is refused. */
import t from 'tap';
import type { HeaderName } from '#src/http1/http-client.js';
import { parseHead, ResponseHead } from '#src/http1/head.js';

const headOf = (...lines: string[]): ResponseHead | string => parseHead([...lines, '', ''].join('\r\n'));

void t.test('framing and keeping', (t) => {
  const cases: [string[], Partial<ResponseHead>][] = [
    [
      ['HTTP/1.1 200 OK', 'Content-Length: 12'],
      { status: 200, framing: 'length', lengthBytes: 12, keepsAlive: true },
    ],
    [['HTTP/1.1 200 OK', 'content-length:0'], { framing: 'empty', lengthBytes: 0, keepsAlive: true }],
    [['HTTP/1.1 200', 'CONTENT-LENGTH: \t007 \t'], { framing: 'length', lengthBytes: 7 }],
    [['HTTP/1.1 200 ', 'Transfer-Encoding: Chunked'], { framing: 'chunked', keepsAlive: true }],
    [['HTTP/1.1 200 OK'], { framing: 'close', keepsAlive: false }],
    [['HTTP/1.0 200 OK', 'Content-Length: 3'], { framing: 'length', keepsAlive: false }],
    [['HTTP/1.0 200 OK', 'Connection: keep-alive', 'Content-Length: 3'], { keepsAlive: false }],
    [['HTTP/1.1 200 OK', 'Connection: keep-alive', 'Content-Length: 3'], { keepsAlive: true }],
    [['HTTP/1.1 200 OK', 'Connection: Foo, CLOSE', 'Content-Length: 3'], { keepsAlive: false }],
    [['HTTP/1.1 200 OK', 'Connection: foo', 'connection: close', 'Content-Length: 3'], { keepsAlive: false }],
    [['HTTP/1.1 200 OK', 'Connection: closed', 'Content-Length: 3'], { keepsAlive: true }],
    [['HTTP/1.1 200 OK', 'X-Connection: close', 'Content-Length: 3'], { keepsAlive: true }],
    [['HTTP/1.1 204 No Content', 'Content-Length: 3'], { framing: 'empty' }],
    [['HTTP/1.1 304 Not Modified', 'Transfer-Encoding: chunked'], { framing: 'empty' }],
    [['HTTP/1.1 103 Early Hints', 'Content-Length: 3', 'Link: </x>'], { status: 103, framing: 'empty' }],
    [['HTTP/1.1 999 \xe9\t', 'Content-Length: 1'], { status: 999 }],
    [['HTTP/1.1 200 OK', 'X: content-length: 9', 'Content-Length: 1'], { lengthBytes: 1 }],
    [['HTTP/1.1 200 OK', 'Content-Length: 999999999999999'], { lengthBytes: 999_999_999_999_999 }],
  ];
  for (const [lines, want] of cases) {
    const head = headOf(...lines);
    t.type(head, ResponseHead, lines.join(' | '));
    for (const [name, value] of Object.entries(want))
      t.equal(head[name as keyof typeof head], value, `${name} of ${lines.join(' | ')}`);
  }
  t.end();
});

void t.test('headers by their names, and how long it is kept', (t) => {
  const head = headOf(
    'HTTP/1.1 200 OK',
    'Content-Type:  text/event-stream; charset=utf-8 ',
    'Retry-After: 5',
    'retry-after: 6',
    'x-empty:',
    "!#$%&'*+.^_`|~: odd",
    'Keep-Alive: max=3, Timeout=20',
    'Content-Length: 1',
  ) as ResponseHead;
  t.equal(head.header('content-type'), 'text/event-stream; charset=utf-8');
  t.equal(head.header('retry-after'), '5', 'the first of two');
  const other = (name: string): string | undefined => head.header(name as HeaderName);
  t.equal(other('x-empty'), '');
  t.equal(other("!#$%&'*+.^_`|~"), 'odd');
  t.equal(other('after'), undefined, 'a part of a name is no name');
  t.equal(other('x-none'), undefined);
  t.equal(head.keepAliveSeconds, 20);
  for (const [value, seconds] of [
    ['timeout=5', 5],
    ['timeout=x', undefined],
    ['max=5', undefined],
    ['notimeout=5', undefined],
  ] as const) {
    const { keepAliveSeconds } = headOf('HTTP/1.1 200 OK', `Keep-Alive: ${value}`) as ResponseHead;
    t.equal(keepAliveSeconds, seconds, value);
  }
  t.end();
});

void t.test('what is refused', (t) => {
  const many = (count: number): string[] => Array.from({ length: count }, (_, index) => `x-${index}: 1`);
  const refused: [string, string[]][] = [
    ['bad status line', ['hello']],
    ['bad status line', ['HTTP/9.9 200 OK']],
    ['bad status line', ['HTTP/2 200 OK']],
    ['bad status line', ['http/1.1 200 OK']],
    ['bad status line', ['HTTP/1.1 2000 OK']],
    ['bad status line', ['HTTP/1.1 20 OK']],
    ['bad status line', ['HTTP/1.1 099 OK']],
    ['bad status line', ['HTTP/1.1  200 OK']],
    ['bad status line', ['HTTP/1.1 200 O\0K']],
    ['bad status line', ['HTTP/1.1 200 O\nK']],
    ['bad status line', ['', 'HTTP/1.1 200 OK']],
    ['bad header', ['HTTP/1.1 200 OK', 'nonsense']],
    ['bad header', ['HTTP/1.1 200 OK', ': x']],
    ['bad header', ['HTTP/1.1 200 OK', 'x : y']],
    ['bad header', ['HTTP/1.1 200 OK', 'x y: z']],
    ['bad header', ['HTTP/1.1 200 OK', ' x: y']],
    ['bad header', ['HTTP/1.1 200 OK', 'x: y', ' folded']],
    ['bad header', ['HTTP/1.1 200 OK', 'x: y', '\tfolded']],
    ['bad header', ['HTTP/1.1 200 OK', 'x: a\0b']],
    ['bad header', ['HTTP/1.1 200 OK', 'x: a\nb: c']],
    ['bad header', ['HTTP/1.1 200 OK', 'x: a\rb: c']],
    ['bad header', ['HTTP/1.1 200 OK', 'x\xe9: a']],
    ['bad header', ['HTTP/1.1 200 OK', 'x: a\x7f']],
    ['an upgrade that nobody asked for', ['HTTP/1.1 101 Switching Protocols', 'Upgrade: x']],
    [
      'a length and a transfer coding',
      ['HTTP/1.1 200 OK', 'Content-Length: 1', 'Transfer-Encoding: chunked'],
    ],
    [
      'a length and a transfer coding',
      ['HTTP/1.1 200 OK', 'transfer-encoding: chunked', 'content-length: 1'],
    ],
    ['two lengths', ['HTTP/1.1 200 OK', 'Content-Length: 1', 'content-length: 1']],
    ['a length that is none', ['HTTP/1.1 200 OK', 'Content-Length: 1, 1']],
    ['a length that is none', ['HTTP/1.1 200 OK', 'Content-Length: -1']],
    ['a length that is none', ['HTTP/1.1 200 OK', 'Content-Length: +1']],
    ['a length that is none', ['HTTP/1.1 200 OK', 'Content-Length: 0x1']],
    ['a length that is none', ['HTTP/1.1 200 OK', 'Content-Length: ']],
    ['a length that is none', ['HTTP/1.1 200 OK', 'Content-Length: 1 1']],
    ['a length that is none', ['HTTP/1.1 200 OK', `Content-Length: ${'9'.repeat(16)}`]],
    ['a transfer coding but chunked', ['HTTP/1.1 200 OK', 'Transfer-Encoding: gzip, chunked']],
    ['a transfer coding but chunked', ['HTTP/1.1 200 OK', 'Transfer-Encoding: identity']],
    ['a transfer coding but chunked', ['HTTP/1.1 200 OK', 'Transfer-Encoding: xchunked']],
    ['a transfer coding but chunked', ['HTTP/1.1 200 OK', 'Transfer-Encoding: chunked, chunked']],
    ['a transfer coding but chunked', ['HTTP/1.1 200 OK', 'Transfer-Encoding: \xa0chunked']],
    [
      'two transfer codings',
      ['HTTP/1.1 200 OK', 'Transfer-Encoding: chunked', 'Transfer-Encoding: identity'],
    ],
    ['a transfer coding in HTTP/1.0', ['HTTP/1.0 200 OK', 'Transfer-Encoding: chunked']],
    ['more than 256 headers', ['HTTP/1.1 200 OK', ...many(257)]],
  ];
  for (const [problem, lines] of refused) {
    const head = headOf(...lines);
    t.equal(head, problem, JSON.stringify(lines.slice(0, 3)));
  }
  t.type(headOf('HTTP/1.1 200 OK', ...many(256)), ResponseHead, 'as many as may be');
  t.end();
});
