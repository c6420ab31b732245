/**
 * Frees the memory of large request bodies. V8 counts that memory outside of its heap, and collects the whole
 * heap each time that it has grown by some 20 to 60 MB: with bodies of 16 KB once in 1,200 calls, which is a
 * sixth of a call's CPU (docs/benchmarks.md, "Large bodies"). So bodies are freed as soon as nobody needs
 * them: the caller's by upstream/call-models.ts, a copy made for one request here, once it is written.
 * connection.ts writes them by `writeBody`. Upstream worker.
 *
 * Must hold: no memory is freed while a request with it is being written. libuv reads it without V8's
 * knowledge, so the upstream could get bytes of another call (test/unit/http1/body-memory.test.ts, and
 * connection.test.ts for an upstream that responds before it has the request).
 */
import { freeBytes, freeDisposable } from '../core/bytes.js';

/** By memory: how many requests with it are not written yet. */
const writes = new WeakMap<ArrayBufferLike, number>();

/** The socket of a connection: calls `onEnd` once, also if the write fails or the socket is destroyed. */
interface BodyWriter {
  write(body: Uint8Array, onEnd: () => void): unknown;
}

/** Writes `body`, whose memory is not freed before the write has ended. Then a `disposable` body is freed. */
export function writeBody(socket: BodyWriter, body: Uint8Array): void {
  const { buffer } = body;
  writes.set(buffer, (writes.get(buffer) ?? 0) + 1);
  socket.write(body, () => endWrite(body));
}

function endWrite(body: Uint8Array): void {
  const left = (writes.get(body.buffer) ?? 0) - 1;
  if (left > 0) writes.set(body.buffer, left);
  else writes.delete(body.buffer);
  if (left <= 0) freeDisposable(body);
}

/** As `freeBytes`, for a request body: does nothing while its memory is being written. */
export function freeBody(body: Uint8Array): void {
  if (!writes.has(body.buffer)) freeBytes(body);
}
