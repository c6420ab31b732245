import t from 'tap';
import { asBuffer, joinedBytes, joinedChunks } from '#src/core/bytes.js';

/** A view that is neither at the start nor at the end of its memory. */
const viewOf = (text: string): Uint8Array => new TextEncoder().encode(`<${text}>`).subarray(1, -1);

void t.test('a Buffer is a view of the same memory', (t) => {
  const view = viewOf('abc');
  const buffer = asBuffer(view);
  t.equal(buffer.toString(), 'abc');
  view[0] = 120;
  t.equal(buffer.toString(), 'xbc');
  t.equal(asBuffer(buffer), buffer, 'a Buffer is returned as it is');
  t.end();
});

void t.test('one chunk is not copied, several are joined', (t) => {
  const only = viewOf('only');
  const joined = joinedChunks([only], 4);
  t.equal(joined.toString(), 'only');
  t.equal(joined.buffer, only.buffer);
  t.equal(joinedChunks([viewOf('ab'), viewOf(''), viewOf('c')], 3).toString(), 'abc');
  t.equal(joinedChunks([], 0).length, 0);
  t.end();
});

void t.test('joined bytes have memory of their own, which holds nothing else', (t) => {
  for (const texts of [[], ['only'], ['ab', '', 'c'], ['x'.repeat(10_000), 'y']]) {
    const pieces = texts.map(viewOf);
    const expected = texts.join('');
    const joined = joinedBytes(pieces, expected.length);
    for (const piece of pieces) piece.fill(0);
    t.equal(asBuffer(joined).toString(), expected);
    t.equal(joined.buffer.byteLength, expected.length, 'so it can be transferred');
  }
  t.throws(() => joinedBytes([viewOf('abc')], 2), RangeError);
  t.end();
});
