/** Which bodies are read, by the headers of their responses. */
import t from 'tap';
import { isEncoded, isHtml, isReadable } from '#src/http1/content-headers.js';

void t.test('types of a stream, of a whole response, of a page', (t) => {
  for (const [type, stream, whole, page] of [
    ['text/event-stream', true, false, false],
    [' Text/Event-Stream ; charset=utf-8', true, false, false],
    ['application/json', false, true, false],
    ['application/json; charset=utf-8', false, true, false],
    ['text/plain', false, true, false],
    ['', false, true, false],
    [undefined, false, true, false],
    ['text/html', false, false, true],
    [' TEXT/HTML; charset=utf-8', false, false, true],
    ['application/xhtml+xml', false, false, true],
    ['text/event-streams', false, true, false],
  ] as const) {
    t.equal(isReadable(type, true), stream, `${type} as a stream`);
    t.equal(isReadable(type, false), whole, `${type} as a whole response`);
    t.equal(isHtml(type), page, `${type} as a page`);
  }
  t.end();
});

void t.test('only identity is no encoding', (t) => {
  for (const plain of [undefined, 'identity', ' Identity ']) t.notOk(isEncoded(plain), String(plain));
  for (const encoded of ['gzip', 'br, identity', '']) t.ok(isEncoded(encoded), encoded);
  t.end();
});
