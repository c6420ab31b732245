import t from 'tap';
import {
  asBuffer,
  disposable,
  freeBytes,
  freeDisposable,
  joinedBytes,
  joinedChunks,
  withoutSpare,
} from '#src/core/bytes.js';

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
  const joined = joinedChunks([only]);
  t.equal(joined.toString(), 'only');
  t.equal(joined.buffer, only.buffer);
  t.equal(joinedChunks([viewOf('ab'), viewOf(''), viewOf('c')]).toString(), 'abc');
  t.equal(joinedChunks([]).length, 0);
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
  for (const length of [2, 4]) t.throws(() => joinedBytes([viewOf('abc')], length), `${length} for 3`);
  t.end();
});

/** Node 20 cannot free memory: there bytes keep their length. */
const lengthIfFreed = (length: number): number => ('transfer' in ArrayBuffer.prototype ? 0 : length);

void t.test('memory that holds the bytes alone is freed, once', (t) => {
  const bytes = new Uint8Array(5_000);
  freeBytes(bytes);
  freeBytes(bytes);
  t.equal(bytes.length, lengthIfFreed(5_000));
  const transferred = new Uint8Array(5_000);
  structuredClone(null, { transfer: [transferred.buffer] });
  freeBytes(transferred);
  t.equal(transferred.length, 0);
  t.end();
});

void t.test('memory with more in it stays', (t) => {
  const memory = new Uint8Array(5_000);
  const pooled = Buffer.from('a short one shares the pool of Node');
  for (const bytes of [memory.subarray(0, 100), memory.subarray(100), memory.subarray(5_000), pooled])
    freeBytes(disposable(bytes));
  freeBytes(new Uint8Array(new SharedArrayBuffer(5_000)));
  t.equal(memory.length, 5_000);
  t.equal(pooled.toString(), 'a short one shares the pool of Node');
  t.end();
});

void t.test('bytes without the spare ones can be freed', (t) => {
  for (const length of [0, 4_990, 5_000]) {
    const bytes = new Uint8Array(5_000).fill(7);
    const trimmed = withoutSpare(bytes, length);
    t.equal(trimmed.length, length);
    t.ok(trimmed.every((byte) => byte === 7));
    freeBytes(trimmed);
    t.equal(trimmed.length, lengthIfFreed(length));
  }
  t.end();
});

void t.test('a reader frees only what is disposable', (t) => {
  const [constant, response] = [new Uint8Array(5_000), disposable(new Uint8Array(5_000))];
  for (const bytes of [constant, response]) freeDisposable(bytes);
  t.equal(constant.length, 5_000);
  t.equal(response.length, lengthIfFreed(5_000));
  t.end();
});

void t.test('chunks are freed once they are joined, and a single one is not', (t) => {
  const [first, second, only] = [1, 2, 3].map((byte) => new Uint8Array(5_000).fill(byte)) as [
    Uint8Array,
    Uint8Array,
    Uint8Array,
  ];
  const joined = joinedChunks([first, second]);
  t.equal(joined.length, 10_000);
  t.ok(joined.every((byte, at) => byte === (at < 5_000 ? 1 : 2)));
  t.equal(first.length, lengthIfFreed(5_000));
  t.equal(second.length, lengthIfFreed(5_000));
  t.equal(joinedChunks([only]).length, 5_000);
  t.equal(only.length, 5_000);
  t.end();
});
