/**
 * Frees the memory of large request bodies. V8 counts that memory outside of its heap, and collects the whole
 * heap each time that it has grown by some 20 to 60 MB: with bodies of 16 KB once in 1,200 calls, which is a
 * sixth of a call's CPU (docs/benchmarks.md, "Large bodies"). So bodies are freed as soon as nobody needs
 * them: the caller's by upstream/call-models.ts, a copy made for one request once it is written.
 * connection.ts tells of the writes. Upstream worker.
 *
 * Must hold: no memory is freed while a request with it is being written. libuv reads it without V8's
 * knowledge, so the upstream could get bytes of another call (test/unit/http1/body-memory.test.ts, and
 * connection.test.ts for an upstream that responds before it has the request).
 */

/** By memory: how many requests with it are not written yet. */
const writes = new WeakMap<ArrayBufferLike, number>();
/** Bodies that nobody needs once they are written. */
const disposable = new WeakSet<Uint8Array>();

/** Returns `body`, which `endWrite` frees from now on. Only for a body that is written once. */
export function freedOnceWritten<Bytes extends Uint8Array>(body: Bytes): Bytes {
  disposable.add(body);
  return body;
}

/** To be called before `body` is written. */
export function beginWrite({ buffer }: Uint8Array): void {
  writes.set(buffer, (writes.get(buffer) ?? 0) + 1);
}

/** To be called once for each `beginWrite`: the write has ended or failed, or its socket is closed. */
export function endWrite(body: Uint8Array): void {
  const left = (writes.get(body.buffer) ?? 0) - 1;
  if (left > 0) writes.set(body.buffer, left);
  else writes.delete(body.buffer);
  if (disposable.has(body)) freeBody(body);
}

/**
 * Frees the memory of `body`, whose length is 0 from then on. To be called by the last who needs it. Does
 * nothing while the memory is being written, if it holds more than `body`, if it was freed or transferred
 * before, and on Node 20, which has no means to free it. Then V8 collects it some time.
 */
export function freeBody(body: Uint8Array): void {
  const { buffer } = body as {
    readonly buffer: ArrayBufferLike & { transfer?(lengthBytes: number): unknown };
  };
  if (body.length === 0 || body.length !== buffer.byteLength || writes.has(buffer)) return;
  buffer.transfer?.(0);
}
