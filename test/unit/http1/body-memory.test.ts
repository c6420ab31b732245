/** Which memory is freed, and which never while a request with it is being written. */
import t from 'tap';
import { disposable } from '#src/core/bytes.js';
import { freeBody, writeBody } from '#src/http1/body-memory.js';

/** Node 20 cannot free memory: there each body keeps its length. */
const canFree = 'transfer' in ArrayBuffer.prototype;
const LENGTH = 5_000;
const lengthIfFreed = canFree ? 0 : LENGTH;

/** Begins to write `body`. Returns what ends the write. */
function beginWrite(body: Uint8Array): () => void {
  let end = (): void => undefined;
  writeBody({ write: (_body, onEnd) => (end = onEnd) }, body);
  return end;
}

void t.test('a body is freed once, and a second time harms nothing', (t) => {
  const body = new Uint8Array(LENGTH);
  freeBody(body);
  t.equal(body.length, lengthIfFreed);
  freeBody(body);
  t.equal(body.length, lengthIfFreed);
  t.end();
});

void t.test('nothing is freed before the last request with the memory is written', (t) => {
  const body = new Uint8Array(LENGTH).fill(1);
  const part = body.subarray(10, 4_000);
  const endBody = beginWrite(body);
  const endPart = beginWrite(part);
  freeBody(body);
  endBody();
  freeBody(body);
  t.equal(body.length, LENGTH);
  t.equal(part[0], 1);
  endPart();
  t.equal(body.length, LENGTH, 'whoever wanted it freed says so again');
  freeBody(body);
  t.equal(body.length, lengthIfFreed);
  t.end();
});

void t.test('a copy for one request is freed at the end of its write', (t) => {
  const body = disposable(new Uint8Array(LENGTH));
  const ends = [beginWrite(body), beginWrite(body)];
  ends[0]!();
  t.equal(body.length, LENGTH, 'the other write goes on');
  ends[1]!();
  t.equal(body.length, lengthIfFreed);
  const kept = new Uint8Array(LENGTH);
  beginWrite(kept)();
  t.equal(kept.length, LENGTH, 'a body that others may need');
  t.end();
});
